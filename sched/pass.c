// pass.c - the draft before any pass has run: what memory is spoken for in any case, and what
// collectives cost.
// SPDX-License-Identifier: Apache-2.0
#include "sched/pass.h"

#include <inttypes.h>
#include <string.h>

const char *const zx_pass_names[ZX_PASS_COUNT] = {
#define ZX_PASS(name, what) #name,
#include "sched/passes.def"
#undef ZX_PASS
};

// ---- load
// -----------------------------------------------------------------------------------------------

void zx_load_make(zx_load *l, uint32_t n_steps, zx_arena *mem)
{
    l->n = n_steps;
    l->leaves = 1;
    while (l->leaves < n_steps) l->leaves *= 2;
    l->most = ZX_NEW(mem, int64_t, 2 * (size_t)l->leaves);
    l->add = ZX_NEW(mem, int64_t, 2 * (size_t)l->leaves);
}

void zx_load_copy(zx_load *l, const zx_load *from)
{
    memcpy(l->most, from->most, 2 * (size_t)l->leaves * sizeof *l->most);
    memcpy(l->add, from->add, 2 * (size_t)l->leaves * sizeof *l->add);
}

// most[k] is the highest under node k with what was added to k and below; add[k] what was added to
// k.
static void add_plain(zx_load *l, uint32_t from, uint32_t to, int64_t x)
{
    uint32_t a = from + l->leaves, b = to + l->leaves + 1;
    const uint32_t a0 = a, b0 = b - 1;
    for (; a < b; a /= 2, b /= 2) {
        if (a & 1) l->most[a] += x, l->add[a] += x, a++;
        if (b & 1) b--, l->most[b] += x, l->add[b] += x;
    }
    const uint32_t ends[2] = {a0, b0};
    for (int e = 0; e < 2; e++)
        for (uint32_t k = ends[e] / 2; k > 0; k /= 2) {
            const int64_t u = l->most[2 * k], v = l->most[2 * k + 1];
            l->most[k] = (u > v ? u : v) + l->add[k];
        }
}

static int64_t most_plain(const zx_load *l, uint32_t from, uint32_t to)
{
    // From the two ends upwards: what lies between them, plus what was added above.
    uint32_t a = from + l->leaves, b = to + l->leaves;
    int64_t left = l->most[a], right = l->most[b];
    if (a == b) right = INT64_MIN / 2;
    while (a / 2 != b / 2) {
        if ((a & 1) == 0 && l->most[a + 1] > left) left = l->most[a + 1];
        if ((b & 1) == 1 && l->most[b - 1] > right) right = l->most[b - 1];
        a /= 2;
        b /= 2;
        left += l->add[a];
        right += l->add[b];
    }
    int64_t most = left > right ? left : right;
    for (a /= 2; a > 0; a /= 2) most += l->add[a];
    return most;
}

// A span around the circle as one or two plain ones; returns how many.
static uint32_t cut(const zx_load *l, int64_t from, int64_t to, uint32_t part[2][2])
{
    if (to < from) return 0;
    const int64_t n = l->n;
    if (to - from + 1 >= n) {
        part[0][0] = 0;
        part[0][1] = l->n - 1;
        return 1;
    }
    const int64_t a = ((from % n) + n) % n, b = a + (to - from);
    part[0][0] = (uint32_t)a;
    part[0][1] = (uint32_t)(b < n ? b : n - 1);
    if (b < n) return 1;
    part[1][0] = 0;
    part[1][1] = (uint32_t)(b - n);
    return 2;
}

void zx_load_add(zx_load *l, int64_t from, int64_t to, int64_t x)
{
    uint32_t part[2][2];
    const uint32_t n = cut(l, from, to, part);
    for (uint32_t i = 0; i < n; i++) add_plain(l, part[i][0], part[i][1], x);
}

int64_t zx_load_most(const zx_load *l, int64_t from, int64_t to)
{
    uint32_t part[2][2];
    const uint32_t n = cut(l, from, to, part);
    int64_t most = INT64_MIN;
    for (uint32_t i = 0; i < n; i++) {
        const int64_t m = most_plain(l, part[i][0], part[i][1]);
        if (m > most) most = m;
    }
    return most;
}

// ---- the draft
// ------------------------------------------------------------------------------------------

// The unit whose gradient shard a storage may be: alone on one rank with one micro-batch there is
// nothing to add, so the step that makes the gradient writes it where UPDATE reads it.
const uint32_t *zx_made_in(const zx_trace *t, const zx_plan_options *o, zx_arena *mem)
{
    const zx_graph *g = t->graph;
    uint32_t *made_in = ZX_NEW(mem, uint32_t, t->n_storages + 1);
    for (uint32_t i = 0; i < t->n_storages; i++) made_in[i] = ZX_NONE;
    if (o->ranks != 1 || o->micro_batches != 1) return made_in;
    for (uint32_t u = 0; u < g->n_params; u++) {
        if (t->grad_ready[u] == ZX_NONE) continue;
        const uint32_t size = zx_dtype_bytes(g->values[g->params[u].grad].type.dtype);
        if (o->accumulate_bytes != 0 && o->accumulate_bytes != size) continue; // it is converted
        const zx_where w = t->where[g->params[u].grad];
        if (w.kind != ZX_AT_STORAGE || t->storages[w.index].input != ZX_NONE) continue;
        // Two units with one gradient each want a copy of their own.
        made_in[w.index] = made_in[w.index] == ZX_NONE ? u : ZX_NONE - 1;
    }
    const zx_where loss = t->where[g->loss];
    for (uint32_t i = 0; i < t->n_storages; i++)
        if (made_in[i] == ZX_NONE - 1 || (loss.kind == ZX_AT_STORAGE && loss.index == i))
            made_in[i] = ZX_NONE;
    return made_in;
}

uint64_t zx_unit_padded(const zx_trace *t, const zx_plan_options *o, uint32_t unit)
{
    const zx_type *type = &t->graph->values[t->graph->params[unit].value].type;
    const uint64_t n = (uint64_t)zx_shape_count(&type->shape);
    const uint64_t shard = n / o->ranks + (n % o->ranks != 0);
    return zx_align_up(shard * o->ranks * zx_dtype_bytes(type->dtype), ZX_ALIGN);
}

zx_status zx_draft_make(const zx_trace *t, const zx_plan_options *o, zx_arena *mem, zx_draft *d,
                        zx_err *err)
{
    const zx_graph *g = t->graph;
    *d = (zx_draft){.trace = t, .options = o, .mem = mem};
    d->gathers = o->stage == 3 && o->ranks > 1;
    uint64_t *bytes = ZX_NEW(mem, uint64_t, g->n_params),
             *elements = ZX_NEW(mem, uint64_t, g->n_params);
    for (uint32_t u = 0; u < g->n_params; u++) {
        bytes[u] = zx_unit_padded(t, o, u);
        elements[u] = (uint64_t)zx_shape_count(&g->values[g->params[u].value].type.shape);
    }
    d->unit_bytes = bytes;
    d->unit_elements = elements;
    d->made_in = zx_made_in(t, o, mem);
    const uint32_t *made_in = d->made_in;

    zx_load_make(&d->bytes, t->n_steps, mem);
    zx_load_make(&d->elements, t->n_steps, mem);
    for (uint32_t i = 0; i < t->n_storages; i++)
        if (made_in[i] == ZX_NONE)
            zx_load_add(&d->bytes, t->storages[i].born, t->storages[i].dies,
                        (int64_t)zx_align_up(t->storages[i].bytes, ZX_ALIGN));
    for (uint32_t s = 0; s < t->n_steps; s++)
        zx_load_add(&d->bytes, s, s, (int64_t)zx_align_up(t->work[s], ZX_ALIGN));
    d->flows = ZX_NEW(mem, zx_flow, g->n_params);
    d->stays = ZX_NEW(mem, zx_stay, t->n_uses);
    d->spans = ZX_NEW(mem, zx_span, t->n_storages + (size_t)t->n_steps + t->n_uses);
    if (!d->gathers) return ZX_OK;
    for (uint32_t i = 0; i < t->n_uses; i++) {
        const uint32_t u = t->uses[i].unit, s = t->uses[i].step;
        zx_load_add(&d->bytes, s, s, (int64_t)bytes[u]);
        zx_load_add(&d->elements, s, s, (int64_t)elements[u]);
    }
    const int64_t live = zx_load_most(&d->elements, 0, t->n_steps - 1);
    if (o->max_live_elements == 0 || (uint64_t)live <= o->max_live_elements) return ZX_OK;
    uint32_t s = 0;
    while (zx_load_most(&d->elements, s, s) < live) s++;
    return ZX_FAIL(err, ZX_E_BUDGET,
                   "stage3_max_live_parameters is %" PRIu64
                   ", but node '%s' alone reads parameters "
                   "with %" PRId64 " elements",
                   o->max_live_elements, g->nodes[t->node[s]].name, live);
}

void zx_draft_run(zx_draft *d, const zx_draft *facts, const zx_knobs *knobs)
{
    const zx_load bytes = d->bytes, elements = d->elements;
    zx_stay *const stays = d->stays;
    zx_flow *const flows = d->flows;
    zx_span *const spans = d->spans;
    zx_arena *const mem = d->mem;
    *d = *facts;
    d->mem = mem;
    d->bytes = bytes;
    d->elements = elements;
    d->stays = stays;
    d->flows = flows;
    d->spans = spans;
    d->knobs = *knobs;
    zx_load_copy(&d->bytes, &facts->bytes);
    zx_load_copy(&d->elements, &facts->elements);
    zx_pass_residency(d);
    zx_pass_prefetch(d);
    zx_pass_gradients(d);
    zx_pass_place(d);
    zx_pass_stretch(d);
}
