// session.h - a training run on one rank: a train graph, its Plan, memory, kernels and streams.
//
// zx_session_open checks the plan, reserves the memory, fills parameters, buffers and constants and
// prepares every kernel; after that zx_session_step runs one optimizer step by executing the plan,
// allocating nothing. All ranks call the same functions in the same order. A world may have several
// sessions, of other plans too; those that aren't in a step sleep.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_SESSION_H
#define ZX_RUNTIME_SESSION_H

#include "graph/graph.h"
#include "runtime/backend.h"
#include "runtime/schedule_lr.h"
#include "runtime/world.h"
#include "sched/sched.h"

typedef struct zx_session zx_session;

typedef enum zx_optim_kind { ZX_OPTIM_ADAM, ZX_OPTIM_SGD, ZX_OPTIM_LION } zx_optim_kind;
typedef struct zx_optim {
    zx_optim_kind kind;
    double lr, beta1, beta2, eps, weight_decay; // Adam; Lion without eps
    bool decoupled, bias_correction;            // AdamW; false: L2
    double momentum, dampening;                 // SGD
    bool nesterov;
    zx_lr_schedule schedule; // of lr, which sessions are given, and of the betas
} zx_optim;
uint32_t zx_optim_states(const zx_optim *o); // floats kept per parameter: 0, 1 or 2
// What the optimizer does differently with a parameter: its rate is lr_factor times the step's.
typedef struct zx_param_rate {
    double lr_factor, weight_decay;
} zx_param_rate;

// Where micro-batches come from: writes `input` (index into graph->inputs) of the micro-batch with
// global index `micro` into `to`, which has the input's bytes. Called from the compute stream's
// thread; must not allocate. Never fails: data was checked when it was opened.
typedef struct zx_feed {
    void (*fill)(const void *self, uint32_t input, uint64_t micro, void *to);
    const void *self;
} zx_feed;

// What a session holds between two steps and a checkpoint keeps: of a unit of its plan the
// parameter (in float32, where it is kept so too) and optimizer states, and buffers of the graph.
typedef enum zx_held_kind {
    ZX_HELD_PARAM,
    ZX_HELD_STATE_0,
    ZX_HELD_STATE_1,
    ZX_HELD_BUFFER
} zx_held_kind;
typedef struct zx_held {
    zx_held_kind kind;
    uint32_t index; // unit, or buffer
} zx_held;

// First values from elsewhere: elements [from, from + n) of a tensor in its own type. A rank asks
// for what it holds and no more.
typedef struct zx_values {
    bool (*has)(const void *self, zx_held what); // NULL: all. What it hasn't is as without them
    zx_status (*read)(const void *self, zx_held what, int64_t from, int64_t n, void *to,
                      zx_err *err);
    const void *self;
} zx_values;

typedef struct zx_session_options {
    zx_world *world;
    zx_site site;     // outlives the session
    uint32_t threads; // compute threads of this rank
    uint64_t seed;    // of dropout
    zx_optim optim;
    const zx_param_rate *rates; // by parameter; outlives the session; NULL: all as optim says
    double clip;                // gradient_clipping; 0: none
    // Where the graph's loss is [sum, count of labels] (graph/count_loss.h): the labels that its
    // gradient is averaged over as the graph was differentiated; the step's is over those that it
    // has. 0: as it is.
    double labels;
    zx_feed feed;
    // An emulated link, where either is above 0 (comm_wire.h): bytes a second of a rank in each
    // direction (0: no limit), and seconds that each collective takes beside.
    double bandwidth, latency_seconds;
    double timeout_seconds; // without anything happening on a GPU: the run is given up; 0: never
    bool any_order;         // sums over ranks by NCCL, in an order of its own; else in rank order
    bool by_host_memory;    // ranks on GPUs exchange through the host's memory, not by NCCL
    bool serial;     // one instruction at a time, in plan order: nothing takes another's cores
    bool profile;    // instructions' times are kept: zx_session_profile
    bool poison;     // freed slots are filled with NaN
    bool touch;      // all of the plan's memory is there before the first step, not by and by
    bool dump_grads; // keep the first step's averaged gradients until read
    // The session that this one goes on from, between two of its steps: parameters, states and
    // buffers are taken over bit by bit in place of first values. Its plan holds the same as this
    // one's, and it is to be closed next. NULL: there is none.
    const zx_session *from;
    zx_values values; // in place of the graph's own first values; zeroed: those
} zx_session_options;

// Scratch by node for a plan: work_bytes[graph->n_nodes] is filled. Needs no session: rank 0 plans
// with it. The first is of this host's cores.
zx_status zx_session_work_bytes(const zx_graph *train, uint32_t threads, uint64_t *work_bytes,
                                zx_err *err);
zx_status zx_session_work_bytes_at(const zx_site *site, const zx_graph *train, uint32_t threads,
                                   uint64_t *work_bytes, zx_err *err);
// Of one node.
zx_status zx_session_node_work(const zx_site *site, const zx_graph *train, uint32_t node,
                               uint32_t threads, uint64_t *bytes, zx_err *err);

zx_status zx_session_open(const zx_graph *train, const zx_plan *plan, const zx_session_options *o,
                          zx_session **out, zx_err *err);
// Whether nothing can be done with it but to close it.
bool zx_session_lost(const zx_session *s);
void zx_session_close(zx_session *s); // accepts NULL; also what was reserved for it is given back

typedef struct zx_step_report {
    double loss;       // mean over all micro-batches of all ranks, or all labels (o.labels)
    double grad_norm;  // global 2-norm before clipping
    bool applied;      // false: not finite, nothing was changed
    double loss_scale; // that its gradients were made with; loss and grad_norm are without it
    bool stop;         // some rank was asked to stop (zx_session_ask_stop)
    double seconds, compute_seconds,
        exposed_seconds; // wall; compute stream in kernels; compute
                         // stream waiting for gather or reduce events (slowest rank)
    uint64_t peak_bytes; // highest end of any slot touched so far, largest over ranks
} zx_step_report;

// Runs step `step` (0, 1, ...: counts applied optimizer steps for bias correction and random draws)
// on the micro-batches first_micro + i*ranks + rank. A label out of range and the like is E_DATA
// with the node; a peer's death E_COMM. Not finite: ZX_OK with applied false.
zx_status zx_session_step(zx_session *s, uint64_t step, uint64_t first_micro, double lr,
                          zx_step_report *out, zx_err *err);

// After a step that wasn't applied: runs it again without UPDATE and COMMIT, looking after every
// node, and puts the sentence for the first bad one into err ("step 12: NaN first in node 'x'
// ...", of `step` 11).
zx_status zx_session_explain_nonfinite(zx_session *s, uint64_t step, uint64_t first_micro,
                                       zx_err *err);

// What the gradients of the steps to come are multiplied by as they are made (fp16: so that small
// ones don't become 0), and divided by again where they are used; 1 before. All ranks the same.
zx_status zx_session_scale(zx_session *s, double scale, zx_err *err);

void zx_session_ask_stop(zx_session *s); // async-signal-safe

// When the instructions of the last step ran on this rank: seconds since its begin, and how long,
// as zx_plan.start and .seconds are; a collective's are those on the wire. False without o.profile.
// Valid until the next step.
bool zx_session_profile(const zx_session *s, const double **start, const double **seconds);

// After a step: the loss of a rank's micro-batch, and 1; where labels are counted, the sum over its
// labels and their number.
void zx_session_loss(const zx_session *s, uint32_t rank, uint32_t micro, double *sum,
                     double *labels);

// After a step, of n parameters of the graph: the 2-norms of their values as they are now and of
// the step's averaged gradients before clipping, from the ranks' shards. All ranks call, with the
// same parameters; each gets the same bits, whatever the stage.
zx_status zx_session_norms(zx_session *s, uint32_t n, const uint32_t *params, double *weights,
                           double *grads, zx_err *err);

// Values that `to` has of its own are those of `from` from now on: params[] and buffers[] say which
// of from's each of to's is (ZX_NONE: it stays). Both plans keep parameters whole, or both shards.
// All ranks call; afterwards all have them.
zx_status zx_session_copy(zx_session *to, zx_session *from, const uint32_t *params,
                          const uint32_t *buffers, zx_err *err);

// What the simulator wants to know of this machine: how long things take with all ranks at work
// and nobody communicating meanwhile. A turn is a step of the plan in a serial session of its own,
// and copies and additions out of the ranks' reservations; of the first `turns` that are to be kept
// the times are made: the slowest rank's medians, the same on every rank; out's arrays are in mem.
// o's link doesn't matter. Takes zx_measuring_bytes of a rank's memory.
typedef struct zx_measuring zx_measuring;
zx_status zx_measuring_open(const zx_graph *train, const zx_plan *plan, const zx_session_options *o,
                            uint32_t turns, zx_measuring **out, zx_err *err);
zx_status zx_measuring_turn(zx_measuring *m, bool kept, zx_err *err);
zx_status zx_measuring_times(zx_measuring *m, zx_arena *mem, zx_times *out, zx_err *err);
// Each turn by itself, ranks apart: out is [turns][ranks], in mem.
zx_status zx_measuring_turns(zx_measuring *m, zx_arena *mem, const zx_times **out, uint32_t *turns,
                             zx_err *err);
// For a run that goes on (o->from): its own steps are made in this session, each with a note of it
// in place of a turn. Medians: of each time and rate, over the ranks; no note comes after them.
zx_session *zx_measuring_session(zx_measuring *m);
zx_status zx_measuring_note(zx_measuring *m, bool kept, zx_err *err);
zx_status zx_measuring_medians(zx_measuring *m, zx_arena *mem, zx_times *out, zx_err *err);
void zx_measuring_close(zx_measuring *m); // NULL: nothing
static inline uint64_t zx_measuring_bytes(const zx_plan *plan)
{
    return plan->arena_bytes + plan->arena_bytes / 2;
}
// All of it at once: a turn that warms up, and `steps` that are kept.
zx_status zx_session_measure(const zx_graph *train, const zx_plan *plan,
                             const zx_session_options *o, uint32_t steps, zx_arena *mem,
                             zx_times *out, zx_err *err);

// Whole tensors for saving. All ranks call; on rank 0 elements [from, from+n) of the parameter,
// of its gradient as of NORM in the first step (dump_grads), or of the buffer are written to `out`.
// Of a parameter of 16 bits PARAM is the float32 copy, KEPT what steps read; gradients are float32,
// without the loss scale.
typedef enum zx_read_kind {
    ZX_READ_PARAM,
    ZX_READ_GRAD,
    ZX_READ_BUFFER,
    ZX_READ_KEPT
} zx_read_kind;
zx_status zx_session_read(zx_session *s, zx_read_kind kind, uint32_t index, int64_t from, int64_t n,
                          void *out, zx_err *err);

// Elements [from, from + n) of what this rank holds, as they are between two steps, until the next
// call; of what is cut they lie in this rank's shard. Not collective. NULL: the device has failed.
const void *zx_session_see(zx_session *s, zx_held what, int64_t from, int64_t n);

#endif
