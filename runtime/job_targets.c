// job_targets.c - see job_targets.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_targets.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/outfile.h"

typedef struct named {
    zx_option_id id;
    const char *word;
} named;
static const named written[] = {{ZX_OPT_OUTPUT, "-o"},
                                {ZX_OPT_REPORT, "--report"},
                                {ZX_OPT_PROFILE, "--profile"},
                                {ZX_OPT_LOG, "--log"},
                                {ZX_OPT_DUMP_GRADS, "--dump-grads"}};

// The folder as the system knows it, and the name in it; as it is given where there is no folder.
static const char *place_of(const char *path, zx_arena *mem)
{
    const char *slash = strrchr(path, '/');
    const char *dir = slash == NULL ? "." : zx_arena_strn(mem, path, (size_t)(slash - path) + 1);
    char *full = realpath(dir, NULL);
    if (full == NULL) return path;
    const char *place = zx_arena_printf(mem, "%s/%s", full, slash == NULL ? path : slash + 1);
    free(full);
    return place;
}

static bool one_file(const char *a, const char *b, zx_arena *mem)
{
    struct stat x, y;
    if (stat(a, &x) == 0 && stat(b, &y) == 0) return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    return strcmp(place_of(a, mem), place_of(b, mem)) == 0;
}

// A file that is read is never written over: not the model, the config, nor what else was given;
// and a file takes one thing.
zx_status zx_job_check_targets(const zx_options *o, zx_arena *mem, zx_err *err)
{
    static const named read[] = {{ZX_OPT_CONFIG, "the config"},
                                 {ZX_OPT_PLAN_FILE, "the plan"},
                                 {ZX_OPT_MODULES, "the list of modules"},
                                 {ZX_OPT_MACHINE, "the machine's file"}};
    for (size_t i = 0; i < ZX_COUNT(written); i++) {
        const char *path = zx_given_text(o, written[i].id);
        struct stat out, in;
        const bool there = path != NULL && stat(path, &out) == 0;
        for (size_t k = 0; k < i && (!there || S_ISREG(out.st_mode)); k++) {
            const char *other = zx_given_text(o, written[k].id);
            if (path == NULL || other == NULL || !one_file(path, other, mem)) continue;
            zx_err_hint(err, "two names");
            return ZX_FAIL(err, ZX_E_USAGE, "%s and %s name one file, %s", written[k].word,
                           written[i].word, zx_text_safe(mem, path));
        }
        if (!there || !S_ISREG(out.st_mode)) continue;
        for (size_t k = 0; k <= ZX_COUNT(read); k++) {
            const bool model = k == ZX_COUNT(read);
            const char *from = model ? o->operand : zx_given_text(o, read[k].id);
            if (from == NULL || stat(from, &in) != 0) continue;
            if (in.st_dev == out.st_dev && in.st_ino == out.st_ino)
                return ZX_FAIL(err, ZX_E_USAGE, "%s %s is %s itself", written[i].word,
                               zx_text_safe(mem, path), model ? "the model" : read[k].word);
        }
        // A run that goes on goes on with its log.
        const bool own = written[i].id == ZX_OPT_LOG && zx_given(o, ZX_OPT_RESUME);
        ZX_TRY(zx_outfile_spare(path, own || zx_given(o, ZX_OPT_FORCE), err));
    }
    return ZX_OK;
}

zx_status zx_job_spare_data(const zx_options *o, const zx_data *data, zx_arena *mem, zx_err *err)
{
    struct stat file;
    for (size_t i = 0; i < ZX_COUNT(written); i++) {
        const char *path = zx_given_text(o, written[i].id);
        if (path == NULL || stat(path, &file) != 0 || !S_ISREG(file.st_mode)) continue;
        if (!zx_data_reads(data, &file)) continue;
        zx_err_hint(err, "another name");
        return ZX_FAIL(err, ZX_E_USAGE, "%s is what the run reads: it can't be written to",
                       zx_text_safe(mem, path));
    }
    return ZX_OK;
}
