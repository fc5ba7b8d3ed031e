// rundir.c - see rundir.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/ckpt_folder.h"
#include "runtime/log.h"
#include "runtime/outfile.h"

static const char *const ours[] = {"command.txt", "config.json",       "plan.txt",
                                   "log.jsonl",   "model.safetensors", "checkpoints"};

const char *zx_rundir_model_name(const char *model, zx_arena *mem)
{
    char full[PATH_MAX];
    const char *slash = strrchr(model, '/');
    const char *file = slash != NULL ? slash + 1 : model;
    const char *dot = strrchr(file, '.');
    const char *stem =
        zx_arena_strn(mem, file, dot != NULL && dot != file ? (size_t)(dot - file) : strlen(file));
    if (strcmp(stem, "model") != 0) return stem[0] != '\0' ? stem : "model";
    const char *dir = slash == NULL ? "." : zx_arena_strn(mem, model, (size_t)(slash - model) + 1);
    if (realpath(dir, full) == NULL) return stem;
    slash = strrchr(full, '/');
    return slash != NULL && slash[1] != '\0' ? zx_arena_str(mem, slash + 1) : stem;
}

const char *zx_rundir_fixed(const char *path, zx_arena *mem)
{
    char full[PATH_MAX];
    const size_t n = strlen(path);
    if (realpath(path, full) == NULL) return path;
    const size_t m = strlen(full); // what was given is shorter to read
    const bool tail = n < m && strcmp(full + m - n, path) == 0 && full[m - n - 1] == '/';
    return tail || strcmp(full, path) == 0 ? path : zx_arena_str(mem, full);
}

// ---- folders ------------------------------------------------------------------------------------

// mkdir -p; E_IO where a part of the path can't be made or is a file.
static zx_status make_folders(const char *path, zx_arena *mem, zx_err *err)
{
    char *p = zx_arena_copy(mem, path, strlen(path) + 1);
    for (char *at = p + 1;; at++) {
        if (*at != '/' && *at != '\0') continue;
        const char was = *at;
        struct stat info;
        *at = '\0';
        if (mkdir(p, 0777) != 0 && errno != EEXIST)
            return ZX_FAIL(err, ZX_E_IO, "cannot make the folder %s: %s", p, strerror(errno));
        if (stat(p, &info) != 0 || !S_ISDIR(info.st_mode))
            return ZX_FAIL(err, ZX_E_IO, "%s is not a folder", p);
        *at = was;
        if (was == '\0') return ZX_OK;
    }
}

// Whether files can be made in a folder, found out by making one.
static zx_status check_writable(const char *dir, zx_arena *mem, zx_err *err)
{
    const char *probe = zx_arena_printf(mem, "%s/.zerox-%ld", dir, (long)getpid());
    const int fd = open(probe, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return ZX_FAIL(err, ZX_E_IO, "cannot write into %s: %s", dir, strerror(errno));
    close(fd);
    unlink(probe);
    return ZX_OK;
}

zx_status zx_rundir_folder(const char *path, zx_arena *mem, zx_err *err)
{
    ZX_TRY(make_folders(path, mem, err));
    return check_writable(path, mem, err);
}

#define LOCK_TRIES 20 // a process that was killed a moment ago may take that long to be gone

// The file stays: removing it would let two processes have locks on two files of that name.
zx_status zx_rundir_lock(const char *dir, zx_arena *mem, int *lock, zx_err *err)
{
    char who[200];
    const struct timespec moment = {.tv_nsec = 50000000};
    const char *path = zx_arena_printf(mem, "%s/.lock", dir);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return ZX_FAIL(err, ZX_E_IO, "cannot write %s: %s", path, strerror(errno));
    bool ok = false, taken = true;
    for (int i = 0; i < LOCK_TRIES && !ok && taken; i++) {
        if (i > 0) nanosleep(&moment, NULL);
        ok = flock(fd, LOCK_EX | LOCK_NB) == 0;
        taken = !ok && (errno == EWOULDBLOCK || errno == EINTR);
    }
    *lock = ok ? fd : -1;
    if (ok) {
        char host[100] = "";
        gethostname(host, sizeof host - 1);
        const int n = snprintf(who, sizeof who, "%ld on %s", (long)getpid(), host);
        if (ftruncate(fd, 0) != 0 || write(fd, who, (size_t)n) != n) return ZX_OK; // says who, only
        return ZX_OK;
    }
    const ssize_t n = pread(fd, who, sizeof who - 1, 0);
    close(fd);
    if (!taken) return ZX_OK;
    who[n > 0 ? n : 0] = '\0';
    zx_err_hint(err, "wait until that run has ended, or stop it");
    return ZX_FAIL(err, ZX_E_USAGE,
                   "%s is the folder of a run that goes on: process %s writes there", dir,
                   n > 0 ? zx_text_safe(mem, who) : "?");
}

zx_status zx_rundir_file(const char *path, bool force, zx_arena *mem, zx_err *err)
{
    struct stat info;
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode)) return ZX_FAIL(err, ZX_E_IO, "%s is a folder, not a file", path);
        if (!S_ISREG(info.st_mode)) return ZX_OK; // /dev/null, a pipe
        ZX_TRY(zx_outfile_spare(path, force, err));
    }
    const char *slash = strrchr(path, '/');
    const char *dir = slash == NULL   ? "."
                      : slash == path ? "/"
                                      : zx_arena_strn(mem, path, (size_t)(slash - path));
    return check_writable(dir, mem, err);
}

// A folder holds one run: what another one has left there and this one doesn't write would be taken
// for this one's.
static zx_status clear_folder(const char *dir, zx_arena *mem, zx_err *err)
{
    for (size_t i = 0; i < ZX_COUNT(ours); i++) {
        const char *path = zx_arena_printf(mem, "%s/%s", dir, ours[i]);
        struct stat info;
        if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode))
            zx_ckpt_folder_clear(path, mem);
        else if (unlink(path) != 0 && errno != ENOENT)
            return ZX_FAIL(err, ZX_E_IO, "cannot remove %s of an earlier run: %s", path,
                           strerror(errno));
    }
    return ZX_OK;
}

zx_status zx_rundir_spare(const char *dir, zx_arena *mem, zx_err *err)
{
    for (size_t i = 0; i < ZX_COUNT(ours); i++) {
        const char *path = zx_arena_printf(mem, "%s/%s", dir, ours[i]);
        if (access(path, F_OK) != 0) continue;
        zx_err_hint(err, "another folder, or --force to overwrite");
        return ZX_FAIL(err, ZX_E_USAGE, "%s is there already", path);
    }
    return ZX_OK;
}

static zx_status use_folder(const char *dir, bool force, zx_arena *mem, zx_err *err)
{
    ZX_TRY(make_folders(dir, mem, err));
    if (!force) ZX_TRY(zx_rundir_spare(dir, mem, err));
    return check_writable(dir, mem, err);
}

zx_status zx_rundir_begin(const char *dir, bool force, zx_arena *mem, zx_rundir *out, int *lock,
                          zx_err *err)
{
    *out = (zx_rundir){.dir = dir,
                       .config = zx_arena_printf(mem, "%s/config.json", dir),
                       .checkpoints = zx_arena_printf(mem, "%s/checkpoints", dir)};
    ZX_TRY(use_folder(dir, force, mem, err));
    ZX_TRY(zx_rundir_lock(dir, mem, lock, err));
    return clear_folder(dir, mem, err);
}

void zx_rundir_undo(const char *dir, zx_arena *mem)
{
    zx_err none = {0};
    clear_folder(dir, mem, &none);
    unlink(zx_arena_printf(mem, "%s/.lock", dir));
    rmdir(dir); // stays if somebody has put something there
}

bool zx_rundir_has(const char *dir, const char *path)
{
    char a[PATH_MAX], b[PATH_MAX];
    if (realpath(dir, a) == NULL || realpath(path, b) == NULL) return false;
    const size_t n = strlen(a);
    return strncmp(a, b, n) == 0 && (b[n] == '/' || b[n] == '\0');
}

// runs/NAME-YYYYMMDD-HHMMSS, with -2, -3, ... while that is taken; runs/latest leads to it.
static zx_status make_default(const char *model, time_t now, zx_arena *mem, const char **out,
                              zx_err *err)
{
    char date[32];
    struct tm local;
    ZX_TRY(make_folders("runs", mem, err));
    localtime_r(&now, &local);
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", &local);
    const char *base =
        zx_arena_printf(mem, "%s-%s", zx_text_safe(mem, zx_rundir_model_name(model, mem)), date);
    const char *name = base;
    for (unsigned i = 2; mkdir(zx_arena_printf(mem, "runs/%s", name), 0777) != 0; i++) {
        if (errno != EEXIST || i > 10000)
            return ZX_FAIL(err, ZX_E_IO, "cannot make the folder runs/%s: %s", name,
                           strerror(errno));
        name = zx_arena_printf(mem, "%s-%u", base, i);
    }
    *out = zx_arena_printf(mem, "runs/%s", name);
    const char *link = zx_arena_printf(mem, "runs/.latest-%ld", (long)getpid());
    unlink(link);
    if (symlink(name, link) == 0 && rename(link, "runs/latest") != 0) unlink(link);
    return check_writable(*out, mem, err);
}

bool zx_rundir_is_made(const zx_options *o)
{
    const bool elsewhere = zx_given(o, ZX_OPT_LOG) && zx_given(o, ZX_OPT_SAVE);
    return zx_given(o, ZX_OPT_OUT) || !elsewhere || zx_given(o, ZX_OPT_SAVE_EVERY) ||
           zx_given(o, ZX_OPT_RESUME);
}

// Targets that the command line names one by one. `fresh`: of a run of its own, which doesn't write
// over another one's.
static zx_status check_targets(const zx_options *o, bool fresh, zx_arena *mem, zx_rundir *out,
                               zx_err *err)
{
    const bool force = zx_given(o, ZX_OPT_FORCE), keep = !zx_given(o, ZX_OPT_NO_SAVE);
    const char *log = zx_given_text(o, ZX_OPT_LOG), *save = zx_given_text(o, ZX_OPT_SAVE),
               *grads = zx_given_text(o, ZX_OPT_DUMP_GRADS);
    if (log != NULL) ZX_TRY(zx_rundir_file(log, force || !fresh, mem, err));
    if (grads != NULL) ZX_TRY(zx_rundir_file(grads, force, mem, err));
    const char *pictures[] = {zx_given_text(o, ZX_OPT_REPORT), zx_given_text(o, ZX_OPT_PROFILE)};
    for (size_t i = 0; i < ZX_COUNT(pictures); i++)
        if (pictures[i] != NULL) ZX_TRY(zx_rundir_file(pictures[i], force, mem, err));
    if (save != NULL) {
        ZX_TRY(make_folders(save, mem, err));
        out->weights = zx_arena_printf(mem, "%s/model.safetensors", save);
        if (keep) ZX_TRY(zx_rundir_file(out->weights, force || !fresh, mem, err));
    }
    out->log = log;
    out->grads = grads;
    return ZX_OK;
}

static void name_files(const zx_options *o, const char *dir, zx_arena *mem, zx_rundir *out)
{
    if (dir != NULL) {
        out->dir = dir;
        out->command = zx_arena_printf(mem, "%s/command.txt", dir);
        out->config = zx_arena_printf(mem, "%s/config.json", dir);
        out->plan = zx_arena_printf(mem, "%s/plan.txt", dir);
        out->checkpoints = zx_arena_printf(mem, "%s/checkpoints", dir);
        if (out->log == NULL) out->log = zx_arena_printf(mem, "%s/log.jsonl", dir);
        if (out->weights == NULL) out->weights = zx_arena_printf(mem, "%s/model.safetensors", dir);
    }
    if (zx_given(o, ZX_OPT_NO_SAVE)) out->weights = NULL;
}

zx_status zx_rundir_make(const zx_options *o, const char *model, time_t now, zx_arena *mem,
                         zx_rundir *out, int *lock, zx_err *err)
{
    *out = (zx_rundir){0};
    const char *dir = zx_given_text(o, ZX_OPT_OUT);
    ZX_TRY(check_targets(o, true, mem, out, err));
    if (dir != NULL) ZX_TRY(use_folder(dir, zx_given(o, ZX_OPT_FORCE), mem, err));
    if (dir == NULL && zx_rundir_is_made(o)) ZX_TRY(make_default(model, now, mem, &dir, err));
    name_files(o, dir, mem, out);
    if (dir == NULL) return ZX_OK;
    ZX_TRY(zx_rundir_lock(dir, mem, lock, err));
    return clear_folder(dir, mem, err);
}

zx_status zx_rundir_resume(const zx_options *o, const char *dir, zx_arena *mem, zx_rundir *out,
                           zx_err *err)
{
    *out = (zx_rundir){0};
    ZX_TRY(check_targets(o, false, mem, out, err));
    name_files(o, dir, mem, out);
    if (out->log != NULL) ZX_TRY(zx_log_check(out->log, err));
    return check_writable(dir, mem, err);
}

zx_status zx_rundir_append(const char *path, const void *bytes, size_t n, zx_err *err)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    bool ok = fd >= 0;
    for (const char *at = bytes; ok && n > 0;) {
        const ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        ok = done >= 0;
        at += ok ? done : 0;
        n -= ok ? (size_t)done : 0;
    }
    const zx_status st =
        ok ? ZX_OK : ZX_FAIL(err, ZX_E_IO, "cannot write %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return st;
}

void zx_rundir_command(const zx_options *o, zx_text *out)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,%@";
    for (int i = 0; i < o->argc; i++) {
        const char *word = o->argv[i];
        if (i > 0) zx_text_put(out, " ");
        if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
            zx_text_put(out, "%s", word);
            continue;
        }
        zx_text_put(out, "'");
        for (; *word != '\0'; word++) {
            if (*word == '\'')
                zx_text_put(out, "'\\''");
            else
                zx_text_bytes(out, word, 1);
        }
        zx_text_put(out, "'");
    }
    zx_text_put(out, "\n");
}
