// attention.c - attention and its gradient, float32, without the scores ever being whole.
//
// A few rows of queries meet all keys at a time: their scores are a tile, their softmax is made in
// place, and the tile is gone once it is multiplied with the values. Backward makes the tile again
// from q, k and the rows' log-sum-exp: p = e^(s - lse), ds = p (dy v' - dy.y). Scratch of a thread
// is the keys (and values) of one head, transposed, and the tiles: it grows with the length, not
// with its square.
//
// A task is a head of queries forward and a head of keys backward, whose query heads are added in
// order: results don't depend on the threads.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "kernels/cpu/tile.h"
#include "kernels/cpu/vmath.h"

#define ROWS 32 // of a tile

// An operand [batch, heads, rows, size] by its strides: the dims may lie in two orders.
typedef struct heads {
    float *x;
    int64_t n, rows, size; // heads, rows and numbers of one
    int64_t of_batch, of_head, of_row;
} heads;

typedef struct masks {
    const void *x; // NULL: none
    bool is_bool;
    int64_t stride[4]; // of batch, head, query, key; 0 where it is repeated
} masks;

typedef struct attn {
    const zx_call *call;
    heads q, k, v, y, dy, dq, dk, dv;
    masks mask;
    float *lse;
    float scale, cap;
    bool causal;
    bool mean;     // of all values, where a row is masked as a whole: not 0
    int64_t shift; // key j is seen by query i where j <= i + shift
    int64_t tasks, pieces, piece_floats;
} attn;

static heads heads_of(const zx_view *v, int64_t n)
{
    const int64_t *d = v->type.shape.dim;
    if (v->type.shape.rank == 4)
        return (heads){v->data, d[1], d[2], d[3], d[1] * d[2] * d[3], d[2] * d[3], d[3]};
    return (heads){v->data, n, d[1], d[2] / n, d[1] * d[2], d[2] / n, d[2]};
}

static float *head_at(const heads *h, int64_t batch, int64_t head)
{
    return h->x + batch * h->of_batch + head * h->of_head;
}

static masks mask_of(const zx_call *call, uint32_t i)
{
    masks m = {0};
    if (i >= call->n_in || call->in[i].data == NULL) return m;
    const zx_shape *s = &call->in[i].type.shape;
    int64_t stride[ZX_MAX_RANK];
    zx_strides(s, stride);
    m.x = call->in[i].data;
    m.is_bool = call->in[i].type.dtype == ZX_BOOL;
    for (uint32_t d = 0; d < s->rank; d++)
        if (s->dim[d] != 1) m.stride[4 - s->rank + d] = stride[d];
    return m;
}

typedef struct operands {
    heads q, k, v;
} operands;

// What lies side by side in one operand: q, k, v or their gradients, rows before heads.
static operands cut_up(const zx_view *v, int64_t nq, int64_t nkv)
{
    const int64_t *d = v->type.shape.dim, size = d[2] / (nq + 2 * nkv);
    const heads q = {v->data, nq, d[1], size, d[1] * d[2], size, d[2]};
    operands all = {q, q, q};
    all.k.n = all.v.n = nkv;
    if (q.x != NULL) all.k.x = q.x + nq * size;
    if (q.x != NULL) all.v.x = all.k.x + nkv * size;
    return all;
}

// Three views, or one.
static operands operands_of(const zx_view *v, bool packed, const zx_attrs *attrs)
{
    const int64_t nq = zx_attr_int(attrs, ZX_A_HEADS, 1);
    const int64_t nkv = zx_attr_int(attrs, ZX_A_KV_HEADS, 1);
    if (packed) return cut_up(v, nq, nkv);
    return (operands){heads_of(&v[0], nq), heads_of(&v[1], nkv), heads_of(&v[2], nkv)};
}

// The inputs from `first` on are q, k, v.
static attn attn_of(const zx_call *call, uint32_t first, bool packed)
{
    const operands in = operands_of(&call->in[first], packed, call->attrs);
    return (attn){.call = call,
                  .q = in.q,
                  .k = in.k,
                  .v = in.v,
                  .scale = (float)zx_attr_float(call->attrs, ZX_A_SCALE, 1),
                  .cap = (float)zx_attr_float(call->attrs, ZX_A_SOFTCAP, 0),
                  .causal = zx_attr_int(call->attrs, ZX_A_CAUSAL, 0) != 0,
                  .mean = zx_attr_int(call->attrs, ZX_A_MODE, 0) != 0,
                  .shift = zx_attr_int(call->attrs, ZX_A_K, 0)};
}

static void share_out(attn *a, int64_t heads_of_tasks, int64_t floats)
{
    a->tasks = a->call->in[0].type.shape.dim[0] * heads_of_tasks;
    a->pieces = zx_min_i64(a->call->threads, a->tasks);
    a->piece_floats = (floats + 15) / 16 * 16; // a cache line of its own for each thread
}

static int64_t first_task(const attn *a, int64_t piece)
{
    return a->tasks * piece / a->pieces;
}

// Keys that query i sees are the first ones: how many.
static int64_t keys_of(const attn *a, int64_t i)
{
    return a->causal ? zx_min_i64(a->k.rows, i + a->shift + 1) : a->k.rows;
}

// ---- scores -------------------------------------------------------------------------------------
ZX_CLONES static void scale_row(float *s, int64_t n, float scale)
{
    ZX_SIMD for (int64_t j = 0; j < n; j++) s[j] *= scale;
}
ZX_CLONES static void cap_row(float *s, int64_t n, float cap)
{
    ZX_SIMD for (int64_t j = 0; j < n; j++) s[j] = cap * vm_tanh(s[j] / cap);
}
ZX_CLONES static void add_row(float *s, const float *mask, int64_t n, int64_t stride)
{
    if (stride == 1) {
        ZX_SIMD for (int64_t j = 0; j < n; j++) s[j] += mask[j];
    } else {
        ZX_SIMD for (int64_t j = 0; j < n; j++) s[j] += mask[0];
    }
}
ZX_CLONES static void hide_row(float *s, const uint8_t *mask, int64_t n, int64_t stride)
{
    ZX_SIMD for (int64_t j = 0; j < n; j++) s[j] = mask[j * stride] ? s[j] : -INFINITY;
}
ZX_CLONES static void fill_row(float *s, int64_t n, float x)
{
    ZX_SIMD for (int64_t j = 0; j < n; j++) s[j] = x;
}
ZX_CLONES static void exp_row(float *s, int64_t n, float shift)
{
    ZX_SIMD for (int64_t j = 0; j < n; j++) s[j] = vm_exp(s[j] - shift);
}

typedef struct where { // a tile: rows [row, row + n) of a head of queries
    int64_t batch, head, row, n;
} where;

static int64_t mask_at(const attn *a, const where *w, int64_t r)
{
    const int64_t *s = a->mask.stride;
    return w->batch * s[0] + w->head * s[1] + (w->row + r) * s[2];
}

// s [n][keys] = the scores of a tile, masked. `capped`, if given: those before the mask.
static void make_scores(const attn *a, const where *w, const float *kt, float *s, float *capped,
                        int64_t keys)
{
    const float *q = head_at(&a->q, w->batch, w->head) + w->row * a->q.of_row;
    zx_tile_product(w->n, keys, a->q.size, (zx_tile){q, a->q.of_row, 1}, kt, a->k.rows, s, keys,
                    false);
    for (int64_t r = 0; r < w->n; r++) {
        float *row = s + r * keys;
        const int64_t seen = keys_of(a, w->row + r), at = mask_at(a, w, r);
        scale_row(row, seen, a->scale);
        if (a->cap > 0) cap_row(row, seen, a->cap);
        if (capped) memcpy(capped + r * keys, row, (size_t)seen * sizeof *row);
        if (a->mask.x && a->mask.is_bool)
            hide_row(row, (const uint8_t *)a->mask.x + at, seen, a->mask.stride[3]);
        else if (a->mask.x)
            add_row(row, (const float *)a->mask.x + at, seen, a->mask.stride[3]);
        for (int64_t j = seen; j < keys; j++) row[j] = -INFINITY;
    }
}

// Whether the mask leaves a row no key. Scores that became -inf by themselves are NaN in the end.
static bool is_masked_out(const attn *a, const where *w, int64_t r)
{
    const int64_t seen = keys_of(a, w->row + r), at = mask_at(a, w, r);
    if (a->mask.x == NULL) return seen == 0;
    for (int64_t j = 0; j < seen; j++) {
        const int64_t i = at + j * a->mask.stride[3];
        if (a->mask.is_bool ? ((const uint8_t *)a->mask.x)[i] != 0
                            : ((const float *)a->mask.x)[i] != -INFINITY)
            return false;
    }
    return true;
}

// ---- forward ------------------------------------------------------------------------------------
static void forward_tile(const attn *a, const where *w, const float *kt, float *s)
{
    const int64_t keys = keys_of(a, w->row + w->n - 1);
    const int64_t kv = w->head / (a->q.n / a->k.n);
    float *y = head_at(&a->y, w->batch, w->head) + w->row * a->y.of_row;
    float *lse = a->lse ? a->lse + (w->batch * a->q.n + w->head) * a->q.rows + w->row : NULL;
    float part[ROWS];
    make_scores(a, w, kt, s, NULL, keys);
    for (int64_t r = 0; r < w->n; r++) {
        float *row = s + r * keys;
        const float most = zx_row_max(row, keys);
        const bool out = most == -INFINITY && is_masked_out(a, w, r);
        const bool none = out && (!a->mean || keys == 0);
        if (out)
            fill_row(row, keys, a->mean ? 1 : 0);
        else
            exp_row(row, keys, most);
        const double sum = none ? 0 : zx_row_sum(row, keys);
        part[r] = none ? 0 : (float)(1 / sum);
        if (lse) lse[r] = out ? -INFINITY : (float)((double)most + log(sum));
    }
    zx_tile_product(w->n, a->v.size, keys, (zx_tile){s, keys, 1}, head_at(&a->v, w->batch, kv),
                    a->v.of_row, y, a->y.of_row, false);
    for (int64_t r = 0; r < w->n; r++) {
        float *row = y + r * a->y.of_row;
        if (part[r] == 0)
            memset(row, 0, (size_t)a->v.size * sizeof *row);
        else
            scale_row(row, a->v.size, part[r]);
    }
}

static void forward_pieces(void *ctx, int64_t from, int64_t to)
{
    const attn *a = ctx;
    for (int64_t piece = from; piece < to; piece++) {
        float *kt = (float *)a->call->work + piece * a->piece_floats;
        float *s = kt + a->k.size * a->k.rows;
        for (int64_t t = first_task(a, piece); t < first_task(a, piece + 1); t++) {
            where w = {.batch = t / a->q.n, .head = t % a->q.n};
            const float *k = head_at(&a->k, w.batch, w.head / (a->q.n / a->k.n));
            zx_tile_transpose(a->k.rows, a->k.size, k, a->k.of_row, kt, a->k.rows);
            for (w.row = 0; w.row < a->q.rows; w.row += ROWS) {
                w.n = zx_min_i64(ROWS, a->q.rows - w.row);
                forward_tile(a, &w, kt, s);
            }
        }
    }
}

static void share_forward(attn *a)
{
    share_out(a, a->q.n, (a->k.size + ROWS) * a->k.rows);
}

static zx_status forward_prepare(const zx_call *call, bool packed, uint64_t *work_bytes)
{
    attn a = attn_of(call, 0, packed);
    share_forward(&a);
    *work_bytes = (uint64_t)a.pieces * (uint64_t)a.piece_floats * sizeof(float);
    return ZX_OK;
}

static zx_status forward(const zx_call *call, bool packed, zx_err *err)
{
    ZX_TRY(zx_need_f32(call, err));
    attn a = attn_of(call, 0, packed);
    a.mask = mask_of(call, packed ? 1 : 3);
    a.y = heads_of(&call->out[0], a.q.n);
    a.lse = call->out[1].data;
    share_forward(&a);
    zx_split(call->threads, a.pieces, 1, 2, forward_pieces, &a);
    return ZX_OK;
}

// ---- backward -----------------------------------------------------------------------------------
// ds = p (dp - delta) scale, and by the slope of the cap: 1 - tanh^2.
ZX_CLONES static void grad_row(const float *p, float *dp, int64_t n, float delta, float scale)
{
    ZX_SIMD for (int64_t j = 0; j < n; j++) dp[j] = p[j] * (dp[j] - delta) * scale;
}
ZX_CLONES static void cap_grad_row(float *ds, const float *capped, int64_t n, float cap)
{
    ZX_SIMD for (int64_t j = 0; j < n; j++)
    {
        const float t = capped[j] / cap;
        ds[j] *= 1 - t * t;
    }
}

typedef struct scratch {    // of one thread
    float *kt, *vt;         // [size][keys]
    float *p, *ds, *capped; // [ROWS][keys]
} scratch;

static scratch scratch_of(const attn *a, int64_t piece)
{
    scratch s;
    const int64_t keys = a->k.rows;
    s.kt = (float *)a->call->work + piece * a->piece_floats;
    s.vt = s.kt + a->k.size * keys;
    s.p = s.vt + a->v.size * keys;
    s.ds = s.p + ROWS * keys;
    s.capped = a->cap > 0 ? s.ds + ROWS * keys : NULL;
    return s;
}

static void share_backward(attn *a)
{
    const int64_t tiles = a->cap > 0 ? 3 : 2;
    share_out(a, a->k.n, (a->k.size + a->v.size + tiles * ROWS) * a->k.rows);
}

// p and ds of a tile.
static void make_slopes(const attn *a, const where *w, const scratch *x, int64_t keys)
{
    const float *dy = head_at(&a->dy, w->batch, w->head) + w->row * a->dy.of_row;
    const float *y = head_at(&a->y, w->batch, w->head) + w->row * a->y.of_row;
    const float *lse = a->lse + (w->batch * a->q.n + w->head) * a->q.rows + w->row;
    make_scores(a, w, x->kt, x->p, x->capped, keys);
    zx_tile_product(w->n, keys, a->v.size, (zx_tile){dy, a->dy.of_row, 1}, x->vt, a->k.rows, x->ds,
                    keys, false);
    for (int64_t r = 0; r < w->n; r++) {
        float *p = x->p + r * keys, *ds = x->ds + r * keys;
        const int64_t seen = keys_of(a, w->row + r);
        if (lse[r] == -INFINITY) { // masked as a whole
            fill_row(p, keys, a->mean ? 1 / (float)keys : 0);
            fill_row(ds, keys, 0);
            continue;
        }
        exp_row(p, keys, lse[r]);
        const double delta = zx_row_dot(dy + r * a->dy.of_row, y + r * a->y.of_row, a->v.size);
        grad_row(p, ds, keys, (float)delta, a->scale);
        if (x->capped) cap_grad_row(ds, x->capped + r * keys, seen, a->cap);
    }
}

static void backward_tile(const attn *a, const where *w, const scratch *x)
{
    const int64_t keys = keys_of(a, w->row + w->n - 1);
    const int64_t kv = w->head / (a->q.n / a->k.n);
    const float *q = head_at(&a->q, w->batch, w->head) + w->row * a->q.of_row;
    const float *dy = head_at(&a->dy, w->batch, w->head) + w->row * a->dy.of_row;
    make_slopes(a, w, x, keys);
    if (a->dq.x)
        zx_tile_product(w->n, a->q.size, keys, (zx_tile){x->ds, keys, 1},
                        head_at(&a->k, w->batch, kv), a->k.of_row,
                        head_at(&a->dq, w->batch, w->head) + w->row * a->dq.of_row, a->dq.of_row,
                        false);
    if (a->dk.x)
        zx_tile_product(keys, a->q.size, w->n, (zx_tile){x->ds, 1, keys}, q, a->q.of_row,
                        head_at(&a->dk, w->batch, kv), a->dk.of_row, true);
    if (a->dv.x)
        zx_tile_product(keys, a->v.size, w->n, (zx_tile){x->p, 1, keys}, dy, a->dy.of_row,
                        head_at(&a->dv, w->batch, kv), a->dv.of_row, true);
}

static void zero_head(const heads *h, int64_t batch, int64_t head)
{
    if (h->x == NULL) return;
    float *x = head_at(h, batch, head);
    for (int64_t r = 0; r < h->rows; r++) memset(x + r * h->of_row, 0, (size_t)h->size * sizeof *x);
}

static void backward_pieces(void *ctx, int64_t from, int64_t to)
{
    const attn *a = ctx;
    const int64_t group = a->q.n / a->k.n;
    for (int64_t piece = from; piece < to; piece++) {
        const scratch x = scratch_of(a, piece);
        for (int64_t t = first_task(a, piece); t < first_task(a, piece + 1); t++) {
            const int64_t batch = t / a->k.n, kv = t % a->k.n;
            zx_tile_transpose(a->k.rows, a->k.size, head_at(&a->k, batch, kv), a->k.of_row, x.kt,
                              a->k.rows);
            zx_tile_transpose(a->v.rows, a->v.size, head_at(&a->v, batch, kv), a->v.of_row, x.vt,
                              a->v.rows);
            zero_head(&a->dk, batch, kv);
            zero_head(&a->dv, batch, kv);
            where w = {.batch = batch};
            for (w.head = kv * group; w.head < (kv + 1) * group; w.head++)
                for (w.row = 0; w.row < a->q.rows; w.row += ROWS) {
                    w.n = zx_min_i64(ROWS, a->q.rows - w.row);
                    backward_tile(a, &w, &x);
                }
        }
    }
}

static zx_status backward_prepare(const zx_call *call, bool packed, uint64_t *work_bytes)
{
    attn a = attn_of(call, 1, packed);
    share_backward(&a);
    *work_bytes = (uint64_t)a.pieces * (uint64_t)a.piece_floats * sizeof(float);
    return ZX_OK;
}

// dy, [q, k, v or one of all], y, lse, [mask]
static zx_status backward(const zx_call *call, bool packed, zx_err *err)
{
    const uint32_t y = packed ? 2 : 4;
    ZX_TRY(zx_need_f32(call, err));
    attn a = attn_of(call, 1, packed);
    const operands d = operands_of(call->out, packed, call->attrs);
    a.mask = mask_of(call, y + 2);
    a.dy = heads_of(&call->in[0], a.q.n);
    a.y = heads_of(&call->in[y], a.q.n);
    a.lse = call->in[y + 1].data;
    a.dq = d.q;
    a.dk = d.k;
    a.dv = d.v;
    share_backward(&a);
    zx_split(call->threads, a.pieces, 1, 2, backward_pieces, &a);
    return ZX_OK;
}

// ---- kernels ------------------------------------------------------------------------------------
#define KERNEL(name, pass, packed)                                                                 \
    static zx_status name##_prepare(const zx_call *call, uint64_t *work_bytes,                     \
                                    void **state ZX_UNUSED, zx_err *err ZX_UNUSED)                 \
    {                                                                                              \
        return pass##_prepare(call, packed, work_bytes);                                           \
    }                                                                                              \
    static zx_status name##_run(const zx_call *call, zx_err *err)                                  \
    {                                                                                              \
        return pass(call, packed, err);                                                            \
    }                                                                                              \
    const zx_kernel zx_cpu_##name = {.prepare = name##_prepare, .run = name##_run};
KERNEL(attention, forward, false)
KERNEL(attention_grad, backward, false)
KERNEL(packed_attention, forward, true)
KERNEL(packed_attention_grad, backward, true)
