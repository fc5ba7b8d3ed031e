// precision.c - see precision.h.
// SPDX-License-Identifier: Apache-2.0
#include "graph/precision.h"

#include <math.h>
#include <string.h>

#include "graph/count_loss.h"
#include "graph/import_priv.h"

// Outputs that stay f32, since 16 bits would lose what they are for: losses, log-probabilities, and
// the statistics that gradients are made with.
static const struct stay {
    zx_op_id op;
    uint32_t out;
} stays[] = {
    {ZX_OP_LAYER_NORM, 1}, // mean
    {ZX_OP_LAYER_NORM, 2}, // 1 / deviation
    {ZX_OP_RMS_NORM, 1},   // 1 / root of the mean square
    {ZX_OP_BATCH_NORM, 1}, // new running mean
    {ZX_OP_BATCH_NORM, 2}, // new running variance
    {ZX_OP_BATCH_NORM, 3}, // mean of the batch
    {ZX_OP_BATCH_NORM, 4}, // 1 / deviation of the batch
    {ZX_OP_CROSS_ENTROPY, 0},
    {ZX_OP_CROSS_ENTROPY, 1}, // log of the sum of exponentials
    {ZX_OP_LOG_SOFTMAX, 0},
    {ZX_OP_NLL_LOSS, 0},
    {ZX_OP_NLL_LOSS_GRAD, 0}, // of log-probabilities
    {ZX_OP_ATTENTION, 1},     // log of the sum of exponentials
    {ZX_OP_PACKED_ATTENTION, 1},
    {ZX_OP_LINEAR_CROSS_ENTROPY, 0},
    {ZX_OP_LINEAR_CROSS_ENTROPY, 1},
    {ZX_OP_LINEAR_CROSS_ENTROPY_GRAD, 0},
};

bool zx_precision_stays(zx_op_id op, uint32_t out)
{
    for (uint32_t i = 0; i < ZX_COUNT(stays); i++)
        if (stays[i].op == op && stays[i].out == out) return true;
    return false;
}

// By root value: its bytes stay as they are.
static bool *find_stays(const zx_graph *g, const uint32_t *root, zx_arena *mem)
{
    bool *stay = ZX_NEW(mem, bool, g->n_values + 1);
    for (uint32_t v = 0; v < g->n_values; v++) {
        const zx_value *x = &g->values[v];
        stay[v] |= x->type.dtype != ZX_F32 || x->role == ZX_R_INPUT || x->role == ZX_R_BUFFER;
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        for (uint32_t o = 0; o < n->n_out; o++)
            if (zx_precision_stays(n->op, o)) stay[root[zx_node_out(g, n, o)]] = true;
    }
    if (g->loss != ZX_NONE) stay[root[g->loss]] = true;
    bool *counts = ZX_NEW(mem, bool, g->n_values + 1);
    zx_loss_mark_count(g, counts);
    for (uint32_t v = 0; v < g->n_values; v++)
        if (counts[v]) stay[root[v]] = true;
    if (g->seed != ZX_NONE) stay[root[g->seed]] = true; // 1/6 in 16 bits is off by 0.1 %
    for (uint32_t b = 0; b < g->n_buffers; b++)
        if (g->buffers[b].next != ZX_NONE) stay[root[g->buffers[b].next]] = true;
    for (bool changed = true; changed;) { // a parameter and its gradient: both or neither
        changed = false;
        for (uint32_t p = 0; p < g->n_params; p++) {
            if (g->params[p].grad == ZX_NONE) continue;
            bool *x = &stay[root[g->params[p].value]], *dx = &stay[root[g->params[p].grad]];
            changed |= *x != *dx;
            *x = *dx = *x || *dx;
        }
    }
    return stay;
}

// f32 numbers as 16 bits. What is too large becomes the largest finite number and not infinity: a
// mask of the most negative number may cover a whole row.
static const void *narrowed(const zx_value *v, zx_dtype to, zx_arena *mem)
{
    const int64_t n = zx_shape_count(&v->type.shape);
    const double most = to == ZX_F16 ? 65504.0 : 0x1.FEp127;
    if (v->data == NULL) return NULL;
    void *out = zx_arena_alloc(mem, (size_t)n + 1, zx_dtype_bytes(to), ZX_ALIGN);
    for (int64_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, (const char *)v->data + (size_t)i * sizeof x, sizeof x);
        const double y =
            isfinite(x) && fabs((double)x) > most ? copysign(most, (double)x) : (double)x;
        zx_put(out, to, i, y);
    }
    return out;
}

void zx_precision_apply(const zx_graph *train, zx_precision p, zx_arena *mem, zx_graph *out)
{
    *out = *train;
    if (p == ZX_PREC_F32) return;
    const zx_dtype to = p == ZX_PREC_BF16 ? ZX_BF16 : ZX_F16;
    zx_arena tmp = {0};
    const uint32_t *root = zx_graph_roots(train, &tmp);
    const bool *stay = find_stays(train, root, &tmp);
    zx_value *values = ZX_NEW(mem, zx_value, train->n_values + 1);
    zx_node *nodes = ZX_NEW(mem, zx_node, train->n_nodes + 1);
    for (uint32_t v = 0; v < train->n_values; v++) {
        values[v] = train->values[v];
        if (stay[root[v]]) continue;
        values[v].type.dtype = to;
        if (values[v].role == ZX_R_CONST) values[v].data = narrowed(&train->values[v], to, mem);
    }
    for (uint32_t i = 0; i < train->n_nodes; i++) {
        nodes[i] = train->nodes[i];
        if (nodes[i].op != ZX_OP_CAST) continue; // an attribute says what it makes
        const zx_dtype made = values[zx_node_out(train, &nodes[i], 0)].type.dtype;
        nodes[i].attrs = zx_attrs_int(mem, nodes[i].attrs, ZX_A_TO, (int64_t)made);
    }
    zx_arena_free(&tmp);
    out->values = values;
    out->nodes = nodes;
}
