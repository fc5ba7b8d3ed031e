// check_bounds.c - every index in a plan is of something that it has: what has to hold before it
// can be looked at at all, also without its graph (zerox diff).
// SPDX-License-Identifier: Apache-2.0
#include "sched/check.h"

#define BROKEN(...) ZX_FAIL(err, ZX_E_FORMAT, __VA_ARGS__)

static bool in_range(uint32_t from, uint32_t n, uint32_t of)
{
    return from <= of && n <= of - from;
}

static bool slot_or_none(const zx_plan *p, uint32_t slot)
{
    return slot == ZX_NONE || slot < p->n_slots;
}

static zx_status bound_slots(const zx_plan *p, zx_err *err)
{
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const zx_slot *s = &p->slots[i];
        uint32_t below = ZX_NONE;
        switch (s->kind) {
        case ZX_SLOT_PARAM:
        case ZX_SLOT_GRAD:
        case ZX_SLOT_MASTER:
        case ZX_SLOT_STATE:
        case ZX_SLOT_UNIT:
        case ZX_SLOT_PART:
            below = p->n_units;
            break;
        case ZX_SLOT_WORK:
            below = p->n_steps;
            break;
        case ZX_SLOT_FLAT:
            below = p->n_launches;
            break;
        default:
            if (s->kind > ZX_SLOT_PART || s->kind == ZX_SLOT_HELD) below = 0;
        }
        if (s->what >= below)
            return BROKEN("slot %u is for nothing that there is (kind %u, %u)", i, s->kind,
                          s->what);
    }
    return ZX_OK;
}

static zx_status bound_units(const zx_plan *p, zx_err *err)
{
    for (uint32_t i = 0; i < p->n_units; i++) {
        const zx_unit *u = &p->units[i];
        if (u->param_slot >= p->n_slots || !slot_or_none(p, u->grad_slot) ||
            !slot_or_none(p, u->master_slot) || !slot_or_none(p, u->state_slot[0]) ||
            !slot_or_none(p, u->state_slot[1]) || u->numel < 0 || u->shard < 0)
            return BROKEN("unit %u has slots that the plan hasn't", i);
    }
    return ZX_OK;
}

static zx_status bound_launches(const zx_plan *p, zx_err *err)
{
    for (uint32_t i = 0; i < p->n_members; i++) {
        const zx_member *m = &p->members[i];
        if (m->unit >= p->n_units || m->slot >= p->n_slots || !slot_or_none(p, m->part))
            return BROKEN("member %u of the launches is of no unit or slot", i);
    }
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const zx_launch *l = &p->launches[i];
        if (l->n_members == 0 || !in_range(l->member, l->n_members, p->n_members))
            return BROKEN("launch %u has no members, or more than there are", i);
        if (!slot_or_none(p, l->flat)) return BROKEN("launch %u goes through no flat slot", i);
    }
    return ZX_OK;
}

static zx_status bound_steps(const zx_plan *p, zx_err *err)
{
    for (uint32_t i = 0; i < p->n_args; i++)
        if (!slot_or_none(p, p->args[i]))
            return BROKEN("operand %u of the steps is a slot that the plan hasn't", i);
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const zx_plan_step *t = &p->steps[i];
        if (t->micro >= p->micro_batches) return BROKEN("step %u is of no node or micro-batch", i);
        if (!in_range(t->arg, t->n_in, p->n_args) ||
            !in_range(t->arg + t->n_in, t->n_out, p->n_args) || !slot_or_none(p, t->work))
            return BROKEN("step %u has operands that the plan hasn't", i);
    }
    return ZX_OK;
}

static bool operand_is(const zx_plan *p, uint32_t kind, uint32_t x)
{
    const uint32_t below[] = {
        [ZX_OPERAND_SLOT] = p->n_slots,      [ZX_OPERAND_MICRO] = p->micro_batches,
        [ZX_OPERAND_LAUNCH] = p->n_launches, [ZX_OPERAND_EVENT] = p->n_events,
        [ZX_OPERAND_STEP] = p->n_steps,      [ZX_OPERAND_FLAG] = 2,
        [ZX_OPERAND_UNIT] = p->n_units,      [ZX_OPERAND_BUFFER] = ZX_NONE, // of the graph
        [ZX_OPERAND_MEMBER] = p->n_members,  [ZX_OPERAND_NUMBER] = ZX_NONE,
    };
    return kind == ZX_OPERAND_NONE ? x == ZX_NONE : x < below[kind];
}

static zx_status bound_insns(const zx_plan *p, zx_err *err)
{
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        if (in->id >= ZX_INSN_COUNT)
            return BROKEN("instruction %u is none that there is (%u)", i, in->id);
        const zx_insn_row *row = &zx_insn_rows[in->id];
        const uint32_t x[3] = {in->a, in->b, in->c};
        for (uint32_t k = 0; k < 3; k++)
            if (!operand_is(p, row->kind[k], x[k]))
                return BROKEN("instruction %u (%s): operand %c is out of range (%u)", i, row->word,
                              "abc"[k], x[k]);
        if (in->id == ZX_I_BUCKET && in->b >= p->launches[in->a].n_members)
            return BROKEN("instruction %u (%s): launch %u has no member %u", i, row->word, in->a,
                          in->b);
        if (in->stream >= ZX_STREAM_COUNT)
            return BROKEN("instruction %u (%s) is on the wrong stream", i, row->word);
        if (in->by >= ZX_PASS_COUNT || (in->step != ZX_NONE && in->step >= p->n_steps))
            return BROKEN("instruction %u (%s) serves no pass or step that there is", i, row->word);
    }
    return ZX_OK;
}

zx_status zx_plan_bounds(const zx_plan *p, zx_err *err)
{
    if (p->ranks == 0 || p->micro_batches == 0)
        return BROKEN("a plan for %u ranks and %u micro-batches", p->ranks, p->micro_batches);
    if (p->stage > 3) return BROKEN("a plan for ZeRO stage %u", p->stage);
    if (p->optimizer_states > 2)
        return BROKEN("a plan for %u optimizer states", p->optimizer_states);
    if (p->n_events > p->n_insns || p->micro_batches > p->n_steps)
        return BROKEN("%u events and %u micro-batches are more than %u instructions and %u steps",
                      p->n_events, p->micro_batches, p->n_insns, p->n_steps);
    ZX_TRY(bound_slots(p, err));
    ZX_TRY(bound_units(p, err));
    ZX_TRY(bound_launches(p, err));
    ZX_TRY(bound_steps(p, err));
    return bound_insns(p, err);
}
