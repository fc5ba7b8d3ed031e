// job_complete.c - see job_complete.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_complete.h"

#include <string.h>

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

void zx_job_complete(zx_job *job)
{
    complete_data(job);
    complete_dims(job);
}
