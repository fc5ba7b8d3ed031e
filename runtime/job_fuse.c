// job_fuse.c - the fusion passes of a job's forward graph, and of the train graph for a backend
// whose products have epilogues, less those that --no-fuse names.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_fuse.h"

#include <string.h>

#include "graph/epilogue.h"

#define EPILOGUES ZX_FUSE_COUNT // behind the passes of fuse.def
#define PASSES (ZX_FUSE_COUNT + 1)

static const char *word_of(uint32_t i)
{
    return i == EPILOGUES ? ZX_EPILOGUES_WORD : zx_fuses[i].word;
}

static uint32_t find(const char *word, size_t n) // PASSES: none
{
    uint32_t i = 0;
    while (i < PASSES && !(strlen(word_of(i)) == n && memcmp(word_of(i), word, n) == 0)) i++;
    return i;
}

static zx_status refuse(const char *word, size_t n, zx_arena *mem, zx_err *err)
{
    zx_text words = {0};
    for (uint32_t i = 0; i < PASSES; i++)
        zx_text_put(&words, "%s%s", i > 0 ? ", " : "", word_of(i));
    zx_err_hint(err, "all, or one or more of %s", words.at);
    zx_text_free(&words);
    return ZX_FAIL(err, ZX_E_USAGE, "--no-fuse: there is no pass '%s'",
                   zx_text_safe(mem, zx_arena_strn(mem, word, n)));
}

static zx_status read_off(const zx_options *o, zx_arena *mem, bool off[PASSES], zx_err *err)
{
    const char *at = zx_given_text(o, ZX_OPT_NO_FUSE);
    for (uint32_t i = 0; i < PASSES; i++) off[i] = false;
    while (at != NULL) {
        const size_t n = strcspn(at, ",");
        const uint32_t id = find(at, n);
        if (id < PASSES)
            off[id] = true;
        else if (n == 3 && memcmp(at, "all", 3) == 0)
            for (uint32_t i = 0; i < PASSES; i++) off[i] = true;
        else
            return refuse(at, n, mem, err);
        at = at[n] == ',' ? at + n + 1 : NULL;
    }
    return ZX_OK;
}

zx_status zx_job_fuse_of(zx_job *job, const zx_graph *g, uint32_t *counts, zx_graph *out,
                         zx_err *err)
{
    bool off[PASSES];
    ZX_TRY(read_off(job->o, &job->mem, off, err));
    zx_fuse(g, off, &job->mem, out, counts);
    return ZX_OK;
}

zx_status zx_job_fuse(zx_job *job, uint32_t *counts, zx_graph *out, zx_err *err)
{
    return zx_job_fuse_of(job, &job->forward, counts, out, err);
}

zx_status zx_job_epilogues(zx_job *job, zx_err *err)
{
    bool off[PASSES];
    ZX_TRY(read_off(job->o, &job->mem, off, err));
    if (zx_site_backend(&job->site)->epilogues && !off[EPILOGUES])
        zx_epilogues(&job->plain, &job->mem, &job->plain);
    return ZX_OK;
}
