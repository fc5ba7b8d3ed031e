// job_fuse.c - the fusion passes of a job's forward graph, less those that --no-fuse names.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_fuse.h"

#include <string.h>

static zx_fuse_id find(const char *word, size_t n)
{
    for (uint32_t i = 0; i < ZX_FUSE_COUNT; i++)
        if (strlen(zx_fuses[i].word) == n && memcmp(zx_fuses[i].word, word, n) == 0)
            return (zx_fuse_id)i;
    return ZX_FUSE_COUNT;
}

static zx_status refuse(const char *word, size_t n, zx_arena *mem, zx_err *err)
{
    zx_text words = {0};
    for (uint32_t i = 0; i < ZX_FUSE_COUNT; i++)
        zx_text_put(&words, "%s%s", i > 0 ? ", " : "", zx_fuses[i].word);
    zx_err_hint(err, "all, or one or more of %s", words.at);
    zx_text_free(&words);
    return ZX_FAIL(err, ZX_E_USAGE, "--no-fuse: there is no pass '%s'",
                   zx_text_safe(mem, zx_arena_strn(mem, word, n)));
}

static zx_status read_off(const zx_options *o, zx_arena *mem, bool off[ZX_FUSE_COUNT], zx_err *err)
{
    const char *at = zx_given_text(o, ZX_OPT_NO_FUSE);
    for (uint32_t i = 0; i < ZX_FUSE_COUNT; i++) off[i] = false;
    while (at != NULL) {
        const size_t n = strcspn(at, ",");
        const zx_fuse_id id = find(at, n);
        if (id < ZX_FUSE_COUNT)
            off[id] = true;
        else if (n == 3 && memcmp(at, "all", 3) == 0)
            for (uint32_t i = 0; i < ZX_FUSE_COUNT; i++) off[i] = true;
        else
            return refuse(at, n, mem, err);
        at = at[n] == ',' ? at + n + 1 : NULL;
    }
    return ZX_OK;
}

zx_status zx_job_fuse(zx_job *job, uint32_t *counts, zx_graph *out, zx_err *err)
{
    bool off[ZX_FUSE_COUNT];
    ZX_TRY(read_off(job->o, &job->mem, off, err));
    zx_fuse(&job->forward, off, &job->mem, out, counts);
    return ZX_OK;
}
