// job_recompute.h - which parts of a job's train graph run again for the backward pass: as
// zerox.recompute or --recompute say, or as the budget asks for it (auto).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_JOB_RECOMPUTE_H
#define ZX_RUNTIME_JOB_RECOMPUTE_H

#include "graph/blocks.h"
#include "graph/recompute.h"
#include "runtime/world.h"
#include "sched/sched.h"

struct zx_job;

typedef struct zx_variant { // a train graph with some of its parts (graph/recompute.h) run again
    zx_recompute_kind kind;
    uint32_t n, n_parts;  // those that are, of how many; NONE: 0 of 0
    bool segments;        // its parts are no layers
    const bool *again;    // by part; NONE: NULL
    zx_graph train;       // as it is planned
    const uint32_t *from; // by node: the node of the job's `plain` that it is or repeats
} zx_variant;

// Reads zerox.recompute, --recompute and activation_checkpointing into the job, before the import.
zx_status zx_job_recompute(struct zx_job *job, zx_err *err);
// Of job->plain, by part: those that the job names, into its memory; NULL: it names none. E_USAGE
// for a name that no layer has.
zx_status zx_job_recompute_named(struct zx_job *job, const bool **again, zx_err *err);
// The layers that are recomputed whatever a plan says, by job->forward; NULL: none.
const zx_blocks *zx_job_recompute_blocks(struct zx_job *job, zx_blocks *out);

// Of job->plain; `again` of BLOCKS is by part. All that is made is in mem.
zx_status zx_variant_make(const struct zx_job *job, zx_recompute_kind kind, const bool *again,
                          zx_arena *mem, zx_variant *out, zx_err *err);
// As one word, for other ranks and for files: "none", "full", or a 1 for each part that runs again
// and a 0 for each other one. And back: E_USAGE for what isn't such a word of this model.
const char *zx_variant_word(const zx_variant *v, zx_arena *mem);
zx_status zx_variant_read(const struct zx_job *job, const char *word, zx_arena *mem,
                          zx_variant *out, zx_err *err);
// Rank 0's to all ranks, which make it for themselves where theirs is another one.
zx_status zx_variant_share(const struct zx_job *job, zx_world *w, zx_arena *mem, zx_variant *v,
                           zx_err *err);
// "3 of 12 layers recomputed", "every layer recomputed"; "" of none.
const char *zx_variant_text(const zx_variant *v, zx_arena *mem);
// What a planner is told of job->plain, told of the variant.
void zx_variant_options(const struct zx_job *job, const zx_variant *v, const zx_plan_options *plain,
                        zx_arena *mem, zx_plan_options *out);
// The job's graph is this one from now on. What it points to has to live as long.
void zx_job_take(struct zx_job *job, const zx_variant *v);

// auto: the variant whose plan is predicted to be fastest within the budget (of --budget min: that
// takes the fewest bytes), that plan, and what it was made from. `o` is of job->plain. As little as
// possible is recomputed: nothing where no budget was asked for and it fits. E_BUDGET where not
// even the whole model recomputed fits.
zx_status zx_job_choose(const struct zx_job *job, const zx_plan_options *o, zx_arena *mem,
                        zx_variant *out, zx_plan_options *with, zx_plan *plan, zx_err *err);
// The same for the job itself, which takes it; *o becomes what the plan was made from.
zx_status zx_job_choose_own(struct zx_job *job, zx_plan_options *o, zx_arena *mem, zx_plan *plan,
                            zx_err *err);

// Where not even that fits: the job takes the whole model recomputed, which needs the least.
void zx_job_choose_all(struct zx_job *job, zx_plan_options *o);

#endif
