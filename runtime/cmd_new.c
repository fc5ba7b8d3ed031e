// cmd_new.c - zerox new: writes an untrained model of a family.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "graph/build_model.h"
#include "runtime/cmd.h"
#include "runtime/outfile.h"

// "layers=12"; 0 has a meaning for some sizes, so the family judges the value.
static zx_status set_size(const char *text, zx_new_options *sizes, zx_arena *mem, zx_err *err)
{
    const char *eq = strchr(text, '=');
    uint64_t value = 0;
    if (eq == NULL || eq == text || !zx_parse_u64(eq + 1, &value) || value > INT64_MAX)
        return ZX_FAIL(err, ZX_E_USAGE, "--set needs NAME=N, not '%s'", zx_text_safe(mem, text));
    return zx_new_set(sizes, zx_arena_strn(mem, text, (size_t)(eq - text)), (int64_t)value, err);
}

static zx_status make(const zx_options *o, zx_arena *mem, zx_err *err)
{
    zx_new_options sizes = {.seed = zx_given_number(o, ZX_OPT_SEED, 0)};
    const zx_option_value *set = &o->value[ZX_OPT_SET];
    for (uint32_t i = 0; i < set->n; i++) ZX_TRY(set_size(set->text[i], &sizes, mem, err));
    const char *path = zx_given_text(o, ZX_OPT_OUTPUT);
    if (path == NULL) path = zx_arena_printf(mem, "%s.onnx", zx_text_safe(mem, o->operand));
    const char *preset = zx_given_text(o, ZX_OPT_PRESET);
    zx_text onnx = {0}, what = {0};
    zx_status st = zx_new_model(o->operand, preset, &sizes, &onnx, err);
    if (st != ZX_OK) zx_err_hint(err, "zerox new --list");
    if (st == ZX_OK) st = zx_outfile_spare(path, zx_given(o, ZX_OPT_FORCE), err);
    if (st == ZX_OK) st = zx_outfile_put(path, onnx.at, onnx.n, mem, err);
    if (st == ZX_OK) st = zx_new_describe(o->operand, preset, &sizes, &what, err);
    if (st == ZX_OK) {
        char size[ZX_BYTES_TEXT];
        const char *safe = zx_text_safe(mem, path);
        zx_cmd_say("wrote %s: %s, %s; next: zerox check %s", safe, what.at,
                   zx_text_size(onnx.n, size), safe);
    }
    zx_text_free(&onnx);
    zx_text_free(&what);
    return st;
}

int zx_cmd_new(const zx_options *o, zx_err *err)
{
    zx_arena mem = {0};
    zx_text list = {0};
    zx_status st = ZX_OK;
    if (zx_given(o, ZX_OPT_LIST_PRESETS)) {
        zx_new_list(&list);
        zx_cmd_put(&list);
    } else {
        st = make(o, &mem, err);
    }
    zx_text_free(&list);
    zx_arena_free(&mem);
    return zx_status_exit(st);
}
