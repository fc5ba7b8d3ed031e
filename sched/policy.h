// policy.h - a Plan by the rules of any policy (policies.def), through one emitter and one
// simulator.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_POLICY_H
#define ZX_SCHED_POLICY_H

#include "graph/blocks.h"
#include "sched/hooks.h"
#include "sched/schedule.h"

typedef enum zx_policy_id {
#define ZX_POLICY(id, ...) ZX_POLICY_##id,
#include "sched/policies.def"
#undef ZX_POLICY
    ZX_POLICY_COUNT
} zx_policy_id;

typedef struct zx_policy_input {
    const zx_graph *train;
    const zx_plan_options *options; // stage is the policy's own row's: the caller's is ignored
    const zx_hooks *hooks;          // NULL: the file shows no modules (hooks_why says so)
    const char *hooks_why;
    zx_hook_limits limits; // of DeepSpeed's keys, for hooks; reduce_bucket also for zero1, zero2,
                           // deepcompile
    bool own_limits;       // nobody asked for a budget: limits stay as they are, whatever it is
    const zx_times *times; // measured, for the simulator; NULL
} zx_policy_input;

typedef struct zx_policy_result {
    zx_plan plan;    // simulated and, where it can be executed, checked
    bool over;       // arena_bytes > the budget
    char knobs[160]; // what a search chose: "prefetch 2e7, live 1e9, …"; limits that were lowered
                     // since they exceed the budget; "" where there is nothing to say
    uint32_t mended; // holds lengthened, because the executed graph reads a unit elsewhere
                     // than its module does
} zx_policy_result;

typedef struct zx_policy_row {
    const char *word, *form, *what;
    bool runs;
    uint32_t stage;
    zx_status (*make)(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                      const zx_plan_options *o, zx_arena *mem, zx_policy_result *out, zx_err *err);
} zx_policy_row;
extern const zx_policy_row zx_policies[ZX_POLICY_COUNT];

// The makers, one or more rows each.
#define ZX_POLICY(id, word, form, run, maker, stage, what)                                         \
    zx_status zx_policy_##maker(zx_policy_id id_, const zx_policy_input *in, const zx_trace *t,    \
                                const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,    \
                                zx_err *err);
#include "sched/policies.def"
#undef ZX_POLICY

// "hooks, as DeepSpeed"
const char *zx_policy_name(zx_policy_id id, zx_arena *mem);
// All rows of a word ("hooks" has two), in order; E_USAGE with the nearest word.
zx_status zx_policy_find(const char *word, zx_policy_id *out, uint32_t *n, zx_err *err);

// Makes the Plan of the first optimizer step in which the policy has settled. Where a policy's own
// limits exceed the budget it runs with the largest that fit (result.knobs); where none do, or it
// has none, in the reservation that it needs (result.over). zerox refuses a budget that nothing
// fits in.
zx_status zx_policy_plan(zx_policy_id id, const zx_policy_input *in, zx_arena *mem,
                         zx_policy_result *out, zx_err *err);

// For makers: finish, place within the budget as far as it goes, emit, simulate, check.
zx_status zx_policy_finish(zx_schedule *s, zx_policy_id id, const zx_policy_input *in,
                           zx_arena *mem, zx_policy_result *out, zx_err *err);

#endif
