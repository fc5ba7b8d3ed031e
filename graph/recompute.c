// recompute.c - see recompute.h.
//
// A value of a block is kept if anything but the block's own backward reads it in the backward pass
// (the next block's does, of its input), or if the node that makes it can't run twice: one that
// reads a buffer that changes. Batch normalisation can, since what it hands on doesn't depend on
// its running statistics: they move once, and a copy's are nobody's. Of the rest, what the block's
// backward reads is made again from what is kept, by copies of the nodes on the way and of no
// others. Blocks are taken in the order in which backward reaches them: a copy reads its block's
// inputs, which other blocks then keep.
// SPDX-License-Identifier: Apache-2.0
#include "graph/recompute.h"

#include <stdlib.h>
#include <string.h>

#include "graph/autodiff.h"
#include "graph/blocks.h"

#define LITTLE 8 // an eighth of all

typedef struct maker {
    const zx_graph *g;
    zx_arena *mem, tmp;
    uint32_t n_blocks;       // or segments
    const uint32_t *of_node; // by node: its block; ZX_NONE
    bool segments;
    bool *chosen;         // by block
    const uint32_t *root; // by value: what a view shows
    bool *kept;           // by root value: there until backward anyway
    bool *again;          // by node: has a copy
    bool *wanted;         // by value: a block's backward or a copy reads it, and it is gone
    uint32_t *first;      // by block: its first backward node
    uint32_t *copy;       // by value: what a block's backward reads in its place; ZX_NONE: itself
    uint32_t *from;       // by node of the new graph
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
    return k->of_node[x->by] == block;
}

// True for what a block's forward has made and is gone when its backward begins.
static bool is_gone(const maker *k, uint32_t v, uint32_t block)
{
    return v != ZX_NONE && !k->kept[k->root[v]] && is_of(k, v, block);
}

// ---- segments of a model without blocks ---------------------------------------------------------

// Bytes that a forward node's outputs take from forward to backward, by node.
static const uint64_t *saved_bytes(maker *k)
{
    const zx_graph *g = k->g;
    uint64_t *bytes = ZX_NEW(&k->tmp, uint64_t, g->n_nodes + 1);
    bool *counted = ZX_NEW(&k->tmp, bool, g->n_values + 1);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        for (uint32_t a = 0; a < n->n_in && n->phase == ZX_BACKWARD; a++) {
            const uint32_t v = zx_node_in(g, n, a);
            if (v == ZX_NONE || counted[k->root[v]]) continue;
            counted[k->root[v]] = true;
            const zx_value *x = &g->values[k->root[v]];
            if (x->role == ZX_R_MADE && g->nodes[x->by].phase == ZX_FORWARD)
                bytes[x->by] += zx_type_bytes(&x->type);
        }
    }
    return bytes;
}

typedef struct named {
    const char *name;
    uint32_t part;
} named;

static int by_name(const void *a, const void *b)
{
    const named *x = a, *y = b;
    const int names = strcmp(x->name, y->name);
    return names != 0 ? names : (x->part > y->part) - (x->part < y->part);
}

// Backward nodes belong where their forward node does: by what they were imported from, and where
// nothing was, by name.
static void place_backward(maker *k, uint32_t *of_node)
{
    const zx_graph *g = k->g;
    uint32_t *of_source = ZX_NEW(&k->tmp, uint32_t, g->n_sources + 1), n_names = 0;
    named *names = ZX_NEW(&k->tmp, named, g->n_nodes + 1);
    for (uint32_t i = 0; i < g->n_sources; i++) of_source[i] = ZX_NONE;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        if (n->phase != ZX_FORWARD) continue;
        if (n->source != ZX_NONE) of_source[n->source] = of_node[i];
        names[n_names++] = (named){n->name, of_node[i]};
    }
    if (n_names > 0) qsort(names, n_names, sizeof *names, by_name);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        if (n->phase == ZX_FORWARD) continue;
        of_node[i] = n->source != ZX_NONE ? of_source[n->source] : ZX_NONE;
        uint32_t lo = 0, hi = n_names; // the last one of this name
        while (lo < hi) {
            const uint32_t mid = lo + (hi - lo) / 2;
            if (strcmp(names[mid].name, n->name) <= 0)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (of_node[i] == ZX_NONE && lo > 0 && strcmp(names[lo - 1].name, n->name) == 0)
            of_node[i] = names[lo - 1].part;
    }
}

static void make_segments(maker *k)
{
    const zx_graph *g = k->g;
    const uint64_t *bytes = saved_bytes(k);
    uint32_t *of_node = ZX_NEW(k->mem, uint32_t, g->n_nodes + 1), n_saved = 0, n = 2;
    for (uint32_t i = 0; i < g->n_nodes; i++) of_node[i] = ZX_NONE;
    k->of_node = of_node;
    k->n_blocks = 0;
    double all = 0, before = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        n_saved += bytes[i] > 0;
        all += (double)bytes[i];
    }
    if (n_saved < 2) return;
    while (n * n < n_saved) n++;
    for (uint32_t i = 0; i < g->n_nodes && g->nodes[i].phase == ZX_FORWARD; i++) {
        const uint32_t part = (uint32_t)(before * n / all);
        of_node[i] = part < n ? part : n - 1;
        before += (double)bytes[i];
    }
    place_backward(k, of_node);
    k->segments = true;
    k->n_blocks = n;
}

// ---- what is kept whatever is chosen ------------------------------------------------------------

static void keep_unless_of(maker *k, uint32_t v, uint32_t block)
{
    if (v != ZX_NONE && !is_of(k, k->root[v], block)) k->kept[k->root[v]] = true;
}

enum { BN_SCALE = 1, BN_RUNNING = 3 }; // inputs of BATCH_NORM: two of each

// A buffer that training changes is another one by the time backward runs.
static bool reads_changing(const maker *k, const zx_node *n)
{
    const zx_graph *g = k->g;
    const uint32_t n_in = n->op == ZX_OP_BATCH_NORM ? BN_RUNNING : n->n_in;
    for (uint32_t a = 0; a < n_in; a++) {
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
        const bool once = reads_changing(k, n), norm = n->op == ZX_OP_BATCH_NORM;
        for (uint32_t o = 0; o < n->n_out; o++)
            if (once || (norm && (o == 1 || o == 2))) // new running statistics
                k->kept[k->root[zx_node_out(g, n, o)]] = true;
        for (uint32_t a = 0; a < n->n_in && n->phase == ZX_BACKWARD; a++)
            keep_unless_of(k, zx_node_in(g, n, a), k->of_node[i]);
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
    if (is_gone(k, v, block)) k->wanted[v] = true;
}

// Whether a node runs again. Where it would for little of what it makes (statistics beside the
// output that they are of), that little is kept.
static bool runs_again(maker *k, const zx_node *n)
{
    uint64_t all = 0, wanted = 0;
    for (uint32_t o = 0; o < n->n_out; o++) {
        const uint32_t v = zx_node_out(k->g, n, o);
        const uint64_t bytes = zx_type_bytes(&k->g->values[v].type);
        all += bytes;
        if (k->wanted[v]) wanted += bytes;
    }
    if (wanted == 0 || wanted >= all / LITTLE) return wanted > 0;
    for (uint32_t o = 0; o < n->n_out; o++) {
        const uint32_t v = zx_node_out(k->g, n, o);
        if (k->wanted[v]) k->kept[k->root[v]] = true;
    }
    return false;
}

static void choose_copies(maker *k, uint32_t block, const chain *forward, const chain *backward)
{
    const zx_graph *g = k->g;
    for (uint32_t i = backward->last[block]; i != ZX_NONE; i = backward->prev[i])
        for (uint32_t a = 0; a < g->nodes[i].n_in; a++)
            want(k, zx_node_in(g, &g->nodes[i], a), block);
    for (uint32_t i = forward->last[block]; i != ZX_NONE; i = forward->prev[i]) {
        k->again[i] = runs_again(k, &g->nodes[i]);
        for (uint32_t a = 0; a < g->nodes[i].n_in && k->again[i]; a++) {
            const uint32_t v = zx_node_in(g, &g->nodes[i], a);
            keep_unless_of(k, v, block);
            want(k, v, block);
        }
    }
}

static chain chain_of(maker *k, zx_phase phase)
{
    const zx_graph *g = k->g;
    chain c = {ZX_NEW(&k->tmp, uint32_t, k->n_blocks), ZX_NEW(&k->tmp, uint32_t, g->n_nodes + 1)};
    for (uint32_t b = 0; b < k->n_blocks; b++) c.last[b] = ZX_NONE;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const uint32_t b = k->of_node[i];
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
    for (uint32_t b = 0; b < k->n_blocks; b++) k->first[b] = ZX_NONE;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const uint32_t b = k->of_node[i];
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
    k->from[k->n_nodes] = from;
    if (is_copy) n->name = zx_arena_printf(k->mem, "%s/again", n->name);
    if (is_copy) n->phase = ZX_BACKWARD;
    n->in = k->n_refs;
    for (uint32_t a = 0; a < n->n_in; a++) {
        const bool running = is_copy && n->op == ZX_OP_BATCH_NORM && a >= BN_RUNNING;
        const uint32_t at = running ? a - BN_RUNNING + BN_SCALE : a; // in 16 bits of another type
        const uint32_t v = zx_node_in(g, &g->nodes[from], at);
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
    k->from = ZX_NEW(&k->tmp, uint32_t, n_nodes + 1);
    k->values = ZX_NEW(&k->tmp, zx_value, n_values + 1);
    k->refs = ZX_NEW(&k->tmp, uint32_t, n_refs + 1);
    memcpy(k->values, g->values, g->n_values * sizeof *k->values);
    k->n_values = g->n_values;
    const chain forward = chain_of(k, ZX_FORWARD);
    uint32_t *order = ZX_NEW(&k->tmp, uint32_t, g->n_nodes + 1);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const uint32_t b = k->of_node[i];
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

// By node of `out`. It has the nodes that were written in their order, some left out: each is the
// next of its name and operator.
static const uint32_t *find_from(const maker *k, const zx_graph *out)
{
    uint32_t *from = ZX_NEW(k->mem, uint32_t, out->n_nodes + 1), w = 0;
    for (uint32_t i = 0; i < out->n_nodes; i++, w++) {
        while (k->nodes[w].name != out->nodes[i].name || k->nodes[w].op != out->nodes[i].op) w++;
        from[i] = k->from[w];
    }
    return from;
}

// ---- entry --------------------------------------------------------------------------------------

static void choose_all(maker *k)
{
    for (uint32_t b = 0; b < k->n_blocks; b++) k->chosen[b] = !k->segments || b + 1 < k->n_blocks;
}

static void begin(maker *k)
{
    const zx_graph *g = k->g;
    k->chosen = ZX_NEW(&k->tmp, bool, k->n_blocks + 1);
    k->kept = ZX_NEW(&k->tmp, bool, g->n_values + 1);
    k->again = ZX_NEW(k->mem, bool, g->n_nodes + 1);
    k->wanted = ZX_NEW(&k->tmp, bool, g->n_values + 1);
    k->first = ZX_NEW(&k->tmp, uint32_t, k->n_blocks + 1);
    choose_all(k);
}

// Layers of one operator each save nothing: what one of them makes, the next one's backward reads.
static bool is_of_use(maker *k)
{
    begin(k);
    keep_needed(k);
    choose(k);
    for (uint32_t i = 0; i < k->g->n_nodes; i++)
        if (k->again[i]) return true;
    return false;
}

static void start(maker *k)
{
    const zx_graph *g = k->g;
    zx_blocks blocks;
    k->root = zx_graph_roots(g, &k->tmp);
    k->copy = ZX_NEW(&k->tmp, uint32_t, g->n_values + 1);
    for (uint32_t v = 0; v < g->n_values; v++) k->copy[v] = ZX_NONE;
    zx_blocks_make(g, k->mem, &blocks);
    k->n_blocks = blocks.n;
    k->of_node = blocks.of_node;
    if (!is_of_use(k)) make_segments(k);
    begin(k);
}

void zx_recompute_look(const zx_graph *train, zx_arena *mem, zx_recompute_parts *out)
{
    maker k = {.g = train, .mem = mem};
    start(&k);
    keep_needed(&k);
    choose(&k);
    uint64_t *bytes = ZX_NEW(mem, uint64_t, k.n_blocks + 1);
    bool *counted = ZX_NEW(&k.tmp, bool, train->n_values + 1);
    for (uint32_t i = 0; i < train->n_nodes; i++) {
        const zx_node *n = &train->nodes[i];
        const uint32_t b = k.of_node[i];
        if (n->phase != ZX_BACKWARD || b == ZX_NONE || !k.chosen[b]) continue;
        for (uint32_t a = 0; a < n->n_in; a++) {
            const uint32_t v = zx_node_in(train, n, a);
            if (!is_gone(&k, v, b) || counted[k.root[v]]) continue;
            counted[k.root[v]] = true;
            bytes[b] += zx_type_bytes(&train->values[k.root[v]].type);
        }
    }
    *out = (zx_recompute_parts){.n = k.n_blocks,
                                .segments = k.segments,
                                .of_node = k.of_node,
                                .bytes = bytes,
                                .again = k.again};
    zx_arena_free(&k.tmp);
}

zx_status zx_recompute_make(const zx_graph *train, zx_recompute_kind kind, const bool *again,
                            zx_arena *mem, zx_graph *out, const uint32_t **from,
                            zx_err *err ZX_UNUSED)
{
    maker k = {.g = train, .mem = mem};
    *out = *train;
    if (kind == ZX_RECOMPUTE_NONE) {
        uint32_t *same = from != NULL ? ZX_NEW(mem, uint32_t, train->n_nodes + 1) : NULL;
        for (uint32_t i = 0; same != NULL && i < train->n_nodes; i++) same[i] = i;
        if (from != NULL) *from = same;
        return ZX_OK;
    }
    start(&k);
    for (uint32_t b = 0; b < k.n_blocks && kind == ZX_RECOMPUTE_BLOCKS; b++) k.chosen[b] = again[b];
    keep_needed(&k);
    choose(&k);
    write_graph(&k, out);
    if (from != NULL) *from = find_from(&k, out);
    zx_arena_free(&k.tmp);
    return ZX_OK;
}
