// import_finish.c - the finished graph: what the loss (or, without one, the outputs) and the
// buffers need, copied out of the import's own memory.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <string.h>

static zx_attrs copy_attrs(zx_arena *mem, const zx_attrs *a)
{
    zx_attrs out = {0};
    for (uint32_t i = 0; i < a->n; i++) {
        const zx_attr *x = &a->list[i];
        out = zx_attr_is_float((zx_attr_id)x->id)
                  ? zx_attrs_floats(mem, out, (zx_attr_id)x->id, x->f, x->n)
                  : zx_attrs_ints(mem, out, (zx_attr_id)x->id, x->i, x->n);
    }
    return out;
}

static const char *const *copy_names(zx_arena *mem, const char *const *list, uint32_t n)
{
    const char **out = ZX_NEW(mem, const char *, n + 1);
    for (uint32_t i = 0; i < n; i++) out[i] = zx_arena_str(mem, list[i]);
    return out;
}

static const uint32_t *copy_ids(zx_arena *mem, const uint32_t *list, uint32_t n)
{
    uint32_t *out = ZX_NEW(mem, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) out[i] = list[i];
    return out;
}

// Values that something needs, marked backwards from the roots.
static bool *needed_values(const zx_imp *c, bool *node_needed)
{
    const zx_builder *b = &c->b;
    bool *need = ZX_NEW((zx_arena *)(uintptr_t)&c->tmp, bool, b->g.n_values + 1);
    if (b->g.loss != ZX_NONE) {
        need[b->g.loss] = true;
    } else {
        for (uint32_t i = 0; i < c->n_roots; i++) {
            const zx_ival *v = &c->vals[c->roots[i]];
            if (v->know == ZX_I_VALUE) need[v->v] = true;
        }
    }
    for (uint32_t i = 0; i < c->n_buffers; i++) need[c->buffers[i].now] = true;
    for (uint32_t i = b->g.n_nodes; i-- > 0;) {
        const zx_node *n = &b->nodes[i];
        for (uint32_t k = 0; k < n->n_out; k++)
            node_needed[i] = node_needed[i] || need[b->refs[n->out + k]];
        if (!node_needed[i]) continue;
        for (uint32_t k = 0; k < n->n_out; k++) need[b->refs[n->out + k]] = true;
        for (uint32_t k = 0; k < n->n_in; k++)
            if (b->refs[n->in + k] != ZX_NONE) need[b->refs[n->in + k]] = true;
    }
    return need;
}

// The bytes of a constant, out of the import's blocks if they lie there.
static const void *keep_bytes(zx_imp *c, uint32_t v)
{
    const zx_value *x = &c->b.values[v];
    if (v >= c->cap_aux || c->aux[v].block == ZX_NONE) return x->data;
    return zx_arena_copy(c->mem, x->data, (size_t)zx_type_bytes(&x->type));
}

void zx_import_finish(zx_imp *c, zx_graph *out)
{
    const zx_builder *from = &c->b;
    bool *node_needed = ZX_NEW(&c->tmp, bool, from->g.n_nodes + 1);
    const bool *need = needed_values(c, node_needed);
    uint32_t *to = ZX_NEW(&c->tmp, uint32_t, from->g.n_values + 1);

    zx_builder b;
    zx_builder_start(&b, c->mem, from->g.name);
    for (uint32_t v = 0; v < from->g.n_values; v++) {
        const zx_value *x = &from->values[v];
        const bool stays =
            need[v] || x->role == ZX_R_INPUT || x->role == ZX_R_PARAM || x->role == ZX_R_BUFFER;
        to[v] = ZX_NONE;
        if (!stays) continue;
        to[v] = zx_build_value(&b, zx_arena_str(c->mem, x->name), x->role, &x->type);
        b.values[to[v]].index = x->index;
        if (x->role == ZX_R_CONST) b.values[to[v]].data = keep_bytes(c, v);
    }
    for (uint32_t i = 0; i < from->g.n_inputs; i++) {
        ZX_GROW(b.mem, b.inputs, b.g.n_inputs, b.cap_inputs);
        b.inputs[b.g.n_inputs++] = to[from->inputs[i]];
    }
    for (uint32_t i = 0; i < from->g.n_params; i++) {
        zx_param p = from->params[i];
        p.value = to[p.value];
        p.name = zx_arena_str(c->mem, p.name);
        p.why = zx_arena_str(c->mem, p.why);
        p.aliases = copy_names(c->mem, p.aliases, p.n_aliases);
        ZX_GROW(b.mem, b.params, b.g.n_params, b.cap_params);
        b.params[b.g.n_params++] = p;
    }
    for (uint32_t i = 0; i < from->g.n_buffers; i++) {
        zx_buffer x = from->buffers[i];
        const uint32_t now = c->buffers[i].now;
        x.next = now == x.value ? ZX_NONE : to[now];
        x.value = to[x.value];
        x.name = zx_arena_str(c->mem, x.name);
        x.why = zx_arena_str(c->mem, x.why);
        ZX_GROW(b.mem, b.buffers, b.g.n_buffers, b.cap_buffers);
        b.buffers[b.g.n_buffers++] = x;
    }
    for (uint32_t i = 0; i < from->g.n_sources; i++) {
        zx_source s = from->sources[i];
        s.name = zx_arena_str(c->mem, s.name);
        s.op = zx_arena_str(c->mem, s.op);
        s.in = copy_names(c->mem, s.in, s.n_in);
        s.out = copy_names(c->mem, s.out, s.n_out);
        s.scopes = copy_names(c->mem, s.scopes, s.n_scopes);
        s.part = zx_arena_str(c->mem, s.part);
        s.types = zx_arena_str(c->mem, s.types);
        s.in_ids = copy_ids(c->mem, s.in_ids, s.n_in);
        s.out_ids = copy_ids(c->mem, s.out_ids, s.n_out);
        ZX_GROW(b.mem, b.sources, b.g.n_sources, b.cap_sources);
        b.sources[b.g.n_sources++] = s;
    }
    for (uint32_t i = 0; i < from->g.n_nodes; i++) {
        if (!node_needed[i]) continue;
        zx_node n = from->nodes[i];
        n.name = zx_arena_str(c->mem, n.name);
        n.attrs = copy_attrs(c->mem, &from->nodes[i].attrs);
        n.in = b.g.n_refs;
        n.out = n.in + n.n_in;
        for (uint32_t k = 0; k < n.n_in + n.n_out; k++) {
            const uint32_t v =
                from->refs[k < n.n_in ? from->nodes[i].in + k : from->nodes[i].out + k - n.n_in];
            ZX_GROW(b.mem, b.refs, b.g.n_refs, b.cap_refs);
            b.refs[b.g.n_refs++] = v == ZX_NONE ? ZX_NONE : to[v];
            if (k >= n.n_in) b.values[to[v]].by = b.g.n_nodes;
        }
        ZX_GROW(b.mem, b.nodes, b.g.n_nodes, b.cap_nodes);
        b.nodes[b.g.n_nodes++] = n;
    }
    b.g.loss = from->g.loss == ZX_NONE ? ZX_NONE : to[from->g.loss];
    uint32_t *params = ZX_NEW(c->mem, uint32_t, c->n_vals + 1);
    for (uint32_t i = 0; i < c->n_vals; i++)
        params[i] = c->vals[i].cls == ZX_I_PARAM ? c->vals[i].entry : ZX_NONE;
    b.g.n_tensors = c->n_vals;
    b.g.tensor_params = params;
    b.g.source_loss = c->loss_ival != ZX_NONE ? c->loss_ival : c->prediction;
    zx_builder_done(&b, out);
}
