// backend.c - the backends of this build, and which of them to take. Programs with GPUs compile it
// again, with ZX_WITH_CUDA.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/backend.h"

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

static uint32_t count_apart(const zx_backend *b)
{
    int ends[2];
    uint32_t n = 0;
    if (pipe(ends) != 0) return 0;
    const pid_t child = fork();
    if (child == 0) {
        n = b->count();
        const ssize_t k = write(ends[1], &n, sizeof n);
        _exit(k == sizeof n ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &n, sizeof n) != sizeof n) n = 0;
    close(ends[0]);
    if (child > 0) waitpid(child, NULL, 0);
    return n;
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
    if (cuda != NULL) *devices = count_apart(cuda);
    if (*devices > 0)
        *out = cuda;
    else if (chosen)
        return ZX_FAIL(err, ZX_E_DEVICE, "--backend cuda: no CUDA device is there");
    return ZX_OK;
}

zx_status zx_site_open(zx_site *p, const zx_backend *b, uint32_t local, zx_err *err)
{
    *p = (zx_site){.backend = b};
    return b->open(local, &p->gpu, err);
}

void zx_site_close(zx_site *p)
{
    if (p->backend != NULL) p->backend->close(p->gpu);
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
