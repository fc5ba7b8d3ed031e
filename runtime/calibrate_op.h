// calibrate_op.h - an operator on operands of its own, ready to be run again and again.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CALIBRATE_OP_H
#define ZX_RUNTIME_CALIBRATE_OP_H

#include "graph/op.h"
#include "kernels/kernel.h"

#define ZX_BENCH_VIEWS 5 // operands, and outputs, at most

// What the operators of a rank read and write; zeroed: nothing. What is read never changes.
typedef struct zx_bench_room {
    float *in, *out;
    int64_t *labels; // all 0
} zx_bench_room;
zx_status zx_bench_room_open(zx_bench_room *room, zx_err *err);
void zx_bench_room_close(zx_bench_room *room);

typedef struct zx_bench_op { // zeroed: none
    const zx_kernel *kernel;
    zx_attrs attrs;
    zx_call call;
    zx_view in[ZX_BENCH_VIEWS], out[ZX_BENCH_VIEWS];
    zx_rng rng;
    void *state;
    size_t bytes; // of operands, or of outputs where these are more
    zx_cost cost;
    double amount; // of kinds
} zx_bench_op;

// An operator of two matrices [rows, columns], of float32 or bf16.
zx_status zx_bench_open(zx_bench_op *b, uint32_t op, zx_dtype type, const zx_bench_room *room,
                        const zx_shape *x, const zx_shape *y, int threads, zx_err *err);
// The standard operator of a kind (sched/kinds.h).
zx_status zx_bench_open_kind(zx_bench_op *b, uint32_t kind, const zx_bench_room *room, int threads,
                             zx_err *err);
// The turn says where in the room the operands lie: others are not in a core's cache, as in a step.
zx_status zx_bench_run(zx_bench_op *b, uint32_t turn, zx_err *err);
void zx_bench_close(zx_bench_op *b);

#endif
