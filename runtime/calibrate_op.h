// calibrate_op.h - an operator on operands of its own, ready to be run again and again.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CALIBRATE_OP_H
#define ZX_RUNTIME_CALIBRATE_OP_H

#include "graph/op.h"
#include "kernels/kernel.h"
#include "sched/machine.h"

#define ZX_BENCH_VIEWS 5 // operands, and outputs, at most

// What the operators of a rank read and write: its caller's. What is read never changes.
typedef struct zx_bench_room {
    float *in, *out;
    size_t bytes;          // of each, ZX_BENCH_LEAST at least
    const int64_t *labels; // ZX_BENCH_LABELS of them, all 0
} zx_bench_room;
#define ZX_BENCH_LEAST ((size_t)16 << 20)
#define ZX_BENCH_LABELS 4096
// Numbers to read, in no order that a processor's branches could learn.
void zx_bench_fill(float *x, size_t n);

typedef struct zx_bench_op { // zeroed: none
    const zx_kernel *kernel;
    zx_attrs attrs;
    zx_call call;
    zx_view in[ZX_BENCH_VIEWS], out[ZX_BENCH_VIEWS];
    zx_rng rng;
    void *state;
    size_t bytes; // of operands, or of outputs where these are more
    size_t room_bytes;
    zx_cost cost;
    double amount; // of kinds
} zx_bench_op;

// An operator of two matrices [rows, columns] in a type, float32 or of 16 bits. `attrs` outlives
// it.
zx_status zx_bench_open(zx_bench_op *b, uint32_t op, zx_dtype type, const zx_attrs *attrs,
                        const zx_bench_room *room, const zx_shape *x, const zx_shape *y,
                        int threads, zx_err *err);
// The standard operator of a kind (sched/kinds.h) in a type; what stays float32 in it does.
zx_status zx_bench_open_kind(zx_bench_op *b, uint32_t kind, zx_dtype type,
                             const zx_bench_room *room, int threads, zx_err *err);
// Seconds of its products on a machine.
double zx_bench_products(const zx_bench_op *b, const zx_machine *m);
// The turn says where in the room the operands lie: others are not in a core's cache, as in a step.
zx_status zx_bench_run(zx_bench_op *b, uint32_t turn, zx_err *err);
void zx_bench_close(zx_bench_op *b);

#endif
