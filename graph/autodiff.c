// autodiff.c - the train graph: every forward node on a path from a parameter to the loss, walked
// backwards, adds the nodes of its row's gradient.
//
// What is on such a path is found first, so that everything that stands in the way is listed at
// once and nothing is built for values that nobody differentiates.
// SPDX-License-Identifier: Apache-2.0
#include "graph/autodiff.h"
#include "graph/base/text.h"
#include "graph/count_loss.h"

#include <string.h>

// One bit a value: does a small change of a parameter change it, does the loss change with it.
enum { FROM_PARAM = 1, TO_LOSS = 2, NEEDED = FROM_PARAM | TO_LOSS };

static bool is_float(const zx_graph *g, uint32_t value)
{
    return zx_dtype_is_float(g->values[value].type.dtype);
}

// Sign, Floor … have a gradient that is zero everywhere: nothing goes through them.
static bool is_flat(const zx_node *n)
{
    return zx_ops[n->op].grad == zx_grad_zero;
}

// Integers and bools carry nothing, so an operator that makes them ends the path.
static uint8_t *find_needed(const zx_graph *g, zx_arena *mem)
{
    uint8_t *flags = ZX_NEW(mem, uint8_t, g->n_values + 1);
    for (uint32_t i = 0; i < g->n_params; i++)
        if (is_float(g, g->params[i].value) && !g->params[i].frozen)
            flags[g->params[i].value] |= FROM_PARAM;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        uint8_t from = 0;
        for (uint32_t k = 0; k < n->n_in; k++)
            if (g->refs[n->in + k] != ZX_NONE) from |= flags[g->refs[n->in + k]] & FROM_PARAM;
        if (is_flat(n) || from == 0) continue;
        for (uint32_t k = 0; k < n->n_out; k++)
            if (is_float(g, g->refs[n->out + k])) flags[g->refs[n->out + k]] |= FROM_PARAM;
    }
    flags[zx_loss_differentiated(g)] |= TO_LOSS;
    for (uint32_t i = g->n_nodes; i-- > 0;) {
        const zx_node *n = &g->nodes[i];
        uint8_t to = 0;
        for (uint32_t k = 0; k < n->n_out; k++) to |= flags[g->refs[n->out + k]] & TO_LOSS;
        if (is_flat(n) || to == 0) continue;
        for (uint32_t k = 0; k < n->n_in; k++) {
            const uint32_t v = g->refs[n->in + k];
            if (v != ZX_NONE && is_float(g, v)) flags[v] |= TO_LOSS;
        }
    }
    return flags;
}

// "node 'attn/Softmax' (h.3)", for messages.
static const char *node_text(const zx_graph *g, const zx_node *n, zx_arena *mem)
{
    const char *name = zx_text_safe(mem, n->name), *module = zx_node_module(g, n, mem);
    if (module[0] == '\0') return zx_arena_printf(mem, "node '%s'", name);
    return zx_arena_printf(mem, "node '%s' (%s)", name, module);
}

static bool any_needed(const zx_graph *g, const uint8_t *flags, uint32_t from, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        if (g->refs[from + k] != ZX_NONE && flags[g->refs[from + k]] == NEEDED) return true;
    return false;
}

// All that stands in the way: operators without a gradient, and floats that aren't f32.
static zx_status check_paths(const zx_graph *g, const uint8_t *flags, zx_arena *mem, zx_err *err)
{
    zx_status st = ZX_OK;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        if (zx_ops[n->op].grad != NULL || !any_needed(g, flags, n->out, n->n_out)) continue;
        st = ZX_FAIL(err, ZX_E_UNSUPPORTED, "%s: %s has no gradient", node_text(g, n, mem),
                     zx_ops[n->op].word);
    }
    for (uint32_t v = 0; v < g->n_values; v++) {
        const zx_value *x = &g->values[v];
        if (flags[v] != NEEDED || x->type.dtype == ZX_F32) continue;
        const char *word = zx_dtypes[x->type.dtype].word;
        if (x->by == ZX_NONE)
            st = ZX_FAIL(err, ZX_E_UNSUPPORTED,
                         "parameter '%s' is %s: only float32 is trained so far",
                         zx_text_safe(mem, x->name), word);
        else
            st = ZX_FAIL(err, ZX_E_UNSUPPORTED,
                         "%s: makes '%s' in %s on the way to the loss: only float32 is "
                         "differentiated so far",
                         node_text(g, &g->nodes[x->by], mem), zx_text_safe(mem, x->name), word);
    }
    if (st != ZX_OK)
        zx_err_hint(err, "export the model in float32 and without these operators between its "
                         "parameters and its loss, or leave the parameters they depend on out "
                         "with zerox.parameters");
    return st;
}

static zx_status check_loss(const zx_graph *g, const uint8_t *flags, zx_err *err)
{
    if (flags[zx_loss_differentiated(g)] == NEEDED) return ZX_OK;
    bool frozen = false;
    for (uint32_t i = 0; i < g->n_params; i++) frozen |= g->params[i].frozen;
    zx_status st =
        ZX_FAIL(err, ZX_E_UNSUPPORTED, "the loss depends on no %s, so there is nothing to train",
                frozen ? "parameter that isn't frozen" : "parameter");
    zx_err_hint(err,
                "`zerox check` lists the parameters; zerox.parameters in the config names them");
    return st;
}

// The backward walk's state: `of[v]` is the sum of the contributions to v's gradient so far, and
// `parts[v]` those that fill only a part of it and wait for the others.
typedef struct part {
    uint32_t dx; // what a SliceScatter made
    struct part *next;
} part;

typedef struct walk {
    zx_builder *b;
    zx_arena *scratch;
    const uint8_t *flags;
    uint32_t *of;
    part **parts;
} walk;

// The rows that a lookup sends back are added into the sum so far: a table tied to a head would
// otherwise be filled with zeros, then with a few rows, and read again to be added as a whole.
static uint32_t add_rows(walk *w, uint32_t sum, uint32_t dx)
{
    const uint32_t by = w->b->values[dx].by;
    const zx_node *n = by == ZX_NONE ? NULL : &w->b->nodes[by];
    if (n == NULL || n->op != ZX_OP_GATHER_GRAD || n->n_in != 2) return ZX_NONE;
    return zx_build1(w->b, ZX_OP_GATHER_GRAD, n->attrs, 3, w->b->refs[n->in], w->b->refs[n->in + 1],
                     sum);
}

static void add(walk *w, uint32_t value, uint32_t dx)
{
    uint32_t *sum = &w->of[value];
    const uint32_t into = *sum == ZX_NONE ? dx : add_rows(w, *sum, dx);
    *sum = into != ZX_NONE ? into : zx_build1(w->b, ZX_OP_ADD, (zx_attrs){0}, 2, *sum, dx);
}

// The SliceScatter that makes dx, if it fills one run of one axis: which axis, and from where.
static const zx_node *find_run(const zx_builder *b, uint32_t dx, uint32_t *axis, int64_t *start)
{
    if (b->values[dx].by == ZX_NONE) return NULL;
    const zx_node *n = &b->nodes[b->values[dx].by];
    if (n->op != ZX_OP_SLICE_SCATTER) return NULL;
    const zx_shape *whole = zx_shape_of(b, dx), *piece = zx_shape_of(b, b->refs[n->in]);
    const int64_t *starts = zx_attr_ints(&n->attrs, ZX_A_STARTS, NULL);
    const int64_t *steps = zx_attr_ints(&n->attrs, ZX_A_STEPS, NULL);
    *axis = ZX_NONE;
    for (uint32_t d = 0; d < whole->rank; d++) {
        if (steps[d] != 1) return NULL;
        if (piece->dim[d] == whole->dim[d]) continue;
        if (*axis != ZX_NONE || piece->dim[d] == 0) return NULL;
        *axis = d;
        *start = starts[d];
    }
    return *axis == ZX_NONE ? NULL : n;
}

// A tensor that was split gets the gradients of its parts side by side, rather than as a sum of as
// many whole tensors, each mostly zero. ZX_NONE while the waiting parts don't make up the whole.
static uint32_t join(walk *w, uint32_t value)
{
    const zx_shape *whole = zx_shape_of(w->b, value);
    uint32_t n = 0, axis = ZX_NONE, dim;
    int64_t at = 0, start = 0;
    for (const part *p = w->parts[value]; p != NULL; p = p->next) n++;
    uint32_t *pieces = ZX_NEW(w->scratch, uint32_t, n);
    for (uint32_t k = 0; k < n; k++) { // the part that begins where the last one ended
        const zx_node *found = NULL;
        for (const part *p = w->parts[value]; p != NULL && found == NULL; p = p->next) {
            const zx_node *run = find_run(w->b, p->dx, &dim, &start);
            if (axis == ZX_NONE) axis = dim;
            if (dim != axis) return ZX_NONE;
            if (start == at) found = run;
        }
        if (found == NULL) return ZX_NONE;
        pieces[k] = w->b->refs[found->in];
        at += zx_shape_of(w->b, pieces[k])->dim[axis];
    }
    uint32_t out;
    if (at != whole->dim[axis]) return ZX_NONE;
    const zx_attrs attrs = zx_attrs_int(w->b->mem, (zx_attrs){0}, ZX_A_AXIS, axis);
    const zx_status st = zx_build_node(w->b, ZX_OP_CONCAT, pieces, n, attrs, NULL, &out, NULL);
    ZX_ASSERT(st == ZX_OK);
    return out;
}

static void contribute(walk *w, uint32_t value, uint32_t dx)
{
    uint32_t axis;
    int64_t start;
    if (dx == ZX_NONE) return;
    ZX_ASSERT(zx_shape_equal(zx_shape_of(w->b, dx), zx_shape_of(w->b, value)));
    if (find_run(w->b, dx, &axis, &start) == NULL) {
        add(w, value, dx);
        return;
    }
    part **end = &w->parts[value];
    while (*end != NULL) end = &(*end)->next;
    *end = ZX_NEW(w->scratch, part, 1);
    (*end)->dx = dx;
    const uint32_t joined = join(w, value);
    if (joined == ZX_NONE) return;
    w->parts[value] = NULL;
    add(w, value, joined);
}

// v's gradient, now that all contributions have arrived.
static uint32_t settle(walk *w, uint32_t v)
{
    for (const part *p = w->parts[v]; p != NULL; p = p->next) add(w, v, p->dx);
    w->parts[v] = NULL;
    return w->of[v];
}

static zx_status back(walk *w, const zx_graph *g, uint32_t node, zx_err *err)
{
    const zx_node *n = &g->nodes[node];
    zx_arena *scratch = w->scratch;
    uint32_t *dy = ZX_NEW(scratch, uint32_t, n->n_out + 1);
    uint32_t *dx = ZX_NEW(scratch, uint32_t, n->n_in + 1);
    bool *need = ZX_NEW(scratch, bool, n->n_in + 1), arrived = false;
    w->b->at_name = n->name;
    w->b->at_source = n->source;
    w->b->at_first_source = n->first_source;
    for (uint32_t k = 0; k < n->n_out; k++) {
        const uint32_t v = g->refs[n->out + k];
        dy[k] = w->flags[v] == NEEDED ? settle(w, v) : ZX_NONE;
        arrived = arrived || dy[k] != ZX_NONE;
    }
    if (!arrived) return ZX_OK;
    for (uint32_t k = 0; k < n->n_in; k++) {
        const uint32_t v = g->refs[n->in + k];
        need[k] = v != ZX_NONE && w->flags[v] == NEEDED;
        dx[k] = ZX_NONE;
    }
    // Several float outputs: those rules refuse all but the first (zx_grad_only_first).
    ZX_TRY(zx_ops[n->op].grad(w->b, node, dy, need, dx, err));
    for (uint32_t k = 0; k < n->n_in; k++)
        if (need[k]) contribute(w, g->refs[n->in + k], dx[k]);
    return ZX_OK;
}

zx_status zx_autodiff(const zx_graph *forward, double seed, zx_arena *mem, zx_graph *out,
                      zx_err *err)
{
    zx_arena scratch = {0};
    zx_builder b;
    zx_graph train;
    zx_status st = ZX_OK;
    ZX_ASSERT(forward->loss != ZX_NONE);
    const uint8_t *flags = find_needed(forward, &scratch);
    st = check_loss(forward, flags, err);
    if (st == ZX_OK) st = check_paths(forward, flags, &scratch, err);
    if (st != ZX_OK) goto done;

    zx_builder_continue(&b, mem, forward);
    b.at_phase = ZX_BACKWARD;
    b.at_name = "loss";
    walk w = {&b, &scratch, flags, ZX_NEW(&scratch, uint32_t, forward->n_values + 1),
              ZX_NEW(&scratch, part *, forward->n_values + 1)};
    memset(w.of, 0xFF, (forward->n_values + 1) * sizeof *w.of); // ZX_NONE
    const float first = (float)seed; // a constant of its own, also where there is an equal one
    b.g.seed = zx_build_const(&b, zx_arena_printf(mem, "%g", seed), &(zx_type){.dtype = ZX_F32},
                              zx_arena_copy(mem, &first, sizeof first));
    const uint32_t loss = zx_loss_differentiated(forward);
    w.of[loss] = zx_build_expand(&b, b.g.seed, zx_shape_of(&b, loss));
    for (uint32_t i = forward->n_nodes; i-- > 0;) {
        zx_err one = {0};
        if (back(&w, forward, i, &one) == ZX_OK) continue;
        zx_err_in(&one, "%s", node_text(forward, &forward->nodes[i], &scratch));
        st = one.code;
        if (err != NULL) zx_err_merge(err, &one);
    }
    if (st != ZX_OK) goto done;
    for (uint32_t i = 0; i < b.g.n_params; i++)
        b.params[i].grad = b.params[i].frozen ? ZX_NONE : settle(&w, b.params[i].value);
    zx_builder_done(&b, &train);
    zx_simplify(&train, mem, out);
done:
    zx_arena_free(&scratch);
    return st;
}
