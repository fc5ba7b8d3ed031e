// flat.h - a plan rewritten so that every collective goes through a flat slot, with copies into it
// and out of it; its reduces also through a bucket, if asked to. For the tests of sessions.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_RUNTIME_FLAT_H
#define ZX_TESTS_RUNTIME_FLAT_H

#include "sched/plan.h"

typedef enum flat_kind { FLAT_NOT, FLAT_ROWS, FLAT_BUCKET } flat_kind;

typedef struct flattener {
    zx_plan *p;
    zx_slot *slots;
    zx_launch *launches;
    zx_member *members;
    zx_insn *insns;
    uint32_t n_insns;
    uint64_t end; // of the bytes given out so far
} flattener;

static inline uint32_t flat_slot(flattener *f, uint32_t kind, uint32_t what, uint64_t bytes)
{
    f->end = zx_align_up(f->end, ZX_ALIGN);
    f->slots[f->p->n_slots] = (zx_slot){f->end, bytes, kind, what};
    f->end += bytes;
    return f->p->n_slots++;
}

static inline void flat_put(flattener *f, const zx_insn *like, zx_insn_id id, zx_stream s,
                            uint32_t a, uint32_t b, uint32_t c)
{
    zx_insn *i = &f->insns[f->n_insns++];
    *i = *like;
    i->id = (uint8_t)id;
    i->stream = (uint8_t)s;
    i->a = a;
    i->b = b;
    i->c = c;
}

// Of one launch: its flat slot, and where its members' gradients lie in the bucket.
static inline void flat_launch(flattener *f, uint32_t launch, bool bucket)
{
    zx_launch *l = &f->launches[launch];
    const zx_plan *p = f->p;
    uint64_t row = 0;
    for (uint32_t i = 0; i < l->n_members; i++) {
        zx_member *m = &f->members[l->member + i];
        m->at = row;
        row += (uint64_t)p->units[m->unit].shard;
    }
    l->flat = flat_slot(f, ZX_SLOT_FLAT, launch, row * p->ranks * sizeof(float));
    if (!bucket) return;
    const uint32_t whole = flat_slot(f, ZX_SLOT_BUCKET, 0, 0);
    f->end = f->slots[whole].offset;
    for (uint32_t i = 0; i < l->n_members; i++) {
        zx_member *m = &f->members[l->member + i];
        m->part = flat_slot(f, ZX_SLOT_PART, m->unit,
                            zx_unit_room(p, &p->units[m->unit], 1) * sizeof(float));
    }
    f->slots[whole].bytes = f->end - f->slots[whole].offset;
}

// The other streams copy: they wait for where the collective's stream has come to, and it for them.
static inline void flat_transfer(flattener *f, const zx_insn *in)
{
    const bool gather = in->id == ZX_I_GATHER;
    const zx_launch *l = &f->launches[in->a];
    const zx_stream to = (zx_stream)in->stream, copies = gather ? ZX_S_COPY : ZX_S_BUCKET;
    const uint32_t here = f->p->n_events++, packed = f->p->n_events++;
    flat_put(f, in, ZX_I_MARK, to, ZX_NONE, ZX_NONE, here);
    flat_put(f, in, ZX_I_WAIT, copies, here, ZX_NONE, ZX_NONE);
    for (uint32_t i = 0; i < l->n_members && f->members[l->member].part != ZX_NONE; i++) {
        const uint32_t copied = f->p->n_events++, freed = f->p->n_events++;
        const uint32_t slot = f->members[l->member + i].slot; // poisoned: now the part counts
        flat_put(f, in, ZX_I_BUCKET, copies, in->a, i, copied);
        flat_put(f, in, ZX_I_WAIT, ZX_S_COMPUTE, copied, ZX_NONE, ZX_NONE);
        flat_put(f, in, ZX_I_FREE, ZX_S_COMPUTE, slot, ZX_NONE, freed);
        flat_put(f, in, ZX_I_WAIT, copies, freed, ZX_NONE, ZX_NONE);
    }
    flat_put(f, in, ZX_I_PACK, copies, in->a, ZX_NONE, packed);
    flat_put(f, in, ZX_I_WAIT, to, packed, ZX_NONE, ZX_NONE);
    flat_put(f, in, (zx_insn_id)in->id, to, in->a, in->b, in->c);
    if (!gather) return;
    const uint32_t rows = f->p->n_events++;
    f->insns[f->n_insns - 1].c = rows;
    flat_put(f, in, ZX_I_WAIT, copies, rows, ZX_NONE, ZX_NONE);
    flat_put(f, in, ZX_I_UNPACK, copies, in->a, ZX_NONE, in->c);
}

static inline bool flat_moves(const zx_insn *in)
{
    return in->id == ZX_I_GATHER || in->id == ZX_I_REDUCE || in->id == ZX_I_ALLREDUCE;
}

static inline void flatten(zx_plan *p, flat_kind kind, zx_arena *mem)
{
    flattener f = {.p = p, .end = p->arena_bytes};
    f.slots = ZX_NEW(mem, zx_slot, p->n_slots + 2 * p->n_launches + p->n_members);
    memcpy(f.slots, p->slots, p->n_slots * sizeof *f.slots);
    f.launches = zx_arena_copy(mem, p->launches, p->n_launches * sizeof *f.launches);
    f.members = zx_arena_copy(mem, p->members, p->n_members * sizeof *f.members);
    f.insns = ZX_NEW(mem, zx_insn, 8 * p->n_insns + 4 * p->n_members * p->micro_batches);
    bool *done = ZX_NEW(mem, bool, p->n_launches + 1);
    // Who waits for what a queue did later knew that a gather before was over: now it has to wait
    // for what was unpacked, too.
    uint32_t *unpacked = ZX_NEW(mem, uint32_t, p->n_events + 1), last = ZX_NONE;
    const uint32_t n_events = p->n_events;
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        if (in->id == ZX_I_GATHER) last = in->c;
        if (in->c < n_events) unpacked[in->c] = in->stream == ZX_S_GATHER ? last : ZX_NONE;
        if (in->id == ZX_I_WAIT && in->stream == ZX_S_COMPUTE && unpacked[in->a] != ZX_NONE &&
            unpacked[in->a] != in->a)
            flat_put(&f, in, ZX_I_WAIT, ZX_S_COMPUTE, unpacked[in->a], ZX_NONE, ZX_NONE);
        if (!flat_moves(in)) {
            f.insns[f.n_insns++] = *in;
            continue;
        }
        if (!done[in->a]) flat_launch(&f, in->a, kind == FLAT_BUCKET && in->id != ZX_I_GATHER);
        done[in->a] = true;
        flat_transfer(&f, in);
    }
    p->slots = f.slots;
    p->launches = f.launches;
    p->members = f.members;
    p->insns = f.insns;
    p->n_insns = f.n_insns;
    p->arena_bytes = f.end;
    if (p->budget < f.end) p->budget = f.end;
    p->start = p->seconds = NULL;
}

#endif
