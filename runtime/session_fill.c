// session_fill.c - what the held slots hold before the first step: first values, or what a session
// before held. A rank makes or copies its own shards only; a whole parameter is never in memory
// where the plan doesn't keep it whole.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "runtime/exec.h"

// Elements [from, from + n) of a float tensor.
static void fill_float(float *x, const zx_init *init, const char *name, int64_t from, int64_t n)
{
    if (n == 0) return;
    const uint64_t key = zx_cpu_init_key(init->seed, name);
    switch (init->kind) {
    case ZX_INIT_DATA: // at any alignment
        memcpy(x, (const char *)init->data + (size_t)from * sizeof *x, (size_t)n * sizeof *x);
        break;
    case ZX_INIT_FILL:
        for (int64_t i = 0; i < n; i++) x[i] = (float)init->a;
        break;
    case ZX_INIT_NORMAL:
        zx_cpu_init_normal(x, key, (uint64_t)from, n, init->a, init->b);
        break;
    case ZX_INIT_UNIFORM:
        zx_cpu_init_uniform(x, key, (uint64_t)from, n, init->a, init->b);
        break;
    }
}

// The slot's bytes from `from` on; `at` is where it begins.
static void zero(void *at, const zx_slot *slot, uint64_t from)
{
    if (from < slot->bytes) memset((unsigned char *)at + from, 0, (size_t)(slot->bytes - from));
}

static bool has_values(const zx_session *s, zx_held what)
{
    const zx_values *v = &s->o.values;
    return v->read != NULL && (v->has == NULL || v->has(v->self, what));
}

static zx_status read_values(const zx_session *s, zx_held what, int64_t from, int64_t n, void *to,
                             zx_err *err)
{
    return n > 0 ? s->o.values.read(s->o.values.self, what, from, n, to, err) : ZX_OK;
}

// A unit's elements in float32.
static zx_status fill_unit(const zx_session *s, uint32_t unit, int64_t from, int64_t n, float *to,
                           zx_err *err)
{
    const zx_param *p = &s->graph->params[s->plan->units[unit].param];
    const zx_held what = {ZX_HELD_PARAM, unit};
    if (has_values(s, what)) return read_values(s, what, from, n, to, err);
    fill_float(to, &p->init, p->name, from, n);
    return ZX_OK;
}

#define NARROWED 65536 // elements at a time

static zx_status fill_halves(const zx_session *s, uint32_t unit, int64_t from, int64_t n,
                             uint16_t *to, zx_err *err)
{
    zx_status st = ZX_OK;
    float *x = malloc(NARROWED * sizeof *x);
    if (x == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory for first values");
    for (int64_t i = 0; i < n && st == ZX_OK; i += NARROWED) {
        const int64_t m = n - i < NARROWED ? n - i : NARROWED;
        st = fill_unit(s, unit, from + i, m, x, err);
        if (st == ZX_OK) zx_cpu_narrow(s->half, x, to + i, m);
    }
    free(x);
    return st;
}

// A parameter, or its float32 copy.
static zx_status fill_param(const zx_session *s, const zx_slot *slot, void *at, zx_err *err)
{
    const zx_unit *u = &s->plan->units[slot->what];
    const bool copy = slot->kind == ZX_SLOT_MASTER;
    const uint32_t size = copy ? (uint32_t)sizeof(float) : u->param_bytes;
    int64_t from = 0, n = u->numel;
    if (!(copy ? u->state_whole : u->param_whole)) n = zx_unit_piece(u, s->rank, &from);
    zero(at, slot, (uint64_t)n * size); // the pad
    if (size == sizeof(float)) return fill_unit(s, slot->what, from, n, at, err);
    return fill_halves(s, slot->what, from, n, at, err);
}

static zx_status fill_state(const zx_session *s, const zx_slot *slot, void *at, zx_err *err)
{
    const zx_unit *u = &s->plan->units[slot->what];
    const bool second = &s->plan->slots[u->state_slot[0]] != slot;
    const zx_held what = {second ? ZX_HELD_STATE_1 : ZX_HELD_STATE_0, slot->what};
    int64_t from = 0, n = u->numel;
    zero(at, slot, 0);
    if (!has_values(s, what)) return ZX_OK;
    if (!u->state_whole) n = zx_unit_piece(u, s->rank, &from);
    return read_values(s, what, from, n, at, err);
}

static zx_status fill_buffer(const zx_session *s, const zx_slot *slot, void *at, zx_err *err)
{
    const zx_buffer *b = &s->graph->buffers[slot->what];
    const zx_held what = {ZX_HELD_BUFFER, slot->what};
    const zx_type *t = &s->graph->values[b->value].type;
    const uint64_t bytes = zx_type_bytes(t);
    const int64_t n = zx_shape_count(&t->shape);
    zero(at, slot, 0);
    if (has_values(s, what)) return read_values(s, what, 0, n, at, err);
    if (t->dtype == ZX_F32) {
        fill_float(at, &b->init, b->name, 0, n);
    } else if (b->init.kind == ZX_INIT_DATA) { // in its own type, e.g. a counter
        memcpy(at, b->init.data, (size_t)bytes);
    } else if (b->init.kind == ZX_INIT_FILL && t->dtype == ZX_I64) {
        int64_t *x = at;
        for (int64_t i = 0; i < n; i++) x[i] = (int64_t)b->init.a;
    }
    return ZX_OK;
}

static void fill_const(const zx_session *s, const zx_slot *slot, void *at)
{
    const zx_value *v = &s->graph->values[slot->what];
    memcpy(at, v->data, (size_t)zx_type_bytes(&v->type));
}

static void note_peak(zx_session *s, const zx_slot *slot)
{
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++)
        if (slot->offset + slot->bytes > s->lane[k].peak)
            s->lane[k].peak = slot->offset + slot->bytes;
}

static zx_status fill_slot(const zx_session *s, const zx_slot *slot, void *at, zx_err *err)
{
    switch ((zx_slot_kind)slot->kind) {
    case ZX_SLOT_PARAM:
    case ZX_SLOT_MASTER:
        return fill_param(s, slot, at, err);
    case ZX_SLOT_STATE:
        return fill_state(s, slot, at, err);
    case ZX_SLOT_BUFFER:
    case ZX_SLOT_WORKING:
        return fill_buffer(s, slot, at, err);
    case ZX_SLOT_CONST:
        fill_const(s, slot, at);
        return ZX_OK;
    default:
        zero(at, slot, 0);
        return ZX_OK;
    }
}

zx_status zx_exec_fill(zx_session *s, zx_err *err)
{
    for (uint32_t i = 0; i < s->plan->n_slots; i++) {
        const zx_slot *slot = &s->plan->slots[i];
        if (slot->kind >= ZX_SLOT_HELD) continue; // written by the step
        void *at = s->backend->begin_fill(s, slot);
        const zx_status st = at != NULL ? fill_slot(s, slot, at, err) : ZX_OK;
        if (st != ZX_OK) {
            s->backend->end_fill(s, slot, at); // which may have to free it
            return st;
        }
        if (at == NULL || !s->backend->end_fill(s, slot, at))
            return s->fatal.code != ZX_OK ? zx_err_merge(err, &s->fatal)
                                          : ZX_FAIL(err, ZX_E_DEVICE, "no memory for first values");
        note_peak(s, slot);
    }
    return ZX_OK;
}

// ---- of a session before ------------------------------------------------------------------------

static uint32_t next_held(const zx_plan *p, uint32_t i)
{
    while (i < p->n_slots && p->slots[i].kind >= ZX_SLOT_HELD) i++;
    return i;
}

// Held slots are those of units, buffers and constants in the order of the graph, so both plans
// have the same ones one after the other; where they lie doesn't matter.
zx_status zx_exec_take_over(zx_session *s, zx_err *err)
{
    const zx_session *from = s->o.from;
    const zx_plan *was = from->plan, *is = s->plan;
    uint32_t a = next_held(was, 0), b = next_held(is, 0);
    for (; a < was->n_slots && b < is->n_slots;
         a = next_held(was, a + 1), b = next_held(is, b + 1)) {
        const zx_slot *x = &was->slots[a], *y = &is->slots[b];
        if (x->kind != y->kind || x->what != y->what || x->bytes != y->bytes) break;
        memcpy(s->mine + y->offset, from->mine + x->offset, (size_t)y->bytes);
        note_peak(s, y);
    }
    if (a < was->n_slots || b < is->n_slots)
        return ZX_FAIL(err, ZX_E_DEVICE, "the plan holds another state than the one before it");
    atomic_store(&s->stop, atomic_load(&from->stop));
    return ZX_OK;
}
