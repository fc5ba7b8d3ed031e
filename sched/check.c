// check.c - proves a plan for a train graph. Nothing is believed, least of all a plan's own words:
//
//  1. The plan is for this graph, and its numbers make sense.
//  2. Every parameter is one unit, cut and held as the stage says.
//  3. Slots are aligned, have the size of what they are for, and lie in the reservation, which is
//     within the budget; those that live across steps share bytes with nobody.
//  4. Launches and steps refer to what there is; a step has the operands of its node.
//  5. Instructions have the operands that insns.def states, on the stream that may run them.
//  6. Each event happens once, and what is waited for happens.
// And by a run over the instructions (check_run.c):
//  7. Waits have no cycle; all streams are joined at the end, so two steps never overlap.
//  8. Two instructions that use the same bytes, one of them writing, are ordered by events.
//  9. Every read finds what it is meant to find, of the right micro-batch; bytes are rewritten only
//     after every reader of what they held is done; a step overwrites its input only where its
//     operator may.
// 10. Each node runs once a micro-batch; every gradient is reduced once a micro-batch, after it was
//     made, the first written and the others added in order (or made in place: one rank, one
//     micro-batch); losses are recorded; the norm comes after all of these, updates and commits
//     after the norm, once each; what is updated in shards is whole again; every gather is freed.
// No operand can depend on the rank: the plan has none, and all ranks compare its hash.
// SPDX-License-Identifier: Apache-2.0
#include "sched/check.h"

#include <inttypes.h>
#include <stdlib.h>

#define NONE ZX_OPERAND_NONE
#define SLOT ZX_OPERAND_SLOT
#define MICRO ZX_OPERAND_MICRO
#define LAUNCH ZX_OPERAND_LAUNCH
#define EVENT ZX_OPERAND_EVENT
#define STEP ZX_OPERAND_STEP
#define FLAG ZX_OPERAND_FLAG
#define UNIT ZX_OPERAND_UNIT
#define BUFFER ZX_OPERAND_BUFFER
#define MEMBER ZX_OPERAND_MEMBER
#define NUMBER ZX_OPERAND_NUMBER
const zx_insn_row zx_insn_rows[ZX_INSN_COUNT] = {
#define ZX_INSN(id, word, a, b, c, handler, what) [ZX_I_##id] = {word, {a, b, c}},
#include "sched/insns.def"
#undef ZX_INSN
};
#undef NONE
#undef SLOT
#undef MICRO
#undef LAUNCH
#undef EVENT
#undef STEP
#undef FLAG
#undef UNIT
#undef BUFFER
#undef MEMBER
#undef NUMBER

const char *const zx_stream_words[ZX_STREAM_COUNT] = {"compute", "gather", "reduce", "copy",
                                                      "bucket"};

// ---- sentences
// --------------------------------------------------------------------------------------------

static const char *value_name(const zx_check *c, uint32_t v)
{
    return zx_text_safe(c->mem, c->g->values[v].name);
}
static const char *param_name(const zx_check *c, uint32_t u)
{
    return zx_text_safe(c->mem, c->g->params[u].name);
}
static const char *buffer_name(const zx_check *c, uint32_t b)
{
    return zx_text_safe(c->mem, c->g->buffers[b].name);
}

const char *zx_check_insn_text(const zx_check *c, uint32_t i)
{
    if (i == ZX_NONE) return "the step before";
    const zx_insn *in = &c->p->insns[i];
    if (in->id == ZX_I_EXEC) {
        const zx_plan_step *t = &c->p->steps[in->a];
        return zx_arena_printf(c->mem, "instruction %u (exec '%s' of micro-batch %u)", i,
                               zx_text_safe(c->mem, c->g->nodes[t->node].name), t->micro);
    }
    return zx_arena_printf(c->mem, "instruction %u (%s)", i, zx_insn_rows[in->id].word);
}

const char *zx_check_content_text(const zx_check *c, const zx_content *x)
{
    switch ((zx_holds)x->holds) {
    case ZX_HOLDS_NOTHING:
        return "nothing whole";
    case ZX_HOLDS_FREED:
        return "freed bytes";
    case ZX_HOLDS_VALUE:
        return zx_arena_printf(c->mem, "'%s' of micro-batch %u", value_name(c, x->what),
                               x->version);
    case ZX_HOLDS_UNIT:
        return zx_arena_printf(c->mem, "the gathered '%s'%s", param_name(c, x->what),
                               x->version ? " as updated" : "");
    case ZX_HOLDS_PARAM:
        return zx_arena_printf(c->mem, "parameter '%s'%s", param_name(c, x->what),
                               x->version == 0   ? ""
                               : x->version == 1 ? " as updated"
                                                 : " as updated in this rank's shard");
    case ZX_HOLDS_GRAD:
        return zx_arena_printf(c->mem, "the gradient of '%s' after %u micro-batches",
                               param_name(c, x->what), x->version);
    case ZX_HOLDS_STATE:
        return zx_arena_printf(c->mem, "an optimizer state of '%s'", param_name(c, x->what));
    case ZX_HOLDS_BUFFER:
        return zx_arena_printf(c->mem, "buffer '%s'%s", buffer_name(c, x->what),
                               x->version ? " as committed" : "");
    case ZX_HOLDS_WORKING:
        return zx_arena_printf(c->mem, "buffer '%s' after %u micro-batches",
                               buffer_name(c, x->what), x->version);
    case ZX_HOLDS_CONST:
        return zx_arena_printf(c->mem, "constant '%s'", value_name(c, x->what));
    case ZX_HOLDS_WORK:
        return zx_arena_printf(c->mem, "scratch of step %u", x->what);
    }
    return "?";
}

const char *zx_check_slot_text(const zx_check *c, uint32_t slot)
{
    static const char *const words[] = {[ZX_SLOT_PARAM] = "parameter",
                                        [ZX_SLOT_GRAD] = "gradient",
                                        [ZX_SLOT_STATE] = "state",
                                        [ZX_SLOT_BUFFER] = "buffer",
                                        [ZX_SLOT_WORKING] = "buffer copy",
                                        [ZX_SLOT_CONST] = "constant",
                                        [ZX_SLOT_HELD] = "?",
                                        [ZX_SLOT_INPUT] = "input",
                                        [ZX_SLOT_UNIT] = "gathered unit",
                                        [ZX_SLOT_VALUE] = "value",
                                        [ZX_SLOT_WORK] = "scratch",
                                        [ZX_SLOT_MASTER] = "f32 copy",
                                        [ZX_SLOT_FLAT] = "flat buffer",
                                        [ZX_SLOT_BUCKET] = "bucket",
                                        [ZX_SLOT_PART] = "part of the bucket"};
    const zx_slot *s = &c->p->slots[slot];
    return zx_arena_printf(c->mem, "slot %u (%s, %" PRIu64 " bytes at %" PRIu64 ")", slot,
                           s->kind < ZX_COUNT(words) ? words[s->kind] : "?", s->bytes, s->offset);
}

// ---- 1: numbers
// -------------------------------------------------------------------------------------------

static zx_status check_numbers(const zx_check *c)
{
    const zx_plan *p = c->p;
    if (p->graph_hash != zx_graph_hash(c->g))
        return ZX_BROKEN(c, "the plan was made for another graph");
    if (p->ranks == 0 || p->micro_batches == 0)
        return ZX_BROKEN(c, "a plan for %u ranks and %u micro-batches", p->ranks, p->micro_batches);
    if (p->stage > 3) return ZX_BROKEN(c, "a plan for ZeRO stage %u", p->stage);
    if (p->optimizer_states > 2)
        return ZX_BROKEN(c, "a plan for %u optimizer states", p->optimizer_states);
    if (p->n_events > p->n_insns || p->micro_batches > p->n_steps)
        return ZX_BROKEN(
            c, "%u events and %u micro-batches are more than %u instructions and %u steps",
            p->n_events, p->micro_batches, p->n_insns, p->n_steps);
    if (p->n_units != c->g->n_params)
        return ZX_BROKEN(c, "%u units for %u parameters", p->n_units, c->g->n_params);
    if (c->g->loss == ZX_NONE) return ZX_BROKEN(c, "the graph has no loss");
    if (p->arena_bytes > p->budget)
        return ZX_BROKEN(c, "the plan takes %" PRIu64 " bytes, its budget is %" PRIu64,
                         p->arena_bytes, p->budget);
    return ZX_OK;
}

// ---- 2: units
// ---------------------------------------------------------------------------------------------

static zx_status check_unit_slot(const zx_check *c, uint32_t u, uint32_t slot, uint32_t kind,
                                 bool wanted, uint32_t whole, uint32_t size, const char *what)
{
    const zx_plan *p = c->p;
    if (!wanted && slot == ZX_NONE) return ZX_OK;
    if (!wanted || slot >= p->n_slots || p->slots[slot].kind != kind || p->slots[slot].what != u)
        return ZX_BROKEN(c, "parameter '%s' has %s slot for its %s", param_name(c, u),
                         wanted ? "no" : "a", what);
    const uint64_t elements = (uint64_t)p->units[u].shard * (whole ? p->ranks : 1);
    if (p->slots[slot].bytes != elements * size)
        return ZX_BROKEN(c, "parameter '%s' has %" PRIu64 " bytes for its %s, it needs %" PRIu64,
                         param_name(c, u), p->slots[slot].bytes, what, elements * size);
    return ZX_OK;
}

static zx_status check_units(const zx_check *c)
{
    const zx_plan *p = c->p;
    for (uint32_t i = 0; i < p->n_units; i++) {
        const zx_unit *u = &p->units[i];
        const zx_param *param = &c->g->params[i];
        const int64_t n = zx_shape_count(&c->g->values[param->value].type.shape);
        const int64_t shard = n / p->ranks + (n % p->ranks != 0);
        if (u->param != i || u->numel != n || u->shard != shard)
            return ZX_BROKEN(c,
                             "unit %u has %" PRId64 " elements in shards of %" PRId64
                             "; parameter '%s' has %" PRId64 " in shards of %" PRId64,
                             i, u->numel, u->shard, param_name(c, i), n, shard);
        if (u->param_whole != (p->stage < 3 || p->ranks == 1) || u->grad_whole != (p->stage < 2) ||
            u->state_whole != (p->stage < 1))
            return ZX_BROKEN(c, "parameter '%s' is not held as stage %u says", param_name(c, i),
                             p->stage);
        const bool trained = param->grad != ZX_NONE;
        ZX_TRY(check_unit_slot(c, i, u->param_slot, ZX_SLOT_PARAM, true, u->param_whole,
                               u->param_bytes, "values"));
        ZX_TRY(check_unit_slot(c, i, u->grad_slot, ZX_SLOT_GRAD, trained, u->grad_whole,
                               u->grad_bytes, "gradient"));
        for (uint32_t k = 0; k < 2; k++)
            ZX_TRY(check_unit_slot(c, i, u->state_slot[k], ZX_SLOT_STATE,
                                   trained && k < p->optimizer_states, u->state_whole, 4,
                                   "optimizer state"));
        if (u->state_slot[0] != ZX_NONE && u->state_slot[0] == u->state_slot[1])
            return ZX_BROKEN(c, "parameter '%s' has one slot for two optimizer states",
                             param_name(c, i));
    }
    return ZX_OK;
}

// ---- 3: slots
// ---------------------------------------------------------------------------------------------

// The bytes of what a slot is for, into *bytes; false where there is no such thing.
static bool slot_wants(const zx_check *c, uint32_t i, uint64_t *bytes)
{
    const zx_plan *p = c->p;
    const zx_graph *g = c->g;
    const zx_slot *s = &p->slots[i];
    *bytes = s->bytes;
    switch ((zx_slot_kind)s->kind) {
    case ZX_SLOT_PARAM:
        return s->what < p->n_units && p->units[s->what].param_slot == i;
    case ZX_SLOT_GRAD:
        return s->what < p->n_units && p->units[s->what].grad_slot == i;
    case ZX_SLOT_STATE:
        return s->what < p->n_units &&
               (p->units[s->what].state_slot[0] == i || p->units[s->what].state_slot[1] == i);
    case ZX_SLOT_BUFFER:
    case ZX_SLOT_WORKING:
        if (s->what >= g->n_buffers) return false;
        *bytes = zx_type_bytes(&g->values[g->buffers[s->what].value].type);
        return true;
    case ZX_SLOT_INPUT:
        if (s->what >= g->n_inputs) return false;
        *bytes = zx_type_bytes(&g->values[g->inputs[s->what]].type);
        return true;
    case ZX_SLOT_UNIT:
        if (s->what >= p->n_units) return false;
        *bytes = zx_unit_room(p, &p->units[s->what], 1) * p->units[s->what].param_bytes;
        return true;
    case ZX_SLOT_CONST:
    case ZX_SLOT_VALUE:
        if (s->what >= g->n_values) return false;
        if ((s->kind == ZX_SLOT_CONST) != (g->values[s->what].role == ZX_R_CONST)) return false;
        *bytes = zx_type_bytes(&g->values[s->what].type);
        return true;
    case ZX_SLOT_WORK:
        return s->what < p->n_steps;
    case ZX_SLOT_MASTER:
        return s->what < p->n_units && p->units[s->what].master_slot == i;
    case ZX_SLOT_FLAT:
    case ZX_SLOT_BUCKET:
    case ZX_SLOT_PART:
    case ZX_SLOT_HELD:
        break;
    }
    return false;
}

typedef struct extent {
    uint64_t from, to;
    uint32_t slot;
    bool held;
} extent;

static int by_from(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

// In order of address: a held slot meets neither the held nor the furthest of the others before it.
static zx_status check_held_apart(const zx_check *c)
{
    const zx_plan *p = c->p;
    extent *list = ZX_NEW(c->mem, extent, p->n_slots);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const zx_slot *s = &p->slots[i];
        if (s->bytes > 0)
            list[n++] = (extent){s->offset, s->offset + s->bytes, i, s->kind < ZX_SLOT_HELD};
    }
    qsort(list, n, sizeof *list, by_from);
    const extent *held = NULL, *any = NULL; // those so far that reach furthest
    for (uint32_t i = 0; i < n; i++) {
        const extent *before = list[i].held ? any : held;
        if (before && before->to > list[i].from)
            return ZX_BROKEN(c, "%s and %s share bytes; one of them lives across steps",
                             zx_check_slot_text(c, before->slot),
                             zx_check_slot_text(c, list[i].slot));
        if (!any || list[i].to > any->to) any = &list[i];
        if (list[i].held && (!held || list[i].to > held->to)) held = &list[i];
    }
    return ZX_OK;
}

static zx_status check_slots(zx_check *c)
{
    const zx_plan *p = c->p;
    uint64_t top = 0, held = 0;
    for (uint32_t b = 0; b < c->g->n_buffers; b++) c->buffer_slot[b] = c->working_slot[b] = ZX_NONE;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const zx_slot *s = &p->slots[i];
        uint64_t bytes, end;
        if (!slot_wants(c, i, &bytes))
            return ZX_BROKEN(c, "slot %u is for nothing that there is (kind %u, %u)", i, s->kind,
                             s->what);
        if (bytes != s->bytes)
            return ZX_BROKEN(c, "%s should have %" PRIu64 " bytes", zx_check_slot_text(c, i),
                             bytes);
        if (s->offset % ZX_ALIGN != 0)
            return ZX_BROKEN(c, "%s is not aligned to %d", zx_check_slot_text(c, i), ZX_ALIGN);
        if (!zx_add_u64(s->offset, s->bytes, &end) || end > p->arena_bytes)
            return ZX_BROKEN(c, "%s ends after the reservation of %" PRIu64 " bytes",
                             zx_check_slot_text(c, i), p->arena_bytes);
        if (s->bytes > 0 && end > top) top = end;
        if (s->kind < ZX_SLOT_HELD && !zx_add_u64(held, s->bytes, &held))
            return ZX_BROKEN(c, "the held slots' bytes overflow");
        if (s->kind == ZX_SLOT_BUFFER || s->kind == ZX_SLOT_WORKING) {
            uint32_t *one = s->kind == ZX_SLOT_BUFFER ? c->buffer_slot : c->working_slot;
            if (one[s->what] != ZX_NONE)
                return ZX_BROKEN(c, "buffer '%s' has two slots of a kind", buffer_name(c, s->what));
            one[s->what] = i;
        }
    }
    for (uint32_t b = 0; b < c->g->n_buffers; b++)
        if (c->buffer_slot[b] == ZX_NONE || c->working_slot[b] == ZX_NONE)
            return ZX_BROKEN(c, "buffer '%s' has no slot", buffer_name(c, b));
    if (top != p->arena_bytes || held != p->held_bytes)
        return ZX_BROKEN(c,
                         "the slots end at %" PRIu64 " and hold %" PRIu64
                         " bytes across steps, the plan says %" PRIu64 " and %" PRIu64,
                         top, held, p->arena_bytes, p->held_bytes);
    return check_held_apart(c);
}

// ---- 4: launches and steps
// --------------------------------------------------------------------------------

static bool in_range(uint32_t from, uint32_t n, uint32_t of)
{
    return from <= of && n <= of - from;
}

static zx_status check_launches(const zx_check *c)
{
    const zx_plan *p = c->p;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const zx_launch *l = &p->launches[i];
        if (l->n_members == 0 || !in_range(l->member, l->n_members, p->n_members))
            return ZX_BROKEN(c, "launch %u has no members, or more than there are", i);
    }
    for (uint32_t i = 0; i < p->n_members; i++) {
        const zx_member *m = &p->members[i];
        if (m->unit >= p->n_units || m->slot >= p->n_slots)
            return ZX_BROKEN(c, "member %u of the launches is of no unit or slot", i);
        if (p->units[m->unit].numel == 0)
            return ZX_BROKEN(c, "parameter '%s' has no elements, but is in a launch",
                             param_name(c, m->unit));
    }
    return ZX_OK;
}

static zx_status check_steps(const zx_check *c)
{
    const zx_plan *p = c->p;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const zx_plan_step *t = &p->steps[i];
        if (t->node >= c->g->n_nodes || t->micro >= p->micro_batches)
            return ZX_BROKEN(c, "step %u is of no node or micro-batch", i);
        const zx_node *n = &c->g->nodes[t->node];
        const char *name = zx_text_safe(c->mem, n->name);
        if (!zx_node_runs(n))
            return ZX_BROKEN(c, "step %u executes '%s', which is a view", i, name);
        if (t->n_in != n->n_in || t->n_out != n->n_out)
            return ZX_BROKEN(c, "step %u has %u inputs and %u outputs, node '%s' has %u and %u", i,
                             t->n_in, t->n_out, name, n->n_in, n->n_out);
        if (!in_range(t->arg, t->n_in, p->n_args) ||
            !in_range(t->arg + t->n_in, t->n_out, p->n_args) ||
            (t->work != ZX_NONE && t->work >= p->n_slots))
            return ZX_BROKEN(c, "step %u has operands that the plan hasn't", i);
        for (uint32_t k = 0; k < t->n_in + t->n_out; k++) {
            const uint32_t slot = p->args[t->arg + k];
            const bool is_in = k < t->n_in;
            const uint32_t v = is_in ? zx_node_in(c->g, n, k) : zx_node_out(c->g, n, k - t->n_in);
            if (slot != ZX_NONE && slot >= p->n_slots)
                return ZX_BROKEN(c, "step %u has operands that the plan hasn't", i);
            if ((slot != ZX_NONE && v == ZX_NONE) ||
                (slot == ZX_NONE && v != ZX_NONE && (is_in || k == t->n_in)))
                return ZX_BROKEN(c, "step %u: %s %u of node '%s' is %s", i,
                                 is_in ? "input" : "output", is_in ? k : k - t->n_in, name,
                                 slot == ZX_NONE ? "missing" : "omitted, but has a slot");
        }
    }
    return ZX_OK;
}

// ---- 5 and 6: instructions and events
// ---------------------------------------------------------------------

static const uint8_t stream_of[ZX_INSN_COUNT] = {
    // ZX_STREAM_COUNT: any
    [ZX_I_FEED] = ZX_S_COMPUTE,    [ZX_I_GATHER] = ZX_S_GATHER,    [ZX_I_EXEC] = ZX_S_COMPUTE,
    [ZX_I_REDUCE] = ZX_S_REDUCE,   [ZX_I_ALLREDUCE] = ZX_S_REDUCE, [ZX_I_FREE] = ZX_S_COMPUTE,
    [ZX_I_MARK] = ZX_STREAM_COUNT, [ZX_I_WAIT] = ZX_STREAM_COUNT,  [ZX_I_LOSS] = ZX_S_COMPUTE,
    [ZX_I_HOOK] = ZX_S_COMPUTE,    [ZX_I_PACK] = ZX_STREAM_COUNT,  [ZX_I_UNPACK] = ZX_S_COPY,
    [ZX_I_BUCKET] = ZX_S_BUCKET,   [ZX_I_NORM] = ZX_S_COMPUTE,     [ZX_I_UPDATE] = ZX_S_COMPUTE,
    [ZX_I_COMMIT] = ZX_S_COMPUTE,
};

static bool operand_is(const zx_check *c, uint32_t kind, uint32_t x)
{
    const zx_plan *p = c->p;
    const uint32_t below[] = {
        [ZX_OPERAND_SLOT] = p->n_slots,      [ZX_OPERAND_MICRO] = p->micro_batches,
        [ZX_OPERAND_LAUNCH] = p->n_launches, [ZX_OPERAND_EVENT] = p->n_events,
        [ZX_OPERAND_STEP] = p->n_steps,      [ZX_OPERAND_FLAG] = 2,
        [ZX_OPERAND_UNIT] = p->n_units,      [ZX_OPERAND_BUFFER] = c->g->n_buffers,
        [ZX_OPERAND_MEMBER] = p->n_members,  [ZX_OPERAND_NUMBER] = ZX_NONE,
    };
    return kind == ZX_OPERAND_NONE ? x == ZX_NONE : x < below[kind];
}

static zx_status check_insns(const zx_check *c)
{
    const zx_plan *p = c->p;
    uint32_t *by =
        ZX_NEW(c->mem, uint32_t, p->n_events); // the instruction that makes it happen, plus one
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        if (in->id >= ZX_INSN_COUNT)
            return ZX_BROKEN(c, "instruction %u is none that there is (%u)", i, in->id);
        const zx_insn_row *row = &zx_insn_rows[in->id];
        const uint32_t x[3] = {in->a, in->b, in->c};
        for (uint32_t k = 0; k < 3; k++)
            if (!operand_is(c, row->kind[k], x[k]))
                return ZX_BROKEN(c, "instruction %u (%s): operand %c is out of range (%u)", i,
                                 row->word, "abc"[k], x[k]);
        if (in->stream >= ZX_STREAM_COUNT ||
            (stream_of[in->id] != ZX_STREAM_COUNT && in->stream != stream_of[in->id]))
            return ZX_BROKEN(c, "instruction %u (%s) is on the wrong stream", i, row->word);
        if (in->by >= ZX_PASS_COUNT || (in->step != ZX_NONE && in->step >= p->n_steps))
            return ZX_BROKEN(c, "instruction %u (%s) serves no pass or step that there is", i,
                             row->word);
        if (in->c == ZX_NONE) continue;
        if (by[in->c] != 0)
            return ZX_BROKEN(c, "event %u happens twice: %s and %s", in->c,
                             zx_check_insn_text(c, by[in->c] - 1), zx_check_insn_text(c, i));
        by[in->c] = i + 1;
    }
    for (uint32_t i = 0; i < p->n_insns; i++)
        if (p->insns[i].id == ZX_I_WAIT && by[p->insns[i].a] == 0)
            return ZX_BROKEN(c, "%s waits for event %u, which never happens",
                             zx_check_insn_text(c, i), p->insns[i].a);
    return ZX_OK;
}

// ---- all of it
// --------------------------------------------------------------------------------------------

static zx_status check_all(zx_check *c)
{
    ZX_TRY(check_numbers(c));
    const zx_graph *g = c->g;
    c->root = zx_trace_roots(g, c->mem);
    uint32_t *next_of = ZX_NEW(c->mem, uint32_t, g->n_values);
    for (uint32_t v = 0; v < g->n_values; v++) next_of[v] = ZX_NONE;
    for (uint32_t b = 0; b < g->n_buffers; b++) {
        const zx_buffer *x = &g->buffers[b];
        if (x->next != ZX_NONE && g->values[c->root[x->next]].role == ZX_R_MADE)
            next_of[c->root[x->next]] = b;
    }
    c->next_of = next_of;
    c->buffer_slot = ZX_NEW(c->mem, uint32_t, g->n_buffers);
    c->working_slot = ZX_NEW(c->mem, uint32_t, g->n_buffers);
    ZX_TRY(check_units(c));
    ZX_TRY(check_slots(c));
    ZX_TRY(check_launches(c));
    ZX_TRY(check_steps(c));
    ZX_TRY(check_insns(c));
    return zx_check_run(c);
}

zx_status zx_plan_check(const zx_graph *train, const zx_plan *p, zx_err *err)
{
    zx_arena mem = {0};
    zx_check c = {.g = train, .p = p, .mem = &mem, .err = err};
    const zx_status st = check_all(&c);
    zx_arena_free(&mem);
    return st;
}
