// attention.c - attention as one operator, and rotary positions.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

#include <inttypes.h>

// ---- shapes
// --------------------------------------------------------------------------------------

// One operand: [B, H, T, D], or [B, T, H*D] where an attribute says how many heads these are.
typedef struct heads {
    int64_t batch, heads, rows, size;
} heads;

static zx_status heads_of(const zx_op_args *a, uint32_t i, zx_attr_id attr, heads *h, zx_err *err)
{
    const zx_shape *s = &a->in[i]->shape;
    char text[ZX_SHAPE_TEXT];
    if (s->rank == 4) {
        *h = (heads){s->dim[0], s->dim[1], s->dim[2], s->dim[3]};
    } else if (s->rank == 3) {
        int64_t n;
        ZX_TRY(zx_args_int(a, attr, 0, 1, INT32_MAX, &n, err));
        if (s->dim[2] % n != 0)
            return ZX_FAIL(err, ZX_E_SHAPE,
                           "%s: %" PRId64 " heads don't divide input %u of %s evenly", zx_arg_op(a),
                           n, i, zx_shape_text(s, text));
        *h = (heads){s->dim[0], n, s->dim[1], s->dim[2] / n};
    } else {
        return ZX_FAIL(err, ZX_E_SHAPE,
                       "%s wants [batch, heads, rows, size] or [batch, rows, heads * size] as "
                       "input %u, not %s",
                       zx_arg_op(a), i, zx_shape_text(s, text));
    }
    return ZX_OK;
}

typedef struct geometry {
    heads q, k, v;
} geometry;

// q, k and v are the inputs from `first` on.
static zx_status geometry_of(const zx_op_args *a, uint32_t first, geometry *g, zx_err *err)
{
    char tq[ZX_SHAPE_TEXT], tk[ZX_SHAPE_TEXT], tv[ZX_SHAPE_TEXT];
    const zx_type *const *in = a->in + first;
    ZX_TRY(heads_of(a, first, ZX_A_HEADS, &g->q, err));
    ZX_TRY(heads_of(a, first + 1, ZX_A_KV_HEADS, &g->k, err));
    ZX_TRY(heads_of(a, first + 2, ZX_A_KV_HEADS, &g->v, err));
    const bool ranks =
        in[0]->shape.rank == in[1]->shape.rank && in[0]->shape.rank == in[2]->shape.rank;
    if (ranks && g->k.heads > 0 && g->q.heads % g->k.heads == 0 && g->v.heads == g->k.heads &&
        g->q.size == g->k.size && g->k.rows == g->v.rows && g->q.batch == g->k.batch &&
        g->q.batch == g->v.batch)
        return ZX_OK;
    return ZX_FAIL(err, ZX_E_SHAPE, "%s: queries %s, keys %s and values %s don't fit each other",
                   zx_arg_op(a), zx_shape_text(&in[0]->shape, tq), zx_shape_text(&in[1]->shape, tk),
                   zx_shape_text(&in[2]->shape, tv));
}

// q, k and v side by side in input i.
static zx_status packed_of(const zx_op_args *a, uint32_t i, geometry *g, zx_err *err)
{
    const zx_shape *s = &a->in[i]->shape;
    char text[ZX_SHAPE_TEXT];
    int64_t q, kv;
    ZX_TRY(zx_args_int(a, ZX_A_HEADS, 0, 1, INT32_MAX, &q, err));
    ZX_TRY(zx_args_int(a, ZX_A_KV_HEADS, 0, 1, INT32_MAX, &kv, err));
    if (s->rank != 3 || q % kv != 0 || s->dim[2] % (q + 2 * kv) != 0)
        return ZX_FAIL(err, ZX_E_SHAPE,
                       "%s: %s isn't %" PRId64 " heads of queries and twice %" PRId64
                       " of keys and values side by side",
                       zx_arg_op(a), zx_shape_text(s, text), q, kv);
    const int64_t size = s->dim[2] / (q + 2 * kv);
    g->q = (heads){s->dim[0], q, s->dim[1], size};
    g->k = g->v = (heads){s->dim[0], kv, s->dim[1], size};
    return ZX_OK;
}

static zx_shape output_shape(const zx_shape *q, const geometry *g)
{
    zx_shape y = *q;
    y.dim[y.rank - 1] = y.rank == 4 ? g->v.size : g->q.heads * g->v.size;
    return y;
}

static zx_status mask_fits(const zx_op_args *a, uint32_t i, const geometry *g, zx_err *err)
{
    const zx_type *mask = zx_arg(a, i);
    const zx_shape scores = {4, {g->q.batch, g->q.heads, g->q.rows, g->k.rows}};
    zx_shape y;
    char tm[ZX_SHAPE_TEXT], ts[ZX_SHAPE_TEXT];
    if (mask == NULL) return ZX_OK;
    if (mask->dtype != ZX_BOOL) ZX_TRY(zx_args_wants(a, i, ZX_WANTS_FLOAT, err));
    if (zx_shape_broadcast(&mask->shape, &scores, &y, NULL) == ZX_OK && zx_shape_equal(&y, &scores))
        return ZX_OK;
    return ZX_FAIL(err, ZX_E_SHAPE, "%s: the mask %s doesn't broadcast to the scores %s",
                   zx_arg_op(a), zx_shape_text(&mask->shape, tm), zx_shape_text(&scores, ts));
}

static zx_status attributes_fit(const zx_op_args *a, zx_err *err)
{
    const double scale = zx_attr_float(a->attrs, ZX_A_SCALE, 1);
    const double cap = zx_attr_float(a->attrs, ZX_A_SOFTCAP, 0);
    int64_t k;
    if (!(scale > -1e30 && scale < 1e30) || !(cap >= 0 && cap < 1e30))
        return ZX_FAIL(err, ZX_E_SHAPE, "%s: scale %g, softcap %g", zx_arg_op(a), scale, cap);
    ZX_TRY(zx_args_int(a, ZX_A_MODE, 0, 0, 1, &k, err));
    if (k == 1 && zx_attr_int(a->attrs, ZX_A_CAUSAL, 0) != 0)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s: mode 1 of a causal one", zx_arg_op(a));
    return zx_args_int(a, ZX_A_K, 0, 0, INT32_MAX, &k, err);
}

static zx_shape lse_shape(const geometry *g)
{
    return (zx_shape){3, {g->q.batch, g->q.heads, g->q.rows}};
}

zx_status zx_infer_attention(const zx_op_args *a, zx_type *out, zx_err *err)
{
    geometry g;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    for (uint32_t i = 1; i < 3; i++) ZX_TRY(zx_args_same_dtype(a, i, 0, err));
    ZX_TRY(geometry_of(a, 0, &g, err));
    ZX_TRY(attributes_fit(a, err));
    ZX_TRY(mask_fits(a, 3, &g, err));
    const zx_shape y = output_shape(&a->in[0]->shape, &g), lse = lse_shape(&g);
    ZX_TRY(zx_args_out(a, a->in[0]->dtype, &y, &out[0], err));
    return zx_args_out(a, ZX_F32, &lse, &out[1], err);
}

// dy, q, k, v, y, lse, [mask]
zx_status zx_infer_attention_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    geometry g;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    for (uint32_t i = 1; i < 5; i++) ZX_TRY(zx_args_same_dtype(a, i, 0, err));
    ZX_TRY(zx_args_wants(a, 5, ZX_WANTS_FLOAT, err));
    ZX_TRY(geometry_of(a, 1, &g, err));
    ZX_TRY(attributes_fit(a, err));
    ZX_TRY(mask_fits(a, 6, &g, err));
    const zx_shape y = output_shape(&a->in[1]->shape, &g), lse = lse_shape(&g);
    ZX_TRY(zx_args_shape_is(a, 0, &y, err));
    ZX_TRY(zx_args_shape_is(a, 4, &y, err));
    ZX_TRY(zx_args_shape_is(a, 5, &lse, err));
    for (uint32_t i = 0; i < 3; i++) out[i] = *a->in[i + 1];
    return ZX_OK;
}

// qkv, [mask]
zx_status zx_infer_packed_attention(const zx_op_args *a, zx_type *out, zx_err *err)
{
    geometry g;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(packed_of(a, 0, &g, err));
    ZX_TRY(attributes_fit(a, err));
    ZX_TRY(mask_fits(a, 1, &g, err));
    const zx_shape y = output_shape(&a->in[0]->shape, &g), lse = lse_shape(&g);
    ZX_TRY(zx_args_out(a, a->in[0]->dtype, &y, &out[0], err));
    return zx_args_out(a, ZX_F32, &lse, &out[1], err);
}

// dy, qkv, y, lse, [mask]
zx_status zx_infer_packed_attention_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    geometry g;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    for (uint32_t i = 1; i < 3; i++) ZX_TRY(zx_args_same_dtype(a, i, 0, err));
    ZX_TRY(zx_args_wants(a, 3, ZX_WANTS_FLOAT, err));
    ZX_TRY(packed_of(a, 1, &g, err));
    ZX_TRY(attributes_fit(a, err));
    ZX_TRY(mask_fits(a, 4, &g, err));
    const zx_shape y = output_shape(&a->in[1]->shape, &g), lse = lse_shape(&g);
    ZX_TRY(zx_args_shape_is(a, 0, &y, err));
    ZX_TRY(zx_args_shape_is(a, 2, &y, err));
    ZX_TRY(zx_args_shape_is(a, 3, &lse, err));
    out[0] = *a->in[1];
    return ZX_OK;
}

// x, cos, sin, [positions]
zx_status zx_infer_rotary_embedding(const zx_op_args *a, zx_type *out, zx_err *err)
{
    heads x;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_wants(a, 1, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_same_dtype(a, 2, 1, err));
    ZX_TRY(zx_args_same_shape(a, 2, 1, err));
    ZX_TRY(zx_args_wants(a, 3, ZX_WANTS_INDEX, err));
    ZX_TRY(heads_of(a, 0, ZX_A_HEADS, &x, err));
    const zx_shape *cache = &a->in[1]->shape;
    const zx_type *at = zx_arg(a, 3);
    const zx_shape *where = at != NULL ? &at->shape : cache; // [batch or 1, rows]
    const bool fits = cache->rank == (at != NULL ? 2 : 3) && where->rank == cache->rank &&
                      (where->dim[0] == x.batch || where->dim[0] == 1) && where->dim[1] == x.rows &&
                      cache->dim[cache->rank - 1] <= x.size / 2;
    if (fits) {
        *out = *a->in[0];
        return ZX_OK;
    }
    char tc[ZX_SHAPE_TEXT], tx[ZX_SHAPE_TEXT], ta[ZX_SHAPE_TEXT];
    return ZX_FAIL(err, ZX_E_SHAPE, "%s: the caches %s%s%s don't fit %s", zx_arg_op(a),
                   zx_shape_text(cache, tc), at != NULL ? " at positions " : "",
                   at != NULL ? zx_shape_text(&at->shape, ta) : "",
                   zx_shape_text(&a->in[0]->shape, tx));
}

// ---- costs
// ---------------------------------------------------------------------------------------

// of_d products of queries with keys and of_dv with values; half of each where one side of the
// diagonal is left out.
static zx_cost attention_cost(const zx_op_args *a, uint32_t first, bool packed, double of_d,
                              double of_dv)
{
    geometry g;
    const zx_status st = (packed ? packed_of : geometry_of)(a, first, &g, NULL);
    ZX_ASSERT(st == ZX_OK); // infer has run
    const double scores =
        (double)g.q.batch * (double)g.q.heads * (double)g.q.rows * (double)g.k.rows;
    const double part = zx_attr_int(a->attrs, ZX_A_CAUSAL, 0) != 0 ? 0.5 : 1;
    return (zx_cost){.flops =
                         2 * part * scores * (of_d * (double)g.q.size + of_dv * (double)g.v.size),
                     .bytes = zx_cost_bytes_in(a) + zx_cost_bytes_out(a)};
}

zx_cost zx_cost_attention(const zx_op_args *a)
{
    return attention_cost(a, 0, false, 1, 1); // q k', p v
}

zx_cost zx_cost_attention_grad(const zx_op_args *a)
{
    return attention_cost(a, 1, false, 3, 2); // q k' again, ds k, ds' q; dy v', p' dy
}

zx_cost zx_cost_packed_attention(const zx_op_args *a)
{
    return attention_cost(a, 0, true, 1, 1);
}

zx_cost zx_cost_packed_attention_grad(const zx_op_args *a)
{
    return attention_cost(a, 1, true, 3, 2);
}

zx_cost zx_cost_rotary_embedding(const zx_op_args *a)
{
    return (zx_cost){.flops = 3 * (double)zx_shape_count(&a->out->shape),
                     .bytes = zx_cost_bytes_in(a) + zx_cost_bytes_out(a)};
}

// ---- gradients
// -----------------------------------------------------------------------------------

zx_status zx_grad_attention(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                            uint32_t *dx, zx_err *err)
{
    uint32_t out[3];
    ZX_TRY(zx_grad_only_first(b, node, dy, err));
    const uint32_t in[] = {dy[0],
                           zx_grad_in(b, node, 0),
                           zx_grad_in(b, node, 1),
                           zx_grad_in(b, node, 2),
                           zx_grad_out(b, node, 0),
                           zx_grad_out(b, node, 1),
                           zx_grad_in(b, node, 3)};
    // It would be as large as all the scores.
    if (b->nodes[node].n_in > 3 && need[3])
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "the mask of an Attention is not differentiable");
    ZX_TRY(zx_build_node(b, ZX_OP_ATTENTION_GRAD, in, in[6] == ZX_NONE ? 6 : 7,
                         zx_grad_attrs(b, node), NULL, out, err));
    for (uint32_t i = 0; i < 3; i++)
        if (need[i]) dx[i] = out[i];
    return ZX_OK;
}

zx_status zx_grad_packed_attention(zx_builder *b, uint32_t node, const uint32_t *dy,
                                   const bool *need, uint32_t *dx, zx_err *err)
{
    ZX_TRY(zx_grad_only_first(b, node, dy, err));
    const uint32_t in[] = {dy[0], zx_grad_in(b, node, 0), zx_grad_out(b, node, 0),
                           zx_grad_out(b, node, 1), zx_grad_in(b, node, 1)};
    if (b->nodes[node].n_in > 1 && need[1])
        return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                       "the mask of a PackedAttention is not differentiable");
    if (!need[0]) return ZX_OK;
    return zx_build_node(b, ZX_OP_PACKED_ATTENTION_GRAD, in, in[4] == ZX_NONE ? 4 : 5,
                         zx_grad_attrs(b, node), NULL, &dx[0], err);
}

// A rotation's transpose is the rotation back.
zx_status zx_grad_rotary_embedding(zx_builder *b, uint32_t node, const uint32_t *dy,
                                   const bool *need, uint32_t *dx, zx_err *err)
{
    const uint32_t in[] = {dy[0], zx_grad_in(b, node, 1), zx_grad_in(b, node, 2),
                           zx_grad_in(b, node, 3)};
    zx_attrs attrs = zx_grad_attrs(b, node);
    const bool back = zx_attr_int(&attrs, ZX_A_REVERSE, 0) != 0;
    if (need[1] || need[2])
        return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                       "the caches of a RotaryEmbedding are not differentiable");
    if (!need[0]) return ZX_OK;
    attrs = zx_attrs_int(b->mem, attrs, ZX_A_REVERSE, !back);
    return zx_build_node(b, ZX_OP_ROTARY_EMBEDDING, in, in[3] == ZX_NONE ? 3 : 4, attrs, NULL,
                         &dx[0], err);
}
