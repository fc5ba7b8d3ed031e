// fuzz_import.c - any bytes as an ONNX model, taken as far as it goes: opened, imported, given a
// backward pass, planned, and trained for a step.
// Without libFuzzer the test bad.mutations runs the same over a fixed list of changed models.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "graph/autodiff.h"
#include "proto/onnx_file.h"
#include "runtime/eval.h"
#include "runtime/session.h"
#include "tests/fuzz/onnx_mutate.h"

#define MOST_BYTES (UINT64_C(32) << 20) // of a value of the graph, and of folded constants
#define MOST_FLOPS 1e9                  // of a step
#define MOST_NODES 20000

// How far the bytes got, for the test: it must get somewhere.
enum { NOT_OPENED, NOT_IMPORTED, NOT_DIFFERENTIATED, NOT_PLANNED, NOT_TRAINED, TRAINED };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int fuzz_import(const uint8_t *bytes, size_t n, zx_err *err);

// Each symbolic dimension is bound to 3.
static zx_bind *bind_all(const zx_input_decl *in, uint32_t n, zx_arena *mem, uint32_t *n_dims)
{
    zx_bind *dims = ZX_NEW(mem, zx_bind, (size_t)n * ZX_MAX_RANK + 1);
    *n_dims = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t d = 0; d < in[i].rank; d++) {
            const char *symbol = in[i].symbol[d];
            if (symbol == NULL || symbol[0] == '\0') continue;
            uint32_t k = 0;
            while (k < *n_dims && strcmp(dims[k].name, symbol) != 0) k++;
            if (k == *n_dims) dims[(*n_dims)++] = (zx_bind){symbol, 3};
        }
    return dims;
}

// A model may ask for terabytes; whether a machine has them is not the question here.
static bool is_small(const zx_graph *g)
{
    double flops = 0;
    if (g->n_nodes > MOST_NODES) return false;
    for (uint32_t i = 0; i < g->n_values; i++)
        if (zx_type_bytes(&g->values[i].type) > MOST_BYTES) return false;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *node = &g->nodes[i];
        const zx_type *in[64];
        zx_type out[16];
        if (node->n_in > ZX_COUNT(in) || node->n_out > ZX_COUNT(out)) return false;
        for (uint32_t k = 0; k < node->n_in; k++) {
            const uint32_t v = g->refs[node->in + k];
            in[k] = v == ZX_NONE ? NULL : &g->values[v].type;
        }
        for (uint32_t k = 0; k < node->n_out; k++) out[k] = g->values[g->refs[node->out + k]].type;
        const zx_op_args args = {(zx_op_id)node->op, &node->attrs, node->n_in,
                                 node->n_out,        in,           out};
        const zx_cost cost = zx_ops[node->op].cost(&args);
        flops += cost.flops + cost.bytes;
    }
    return flops < MOST_FLOPS;
}

static void fill(const void *self, uint32_t input, uint64_t micro, void *to)
{
    const zx_graph *g = self;
    const zx_type *t = &g->values[g->inputs[input]].type;
    const int64_t n = zx_shape_count(&t->shape);
    for (int64_t i = 0; i < n; i++) {
        const int64_t small = (i * 7 + (int64_t)micro) % 2; // of any classes
        if (t->dtype == ZX_F32)
            ((float *)to)[i] = (float)small * 0.5f - 0.25f;
        else if (t->dtype == ZX_BOOL)
            ((uint8_t *)to)[i] = small > 0;
        else if (t->dtype == ZX_I64)
            ((int64_t *)to)[i] = small;
        else
            memset((char *)to + (uint64_t)i * zx_dtype_bytes(t->dtype), 0,
                   zx_dtype_bytes(t->dtype));
    }
}

static zx_status train(const zx_graph *g, const zx_plan *plan, zx_err *err)
{
    static const zx_optim sgd = {.kind = ZX_OPTIM_SGD, .lr = 0.01};
    zx_world *world = NULL;
    zx_session *s = NULL;
    zx_step_report report;
    ZX_TRY(zx_world_local(1, &world, err));
    const zx_session_options so = {
        .world = world, .threads = 1, .optim = sgd, .feed = {fill, g}, .poison = true};
    zx_status st = zx_session_open(g, plan, &so, &s, err);
    if (st == ZX_OK) st = zx_session_step(s, 0, 0, 0.01, &report, err);
    if (st == ZX_OK && !report.applied) zx_session_explain_nonfinite(s, 0, 0, err);
    zx_session_close(s);
    zx_world_close(world);
    return st;
}

static int go(const zx_onnx_file *f, zx_arena *mem, zx_err *err)
{
    zx_import_options io = {.eval = &zx_cpu_eval, .micro_batch = 3, .fold_bytes = MOST_BYTES};
    zx_input_decl *inputs;
    uint32_t n_inputs;
    zx_notes notes = {0};
    zx_graph forward, full, g;
    zx_plan plan;
    if (zx_import_inputs(f, mem, &n_inputs, &inputs, err) != ZX_OK) return NOT_IMPORTED;
    io.dims = bind_all(inputs, n_inputs, mem, &io.n_dims);
    if (zx_import(f, &io, mem, &forward, &notes, err) != ZX_OK) return NOT_IMPORTED;
    if (!is_small(&forward) || zx_autodiff(&forward, 1, mem, &full, err) != ZX_OK)
        return NOT_DIFFERENTIATED;
    zx_simplify(&full, mem, &g);
    if (!is_small(&g)) return NOT_DIFFERENTIATED;
    uint64_t *work = ZX_NEW(mem, uint64_t, g.n_nodes + 1);
    if (zx_session_work_bytes(&g, 1, work, err) != ZX_OK) return NOT_PLANNED;
    const zx_plan_options po = {.ranks = 1,
                                .stage = 3,
                                .micro_batches = 1,
                                .work_bytes = work,
                                .machine = zx_machine_host(1, 1),
                                .budget = UINT64_C(1) << 30};
    if (zx_plan_make(&g, &po, mem, &plan, err) != ZX_OK) return NOT_PLANNED;
    return train(&g, &plan, err) == ZX_OK ? TRAINED : NOT_TRAINED;
}

int fuzz_import(const uint8_t *bytes, size_t n, zx_err *err)
{
    zx_arena mem = {0};
    zx_onnx_file f;
    int got = NOT_OPENED;
    if (zx_onnx_open_bytes(&f, "fuzz.onnx", bytes, n, &mem, err) == ZX_OK) got = go(&f, &mem, err);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    zx_err err = {0};
    fuzz_import(bytes, n, &err);
    return 0;
}

#ifndef ZX_FUZZ_IN_TEST
// libFuzzer's own changes and ours by turns.
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed)
{
    if (seed % 4 == 0) return LLVMFuzzerMutate(bytes, n, room);
    uint8_t *in = malloc(n + 1);
    if (in == NULL) return n;
    memcpy(in, bytes, n);
    const size_t size = mutate_model(seed, in, n, bytes, room);
    if (size == 0) memcpy(bytes, in, n);
    free(in);
    return size > 0 ? size : LLVMFuzzerMutate(bytes, n, room);
}
#endif
