// exec_prepare.c - what can be done before the first step: every call with its addresses, library
// primitives, and the tables that the loop looks at.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>

#include "runtime/exec.h"

const char *zx_exec_node_text(const zx_graph *g, const zx_node *n, zx_arena *mem)
{
    const char *name = zx_text_safe(mem, n->name), *module = zx_node_module(g, n, mem);
    const char *op = zx_ops[n->op].word;
    if (module[0] == '\0') return zx_arena_printf(mem, "node '%s': %s", name, op);
    return zx_arena_printf(mem, "node '%s' (%s): %s", name, module, op);
}

static void node_call(const zx_site *site, const zx_graph *g, uint32_t node, int threads,
                      zx_arena *mem, zx_call *out)
{
    const zx_node *n = &g->nodes[node];
    zx_view *in = ZX_NEW(mem, zx_view, n->n_in + 1), *y = ZX_NEW(mem, zx_view, n->n_out + 1);
    for (uint32_t i = 0; i < n->n_in; i++) {
        const uint32_t v = zx_node_in(g, n, i);
        if (v != ZX_NONE) in[i].type = g->values[v].type;
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        const uint32_t v = zx_node_out(g, n, i);
        if (v != ZX_NONE) y[i].type = g->values[v].type;
    }
    *out = (zx_call){.op = n->op,
                     .n_in = n->n_in,
                     .n_out = n->n_out,
                     .in = in,
                     .out = y,
                     .attrs = &n->attrs,
                     .threads = threads,
                     .cuda = site != NULL ? site->gpu : NULL};
}

typedef struct preparing {
    const zx_graph *graph;
    uint32_t node;
} preparing;
static void preparing_text(const void *of, zx_err *err)
{
    const preparing *p = of;
    zx_arena mem = {0};
    zx_err_in(err, "preparing %s", zx_exec_node_text(p->graph, &p->graph->nodes[p->node], &mem));
    zx_arena_free(&mem);
}

zx_status zx_exec_prepare_node(const zx_site *site, const zx_graph *g, uint32_t node, int threads,
                               uint64_t *work_bytes, void **state, zx_err *err)
{
    *work_bytes = 0;
    *state = NULL;
    const zx_kernel *k = zx_site_backend(site)->kernel(g->nodes[node].op);
    if (k->prepare == NULL) return ZX_OK;
    zx_arena mem = {0};
    zx_call call;
    node_call(site, g, node, threads, &mem, &call);
    zx_guard *guard = site != NULL ? site->guard : NULL;
    zx_guard_enter(guard, preparing_text, &(preparing){g, node});
    const zx_status st = k->prepare(&call, work_bytes, state, err);
    zx_guard_leave(guard);
    if (st != ZX_OK) zx_err_in(err, "%s", zx_exec_node_text(g, &g->nodes[node], &mem));
    zx_arena_free(&mem);
    return st;
}

// ---- what instructions touch --------------------------------------------------------------------

static void touch_slot(const zx_plan *p, uint32_t slot, uint64_t *most)
{
    if (slot == ZX_NONE) return;
    const uint64_t end = p->slots[slot].offset + p->slots[slot].bytes;
    if (end > *most) *most = end;
}

enum { PARAM = 1, GRAD = 2, WHOLE = 4, PART = 8 }; // of a member: what is held, what passes

static void touch_launch(const zx_plan *p, const zx_launch *l, unsigned what, uint64_t *most)
{
    for (uint32_t i = 0; i < l->n_members; i++) {
        const zx_member *m = &p->members[l->member + i];
        const zx_unit *u = &p->units[m->unit];
        if (what & PARAM) touch_slot(p, u->param_slot, most);
        if (what & GRAD) touch_slot(p, u->grad_slot, most);
        if (what & WHOLE) touch_slot(p, m->slot, most);
        if (what & PART) touch_slot(p, m->part != ZX_NONE ? m->part : m->slot, most);
    }
}

static void touch_transfer(const zx_plan *p, const zx_insn *i, uint64_t *most)
{
    const zx_launch *l = &p->launches[i->a];
    const bool flat = l->flat != ZX_NONE;
    touch_slot(p, l->flat, most);
    switch ((zx_insn_id)i->id) {
    case ZX_I_GATHER:
        touch_launch(p, l, flat ? 0 : PARAM | WHOLE, most);
        break;
    case ZX_I_PACK:
        touch_launch(p, l, zx_launch_gathers(p, l) ? PARAM : PART, most);
        break;
    case ZX_I_UNPACK:
        touch_launch(p, l, WHOLE, most);
        break;
    default: // reduces
        touch_launch(p, l, flat ? GRAD : GRAD | WHOLE, most);
        break;
    }
}

static uint64_t touched_by(const zx_session *s, const zx_insn *i)
{
    const zx_plan *p = s->plan;
    uint64_t most = 0;
    switch ((zx_insn_id)i->id) {
    case ZX_I_FEED:
    case ZX_I_LOSS:
        touch_slot(p, i->a, &most);
        break;
    case ZX_I_GATHER:
    case ZX_I_PACK:
    case ZX_I_UNPACK:
    case ZX_I_REDUCE:
    case ZX_I_ALLREDUCE:
        touch_transfer(p, i, &most);
        break;
    case ZX_I_BUCKET: {
        const zx_member *m = &p->members[p->launches[i->a].member + i->b];
        touch_slot(p, m->slot, &most);
        touch_slot(p, m->part, &most);
        break;
    }
    case ZX_I_EXEC: {
        const zx_plan_step *t = &p->steps[i->a];
        for (uint32_t k = 0; k < t->n_in + t->n_out; k++) touch_slot(p, p->args[t->arg + k], &most);
        touch_slot(p, t->work, &most);
        break;
    }
    case ZX_I_UPDATE: {
        const zx_unit *u = &p->units[i->a];
        touch_slot(p, u->param_slot, &most);
        touch_slot(p, u->master_slot, &most);
        touch_slot(p, u->grad_slot, &most);
        for (uint32_t k = 0; k < 2; k++) touch_slot(p, u->state_slot[k], &most);
        break;
    }
    case ZX_I_COMMIT:
        touch_slot(p, s->buffer_slot[i->a], &most);
        touch_slot(p, s->working_slot[i->a], &most);
        break;
    case ZX_I_FREE:
        if (s->o.poison) touch_slot(p, i->a, &most);
        break;
    case ZX_I_HOOK:
    case ZX_I_MARK:
    case ZX_I_WAIT:
    case ZX_I_NORM:
    case ZX_INSN_COUNT:
        break;
    }
    return most;
}

// ---- calls --------------------------------------------------------------------------------------

static zx_status make_call(zx_session *s, uint32_t step, const uint64_t *work_bytes, zx_err *err)
{
    const zx_graph *g = s->graph;
    const zx_plan *p = s->plan;
    const zx_plan_step *t = &p->steps[step];
    const zx_node *n = &g->nodes[t->node];
    zx_call *c = &s->calls[step];
    node_call(&s->o.site, g, t->node, (int)s->o.threads, &s->mem, c);
    // Views were made just now and are still ours to fill in.
    zx_view *in = (zx_view *)(uintptr_t)c->in, *out = (zx_view *)(uintptr_t)c->out;
    const uint64_t room = t->work == ZX_NONE ? 0 : p->slots[t->work].bytes;
    if (t->n_in != n->n_in || t->n_out != n->n_out || room < work_bytes[t->node])
        return ZX_FAIL(err, ZX_E_DEVICE,
                       "the plan has %" PRIu64 " bytes of scratch for %s, it needs %" PRIu64, room,
                       zx_exec_node_text(g, n, &s->mem), work_bytes[t->node]);
    for (uint32_t i = 0; i < t->n_in + t->n_out; i++) {
        zx_view *v = i < t->n_in ? &in[i] : &out[i - t->n_in];
        const uint32_t slot = p->args[t->arg + i];
        if (slot == ZX_NONE) continue;
        if (zx_type_bytes(&v->type) > p->slots[slot].bytes)
            return ZX_FAIL(err, ZX_E_DEVICE, "the plan's slot %u is too small for %s", slot,
                           zx_exec_node_text(g, n, &s->mem));
        v->data = zx_slot_at(s, slot);
    }
    c->work = t->work == ZX_NONE ? NULL : zx_slot_at(s, t->work);
    c->state = s->state[t->node];
    c->rng = &s->rng[t->micro];
    c->fault = &s->fault;
    s->kernel[step] = s->backend->kernel(n->op);
    return ZX_OK;
}

static void find_buffers(zx_session *s)
{
    for (uint32_t b = 0; b < s->graph->n_buffers; b++)
        s->buffer_slot[b] = s->working_slot[b] = ZX_NONE;
    for (uint32_t i = 0; i < s->plan->n_slots; i++) {
        const zx_slot *slot = &s->plan->slots[i];
        if (slot->kind == ZX_SLOT_BUFFER) s->buffer_slot[slot->what] = i;
        if (slot->kind == ZX_SLOT_WORKING) s->working_slot[slot->what] = i;
    }
}

static void make_lanes(zx_session *s)
{
    const zx_plan *p = s->plan;
    uint32_t *at[ZX_STREAM_COUNT];
    for (uint32_t l = 0; l < ZX_STREAM_COUNT; l++) {
        s->lane[l].session = s;
        s->lane[l].id = (zx_stream)l;
        s->lane[l].insns = at[l] = ZX_NEW(&s->mem, uint32_t, p->n_insns + 1);
    }
    s->last_commit = ZX_NONE;
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *insn = &p->insns[i];
        zx_lane *l = &s->lane[insn->stream];
        at[insn->stream][l->n_insns++] = i;
        s->touch[i] = touched_by(s, insn);
        if (insn->id == ZX_I_COMMIT) s->last_commit = i;
        const bool sets =
            insn->id != ZX_I_UPDATE && insn->id != ZX_I_COMMIT && insn->c < p->n_events;
        if (sets) s->foreign[insn->c] = insn->stream != ZX_S_COMPUTE;
    }
}

zx_status zx_exec_prepare(zx_session *s, zx_err *err)
{
    const zx_graph *g = s->graph;
    const zx_plan *p = s->plan;
    s->state = ZX_NEW(&s->mem, void *, g->n_nodes + 1);
    s->kernel = ZX_NEW(&s->mem, const zx_kernel *, p->n_steps + 1);
    s->calls = ZX_NEW(&s->mem, zx_call, p->n_steps + 1);
    s->touch = ZX_NEW(&s->mem, uint64_t, p->n_insns + 1);
    s->foreign = ZX_NEW(&s->mem, bool, p->n_events + 1);
    s->events = ZX_NEW(&s->mem, zx_word, p->n_events + 1);
    if (s->timed) s->event_at = ZX_NEW(&s->mem, double, p->n_events + 1);
    if (s->o.profile) {
        s->start = ZX_NEW(&s->mem, double, p->n_insns + 1);
        s->seconds = ZX_NEW(&s->mem, double, p->n_insns + 1);
    }
    s->rng = ZX_NEW(&s->mem, zx_rng, p->micro_batches + 1);
    s->buffer_slot = ZX_NEW(&s->mem, uint32_t, g->n_buffers + 1);
    s->working_slot = ZX_NEW(&s->mem, uint32_t, g->n_buffers + 1);
    find_buffers(s);
    make_lanes(s);
    uint64_t *work_bytes = ZX_NEW(&s->mem, uint64_t, g->n_nodes + 1);
    bool *ready = ZX_NEW(&s->mem, bool, g->n_nodes + 1);
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const uint32_t node = p->steps[i].node;
        if (!ready[node])
            ZX_TRY(zx_exec_prepare_node(&s->o.site, g, node, (int)s->o.threads, &work_bytes[node],
                                        &s->state[node], err));
        ready[node] = true;
        ZX_TRY(make_call(s, i, work_bytes, err));
    }
    return ZX_OK;
}

void zx_exec_release(zx_session *s)
{
    if (s->state == NULL) return;
    for (uint32_t i = 0; i < s->graph->n_nodes; i++) {
        const zx_kernel *k = s->backend->kernel(s->graph->nodes[i].op);
        if (s->state[i] != NULL && k->release != NULL) k->release(s->state[i]);
    }
}
