// count_loss.c - see count_loss.h.
// SPDX-License-Identifier: Apache-2.0
#include "graph/count_loss.h"

enum { REDUCTION_MEAN = 1, REDUCTION_SUM = 2 };

// Which input of a loss holds the labels; ZX_NONE: it is no mean over labels that all count alike.
static uint32_t labels_of(const zx_graph *g, const zx_node *n)
{
    const bool linear = n->op == ZX_OP_LINEAR_CROSS_ENTROPY;
    const bool loss = linear || n->op == ZX_OP_CROSS_ENTROPY || n->op == ZX_OP_NLL_LOSS;
    if (!loss || zx_attr_int(&n->attrs, ZX_A_REDUCTION, REDUCTION_MEAN) != REDUCTION_MEAN)
        return ZX_NONE;
    if (!linear && zx_node_in(g, n, 2) != ZX_NONE) return ZX_NONE; // weights of classes
    return zx_node_in(g, n, linear ? 2 : 1);
}

// How many of the labels aren't `ignored`, as a float32 [1]: exact below 2^24.
static uint32_t count(zx_builder *b, uint32_t labels, int64_t ignored)
{
    const zx_type *t = &b->values[labels].type;
    const uint32_t none = zx_build_scalar(b, t->dtype, (double)ignored);
    const uint32_t left_out = zx_build1(b, ZX_OP_EQUAL, (zx_attrs){0}, 2, labels, none);
    const uint32_t counts = zx_build1(b, ZX_OP_NOT, (zx_attrs){0}, 1, left_out);
    const zx_attrs to = zx_attrs_int(b->mem, (zx_attrs){0}, ZX_A_TO, ZX_F32);
    const uint32_t ones = zx_build1(b, ZX_OP_CAST, to, 1, counts);
    const zx_shape flat = {.rank = 1, .dim = {zx_shape_count(zx_shape_of(b, ones))}};
    const uint32_t line = zx_build_reshape(b, ones, &flat);
    zx_attrs over = zx_attrs_int(b->mem, (zx_attrs){0}, ZX_A_AXES, 0);
    over = zx_attrs_int(b->mem, over, ZX_A_KEEPDIMS, 1);
    return zx_build1(b, ZX_OP_REDUCE_SUM, over, 1, line);
}

zx_status zx_loss_count(const zx_graph *forward, bool pads, zx_arena *mem, zx_graph *out,
                        zx_counted *info, zx_err *err)
{
    zx_arena scratch = {0};
    const uint32_t *root = zx_graph_roots(forward, &scratch);
    const uint32_t loss = forward->loss == ZX_NONE ? ZX_NONE : root[forward->loss];
    const uint32_t by = loss == ZX_NONE ? ZX_NONE : forward->values[loss].by;
    zx_arena_free(&scratch);
    *info = (zx_counted){0};
    *out = *forward;
    if (by == ZX_NONE) return ZX_OK;
    const zx_node *n = &forward->nodes[by];
    const uint32_t labels = labels_of(forward, n);
    if (labels == ZX_NONE || zx_node_out(forward, n, 0) != loss) return ZX_OK;
    if (forward->values[loss].type.dtype != ZX_F32) return ZX_OK;

    zx_builder b;
    zx_builder_continue(&b, mem, forward);
    b.at_name = "loss";
    b.at_source = n->source;
    b.at_first_source = n->first_source;
    const zx_attr *ignore = zx_attr_find(&n->attrs, ZX_A_IGNORE_INDEX);
    *info = (zx_counted){
        .counts = true,
        .labels = (uint64_t)zx_shape_count(&forward->values[labels].type.shape),
        .ignored = ignore != NULL ? ignore->i[0] : -100,
    };
    zx_attrs attrs = zx_attrs_int(mem, n->attrs, ZX_A_REDUCTION, REDUCTION_SUM);
    if (pads) attrs = zx_attrs_int(mem, attrs, ZX_A_IGNORE_INDEX, info->ignored);
    b.nodes[by].attrs = attrs;
    const zx_shape one = {.rank = 1, .dim = {1}};
    const uint32_t pair[] = {zx_build_reshape(&b, b.g.loss, &one),
                             count(&b, labels, info->ignored)};
    const zx_attrs axis = zx_attrs_int(mem, (zx_attrs){0}, ZX_A_AXIS, 0);
    uint32_t both = ZX_NONE;
    const zx_status st = zx_build_node(&b, ZX_OP_CONCAT, pair, 2, axis, NULL, &both, err);
    b.g.loss = both;
    zx_builder_done(&b, out);
    return st;
}

// The pair as zx_loss_count makes it: Concat(Reshape(sum), count).
static const zx_node *pair_of(const zx_graph *g)
{
    if (!zx_loss_is_counted(g) || g->values[g->loss].by == ZX_NONE) return NULL;
    const zx_node *n = &g->nodes[g->values[g->loss].by];
    return n->op == ZX_OP_CONCAT && n->n_in == 2 ? n : NULL;
}

uint32_t zx_loss_differentiated(const zx_graph *g)
{
    const zx_node *pair = pair_of(g);
    if (pair == NULL) return g->loss;
    uint32_t v = zx_node_in(g, pair, 0);
    const uint32_t by = g->values[v].by;
    if (by != ZX_NONE && g->nodes[by].op == ZX_OP_RESHAPE) v = zx_node_in(g, &g->nodes[by], 0);
    return v;
}

void zx_loss_mark_count(const zx_graph *g, bool *marks)
{
    const zx_node *pair = pair_of(g);
    if (pair == NULL) return;
    marks[zx_node_in(g, pair, 0)] = true;
    for (uint32_t v = zx_node_in(g, pair, 1); v != ZX_NONE && g->values[v].type.dtype == ZX_F32;) {
        marks[v] = true;
        const uint32_t by = g->values[v].by;
        v = by == ZX_NONE ? ZX_NONE : zx_node_in(g, &g->nodes[by], 0);
    }
}
