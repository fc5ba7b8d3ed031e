// calibrate_cache.c - keeps this host's figures as a machine file in the user's cache.
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/calibrate.h"
#include "runtime/memory.h"
#include "runtime/outfile.h"
#include "runtime/stream.h"
#include "runtime/version.h"

#define FORMAT 6 // what is measured, and how: figures of another one are measured again

// The processor's name as the kernel has it; "" where it has none.
static const char *processor(zx_arena *mem)
{
    char line[512];
    const char *name = "";
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
        name = zx_arena_strn(mem, colon + 1, strcspn(colon + 1, "\n"));
        break;
    }
    if (f != NULL) fclose(f);
    return name;
}

static const char *folder(zx_arena *mem)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache != NULL && cache[0] == '/') return zx_arena_printf(mem, "%s/zerox", cache);
    if (home == NULL || home[0] != '/') return NULL;
    return zx_arena_printf(mem, "%s/.cache/zerox", home);
}

const char *zx_calibrate_path(uint32_t ranks, uint32_t threads, zx_arena *mem)
{
    const char *dir = folder(mem);
    if (dir == NULL) return NULL;
    const char *key = zx_arena_printf(mem, "%s %d %s, %u cores, %ux%u", ZX_VERSION, FORMAT,
                                      processor(mem), zx_memory_cores(), ranks, threads);
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *c = key; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    return zx_arena_printf(mem, "%s/machine-%ux%u-%016" PRIx64 ".json", dir, ranks, threads, hash);
}

// mkdir -p of the folder that the file is to lie in.
static bool make_folders(const char *path, zx_arena *mem)
{
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/'))
        if (mkdir(zx_arena_strn(mem, path, (size_t)(slash - path)), 0777) != 0 && errno != EEXIST)
            return false;
    return true;
}

static void keep(zx_calibrated *c, const char *path, zx_arena *mem)
{
    zx_text text = {0};
    zx_err failed = {0};
    if (path == NULL) {
        c->why = "neither XDG_CACHE_HOME nor HOME is an absolute path";
        return;
    }
    zx_machine_put(&c->machine, &text);
    if (!make_folders(path, mem))
        c->why = zx_arena_printf(mem, "cannot make the folder of %s: %s", path, strerror(errno));
    else if (zx_outfile_put(path, text.at, text.n, mem, &failed) != ZX_OK)
        c->why = zx_arena_str(mem, failed.cause[0]);
    else
        c->path = path;
    zx_text_free(&text);
}

zx_status zx_calibrate_host(uint32_t ranks, uint32_t threads, bool again, zx_arena *mem,
                            zx_calibrated *out, zx_err *err)
{
    *out = (zx_calibrated){0};
    const char *path = zx_calibrate_path(ranks, threads, mem);
    zx_err unread = {0}; // a file that can't be read is one that isn't there
    if (!again && path != NULL && access(path, R_OK) == 0 &&
        zx_machine_read(path, &out->machine, &unread) == ZX_OK && out->machine.ranks == ranks &&
        out->machine.threads == threads && out->machine.host) {
        out->path = path;
        return ZX_OK;
    }
    const double from = zx_seconds();
    ZX_TRY(zx_calibrate(ranks, threads, &out->machine, err));
    out->fresh = true;
    out->seconds = zx_seconds() - from;
    keep(out, path, mem);
    return ZX_OK;
}
