// convert_onnx.c - see convert_onnx.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/convert_onnx.h"

#include <stdlib.h>
#include <string.h>

#include "proto/onnx_file.h"
#include "proto/onnx_places.h"
#include "runtime/convert_beside.h"
#include "runtime/outfile.h"

typedef struct patch { // bytes [at, at + n) of the file are tensor i's
    uint64_t at, n;
    uint32_t i;
} patch;

static int by_place(const void *a, const void *b)
{
    const patch *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

const zx_onnx_place *zx_convert_place(const zx_onnx_place *places, uint32_t n,
                                      const zx_tensor_entry *e)
{
    for (uint32_t k = 0; k <= e->n_aliases; k++) {
        const char *name = k == 0 ? e->name : e->aliases[k - 1];
        for (uint32_t i = 0; i < n; i++)
            if (strcmp(places[i].name, name) == 0) return &places[i];
    }
    return NULL;
}

zx_status zx_convert_check(const zx_tensor_entry *e, const zx_type *there, zx_arena *mem,
                           zx_err *err)
{
    char a[ZX_SHAPE_TEXT], b[ZX_SHAPE_TEXT];
    if (there->dtype == e->type.dtype && zx_shape_equal(&there->shape, &e->type.shape))
        return ZX_OK;
    return ZX_FAIL(err, ZX_E_DATA, "'%s' is %s %s there, and %s %s in the weights",
                   zx_text_safe(mem, e->name),
                   there->dtype < ZX_DTYPE_COUNT ? zx_dtypes[there->dtype].word : "of another type",
                   zx_shape_text(&there->shape, a), zx_dtypes[e->type.dtype].word,
                   zx_shape_text(&e->type.shape, b));
}

// Whether a weight is none of the file's own bytes: it lies in another file, or a node makes it.
static bool lies_outside(const zx_tensors *from, const zx_onnx_place *places, uint32_t n)
{
    for (uint32_t i = 0; i < from->n; i++) {
        if (zx_tensor_is_state(&from->at[i])) continue;
        const zx_onnx_place *p = zx_convert_place(places, n, &from->at[i]);
        if (p == NULL || (p->at == UINT64_MAX && zx_shape_count(&p->type.shape) > 0)) return true;
    }
    return false;
}

static patch *make_patches(zx_tensors *from, const zx_onnx_place *places, uint32_t n_places,
                           zx_arena *mem, uint32_t *n, zx_err *err)
{
    patch *patches = ZX_NEW(mem, patch, from->n);
    *n = 0;
    for (uint32_t i = 0; i < from->n; i++) {
        const zx_tensor_entry *e = &from->at[i];
        if (zx_tensor_is_state(e)) continue;
        const zx_onnx_place *p = zx_convert_place(places, n_places, e);
        zx_convert_check(e, &p->type, mem, err);
        if (err->code == ZX_OK && p->at != UINT64_MAX)
            patches[(*n)++] = (patch){p->at, zx_type_bytes(&e->type), i};
    }
    if (*n > 1) qsort(patches, *n, sizeof *patches, by_place);
    for (uint32_t i = 1; i < *n && err->code == ZX_OK; i++)
        if (patches[i].at < patches[i - 1].at + patches[i - 1].n)
            ZX_FAIL(err, ZX_E_DATA, "'%s' and '%s' are one initializer there",
                    zx_text_safe(mem, from->at[patches[i].i].name),
                    zx_text_safe(mem, from->at[patches[i - 1].i].name));
    return patches;
}

zx_status zx_convert_put(zx_tensors *from, uint32_t i, unsigned char *chunk, zx_outfile *f,
                         zx_err *err)
{
    const zx_type *t = &from->at[i].type;
    const int64_t width = zx_dtype_bytes(t->dtype), n = zx_shape_count(&t->shape);
    const int64_t most = (int64_t)ZX_CONVERT_CHUNK / width;
    for (int64_t done = 0; done < n; done += most) {
        const int64_t k = n - done < most ? n - done : most;
        ZX_TRY(zx_tensors_read(from, i, done, k, chunk, err));
        ZX_TRY(zx_outfile_write(f, chunk, (size_t)(k * width), err));
    }
    return ZX_OK;
}

static zx_status write_all(zx_tensors *from, const zx_mapfile *m, const patch *patches, uint32_t n,
                           unsigned char *chunk, zx_outfile *f, zx_err *err)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i <= n; i++) {
        const uint64_t until = i < n ? patches[i].at : m->size;
        ZX_TRY(zx_outfile_write(f, m->bytes + at, (size_t)(until - at), err));
        if (i == n) break;
        ZX_TRY(zx_convert_put(from, patches[i].i, chunk, f, err));
        at = until + patches[i].n;
    }
    return ZX_OK;
}

static zx_status within(zx_tensors *from, const zx_mapfile *m, const zx_onnx_place *places,
                        uint32_t n_places, const char *to, zx_arena *mem, uint32_t *n, zx_err *err)
{
    zx_outfile f = {0};
    zx_err found = {0};
    const patch *patches = make_patches(from, places, n_places, mem, n, &found);
    if (found.code != ZX_OK) return zx_err_merge(err, &found);
    unsigned char *chunk = malloc(ZX_CONVERT_CHUNK);
    zx_status st =
        chunk != NULL ? zx_outfile_open(&f, to, mem, err) : ZX_FAIL(err, ZX_E_IO, "out of memory");
    if (st == ZX_OK) st = write_all(from, m, patches, *n, chunk, &f, err);
    if (st == ZX_OK) st = zx_outfile_commit(&f, err);
    zx_outfile_drop(&f);
    free(chunk);
    return st;
}

zx_status zx_convert_onnx(zx_tensors *from, const char *model, const char *to, bool force,
                          zx_arena *mem, uint32_t *n, bool *beside, zx_err *err)
{
    zx_onnx_file file = {0};
    zx_mapfile m = {0};
    uint32_t n_places = 0;
    const zx_onnx_place *places = NULL;
    zx_status st = zx_onnx_open(&file, model, mem, err); // also its form
    if (st == ZX_OK) st = zx_mapfile_open(&m, model, err);
    if (st == ZX_OK) st = zx_onnx_places(&m, mem, &n_places, &places, err);
    *beside = st == ZX_OK && lies_outside(from, places, n_places);
    if (*beside)
        st = zx_convert_beside(from, &file, places, n_places, to, force, mem, n, err);
    else if (st == ZX_OK)
        st = within(from, &m, places, n_places, to, mem, n, err);
    if (st == ZX_E_DATA)
        zx_err_hint(err, "the model that these weights were trained from, exported with "
                         "optimize=False");
    if (st != ZX_OK) zx_err_in(err, "%s", zx_text_safe(mem, model));
    zx_mapfile_close(&m);
    zx_onnx_close(&file);
    return st;
}
