// bench_load.h - the most bytes of a plan that live at a time, by the positions of its compute
// stream: read back from its instructions, as no placement takes less.
//
// What is gathered has its bytes from the position that its gather waits for until it is freed; a
// gradient until compute has waited for its reduce; everything else from the step that writes it
// until the last one that reads it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_BENCH_LOAD_H
#define ZX_BENCH_LOAD_H

#include "sched/plan.h"

typedef struct bench_lives {
    const zx_plan *p;
    int64_t *change; // of bytes, by position
    int64_t *from, *to;
    bool *open;
} bench_lives;

static inline void bench_end(bench_lives *k, uint32_t slot)
{
    if (!k->open[slot]) return;
    k->open[slot] = false;
    const int64_t bytes = (int64_t)zx_align_up(k->p->slots[slot].bytes, ZX_ALIGN);
    k->change[k->from[slot]] += bytes;
    k->change[k->to[slot] + 1] -= bytes;
}

static inline void bench_touch(bench_lives *k, uint32_t slot, int64_t at, bool anew)
{
    const zx_slot *s = slot == ZX_NONE ? NULL : &k->p->slots[slot];
    if (s == NULL || s->kind < ZX_SLOT_HELD || s->kind == ZX_SLOT_BUCKET || s->kind == ZX_SLOT_PART)
        return;
    if (anew || !k->open[slot]) {
        bench_end(k, slot);
        k->open[slot] = true;
        k->from[slot] = k->to[slot] = at;
    }
    if (at > k->to[slot]) k->to[slot] = at;
}

static inline void bench_members(bench_lives *k, uint32_t launch, int64_t at, bool anew)
{
    const zx_launch *l = &k->p->launches[launch];
    for (uint32_t i = l->member; i < l->member + l->n_members; i++)
        bench_touch(k, k->p->members[i].slot, at, anew);
}

static inline void bench_step(bench_lives *k, const zx_plan_step *t, int64_t at)
{
    const uint32_t *args = k->p->args + t->arg;
    for (uint32_t i = 0; i < t->n_in; i++) bench_touch(k, args[i], at, false);
    for (uint32_t o = t->n_in; o < t->n_in + t->n_out; o++) {
        bool anew = true;
        for (uint32_t i = 0; i < o; i++) anew = anew && args[i] != args[o];
        bench_touch(k, args[o], at, anew);
    }
    bench_touch(k, t->work, at, true);
}

// Plans without flat buffers: zerox's own.
static inline uint64_t bench_load(const zx_plan *p, zx_arena *mem)
{
    bench_lives k = {.p = p,
                     .change = ZX_NEW(mem, int64_t, p->n_steps + 2),
                     .from = ZX_NEW(mem, int64_t, p->n_slots + 1),
                     .to = ZX_NEW(mem, int64_t, p->n_slots + 1),
                     .open = ZX_NEW(mem, bool, p->n_slots + 1)};
    int64_t *marked = ZX_NEW(mem, int64_t, p->n_events + 1);    // by event: position of compute
    uint32_t *reduced = ZX_NEW(mem, uint32_t, p->n_events + 1); // by event: launch + 1
    int64_t at = 0, gate = 0;
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        const bool compute = in->stream == ZX_S_COMPUTE;
        if (compute && in->c != ZX_NONE) marked[in->c] = at;
        if (in->id == ZX_I_WAIT && in->stream == ZX_S_GATHER && marked[in->a] > gate)
            gate = marked[in->a];
        if (in->id == ZX_I_WAIT && compute && reduced[in->a] > 0)
            bench_members(&k, reduced[in->a] - 1, at > 0 ? at - 1 : 0, false);
        if (in->id == ZX_I_FEED) bench_touch(&k, in->a, at, true);
        if (in->id == ZX_I_GATHER) bench_members(&k, in->a, gate, true);
        if (in->id == ZX_I_REDUCE || in->id == ZX_I_ALLREDUCE) reduced[in->c] = in->a + 1;
        if (in->id == ZX_I_EXEC) bench_step(&k, &p->steps[in->a], at++);
        if (in->id == ZX_I_FREE && k.open[in->a]) {
            bench_touch(&k, in->a, at > 0 ? at - 1 : 0, false);
            bench_end(&k, in->a);
        }
    }
    uint64_t held = 0;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        bench_end(&k, i);
        if (p->slots[i].kind < ZX_SLOT_HELD || p->slots[i].kind == ZX_SLOT_BUCKET)
            held += zx_align_up(p->slots[i].bytes, ZX_ALIGN);
    }
    int64_t now = 0, most = 0;
    for (uint32_t s = 0; s <= p->n_steps; s++) {
        now += k.change[s];
        if (now > most) most = now;
    }
    return held + (uint64_t)most;
}

#endif
