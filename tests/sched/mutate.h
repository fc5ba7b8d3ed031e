// mutate.h - ways to spoil a plan, at least one for every rule of the checker (sched/check.c).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_SCHED_MUTATE_H
#define ZX_TESTS_SCHED_MUTATE_H

#include "tests/sched/edit.h"

typedef struct rng {
    uint64_t state;
} rng;

static inline uint32_t draw(rng *r, uint32_t below)
{
    r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return below == 0 ? 0 : (uint32_t)((r->state >> 33) % below);
}

#define INSN(id) (1u << ZX_I_##id)
#define COLLECTIVES (INSN(GATHER) | INSN(REDUCE) | INSN(ALLREDUCE))
#define COPIES (INSN(PACK) | INSN(UNPACK) | INSN(BUCKET))
#define ANY_INSN ((1u << ZX_INSN_COUNT) - 1)
#define RULE(n) (1u << (n))

// An instruction of one of the kinds; ZX_NONE: the plan has none.
static inline uint32_t pick(const edit *e, rng *r, uint32_t kinds)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->p.n_insns; i++) n += kinds >> e->insns[i].id & 1;
    if (n == 0) return ZX_NONE;
    uint32_t nth = draw(r, n);
    for (uint32_t i = 0;; i++)
        if ((kinds >> e->insns[i].id & 1) && nth-- == 0) return i;
}

// The next one of the same stream; ZX_NONE.
static inline uint32_t next_of_stream(const edit *e, uint32_t i)
{
    for (uint32_t k = i + 1; k < e->p.n_insns; k++)
        if (e->insns[k].stream == e->insns[i].stream) return k;
    return ZX_NONE;
}

// What the slots say of themselves, so that a slot that was changed is judged and not the sum.
static inline void sum_up(edit *e)
{
    e->p.arena_bytes = e->p.held_bytes = 0;
    for (uint32_t i = 0; i < e->p.n_slots; i++) {
        const zx_slot *s = &e->slots[i];
        const uint64_t end = s->offset + s->bytes;
        if (s->bytes > 0 && end > e->p.arena_bytes) e->p.arena_bytes = end;
        if (s->kind < ZX_SLOT_HELD) e->p.held_bytes += s->bytes;
    }
    e->p.budget = e->p.arena_bytes;
}

// ---- instructions -------------------------------------------------------------------------------

static inline bool drop_any(edit *e, rng *r, uint32_t kinds)
{
    const uint32_t i = pick(e, r, kinds);
    if (i == ZX_NONE) return false;
    edit_drop(e, i);
    return true;
}

// What it does is left out, the event that others wait for isn't.
static inline bool silence(edit *e, rng *r, uint32_t kinds)
{
    const uint32_t i = pick(e, r, kinds);
    if (i == ZX_NONE) return false;
    zx_insn *in = &e->insns[i];
    if (in->c == ZX_NONE) {
        edit_drop(e, i);
        return true;
    }
    in->id = ZX_I_MARK;
    in->a = in->b = ZX_NONE;
    return true;
}

static inline bool twice(edit *e, rng *r, uint32_t kinds)
{
    const uint32_t i = pick(e, r, kinds);
    if (i == ZX_NONE) return false;
    zx_insn again = e->insns[i];
    if (again.c != ZX_NONE) again.c = e->p.n_events++;
    uint32_t to = i + 1;
    for (uint32_t k = draw(r, 4); k > 0 && to < e->p.n_insns; k--) to++;
    edit_insert(e, to, again);
    return true;
}

static inline bool redirect(edit *e, rng *r, uint32_t kinds, uint32_t below)
{
    const uint32_t i = pick(e, r, kinds);
    if (i == ZX_NONE || below < 2) return false;
    uint32_t *a = &e->insns[i].a;
    const uint32_t was = *a;
    *a = draw(r, 2) ? (was + 1 + draw(r, 3)) % below : draw(r, below);
    return *a != was;
}

static bool drop_wait(edit *e, rng *r)
{
    return drop_any(e, r, INSN(WAIT));
}
static bool drop_mark(edit *e, rng *r)
{
    return drop_any(e, r, INSN(MARK));
}
static bool drop_one(edit *e, rng *r)
{
    return drop_any(e, r, ANY_INSN);
}
static bool drop_gather(edit *e, rng *r)
{
    return silence(e, r, INSN(GATHER));
}
static bool drop_free(edit *e, rng *r)
{
    return silence(e, r, INSN(FREE));
}
static bool drop_reduce(edit *e, rng *r)
{
    return silence(e, r, INSN(REDUCE) | INSN(ALLREDUCE));
}
static bool drop_pack(edit *e, rng *r)
{
    return silence(e, r, INSN(PACK));
}
static bool drop_unpack(edit *e, rng *r)
{
    return silence(e, r, INSN(UNPACK));
}
static bool drop_bucket(edit *e, rng *r)
{
    return silence(e, r, INSN(BUCKET));
}
static bool drop_feed(edit *e, rng *r)
{
    return silence(e, r, INSN(FEED));
}
static bool drop_exec(edit *e, rng *r)
{
    return silence(e, r, INSN(EXEC));
}
static bool drop_end(edit *e, rng *r)
{
    return silence(e, r, INSN(LOSS) | INSN(NORM) | INSN(UPDATE) | INSN(COMMIT));
}
static bool twice_transfer(edit *e, rng *r)
{
    return twice(e, r, COLLECTIVES | COPIES);
}
static bool twice_compute(edit *e, rng *r)
{
    return twice(e, r, ANY_INSN & ~(COLLECTIVES | COPIES));
}
static bool other_event(edit *e, rng *r)
{
    return redirect(e, r, INSN(WAIT), e->p.n_events);
}
static bool other_gather(edit *e, rng *r)
{
    return redirect(e, r, INSN(GATHER), e->p.n_launches);
}
static bool other_reduce(edit *e, rng *r)
{
    return redirect(e, r, INSN(REDUCE) | INSN(ALLREDUCE), e->p.n_launches);
}
static bool other_copy(edit *e, rng *r)
{
    return redirect(e, r, COPIES, e->p.n_launches);
}
static bool other_slot(edit *e, rng *r)
{
    return redirect(e, r, INSN(FREE) | INSN(FEED) | INSN(LOSS), e->p.n_slots);
}
static bool other_step(edit *e, rng *r)
{
    return redirect(e, r, INSN(EXEC), e->p.n_steps);
}
static bool other_unit(edit *e, rng *r)
{
    return redirect(e, r, INSN(UPDATE), e->p.n_units);
}

static bool other_micro(edit *e, rng *r)
{
    const uint32_t i = pick(e, r, INSN(FEED) | INSN(LOSS));
    if (e->p.micro_batches < 2) return false;
    e->insns[i].b = (e->insns[i].b + 1 + draw(r, e->p.micro_batches - 1)) % e->p.micro_batches;
    return true;
}

static bool other_flag(edit *e, rng *r)
{
    const uint32_t i = pick(e, r, INSN(REDUCE) | INSN(ALLREDUCE));
    if (i == ZX_NONE) return false;
    e->insns[i].b ^= 1;
    return true;
}

static bool other_member(edit *e, rng *r)
{
    const uint32_t i = pick(e, r, INSN(BUCKET));
    if (i == ZX_NONE) return false;
    e->insns[i].b += 1 - 2 * draw(r, 2);
    return true;
}

static bool other_kind(edit *e, rng *r)
{
    zx_insn *in = &e->insns[pick(e, r, ANY_INSN)];
    const uint8_t was = in->id;
    in->id = in->id == ZX_I_REDUCE      ? ZX_I_ALLREDUCE
             : in->id == ZX_I_ALLREDUCE ? ZX_I_REDUCE
                                        : (uint8_t)draw(r, ZX_INSN_COUNT + 1);
    return in->id != was;
}

static bool other_stream(edit *e, rng *r)
{
    zx_insn *in = &e->insns[pick(e, r, ANY_INSN)];
    const uint8_t was = in->stream;
    in->stream = (uint8_t)draw(r, ZX_STREAM_COUNT + 1);
    return in->stream != was;
}

static bool other_operand(edit *e, rng *r)
{
    zx_insn *in = &e->insns[pick(e, r, ANY_INSN)];
    uint32_t *x[3] = {&in->a, &in->b, &in->c};
    const uint32_t values[4] = {0, ZX_NONE, e->p.n_insns, draw(r, 99)}, k = draw(r, 3), was = *x[k];
    *x[k] = values[draw(r, 4)];
    return *x[k] != was;
}

static bool other_reason(edit *e, rng *r)
{
    zx_insn *in = &e->insns[pick(e, r, ANY_INSN)];
    in->by = (uint16_t)draw(r, 99);
    in->step = draw(r, 2) ? draw(r, e->p.n_steps + 2) : ZX_NONE;
    return true;
}

static bool swap_events(edit *e, rng *r)
{
    const uint32_t kinds = COLLECTIVES | COPIES | INSN(MARK) | INSN(FREE);
    const uint32_t i = pick(e, r, kinds), k = pick(e, r, kinds);
    if (i == ZX_NONE || e->insns[i].c == ZX_NONE || e->insns[k].c == ZX_NONE || i == k)
        return false;
    const uint32_t c = e->insns[i].c;
    e->insns[i].c = e->insns[k].c;
    e->insns[k].c = draw(r, 4) ? c : e->insns[i].c; // or it happens twice
    return true;
}

static bool swap_launches(edit *e, rng *r)
{
    const uint32_t kinds = draw(r, 2) ? INSN(GATHER) | INSN(PACK) | INSN(UNPACK)
                                      : INSN(REDUCE) | INSN(ALLREDUCE) | INSN(PACK);
    const uint32_t i = pick(e, r, kinds), k = pick(e, r, kinds);
    if (i == ZX_NONE || e->insns[i].a == e->insns[k].a) return false;
    const uint32_t a = e->insns[i].a;
    e->insns[i].a = e->insns[k].a;
    e->insns[k].a = a;
    return true;
}

static bool swap_neighbours(edit *e, rng *r)
{
    const uint32_t i = pick(e, r, ANY_INSN), k = next_of_stream(e, i);
    if (k == ZX_NONE) return false;
    const zx_insn x = e->insns[i];
    e->insns[i] = e->insns[k];
    e->insns[k] = x;
    return true;
}

static bool move_one(edit *e, rng *r)
{
    const uint32_t i = pick(e, r, ANY_INSN), by = 1 + draw(r, 30);
    const uint32_t to = draw(r, 2) ? i + by : i - by;
    if (to >= e->p.n_insns) return false;
    edit_move(e, i, to);
    return true;
}

// Something of before the norm comes after it, or the other way round.
static bool across_the_norm(edit *e, rng *r)
{
    const uint32_t i = pick(e, r, ANY_INSN), norm = pick(e, r, INSN(NORM));
    if (i == norm) return false;
    edit_move(e, i, i < norm ? norm + draw(r, e->p.n_insns - norm) : norm);
    return true;
}

static bool free_something(edit *e, rng *r)
{
    const zx_insn x = {ZX_I_FREE, ZX_S_COMPUTE,   0, ZX_NONE, draw(r, e->p.n_slots),
                       ZX_NONE,   e->p.n_events++};
    edit_insert(e, draw(r, e->p.n_insns), x);
    return true;
}

static bool wait_somewhere(edit *e, rng *r)
{
    const zx_insn x = {
        ZX_I_WAIT, (uint8_t)draw(r, ZX_STREAM_COUNT), 0, ZX_NONE, draw(r, e->p.n_events), ZX_NONE,
        ZX_NONE};
    edit_insert(e, draw(r, e->p.n_insns), x);
    return true;
}

static bool transfer_somewhere(edit *e, rng *r)
{
    const uint32_t i = pick(e, r, COLLECTIVES | COPIES);
    if (i == ZX_NONE) return false;
    zx_insn x = e->insns[i];
    x.c = e->p.n_events++;
    edit_insert(e, draw(r, e->p.n_insns + 1), x);
    return true;
}

static bool run_on(edit *e, rng *r)
{
    const zx_insn x = {
        ZX_I_MARK,      (uint8_t)draw(r, ZX_STREAM_COUNT), 0, ZX_NONE, ZX_NONE, ZX_NONE,
        e->p.n_events++};
    edit_insert(e, e->p.n_insns - draw(r, 4), x);
    return true;
}

static bool hooks(edit *e, rng *r)
{
    const zx_insn x = {
        ZX_I_HOOK, draw(r, 4) ? ZX_S_COMPUTE : ZX_S_COPY, 0, ZX_NONE, draw(r, 50), ZX_NONE,
        ZX_NONE};
    edit_insert(e, draw(r, e->p.n_insns), x);
    return true;
}

// ---- slots --------------------------------------------------------------------------------------

static bool shift_address(edit *e, rng *r)
{
    zx_slot *s = &e->slots[draw(r, e->p.n_slots)];
    const uint64_t by = ZX_ALIGN * (1 + (uint64_t)draw(r, 6));
    if (draw(r, 2) && s->offset < by) return false;
    s->offset = draw(r, 2) && s->offset >= by ? s->offset - by : s->offset + by;
    sum_up(e);
    return true;
}

static bool same_address(edit *e, rng *r)
{
    const uint32_t i = draw(r, e->p.n_slots), k = draw(r, e->p.n_slots);
    if (e->slots[i].offset == e->slots[k].offset) return false;
    e->slots[i].offset = e->slots[k].offset;
    sum_up(e);
    return true;
}

static bool swap_addresses(edit *e, rng *r)
{
    const uint32_t i = draw(r, e->p.n_slots), k = draw(r, e->p.n_slots);
    const uint64_t at = e->slots[i].offset;
    if (at == e->slots[k].offset) return false;
    e->slots[i].offset = e->slots[k].offset;
    e->slots[k].offset = at;
    sum_up(e);
    return true;
}

static bool odd_address(edit *e, rng *r)
{
    e->slots[draw(r, e->p.n_slots)].offset += draw(r, 2) ? 4 : 32;
    sum_up(e);
    return true;
}

static bool shrink_slot(edit *e, rng *r)
{
    zx_slot *s = &e->slots[draw(r, e->p.n_slots)];
    if (s->bytes < 8) return false;
    s->bytes = draw(r, 2) ? s->bytes - 4 : s->bytes / 8 * 4;
    sum_up(e);
    return true;
}

static bool grow_slot(edit *e, rng *r)
{
    e->slots[draw(r, e->p.n_slots)].bytes += draw(r, 2) ? 4 : ZX_ALIGN;
    sum_up(e);
    return true;
}

static bool other_slot_kind(edit *e, rng *r)
{
    zx_slot *s = &e->slots[draw(r, e->p.n_slots)];
    const uint32_t was = s->kind;
    s->kind = draw(r, ZX_SLOT_PART + 2);
    sum_up(e);
    return s->kind != was;
}

static bool other_purpose(edit *e, rng *r)
{
    zx_slot *s = &e->slots[draw(r, e->p.n_slots)];
    const uint32_t was = s->what;
    s->what = draw(r, 2) ? was + 1 - 2 * draw(r, 2) : draw(r, 40);
    return s->what != was;
}

static bool part_elsewhere(edit *e, rng *r)
{
    uint32_t parts[64], n = 0;
    for (uint32_t i = 0; i < e->p.n_slots && n < 64; i++)
        if (e->slots[i].kind == ZX_SLOT_PART) parts[n++] = i;
    if (n == 0) return false;
    zx_slot *s = &e->slots[parts[draw(r, n)]];
    if (draw(r, 2))
        s->offset += ZX_ALIGN * (uint64_t)draw(r, 99);
    else
        s->offset = e->slots[parts[draw(r, n)]].offset;
    sum_up(e);
    return true;
}

// ---- tables -------------------------------------------------------------------------------------

static bool other_number(edit *e, rng *r)
{
    uint32_t *small[] = {&e->p.ranks, &e->p.stage, &e->p.micro_batches, &e->p.optimizer_states};
    const uint32_t by = draw(r, 2) ? 1 : UINT32_MAX;
    switch (draw(r, 5)) {
    case 0:
        e->p.graph_hash++;
        return true;
    case 1:
        e->p.budget = e->p.arena_bytes - 1;
        return true;
    case 2:
        e->p.n_events += by;
        return true;
    case 3:
        *(draw(r, 2) ? &e->p.arena_bytes : &e->p.held_bytes) += ZX_ALIGN;
        return true;
    default:
        *small[draw(r, ZX_COUNT(small))] += by;
        return true;
    }
}

static bool other_cut(edit *e, rng *r)
{
    zx_unit *u = &e->units[draw(r, e->p.n_units)];
    uint32_t *flags[] = {&u->param_whole, &u->grad_whole, &u->state_whole};
    switch (draw(r, 6)) {
    case 0:
        u->shard += draw(r, 2) ? 1 : -1;
        return true;
    case 1:
        u->numel += draw(r, 2) ? 1 : -1;
        return true;
    case 2:
        u->param_bytes = draw(r, 2) ? 2 : 8;
        return true;
    case 3:
        u->grad_bytes = draw(r, 2) ? 2 : 8;
        return true;
    case 4:
        u->master_slot = draw(r, e->p.n_slots);
        return true;
    default:
        *flags[draw(r, 3)] ^= 1;
        return true;
    }
}

// Two units' slots of a kind change places, with or without what the slots say of it.
static bool swap_units(edit *e, rng *r)
{
    zx_unit *u = &e->units[draw(r, e->p.n_units)], *v = &e->units[draw(r, e->p.n_units)];
    uint32_t *of_u[] = {&u->param_slot, &u->grad_slot, &u->state_slot[0], &u->state_slot[1]};
    uint32_t *of_v[] = {&v->param_slot, &v->grad_slot, &v->state_slot[0], &v->state_slot[1]};
    const uint32_t k = draw(r, 4), a = *of_u[k], b = *of_v[k];
    if (draw(r, 4) == 0) { // of one unit: its two states
        const uint32_t s = u->state_slot[0];
        u->state_slot[0] = u->state_slot[1];
        u->state_slot[1] = s;
        return u->state_slot[0] != s;
    }
    if (a == b || a == ZX_NONE || b == ZX_NONE) return false;
    *of_u[k] = b;
    *of_v[k] = a;
    if (draw(r, 2)) return true;
    const uint32_t what = e->slots[a].what;
    e->slots[a].what = e->slots[b].what;
    e->slots[b].what = what;
    return true;
}

static bool other_launch_row(edit *e, rng *r)
{
    if (e->p.n_launches == 0) return false;
    zx_launch *l = &e->launches[draw(r, e->p.n_launches)];
    switch (draw(r, 4)) {
    case 0:
        l->member += draw(r, 2) ? 1 : UINT32_MAX;
        return true;
    case 1:
        l->n_members += draw(r, 2) ? 1 : UINT32_MAX;
        return true;
    case 2:
        l->flat = draw(r, 2) ? ZX_NONE : draw(r, e->p.n_slots);
        return true;
    default:
        l->flat = e->launches[draw(r, e->p.n_launches)].flat;
        return true;
    }
}

static bool other_member_row(edit *e, rng *r)
{
    if (e->p.n_members == 0) return false;
    zx_member *m = &e->members[draw(r, e->p.n_members)], *n = &e->members[draw(r, e->p.n_members)];
    const zx_member was = *m;
    switch (draw(r, 6)) {
    case 0:
        m->unit = n->unit;
        break;
    case 1:
        m->slot = n->slot;
        break;
    case 2:
        m->slot = draw(r, e->p.n_slots);
        break;
    case 3:
        m->part = draw(r, 2) ? n->part : draw(r, e->p.n_slots);
        break;
    case 4:
        m->at = draw(r, 2) ? n->at : m->at + 1;
        break;
    default: // the two change places, in their rows too where they are as long
        *m = *n;
        *n = was;
        if (draw(r, 2)) {
            n->at = m->at;
            m->at = was.at;
        }
    }
    return memcmp(m, &was, sizeof was) != 0;
}

static bool other_step_row(edit *e, rng *r)
{
    zx_plan_step *t = &e->steps[draw(r, e->p.n_steps)], *u = &e->steps[draw(r, e->p.n_steps)];
    const zx_plan_step was = *t;
    switch (draw(r, 6)) {
    case 0:
        t->node = u->node;
        break;
    case 1:
        t->micro = draw(r, e->p.micro_batches + 1);
        break;
    case 2:
        t->arg = u->arg;
        break;
    case 3:
        t->work = draw(r, 2) ? u->work : draw(r, e->p.n_slots);
        break;
    case 4:
        *(draw(r, 2) ? &t->n_in : &t->n_out) += draw(r, 2) ? 1 : UINT32_MAX;
        break;
    default:
        *t = *u;
        *u = was;
    }
    return memcmp(t, &was, sizeof was) != 0;
}

static bool other_arg(edit *e, rng *r)
{
    const uint32_t i = draw(r, e->p.n_args), was = e->args[i];
    e->args[i] = draw(r, 8) == 0   ? ZX_NONE
                 : draw(r, 3) == 0 ? draw(r, e->p.n_slots)
                                   : e->args[draw(r, e->p.n_args)];
    return e->args[i] != was;
}

// An operand goes to a slot of its own size, where there is another.
static bool alike_arg(edit *e, rng *r)
{
    const uint32_t i = draw(r, e->p.n_args), was = e->args[i];
    if (was == ZX_NONE) return false;
    for (uint32_t k = draw(r, e->p.n_slots), n = 0; n < e->p.n_slots; n++, k++) {
        const uint32_t s = k % e->p.n_slots;
        if (s == was || e->slots[s].bytes != e->slots[was].bytes ||
            (e->slots[s].kind != e->slots[was].kind && draw(r, 4)))
            continue;
        e->args[i] = s;
        return true;
    }
    return false;
}

// A step writes over one of its inputs, of the same size, where that is nobody's but its own.
static bool over_an_input(edit *e, rng *r)
{
    for (uint32_t s = draw(r, e->p.n_steps), n = 0; n < e->p.n_steps; n++, s++) {
        const zx_plan_step *t = &e->steps[s % e->p.n_steps];
        if (t->n_in == 0 || t->n_out == 0) continue;
        uint32_t *out = &e->args[t->arg + t->n_in + draw(r, t->n_out)];
        const uint32_t in = e->args[t->arg + draw(r, t->n_in)], was = *out;
        if (in == ZX_NONE || was == ZX_NONE || in == was ||
            e->slots[in].bytes != e->slots[was].bytes || e->slots[in].kind != ZX_SLOT_VALUE)
            continue;
        if (draw(r, 2))
            for (uint32_t i = 0; i < e->p.n_args; i++) // wherever else it is read, too
                if (e->args[i] == was) e->args[i] = in;
        *out = in;
        return true;
    }
    return false;
}

typedef struct mutation {
    const char *name;
    uint32_t rules;                // of check.c, that it may break
    bool (*make)(edit *e, rng *r); // false: not in this plan
} mutation;

static const mutation mutations[] = {
    {"drop a wait", RULE(8) | RULE(9), drop_wait},
    {"drop a mark", RULE(6), drop_mark},
    {"drop a gather", RULE(9), drop_gather},
    {"drop a free", RULE(10), drop_free},
    {"drop a reduce", RULE(10), drop_reduce},
    {"drop a pack", RULE(9), drop_pack},
    {"drop an unpack", RULE(9), drop_unpack},
    {"drop a copy into the bucket", RULE(9), drop_bucket},
    {"drop a feed", RULE(9), drop_feed},
    {"drop an execution", RULE(10), drop_exec},
    {"drop loss, norm, update or commit", RULE(10), drop_end},
    {"drop any instruction", RULE(6) | RULE(10), drop_one},
    {"a transfer twice", RULE(9) | RULE(10), twice_transfer},
    {"another instruction twice", RULE(10), twice_compute},
    {"a transfer somewhere else too", RULE(8) | RULE(10), transfer_somewhere},
    {"swap two neighbours of a stream", RULE(7) | RULE(8) | RULE(9), swap_neighbours},
    {"move an instruction", RULE(7) | RULE(8) | RULE(9), move_one},
    {"move across the norm", RULE(10), across_the_norm},
    {"redirect a wait", RULE(7) | RULE(8), other_event},
    {"redirect a gather", RULE(9), other_gather},
    {"redirect a reduce", RULE(10), other_reduce},
    {"redirect a pack, unpack or bucket copy", RULE(9), other_copy},
    {"redirect a free, feed or loss", RULE(9), other_slot},
    {"redirect an execution", RULE(9) | RULE(10), other_step},
    {"redirect an update", RULE(10), other_unit},
    {"swap two launches", RULE(9) | RULE(10), swap_launches},
    {"swap two events", RULE(6) | RULE(7) | RULE(8), swap_events},
    {"wrong micro-batch", RULE(9), other_micro},
    {"wrong flag", RULE(10), other_flag},
    {"wrong member", RULE(5) | RULE(9), other_member},
    {"another instruction", RULE(5), other_kind},
    {"another stream", RULE(5), other_stream},
    {"another operand", RULE(5), other_operand},
    {"another reason", RULE(5), other_reason},
    {"free something", RULE(9), free_something},
    {"wait somewhere", RULE(7), wait_somewhere},
    {"a stream that runs on", RULE(7), run_on},
    {"hooks", RULE(5), hooks},
    {"shift an address", RULE(3) | RULE(8), shift_address},
    {"two slots at one address", RULE(3) | RULE(9), same_address},
    {"swap two addresses", RULE(3) | RULE(9), swap_addresses},
    {"an odd address", RULE(3), odd_address},
    {"shrink a slot", RULE(3), shrink_slot},
    {"grow a slot", RULE(3), grow_slot},
    {"a slot of another kind", RULE(3), other_slot_kind},
    {"a slot for something else", RULE(3), other_purpose},
    {"a part elsewhere", RULE(3) | RULE(9), part_elsewhere},
    {"another number", RULE(1), other_number},
    {"a unit cut or held otherwise", RULE(2), other_cut},
    {"swap two units' slots", RULE(2), swap_units},
    {"another launch", RULE(4), other_launch_row},
    {"another member", RULE(4) | RULE(9), other_member_row},
    {"another step", RULE(4) | RULE(9), other_step_row},
    {"another operand of a step", RULE(4) | RULE(9), other_arg},
    {"an operand of the same size", RULE(9), alike_arg},
    {"an output over an input", RULE(9), over_an_input},
};

#endif
