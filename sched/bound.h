// bound.h - seconds that no schedule of a training step takes less than: what tables of policies
// are measured against.
//
// It is true of every Plan of this train graph within the budget, of any stage, that adds gradients
// in the order in which zerox adds them (each reduced in its own micro-batch). Counted is only what
// every one of them has to do; the greatest of three rows is the bound:
//
// - compute: all executions, feeds, the norm and the updates of a rank's shards, one after the
//   other. Where bytes are moved by the rank's own cores, the work of moving and adding them is
//   shared by those cores with it; where engines of their own move them, compute is slower by the
//   machine's interference for as long as the wire is busy.
// - wire: each trained gradient reduced once a micro-batch; each trained parameter that is read
//   gathered once a step, since it changes in every step (in ddp the second half of its all-reduce
//   does that); and what is read again but can't have stayed. At any step of a micro-batch the
//   budget leaves some bytes beside the shards, the activations alive and the step's scratch: of
//   the parameters whose uses lie around that step, at most so many can be whole, the others are
//   gathered again. The worst step counts, once for uses within a micro-batch and once for those
//   around its end. Latency counts once for each collective that can't be merged with another.
// - path: after the norm nothing is whole but what was gathered since; so compute comes to a
//   parameter's first use no earlier than all that is used until then is gathered (where the budget
//   has room for ddp, whose parameters never leave, this isn't certain and isn't counted). Before
//   the norm, the gradients that become whole after any step of the last micro-batch are still to
//   be reduced.
//
// Not counted: copies beside the wire, room that is lost between addresses, gathers of parameters
// that aren't trained, waiting between the rows.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_BOUND_H
#define ZX_SCHED_BOUND_H

#include "sched/sched.h"

typedef struct zx_bound {
    double seconds;          // the greatest of compute, wire and path
    double compute, wire;    // seconds
    double path;             // compute alone, with start and tail
    double start, tail;      // of path: before compute can go on, after it has nothing left
    double moving;           // of compute: seconds of one thread that moves and adds bytes
    uint64_t wire_bytes;     // that a rank receives at least, and sends
    uint64_t regather_bytes; // of them: what can't stay whole
} zx_bound;

// `o` as for a plan; its stage doesn't matter. times: measured with communication off; NULL: the
// machine's model.
zx_status zx_bound_make(const zx_graph *train, const zx_plan_options *o, const zx_times *times,
                        zx_bound *out, zx_err *err);
// "compute", "wire", "start and tail": the row that binds.
const char *zx_bound_binds(const zx_bound *b);

#endif
