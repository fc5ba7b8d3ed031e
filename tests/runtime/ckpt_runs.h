// ckpt_runs.h - runs that save checkpoints in a folder of their own, and the system's calls in
// between, one of which fails or is the last: for the tests of checkpoints.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_RUNTIME_CKPT_RUNS_H
#define ZX_TESTS_RUNTIME_CKPT_RUNS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "runtime/ckpt.h"
#include "tests/runtime/small.h"

// ---- the system's calls, the k-th of which fails or is the last ---------------------------------

typedef enum fault { FAIL, FULL, KILL } fault;
static struct {
    bool armed;
    _Atomic int left; // calls until it happens
    fault how;
} faults;

// Whether this call is the one.
static inline bool strikes(void)
{
    if (!faults.armed || --faults.left != 0) return false;
    if (faults.how == KILL) kill(getpid(), SIGKILL);
    errno = faults.how == FULL ? ENOSPC : EIO;
    return true;
}

static inline bool on_disk(int fd) // sockets and pipes of the ranks aren't counted
{
    struct stat info;
    return fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode));
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    if (faults.armed && on_disk(fd) && strikes()) {
        if (faults.how == FULL) syscall(SYS_write, fd, bytes, n / 2); // as far as there was room
        return -1;
    }
    return syscall(SYS_write, fd, bytes, n);
}
int fsync(int fd) // counted and left out: the disk is slow, and no power fails here
{
    (void)fd;
    return strikes() ? -1 : 0;
}
int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if ((flags & O_CREAT) != 0 && strncmp(path, "/tmp/", 5) == 0 && strikes()) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
static _Atomic uint64_t bytes_read; // by pread
ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    const ssize_t got = syscall(SYS_pread64, fd, bytes, n, at);
    if (got > 0) bytes_read += (uint64_t)got;
    return got;
}
int rename(const char *from, const char *to)
{
    return strikes() ? -1 : (int)syscall(SYS_rename, from, to);
}
int mkdir(const char *path, mode_t mode)
{
    return strikes() ? -1 : (int)syscall(SYS_mkdir, path, mode);
}
int unlink(const char *path)
{
    return strikes() ? -1 : (int)syscall(SYS_unlink, path);
}
int rmdir(const char *path)
{
    return strikes() ? -1 : (int)syscall(SYS_rmdir, path);
}

// ---- a run that saves ---------------------------------------------------------------------------

static char folder[64];

typedef struct saver {
    run_options o;    // of the run; steps: until it saves
    const char *from; // a checkpoint that it begins with; NULL
    uint64_t as;      // step that it is saved as
    uint64_t keep;
    const char *to;  // folder
    zx_status saved; // of rank 0
    zx_err err;
    bool arm, beside; // beside: from a copy, while a step runs
    uint32_t dies;    // the rank that is killed
} saver;

static inline int saver_rank(zx_world *w, void *arg)
{
    saver *c = arg;
    const run_options *o = &c->o;
    zx_arena mem = {0};
    zx_graph forward, train;
    zx_plan plan;
    zx_session *s = NULL;
    zx_err err = {0};
    zx_ckpt now = {.model = "small", .optimizer = "AdamW", .stage = o->stage - STAGE_0},
            from = {.fd = -1};
    zx_ckpt_values values;
    build_small(&mem, &o->graph, &forward);
    EXPECT(zx_autodiff(&forward, 1.0 / o->of, &mem, &train, &err) == ZX_OK);
    EXPECT(small_plan(&train, o, &mem, &plan, &err) == ZX_OK);
    zx_ckpt_list(&train, &plan, o->optim, &mem, &now);
    zx_session_options so = {
        .world = w, .threads = o->threads, .seed = 11, .optim = *o->optim, .feed = {o->feed, o}};
    uint64_t before = 0;
    if (c->from != NULL) {
        EXPECT(zx_ckpt_open(c->from, &mem, &from, &err) == ZX_OK);
        EXPECT(zx_ckpt_match(&from, &now, &plan, &mem, &values, &err) == ZX_OK);
        so.values = zx_ckpt_session_values(&values);
        before = from.state.steps;
    }
    EXPECT(zx_session_open(&train, &plan, &so, &s, &err) == ZX_OK);
    const uint64_t each = (uint64_t)o->ranks * o->micros;
    for (uint64_t k = before; k < before + o->steps && !o->untrained; k++) {
        zx_step_report r;
        EXPECT(zx_session_step(s, k, k * each, o->lr, &r, &err) == ZX_OK && r.applied);
    }
    now.state = (zx_train_state){.steps = c->as, .samples = 77, .seed = UINT64_C(1) << 62};
    const zx_ckpt_target target = {c->to, c->keep, c->as - 1};
    const char *name;
    uint64_t bytes;
    void *copy = c->beside ? malloc((size_t)zx_ckpt_copy_bytes(&now, o->ranks)) : NULL;
    zx_ckpt_saving *v = NULL;
    faults.armed = c->arm;
    zx_status saved = zx_ckpt_begin(s, w, &now, &target, copy, &v, &err);
    if (saved == ZX_OK && c->beside) {
        zx_step_report r;
        EXPECT(zx_session_step(s, before + o->steps, 0, o->lr, &r, &err) == ZX_OK);
    }
    if (saved == ZX_OK) saved = zx_ckpt_end(v, w, &mem, &name, &bytes, &err);
    free(copy);
    faults.armed = false;
    if (zx_world_rank(w) == 0) {
        c->saved = saved;
        c->err = err;
    }
    zx_session_close(s);
    zx_ckpt_close(&from);
    zx_arena_free(&mem);
    return 0;
}

static inline void save(saver *c)
{
    c->o = filled(&c->o);
    if (c->to == NULL) c->to = folder;
    run_threads(c->o.ranks, saver_rank, c);
}

static inline void save_fine(saver *c)
{
    save(c);
    assert_zx_ok(c->saved, &c->err);
}

static inline const char *path_of(const char *dir, const char *name)
{
    static char path[8][200];
    static int at;
    char *to = path[at++ % 8];
    snprintf(to, sizeof path[0], "%s/%s", dir, name);
    return to;
}

// The newest checkpoint that is whole, as --resume looks for it; UINT64_MAX: there is none.
static inline uint64_t newest_whole(const char *in)
{
    zx_arena mem = {0};
    uint32_t n;
    const uint64_t *steps;
    const char *left;
    uint64_t found = UINT64_MAX;
    assert_int_equal(zx_ckpt_steps(in, &mem, &n, &steps, &left, NULL), ZX_OK);
    for (uint32_t i = 0; i < n && found == UINT64_MAX; i++) {
        zx_ckpt c;
        zx_err err = {0};
        const char *dir = zx_arena_printf(&mem, "%s/step-%llu", in, (unsigned long long)steps[i]);
        if (zx_ckpt_open(dir, &mem, &c, &err) == ZX_OK && zx_ckpt_verify(&c, 0, 1, &err) == ZX_OK) {
            assert_int_equal(c.state.steps, steps[i]);
            assert_int_equal(c.state.samples, 77);
            assert_true(c.state.seed == UINT64_C(1) << 62);
            found = steps[i];
        }
        zx_ckpt_close(&c);
    }
    zx_arena_free(&mem);
    return found;
}

static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/zerox-ckpt-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : 1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 ? 0 : 1;
}

static inline void empty_folder(void)
{
    remove_folder(NULL);
    mkdir(folder, 0777);
}

static inline bool there(const char *name)
{
    struct stat info;
    return stat(path_of(folder, name), &info) == 0;
}

#endif
