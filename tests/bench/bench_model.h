// bench_model.h - a preset as a train graph, for programs that plan and simulate it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_BENCH_MODEL_H
#define ZX_BENCH_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "graph/autodiff.h"
#include "graph/precision.h"
#include "graph/preset.h"
#include "graph/recompute.h"
#include "proto/onnx_file.h"
#include "runtime/eval.h"
#include "sched/policy.h"

typedef struct bench_case {
    const char *model, *machine; // "llama3-8b", "h100x256"
    int64_t sequence, batch;
    uint32_t accumulate;
    zx_recompute_kind recompute; // NONE or FULL
} bench_case;

typedef struct bench_model {
    zx_arena mem;
    zx_text bytes;
    zx_onnx_file file;
    zx_preset_info info;
    zx_graph forward, train;
    zx_hooks hooks;
    zx_machine machine;
} bench_model;

static inline void bench_must(zx_status st, const zx_err *err)
{
    if (st == ZX_OK) return;
    fprintf(stderr, "%s\n", err->cause[0]);
    exit(1);
}

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// In bf16, its hooks as DeepSpeed sees them.
static inline void bench_open(const bench_case *c, bench_model *m)
{
    zx_err err = {0};
    zx_notes notes = {0};
    zx_graph full, kept, again;
    const zx_preset_sizes sizes = {c->sequence, c->batch};
    const zx_import_options io = {.eval = &zx_cpu_eval, .micro_batch = c->batch};
    *m = (bench_model){0};
    bench_must(zx_machine_find(c->machine, 0, &m->machine, &err), &err);
    const double seed = 1.0 / (m->machine.ranks * c->accumulate);
    bench_must(zx_preset_make(c->model, &sizes, &m->bytes, &m->info, &err), &err);
    bench_must(zx_onnx_open_bytes(&m->file, c->model, m->bytes.at, m->bytes.n, &m->mem, &err),
               &err);
    bench_must(zx_import(&m->file, &io, &m->mem, &m->forward, &notes, &err), &err);
    bench_must(zx_autodiff(&m->forward, seed, &m->mem, &full, &err), &err);
    zx_simplify(&full, &m->mem, &kept);
    again = kept;
    zx_hooks_options ho = {0};
    zx_blocks blocks;
    if (c->recompute == ZX_RECOMPUTE_FULL) {
        bench_must(zx_recompute_apply(&kept, ZX_RECOMPUTE_FULL, NULL, &m->mem, &again, &err), &err);
        zx_blocks_make(&m->forward, &m->mem, &blocks);
        ho.again = blocks.names;
        ho.n_again = blocks.n;
    }
    zx_precision_apply(&again, ZX_PREC_BF16, &m->mem, &m->train);
    bench_must(zx_hooks_make(&m->forward, &ho, &m->mem, &m->hooks, &notes, &err), &err);
}

// A reference case in float32, on ranks of this host; no hooks.
static inline void bench_open_reference(const bench_case *c, uint32_t ranks, bench_model *m)
{
    zx_err err = {0};
    zx_notes notes = {0};
    zx_graph full;
    char path[256];
    static const char *const open[] = {"gpt2_dynamic", "gpt2_hf_loss", "llama"};
    static const zx_bind dims[] = {{"seq", 32}};
    uint32_t n_dims = 0;
    for (size_t i = 0; i < ZX_COUNT(open); i++) n_dims |= strcmp(c->model, open[i]) == 0;
    const zx_import_options io = {
        .eval = &zx_cpu_eval, .micro_batch = c->batch, .n_dims = n_dims, .dims = dims};
    *m = (bench_model){.machine = zx_machine_host(ranks, 1)};
    snprintf(path, sizeof path, "tests/data/cases/%s/model.onnx", c->model);
    bench_must(zx_onnx_open(&m->file, path, &m->mem, &err), &err);
    bench_must(zx_import(&m->file, &io, &m->mem, &m->forward, &notes, &err), &err);
    bench_must(zx_autodiff(&m->forward, 1.0 / (ranks * c->accumulate), &m->mem, &full, &err), &err);
    zx_simplify(&full, &m->mem, &m->train);
}

static inline void bench_close(bench_model *m)
{
    zx_onnx_close(&m->file);
    zx_text_free(&m->bytes);
    zx_arena_free(&m->mem);
}

// AdamW, gradients added up in float32.
static inline zx_plan_options bench_options(const bench_model *m, const bench_case *c)
{
    return (zx_plan_options){.ranks = m->machine.ranks,
                             .stage = 3,
                             .micro_batches = c->accumulate,
                             .optimizer_states = 2,
                             .accumulate_bytes = 4,
                             .machine = m->machine,
                             .budget = UINT64_MAX};
}

// With DeepSpeed's defaults.
static inline zx_policy_input bench_input(const bench_model *m, const bench_case *c,
                                          const zx_plan_options *o)
{
    return (zx_policy_input){.train = &m->train,
                             .options = o,
                             .hooks = &m->hooks,
                             .limits = {.prefetch_bucket = 50000000,
                                        .max_live = 1000000000,
                                        .max_reuse = 1000000000,
                                        .param_persistence = 100000,
                                        .model_persistence = INT64_MAX,
                                        .reduce_bucket = 500000000,
                                        .accumulate = c->accumulate}};
}

// TFLOP/s of a GPU: 6 x active parameters without the embedding x tokens.
static inline double bench_tflops(const bench_model *m, const bench_case *c, double seconds)
{
    const double tokens = (double)(c->sequence * c->batch * c->accumulate);
    const double worked = (double)(m->info.active_params - m->info.embedding_params);
    return 6 * worked * tokens / seconds / 1e12;
}

#endif
