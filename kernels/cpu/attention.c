// attention.c - attention and its gradient, float32, without the scores ever being whole. Operands
// and results may be of 16 bits: they are made float32 where they are copied anyway.
//
// A head's rows of queries are copied side by side into scratch. Then some keys (and values) at a
// time are, and meet all rows that see them, a tile of scores at a time. Forward each row keeps the
// greatest score that it has met and the sum of e^(s - that), which with y is scaled when a greater
// one comes. Backward makes a tile again from q, k and the rows' log-sum-exp: p = e^(s - lse),
// ds = p (dy v' - dy.y). Scratch grows with the length, not with its square.
//
// A task is a head of queries forward and a head of keys backward, whose query heads are added in
// order: results don't depend on the threads.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "kernels/cpu/tile.h"
#include "kernels/cpu/vmath.h"

// Of a tile. The keys' rows of 64 numbers are 32 KiB, which leaves a first cache of 48 room for the
// rest of a product; 64 rows of queries are enough that sums of keys' gradients are read seldom.
enum { QUERIES = 64, KEYS = 128 };

// An operand [batch, heads, rows, size] by its strides: the dims may lie in two orders.
typedef struct heads {
    zx_dtype type; // f32, f16 or bf16
    void *x;
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
    bool mean;     // of all values, where a row is masked as a whole: not 0; never causal
    int64_t shift; // key j is seen by query i where j <= i + shift
    int64_t tasks, pieces, piece_floats;
} attn;

typedef struct tile { // of scores: rows [row, row + n) of a head of queries, keys [key, key + keys)
    int64_t batch, head, row, n, key, keys;
} tile;

static heads heads_of(const zx_view *v, int64_t n)
{
    const int64_t *d = v->type.shape.dim;
    if (v->type.shape.rank == 4)
        return (heads){v->type.dtype,      v->data,     d[1], d[2], d[3],
                       d[1] * d[2] * d[3], d[2] * d[3], d[3]};
    return (heads){v->type.dtype, v->data, n, d[1], d[2] / n, d[1] * d[2], d[2] / n, d[2]};
}

// Where a row of a head begins.
static void *row_at(const heads *h, int64_t batch, int64_t head, int64_t row)
{
    const int64_t at = batch * h->of_batch + head * h->of_head + row * h->of_row;
    return (unsigned char *)h->x + at * zx_dtype_bytes(h->type);
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
    const heads q = {v->type.dtype, v->data, nq, d[1], size, d[1] * d[2], size, d[2]};
    unsigned char *x = v->data;
    operands all = {q, q, q};
    all.k.n = all.v.n = nkv;
    if (x != NULL) all.k.x = x + nq * size * zx_dtype_bytes(q.type);
    if (x != NULL) all.v.x = x + (nq + nkv) * size * zx_dtype_bytes(q.type);
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

// Keys that query i sees are the first ones: how many.
static int64_t keys_of(const attn *a, int64_t i)
{
    return a->causal ? zx_max_i64(0, zx_min_i64(a->k.rows, i + a->shift + 1)) : a->k.rows;
}

static int64_t kv_head(const attn *a, const tile *t)
{
    return t->head / (a->q.n / a->k.n);
}

// ---- scratch ------------------------------------------------------------------------------------
typedef struct scratch {                       // of one thread
    float *q, *y, *dy, *dq;                    // [rows][size]: of a head, q with the scale in it
    float *most, *sum;                         // [rows]: forward
    float *delta;                              // [rows]: backward, dy.y
    float *kt, *vt;                            // [size][KEYS]: keys and values of a tile, turned
    float *k, *v, *dk, *dv;                    // [KEYS][size], k with the scale in it
    float *all_dk, *all_dv;                    // [keys][size]: sums over heads of queries
    float *room;                               // [KEYS][size of a key or value]: of 16 bits
    float *s, *ds, *capped;                    // [QUERIES][KEYS]
    int64_t q_row, y_row, k_row, v_row, s_row; // how far their rows are apart
    int64_t floats;
} scratch;

static int64_t lines(int64_t n)
{
    return (n + ZX_TILE_LINE - 1) / ZX_TILE_LINE * ZX_TILE_LINE;
}

static float *take(scratch *x, float *base, int64_t rows, int64_t row)
{
    float *at = base ? base + x->floats : NULL;
    x->floats += lines(rows * row);
    return at;
}

// Sums over heads of queries are kept in float32: in the result, or beside it.
static bool sums_beside(const attn *a, bool backward)
{
    return backward && zx_has_16(a->call) && a->q.n > a->k.n;
}

// Of a thread's scratch at `base`; NULL: how large it is.
static scratch scratch_of(const attn *a, bool backward, float *base)
{
    const int64_t keys = zx_min_i64(KEYS, a->k.rows), queries = zx_min_i64(QUERIES, a->q.rows);
    scratch x = {.q_row = lines(a->q.size),
                 .y_row = lines(a->v.size),
                 .k_row = zx_tile_row(a->k.size),
                 .v_row = zx_tile_row(a->v.size),
                 .s_row = zx_tile_row(keys)};
    x.q = take(&x, base, a->q.rows, x.q_row);
    x.kt = take(&x, base, a->k.size, x.s_row);
    x.s = take(&x, base, queries, x.s_row);
    if (zx_has_16(a->call))
        x.room = take(&x, base, zx_max_i64(keys, 2), zx_max_i64(x.k_row, x.v_row));
    if (sums_beside(a, backward)) {
        x.all_dk = take(&x, base, a->k.rows, x.k_row);
        x.all_dv = take(&x, base, a->k.rows, x.v_row);
    }
    if (!backward) {
        x.y = take(&x, base, a->q.rows, x.y_row);
        x.v = take(&x, base, keys, x.v_row);
        x.most = take(&x, base, 1, a->q.rows);
        x.sum = take(&x, base, 1, a->q.rows);
        return x;
    }
    x.dy = take(&x, base, a->q.rows, x.y_row);
    x.dq = take(&x, base, a->q.rows, x.q_row);
    x.delta = take(&x, base, 1, a->q.rows);
    x.vt = take(&x, base, a->v.size, x.s_row);
    x.k = take(&x, base, keys, x.k_row);
    x.dk = take(&x, base, keys, x.k_row);
    x.dv = take(&x, base, keys, x.v_row);
    x.ds = take(&x, base, queries, x.s_row);
    if (a->cap > 0) x.capped = take(&x, base, queries, x.s_row);
    return x;
}

// A copy of some rows of a head, scaled.
static void copy_in(const heads *h, int64_t batch, int64_t head, int64_t row, int64_t n,
                    float scale, float *to, int64_t to_row)
{
    const void *x = row_at(h, batch, head, row);
    if (zx_is_16(h->type))
        zx_widen_rows(h->type, n, h->size, x, h->of_row, scale, to, to_row);
    else
        zx_tile_copy(n, h->size, x, h->of_row, scale, to, to_row);
}
static void copy_out(const heads *h, int64_t batch, int64_t head, int64_t row, int64_t n,
                     float scale, const float *from, int64_t from_row)
{
    if (h->x == NULL) return;
    void *y = row_at(h, batch, head, row);
    if (zx_is_16(h->type))
        zx_narrow_rows(h->type, n, h->size, from, from_row, scale, y, h->of_row);
    else
        zx_tile_copy(n, h->size, from, from_row, scale, y, h->of_row);
}
// Some rows of a head as float32, *of_row apart: where they lie, or in the scratch's room.
static const float *rows_of(const heads *h, int64_t batch, int64_t head, int64_t row, int64_t n,
                            const scratch *x, int64_t *of_row)
{
    *of_row = h->of_row;
    if (!zx_is_16(h->type)) return row_at(h, batch, head, row);
    *of_row = zx_tile_row(h->size);
    copy_in(h, batch, head, row, n, 1, x->room, *of_row);
    return x->room;
}

static void share_out(attn *a, bool backward)
{
    a->tasks = a->call->in[0].type.shape.dim[0] * (backward ? a->k.n : a->q.n);
    a->pieces = zx_min_i64(a->call->threads, a->tasks);
    a->piece_floats = scratch_of(a, backward, NULL).floats;
}

static int64_t first_task(const attn *a, int64_t piece)
{
    return a->tasks * piece / a->pieces;
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
// The mask's element of a row of queries and key 0.
static int64_t mask_at(const attn *a, const tile *t, int64_t row)
{
    const int64_t *s = a->mask.stride;
    return t->batch * s[0] + t->head * s[1] + row * s[2];
}

// How many keys of the tile its row r sees.
static int64_t seen_of(const attn *a, const tile *t, int64_t r)
{
    return zx_max_i64(0, zx_min_i64(t->keys, keys_of(a, t->row + r) - t->key));
}

// x.s = the tile's scores, masked; x.capped, if it is there: the scores before the mask.
static void make_scores(const attn *a, const tile *t, const scratch *x)
{
    zx_tile_product(t->n, t->keys, a->q.size, (zx_tile){x->q + t->row * x->q_row, x->q_row, 1},
                    x->kt, x->s_row, x->s, x->s_row, false);
    const bool all = seen_of(a, t, 0) == t->keys;
    if (all && a->cap <= 0 && a->mask.x == NULL) return;
    for (int64_t r = 0; r < t->n; r++) {
        float *row = x->s + r * x->s_row;
        const int64_t seen = seen_of(a, t, r), each = a->mask.stride[3];
        const int64_t at = mask_at(a, t, t->row + r) + t->key * each;
        if (a->cap > 0) cap_row(row, seen, a->cap);
        if (x->capped) memcpy(x->capped + r * x->s_row, row, (size_t)seen * sizeof *row);
        if (a->mask.x && a->mask.is_bool)
            hide_row(row, (const uint8_t *)a->mask.x + at, seen, each);
        else if (a->mask.x)
            add_row(row, (const float *)a->mask.x + at, seen, each);
        for (int64_t j = seen; j < t->keys; j++) row[j] = -INFINITY;
    }
}

// Whether the mask leaves a row no key. Scores that became -inf by themselves are NaN in the end.
static bool is_masked_out(const attn *a, const tile *t, int64_t row)
{
    const int64_t seen = keys_of(a, row), at = mask_at(a, t, row);
    if (a->mask.x == NULL) return seen == 0;
    for (int64_t j = 0; j < seen; j++) {
        const int64_t i = at + j * a->mask.stride[3];
        if (a->mask.is_bool ? ((const uint8_t *)a->mask.x)[i] != 0
                            : ((const float *)a->mask.x)[i] != -INFINITY)
            return false;
    }
    return true;
}

// The tile's rows and keys from `row` and t->key on: false where no row sees a key of them.
static bool cut_tile(const attn *a, int64_t row, tile *t)
{
    t->row = row;
    t->n = zx_min_i64(QUERIES, a->q.rows - row);
    t->keys = zx_min_i64(KEYS, keys_of(a, row + t->n - 1) - t->key);
    return t->keys > 0;
}

// ---- forward ------------------------------------------------------------------------------------
// y += p v, where y and the sums are of what was met before.
static void forward_tile(const attn *a, const tile *t, const scratch *x)
{
    float *y = x->y + t->row * x->y_row, *most = x->most + t->row, *sums = x->sum + t->row;
    float now[QUERIES], shift[QUERIES], sum[QUERIES];
    make_scores(a, t, x);
    zx_scores_most(t->n, t->keys, x->s, x->s_row, now);
    for (int64_t r = 0; r < t->n; r++) {
        const float before = t->key == 0 ? -INFINITY : most[r];
        most[r] = now[r] > before ? now[r] : before;
        shift[r] = most[r] == -INFINITY ? 0 : most[r]; // nothing is seen yet: 0
        if (t->key == 0) sums[r] = 0;
        if (t->key == 0 || most[r] == before) continue;
        const float part = vm_exp(before - most[r]);
        sums[r] *= part;
        scale_row(y + r * x->y_row, a->v.size, part);
    }
    zx_scores_exp(t->n, t->keys, x->s, x->s_row, shift, sum);
    for (int64_t r = 0; r < t->n; r++) sums[r] += sum[r];
    zx_tile_product(t->n, a->v.size, t->keys, (zx_tile){x->s, x->s_row, 1}, x->v, x->v_row, y,
                    x->y_row, t->key > 0);
}

// What a row of y is where no key is seen.
static void fill_masked(const attn *a, const tile *t, const scratch *x, int64_t row)
{
    int64_t unread;
    float *y = x->y + row * x->y_row;
    fill_row(y, a->v.size, 0);
    for (int64_t j = 0; a->mean && j < a->k.rows; j++)
        add_row(y, rows_of(&a->v, t->batch, kv_head(a, t), j, 1, x, &unread), a->v.size, 1);
    const float part = a->mean && a->k.rows > 0 ? 1 / (float)a->k.rows : 1;
    copy_out(&a->y, t->batch, t->head, row, 1, part, y, 0);
}

static void finish_rows(const attn *a, const tile *t, const scratch *x)
{
    float *lse = a->lse ? a->lse + (t->batch * a->q.n + t->head) * a->q.rows : NULL;
    for (int64_t i = 0; i < a->q.rows; i++) {
        const int64_t last = zx_min_i64(i | (QUERIES - 1), a->q.rows - 1); // of its tile
        const float most = keys_of(a, last) > 0 ? x->most[i] : -INFINITY;
        if (most == -INFINITY && is_masked_out(a, t, i)) {
            fill_masked(a, t, x, i);
            if (lse) lse[i] = -INFINITY;
            continue;
        }
        const float sum = most == -INFINITY ? NAN : x->sum[i];
        copy_out(&a->y, t->batch, t->head, i, 1, 1 / sum, x->y + i * x->y_row, 0);
        if (lse) lse[i] = (float)((double)most + log((double)sum));
    }
}

static void forward_head(const attn *a, tile t, const scratch *x)
{
    const int64_t kv = kv_head(a, &t);
    int64_t row;
    copy_in(&a->q, t.batch, t.head, 0, a->q.rows, a->scale, x->q, x->q_row);
    for (t.key = 0; t.key < a->k.rows; t.key += KEYS) {
        const int64_t n = zx_min_i64(KEYS, a->k.rows - t.key);
        const float *k = rows_of(&a->k, t.batch, kv, t.key, n, x, &row);
        zx_tile_transpose(n, a->k.size, k, row, x->kt, x->s_row);
        copy_in(&a->v, t.batch, kv, t.key, n, 1, x->v, x->v_row);
        for (row = 0; row < a->q.rows; row += QUERIES)
            if (cut_tile(a, row, &t)) forward_tile(a, &t, x);
    }
    finish_rows(a, &t, x);
}

static void forward_pieces(void *ctx, int64_t from, int64_t to)
{
    const attn *a = ctx;
    for (int64_t piece = from; piece < to; piece++) {
        float *base = (float *)a->call->work + piece * a->piece_floats;
        const scratch x = scratch_of(a, false, base);
        for (int64_t i = first_task(a, piece); i < first_task(a, piece + 1); i++)
            forward_head(a, (tile){.batch = i / a->q.n, .head = i % a->q.n}, &x);
    }
}

static zx_status forward_prepare(const zx_call *call, bool packed, uint64_t *work_bytes)
{
    attn a = attn_of(call, 0, packed);
    share_out(&a, false);
    *work_bytes = (uint64_t)a.pieces * (uint64_t)a.piece_floats * sizeof(float);
    return ZX_OK;
}

static zx_status forward(const zx_call *call, bool packed, zx_err *err)
{
    ZX_TRY(zx_need_f32_or_16(call, err));
    attn a = attn_of(call, 0, packed);
    a.mask = mask_of(call, packed ? 1 : 3);
    a.y = heads_of(&call->out[0], a.q.n);
    a.lse = call->out[1].data;
    share_out(&a, false);
    zx_split(call->threads, a.pieces, 1, 2, forward_pieces, &a);
    return ZX_OK;
}

// ---- backward -----------------------------------------------------------------------------------
// By the slope of the cap: 1 - tanh^2.
ZX_CLONES static void cap_grad_row(float *ds, const float *capped, int64_t n, float cap)
{
    ZX_SIMD for (int64_t j = 0; j < n; j++)
    {
        const float t = capped[j] / cap;
        ds[j] *= 1 - t * t;
    }
}

// x.s = p and x.ds = ds of a tile.
static void make_slopes(const attn *a, const tile *t, const scratch *x)
{
    const float *lse = a->lse + (t->batch * a->q.n + t->head) * a->q.rows + t->row;
    const zx_tile dy = {x->dy + t->row * x->y_row, x->y_row, 1};
    float shift[QUERIES];
    make_scores(a, t, x);
    zx_tile_product(t->n, t->keys, a->v.size, dy, x->vt, x->s_row, x->ds, x->s_row, false);
    for (int64_t r = 0; r < t->n; r++) shift[r] = lse[r] == -INFINITY ? INFINITY : lse[r];
    zx_scores_slope(t->n, t->keys, x->s, x->ds, x->s_row, shift, x->delta + t->row);
    for (int64_t r = 0; r < t->n; r++) {
        float *p = x->s + r * x->s_row, *ds = x->ds + r * x->s_row;
        if (lse[r] == -INFINITY) { // masked as a whole
            fill_row(p, t->keys, a->mean ? 1 / (float)a->k.rows : 0);
            fill_row(ds, t->keys, 0);
        } else if (x->capped) {
            cap_grad_row(ds, x->capped + r * x->s_row, seen_of(a, t, r), a->cap);
        }
    }
}

// dq += ds k; dk += ds' q; dv += p' dy.
static void backward_tile(const attn *a, const tile *t, const scratch *x)
{
    make_slopes(a, t, x);
    if (a->dq.x)
        zx_tile_product(t->n, a->q.size, t->keys, (zx_tile){x->ds, x->s_row, 1}, x->k, x->k_row,
                        x->dq + t->row * x->q_row, x->q_row, true);
    if (a->dk.x)
        zx_tile_product(t->keys, a->q.size, t->n, (zx_tile){x->ds, 1, x->s_row},
                        x->q + t->row * x->q_row, x->q_row, x->dk, x->k_row, true);
    if (a->dv.x)
        zx_tile_product(t->keys, a->v.size, t->n, (zx_tile){x->s, 1, x->s_row},
                        x->dy + t->row * x->y_row, x->y_row, x->dv, x->v_row, true);
}

// What heads of queries before this one gave a tile's keys, where that isn't there.
static void take_sums(const heads *h, const tile *t, int64_t kv, int64_t n, bool first, bool there,
                      float *to, int64_t to_row)
{
    if (first || h->x == NULL)
        fill_row(to, n * to_row, 0);
    else if (!there)
        copy_in(h, t->batch, kv, t->key, n, 1, to, to_row);
}

// A head of queries against the keys from t.key on.
static void backward_keys(const attn *a, tile t, const scratch *all)
{
    const int64_t kv = kv_head(a, &t), n = zx_min_i64(KEYS, a->k.rows - t.key);
    const int64_t group = a->q.n / a->k.n;
    const bool first = t.head % group == 0, last = t.head % group == group - 1;
    const bool beside = all->all_dk != NULL;
    scratch x = *all;
    int64_t row;
    const float *k = rows_of(&a->k, t.batch, kv, t.key, n, &x, &row);
    zx_tile_transpose(n, a->k.size, k, row, x.kt, x.s_row);
    zx_tile_copy(n, a->k.size, k, row, a->scale, x.k, x.k_row);
    const float *v = rows_of(&a->v, t.batch, kv, t.key, n, &x, &row);
    zx_tile_transpose(n, a->v.size, v, row, x.vt, x.s_row);
    if (beside) {
        x.dk = x.all_dk + t.key * x.k_row;
        x.dv = x.all_dv + t.key * x.v_row;
    }
    take_sums(&a->dk, &t, kv, n, first, beside, x.dk, x.k_row);
    take_sums(&a->dv, &t, kv, n, first, beside, x.dv, x.v_row);
    for (row = 0; row < a->q.rows; row += QUERIES)
        if (cut_tile(a, row, &t)) backward_tile(a, &t, &x);
    if (beside && !last) return;
    copy_out(&a->dk, t.batch, kv, t.key, n, 1, x.dk, x.k_row);
    copy_out(&a->dv, t.batch, kv, t.key, n, 1, x.dv, x.v_row);
}

static void backward_head(const attn *a, tile t, const scratch *x)
{
    int64_t unread;
    copy_in(&a->q, t.batch, t.head, 0, a->q.rows, a->scale, x->q, x->q_row);
    copy_in(&a->dy, t.batch, t.head, 0, a->q.rows, 1, x->dy, x->y_row);
    for (int64_t i = 0; i < a->q.rows; i++) {
        const float *y = rows_of(&a->y, t.batch, t.head, i, 1, x, &unread);
        x->delta[i] = (float)zx_row_dot(x->dy + i * x->y_row, y, a->v.size);
    }
    fill_row(x->dq, a->q.rows * x->q_row, 0);
    for (t.key = 0; t.key < a->k.rows; t.key += KEYS) backward_keys(a, t, x);
    copy_out(&a->dq, t.batch, t.head, 0, a->q.rows, 1, x->dq, x->q_row);
}

static void backward_pieces(void *ctx, int64_t from, int64_t to)
{
    const attn *a = ctx;
    for (int64_t piece = from; piece < to; piece++) {
        float *base = (float *)a->call->work + piece * a->piece_floats;
        const scratch x = scratch_of(a, true, base);
        for (int64_t i = first_task(a, piece); i < first_task(a, piece + 1); i++) {
            const int64_t group = a->q.n / a->k.n, first = i % a->k.n * group;
            for (int64_t h = first; h < first + group; h++)
                backward_head(a, (tile){.batch = i / a->k.n, .head = h}, &x);
        }
    }
}

static zx_status backward_prepare(const zx_call *call, bool packed, uint64_t *work_bytes)
{
    attn a = attn_of(call, 1, packed);
    share_out(&a, true);
    *work_bytes = (uint64_t)a.pieces * (uint64_t)a.piece_floats * sizeof(float);
    return ZX_OK;
}

// dy, [q, k, v or one of all], y, lse, [mask]
static zx_status backward(const zx_call *call, bool packed, zx_err *err)
{
    const uint32_t y = packed ? 2 : 4;
    ZX_TRY(zx_need_f32_or_16(call, err));
    attn a = attn_of(call, 1, packed);
    const operands d = operands_of(call->out, packed, call->attrs);
    a.mask = mask_of(call, y + 2);
    a.dy = heads_of(&call->in[0], a.q.n);
    a.y = heads_of(&call->in[y], a.q.n);
    a.lse = call->in[y + 1].data;
    a.dq = d.q;
    a.dk = d.k;
    a.dv = d.v;
    share_out(&a, true);
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
