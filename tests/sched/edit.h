// edit.h - a plan whose arrays may be written, for tests that break one; and plans whose launches
// go through flat slots, made of plans whose don't.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_SCHED_EDIT_H
#define ZX_TESTS_SCHED_EDIT_H

#include <stdio.h>
#include <string.h>

#include "sched/sched.h"
#include "tests/test.h"

typedef struct edit {
    const zx_graph *g;
    zx_arena *mem;
    zx_plan p;
    zx_insn *insns;
    zx_slot *slots;
    zx_unit *units;
    zx_launch *launches;
    zx_member *members;
    zx_plan_step *steps;
    uint32_t *args;
} edit;

// A copy of a plan in `mem`; its predictions stay behind.
static inline void edit_start(edit *e, const zx_graph *g, const zx_plan *p, zx_arena *mem)
{
    *e = (edit){.g = g, .mem = mem, .p = *p};
    e->p.start = e->p.seconds = NULL;
#define COPY(array, n) e->p.array = e->array = zx_arena_copy(mem, p->array, p->n * sizeof *p->array)
    COPY(insns, n_insns);
    COPY(slots, n_slots);
    COPY(units, n_units);
    COPY(launches, n_launches);
    COPY(members, n_members);
    COPY(steps, n_steps);
    COPY(args, n_args);
#undef COPY
}

static inline void edit_drop(edit *e, uint32_t i)
{
    memmove(e->insns + i, e->insns + i + 1, (e->p.n_insns - i - 1) * sizeof *e->insns);
    e->p.n_insns--;
}

static inline void edit_insert(edit *e, uint32_t i, zx_insn what)
{
    zx_insn *more = ZX_NEW(e->mem, zx_insn, e->p.n_insns + 1);
    memcpy(more, e->insns, i * sizeof *more);
    memcpy(more + i + 1, e->insns + i, (e->p.n_insns - i) * sizeof *more);
    more[i] = what;
    e->p.insns = e->insns = more;
    e->p.n_insns++;
}

static inline void edit_move(edit *e, uint32_t from, uint32_t to)
{
    const zx_insn x = e->insns[from];
    edit_drop(e, from);
    edit_insert(e, to, x);
}

// ---- flat slots ---------------------------------------------------------------------------------

typedef struct edit_flat {
    bool bucket;    // gradients go through a bucket
    bool one_queue; // all collectives on the stream of the gathers
} edit_flat;

// A slot of its own at the end of the reservation.
static inline uint32_t edit_slot(edit *e, zx_slot_kind kind, uint32_t what, uint64_t bytes)
{
    zx_slot *more = ZX_NEW(e->mem, zx_slot, e->p.n_slots + 1);
    const uint64_t at = zx_align_up(e->p.arena_bytes, ZX_ALIGN);
    memcpy(more, e->slots, e->p.n_slots * sizeof *more);
    more[e->p.n_slots] = (zx_slot){at, bytes, kind, what};
    e->p.slots = e->slots = more;
    e->p.arena_bytes = at + bytes;
    if (e->p.budget < e->p.arena_bytes) e->p.budget = e->p.arena_bytes;
    return e->p.n_slots++;
}

typedef struct edit_out {
    zx_insn *insns;
    uint32_t n, cap;
} edit_out;

static inline uint32_t edit_put(edit *e, edit_out *o, zx_insn_id id, zx_stream s, const zx_insn *as,
                                uint32_t a, uint32_t b, uint32_t c)
{
    ZX_GROW(e->mem, o->insns, o->n, o->cap);
    o->insns[o->n++] = (zx_insn){(uint8_t)id, (uint8_t)s, as->by, as->step, a, b, c};
    return c;
}

// Stream `to` goes on when `from` has come here.
static inline void edit_order(edit *e, edit_out *o, zx_stream from, zx_stream to, const zx_insn *as)
{
    const uint32_t c = e->p.n_events++;
    edit_put(e, o, ZX_I_MARK, from, as, ZX_NONE, ZX_NONE, c);
    edit_put(e, o, ZX_I_WAIT, to, as, c, ZX_NONE, ZX_NONE);
}

static inline void edit_flat_gather(edit *e, edit_out *o, const zx_insn *in)
{
    edit_order(e, o, ZX_S_GATHER, ZX_S_COPY, in);
    const uint32_t packed = e->p.n_events++, gathered = e->p.n_events++;
    edit_put(e, o, ZX_I_PACK, ZX_S_COPY, in, in->a, ZX_NONE, packed);
    edit_put(e, o, ZX_I_WAIT, ZX_S_GATHER, in, packed, ZX_NONE, ZX_NONE);
    edit_put(e, o, ZX_I_GATHER, ZX_S_GATHER, in, in->a, ZX_NONE, gathered);
    edit_put(e, o, ZX_I_WAIT, ZX_S_COPY, in, gathered, ZX_NONE, ZX_NONE);
    edit_put(e, o, ZX_I_UNPACK, ZX_S_COPY, in, in->a, ZX_NONE, in->c);
}

static inline void edit_flat_reduce(edit *e, edit_out *o, const zx_insn *in, bool bucket)
{
    const zx_stream s = (zx_stream)in->stream;
    edit_order(e, o, s, ZX_S_BUCKET, in);
    for (uint32_t k = 0; bucket && k < e->launches[in->a].n_members; k++)
        edit_put(e, o, ZX_I_BUCKET, ZX_S_BUCKET, in, in->a, k, e->p.n_events++);
    const uint32_t packed =
        edit_put(e, o, ZX_I_PACK, ZX_S_BUCKET, in, in->a, ZX_NONE, e->p.n_events++);
    edit_put(e, o, ZX_I_WAIT, s, in, packed, ZX_NONE, ZX_NONE);
    edit_put(e, o, (zx_insn_id)in->id, s, in, in->a, in->b, in->c);
}

static inline bool edit_reduces(const zx_insn *in)
{
    return in->id == ZX_I_REDUCE || in->id == ZX_I_ALLREDUCE;
}

static inline void edit_flat_slots(edit *e, const edit_flat *f, const bool *reduces)
{
    uint64_t bucket = 0;
    for (uint32_t i = 0; i < e->p.n_launches; i++) {
        zx_launch *l = &e->launches[i];
        uint64_t row = 0;
        for (uint32_t k = l->member; k < l->member + l->n_members; k++)
            row += (uint64_t)e->units[e->members[k].unit].shard * 4;
        l->flat = edit_slot(e, ZX_SLOT_FLAT, i, row * e->p.ranks);
        if (f->bucket && reduces[i] && row * e->p.ranks > bucket) bucket = row * e->p.ranks;
    }
    if (!f->bucket) return;
    bucket += (uint64_t)e->p.n_members * ZX_ALIGN; // parts are aligned
    const uint32_t slot = edit_slot(e, ZX_SLOT_BUCKET, 0, bucket);
    const uint64_t at = e->slots[slot].offset;
    const uint64_t end = e->p.arena_bytes;
    for (uint32_t i = 0; i < e->p.n_launches; i++) {
        uint64_t to = at;
        for (uint32_t k = 0; reduces[i] && k < e->launches[i].n_members; k++) {
            zx_member *m = &e->members[e->launches[i].member + k];
            const uint64_t bytes = (uint64_t)e->units[m->unit].shard * 4 * e->p.ranks;
            m->part = edit_slot(e, ZX_SLOT_PART, m->unit, bytes);
            e->slots[m->part].offset = to;
            e->p.arena_bytes = end;
            to = zx_align_up(to + bytes, ZX_ALIGN);
        }
    }
}

// Sends every collective through a flat slot of its own.
static inline void edit_flatten(edit *e, const edit_flat *f)
{
    bool *reduces = ZX_NEW(e->mem, bool, e->p.n_launches + 1);
    for (uint32_t i = 0; i < e->p.n_insns; i++)
        if (edit_reduces(&e->insns[i])) reduces[e->insns[i].a] = true;
    edit_flat_slots(e, f, reduces);
    edit_out o = {0};
    // Who waits for what the queue did later knew that a gather before was over: now it has to wait
    // for what was unpacked, too.
    uint32_t *unpacked = ZX_NEW(e->mem, uint32_t, e->p.n_events + 1), last = ZX_NONE;
    const uint32_t n_events = e->p.n_events;
    for (uint32_t i = 0; i < e->p.n_insns; i++) {
        zx_insn in = e->insns[i];
        if (f->one_queue && in.stream == ZX_S_REDUCE) in.stream = ZX_S_GATHER;
        if (in.id == ZX_I_GATHER) last = in.c;
        if (in.c < n_events) unpacked[in.c] = in.stream == ZX_S_GATHER ? last : ZX_NONE;
        if (in.id == ZX_I_WAIT && in.stream == ZX_S_COMPUTE && unpacked[in.a] != ZX_NONE &&
            unpacked[in.a] != in.a)
            edit_put(e, &o, ZX_I_WAIT, ZX_S_COMPUTE, &in, unpacked[in.a], ZX_NONE, ZX_NONE);
        if (in.id == ZX_I_GATHER)
            edit_flat_gather(e, &o, &in);
        else if (edit_reduces(&in))
            edit_flat_reduce(e, &o, &in, f->bucket);
        else
            edit_put(e, &o, (zx_insn_id)in.id, (zx_stream)in.stream, &in, in.a, in.b, in.c);
    }
    e->p.insns = e->insns = o.insns;
    e->p.n_insns = o.n;
    snprintf(e->p.policy, sizeof e->p.policy, "flat");
}

#endif
