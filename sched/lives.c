// lives.c - see lives.h.
//
// A slot is in use from the instruction that writes it without reading it until it is freed, or
// else until the end of the last one that touches it before it is written anew.
// SPDX-License-Identifier: Apache-2.0
#include "sched/lives.h"

#include <stdlib.h>
#include <string.h>

const char *const zx_use_words[ZX_USE_COUNT] = {"gathered", "activations", "gradients", "scratch"};

typedef struct change { // of the bytes in use
    double at;
    uint32_t order; // among changes at one time: what ends, then what begins
    uint32_t kind;
    int64_t bytes;
} change;

typedef struct lives {
    const zx_graph *g;
    const zx_plan *p;
    zx_arena *mem;
    change *changes;
    uint32_t n, cap;
    double *from, *to; // by slot; from < 0 where it isn't in use
    bool *open;
} lives;

static zx_use_kind kind_of(const lives *k, const zx_slot *s)
{
    if (s->kind == ZX_SLOT_UNIT || s->kind == ZX_SLOT_FLAT) return ZX_USE_GATHERED;
    if (s->kind == ZX_SLOT_WORK) return ZX_USE_SCRATCH;
    if (s->kind != ZX_SLOT_VALUE) return ZX_USE_ACTIVATIONS;
    const uint32_t by = k->g->values[s->what].by;
    return by != ZX_NONE && k->g->nodes[by].phase == ZX_BACKWARD ? ZX_USE_GRADIENTS
                                                                 : ZX_USE_ACTIVATIONS;
}

// The bucket is held all the time; parts lie in it.
static bool comes_and_goes(const zx_slot *s)
{
    return s->kind > ZX_SLOT_HELD && s->kind != ZX_SLOT_BUCKET && s->kind != ZX_SLOT_PART &&
           s->bytes > 0;
}

static void put_change(lives *k, double at, const zx_slot *s, bool begins)
{
    ZX_GROW(k->mem, k->changes, k->n, k->cap);
    k->changes[k->n] = (change){.at = at,
                                .order = begins,
                                .kind = kind_of(k, s),
                                .bytes = begins ? (int64_t)s->bytes : -(int64_t)s->bytes};
    k->n++;
}

static void close_life(lives *k, uint32_t slot, double to)
{
    if (!k->open[slot]) return;
    k->open[slot] = false;
    put_change(k, k->from[slot], &k->p->slots[slot], true);
    put_change(k, to > k->from[slot] ? to : k->from[slot], &k->p->slots[slot], false);
}

static void touch(lives *k, uint32_t insn, uint32_t slot, bool anew)
{
    if (slot == ZX_NONE || !comes_and_goes(&k->p->slots[slot])) return;
    const double start = k->p->start[insn], end = start + k->p->seconds[insn];
    if (anew || !k->open[slot]) {
        close_life(k, slot, k->to[slot]);
        k->open[slot] = true;
        k->from[slot] = start;
        k->to[slot] = end;
    }
    if (end > k->to[slot]) k->to[slot] = end;
}

static void touch_launch(lives *k, uint32_t insn)
{
    const zx_insn *in = &k->p->insns[insn];
    const zx_launch *l = &k->p->launches[in->a];
    const bool lands = in->id == ZX_I_UNPACK || (in->id == ZX_I_GATHER && l->flat == ZX_NONE);
    if (l->flat != ZX_NONE) touch(k, insn, l->flat, in->id == ZX_I_PACK);
    const bool members =
        lands || (in->id != ZX_I_GATHER && l->flat == ZX_NONE) || in->id == ZX_I_PACK;
    for (uint32_t i = l->member; members && i < l->member + l->n_members; i++)
        touch(k, insn, k->p->members[i].slot, lands);
}

static void touch_step(lives *k, uint32_t insn)
{
    const zx_plan_step *t = &k->p->steps[k->p->insns[insn].a];
    const uint32_t *args = k->p->args + t->arg;
    for (uint32_t i = 0; i < t->n_in; i++) touch(k, insn, args[i], false);
    for (uint32_t o = t->n_in; o < t->n_in + t->n_out; o++) {
        bool anew = args[o] != ZX_NONE;
        for (uint32_t i = 0; i < t->n_in; i++) anew = anew && args[i] != args[o];
        for (uint32_t i = t->n_in; i < o; i++) anew = anew && args[i] != args[o];
        touch(k, insn, args[o], anew);
    }
    touch(k, insn, t->work, true);
}

static void touch_all(lives *k)
{
    for (uint32_t i = 0; i < k->p->n_insns; i++) {
        const zx_insn *in = &k->p->insns[i];
        switch ((zx_insn_id)in->id) {
        case ZX_I_FEED:
            touch(k, i, in->a, true);
            break;
        case ZX_I_GATHER:
        case ZX_I_PACK:
        case ZX_I_UNPACK:
        case ZX_I_REDUCE:
        case ZX_I_ALLREDUCE:
            touch_launch(k, i);
            break;
        case ZX_I_BUCKET:
            touch(k, i, k->p->members[k->p->launches[in->a].member + in->b].slot, false);
            break;
        case ZX_I_EXEC:
            touch_step(k, i);
            break;
        case ZX_I_LOSS:
            touch(k, i, in->a, false);
            break;
        case ZX_I_FREE:
            close_life(k, in->a, k->p->start[i]);
            break;
        default: // touches nothing that comes and goes
            break;
        }
    }
}

static int by_time(const void *a, const void *b)
{
    const change *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

// Slots that lie across steps, without those that lie in others.
static uint64_t held_bytes(const zx_plan *p)
{
    uint64_t held = 0;
    for (uint32_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].kind < ZX_SLOT_HELD || p->slots[i].kind == ZX_SLOT_BUCKET)
            held += p->slots[i].bytes;
    return held;
}

void zx_lives_make(const zx_graph *train, const zx_plan *p, zx_arena *mem, zx_lives *out)
{
    ZX_ASSERT(p->start != NULL && p->seconds != NULL);
    lives k = {.g = train, .p = p, .mem = mem};
    k.from = ZX_NEW(mem, double, p->n_slots);
    k.to = ZX_NEW(mem, double, p->n_slots);
    k.open = ZX_NEW(mem, bool, p->n_slots);
    touch_all(&k);
    // A unit that nobody frees stays until the step's end.
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const bool stays = p->slots[i].kind == ZX_SLOT_UNIT && p->step_seconds > k.to[i];
        close_life(&k, i, stays ? p->step_seconds : k.to[i]);
    }
    if (k.n > 0) qsort(k.changes, k.n, sizeof *k.changes, by_time);
    zx_use_point *points = ZX_NEW(mem, zx_use_point, k.n + 1);
    uint32_t n = 0;
    uint64_t now[ZX_USE_COUNT] = {0}, most = 0;
    for (uint32_t i = 0; i < k.n; i++) {
        const change *c = &k.changes[i];
        now[c->kind] += (uint64_t)c->bytes;
        if (i + 1 < k.n && k.changes[i + 1].at == c->at) continue;
        points[n].at = c->at;
        memcpy(points[n++].bytes, now, sizeof now);
        uint64_t all = 0;
        for (uint32_t u = 0; u < ZX_USE_COUNT; u++) all += now[u];
        if (all > most) most = all;
    }
    const uint64_t held = held_bytes(p);
    *out = (zx_lives){n, points, held, held + most};
}

const char *zx_launch_name(const zx_graph *train, const zx_plan *p, uint32_t launch, zx_arena *mem)
{
    const zx_launch *l = &p->launches[launch];
    if (l->n_members == 0) return "nothing";
    const char *first = train->params[p->units[p->members[l->member].unit].param].name;
    if (l->n_members == 1) return first;
    return zx_arena_printf(mem, "%s + %u", first, l->n_members - 1);
}

uint64_t zx_launch_bytes(const zx_plan *p, uint32_t launch)
{
    uint64_t bytes = 0;
    const zx_launch *l = &p->launches[launch];
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        const zx_unit *u = &p->units[p->members[i].unit];
        bytes += zx_unit_room(p, u, 1) * u->param_bytes;
    }
    return bytes;
}
