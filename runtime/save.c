// save.c - see save.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/save.h"

#include <stdlib.h>
#include <string.h>

#include "graph/base/text.h"
#include "runtime/outfile.h"

enum { CHUNK = 1 << 20 }; // elements read at a time: 4 MiB, whatever the model's size

typedef const char *const meta_pair[2];

static int by_key(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void zx_save_list(const zx_graph *g, bool buffers, zx_arena *mem, uint32_t *n,
                  zx_safe_tensor **tensors, uint32_t *n_meta, const char *const (**meta)[2])
{
    uint32_t aliases = 1;
    for (uint32_t i = 0; i < g->n_params; i++) aliases += g->params[i].n_aliases;
    zx_safe_tensor *t = ZX_NEW(mem, zx_safe_tensor, g->n_params + g->n_buffers);
    const char *(*pairs)[2] = zx_arena_alloc(mem, aliases, sizeof *pairs, _Alignof(const char *));
    *n = *n_meta = 0;
    pairs[(*n_meta)++][0] = "format";
    pairs[0][1] = "pt";
    for (uint32_t i = 0; i < g->n_params; i++) {
        const zx_param *p = &g->params[i];
        t[(*n)++] = (zx_safe_tensor){.name = p->name, .type = g->values[p->value].type};
        for (uint32_t k = 0; k < p->n_aliases; k++) {
            if (strcmp(p->aliases[k], "format") == 0) continue;
            pairs[*n_meta][0] = p->aliases[k];
            pairs[(*n_meta)++][1] = p->name;
        }
    }
    for (uint32_t i = 0; buffers && i < g->n_buffers; i++)
        t[(*n)++] = (zx_safe_tensor){.name = g->buffers[i].name,
                                     .type = g->values[g->buffers[i].value].type};
    qsort(pairs, *n_meta, sizeof *pairs, by_key);
    *tensors = t;
    *meta = (meta_pair *)pairs;
}

typedef struct saving {
    zx_session *s;
    zx_outfile *to; // NULL: not rank 0, or writing has failed
    unsigned char *chunk;
    zx_err *err;
    zx_status st; // of writing; the ranks go on reading, since reading is collective
} saving;

static void put(saving *w, const void *bytes, uint64_t n)
{
    if (w->to == NULL || w->st != ZX_OK) return;
    w->st = zx_outfile_write(w->to, bytes, n, w->err);
}

// One tensor; `none` writes zeros instead of asking the session.
static zx_status put_tensor(saving *w, zx_read_kind kind, uint32_t index, const zx_type *type,
                            bool none)
{
    const int64_t n = zx_shape_count(&type->shape);
    const uint32_t width = zx_dtype_bytes(type->dtype);
    for (int64_t from = 0; from < n; from += CHUNK) {
        const int64_t part = n - from < CHUNK ? n - from : CHUNK;
        if (none)
            memset(w->chunk, 0, (size_t)part * width);
        else
            ZX_TRY(zx_session_read(w->s, kind, index, from, part, w->chunk, w->err));
        put(w, w->chunk, (uint64_t)part * width);
    }
    return ZX_OK;
}

static zx_status put_all(saving *w, const zx_graph *g, const zx_safe_tensor *tensors,
                         zx_read_kind kind)
{
    const bool grads = kind == ZX_READ_GRAD;
    for (uint32_t i = 0; i < g->n_params; i++)
        ZX_TRY(put_tensor(w, kind, i, &tensors[i].type, grads && g->params[i].grad == ZX_NONE));
    for (uint32_t i = 0; !grads && i < g->n_buffers; i++)
        ZX_TRY(put_tensor(w, ZX_READ_BUFFER, i, &g->values[g->buffers[i].value].type, false));
    return w->st;
}

static zx_status save(zx_session *s, zx_world *world, const zx_graph *g, const char *path,
                      zx_read_kind kind, zx_err *err)
{
    zx_arena mem = {0};
    zx_outfile file = {0};
    uint32_t n = 0, n_meta = 0;
    zx_safe_tensor *tensors = NULL;
    meta_pair *meta = NULL;
    const void *header = NULL;
    uint64_t header_bytes = 0, total = 0;
    saving w = {.s = s, .err = err};
    const bool writes = zx_world_rank(world) == 0;
    zx_save_list(g, kind != ZX_READ_GRAD, &mem, &n, &tensors, &n_meta, &meta);
    for (uint32_t i = 0; i < g->n_params && kind != ZX_READ_KEPT; i++)
        tensors[i].type.dtype = ZX_F32; // as they are read
    uint64_t *offsets = ZX_NEW(&mem, uint64_t, n);
    w.chunk = malloc((size_t)CHUNK * 8);
    if (w.chunk == NULL) w.st = ZX_FAIL(err, ZX_E_IO, "out of memory while saving");
    if (w.st == ZX_OK && writes)
        w.st = zx_safe_header(n, tensors, n_meta, meta, &mem, &header, &header_bytes, offsets,
                              &total, err);
    if (w.st == ZX_OK && writes) w.st = zx_outfile_open(&file, path, &mem, err);
    w.st = zx_world_agree(world, w.st, err); // from here on all ranks read, whatever rank 0 meets
    if (w.st != ZX_OK) goto done;
    if (writes) w.to = &file;
    put(&w, header, header_bytes);
    const zx_status read = put_all(&w, g, tensors, kind);
    if (w.st == ZX_OK) w.st = read;
    if (w.st == ZX_OK && writes) w.st = zx_outfile_commit(&file, err);
    w.st = zx_world_agree(world, w.st, err);
done:
    if (w.st == ZX_E_IO && total > 0) {
        char size[ZX_BYTES_TEXT];
        zx_err_hint(err, "another place, or room for the %s of this file",
                    zx_text_size(total, size));
    }
    zx_outfile_drop(&file);
    free(w.chunk);
    zx_arena_free(&mem);
    return w.st;
}

zx_status zx_save_weights(zx_session *s, zx_world *world, const zx_graph *g, const char *path,
                          bool kept, zx_err *err)
{
    return save(s, world, g, path, kept ? ZX_READ_KEPT : ZX_READ_PARAM, err);
}

zx_status zx_save_grads(zx_session *s, zx_world *world, const zx_graph *g, const char *path,
                        zx_err *err)
{
    return save(s, world, g, path, ZX_READ_GRAD, err);
}
