// test_check.c - each rule of the checker: a plan that breaks it, and the sentence that comes out.
// SPDX-License-Identifier: Apache-2.0
#include "tests/sched/check_plans.h"

// ---- 1: numbers
// ---------------------------------------------------------------------------------------
static void other_graph(edit *e)
{
    e->p.graph_hash++;
}
static void no_ranks(edit *e)
{
    e->p.ranks = 0;
}
static void stage_four(edit *e)
{
    e->p.stage = 4;
}
static void three_states(edit *e)
{
    e->p.optimizer_states = 3;
}
static void unit_missing(edit *e)
{
    e->p.n_units--;
}
static void over_budget(edit *e)
{
    e->p.budget = e->p.arena_bytes - 1;
}
static void endless_events(edit *e)
{
    e->p.n_events = UINT32_MAX;
}
static void endless_micro_batches(edit *e)
{
    e->p.micro_batches = UINT32_MAX;
}
// ---- 2: units
// -----------------------------------------------------------------------------------------
static void wrong_shard(edit *e)
{
    e->units[0].shard--;
}
static void units_swapped(edit *e)
{
    e->units[0].param = 1;
}
static void whole_in_stage_three(edit *e)
{
    e->units[0].param_whole = 1;
}
static void no_gradient_slot(edit *e)
{
    e->units[0].grad_slot = ZX_NONE;
}
static void one_slot_for_both_states(edit *e)
{
    e->units[0].state_slot[1] = e->units[0].state_slot[0];
}
static void short_shard(edit *e)
{
    e->slots[e->units[0].param_slot].bytes -= 4;
}
// ---- 3: slots
// -----------------------------------------------------------------------------------------
static void misaligned(edit *e)
{
    e->slots[find_slot(e, ZX_SLOT_VALUE, 0)].offset += 4;
}
static void past_the_peak(edit *e)
{
    e->slots[find_slot(e, ZX_SLOT_VALUE, 0)].offset = e->p.arena_bytes / 64 * 64;
}
static void past_the_end_of_numbers(edit *e)
{
    e->slots[find_slot(e, ZX_SLOT_VALUE, 0)].offset = UINT64_MAX - 63;
}
static void wrong_size(edit *e)
{
    e->slots[find_slot(e, ZX_SLOT_UNIT, 0)].bytes += 64;
}
static void for_nothing(edit *e)
{
    e->slots[find_slot(e, ZX_SLOT_VALUE, 0)].what = e->g->n_values;
}
static void unknown_kind(edit *e)
{
    e->slots[find_slot(e, ZX_SLOT_VALUE, 0)].kind = 99;
}
static void larger_than_its_slots(edit *e)
{
    e->p.arena_bytes += 64;
    e->p.budget = e->p.arena_bytes;
}
static void held_overlap(edit *e)
{
    e->slots[e->units[0].grad_slot].offset = e->slots[e->units[1].grad_slot].offset;
}
static void held_under_a_value(edit *e)
{
    e->slots[find_slot(e, ZX_SLOT_VALUE, 0)].offset = e->slots[e->units[0].grad_slot].offset;
}
// ---- 4: launches and steps
// ----------------------------------------------------------------------------
static void empty_launch(edit *e)
{
    e->launches[0].n_members = 0;
}
static void members_past_the_end(edit *e)
{
    e->launches[0].member = e->p.n_members;
}
static void member_of_no_unit(edit *e)
{
    e->members[0].unit = e->p.n_units;
}
static void step_of_no_node(edit *e)
{
    e->steps[0].node = e->g->n_nodes;
}
static void step_of_a_view(edit *e)
{
    for (uint32_t i = 0; i < e->g->n_nodes; i++)
        if (e->g->nodes[i].op == ZX_OP_RESHAPE) e->steps[0].node = i;
}
static void input_left_out(edit *e)
{
    e->args[e->steps[0].arg] = ZX_NONE;
}
static void args_past_the_end(edit *e)
{
    e->steps[0].arg = e->p.n_args;
}
static void other_number_of_inputs(edit *e)
{
    e->steps[0].n_in--;
}
// ---- 5 and 6: instructions and events
// -----------------------------------------------------------------
static void unknown_instruction(edit *e)
{
    e->insns[0].id = ZX_INSN_COUNT;
}
static void launch_out_of_range(edit *e)
{
    e->insns[find(e, ZX_I_GATHER, 0)].a = e->p.n_launches;
}
static void operand_too_many(edit *e)
{
    e->insns[find(e, ZX_I_EXEC, 0)].b = 0;
}
static void gather_on_compute(edit *e)
{
    e->insns[find(e, ZX_I_GATHER, 0)].stream = ZX_S_COMPUTE;
}
static void unknown_pass(edit *e)
{
    e->insns[0].by = 999;
}
static void event_twice(edit *e)
{
    e->insns[find(e, ZX_I_MARK, 1)].c = e->insns[find(e, ZX_I_MARK, 0)].c;
}
static void event_never(edit *e)
{
    drop(e, find(e, ZX_I_MARK, 0));
}
// ---- 7: order
// -----------------------------------------------------------------------------------------
static void cycle(edit *e)
{
    // The first mark comes only after what waits for it.
    e->insns[find_wait(e, ZX_S_COMPUTE, 0)].a = e->insns[find(e, ZX_I_GATHER, 0)].c;
    const uint32_t wait = find_wait(e, ZX_S_COMPUTE, 0);
    move(e, wait, find(e, ZX_I_MARK, 0));
}
static void not_joined(edit *e)
{
    const zx_insn mark = {ZX_I_MARK, ZX_S_REDUCE, 0, ZX_NONE, ZX_NONE, ZX_NONE, e->p.n_events++};
    insert(e, e->p.n_insns, mark);
}
// ---- 8: races
// -----------------------------------------------------------------------------------------
static void use_without_wait(edit *e)
{
    drop(e, find_wait(e, ZX_S_COMPUTE, 0));
}
// The nth wait that comes right before such an instruction on its stream.
static uint32_t find_wait_for(const edit *e, zx_insn_id id, uint32_t nth)
{
    for (uint32_t i = 0; i < e->p.n_insns; i++) {
        if (e->insns[i].id != id) continue;
        uint32_t k = i;
        while (k > 0 && e->insns[--k].stream != e->insns[i].stream) continue;
        if (e->insns[k].id == ZX_I_WAIT && e->insns[k].stream == e->insns[i].stream && nth-- == 0)
            return k;
    }
    fail_msg("no such wait");
    return 0;
}
static void gather_without_wait(edit *e)
{
    // The last gather is one that overwrites what compute has used.
    uint32_t last = 0;
    for (uint32_t i = 0; i < e->p.n_insns; i++)
        if (e->insns[i].id == ZX_I_GATHER) last = i;
    while (e->insns[last].id != ZX_I_WAIT || e->insns[last].stream != ZX_S_GATHER) last--;
    drop(e, last);
}
static void reduce_without_wait(edit *e)
{
    drop(e, find_wait_for(e, ZX_I_REDUCE, 0));
}
// ---- 9: what bytes hold
// -------------------------------------------------------------------------------
static void reads_another_value(edit *e)
{
    // A step that reads two different values gets the second one twice.
    for (uint32_t i = 0; i < e->p.n_steps; i++) {
        uint32_t *a = e->args + e->steps[i].arg;
        if (e->steps[i].n_in != 2 || a[0] == a[1] || e->slots[a[0]].kind != ZX_SLOT_VALUE ||
            e->slots[a[1]].kind != ZX_SLOT_VALUE || e->slots[a[0]].bytes != e->slots[a[1]].bytes)
            continue;
        a[0] = a[1];
        return;
    }
    fail_msg("no such step");
}
static void not_fed(edit *e)
{
    drop(e, find(e, ZX_I_FEED, 0));
}
static void fed_once_only(edit *e)
{
    drop(e, find(e, ZX_I_FEED, 1));
}
static void not_gathered(edit *e)
{
    const uint32_t gather = find(e, ZX_I_GATHER, 0);
    e->insns[gather].id = ZX_I_MARK;
    e->insns[gather].a = ZX_NONE;
}
static void other_shards_gathered(edit *e)
{
    const zx_launch *l = &e->launches[e->insns[find(e, ZX_I_GATHER, 0)].a];
    e->members[l->member + l->n_members - 1].unit ^= 1;
}
static void freed_too_early(edit *e)
{
    move(e, find(e, ZX_I_FEED, 0), 0);
    const uint32_t free_ = find(e, ZX_I_FREE, 0);
    uint32_t use = free_; // the step before
    while (e->insns[use].id != ZX_I_EXEC) use--;
    move(e, free_, use);
}
static void freed_twice(edit *e)
{
    zx_insn again = e->insns[find(e, ZX_I_FREE, 0)];
    again.c = e->p.n_events++;
    insert(e, find(e, ZX_I_FREE, 0) + 1, again);
}
static void frees_a_held_slot(edit *e)
{
    e->insns[find(e, ZX_I_FREE, 0)].a = e->units[0].param_slot;
}
static void gathered_over_an_activation(edit *e)
{
    // Over what the first step has made, which the backward reads: a unit that is no larger.
    const uint32_t first = find(e, ZX_I_EXEC, 0);
    const zx_plan_step *t = &e->steps[e->insns[first].a];
    const zx_slot *made = &e->slots[e->args[t->arg + t->n_in]];
    for (uint32_t i = first; i < e->p.n_insns; i++) {
        if (e->insns[i].id != ZX_I_GATHER) continue;
        const zx_launch *l = &e->launches[e->insns[i].a];
        for (uint32_t k = l->member; k < l->member + l->n_members; k++) {
            zx_slot *s = &e->slots[e->members[k].slot];
            if (s->bytes > made->bytes) continue;
            s->offset = made->offset;
            return;
        }
    }
    fail_msg("no such gather");
}
static void in_place_where_it_may_not(edit *e)
{
    // A product over its own first input.
    for (uint32_t i = 0; i < e->p.n_steps; i++) {
        const zx_plan_step *t = &e->steps[i];
        if (e->g->nodes[t->node].op != ZX_OP_MATMUL ||
            e->slots[e->args[t->arg]].kind != ZX_SLOT_VALUE)
            continue;
        e->args[t->arg + t->n_in] = e->args[t->arg];
        return;
    }
    fail_msg("no such step");
}
static void writes_a_parameter(edit *e)
{
    e->args[e->steps[0].arg + e->steps[0].n_in] = e->units[0].param_slot;
}
// ---- 10: all that has to happen
// -----------------------------------------------------------------------
static void not_executed(edit *e)
{
    uint32_t last = 0; // nobody reads what it makes
    for (uint32_t i = 0; i < e->p.n_insns; i++)
        if (e->insns[i].id == ZX_I_EXEC) last = i;
    drop(e, last);
}
static void executed_twice(edit *e)
{
    insert(e, find(e, ZX_I_EXEC, 0), e->insns[find(e, ZX_I_EXEC, 0)]);
}
static void not_reduced(edit *e)
{
    const uint32_t reduce = find(e, ZX_I_REDUCE, 0);
    e->insns[reduce].id = ZX_I_MARK;
    e->insns[reduce].a = e->insns[reduce].b = ZX_NONE;
}
static void reduced_too_often(edit *e)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < e->p.n_insns; i++)
        if (e->insns[i].id == ZX_I_REDUCE) last = i;
    zx_insn again = e->insns[last];
    again.c = e->p.n_events++;
    insert(e, last + 1, again);
}
static void reduced_before_it_is_made(edit *e)
{
    // The reduce waits for the mark of the first gather.
    e->insns[find_wait_for(e, ZX_I_REDUCE, 0)].a = e->insns[find(e, ZX_I_MARK, 0)].c;
}
static void first_is_added(edit *e)
{
    e->insns[find(e, ZX_I_REDUCE, 0)].b = 1;
}
static void second_is_written(edit *e)
{
    for (uint32_t i = 0; i < e->p.n_insns; i++)
        if (e->insns[i].id == ZX_I_REDUCE) e->insns[i].b = 0;
}
static void reduced_whole(edit *e)
{
    e->insns[find(e, ZX_I_REDUCE, 0)].id = ZX_I_ALLREDUCE;
}
static void loss_not_recorded(edit *e)
{
    drop(e, find(e, ZX_I_LOSS, 0));
}
static void loss_recorded_twice(edit *e)
{
    insert(e, find(e, ZX_I_LOSS, 0), e->insns[find(e, ZX_I_LOSS, 0)]);
}
static void loss_of_something_else(edit *e)
{
    e->insns[find(e, ZX_I_LOSS, 0)].a = find_slot(e, ZX_SLOT_VALUE, 0);
}
static void no_norm(edit *e)
{
    drop(e, find(e, ZX_I_NORM, 0));
}
static void norm_too_early(edit *e)
{
    move(e, find(e, ZX_I_NORM, 0), find(e, ZX_I_LOSS, 1) + 1);
}
static void norm_twice(edit *e)
{
    insert(e, find(e, ZX_I_NORM, 0), e->insns[find(e, ZX_I_NORM, 0)]);
}
static void not_updated(edit *e)
{
    drop(e, find(e, ZX_I_UPDATE, 0));
}
static void updated_twice(edit *e)
{
    insert(e, find(e, ZX_I_UPDATE, 0), e->insns[find(e, ZX_I_UPDATE, 0)]);
}
static void updated_before_the_norm(edit *e)
{
    move(e, find(e, ZX_I_UPDATE, 0), find(e, ZX_I_NORM, 0));
}
static void not_freed(edit *e)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < e->p.n_insns; i++)
        if (e->insns[i].id == ZX_I_FREE) last = i;
    drop(e, last);
}
static void gathered_twice(edit *e)
{
    uint32_t i = find(e, ZX_I_GATHER, 0);
    zx_insn again = e->insns[i];
    again.c = e->p.n_events++;
    insert(e, i + 1, again);
}
static void not_committed(edit *e)
{
    drop(e, find(e, ZX_I_COMMIT, 0));
}
static void committed_twice(edit *e)
{
    insert(e, find(e, ZX_I_COMMIT, 0), e->insns[find(e, ZX_I_COMMIT, 0)]);
}
static void committed_before_the_norm(edit *e)
{
    move(e, find(e, ZX_I_COMMIT, 0), find(e, ZX_I_NORM, 0));
}
static void working_copy_elsewhere(edit *e)
{
    for (uint32_t i = 0; i < e->p.n_steps; i++) {
        const zx_plan_step *t = &e->steps[i];
        if (e->g->nodes[t->node].op == ZX_OP_BATCH_NORM)
            e->args[t->arg + t->n_in + 1] = e->args[t->arg + t->n_in + 2];
    }
}
static void left_in_shards(edit *e)
{
    // The last launch is the gather after the update.
    uint32_t last = 0;
    for (uint32_t i = 0; i < e->p.n_insns; i++)
        if (e->insns[i].id == ZX_I_GATHER) last = i;
    e->insns[last].id = ZX_I_MARK;
    e->insns[last].a = ZX_NONE;
}
static void not_made_in_place(edit *e)
{
    // The gradient of the first unit goes to another value's slot.
    for (uint32_t i = 0; i < e->p.n_args; i++)
        if (e->args[i] == e->units[0].grad_slot) e->args[i] = e->units[2].grad_slot;
}

static const check_case cases[] = {
    {"a good plan of stage 3", SHARDED, none, NULL},
    {"a good plan of stage 2", SPREAD, none, NULL},
    {"a good plan for one rank", ALONE, none, NULL},
    {"another graph", SHARDED, other_graph, "made for another graph"},
    {"no ranks", SHARDED, no_ranks, "a plan for 0 ranks"},
    {"no such stage", SHARDED, stage_four, "a plan for ZeRO stage 4"},
    {"no such optimizer", SHARDED, three_states, "a plan for 3 optimizer states"},
    {"a unit is missing", SHARDED, unit_missing, "5 units for 6 parameters"},
    {"over the budget", SHARDED, over_budget, "its budget is"},
    {"more events than instructions", SHARDED, endless_events, "events and"},
    {"more micro-batches than steps", SHARDED, endless_micro_batches, "micro-batches are more"},
    {"a shard too short", SHARDED, wrong_shard, "in shards of"},
    {"units swapped", SHARDED, units_swapped, "in shards of"},
    {"whole where it should be sharded", SHARDED, whole_in_stage_three,
     "is not held as stage 3 says"},
    {"no slot for the gradient", SHARDED, no_gradient_slot, "no slot for its gradient"},
    {"one slot for both states", SHARDED, one_slot_for_both_states, "one slot for two optimizer"},
    {"a slot shorter than the shard", SHARDED, short_shard, "bytes for its values, it needs"},
    {"a slot that isn't aligned", SHARDED, misaligned, "is not aligned to 64"},
    {"a slot past the peak", SHARDED, past_the_peak, "ends after the reservation"},
    {"a slot past all addresses", SHARDED, past_the_end_of_numbers, "ends after the reservation"},
    {"a slot of another size", SHARDED, wrong_size, "should have"},
    {"a slot for no value", SHARDED, for_nothing, "is for nothing that there is"},
    {"a slot of no kind", SHARDED, unknown_kind, "is for nothing that there is"},
    {"a peak that no slot reaches", SHARDED, larger_than_its_slots, "the slots end at"},
    {"two held slots share bytes", SHARDED, held_overlap, "one of them lives across steps"},
    {"a value in a held slot", SHARDED, held_under_a_value, "one of them lives across steps"},
    {"a launch without members", SHARDED, empty_launch, "launch 0 has no members"},
    {"members past the end", SHARDED, members_past_the_end, "or more than there are"},
    {"a member of no unit", SHARDED, member_of_no_unit, "of no unit or slot"},
    {"a step of no node", SHARDED, step_of_no_node, "step 0 is of no node"},
    {"a step that executes a view", SHARDED, step_of_a_view, "which is a view"},
    {"an input left out", SHARDED, input_left_out, "input 0 of node"},
    {"operands past the end", SHARDED, args_past_the_end, "operands that the plan hasn't"},
    {"another number of inputs", SHARDED, other_number_of_inputs, "inputs and"},
    {"no such instruction", SHARDED, unknown_instruction, "is none that there is"},
    {"no such launch", SHARDED, launch_out_of_range, "operand a is out of range"},
    {"one operand too many", SHARDED, operand_too_many, "operand b is out of range"},
    {"a gather on the compute stream", SHARDED, gather_on_compute, "is on the wrong stream"},
    {"no such pass", SHARDED, unknown_pass, "serves no pass"},
    {"an event that happens twice", SHARDED, event_twice, "happens twice"},
    {"an event that never happens", SHARDED, event_never, "which never happens"},
    {"waits in a cycle", SHARDED, cycle, "waits for ever"},
    {"a stream that is still running", SHARDED, not_joined,
     "without waiting for the reduce stream"},
    {"a unit used before it is there", SHARDED, use_without_wait, "no event orders them"},
    {"a gather over bytes in use", SHARDED, gather_without_wait, "no event orders them"},
    {"a gradient reduced before it is there", SHARDED, reduce_without_wait, "reads '"},
    {"a step that reads another value", SHARDED, reads_another_value, "which holds '"},
    {"an input that isn't fed", SHARDED, not_fed, "reads 'x' of micro-batch 0"},
    {"an input that isn't fed again", SHARDED, fed_once_only, "reads 'x' of micro-batch 1"},
    {"a unit that isn't gathered", SHARDED, not_gathered, "reads the gathered"},
    {"a gather of other shards", SHARDED, other_shards_gathered, "which is not for it"},
    {"a unit freed too early", SHARDED, freed_too_early, "which holds freed bytes"},
    {"a unit freed twice", SHARDED, freed_twice, "where nothing was gathered"},
    {"a held slot freed", SHARDED, frees_a_held_slot, "which lives across steps"},
    {"a gather over an activation", SHARDED, gathered_over_an_activation, "no event orders them"},
    {"in place where the operator may not", SHARDED, in_place_where_it_may_not,
     "over bytes that it reads itself"},
    {"a step that writes a parameter", SHARDED, writes_a_parameter, "to slot 0 (parameter"},
    {"a node that isn't executed", SHARDED, not_executed, "is not executed in micro-batch 1"},
    {"a node executed twice", SHARDED, executed_twice, "has executed it already"},
    {"a gradient that isn't reduced", SHARDED, not_reduced,
     "has to write the gradient of micro-batch 0"},
    {"a gradient reduced too often", SHARDED, reduced_too_often, "once more than there are"},
    {"a gradient reduced before it is made", SHARDED, reduced_before_it_is_made, "reads '"},
    {"the first gradient is added", SHARDED, first_is_added, "has to write the gradient"},
    {"the second gradient is written", SHARDED, second_is_written, "has to add the gradient"},
    {"a shard reduced as a whole", SHARDED, reduced_whole, "is sharded"},
    {"a loss that isn't recorded", SHARDED, loss_not_recorded, "the loss of micro-batch 0 was not"},
    {"a loss recorded twice", SHARDED, loss_recorded_twice, "has recorded the loss"},
    {"another value recorded as the loss", SHARDED, loss_of_something_else,
     "which has another size"},
    {"no norm", SHARDED, no_norm, "comes before the norm"},
    {"the norm before the last reduce", SHARDED, norm_too_early, "reads the gradient of"},
    {"the norm twice", SHARDED, norm_twice, "the norm is taken once"},
    {"a parameter that isn't updated", SHARDED, not_updated, "is never updated"},
    {"a parameter updated twice", SHARDED, updated_twice, "a second time"},
    {"a parameter updated before the norm", SHARDED, updated_before_the_norm,
     "comes before the norm"},
    {"a gather that isn't freed", SHARDED, not_freed, "gathered and never freed"},
    {"a unit gathered over itself", SHARDED, gathered_twice, "a unit that was never freed"},
    {"a buffer that isn't committed", SPREAD, not_committed, "is never committed"},
    {"a buffer committed twice", SPREAD, committed_twice, "a second time"},
    {"a buffer committed before the norm", SPREAD, committed_before_the_norm,
     "comes before the norm"},
    {"a buffer's next value elsewhere", SPREAD, working_copy_elsewhere, "which is not for it"},
    {"parameters left in shards", SPREAD, left_in_shards, "but not gathered again"},
    {"a gradient made in another's place", ALONE, not_made_in_place, "(norm) reads '"},
};

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(cases)];
    for (size_t i = 0; i < ZX_COUNT(cases); i++)
        tests[i] = zx_case(cases[i].name, test_check, &cases[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
