// onnx_places.c - see onnx_places.h. The three levels of messages that lead to an initializer are
// walked as they lie in the file; nothing is decoded.
// SPDX-License-Identifier: Apache-2.0
#include "proto/onnx_places.h"

#include <string.h>

#include "proto/wire.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };                 // wire types
enum { MODEL_GRAPH = 7, GRAPH_INITIALIZER = 5 };                          // field numbers
enum { DIMS = 1, DATA_TYPE = 2, FLOAT_DATA = 4, NAME = 8, RAW_DATA = 9 }; // of TensorProto

typedef struct span {
    const unsigned char *at, *end;
} span;

typedef struct field {
    uint32_t number, wire;
    uint64_t value; // VARINT
    span bytes;     // BYTES
} field;

// The next field of a message; false at its end, or where it isn't one (*bad).
static bool next(span *s, field *f, bool *bad)
{
    uint64_t key = 0, n = 0;
    if (s->at == s->end) return false;
    *bad = true;
    if (!zx_wire_varint(&s->at, s->end, &key) || key >> 3 > UINT32_MAX) return false;
    *f = (field){.number = (uint32_t)(key >> 3), .wire = (uint32_t)(key & 7)};
    const uint64_t left = (uint64_t)(s->end - s->at);
    switch (f->wire) {
    case VARINT:
        if (!zx_wire_varint(&s->at, s->end, &f->value)) return false;
        break;
    case BYTES:
        if (!zx_wire_varint(&s->at, s->end, &n) || n > (uint64_t)(s->end - s->at)) return false;
        f->bytes = (span){s->at, s->at + n};
        s->at += n;
        break;
    case FIXED64:
    case FIXED32:
        n = f->wire == FIXED64 ? 8 : 4;
        if (n > left) return false;
        s->at += n;
        break;
    default:
        return false;
    }
    *bad = false;
    return true;
}

static void add_dim(zx_onnx_place *p, uint64_t dim, bool *bad)
{
    *bad = *bad || p->type.shape.rank == ZX_MAX_RANK || dim > INT64_MAX;
    if (!*bad) p->type.shape.dim[p->type.shape.rank++] = (int64_t)dim;
}

static void read_tensor(const unsigned char *file, span s, zx_arena *mem, zx_onnx_place *p,
                        bool *bad)
{
    field f;
    span data = {NULL, NULL};
    uint64_t dim;
    *p = (zx_onnx_place){.name = "", .type = {.dtype = ZX_DTYPE_COUNT}, .at = UINT64_MAX};
    while (!*bad && next(&s, &f, bad)) {
        if (f.number == DIMS && f.wire == VARINT) add_dim(p, f.value, bad);
        if (f.number == DIMS && f.wire == BYTES)
            while (!*bad && f.bytes.at < f.bytes.end) {
                *bad = !zx_wire_varint(&f.bytes.at, f.bytes.end, &dim);
                if (!*bad) add_dim(p, dim, bad);
            }
        if (f.number == DATA_TYPE && f.wire == VARINT && f.value <= INT32_MAX)
            p->type.dtype = zx_dtype_of_onnx((int64_t)f.value);
        if (f.number == NAME && f.wire == BYTES)
            p->name =
                zx_arena_strn(mem, (const char *)f.bytes.at, (size_t)(f.bytes.end - f.bytes.at));
        if ((f.number == RAW_DATA || f.number == FLOAT_DATA) && f.wire == BYTES) data = f.bytes;
    }
    if (*bad || data.at == NULL || p->type.dtype == ZX_DTYPE_COUNT) return;
    if (zx_shape_check(&p->type.shape, NULL) != ZX_OK) return;
    if ((uint64_t)(data.end - data.at) == zx_type_bytes(&p->type))
        p->at = (uint64_t)(data.at - file);
}

zx_status zx_onnx_places(const zx_mapfile *m, zx_arena *mem, uint32_t *n, const zx_onnx_place **out,
                         zx_err *err)
{
    span model = {m->bytes, m->bytes + m->size};
    field f, g;
    bool bad = false;
    uint32_t cap = 0;
    zx_onnx_place *places = NULL;
    *n = 0;
    while (next(&model, &f, &bad)) {
        if (f.number != MODEL_GRAPH || f.wire != BYTES) continue;
        while (!bad && next(&f.bytes, &g, &bad)) {
            if (g.number != GRAPH_INITIALIZER || g.wire != BYTES) continue;
            ZX_GROW(mem, places, *n, cap);
            read_tensor(m->bytes, g.bytes, mem, &places[(*n)++], &bad);
        }
        if (bad) break;
    }
    *out = places;
    return bad ? ZX_FAIL(err, ZX_E_FORMAT, "it is no ONNX model, or it has changed") : ZX_OK;
}
