// import_ops_attn.c - lowering of Attention and RotaryEmbedding into products, masks and softmax.
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

// The mask as something to add to the scores, padded to all keys.
static uint32_t additive(zx_imp *c, uint32_t mask, zx_dtype t, int64_t keys)
{
    if (!zx_ok(c) || mask == ZX_NONE) return mask;
    if (zx_t(c, mask) == ZX_BOOL)
        mask = zx_e3(c, ZX_OP_WHERE, ZX_NO_ATTRS, mask, zx_k(c, t, 0), zx_k(c, t, -INFINITY));
    const uint32_t rank = zx_rank(c, mask);
    if (!zx_ok(c) || rank == 0 || zx_dim(c, mask, rank - 1) == keys ||
        zx_dim(c, mask, rank - 1) == 1)
        return mask;
    int64_t pads[2 * ZX_MAX_RANK] = {0};
    pads[2 * rank - 1] = keys - zx_dim(c, mask, rank - 1);
    if (pads[2 * rank - 1] < 0)
        return zx_fail(c, ZX_E_SHAPE, "the mask is for more keys than there are");
    return zx_e2(c, ZX_OP_PAD, zx_with_ints(c, ZX_NO_ATTRS, ZX_A_PADS, pads, 2 * rank), mask,
                 zx_k(c, t, -INFINITY));
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

void zx_lower_attention(zx_imp *c)
{
    const bool flat = zx_rank(c, zx_in(c, 0)) == 3;
    const int64_t nq = zx_int(c, "q_num_heads", 0), nkv = zx_int(c, "kv_num_heads", 0);
    uint32_t q = heads(c, zx_in(c, 0), nq), k = heads(c, zx_in(c, 1), nkv),
             v = heads(c, zx_in(c, 2), nkv);
    const bool is_causal = zx_int(c, "is_causal", 0) != 0;
    const double cap = zx_float(c, "softcap", 0);
    const int64_t mode = zx_int(c, "qk_matmul_output_mode", 0),
                  precision = zx_int(c, "softmax_precision", 1);
    if (!zx_ok(c)) return;
    if (zx_rank(c, q) != 4 || zx_rank(c, k) != 4 || zx_rank(c, v) != 4 || zx_dim(c, k, 1) < 1 ||
        zx_dim(c, q, 1) % zx_dim(c, k, 1) != 0 || zx_dim(c, v, 1) != zx_dim(c, k, 1) ||
        zx_dim(c, q, 3) != zx_dim(c, k, 3) || zx_dim(c, q, 0) != zx_dim(c, k, 0)) {
        zx_fail(c, ZX_E_SHAPE, "queries, keys and values don't fit each other");
        return;
    }
    if (precision != 1) {
        zx_fail(c, ZX_E_UNSUPPORTED, "softmax_precision %" PRId64 " isn't supported", precision);
        return;
    }
    const double scale = zx_float(c, "scale", 1 / sqrt((double)zx_dim(c, q, 3)));
    int64_t past = 0;
    if (zx_given(c, 4) != zx_given(c, 5)) {
        zx_fail(c, ZX_E_FORMAT, "past keys without past values, or the other way round");
        return;
    }
    if (zx_given(c, 4)) {
        past = zx_dim(c, zx_in(c, 4), 2);
        k = zx_concat(c, (uint32_t[]){zx_in(c, 4), k}, 2, 2);
        v = zx_concat(c, (uint32_t[]){zx_in(c, 5), v}, 2, 2);
    }
    const int64_t nt = zx_dim(c, q, 2), keys = zx_dim(c, k, 2);
    uint32_t s = group_matmul(c, q, k, true, scale);
    if (zx_wanted(c, 3) && mode == 0) zx_out(c, 3, s);
    if (cap > 0) s = zx_scale(c, zx_e1(c, ZX_OP_TANH, ZX_NO_ATTRS, zx_scale(c, s, 1 / cap)), cap);
    if (zx_wanted(c, 3) && mode == 1) zx_out(c, 3, s);
    uint32_t bias = additive(c, zx_in(c, 3), zx_t(c, q), keys);
    if (is_causal) {
        const uint32_t m = causal(c, nt, keys, past);
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
    uint32_t y = group_matmul(c, p, v, false, 1);
    if (flat) {
        y = zx_transpose(c, y, (int64_t[]){0, 2, 1, 3});
        y = zx_reshape_to(c, y, 3,
                          (int64_t[]){zx_dim(c, y, 0), nt, zx_dim(c, y, 2) * zx_dim(c, y, 3)});
    }
    zx_out(c, 0, y);
    if (zx_wanted(c, 1)) zx_out(c, 1, k);
    if (zx_wanted(c, 2)) zx_out(c, 2, v);
}

// Rotates pairs of the first `rotary` of each head's numbers by the angles of the caches.
void zx_lower_rotary(zx_imp *c)
{
    uint32_t x = zx_in(c, 0), cos = zx_in(c, 1), sin = zx_in(c, 2);
    const uint32_t ids = zx_in(c, 3);
    const zx_shape given = *zx_s(c, x);
    const bool pairs = zx_int(c, "interleaved", 0) != 0;
    const int64_t n = zx_int(c, "num_heads", 0);
    x = heads(c, x, n); // [B, H, T, D]
    int64_t rotary = zx_int(c, "rotary_embedding_dim", 0);
    const int64_t d = zx_dim(c, x, 3), b = zx_dim(c, x, 0), t = zx_dim(c, x, 2),
                  h = zx_dim(c, x, 1);
    if (rotary == 0) rotary = d;
    if (!zx_ok(c)) return;
    if (rotary < 2 || rotary > d || rotary % 2 != 0 || zx_rank(c, x) != 4) {
        zx_fail(c, ZX_E_SHAPE, "RotaryEmbedding of %" PRId64 " in heads of %" PRId64, rotary, d);
        return;
    }
    if (ids != ZX_NONE) {
        const zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_AXIS, 0);
        if (zx_is_const(c, ids))
            for (int64_t i = 0; i < zx_shape_count(zx_s(c, ids)); i++)
                if (!(zx_const_at(c, ids, i) >= 0) ||
                    zx_const_at(c, ids, i) >= (double)zx_dim(c, cos, 0)) {
                    zx_fail(c, ZX_E_SHAPE, "position %.0f is outside a cache of %" PRId64,
                            zx_const_at(c, ids, i), zx_dim(c, cos, 0));
                    return;
                }
        cos = zx_e2(c, ZX_OP_GATHER, a, cos, ids);
        sin = zx_e2(c, ZX_OP_GATHER, a, sin, ids);
    }
    const int64_t half = rotary / 2;
    if (zx_ok(c) && (zx_shape_count(zx_s(c, cos)) % (t * half) != 0 || zx_rank(c, cos) != 3 ||
                     zx_dim(c, cos, 2) != half || zx_dim(c, cos, 1) != t ||
                     !zx_shape_equal(zx_s(c, cos), zx_s(c, sin)))) {
        zx_fail(c, ZX_E_SHAPE, "the caches don't fit %" PRId64 " positions of %" PRId64 " angles",
                t, half);
        return;
    }
    cos = zx_reshape_to(c, cos, 4, (int64_t[]){zx_dim(c, cos, 0), 1, t, half});
    sin = zx_reshape_to(c, sin, 4, (int64_t[]){zx_dim(c, sin, 0), 1, t, half});
    const uint32_t turn = zx_slice(c, x, 3, 0, rotary);
    uint32_t x1, x2;
    if (pairs) {
        const uint32_t p = zx_reshape_to(c, turn, 5, (int64_t[]){b, h, t, half, 2});
        x1 = zx_reshape_to(c, zx_slice(c, p, 4, 0, 1), 4, (int64_t[]){b, h, t, half});
        x2 = zx_reshape_to(c, zx_slice(c, p, 4, 1, 1), 4, (int64_t[]){b, h, t, half});
    } else {
        x1 = zx_slice(c, turn, 3, 0, half);
        x2 = zx_slice(c, turn, 3, half, half);
    }
    uint32_t re = e2(c, ZX_OP_SUB, e2(c, ZX_OP_MUL, cos, x1), e2(c, ZX_OP_MUL, sin, x2));
    uint32_t im = e2(c, ZX_OP_ADD, e2(c, ZX_OP_MUL, sin, x1), e2(c, ZX_OP_MUL, cos, x2));
    uint32_t y;
    if (pairs) {
        const int64_t one[] = {b, h, t, half, 1};
        re = zx_reshape_to(c, re, 5, one);
        im = zx_reshape_to(c, im, 5, one);
        y = zx_reshape_to(c, zx_concat(c, (uint32_t[]){re, im}, 2, 4), 4,
                          (int64_t[]){b, h, t, rotary});
    } else {
        y = zx_concat(c, (uint32_t[]){re, im}, 2, 3);
    }
    if (rotary < d) y = zx_concat(c, (uint32_t[]){y, zx_slice(c, x, 3, rotary, d - rotary)}, 2, 3);
    if (given.rank == 3) y = zx_reshape(c, zx_transpose(c, y, (int64_t[]){0, 2, 1, 3}), &given);
    zx_out(c, 0, y);
}
