// rig.h - tensors for tests of operators, and kernels run over them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_OPS_RIG_H
#define ZX_TESTS_OPS_RIG_H

#include "graph/graph.h"
#include "kernels/kernel.h"

// A tensor filled as cases.def says; *values are the same numbers in double, exactly.
zx_view rig_fill(zx_arena *mem, const zx_type *type, const char *fill, uint64_t seed,
                 double **values);
// One full of NaN, with as much behind it; 64-byte aligned.
zx_view rig_view(zx_arena *mem, const zx_type *type);
bool rig_same(const zx_view *a, const zx_view *b); // the same bytes
double rig_get(const zx_view *v, int64_t i);
double rig_round(zx_dtype t, double x); // to what the type can hold

// Prepares and runs the op's CPU kernel; any failure, fault or byte written past an output ends the
// test. Scratch memory is full of garbage.
void rig_run(zx_op_id op, const zx_attrs *attrs, const zx_view *in, uint32_t n_in,
             const zx_view *out, uint32_t n_out, int threads);
void rig_run_random(zx_op_id op, const zx_attrs *attrs, const zx_view *in, uint32_t n_in,
                    const zx_view *out, uint32_t n_out, int threads, const zx_rng *rng);
// The same where a fault is expected: returns it.
zx_fault rig_run_faulty(zx_op_id op, const zx_attrs *attrs, const zx_view *in, uint32_t n_in,
                        const zx_view *out, uint32_t n_out, int threads);
// The kernel on operands of 16 bits, all of them and some, makes what it makes of the same numbers
// in float32, rounded once: the same bits. Products aren't looked at.
void rig_run_halves(zx_op_id op, const zx_attrs *attrs, const zx_view *in, uint32_t n_in,
                    const zx_view *out, uint32_t n_out);
// Runs every node. `values` has the views of inputs and parameters; the others are made. Sets
// ran[op] for each op that ran.
void rig_graph(const zx_graph *g, zx_view *values, zx_arena *mem, int threads, bool *ran);

#endif
