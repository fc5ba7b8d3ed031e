// cmd_show.c - zerox show: what tensors there are in a file, a checkpoint or a run, and what is in
// them.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cmd.h"
#include "runtime/tensors.h"

enum { CHUNK = 1 << 18, HEAD = 8 }; // elements read at a time; shown of a tensor

typedef struct found { // of a tensor's elements
    double norm, min, max;
    int64_t not_finite;
    int n_head;
    double head[HEAD];
} found;

// An element of any type as a number.
static double number(zx_dtype t, const unsigned char *at)
{
    union {
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
    } x;
    memcpy(&x, at, zx_dtype_bytes(t));
    switch (t) {
    case ZX_I8:
        return x.i8;
    case ZX_I16:
        return x.i16;
    case ZX_I32:
        return x.i32;
    case ZX_I64:
        return (double)x.i64;
    case ZX_U16:
        return x.u16;
    case ZX_U32:
        return x.u32;
    case ZX_U64:
        return (double)x.u64;
    default:
        return x.u8;
    }
}

static void take(found *f, double x)
{
    if (f->n_head < HEAD) f->head[f->n_head++] = x;
    if (!isfinite(x)) {
        f->not_finite++;
        return;
    }
    f->norm += x * x;
    if (!(x >= f->min)) f->min = x;
    if (!(x <= f->max)) f->max = x;
}

// Reads all of it, a piece at a time.
static zx_status look(zx_tensors *t, uint32_t i, void *chunk, found *f, zx_err *err)
{
    const zx_type *type = &t->at[i].type;
    const int64_t n = zx_shape_count(&type->shape);
    const bool real = zx_dtype_is_float(type->dtype);
    const uint32_t width = zx_dtype_bytes(type->dtype);
    *f = (found){.min = NAN, .max = NAN};
    for (int64_t done = 0; done < n; done += CHUNK) {
        const int64_t part = n - done < CHUNK ? n - done : CHUNK;
        if (real)
            ZX_TRY(zx_tensors_read_f32(t, i, done, part, chunk, err));
        else
            ZX_TRY(zx_tensors_read(t, i, done, part, chunk, err));
        for (int64_t k = 0; k < part; k++)
            take(f, real ? ((const float *)chunk)[k]
                         : number(type->dtype, (const unsigned char *)chunk + k * width));
    }
    f->norm = sqrt(f->norm);
    return ZX_OK;
}

static void put_number(zx_text *out, const char *before, double x)
{
    if (isfinite(x))
        zx_text_put(out, "%s%.6g", before, x);
    else
        zx_text_put(out, "%s%s", before, isnan(x) ? "-" : x > 0 ? "inf" : "-inf");
}

static void put_row(const zx_tensor_entry *e, const found *f, bool head, zx_arena *mem,
                    zx_text *out)
{
    char shape[ZX_SHAPE_TEXT];
    zx_text_put(out, "%s%s%s  %s %s", e->part, e->part[0] != '\0' ? " " : "",
                zx_text_safe(mem, e->name), zx_dtypes[e->type.dtype].word,
                zx_shape_text(&e->type.shape, shape));
    put_number(out, "  norm ", f->norm);
    put_number(out, "  min ", f->min);
    put_number(out, "  max ", f->max);
    if (f->not_finite > 0) zx_text_put(out, "  not finite: %" PRId64, f->not_finite);
    zx_text_put(out, "\n");
    if (!head) return;
    zx_text_put(out, "  first:");
    for (int k = 0; k < f->n_head; k++) {
        if (isfinite(f->head[k]))
            zx_text_put(out, " %.9g", f->head[k]);
        else
            zx_text_put(out, " %s", isnan(f->head[k]) ? "nan" : f->head[k] > 0 ? "inf" : "-inf");
    }
    zx_text_put(out, "\n");
}

#define ZX_SHOW_U64 "%" PRIu64
#define ZX_SHOW_F64 "%.9g"
static void put_state(const zx_ckpt *c, zx_arena *mem, zx_text *out)
{
    zx_text_put(out, "saved on %u rank%s, ZeRO stage %u, optimizer %s, model %s\n", c->ranks,
                c->ranks == 1 ? "" : "s", c->stage, zx_text_safe(mem, c->optimizer),
                zx_text_safe(mem, c->model));
    const char *comma = "";
    // Behind the seed is what evaluations and fp16 keep: 0 where there is none.
#define ZX_TRAIN_STATE(type, name, absent)                                                         \
    if (offsetof(zx_train_state, name) <= offsetof(zx_train_state, seed) || c->state.name > 0) {   \
        zx_text_put(out, "%s" #name " " ZX_SHOW_##type, comma, c->state.name);                     \
        comma = ", ";                                                                              \
    }
#include "runtime/train_state.def"
#undef ZX_TRAIN_STATE
    zx_text_put(out, "\n");
}

// Under any of its names.
static bool is_asked_for(const zx_tensor_entry *e, const char *glob)
{
    bool is = glob == NULL || zx_text_match(glob, e->name);
    for (uint32_t k = 0; k < e->n_aliases && !is; k++) is = zx_text_match(glob, e->aliases[k]);
    return is;
}

static const char *nearest(const zx_tensors *t, const char *name, zx_arena *mem)
{
    const char **names = ZX_NEW(mem, const char *, t->n);
    for (uint32_t i = 0; i < t->n; i++) names[i] = t->at[i].name;
    return zx_text_nearest(name, names, t->n);
}

static zx_status show(zx_tensors *t, const char *glob, void *chunk, zx_arena *mem, zx_err *err)
{
    zx_text out = {0};
    zx_status st = ZX_OK;
    uint64_t elements = 0;
    uint32_t shown = 0;
    char count[ZX_BYTES_TEXT];
    zx_text_put(&out, "%s\n", zx_text_safe(mem, t->path));
    if (t->is_ckpt) put_state(&t->ckpt, mem, &out);
    for (uint32_t i = 0; i < t->n && st == ZX_OK; i++) {
        found f;
        if (!is_asked_for(&t->at[i], glob)) continue;
        st = look(t, i, chunk, &f, err);
        put_row(&t->at[i], &f, glob != NULL, mem, &out);
        elements += (uint64_t)zx_shape_count(&t->at[i].type.shape);
        shown++;
    }
    zx_text_put(&out, "%u tensor%s, %s elements\n", shown, shown == 1 ? "" : "s",
                zx_text_count((double)elements, count));
    if (st == ZX_OK && glob != NULL && shown == 0) {
        const char *near = nearest(t, glob, mem);
        st = ZX_FAIL(err, ZX_E_USAGE, "%s has no tensor '%s'%s%s%s", zx_text_safe(mem, t->path),
                     zx_text_safe(mem, glob), near != NULL ? "; the nearest is '" : "",
                     near != NULL ? zx_text_safe(mem, near) : "", near != NULL ? "'" : "");
    }
    if (st == ZX_OK) zx_cmd_put(&out);
    zx_text_free(&out);
    return st;
}

int zx_cmd_show(const zx_options *o, zx_err *err)
{
    zx_arena mem = {0};
    zx_tensors t;
    void *chunk = malloc((size_t)CHUNK * 8);
    zx_status st = chunk != NULL ? ZX_OK : ZX_FAIL(err, ZX_E_IO, "out of memory");
    if (st == ZX_OK) st = zx_tensors_open(o->operand, true, &mem, &t, err);
    if (st == ZX_OK) {
        st = show(&t, zx_given_text(o, ZX_OPT_TENSOR), chunk, &mem, err);
        zx_tensors_close(&t);
    }
    free(chunk);
    zx_arena_free(&mem);
    return zx_status_exit(st);
}
