// backend.c - the backends of this build, and which of them to take. Programs with GPUs compile it
// again, with ZX_WITH_CUDA.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/backend.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(ZX_WITH_CUDA)
extern const zx_backend zx_backend_cuda;
#endif
static const zx_backend *const backends[] = {
    &zx_backend_cpu,
#if defined(ZX_WITH_CUDA)
    &zx_backend_cuda,
#endif
};

static const zx_backend *find(const char *name)
{
    for (size_t i = 0; i < ZX_COUNT(backends); i++)
        if (strcmp(backends[i]->name, name) == 0) return backends[i];
    return NULL;
}

// What a look at devices finds.
#define MOST_DEVICES 64
#define LOOK_SECONDS 60 // a driver that takes longer over that hangs
typedef struct seen {
    uint32_t n;
    zx_err err;
    zx_device device[MOST_DEVICES];
} seen;

static void look(const zx_backend *b, bool closely, seen *out)
{
    out->n = b->count(&out->err);
    if (out->n > MOST_DEVICES) out->n = MOST_DEVICES;
    for (uint32_t i = 0; i < out->n && closely && out->err.code == ZX_OK; i++)
        b->device(i, &out->device[i], &out->err);
}

static bool put(int fd, const void *from, size_t n)
{
    for (const char *at = from; n > 0;) {
        const ssize_t k = write(fd, at, n);
        if (k <= 0) return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}
static bool take(int fd, void *to, size_t n)
{
    for (char *at = to; n > 0;) {
        struct pollfd there = {.fd = fd, .events = POLLIN};
        if (poll(&there, 1, 1000 * LOOK_SECONDS) == 0) return false;
        const ssize_t k = read(fd, at, n);
        if (k <= 0) return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

// By a process that does nothing else: a driver that was asked can't be handed to a fork.
static zx_status look_apart(const zx_backend *b, bool closely, seen *out, zx_err *err)
{
    int ends[2];
    *out = (seen){0};
    if (pipe(ends) != 0) return ZX_FAIL(err, ZX_E_DEVICE, "pipe: %s", strerror(errno));
    const pid_t child = fork();
    if (child == 0) {
        look(b, closely, out);
        _exit(put(ends[1], out, sizeof *out) ? 0 : 1);
    }
    close(ends[1]);
    const bool whole = child > 0 && take(ends[0], out, sizeof *out);
    close(ends[0]);
    if (child > 0 && !whole) kill(child, SIGKILL);
    if (child > 0 && whole) waitpid(child, NULL, 0); // else it may be in the driver for ever
    if (whole) return ZX_OK;
    *out = (seen){0};
    return ZX_FAIL(err, ZX_E_DEVICE, "looking for devices of %s ended early, or took over %d s",
                   b->name, LOOK_SECONDS);
}

zx_status zx_backend_devices(zx_device *out, uint32_t most, uint32_t *n, bool *built, zx_err *err)
{
    const zx_backend *cuda = find("cuda");
    *n = 0;
    *built = cuda != NULL;
    if (cuda == NULL) return ZX_OK;
    seen *s = calloc(1, sizeof *s);
    if (s == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory");
    zx_status st = look_apart(cuda, true, s, err);
    if (st == ZX_OK && s->err.code != ZX_OK) st = zx_err_merge(err, &s->err);
    *n = s->n < most ? s->n : most;
    memcpy(out, s->device, *n * sizeof *out);
    free(s);
    return st;
}

static zx_status count(const zx_backend *b, uint32_t *n, zx_err *err)
{
    seen *s = calloc(1, sizeof *s);
    if (s == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory");
    zx_status st = look_apart(b, false, s, err);
    *n = s->n;
    if (st == ZX_OK && s->err.code != ZX_OK) st = zx_err_merge(err, &s->err);
    free(s);
    return st;
}

zx_status zx_backend_choose(const char *word, const zx_backend **out, uint32_t *devices,
                            zx_err *err)
{
    const zx_backend *cuda = find("cuda");
    const bool chosen = word != NULL && strcmp(word, "auto") != 0;
    *out = &zx_backend_cpu;
    *devices = 0;
    if (chosen && strcmp(word, "cpu") == 0) return ZX_OK;
    if (chosen && strcmp(word, "cuda") != 0) {
        zx_err_hint(err, "cpu, cuda or auto");
        return ZX_FAIL(err, ZX_E_USAGE, "--backend: there is no '%s'", word);
    }
    if (cuda == NULL && chosen) {
        zx_err_hint(err, "a build with -DZX_CUDA=ON, where nvcc, cuBLAS and NCCL are installed");
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "--backend cuda: this zerox was built without CUDA");
    }
    if (cuda == NULL) return ZX_OK;
    zx_err why = {0};
    count(cuda, devices, &why);
    if (*devices > 0) *out = cuda;
    if (*devices > 0 || !chosen) return ZX_OK;
    if (err != NULL && why.hint[0] != '\0') zx_err_hint(err, "%s", why.hint);
    return ZX_FAIL(err, ZX_E_DEVICE, "--backend cuda: no CUDA device is there%s%s",
                   why.code != ZX_OK ? ": " : "", why.cause[0]);
}

static void device_text(const void *site, zx_err *err)
{
    zx_err_in(err, "CUDA device %u", ((const zx_site *)site)->local);
}

uint64_t zx_site_usable(const zx_site *p, uint32_t ranks)
{
    zx_guard_enter(p->guard, device_text, p);
    const uint64_t bytes = zx_site_backend(p)->usable(p->gpu, ranks);
    zx_guard_leave(p->guard);
    return bytes / (p->share > 1 ? p->share : 1);
}

zx_status zx_site_look(const zx_site *p, zx_device *out, zx_err *err)
{
    zx_guard_enter(p->guard, device_text, p);
    const zx_status st = p->backend->device(p->local, out, err);
    zx_guard_leave(p->guard);
    return st;
}

zx_status zx_site_open(zx_site *p, const zx_backend *b, uint32_t local, zx_guard *guard,
                       zx_err *err)
{
    *p = (zx_site){.backend = b, .local = local, .guard = guard};
    zx_guard_enter(guard, device_text, p);
    const zx_status st = b->open(local, &p->gpu, err);
    zx_guard_leave(guard);
    return st;
}

void zx_site_close(zx_site *p)
{
    zx_guard_enter(p->guard, device_text, p);
    if (p->backend != NULL) p->backend->close(p->gpu);
    zx_guard_leave(p->guard);
    *p = (zx_site){0};
}

zx_status zx_backend_check(const zx_backend *b, const zx_graph *g, zx_err *err)
{
    bool said[ZX_OP_COUNT] = {false}, all = true;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        if (zx_ops[n->op].flags & ZX_OP_VIEW || b->kernel(n->op) != NULL || said[n->op]) continue;
        zx_arena mem = {0};
        ZX_FAIL(err, ZX_E_UNSUPPORTED,
                "there is no %s kernel for %s, of node '%s' and maybe others", b->name,
                zx_ops[n->op].word, zx_text_safe(&mem, n->name));
        zx_arena_free(&mem);
        said[n->op] = true;
        all = false;
    }
    if (all) return ZX_OK;
    zx_err_hint(err, "--backend cpu");
    return err != NULL ? err->code : ZX_E_UNSUPPORTED;
}
