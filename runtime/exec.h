// exec.h - the inside of a session: what a plan becomes when it is opened, and the loop that runs
// it. Shared by session*.c and exec*.c alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_EXEC_H
#define ZX_RUNTIME_EXEC_H

#include <pthread.h>

#include "kernels/cpu/cpu.h"
#include "runtime/comm.h"
#include "runtime/session.h"

#define ZX_FAILURE_TEXT 256

// What a rank tells the others at NORM. After it in memory: double loss[micro_batches], double
// squares[units], and double count[micro_batches]: the labels in each loss, which then is a sum.
typedef struct zx_board {
    zx_fault fault;  // fault.step: of the plan
    uint32_t failed; // a kernel returned this status (zx_status) in step `failed_step`
    uint32_t failed_step;
    char failure[ZX_FAILURE_TEXT];
    double loss[]; // micro_batches, then squares[n_units], then count[micro_batches]
} zx_board;

// What a rank tells the others at the end of a step.
typedef struct zx_end_board {
    double seconds, compute_seconds, exposed_seconds;
    uint64_t peak_bytes;
    uint32_t stop;
    uint32_t unused;
} zx_end_board;

// One stream: its part of the plan's instructions, and where it is in them.
typedef struct zx_lane {
    struct zx_session *session;
    zx_stream id;
    uint32_t n_insns;
    const uint32_t *insns; // of plan->insns, in order
    pthread_t thread;      // of each but compute, which is the caller's
    bool started;
    zx_word go, done; // runs begun and ended
    uint64_t peak;    // highest end of a slot touched; read by compute once `done`
    bool broken;      // a rank was lost: nothing runs any more
    double compute_seconds, exposed_seconds; // of this run; compute only
    // Where times are taken: when the stream was done with what it was given so far, as a device's
    // stream would be (an emulated link's times, not those of threads that woke up); and when the
    // collective that it has just done was on the wire.
    double clock;
    zx_sent sent;
} zx_lane;

typedef enum zx_run_mode {
    ZX_RUN_STEP,
    ZX_RUN_LOOK
} zx_run_mode; // LOOK: no update; values looked at

// LOOK: the first bad value that a rank has seen, in the order of the plan's steps.
typedef struct zx_bad {
    uint32_t found, step; // found 1; plan step
    uint32_t value;       // of the graph: an output, or a tensor that came in bad
    bool unlabelled;      // it is a mean over no label: all are ignored
} zx_bad;
typedef struct zx_look {
    zx_bad nan, inf;
    zx_bad given;    // the first infinity that came in with data or a parameter, and went on
    bool finite;     // all inputs of the step about to run are
    uint32_t bad_in; // a tensor that no node made and that holds NaN already; ZX_NONE
    uint32_t inf_in; // an input or parameter that holds infinity already; ZX_NONE
} zx_look;

struct zx_session {
    const zx_backend *backend;
    struct zx_gpu *gpu; // what zx_backend_cuda has of this session
    const zx_graph *graph;
    const zx_plan *plan;
    zx_session_options o;
    zx_arena mem;
    uint32_t rank, ranks;
    float *seen;   // what zx_session_see has widened last
    zx_dtype half; // what elements of two bytes are, ZX_F16 or ZX_BF16; ZX_F32: there are none
    zx_patience patience, own; // own: for this rank's threads, ends without looking for peers
    const zx_transport *transport;
    zx_comm *comm;
    unsigned char **base; // [rank], as mapped here; NULL on a GPU, where only `mine` is
    unsigned char *mine;
    // Made when the session is opened:
    void **state;                         // by node: what prepare made
    const zx_kernel **kernel;             // by plan step
    zx_call *calls;                       // by plan step
    uint64_t *touch;                      // by instruction: highest end of the slots it touches
    bool *foreign;                        // by event: set by the gather or the reduce stream
    uint32_t *buffer_slot, *working_slot; // by buffer
    uint32_t last_commit;                 // instruction; ZX_NONE
    zx_lane lane[ZX_STREAM_COUNT];
    zx_word *events;          // by event: the last run in which it happened
    double *event_at;         // by event: when it did; kept where times are taken
    double *start, *seconds;  // by instruction, of the last run, from its begin; with o.profile
    zx_board *board, *boards; // mine; all ranks', board_bytes apart
    uint64_t board_bytes;
    zx_end_board *end_board, *end_boards;
    // Of the run in progress; written by the compute stream before the others go:
    uint32_t run; // counts; what events are compared with
    zx_run_mode mode;
    uint64_t step, first_micro;
    double lr;
    double scale;       // the loss scale that the seed holds
    bool timed;         // times are taken: a profile, or an emulated link that needs them
    double begin;       // when the run began
    double sum_seconds; // that its NORM took to sum squares
    zx_rng *rng;        // by micro-batch
    zx_fault fault;
    zx_err kernel_err;
    zx_err fatal; // why a run was lost, where it is this rank's own doing
    // What NORM decided:
    bool applied;
    double loss, norm;
    float grad_scale;
    double
        grad_factor; // of the accumulated gradient to the step's: 1, but where labels are counted
    zx_look look;
    _Atomic uint32_t stop;    // zx_session_ask_stop
    _Atomic uint32_t closing; // the streams' threads end
};

// ---- exec_prepare.c: calls, addresses, tables ---------------------------------------------------
zx_status zx_exec_prepare(zx_session *s, zx_err *err);
void zx_exec_release(zx_session *s);
// "node 'attn/Softmax' (h.3): Softmax", for messages.
const char *zx_exec_node_text(const zx_graph *g, const zx_node *n, zx_arena *mem);
// Runs prepare of one node's kernel; *state is the caller's to release.
zx_status zx_exec_prepare_node(const zx_site *site, const zx_graph *g, uint32_t node, int threads,
                               uint64_t *work_bytes, void **state, zx_err *err);

// ---- exec.c: the loop ---------------------------------------------------------------------------
zx_status zx_exec_start(zx_session *s, zx_err *err); // threads of the streams beside compute
void zx_exec_stop(zx_session *s);
bool zx_exec_run(zx_session *s); // the plan once; false: a rank is lost
// What the backends' loops share. At the begin of a run; a step's outcome, `fault` as its kernel
// left it; NORM, once all ranks' boards are there; UPDATE's numbers.
void zx_exec_begin(zx_session *s);
void zx_exec_note(zx_session *s, uint32_t step, zx_status st, const zx_err *err,
                  const zx_fault *fault);
void zx_exec_decide(zx_session *s);
zx_adam_args zx_exec_adam(const zx_session *s, const zx_unit *u);
zx_sgd_args zx_exec_sgd(const zx_session *s, const zx_unit *u);
zx_lion_args zx_exec_lion(const zx_session *s, const zx_unit *u);

// ---- exec_unit.c: what is done with a unit's elements, whatever their type ----------------------
// Squares of this rank's piece of its gradient, also where it holds all of it.
double zx_exec_square_sum(const zx_session *s, const zx_unit *u);
// The optimizer on what this rank has of its state.
void zx_exec_update(zx_session *s, const zx_unit *u);
// Writes the loss scale of the steps to come into the seed. False: the memory can't be written.
bool zx_exec_scale(zx_session *s, double scale);

// ---- exec_copy.c: flat slots --------------------------------------------------------------------
// A gather's members are to be units whole, in slots for that or where they are held.
static inline bool zx_launch_gathers(const zx_plan *p, const zx_launch *l)
{
    if (l->n_members == 0) return false;
    const uint32_t kind = p->slots[p->members[l->member].slot].kind;
    return kind == ZX_SLOT_UNIT || kind == ZX_SLOT_PARAM;
}
void zx_exec_pack(zx_session *s, const zx_launch *l);
void zx_exec_unpack(zx_session *s, const zx_launch *l);
void zx_exec_bucket(zx_session *s, const zx_member *m);

// ---- session_fill.c: first values ---------------------------------------------------------------
zx_status zx_exec_fill(zx_session *s, zx_err *err);
// What s->o.from holds instead. E_DEVICE: its plan holds something else.
zx_status zx_exec_take_over(zx_session *s, zx_err *err);

// ---- session_look.c -----------------------------------------------------------------------------
void zx_look_before(zx_session *s, uint32_t step); // around a plan step in LOOK mode
void zx_look_after(zx_session *s, uint32_t step);

static inline void *zx_slot_at(const zx_session *s, uint32_t slot)
{
    return s->mine + s->plan->slots[slot].offset;
}
// The type of an element of a unit that has so many bytes.
static inline zx_dtype zx_unit_type(const zx_session *s, uint32_t bytes)
{
    return bytes == sizeof(float) ? ZX_F32 : s->half;
}
// Labels in the loss of a micro-batch; where they aren't counted, 1.
static inline double *zx_board_count(const zx_session *s, zx_board *b, uint32_t micro)
{
    return &b->loss[s->plan->micro_batches + s->plan->n_units + micro];
}
static inline zx_board *zx_board_of(const zx_session *s, uint32_t rank)
{
    return (zx_board *)(void *)((unsigned char *)s->boards + rank * s->board_bytes);
}

#endif
