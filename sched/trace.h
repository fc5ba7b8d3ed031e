// trace.h - the straight line of one optimizer step: what runs in which order and for how long,
// where every value lives, and when every parameter is read again.
//
// The micro-batches of a step are alike, so the line is a circle: it is kept once, and step t of
// micro-batch m is step m * n_steps + t of the whole. trace.c is the only file of the planner's
// passes that knows what a graph is.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_TRACE_H
#define ZX_SCHED_TRACE_H

#include "sched/sched.h"

// Where a value's bytes are. Views are where the value is that they show.
typedef enum zx_where_kind {
    ZX_AT_NOWHERE, // an output that nobody reads
    ZX_AT_STORAGE, // trace->storages
    ZX_AT_UNIT,    // a parameter
    ZX_AT_CONST,   // trace->consts
    ZX_AT_BUFFER,  // graph->buffers: its working copy
} zx_where_kind;
typedef struct zx_where {
    uint32_t kind, index;
} zx_where;

// Bytes that come and go within a micro-batch: an input, an activation or a gradient. An output
// that overwrites an input in place has the storage of that input.
typedef struct zx_storage {
    uint64_t bytes;
    uint32_t value;      // the value it holds first
    uint32_t input;      // graph->inputs, ZX_NONE: made by a step
    uint32_t born, dies; // steps: first written, last read by a step
} zx_storage;

typedef struct zx_use { // a step reads a unit that has elements
    uint32_t step, unit;
    uint32_t next; // the next use of the same unit; around the circle: next <= this one
    // What lies strictly between the two uses:
    uint32_t steps; // steps
    double seconds; // their time
    uint64_t bytes; // sizes of the distinct other units read there
    uint64_t
        elements; // of every read there, repeats counted, as DeepSpeed's max_reuse_distance does
} zx_use;

typedef struct zx_trace {
    const zx_graph *graph;
    uint32_t n_steps, micro_batches; // steps of one micro-batch
    uint32_t n_storages, n_uses, n_consts;
    const uint32_t *node;  // by step
    const zx_cost *cost;   // by step
    const double *seconds; // by step
    const double *at;      // n_steps + 1: when a step begins if nothing is ever waited for
    const uint64_t *work;  // by step: bytes of scratch
    const uint32_t *root;  // by value: the value that a view shows, else itself
    const zx_where *where; // by value
    const zx_storage *storages;
    const zx_use *uses;         // by step, then by unit
    const uint32_t *use_at;     // n_steps + 1: uses of step t are [use_at[t], use_at[t + 1])
    const uint32_t *first_use;  // by unit; ZX_NONE: never read
    const uint32_t *consts;     // values
    const uint32_t *input_at;   // by graph input: its storage; ZX_NONE: never read
    const uint32_t *grad_ready; // by unit: the step after which its gradient is whole; ZX_NONE
    uint32_t loss_ready;        // the step after which the loss is there
} zx_trace;

static inline bool zx_node_runs(const zx_node *n)
{
    return (zx_ops[n->op].flags & ZX_OP_VIEW) == 0;
}
// A unit that is trained: it has a gradient and at least one element.
static inline bool zx_param_trained(const zx_graph *g, uint32_t unit)
{
    const zx_param *p = &g->params[unit];
    return p->grad != ZX_NONE && zx_shape_count(&g->values[p->value].type.shape) > 0;
}

// E_UNSUPPORTED for graphs that no plan can be made for, by name.
zx_status zx_trace_make(const zx_graph *train, const zx_plan_options *o, zx_arena *mem,
                        zx_trace *out, zx_err *err);

// Bytes that an update moves of one element: reads the gradient; reads and writes what is updated
// in f32 and its states; writes the 16-bit parameter.
static inline uint32_t zx_update_bytes(uint32_t param, uint32_t grad, uint32_t states)
{
    return grad + 2 * (param < 4 ? 4 : param) + 2 * 4 * states + (param < 4 ? param : 0);
}
// Views followed to the value that has the bytes: root[n_values], into mem.
const uint32_t *zx_trace_roots(const zx_graph *g, zx_arena *mem);
// What a node costs on a machine.
double zx_trace_seconds(const zx_graph *g, const zx_node *n, const zx_machine *m, zx_cost *cost);
// Of that, what its products take: `flops` of them.
double zx_trace_products(const zx_op_args *args, const zx_machine *m, double flops);
// The type of the parameters that are trained: of the first one of 16 bits, else float32.
zx_dtype zx_trace_param_type(const zx_graph *g);
// True where output `out` of a node may have the bytes of its input `in`: in-place ops, and batch
// normalisation's running statistics.
bool zx_node_may_overwrite(const zx_graph *g, const zx_node *n, uint32_t in, uint32_t out);

#endif
