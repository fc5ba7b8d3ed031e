// small.h - small train graphs and a harness that trains one on ranks that are threads, for the
// tests of sessions.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_RUNTIME_SMALL_H
#define ZX_TESTS_RUNTIME_SMALL_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/autodiff.h"
#include "runtime/session.h"
#include "tests/runtime/flat.h"
#include "tests/runtime/ranks.h"

#define MOST_STEPS 8
#define MOST_WEIGHTS 1024

// ---- graphs -------------------------------------------------------------------------------------

static inline zx_type type_of(zx_dtype t, uint32_t rank, int64_t a, int64_t b)
{
    zx_type y = {.dtype = t, .shape = {.rank = rank}};
    if (rank > 0) y.shape.dim[0] = a;
    if (rank > 1) y.shape.dim[1] = b;
    return y;
}

static inline uint32_t small_param(zx_builder *b, const char *name, zx_type t, double dev)
{
    const zx_param p = {
        .name = name, .grad = ZX_NONE, .init = {.kind = ZX_INIT_NORMAL, .b = dev, .seed = 5}};
    const uint32_t v = zx_build_param(b, &t, &p);
    return v;
}

typedef struct small_options {
    double dropout; // 0: none
    bool buffer;    // a running mean of the hidden layer
    bool blow_up;   // the first layer's output is divided by input 2 (zero makes it infinite)
} small_options;

enum { BATCH = 4, IN = 5, HIDDEN = 7, CLASSES = 3 };

// x [4,5] · w1 [5,7] + b1 -> relu -> dropout · w2 [7,3] + b2 -> cross entropy; an unused parameter
// of one element and an empty one. Nothing divides by 2, 3 and 4 alike.
static inline void build_small(zx_arena *mem, const small_options *o, zx_graph *out)
{
    zx_builder b;
    zx_err err = {0};
    zx_builder_start(&b, mem, "small");
    zx_type t = type_of(ZX_F32, 2, BATCH, IN);
    const uint32_t x = zx_build_input(&b, "x", &t);
    t = type_of(ZX_I64, 1, BATCH, 0);
    const uint32_t labels = zx_build_input(&b, "labels", &t);
    const uint32_t w1 = small_param(&b, "w1", type_of(ZX_F32, 2, IN, HIDDEN), 0.5);
    const uint32_t b1 = small_param(&b, "b1", type_of(ZX_F32, 1, HIDDEN, 0), 0.1);
    const uint32_t w2 = small_param(&b, "w2", type_of(ZX_F32, 2, HIDDEN, CLASSES), 0.5);
    const uint32_t b2 = small_param(&b, "b2", type_of(ZX_F32, 1, CLASSES, 0), 0.1);
    small_param(&b, "unused", type_of(ZX_F32, 1, 1, 0), 1);
    small_param(&b, "empty", type_of(ZX_F32, 1, 0, 0), 1);
    const zx_attrs none = {0};
    b.at_name = "fc1";
    uint32_t h = zx_build1(&b, ZX_OP_MATMUL, none, 3, x, w1, b1);
    if (o->blow_up) {
        t = type_of(ZX_F32, 0, 0, 0);
        const uint32_t by = zx_build_input(&b, "by", &t);
        b.at_name = "blow";
        h = zx_build1(&b, ZX_OP_DIV, none, 2, h, by);
    }
    if (o->buffer) {
        t = type_of(ZX_F32, 1, HIDDEN, 0);
        const zx_buffer mean = {
            .name = "mean", .next = ZX_NONE, .init = {.kind = ZX_INIT_FILL, .a = 1}};
        const uint32_t old = zx_build_buffer(&b, &t, &mean);
        const int64_t axis = 0;
        zx_attrs axes = zx_attrs_ints(mem, none, ZX_A_AXES, &axis, 1);
        axes = zx_attrs_int(mem, axes, ZX_A_KEEPDIMS, 0);
        b.at_name = "mean";
        const uint32_t now = zx_build1(&b, ZX_OP_REDUCE_MEAN, axes, 1, h);
        const uint32_t half = zx_build_scalar(&b, ZX_F32, 0.5);
        const uint32_t sum = zx_build1(&b, ZX_OP_ADD, none, 2, old, now);
        b.buffers[b.values[old].index].next = zx_build1(&b, ZX_OP_MUL, none, 2, sum, half);
    }
    b.at_name = "relu";
    h = zx_build1(&b, ZX_OP_RELU, none, 1, h);
    if (o->dropout > 0) {
        zx_attrs a = zx_attrs_float(mem, none, ZX_A_RATIO, o->dropout);
        a = zx_attrs_int(mem, a, ZX_A_KEY, 3);
        b.at_name = "drop";
        h = zx_build1(&b, ZX_OP_DROPOUT, a, 1, h);
    }
    b.at_name = "fc2";
    const uint32_t y = zx_build1(&b, ZX_OP_MATMUL, none, 3, h, w2, b2);
    zx_attrs a = zx_attrs_int(mem, none, ZX_A_REDUCTION, 1);
    uint32_t loss[2];
    const uint32_t in[2] = {y, labels};
    b.at_name = "loss";
    assert_zx_ok(zx_build_node(&b, ZX_OP_CROSS_ENTROPY, in, 2, a, NULL, loss, &err), &err);
    b.g.loss = loss[0];
    zx_builder_done(&b, out);
}

// ---- training -----------------------------------------------------------------------------------

enum { STAGE_0 = 1, STAGE_1, STAGE_2, STAGE_3 };

// Zero is what is usual: 1 rank, stage 3, 1 micro-batch, 3 steps, AdamW, lr 0.01, 1 thread.
typedef struct run_options {
    small_options graph;
    uint32_t ranks, stage, micros, steps, threads;
    const zx_optim *optim;
    double clip, lr, bandwidth, latency;
    bool least, no_overlap, poison, dump, serial;
    flat_kind flat;      // collectives go through flat slots
    bool untrained;      // no step at all
    bool planted;        // a slot of the plan reaches past its end
    uint64_t first;      // micro-batch that the first step begins with
    uint32_t of;         // the backward's seed is 1 / of; 0: ranks x micros
    uint64_t bad_label;  // this micro-batch has label 99; 0: none
    uint64_t bad_number; // this micro-batch is divided by 0; 0: none
    void (*feed)(const void *self, uint32_t input, uint64_t micro, void *to); // NULL: small_fill
} run_options;

typedef struct run_result {
    uint32_t n_weights, n_grads;
    float weight[MOST_WEIGHTS], grad[MOST_WEIGHTS], buffer[HIDDEN];
    zx_step_report report[MOST_STEPS];
    zx_status status[MOST_STEPS];
    uint64_t arena_bytes, held_bytes;
    zx_err err;
    zx_err why; // of explain_nonfinite
} run_result;

typedef struct run_call {
    const run_options *o;
    run_result *result;
} run_call;

static const zx_optim small_adamw = {.kind = ZX_OPTIM_ADAM,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .eps = 1e-8,
                                     .weight_decay = 0.01,
                                     .decoupled = true,
                                     .bias_correction = true};

static inline void small_fill(const void *self, uint32_t input, uint64_t micro, void *to);

// A row of options with what it leaves at zero filled in.
static inline run_options filled(const run_options *o)
{
    run_options f = *o;
    if (f.ranks == 0) f.ranks = 1;
    if (f.stage == 0) f.stage = STAGE_3;
    if (f.micros == 0) f.micros = 1;
    if (f.steps == 0) f.steps = 3;
    if (f.optim == NULL) f.optim = &small_adamw;
    if (f.lr == 0) f.lr = 0.01;
    if (f.threads == 0) f.threads = 1;
    if (f.of == 0) f.of = f.ranks * f.micros;
    if (f.feed == NULL) f.feed = small_fill;
    return f;
}

// Numbers that depend on the micro-batch and the place alone.
static inline void small_fill(const void *self, uint32_t input, uint64_t micro, void *to)
{
    const run_options *o = self;
    if (input == 0) {
        float *x = to;
        for (uint64_t i = 0; i < BATCH * IN; i++)
            x[i] = sinf((float)((micro * 31 + i * 7) % 101)) * 1.5f;
    } else if (input == 1) {
        int64_t *y = to;
        for (uint64_t i = 0; i < BATCH; i++) y[i] = (int64_t)((micro + i * i) % CLASSES);
        if (micro > 0 && micro == o->bad_label) y[BATCH - 1] = 99;
    } else {
        *(float *)to = micro > 0 && micro == o->bad_number ? 0 : 2;
    }
}

// The pieces of a tensor as a saver reads them: two that don't fall on shards.
static inline zx_status read_two(zx_session *s, zx_read_kind kind, uint32_t index, int64_t n,
                                 float *to, zx_err *err)
{
    const int64_t cut = n / 3;
    ZX_TRY(zx_session_read(s, kind, index, 0, cut, to, err));
    return zx_session_read(s, kind, index, cut, n - cut, to + cut, err);
}

static inline int small_read(zx_session *s, const zx_graph *g, zx_read_kind kind, float *to,
                             uint32_t *n_out, zx_err *err)
{
    uint32_t at = 0;
    for (uint32_t p = 0; p < g->n_params; p++) {
        const int64_t n = zx_shape_count(&g->values[g->params[p].value].type.shape);
        EXPECT(at + n <= MOST_WEIGHTS);
        EXPECT(read_two(s, kind, p, n, to + at, err) == ZX_OK);
        at += (uint32_t)n;
    }
    if (n_out != NULL) *n_out = at;
    return 0;
}

static inline zx_status small_plan(const zx_graph *train, const run_options *o, zx_arena *mem,
                                   zx_plan *plan, zx_err *err)
{
    uint64_t *work = ZX_NEW(mem, uint64_t, train->n_nodes + 1);
    ZX_TRY(zx_session_work_bytes(train, o->threads, work, err));
    const zx_plan_options po = {.ranks = o->ranks,
                                .stage = o->stage - STAGE_0,
                                .micro_batches = o->micros,
                                .optimizer_states = zx_optim_states(o->optim),
                                .work_bytes = work,
                                .machine = zx_machine_host(1, o->threads),
                                .budget = UINT64_MAX,
                                .least = o->least,
                                .no_overlap = o->no_overlap};
    return zx_plan_make(train, &po, mem, plan, err);
}

static inline int small_steps(zx_session *s, const zx_graph *train, const run_options *o,
                              run_result *mine, zx_err *err)
{
    const uint64_t each = (uint64_t)o->ranks * o->micros;
    for (uint32_t k = 0; k < o->steps && !o->untrained; k++) {
        mine->status[k] = zx_session_step(s, k, o->first + k * each, o->lr, &mine->report[k], err);
        if (mine->status[k] == ZX_OK && !mine->report[k].applied && mine->why.n_causes == 0)
            zx_session_explain_nonfinite(s, k, o->first + k * each, &mine->why);
        if (k == 0 && o->dump)
            if (small_read(s, train, ZX_READ_GRAD, mine->grad, &mine->n_grads, err) != 0) return 1;
    }
    return 0;
}

// Moves the last slot so that it ends past what is reserved.
static inline void plant(zx_plan *p, zx_arena *mem)
{
    zx_slot *slots = zx_arena_copy(mem, p->slots, p->n_slots * sizeof *slots);
    slots[p->n_slots - 1].offset = p->arena_bytes;
    p->slots = slots;
}

static inline int small_rank(zx_world *w, void *arg)
{
    const run_call *c = arg;
    const run_options *o = c->o;
    zx_arena mem = {0};
    zx_graph forward, train;
    zx_plan plan;
    zx_session *s = NULL;
    run_result *mine = ZX_NEW(&mem, run_result, 1);
    zx_err *err = &mine->err;
    build_small(&mem, &o->graph, &forward);
    EXPECT(zx_autodiff(&forward, 1.0 / o->of, &mem, &train, err) == ZX_OK);
    const zx_status planned = small_plan(&train, o, &mem, &plan, err);
    if (planned != ZX_OK) fprintf(stderr, "plan: %s\n", err->cause[0]);
    EXPECT(planned == ZX_OK);
    if (o->flat != FLAT_NOT) flatten(&plan, o->flat, &mem);
    mine->arena_bytes = plan.arena_bytes;
    mine->held_bytes = plan.held_bytes;
    const zx_session_options so = {.world = w,
                                   .threads = o->threads,
                                   .seed = 11,
                                   .optim = *o->optim,
                                   .clip = o->clip,
                                   .feed = {o->feed, o},
                                   .bandwidth = o->bandwidth,
                                   .latency_seconds = o->latency,
                                   .serial = o->serial,
                                   .poison = o->poison,
                                   .dump_grads = o->dump};
    if (o->planted) plant(&plan, &mem);
    const zx_status opened = zx_session_open(&train, &plan, &so, &s, err);
    if (o->planted) {
        if (zx_world_rank(w) == 0) *c->result = *mine;
        EXPECT(opened != ZX_OK && s == NULL);
        zx_arena_free(&mem);
        return 0;
    }
    if (opened != ZX_OK) fprintf(stderr, "open: %s\n", err->cause[0]);
    EXPECT(opened == ZX_OK);
    int bad = small_steps(s, &train, o, mine, err);
    if (bad == 0) bad = small_read(s, &train, ZX_READ_PARAM, mine->weight, &mine->n_weights, err);
    if (bad == 0 && o->graph.buffer)
        bad = zx_session_read(s, ZX_READ_BUFFER, 0, 0, HIDDEN, mine->buffer, err) != ZX_OK;
    if (zx_world_rank(w) == 0) *c->result = *mine;
    zx_session_close(s);
    zx_arena_free(&mem);
    return bad;
}

// The same with ranks as processes; `result` lies in memory that they share with the test.
static inline void run_small_processes(const run_options *o, run_result *result)
{
    const run_options f = filled(o);
    const run_call c = {&f, result};
    memset(result, 0, sizeof *result);
    run_processes(f.ranks, small_rank, (void *)(uintptr_t)&c);
}

static inline void run_small(const run_options *o, run_result *result)
{
    const run_options f = filled(o);
    const run_call c = {&f, result};
    memset(result, 0, sizeof *result);
    run_threads(f.ranks, small_rank, (void *)(uintptr_t)&c);
}

#endif
