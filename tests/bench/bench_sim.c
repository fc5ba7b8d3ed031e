// bench_sim.c - published speeds of large models against what the simulator says of them: TFLOP/s
// of a GPU, 6 x active parameters without the embedding x tokens. Prints; is no test.
//
// Points: Llama-3-70B on 32 H100, sequence 1024, batch 1, accumulation 1, 2, 4, by ZeRO-3 and by
// DeepCompile (arXiv 2504.09983; read off its bars, +-3). The two constants of machine.c are fitted
// on these six.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
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

static const struct point {
    const char *model, *machine;
    int64_t sequence, batch;
    uint32_t accumulate;
    zx_policy_id policy;
    double published; // 0: shown only
} points[] = {
    {"llama3-70b", "h100x32", 1024, 1, 1, ZX_POLICY_HOOKS_DS, 243},
    {"llama3-70b", "h100x32", 1024, 1, 2, ZX_POLICY_HOOKS_DS, 250},
    {"llama3-70b", "h100x32", 1024, 1, 4, ZX_POLICY_HOOKS_DS, 262},
    {"llama3-70b", "h100x32", 1024, 1, 1, ZX_POLICY_DEEPCOMPILE, 287},
    {"llama3-70b", "h100x32", 1024, 1, 2, ZX_POLICY_DEEPCOMPILE, 305},
    {"llama3-70b", "h100x32", 1024, 1, 4, ZX_POLICY_DEEPCOMPILE, 325},
    {"llama3-70b", "h100x32", 1024, 1, 1, ZX_POLICY_HOOKS, 0},
    {"llama3-70b", "h100x32", 1024, 1, 1, ZX_POLICY_FSDP, 0},
    {"llama3-70b", "h100x32", 1024, 1, 16, ZX_POLICY_FSDP, 0},
    // DeepCompile over FSDP: up to 1.54 times, it says.
    {"mixtral-8x7b", "h100x32", 1024, 1, 1, ZX_POLICY_HOOKS_DS, 0},
    {"mixtral-8x7b", "h100x32", 1024, 1, 1, ZX_POLICY_FSDP, 0},
    {"mixtral-8x7b", "h100x32", 1024, 1, 1, ZX_POLICY_DEEPCOMPILE, 0},
};

typedef struct model {
    zx_arena mem;
    zx_text bytes;
    zx_onnx_file file;
    zx_preset_info info;
    zx_graph forward, train;
    zx_hooks hooks;
} model;

static void must(zx_status st, const zx_err *err)
{
    if (st == ZX_OK) return;
    fprintf(stderr, "%s\n", err->cause[0]);
    exit(1);
}

static void make_model(const struct point *p, uint32_t ranks, model *m)
{
    zx_err err = {0};
    zx_notes notes = {0};
    zx_graph full, kept, again;
    const zx_preset_sizes sizes = {p->sequence, p->batch};
    const zx_import_options io = {.eval = &zx_cpu_eval, .micro_batch = p->batch};
    *m = (model){0};
    must(zx_preset_make(p->model, &sizes, &m->bytes, &m->info, &err), &err);
    must(zx_onnx_open_bytes(&m->file, p->model, m->bytes.at, m->bytes.n, &m->mem, &err), &err);
    must(zx_import(&m->file, &io, &m->mem, &m->forward, &notes, &err), &err);
    must(zx_autodiff(&m->forward, 1.0 / (ranks * p->accumulate), &m->mem, &full, &err), &err);
    zx_simplify(&full, &m->mem, &kept);
    must(zx_recompute_apply(&kept, ZX_RECOMPUTE_FULL, NULL, &m->mem, &again, &err), &err);
    zx_precision_apply(&again, ZX_PREC_BF16, &m->mem, &m->train);
    zx_blocks blocks;
    zx_blocks_make(&m->forward, &m->mem, &blocks);
    const zx_hooks_options ho = {.again = blocks.names, .n_again = blocks.n};
    must(zx_hooks_make(&m->forward, &ho, &m->mem, &m->hooks, &notes, &err), &err);
}

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Error in percent of the published figure.
static double run(const struct point *p)
{
    static model m;
    zx_err err = {0};
    zx_machine machine;
    must(zx_machine_find(p->machine, 0, &machine, &err), &err);
    make_model(p, machine.ranks, &m);
    const zx_plan_options po = {.ranks = machine.ranks,
                                .stage = 3,
                                .micro_batches = p->accumulate,
                                .optimizer_states = 2,
                                .accumulate_bytes = 4,
                                .machine = machine,
                                .budget = machine.device_bytes / 10 * 9};
    const zx_policy_input in = {.train = &m.train,
                                .options = &po,
                                .hooks = &m.hooks,
                                .limits = {.prefetch_bucket = 50000000,
                                           .max_live = 1000000000,
                                           .max_reuse = 1000000000,
                                           .param_persistence = 100000,
                                           .model_persistence = INT64_MAX,
                                           .reduce_bucket = 500000000,
                                           .accumulate = p->accumulate}};
    zx_policy_result r;
    const double from = now_seconds();
    must(zx_policy_plan(p->policy, &in, &m.mem, &r, &err), &err);
    const double planned = now_seconds();
    zx_plan_simulate(&m.train, &machine, NULL, &r.plan, &m.mem);
    const double simulated = now_seconds();
    const double tokens = (double)(p->sequence * p->batch * p->accumulate);
    const double worked = (double)(m.info.active_params - m.info.embedding_params);
    const double tf = 6 * worked * tokens / r.plan.step_seconds / 1e12;
    const double error = p->published > 0 ? 100 * (tf / p->published - 1) : 0;
    printf("%-12s %-10s GA %-2u %-20s %6.1f", p->model, p->machine, p->accumulate, r.plan.policy,
           tf);
    if (p->published > 0)
        printf(" / %3.0f %+5.1f %%", p->published, error);
    else
        printf("              ");
    printf("  step %.3f s, compute %.3f, exposed %.3f, peak %.1f GB%s; %u instructions, planned in "
           "%.2f s, simulated in %.1f ms\n",
           r.plan.step_seconds, r.plan.compute_seconds, r.plan.exposed_seconds,
           (double)r.plan.arena_bytes / 1e9, r.over ? " OVER" : "", r.plan.n_insns, planned - from,
           1e3 * (simulated - planned));
    fflush(stdout);
    zx_onnx_close(&m.file);
    zx_text_free(&m.bytes);
    zx_arena_free(&m.mem);
    return error;
}

int main(void)
{
    double sum = 0;
    int n = 0;
    for (size_t i = 0; i < ZX_COUNT(points); i++) {
        const double error = run(&points[i]);
        if (points[i].published <= 0) continue;
        sum += fabs(error);
        n++;
    }
    printf("mean error %.1f %% of %d points, SIMULATED\n", sum / n, n);
    return 0;
}
