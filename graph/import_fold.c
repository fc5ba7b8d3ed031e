// import_fold.c - the verbs that lowerings are written in: each makes an IR node, or evaluates it
// at once where all its inputs are constants. Folded bytes are counted by reference and dropped as
// soon as no tensor of the file needs them: mask building makes large intermediates.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FOLDED (UINT64_C(4) << 30) // live bytes of folded constants, by default
#define SMALL_BYTES 4096               // up to here a constant of the file is looked at for equals

// ---- failing
// -----------------------------------------------------------------------------------------

uint32_t zx_fail(zx_imp *c, zx_status code, const char *fmt, ...)
{
    if (c->st != ZX_OK) return ZX_NONE;
    char text[ZX_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->st = ZX_FAIL(&c->one, code, "%s", text);
    return ZX_NONE;
}

// Takes over what a function of another file said to c->one.
bool zx_did(zx_imp *c, zx_status st)
{
    if (c->st == ZX_OK) c->st = st;
    return c->st == ZX_OK;
}

// ---- values
// ------------------------------------------------------------------------------------------

static const zx_shape scalar_shape = {0};

const zx_shape *zx_s(const zx_imp *c, uint32_t v)
{
    return v == ZX_NONE ? &scalar_shape : &c->b.values[v].type.shape;
}

uint32_t zx_rank(const zx_imp *c, uint32_t v)
{
    return zx_s(c, v)->rank;
}

int64_t zx_dim(const zx_imp *c, uint32_t v, uint32_t axis)
{
    const zx_shape *s = zx_s(c, v);
    return axis < s->rank ? s->dim[axis] : 1;
}

zx_dtype zx_t(const zx_imp *c, uint32_t v)
{
    return v == ZX_NONE ? ZX_F32 : c->b.values[v].type.dtype;
}

bool zx_is_const(const zx_imp *c, uint32_t v)
{
    return v != ZX_NONE && c->b.values[v].role == ZX_R_CONST;
}

uint32_t zx_axis(zx_imp *c, int64_t axis, uint32_t rank)
{
    const int64_t r = rank, a = axis < 0 ? axis + r : axis;
    if (a >= 0 && a < r) return (uint32_t)a;
    zx_fail(c, ZX_E_SHAPE, "axis %" PRId64 " of a tensor with %u dimensions", axis, rank);
    return 0;
}

// aux grows with the builder's values.
static zx_iaux *aux(zx_imp *c, uint32_t v)
{
    const uint32_t n = c->b.g.n_values;
    if (n > c->cap_aux) {
        const uint32_t cap = n + n / 2 + 64;
        zx_iaux *more = ZX_NEW(&c->tmp, zx_iaux, cap);
        if (c->cap_aux > 0) memcpy(more, c->aux, c->cap_aux * sizeof *more);
        for (uint32_t i = c->cap_aux; i < cap; i++) more[i].block = more[i].shrunk = ZX_NONE;
        c->aux = more;
        c->cap_aux = cap;
    }
    return &c->aux[v];
}

// ---- bytes of constants
// ---------------------------------------------------------------------------------

static uint32_t block_new(zx_imp *c, uint64_t size)
{
    const uint64_t most = c->options->fold_bytes > 0 ? c->options->fold_bytes : MAX_FOLDED;
    if (size > most || c->block_bytes + size > most) {
        char text[ZX_BYTES_TEXT];
        zx_fail(c, ZX_E_UNSUPPORTED, "a constant of %s is too large to be made while importing",
                zx_text_size(size, text));
        return ZX_NONE;
    }
    // calloc leaves large zeros untouched until they are written.
    void *memory = calloc(1, size + ZX_ALIGN);
    if (memory == NULL) {
        zx_fail(c, ZX_E_IO, "no memory for a constant of %" PRIu64 " bytes", size);
        return ZX_NONE;
    }
    void *bytes = (char *)memory + (ZX_ALIGN - (uintptr_t)memory % ZX_ALIGN) % ZX_ALIGN;
    ZX_GROW(&c->tmp, c->blocks, c->n_blocks, c->cap_blocks);
    c->blocks[c->n_blocks] = (zx_iblock){memory, bytes, size, 1};
    c->block_bytes += size;
    return c->n_blocks++;
}

static void block_drop(zx_imp *c, uint32_t i)
{
    zx_iblock *b = &c->blocks[i];
    if (--b->refs > 0) return;
    free(b->memory);
    b->memory = b->bytes = NULL;
    c->block_bytes -= b->size;
}

void zx_blocks_free(zx_imp *c)
{
    for (uint32_t i = 0; i < c->n_blocks; i++) free(c->blocks[i].memory);
    c->n_blocks = 0;
}

static void drop(zx_imp *c, uint32_t v)
{
    zx_iaux *a = aux(c, v);
    if (a->block == ZX_NONE || a->used) return;
    block_drop(c, a->block);
    a->block = ZX_NONE;
    c->b.values[v].data = NULL;
}

void zx_release(zx_imp *c)
{
    for (uint32_t v = c->first_value; v < c->b.g.n_values; v++)
        if (zx_is_const(c, v) && aux(c, v)->bound == 0) drop(c, v);
}

void zx_drop(zx_imp *c, uint32_t v)
{
    if (aux(c, v)->bound > 0) aux(c, v)->bound--;
    if (zx_is_const(c, v) && aux(c, v)->bound == 0) drop(c, v);
}

void zx_hold(zx_imp *c, uint32_t v)
{
    aux(c, v)->bound++;
}

void zx_train(zx_imp *c, uint32_t v)
{
    aux(c, v)->trained = true;
}

// ---- making constants
// ---------------------------------------------------------------------------------

uint32_t zx_k_new(zx_imp *c, const zx_type *t, void **bytes)
{
    static char nowhere[ZX_ALIGN];
    *bytes = nowhere;
    if (!zx_ok(c)) return ZX_NONE;
    if (!zx_did(c, zx_shape_check(&t->shape, &c->one))) return ZX_NONE;
    const uint32_t block = block_new(c, zx_type_bytes(t));
    if (block == ZX_NONE) return ZX_NONE;
    const uint32_t v = zx_build_const(&c->b, c->b.at_name, t, c->blocks[block].bytes);
    aux(c, v)->block = block;
    *bytes = c->blocks[block].bytes;
    return v;
}

// ---- keeping the graph's constants small
// --------------------------------------------------------------------

// Which axes only repeat: all slices along them are equal, bit by bit.
static uint32_t repeats(zx_imp *c, uint32_t v)
{
    zx_iaux *a = aux(c, v);
    if (a->repeats_known) return a->repeats;
    const zx_value *x = &c->b.values[v];
    const zx_shape *s = &x->type.shape;
    const uint64_t e = zx_dtype_bytes(x->type.dtype);
    for (uint32_t d = 0; d < s->rank; d++) {
        if (s->dim[d] < 2) continue;
        const uint64_t outer = (uint64_t)zx_shape_span(s, 0, d), n = (uint64_t)s->dim[d],
                       slice = (uint64_t)zx_shape_span(s, d + 1, s->rank) * e;
        bool same = slice > 0 && outer > 0;
        for (uint64_t o = 0; same && o < outer; o++) {
            const char *at = (const char *)x->data + o * n * slice;
            // Every slice equals the one before it.
            same = memcmp(at, at + slice, (n - 1) * slice) == 0;
        }
        if (same) a->repeats |= 1u << d;
    }
    a->repeats_known = true;
    return a->repeats;
}

// A node broadcasts constant v (one of `in`) to `to`: axes along which v only repeats need not be
// there, where another operand has them in full.
static uint32_t shrink(zx_imp *c, const uint32_t *in, uint32_t n_in, uint32_t which,
                       const zx_shape *to)
{
    const uint32_t v = in[which];
    const zx_shape *s = zx_s(c, v);
    if (zx_shape_count(s) < 64) return v;
    uint32_t axes = 0;
    for (uint32_t d = 0; d < s->rank; d++) {
        if (s->dim[d] < 2) continue;
        for (uint32_t k = 0; k < n_in; k++) {
            if (k == which || in[k] == ZX_NONE || in[k] == v) continue;
            const uint32_t from_end = s->rank - d, rank = zx_rank(c, in[k]);
            if (from_end <= rank && zx_dim(c, in[k], rank - from_end) == s->dim[d] &&
                !zx_is_const(c, in[k]))
                axes |= 1u << d;
        }
    }
    if (axes == 0 || to->rank < s->rank) return v;
    axes &= repeats(c, v);
    if (axes == 0) return v;
    if (aux(c, v)->shrunk != ZX_NONE && aux(c, v)->shrunk_axes == axes) return aux(c, v)->shrunk;

    zx_type t = c->b.values[v].type;
    const zx_shape full = t.shape;
    for (uint32_t d = 0; d < full.rank; d++)
        if (axes >> d & 1) t.shape.dim[d] = 1;
    void *bytes;
    const uint32_t small = zx_k_new(c, &t, &bytes);
    if (small == ZX_NONE) return ZX_NONE;
    const uint64_t e = zx_dtype_bytes(t.dtype);
    const int64_t n = zx_shape_count(&t.shape);
    int64_t at[ZX_MAX_RANK] = {0};
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0;
        for (uint32_t d = 0; d < full.rank; d++) from = from * full.dim[d] + at[d];
        memcpy((char *)bytes + (uint64_t)i * e,
               (const char *)c->b.values[v].data + (uint64_t)from * e, e);
        for (uint32_t d = full.rank; d-- > 0;) {
            if (++at[d] < t.shape.dim[d]) break;
            at[d] = 0;
        }
    }
    c->b.values[small].name = c->b.values[v].name;
    aux(c, small)->bound = 1; // stays: other layers shrink the same constant
    aux(c, v)->shrunk = small;
    aux(c, v)->shrunk_axes = axes;
    return small;
}

// The constant that nodes of the graph read in v's place: an equal one that they read already
// (every layer builds its own mask).
static uint32_t settle(zx_imp *c, uint32_t v)
{
    zx_iaux *a = aux(c, v);
    const zx_value *x = &c->b.values[v];
    const uint64_t bytes = zx_type_bytes(&x->type);
    if (!a->used && (a->block != ZX_NONE || bytes <= SMALL_BYTES))
        for (uint32_t k = 0; k < c->n_used; k++) {
            const zx_value *y = &c->b.values[c->used[k]];
            if (x->type.dtype == y->type.dtype && zx_shape_equal(&x->type.shape, &y->type.shape) &&
                (bytes == 0 || memcmp(x->data, y->data, bytes) == 0))
                return c->used[k];
        }
    if (!a->used) {
        a->used = true;
        ZX_GROW(&c->tmp, c->used, c->n_used, c->cap_used);
        c->used[c->n_used++] = v;
    }
    return v;
}

uint32_t zx_use(zx_imp *c, uint32_t v)
{
    return zx_is_const(c, v) ? settle(c, v) : v;
}

// ---- nodes
// ---------------------------------------------------------------------------------------------------

static bool is_broadcast(zx_op_id op)
{
    switch (op) {
    case ZX_OP_ADD:
    case ZX_OP_SUB:
    case ZX_OP_MUL:
    case ZX_OP_DIV:
    case ZX_OP_POW:
    case ZX_OP_MOD:
    case ZX_OP_MAX:
    case ZX_OP_MIN:
    case ZX_OP_EQUAL:
    case ZX_OP_LESS:
    case ZX_OP_LESS_EQUAL:
    case ZX_OP_GREATER:
    case ZX_OP_GREATER_EQUAL:
    case ZX_OP_AND:
    case ZX_OP_OR:
    case ZX_OP_XOR:
    case ZX_OP_WHERE:
        return true;
    default:
        return false;
    }
}

static bool infer(zx_imp *c, zx_op_id op, const zx_attrs *attrs, const uint32_t *in, uint32_t n_in,
                  zx_type *out)
{
    const zx_op *row = &zx_ops[op];
    const zx_type **types = ZX_NEW(&c->tmp, const zx_type *, n_in + 1);
    for (uint32_t i = 0; i < n_in; i++)
        types[i] = in[i] == ZX_NONE ? NULL : &c->b.values[in[i]].type;
    if ((int64_t)n_in < row->min_in || (row->max_in >= 0 && (int64_t)n_in > row->max_in)) {
        zx_fail(c, ZX_E_SHAPE, "%s with %u inputs, it takes %d to %d", row->word, n_in, row->min_in,
                row->max_in);
        return false;
    }
    const zx_op_args args = {
        .op = op, .attrs = attrs, .n_in = n_in, .n_out = row->n_out, .in = types, .out = out};
    if (!zx_did(c, row->infer(&args, out, &c->one))) return false;
    for (uint32_t i = 0; i < row->n_out; i++)
        if (!zx_did(c, zx_shape_check(&out[i].shape, &c->one))) return false;
    return true;
}

static void fold(zx_imp *c, zx_op_id op, const zx_attrs *attrs, const uint32_t *in, uint32_t n_in,
                 const zx_type *types, uint32_t *out)
{
    const uint32_t n_out = zx_ops[op].n_out;
    const zx_eval *eval = c->options->eval;
    if (op == ZX_OP_RESHAPE) { // the same bytes
        const zx_iaux *from = aux(c, in[0]);
        const uint32_t block = from->block;
        out[0] = zx_build_const(&c->b, c->b.at_name, &types[0], c->b.values[in[0]].data);
        aux(c, out[0])->block = block;
        if (block != ZX_NONE) c->blocks[block].refs++;
        return;
    }
    if (eval == NULL) {
        zx_fail(c, ZX_E_UNSUPPORTED, "there is nothing to evaluate constants with");
        return;
    }
    zx_tensor *args = ZX_NEW(&c->tmp, zx_tensor, n_in + 1), made[8] = {0};
    void **copies = ZX_NEW(&c->tmp, void *, n_in + 1);
    for (uint32_t i = 0; i < n_in; i++) {
        if (in[i] == ZX_NONE) continue;
        const zx_value *x = &c->b.values[in[i]];
        args[i] = (zx_tensor){.type = x->type, .data = x->data};
        if ((uintptr_t)x->data % ZX_ALIGN == 0 && x->data != NULL) continue;
        const uint64_t bytes = zx_type_bytes(&x->type);
        copies[i] = aligned_alloc(ZX_ALIGN, zx_align_up(bytes ? bytes : 1, ZX_ALIGN));
        if (copies[i] == NULL) {
            zx_fail(c, ZX_E_IO, "no memory for a constant of %" PRIu64 " bytes", bytes);
            break;
        }
        if (bytes > 0) memcpy(copies[i], x->data, bytes);
        args[i].data = copies[i];
    }
    for (uint32_t i = 0; i < n_out && zx_ok(c); i++) {
        void *bytes;
        out[i] = zx_k_new(c, &types[i], &bytes);
        made[i] = (zx_tensor){.type = types[i], .data = bytes};
    }
    if (zx_ok(c)) zx_did(c, eval->run(eval, op, attrs, args, n_in, made, n_out, &c->one));
    for (uint32_t i = 0; i < n_in; i++) free(copies[i]);
}

void zx_ir_emit(zx_imp *c, zx_op_id op, zx_attrs attrs, const uint32_t *given, uint32_t n_in,
                uint32_t *out)
{
    const uint32_t n_out = zx_ops[op].n_out;
    for (uint32_t i = 0; i < n_out; i++) out[i] = ZX_NONE;
    if (!zx_ok(c)) return;
    while (n_in > 0 && given[n_in - 1] == ZX_NONE) n_in--;
    uint32_t *in = ZX_NEW(&c->tmp, uint32_t, n_in + 1);
    zx_type types[8] = {0};
    bool constant = op != ZX_OP_DROPOUT && op != ZX_OP_BATCH_NORM, trained = false;
    for (uint32_t i = 0; i < n_in; i++) {
        in[i] = given[i];
        if (in[i] == ZX_NONE) continue;
        constant = constant && zx_is_const(c, in[i]);
        trained = trained || aux(c, in[i])->trained;
    }
    if (!infer(c, op, &attrs, in, n_in, types)) return;
    if (constant) {
        fold(c, op, &attrs, in, n_in, types, out);
        return;
    }
    // Half types and double have no gradients and no kernels on a trained path yet.
    const zx_dtype t = types[0].dtype;
    if (trained && zx_dtype_is_float(t) && t != ZX_F32) {
        zx_fail(c, ZX_E_UNSUPPORTED,
                "it makes %s from a parameter: only float32 can be trained so far",
                zx_dtypes[t].word);
        return;
    }
    for (uint32_t i = 0; i < n_in && is_broadcast(op); i++)
        if (zx_is_const(c, in[i])) in[i] = shrink(c, in, n_in, i, &types[0].shape);
    for (uint32_t i = 0; i < n_in && zx_ok(c); i++)
        if (zx_is_const(c, in[i])) in[i] = settle(c, in[i]);
    if (!zx_ok(c)) return;
    if (!zx_did(c, zx_build_node(&c->b, op, in, n_in, attrs, NULL, out, &c->one))) return;
    for (uint32_t i = 0; i < n_out; i++) aux(c, out[i])->trained = trained;
}

uint32_t zx_e1(zx_imp *c, zx_op_id op, zx_attrs attrs, uint32_t a)
{
    uint32_t out[8];
    zx_ir_emit(c, op, attrs, &a, 1, out);
    return out[0];
}

uint32_t zx_e2(zx_imp *c, zx_op_id op, zx_attrs attrs, uint32_t a, uint32_t b)
{
    uint32_t out[8];
    zx_ir_emit(c, op, attrs, (uint32_t[]){a, b}, 2, out);
    return out[0];
}

uint32_t zx_e3(zx_imp *c, zx_op_id op, zx_attrs attrs, uint32_t a, uint32_t b, uint32_t d)
{
    uint32_t out[8];
    zx_ir_emit(c, op, attrs, (uint32_t[]){a, b, d}, 3, out);
    return out[0];
}

const zx_node *zx_made_by(const zx_imp *c, uint32_t v, zx_op_id op)
{
    if (v == ZX_NONE || c->b.values[v].by == ZX_NONE) return NULL;
    const zx_node *n = &c->b.nodes[c->b.values[v].by];
    return n->op == (uint8_t)op ? n : NULL;
}
