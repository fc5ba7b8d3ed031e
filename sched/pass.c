// pass.c - see pass.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/pass.h"

const char *const zx_pass_names[ZX_PASS_COUNT] = {
#define ZX_PASS(name, what) #name,
#include "sched/passes.def"
#undef ZX_PASS
};

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
