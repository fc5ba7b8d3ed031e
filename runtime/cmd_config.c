// cmd_config.c - zerox config: what a configuration comes to, key by key, and the schema of one.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/cmd.h"

static zx_status check_options(const zx_options *o, bool *json, zx_err *err)
{
    const char *format = zx_given_text(o, ZX_OPT_FORMAT);
    const bool schema = zx_given(o, ZX_OPT_SCHEMA);
    *json = format != NULL && strcmp(format, "json") == 0;
    if (schema == zx_given(o, ZX_OPT_EXPLAIN))
        return ZX_FAIL(err, ZX_E_USAGE, "config needs --explain FILE or --schema%s",
                       schema ? ", one of them" : "");
    if (format == NULL || *json || strcmp(format, "text") == 0) return ZX_OK;
    zx_arena mem = {0};
    const zx_status st = ZX_FAIL(err, ZX_E_USAGE, "--format of config is text or json, not '%s'",
                                 zx_text_safe(&mem, format));
    zx_arena_free(&mem);
    return st;
}

// What is refused stands in the list of what there is as well.
static zx_status explain(const zx_options *o, bool json, zx_text *out, zx_err *err)
{
    zx_job job = {0};
    const uint32_t ranks = (uint32_t)zx_given_number(o, ZX_OPT_RANKS, 1);
    const zx_status st = zx_job_open_config(&job, o, ranks, err);
    if (job.config.root != NULL && json) {
        zx_config_explain_json(&job.config, o->operand, ranks, err, out);
    } else if (job.config.root != NULL) {
        zx_text_put(out, "%s, %u rank%s", zx_text_safe(&job.mem, job.config.path), ranks,
                    ranks == 1 ? "" : "s");
        if (o->operand != NULL) zx_text_put(out, ", %s", zx_text_safe(&job.mem, o->operand));
        zx_text_put(out, "\n");
        zx_config_explain(&job.config, err, out);
    }
    zx_job_close(&job);
    return st;
}

int zx_cmd_config(const zx_options *o, zx_err *err)
{
    zx_text out = {0};
    bool json = false;
    zx_status st = check_options(o, &json, err);
    if (st == ZX_OK && zx_given(o, ZX_OPT_SCHEMA))
        zx_config_schema(&out);
    else if (st == ZX_OK)
        st = explain(o, json, &out, err);
    zx_cmd_put(&out);
    zx_text_free(&out);
    return zx_status_exit(st);
}
