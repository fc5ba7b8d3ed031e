// ckpt_folder.c - see ckpt_folder.h. Order is what matters: a name that a reader looks for is given
// only to what is on disk, and taken away from what is about to go.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/ckpt_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/options.h"
#include "runtime/outfile.h"

#define STEP "step-"
#define TEMPORARY ".tmp"

bool zx_ckpt_folder_step(const char *name, uint64_t *step)
{
    const size_t n = strlen(STEP);
    if (strncmp(name, STEP, n) != 0 || !zx_parse_u64(name + n, step)) return false;
    return name[n] != '0' || name[n + 1] == '\0'; // as it is written: no two names of one step
}

// "step-N.tmp"
static bool is_leftover(const char *name)
{
    char step[64];
    uint64_t n;
    const size_t len = strlen(name), tail = strlen(TEMPORARY);
    if (len <= tail || len - tail >= sizeof step || strcmp(name + len - tail, TEMPORARY) != 0)
        return false;
    memcpy(step, name, len - tail);
    step[len - tail] = '\0';
    return zx_ckpt_folder_step(step, &n);
}

static zx_status failed(const char *what, const char *path, zx_err *err)
{
    return ZX_FAIL(err, ZX_E_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

static zx_status sync_folder(const char *dir, zx_err *err)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return failed("open", dir, err);
    const bool ok = fsync(fd) == 0 || errno == EINVAL; // some file systems can't
    const zx_status st = ok ? ZX_OK : failed("write", dir, err);
    close(fd);
    return st;
}

// Files that zerox puts into a checkpoint, or the temporary of one.
static bool is_ours(const char *name)
{
    return strncmp(name, "rank-", 5) == 0 || strncmp(name, "manifest.json", 13) == 0;
}

void zx_ckpt_folder_drop(const char *dir, zx_arena *mem)
{
    DIR *d = opendir(dir);
    if (d == NULL) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (is_ours(e->d_name)) unlink(zx_arena_printf(mem, "%s/%s", dir, e->d_name));
    closedir(d);
    rmdir(dir); // stays if somebody has put something there
}

// A checkpoint is no checkpoint any more before the first of its files goes.
static void remove_step(const char *folder, const char *name, zx_arena *mem)
{
    const char *dir = zx_arena_printf(mem, "%s/%s", folder, name),
               *gone = zx_arena_printf(mem, "%s" TEMPORARY, dir);
    if (rename(dir, gone) == 0) zx_ckpt_folder_drop(gone, mem);
}

typedef struct names {
    uint32_t n, cap;
    const char **at;
} names;

static bool names_step(const char *name)
{
    uint64_t step;
    return zx_ckpt_folder_step(name, &step);
}

// The folder's names that `wanted` wants; none where it can't be read.
static void list(const char *folder, bool (*wanted)(const char *), zx_arena *mem, names *out)
{
    DIR *d = opendir(folder);
    *out = (names){0};
    if (d == NULL) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (!wanted(e->d_name)) continue;
        ZX_GROW(mem, out->at, out->n, out->cap);
        out->at[out->n++] = zx_arena_str(mem, e->d_name);
    }
    closedir(d);
}

void zx_ckpt_folder_clear(const char *folder, zx_arena *mem)
{
    names found;
    list(folder, names_step, mem, &found);
    for (uint32_t i = 0; i < found.n; i++) remove_step(folder, found.at[i], mem);
    list(folder, is_leftover, mem, &found);
    for (uint32_t i = 0; i < found.n; i++)
        zx_ckpt_folder_drop(zx_arena_printf(mem, "%s/%s", folder, found.at[i]), mem);
    unlink(zx_arena_printf(mem, "%s/latest", folder));
    rmdir(folder);
}

zx_status zx_ckpt_folder_check(const char *folder, zx_arena *mem, zx_err *err)
{
    const char *probe = zx_arena_printf(mem, "%s/.zerox-%ld", folder, (long)getpid());
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return failed("make the folder", folder, err);
    if (mkdir(probe, 0777) != 0) return failed("write into", folder, err);
    rmdir(probe);
    return ZX_OK;
}

zx_status zx_ckpt_folder_begin(const char *folder, uint64_t step, zx_arena *mem, const char **made,
                               zx_err *err)
{
    names left;
    const char *dir = zx_arena_printf(mem, "%s/" STEP "%" PRIu64 TEMPORARY, folder, step);
    *made = NULL;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return failed("make the folder", folder, err);
    list(folder, is_leftover, mem, &left);
    for (uint32_t i = 0; i < left.n; i++)
        zx_ckpt_folder_drop(zx_arena_printf(mem, "%s/%s", folder, left.at[i]), mem);
    if (mkdir(dir, 0777) != 0) return failed("make the folder", dir, err);
    *made = dir;
    return ZX_OK;
}

// Nothing that a user has is lost: what is in the way gets another name.
static zx_status set_aside(const char *folder, const char *name, zx_arena *mem, zx_err *err)
{
    const char *from = zx_arena_printf(mem, "%s/%s", folder, name),
               *to = zx_arena_printf(mem, "%s.aside", from);
    for (unsigned k = 2; access(to, F_OK) == 0 && k < 10000; k++)
        to = zx_arena_printf(mem, "%s.aside-%u", from, k);
    return rename(from, to) == 0 ? ZX_OK : failed("rename", from, err);
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = 0, y = 0;
    zx_ckpt_folder_step(*(const char *const *)a, &x);
    zx_ckpt_folder_step(*(const char *const *)b, &y);
    return x > y ? -1 : x < y;
}

static zx_status tidy(const char *folder, uint64_t step, uint64_t before, uint64_t keep,
                      zx_arena *mem, zx_err *err)
{
    names found;
    uint64_t earlier = 0;
    list(folder, names_step, mem, &found);
    if (found.n > 1) qsort(found.at, found.n, sizeof *found.at, newest_first);
    for (uint32_t i = 0; i < found.n; i++) {
        uint64_t at = 0;
        zx_ckpt_folder_step(found.at[i], &at);
        if (at == step) continue;
        if (at > before)
            ZX_TRY(set_aside(folder, found.at[i], mem, err));
        else if (++earlier >= keep && keep > 0)
            remove_step(folder, found.at[i], mem);
    }
    return ZX_OK;
}

zx_status zx_ckpt_folder_publish(const char *folder, uint64_t step, uint64_t before, uint64_t keep,
                                 zx_arena *mem, const char **name, zx_err *err)
{
    const char *is = zx_arena_printf(mem, STEP "%" PRIu64, step),
               *dir = zx_arena_printf(mem, "%s/%s", folder, is),
               *made = zx_arena_printf(mem, "%s" TEMPORARY, dir);
    *name = dir;
    ZX_TRY(sync_folder(made, err));
    if (access(dir, F_OK) == 0) ZX_TRY(set_aside(folder, is, mem, err));
    if (rename(made, dir) != 0) return failed("rename", made, err);
    const char *line = zx_arena_printf(mem, "%s\n", is);
    zx_status st = sync_folder(folder, err);
    if (st == ZX_OK)
        st =
            zx_outfile_put(zx_arena_printf(mem, "%s/latest", folder), line, strlen(line), mem, err);
    if (st != ZX_OK) {
        rename(dir, made); // what nothing names would only take the room of the next one
        return st;
    }
    return tidy(folder, step, before, keep, mem, err);
}
