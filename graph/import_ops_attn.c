// import_ops_attn.c - lowering of Attention and RotaryEmbedding.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static uint32_t e2(zx_imp *c, zx_op_id op, uint32_t a, uint32_t b)
{
    return zx_e2(c, op, ZX_NO_ATTRS, a, b);
}

// [B, T, H*D] as [B, H, T, D]; four dims stay as they are.
static uint32_t heads(zx_imp *c, uint32_t x, int64_t n)
{
    if (!zx_ok(c) || zx_rank(c, x) == 4) return x;
    if (zx_rank(c, x) != 3 || n < 1 || zx_dim(c, x, 2) % n != 0)
        return zx_fail(c, ZX_E_SHAPE, "%" PRId64 " heads of %u dimensions", n, zx_rank(c, x));
    const int64_t b = zx_dim(c, x, 0), t = zx_dim(c, x, 1), d = zx_dim(c, x, 2) / n;
    x = zx_reshape_to(c, x, 4, (int64_t[]){b, t, n, d});
    return zx_transpose(c, x, (int64_t[]){0, 2, 1, 3});
}

// The causal mask [1, 1, q, k]: 0 where key j <= query i + past, else -inf.
static uint32_t causal(zx_imp *c, int64_t q, int64_t k, int64_t past)
{
    const zx_type t = {.dtype = ZX_F32, .shape = {.rank = 4, .dim = {1, 1, q, k}}};
    void *bytes;
    const uint32_t m = zx_k_new(c, &t, &bytes);
    for (int64_t i = 0; i < q && zx_ok(c); i++)
        for (int64_t j = i + past + 1; j < k; j++) ((float *)bytes)[i * k + j] = -INFINITY;
    return m;
}

// The mask, padded to all keys with what keeps them out.
static uint32_t padded(zx_imp *c, uint32_t mask, zx_dtype t, int64_t keys)
{
    const uint32_t rank = zx_rank(c, mask);
    if (!zx_ok(c) || rank == 0 || zx_dim(c, mask, rank - 1) == keys ||
        zx_dim(c, mask, rank - 1) == 1)
        return mask;
    int64_t pads[2 * ZX_MAX_RANK] = {0};
    pads[2 * rank - 1] = keys - zx_dim(c, mask, rank - 1);
    if (pads[2 * rank - 1] < 0)
        return zx_fail(c, ZX_E_SHAPE, "the mask is for more keys than there are");
    return zx_e2(c, ZX_OP_PAD, zx_with_ints(c, ZX_NO_ATTRS, ZX_A_PADS, pads, 2 * rank), mask,
                 zx_k(c, t, t == ZX_BOOL ? 0 : -INFINITY));
}

// The mask as something to add to the scores.
static uint32_t additive(zx_imp *c, uint32_t mask, zx_dtype t, int64_t keys)
{
    if (!zx_ok(c) || mask == ZX_NONE) return mask;
    if (zx_t(c, mask) == ZX_BOOL)
        mask = zx_e3(c, ZX_OP_WHERE, ZX_NO_ATTRS, mask, zx_k(c, t, 0), zx_k(c, t, -INFINITY));
    return padded(c, mask, t, keys);
}

static uint32_t group_matmul(zx_imp *c, uint32_t a, uint32_t b, bool tb, double alpha)
{
    // [B, Hq, T, .] times [B, Hkv, ., .]: the queries that share a key's head are rows of one
    // product.
    const zx_shape s = *zx_s(c, a);
    const int64_t hkv = zx_dim(c, b, 1), n = zx_dim(c, b, tb ? 2 : 3);
    if (!zx_ok(c)) return ZX_NONE;
    if (s.dim[1] != hkv)
        a = zx_reshape_to(c, a, 4, (int64_t[]){s.dim[0], hkv, s.dim[1] / hkv * s.dim[2], s.dim[3]});
    const uint32_t y = zx_matmul(c, a, b, false, tb, alpha, ZX_NONE);
    return zx_reshape_to(c, y, 4, (int64_t[]){s.dim[0], s.dim[1], s.dim[2], n});
}

typedef struct attn { // the node, as far as it is plain
    uint32_t q, k, v;
    int64_t past; // keys before the first
    double scale, cap;
    bool causal;
} attn;

// As one operator. The mask's gradient and the scores themselves it doesn't have.
static uint32_t fused(zx_imp *c, const attn *n, zx_attrs a)
{
    uint32_t mask = zx_in(c, 3), out[8];
    const int64_t keys = zx_dim(c, n->k, zx_rank(c, n->k) - 2);
    if (zx_ok(c) && mask != ZX_NONE) mask = padded(c, mask, zx_t(c, mask), keys);
    a = zx_with_float(c, a, ZX_A_SCALE, n->scale);
    if (n->cap > 0) a = zx_with_float(c, a, ZX_A_SOFTCAP, n->cap);
    if (n->causal) a = zx_with_int(c, a, ZX_A_CAUSAL, 1);
    if (n->past > 0) a = zx_with_int(c, a, ZX_A_K, n->past);
    const uint32_t in[] = {n->q, n->k, n->v, mask};
    zx_ir_emit(c, ZX_OP_ATTENTION, a, in, mask == ZX_NONE ? 3 : 4, out);
    return zx_ok(c) ? out[0] : ZX_NONE;
}

// Written out, where the scores are an output of the node or their mask is trained.
static uint32_t in_products(zx_imp *c, const attn *n)
{
    const int64_t mode = zx_int(c, "qk_matmul_output_mode", 0);
    const int64_t nt = zx_dim(c, n->q, 2), keys = zx_dim(c, n->k, 2);
    uint32_t s = group_matmul(c, n->q, n->k, true, n->scale);
    if (zx_wanted(c, 3) && mode == 0) zx_out(c, 3, s);
    if (n->cap > 0)
        s = zx_scale(c, zx_e1(c, ZX_OP_TANH, ZX_NO_ATTRS, zx_scale(c, s, 1 / n->cap)), n->cap);
    if (zx_wanted(c, 3) && mode == 1) zx_out(c, 3, s);
    uint32_t bias = additive(c, zx_in(c, 3), zx_t(c, n->q), keys);
    if (n->causal) {
        const uint32_t m = causal(c, nt, keys, n->past);
        bias = bias == ZX_NONE ? m : e2(c, ZX_OP_ADD, bias, m);
    }
    const zx_shape want = *zx_s(c, s);
    if (bias != ZX_NONE) s = e2(c, ZX_OP_ADD, s, bias);
    if (zx_ok(c) && !zx_shape_equal(zx_s(c, s), &want))
        zx_fail(c, ZX_E_SHAPE, "the mask doesn't broadcast to the scores");
    if (zx_wanted(c, 3) && mode == 2) zx_out(c, 3, s);
    uint32_t p = zx_e1(c, ZX_OP_SOFTMAX, zx_with_int(c, ZX_NO_ATTRS, ZX_A_AXIS, 3), s);
    if (zx_given(c, 3)) { // a row that is masked as a whole gives zeros
        const uint32_t nan = zx_e1(c, ZX_OP_IS_NAN, ZX_NO_ATTRS, p);
        p = zx_e3(c, ZX_OP_WHERE, ZX_NO_ATTRS, nan, zx_k(c, zx_t(c, p), 0), p);
    }
    if (zx_wanted(c, 3) && mode == 3) zx_out(c, 3, p);
    return group_matmul(c, p, n->v, false, 1);
}

static bool reads(zx_imp *c, attn *n, int64_t *nq, int64_t *nkv)
{
    *nq = zx_int(c, "q_num_heads", 0);
    *nkv = zx_int(c, "kv_num_heads", 0);
    *n = (attn){.q = zx_in(c, 0), .k = zx_in(c, 1), .v = zx_in(c, 2)};
    n->causal = zx_int(c, "is_causal", 0) != 0;
    n->cap = zx_float(c, "softcap", 0);
    const int64_t precision = zx_int(c, "softmax_precision", 1);
    if (!zx_ok(c)) return false;
    const uint32_t rank = zx_rank(c, n->q);
    if (rank != 3 && rank != 4)
        zx_fail(c, ZX_E_SHAPE, "the queries have %u dimensions, not 3 or 4", rank);
    else if (rank == 3 && (*nq < 1 || zx_dim(c, n->q, 2) % *nq != 0 || *nkv < 1))
        zx_fail(c, ZX_E_SHAPE, "%" PRId64 " heads of %" PRId64 " in all, %" PRId64 " of keys", *nq,
                zx_dim(c, n->q, 2), *nkv);
    else if (precision != 1)
        zx_fail(c, ZX_E_UNSUPPORTED, "softmax_precision %" PRId64 " isn't supported", precision);
    else if (zx_given(c, 4) != zx_given(c, 5))
        zx_fail(c, ZX_E_FORMAT, "past keys without past values, or the other way round");
    if (!zx_ok(c)) return false;
    const int64_t size = zx_dim(c, n->q, rank - 1) / (rank == 3 ? *nq : 1);
    n->scale = zx_float(c, "scale", 1 / sqrt((double)size));
    return zx_ok(c);
}

void zx_lower_attention(zx_imp *c)
{
    attn n;
    int64_t nq, nkv;
    if (!reads(c, &n, &nq, &nkv)) return;
    const bool flat = zx_rank(c, n.q) == 3;
    const uint32_t mask = zx_in(c, 3);
    const bool trained = mask != ZX_NONE && mask < c->cap_aux && c->aux[mask].trained;
    const bool one = !zx_wanted(c, 3) && !trained;
    if (flat && one && !zx_given(c, 4) && !zx_wanted(c, 1) && !zx_wanted(c, 2)) {
        zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_HEADS, nq);
        zx_out(c, 0, fused(c, &n, zx_with_int(c, a, ZX_A_KV_HEADS, nkv)));
        return;
    }
    n.q = heads(c, n.q, nq);
    n.k = heads(c, n.k, nkv);
    n.v = heads(c, n.v, nkv);
    if (!zx_ok(c)) return;
    if (zx_rank(c, n.k) != 4 || zx_rank(c, n.v) != 4 || zx_dim(c, n.k, 1) < 1 ||
        zx_dim(c, n.q, 1) % zx_dim(c, n.k, 1) != 0 || zx_dim(c, n.v, 1) != zx_dim(c, n.k, 1) ||
        zx_dim(c, n.q, 3) != zx_dim(c, n.k, 3) || zx_dim(c, n.q, 0) != zx_dim(c, n.k, 0)) {
        zx_fail(c, ZX_E_SHAPE, "queries, keys and values don't fit each other");
        return;
    }
    if (zx_given(c, 4)) {
        n.past = zx_dim(c, zx_in(c, 4), 2);
        n.k = zx_concat(c, (uint32_t[]){zx_in(c, 4), n.k}, 2, 2);
        n.v = zx_concat(c, (uint32_t[]){zx_in(c, 5), n.v}, 2, 2);
    }
    if (!zx_ok(c)) return;
    uint32_t y = one ? fused(c, &n, ZX_NO_ATTRS) : in_products(c, &n);
    if (flat) {
        y = zx_transpose(c, y, (int64_t[]){0, 2, 1, 3});
        y = zx_reshape_to(
            c, y, 3,
            (int64_t[]){zx_dim(c, y, 0), zx_dim(c, y, 1), zx_dim(c, y, 2) * zx_dim(c, y, 3)});
    }
    zx_out(c, 0, y);
    if (zx_wanted(c, 1)) zx_out(c, 1, n.k);
    if (zx_wanted(c, 2)) zx_out(c, 2, n.v);
}

// Rotates pairs of the first `rotary` of each head's numbers by the angles of the caches.
void zx_lower_rotary(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), cos = zx_in(c, 1), sin = zx_in(c, 2);
    uint32_t ids = zx_in(c, 3), out[8];
    const int64_t n = zx_int(c, "num_heads", 0), pairs = zx_int(c, "interleaved", 0);
    int64_t rotary = zx_int(c, "rotary_embedding_dim", 0);
    if (!zx_ok(c)) return;
    const uint32_t rank = zx_rank(c, x);
    if ((rank != 3 && rank != 4) || (rank == 3 && (n < 1 || zx_dim(c, x, 2) % n != 0))) {
        zx_fail(c, ZX_E_SHAPE, "%" PRId64 " heads of %u dimensions", n, rank);
        return;
    }
    const int64_t d = zx_dim(c, x, rank - 1) / (rank == 3 ? n : 1);
    if (rotary == 0) rotary = d;
    if (rotary < 2 || rotary > d || rotary % 2 != 0) {
        zx_fail(c, ZX_E_SHAPE, "RotaryEmbedding of %" PRId64 " in heads of %" PRId64, rotary, d);
        return;
    }
    const uint32_t cache_rank = zx_rank(c, cos);
    if (cache_rank == 0 || zx_dim(c, cos, cache_rank - 1) != rotary / 2) {
        zx_fail(c, ZX_E_SHAPE, "the caches don't hold the %" PRId64 " angles of a position",
                rotary / 2);
        return;
    }
    if (ids != ZX_NONE && zx_is_const(c, ids))
        for (int64_t i = 0; i < zx_shape_count(zx_s(c, ids)); i++)
            if (!(zx_const_at(c, ids, i) >= 0) ||
                zx_const_at(c, ids, i) >= (double)zx_dim(c, cos, 0)) {
                zx_fail(c, ZX_E_SHAPE, "position %.0f is outside a cache of %" PRId64,
                        zx_const_at(c, ids, i), zx_dim(c, cos, 0));
                return;
            }
    if (ids != ZX_NONE && zx_t(c, ids) != ZX_I32) ids = zx_cast(c, ids, ZX_I64);
    zx_attrs a = ZX_NO_ATTRS;
    if (rank == 3) a = zx_with_int(c, a, ZX_A_HEADS, n);
    if (pairs != 0) a = zx_with_int(c, a, ZX_A_INTERLEAVED, 1);
    const uint32_t in[] = {x, cos, sin, ids};
    zx_ir_emit(c, ZX_OP_ROTARY_EMBEDDING, a, in, ids == ZX_NONE ? 3 : 4, out);
    if (zx_ok(c)) zx_out(c, 0, out[0]);
}
