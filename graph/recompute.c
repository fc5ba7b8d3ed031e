// recompute.c - see recompute.h.
//
// A value of a block is kept if anything but the block's own backward reads it in the backward pass
// (the next block's does, of its input), or if the node that makes it can't run twice: one that
// reads a buffer that changes (running statistics). Of the rest, what the block's backward reads is
// made again from what is kept, by copies of the nodes on the way and of no others. Blocks are
// taken in the order in which backward reaches them: a copy reads its block's inputs, which other
// blocks then keep.
// SPDX-License-Identifier: Apache-2.0
#include "graph/recompute.h"

#include <string.h>

#include "graph/autodiff.h"
#include "graph/blocks.h"

typedef struct maker {
    const zx_graph *g;
    zx_arena *mem, tmp;
    zx_blocks blocks;
    bool *chosen;         // by block
    const uint32_t *root; // by value: what a view shows
    bool *kept;           // by root value: there until backward anyway
    bool *again;          // by node: has a copy
    uint32_t *first;      // by block: its first backward node
    uint32_t *copy;       // by value: what a block's backward reads in its place; ZX_NONE: itself
    zx_node *nodes;       // the new graph
    zx_value *values;
    uint32_t *refs;
    uint32_t n_nodes, n_values, n_refs;
} maker;

// True for what the forward nodes of a block make.
static bool is_of(const maker *k, uint32_t v, uint32_t block)
{
    const zx_value *x = &k->g->values[v];
    if (x->role != ZX_R_MADE || k->g->nodes[x->by].phase != ZX_FORWARD) return false;
    return k->blocks.of_node[x->by] == block;
}

// True for what a block's forward has made and is gone when its backward begins.
static bool is_gone(const maker *k, uint32_t v, uint32_t block)
{
    return v != ZX_NONE && !k->kept[k->root[v]] && is_of(k, v, block);
}

// ---- what is kept whatever is chosen ------------------------------------------------------------

static void keep_unless_of(maker *k, uint32_t v, uint32_t block)
{
    if (v != ZX_NONE && !is_of(k, k->root[v], block)) k->kept[k->root[v]] = true;
}

// A buffer that training changes is another one by the time backward runs.
static bool reads_changing(const maker *k, const zx_node *n)
{
    const zx_graph *g = k->g;
    for (uint32_t a = 0; a < n->n_in; a++) {
        const uint32_t v = zx_node_in(g, n, a);
        if (v == ZX_NONE) continue;
        const zx_value *r = &g->values[k->root[v]];
        if (r->role == ZX_R_BUFFER && g->buffers[r->index].next != ZX_NONE) return true;
    }
    return false;
}

static void keep_needed(maker *k)
{
    const zx_graph *g = k->g;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        for (uint32_t o = 0; o < n->n_out && reads_changing(k, n); o++)
            k->kept[k->root[zx_node_out(g, n, o)]] = true;
        for (uint32_t a = 0; a < n->n_in && n->phase == ZX_BACKWARD; a++)
            keep_unless_of(k, zx_node_in(g, n, a), k->blocks.of_node[i]);
    }
}

// ---- what is made again -------------------------------------------------------------------------

// The nodes of each block in one phase, last first; ZX_NONE ends.
typedef struct chain {
    uint32_t *last; // by block
    uint32_t *prev; // by node
} chain;

static void want(maker *k, uint32_t v, uint32_t block)
{
    if (is_gone(k, v, block)) k->again[k->g->values[v].by] = true;
}

static void choose_copies(maker *k, uint32_t block, const chain *forward, const chain *backward)
{
    const zx_graph *g = k->g;
    for (uint32_t i = backward->last[block]; i != ZX_NONE; i = backward->prev[i])
        for (uint32_t a = 0; a < g->nodes[i].n_in; a++)
            want(k, zx_node_in(g, &g->nodes[i], a), block);
    for (uint32_t i = forward->last[block]; i != ZX_NONE; i = forward->prev[i]) {
        if (!k->again[i]) continue;
        for (uint32_t a = 0; a < g->nodes[i].n_in; a++) {
            const uint32_t v = zx_node_in(g, &g->nodes[i], a);
            keep_unless_of(k, v, block);
            want(k, v, block);
        }
    }
}

static chain chain_of(maker *k, zx_phase phase)
{
    const zx_graph *g = k->g;
    chain c = {ZX_NEW(&k->tmp, uint32_t, k->blocks.n), ZX_NEW(&k->tmp, uint32_t, g->n_nodes + 1)};
    for (uint32_t b = 0; b < k->blocks.n; b++) c.last[b] = ZX_NONE;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const uint32_t b = k->blocks.of_node[i];
        if (b == ZX_NONE || g->nodes[i].phase != phase) continue;
        c.prev[i] = c.last[b];
        c.last[b] = i;
    }
    return c;
}

static void choose(maker *k)
{
    const zx_graph *g = k->g;
    const chain forward = chain_of(k, ZX_FORWARD), backward = chain_of(k, ZX_BACKWARD);
    for (uint32_t b = 0; b < k->blocks.n; b++) k->first[b] = ZX_NONE;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const uint32_t b = k->blocks.of_node[i];
        if (b == ZX_NONE || g->nodes[i].phase != ZX_BACKWARD || k->first[b] != ZX_NONE) continue;
        k->first[b] = i;
        if (k->chosen[b]) choose_copies(k, b, &forward, &backward);
    }
}

// ---- the new graph ------------------------------------------------------------------------------

// Whoever reads a value that has a copy and isn't kept belongs to the copy's block.
static void put_node(maker *k, uint32_t from, bool is_copy)
{
    const zx_graph *g = k->g;
    zx_node *n = &k->nodes[k->n_nodes];
    *n = g->nodes[from];
    if (is_copy) n->name = zx_arena_printf(k->mem, "%s/again", n->name);
    if (is_copy) n->phase = ZX_BACKWARD;
    n->in = k->n_refs;
    for (uint32_t a = 0; a < n->n_in; a++) {
        const uint32_t v = zx_node_in(g, &g->nodes[from], a);
        k->refs[k->n_refs++] = v != ZX_NONE && k->copy[v] != ZX_NONE ? k->copy[v] : v;
    }
    n->out = k->n_refs;
    for (uint32_t o = 0; o < n->n_out; o++) {
        uint32_t v = zx_node_out(g, &g->nodes[from], o);
        if (is_copy) {
            const uint32_t made = k->n_values++;
            k->values[made] = g->values[v];
            k->values[made].name = zx_arena_printf(k->mem, "%s/again", g->values[v].name);
            if (!k->kept[k->root[v]]) k->copy[v] = made;
            v = made;
        }
        k->values[v].by = k->n_nodes;
        k->refs[k->n_refs++] = v;
    }
    k->n_nodes++;
}

static void write_graph(maker *k, zx_graph *out)
{
    const zx_graph *g = k->g;
    uint32_t n_nodes = g->n_nodes, n_values = g->n_values, n_refs = g->n_refs;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        if (!k->again[i]) continue;
        n_nodes++;
        n_values += g->nodes[i].n_out;
        n_refs += g->nodes[i].n_in + g->nodes[i].n_out;
    }
    k->nodes = ZX_NEW(&k->tmp, zx_node, n_nodes + 1);
    k->values = ZX_NEW(&k->tmp, zx_value, n_values + 1);
    k->refs = ZX_NEW(&k->tmp, uint32_t, n_refs + 1);
    memcpy(k->values, g->values, g->n_values * sizeof *k->values);
    k->n_values = g->n_values;
    const chain forward = chain_of(k, ZX_FORWARD);
    uint32_t *order = ZX_NEW(&k->tmp, uint32_t, g->n_nodes + 1);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const uint32_t b = k->blocks.of_node[i];
        uint32_t n = 0;
        if (b != ZX_NONE && k->first[b] == i)
            for (uint32_t x = forward.last[b]; x != ZX_NONE; x = forward.prev[x])
                if (k->again[x]) order[n++] = x;
        while (n > 0) put_node(k, order[--n], true);
        put_node(k, i, false);
    }
    zx_graph whole = *g;
    whole.nodes = k->nodes;
    whole.values = k->values;
    whole.refs = k->refs;
    whole.n_nodes = k->n_nodes;
    whole.n_values = k->n_values;
    whole.n_refs = k->n_refs;
    zx_simplify(&whole, k->mem, out); // forward nodes that backward alone had read
}

zx_status zx_recompute_apply(const zx_graph *train, zx_recompute_kind kind, const bool *again,
                             zx_arena *mem, zx_graph *out, zx_err *err)
{
    *out = *train;
    if (kind == ZX_RECOMPUTE_NONE) return ZX_OK;
    maker k = {.g = train, .mem = mem};
    zx_blocks_make(train, &k.tmp, &k.blocks);
    if (k.blocks.n == 0) {
        zx_arena_free(&k.tmp);
        return ZX_FAIL(
            err, ZX_E_UNSUPPORTED,
            "%s: activations are recomputed by layer, and none of its modules ends in an "
            "index as model.layers.0, model.layers.1 do",
            train->name);
    }
    k.chosen = ZX_NEW(&k.tmp, bool, k.blocks.n);
    for (uint32_t b = 0; b < k.blocks.n; b++) k.chosen[b] = kind == ZX_RECOMPUTE_FULL || again[b];
    k.root = zx_graph_roots(train, &k.tmp);
    k.kept = ZX_NEW(&k.tmp, bool, train->n_values + 1);
    k.again = ZX_NEW(&k.tmp, bool, train->n_nodes + 1);
    k.first = ZX_NEW(&k.tmp, uint32_t, k.blocks.n);
    k.copy = ZX_NEW(&k.tmp, uint32_t, train->n_values + 1);
    for (uint32_t v = 0; v < train->n_values; v++) k.copy[v] = ZX_NONE;
    keep_needed(&k);
    choose(&k);
    write_graph(&k, out);
    zx_arena_free(&k.tmp);
    return ZX_OK;
}
