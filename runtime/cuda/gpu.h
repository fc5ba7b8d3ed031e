// gpu.h - a session on a GPU: what backend_cuda.c opens, exec_cuda.c runs and its collectives use.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CUDA_GPU_H
#define ZX_RUNTIME_CUDA_GPU_H

#include "kernels/cuda/cuda.h"
#include "runtime/exec.h"

typedef struct zx_gpu_link zx_gpu_link;

// Collectives as the loop sees them: queued on a stream, each as sched/insns.def says. False: no,
// and why is in s->fatal.
typedef struct zx_gpu_comm {
    const char *name;
    // Bytes of device memory that they want beside the plan's.
    uint64_t (*scratch)(const zx_session *s);
    zx_status (*open)(zx_session *s, void *scratch, zx_gpu_link **out, zx_err *err);
    // `broken`: whatever is queued is given up.
    void (*close)(zx_gpu_link *k, bool broken); // accepts NULL
    bool (*gather)(zx_session *s, uint32_t at, const zx_launch *l, cudaStream_t q);
    // all: an all-reduce
    bool (*reduce)(zx_session *s, uint32_t at, const zx_launch *l, bool add, bool all,
                   cudaStream_t q);
    bool (*mean)(zx_session *s, uint32_t at, uint32_t from, uint32_t to, const zx_type *type,
                 cudaStream_t q);
    // Whether what is queued is well. E_COMM: it isn't.
    zx_status (*check)(zx_gpu_link *k, zx_err *err);
} zx_gpu_comm;

extern const zx_gpu_comm zx_gpu_alone; // one rank
extern const zx_gpu_comm zx_gpu_nccl;
extern const zx_gpu_comm zx_gpu_staged; // by the host's memory

typedef struct zx_gpu {
    const struct zx_cuda *at;
    cudaStream_t stream[ZX_STREAM_COUNT]; // compute is at->stream
    cudaEvent_t *event;                   // by event of the plan
    cudaEvent_t *done;                    // by instruction; NULL where it queues nothing
    cudaEvent_t *begun;                   // likewise where times are taken, else NULL
    cudaEvent_t first, last;              // of a run, on compute
    // Pinned: what comes from the host and goes to it.
    unsigned char *pinned;
    zx_fault *faults; // by plan step
    float *loss;      // by micro-batch: it, and the labels in it where they are counted
    double *squares;  // by unit
    uint64_t *fed_at; // by instruction: where in `fed` its input is made
    unsigned char *fed;
    unsigned char *stage; // pinned, a window's bytes: values on their way in or out
    unsigned char *shown; // see()
    uint64_t shown_bytes;
    // Device memory behind the plan's.
    double *sums, *work;
    const zx_gpu_comm *comm;
    zx_gpu_link *link;
    unsigned char **window; // host memory of each rank, for fetch; NULL: one rank
    // Of a run: by stream, how many of its instructions are queued, and known to be done.
    uint32_t queued[ZX_STREAM_COUNT], reached[ZX_STREAM_COUNT];
    double moved;     // when the last one was found done
    uint32_t last_at; // the instruction that was queued last, or is being queued
    bool opening;     // what first values, or runs, need is being made
    bool open;        // a run was begun
    bool running;     // within a run
    bool serial;      // each instruction is waited for
} zx_gpu;

#define ZX_GPU_WINDOW ((uint64_t)1 << 20)

// ---- comm_sum.c: what collectives share ---------------------------------------------------------
// Elements of a unit in a slot of it, from `at` on; `bytes` each.
static inline unsigned char *zx_gpu_element(const zx_session *s, uint32_t slot, int64_t at,
                                            uint32_t bytes)
{
    return (unsigned char *)zx_slot_at(s, slot) + at * (int64_t)bytes;
}
// A row of a launch has a shard of each member, padded, in the type that parameters and gradients
// travel in: bytes of one of them, and of all.
uint64_t zx_gpu_place(const zx_unit *u);
uint64_t zx_gpu_row(const zx_plan *p, const zx_launch *l);
// Where this rank has what rank r is to add up of a member, whose piece begins at element `from`.
const void *zx_gpu_operand(const zx_session *s, const zx_launch *l, const zx_member *m, uint32_t r,
                           int64_t from);
// Adds up this rank's pieces: `rows` has one row a rank.
bool zx_gpu_add_up(zx_session *s, uint32_t at, const zx_launch *l, const unsigned char *rows,
                   bool add, cudaStream_t q);

// ---- fault.c ------------------------------------------------------------------------------------
// Each keeps why the run is lost, the first time, and returns false. `at`: the instruction whose
// call failed; ZX_NONE: none.
bool zx_gpu_fail(zx_session *s, uint32_t at, const zx_err *why);
bool zx_gpu_fail_late(zx_session *s, const zx_err *why); // it was one of those that are queued
bool zx_gpu_fail_peer(zx_session *s, uint32_t at);       // waiting for another rank, which is lost
#define zx_gpu_check(s, at, call) zx_gpu_checked(s, at, call, #call)
bool zx_gpu_checked(zx_session *s, uint32_t at, cudaError_t e, const char *call); // true: it went
// Whether waiting for the device makes sense: collectives and peers are well, and something has
// happened within --timeout.
bool zx_gpu_well(zx_session *s);

// Where the call is that it is in now: for the guard, from its thread.
void zx_gpu_where(const void *session, zx_err *err);
static inline void zx_gpu_enter(const zx_session *s)
{
    zx_guard_enter(s->o.site.guard, zx_gpu_where, s);
}
static inline void zx_gpu_leave(const zx_session *s)
{
    zx_guard_leave(s->o.site.guard);
}

// ---- exec_cuda.c --------------------------------------------------------------------------------
zx_status zx_gpu_start(zx_session *s, zx_err *err); // events, pinned memory, calls' faults
void zx_gpu_end(zx_session *s);
bool zx_gpu_run(zx_session *s);
void zx_gpu_reset_working(zx_session *s);
// Waits until a stream has done all that is queued. False: it never will, s->fatal says why, or a
// rank is lost.
bool zx_gpu_settle(zx_session *s, cudaStream_t q);

#endif
