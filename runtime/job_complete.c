// job_complete.c - see job_complete.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_complete.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

static void complete_data(zx_job *job)
{
    zx_text data = {0};
    const bool in_file = zx_config_get(&job->config, "zerox.data")->has;
    zx_data_json(job->data, &data);
    if (strcmp(data.at, "{}") != 0 || in_file)
        zx_config_set_json(&job->config, "zerox.data", json_loads(data.at, 0, NULL),
                           zx_given(job->o, ZX_OPT_DATA) ? ZX_FROM_COMMAND
                           : in_file                     ? ZX_FROM_FILE
                                                         : ZX_FROM_DEFAULT);
    zx_text_free(&data);
}

static void complete_dims(zx_job *job)
{
    const zx_option_value *given = &job->o->value[ZX_OPT_DIM];
    const zx_config_value *had = zx_config_get(&job->config, "zerox.dims");
    if (given->n == 0) return;
    json_t *dims = json_object();
    if (had->has) json_object_update(dims, (json_t *)(uintptr_t)had->json);
    for (uint32_t i = 0; i < given->n; i++) {
        size_t n = 0;
        uint64_t size = 0;
        zx_parse_name_count(given->text[i], &n, &size); // its form was checked at import
        json_object_set_new(dims, zx_arena_strn(&job->mem, given->text[i], n),
                            json_integer((json_int_t)size));
    }
    zx_config_set_json(&job->config, "zerox.dims", dims, ZX_FROM_COMMAND);
}

// What is relative to the current folder stays where it is when the run is gone on with elsewhere.
static const struct output {
    const char *section, *key;
    bool here; // where it isn't said it is the current folder; else it is none
} outputs[] = {
    {"tensorboard", "output_path", true},
    {"csv_monitor", "output_path", true},
    {"flops_profiler", "output_file", false},
};

static void complete_output(zx_job *job, const struct output *o)
{
    char here[PATH_MAX];
    zx_arena *mem = &job->mem;
    const char *key = zx_arena_printf(mem, "%s.%s", o->section, o->key);
    const zx_config_value *v = zx_config_get(&job->config, key);
    const bool said = v->has && v->text[0] != '\0';
    if (!zx_config_get(&job->config, zx_arena_printf(mem, "%s.enabled", o->section))->b) return;
    if ((!said && !o->here) || (said && v->text[0] == '/')) return;
    if (getcwd(here, sizeof here) == NULL) return;
    zx_config_set_text(&job->config, key,
                       said ? zx_arena_printf(mem, "%s/%s", here, v->text)
                            : zx_arena_str(mem, here),
                       said ? v->from : ZX_FROM_DEFAULT);
}

void zx_job_complete(zx_job *job)
{
    for (size_t i = 0; i < ZX_COUNT(outputs); i++) complete_output(job, &outputs[i]);
    complete_data(job);
    complete_dims(job);
}
