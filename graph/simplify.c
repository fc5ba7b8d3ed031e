// simplify.c - leaves out what nothing needs: nodes, the values they make, and constants.
// SPDX-License-Identifier: Apache-2.0
#include "graph/autodiff.h"

typedef struct keep {
    bool *nodes, *values;
} keep;

static void keep_value(keep *k, uint32_t v)
{
    if (v != ZX_NONE) k->values[v] = true;
}

// Nodes are in an order that runs: one walk back finds all that the kept values are made of.
static keep find_kept(const zx_graph *g, zx_arena *mem)
{
    keep k = {ZX_NEW(mem, bool, g->n_nodes + 1), ZX_NEW(mem, bool, g->n_values + 1)};
    keep_value(&k, g->loss);
    for (uint32_t i = 0; i < g->n_inputs; i++) keep_value(&k, g->inputs[i]);
    for (uint32_t i = 0; i < g->n_params; i++) {
        keep_value(&k, g->params[i].value);
        keep_value(&k, g->params[i].grad);
    }
    for (uint32_t i = 0; i < g->n_buffers; i++) {
        keep_value(&k, g->buffers[i].value);
        keep_value(&k, g->buffers[i].next);
    }
    for (uint32_t i = g->n_nodes; i-- > 0;) {
        const zx_node *n = &g->nodes[i];
        for (uint32_t o = 0; o < n->n_out; o++)
            k.nodes[i] = k.nodes[i] || k.values[g->refs[n->out + o]];
        if (!k.nodes[i]) continue;
        for (uint32_t o = 0; o < n->n_out; o++) keep_value(&k, g->refs[n->out + o]);
        for (uint32_t a = 0; a < n->n_in; a++) keep_value(&k, g->refs[n->in + a]);
    }
    return k;
}

static uint32_t moved(const uint32_t *to, uint32_t v)
{
    return v == ZX_NONE ? ZX_NONE : to[v];
}

void zx_simplify(const zx_graph *g, zx_arena *mem, zx_graph *out)
{
    zx_arena scratch = {0};
    const keep k = find_kept(g, &scratch);
    uint32_t *to = ZX_NEW(&scratch, uint32_t, g->n_values + 1); // value -> new index
    uint32_t *node_to = ZX_NEW(&scratch, uint32_t, g->n_nodes + 1);
    zx_value *values = ZX_NEW(mem, zx_value, g->n_values + 1);
    zx_node *nodes = ZX_NEW(mem, zx_node, g->n_nodes + 1);
    uint32_t *refs = ZX_NEW(mem, uint32_t, g->n_refs + 1);
    uint32_t *inputs = ZX_NEW(mem, uint32_t, g->n_inputs + 1);
    zx_param *params = ZX_NEW(mem, zx_param, g->n_params + 1);
    zx_buffer *buffers = ZX_NEW(mem, zx_buffer, g->n_buffers + 1);
    zx_graph s = *g;
    s.n_nodes = s.n_values = s.n_refs = 0;

    for (uint32_t i = 0; i < g->n_nodes; i++) {
        node_to[i] = ZX_NONE;
        if (k.nodes[i]) node_to[i] = s.n_nodes++;
    }
    for (uint32_t v = 0; v < g->n_values; v++) {
        to[v] = ZX_NONE;
        if (!k.values[v]) continue;
        to[v] = s.n_values++;
        values[to[v]] = g->values[v];
        values[to[v]].by = moved(node_to, g->values[v].by);
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        if (!k.nodes[i]) continue;
        const zx_node *from = &g->nodes[i];
        zx_node *n = &nodes[node_to[i]];
        *n = *from;
        n->in = s.n_refs;
        for (uint32_t a = 0; a < from->n_in; a++)
            refs[s.n_refs++] = moved(to, g->refs[from->in + a]);
        n->out = s.n_refs;
        for (uint32_t o = 0; o < from->n_out; o++) refs[s.n_refs++] = to[g->refs[from->out + o]];
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) inputs[i] = to[g->inputs[i]];
    for (uint32_t i = 0; i < g->n_params; i++) {
        params[i] = g->params[i];
        params[i].value = to[g->params[i].value];
        params[i].grad = moved(to, g->params[i].grad);
    }
    for (uint32_t i = 0; i < g->n_buffers; i++) {
        buffers[i] = g->buffers[i];
        buffers[i].value = to[g->buffers[i].value];
        buffers[i].next = moved(to, g->buffers[i].next);
    }
    s.nodes = nodes;
    s.values = values;
    s.refs = refs;
    s.inputs = inputs;
    s.params = params;
    s.buffers = buffers;
    s.loss = moved(to, g->loss);
    s.seed = moved(to, g->seed);
    zx_arena_free(&scratch);
    *out = s;
}
