// fuse.c - runs the fusion passes: each shows every node to its pattern, and what was recognised
// takes the place of the node that it ended with; see fuse_parts.h for how passes are written.
// SPDX-License-Identifier: Apache-2.0
#include "graph/fuse_parts.h"

#include <string.h>

#include "graph/autodiff.h"

const zx_fuse_row zx_fuses[ZX_FUSE_COUNT] = {
#define ZX_FUSE(id, word, function, help) {word, help},
#include "graph/fuse.def"
#undef ZX_FUSE
};

static zx_fuse_fn *const functions[ZX_FUSE_COUNT] = {
#define ZX_FUSE(id, word, function, help) zx_fuse_##function,
#include "graph/fuse.def"
#undef ZX_FUSE
};

static const uint32_t *count_uses(const zx_graph *g, zx_arena *mem)
{
    uint32_t *uses = ZX_NEW(mem, uint32_t, g->n_values + 1);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t a = 0; a < g->nodes[i].n_in; a++) {
            const uint32_t v = zx_node_in(g, &g->nodes[i], a);
            if (v != ZX_NONE) uses[v]++;
        }
    if (g->loss != ZX_NONE) uses[g->loss]++;
    for (uint32_t i = 0; i < g->n_buffers; i++)
        if (g->buffers[i].next != ZX_NONE) uses[g->buffers[i].next]++;
    for (uint32_t i = 0; i < g->n_params; i++)
        if (g->params[i].grad != ZX_NONE) uses[g->params[i].grad]++;
    return uses;
}

// What a pass made: nodes [from, to) of the builder go before node `at`.
typedef struct put {
    uint32_t at, from, to;
} put;

typedef struct work {
    zx_builder b;
    uint32_t *instead; // by value of the graph: what is read in its place; itself
    put *puts;
    uint32_t n_puts, cap_puts;
    zx_arena tmp;
} work;

// Replaced by what may itself have been replaced before: nodes are shown in order.
static uint32_t settled(const work *w, uint32_t n_values, uint32_t v)
{
    while (v < n_values && w->instead[v] != v) v = w->instead[v];
    return v;
}

static void replace(work *w, const zx_graph *g, const zx_node *n, const uint32_t *out)
{
    for (uint32_t i = 0; i < n->n_out; i++) {
        const uint32_t v = zx_node_out(g, n, i);
        if (v == ZX_NONE || out[i] == ZX_NONE) continue;
        w->instead[v] = out[i];
        if (out[i] >= g->n_values) w->b.values[out[i]].name = g->values[v].name;
    }
}

void zx_m_also(zx_match *m, uint32_t v, uint32_t with)
{
    m->instead[v] = with;
    if (with >= m->g->n_values) m->b->values[with].name = m->g->values[v].name;
}

// Every reader reads what takes the place of what it read.
static void redirect(work *w, const zx_graph *g)
{
    zx_builder *b = &w->b;
    const uint32_t n = g->n_values;
    for (uint32_t i = 0; i < b->g.n_nodes; i++)
        for (uint32_t a = 0; a < b->nodes[i].n_in; a++) {
            uint32_t *v = &b->refs[b->nodes[i].in + a];
            if (*v != ZX_NONE) *v = settled(w, n, *v);
        }
    if (b->g.loss != ZX_NONE) b->g.loss = settled(w, n, b->g.loss);
    for (uint32_t i = 0; i < b->g.n_buffers; i++)
        if (b->buffers[i].next != ZX_NONE) b->buffers[i].next = settled(w, n, b->buffers[i].next);
    for (uint32_t i = 0; i < b->g.n_params; i++)
        if (b->params[i].grad != ZX_NONE) b->params[i].grad = settled(w, n, b->params[i].grad);
}

// The new nodes from behind the old ones to where they belong.
static void reorder(work *w, const zx_graph *g, zx_arena *mem)
{
    zx_builder *b = &w->b;
    zx_node *nodes = ZX_NEW(mem, zx_node, b->g.n_nodes + 1);
    uint32_t *to = ZX_NEW(&w->tmp, uint32_t, b->g.n_nodes + 1), n = 0, next = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        for (; next < w->n_puts && w->puts[next].at == i; next++)
            for (uint32_t k = w->puts[next].from; k < w->puts[next].to; k++) to[k] = n++;
        to[i] = n++;
    }
    for (uint32_t i = 0; i < b->g.n_nodes; i++) nodes[to[i]] = b->nodes[i];
    for (uint32_t v = 0; v < b->g.n_values; v++)
        if (b->values[v].by != ZX_NONE) b->values[v].by = to[b->values[v].by];
    b->nodes = nodes;
    b->cap_nodes = b->g.n_nodes;
}

uint32_t zx_fuse_run(const zx_graph *g, zx_fuse_fn *function, zx_arena *mem, zx_graph *out)
{
    work w = {0};
    uint32_t n = 0;
    zx_builder_continue(&w.b, mem, g);
    w.instead = ZX_NEW(&w.tmp, uint32_t, g->n_values + 1);
    for (uint32_t v = 0; v < g->n_values; v++) w.instead[v] = v;
    zx_match m = {.g = g, .b = &w.b, .uses = count_uses(g, &w.tmp), .instead = w.instead};
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *node = &g->nodes[i];
        uint32_t made[8];
        for (uint32_t k = 0; k < ZX_COUNT(made); k++) made[k] = ZX_NONE;
        w.b.at_name = node->name;
        w.b.at_source = node->source;
        w.b.at_phase = (zx_phase)node->phase;
        m.least = node->first_source;
        const uint32_t from = w.b.g.n_nodes;
        const bool yes = function(&m, i, made);
        zx_arena_free(&m.scratch);
        ZX_ASSERT(yes || w.b.g.n_nodes == from);
        if (!yes) continue;
        n++;
        for (uint32_t k = from; k < w.b.g.n_nodes; k++)
            if (m.least < w.b.nodes[k].first_source) w.b.nodes[k].first_source = m.least;
        replace(&w, g, node, made);
        ZX_GROW(&w.tmp, w.puts, w.n_puts, w.cap_puts);
        w.puts[w.n_puts++] = (put){i, from, w.b.g.n_nodes};
    }
    if (n > 0) {
        redirect(&w, g);
        reorder(&w, g, mem);
        zx_graph whole;
        zx_builder_done(&w.b, &whole);
        zx_simplify(&whole, mem, out);
    }
    zx_arena_free(&w.tmp);
    return n;
}

void zx_fuse(const zx_graph *forward, const bool *off, zx_arena *mem, zx_graph *out,
             uint32_t *counts)
{
    *out = *forward;
    for (uint32_t i = 0; i < ZX_FUSE_COUNT; i++) {
        zx_graph next;
        const uint32_t n = off != NULL && off[i] ? 0 : zx_fuse_run(out, functions[i], mem, &next);
        if (n > 0) *out = next;
        if (counts != NULL) counts[i] = n;
    }
}
