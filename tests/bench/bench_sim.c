// bench_sim.c - published speeds of large models against what the simulator says of them: TFLOP/s
// of a GPU, 6 x active parameters without the embedding x tokens. Prints; is no test.
//
// Points: Llama-3-70B on 32 H100, sequence 1024, batch 1, accumulation 1, 2, 4, by ZeRO-3 and by
// DeepCompile (arXiv 2504.09983; read off its bars, +-3). The two constants of machine.c are fitted
// on these six.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "tests/bench/bench_model.h"

static const struct point {
    bench_case c;
    zx_policy_id policy;
    double published; // 0: shown only
} points[] = {
    {{"llama3-70b", "h100x32", 1024, 1, 1, ZX_RECOMPUTE_FULL}, ZX_POLICY_HOOKS_DS, 243},
    {{"llama3-70b", "h100x32", 1024, 1, 2, ZX_RECOMPUTE_FULL}, ZX_POLICY_HOOKS_DS, 250},
    {{"llama3-70b", "h100x32", 1024, 1, 4, ZX_RECOMPUTE_FULL}, ZX_POLICY_HOOKS_DS, 262},
    {{"llama3-70b", "h100x32", 1024, 1, 1, ZX_RECOMPUTE_FULL}, ZX_POLICY_DEEPCOMPILE, 287},
    {{"llama3-70b", "h100x32", 1024, 1, 2, ZX_RECOMPUTE_FULL}, ZX_POLICY_DEEPCOMPILE, 305},
    {{"llama3-70b", "h100x32", 1024, 1, 4, ZX_RECOMPUTE_FULL}, ZX_POLICY_DEEPCOMPILE, 325},
    {{"llama3-70b", "h100x32", 1024, 1, 1, ZX_RECOMPUTE_FULL}, ZX_POLICY_HOOKS, 0},
    {{"llama3-70b", "h100x32", 1024, 1, 1, ZX_RECOMPUTE_FULL}, ZX_POLICY_FSDP, 0},
    {{"llama3-70b", "h100x32", 1024, 1, 16, ZX_RECOMPUTE_FULL}, ZX_POLICY_FSDP, 0},
    // DeepCompile over FSDP: up to 1.54 times, it says.
    {{"mixtral-8x7b", "h100x32", 1024, 1, 1, ZX_RECOMPUTE_FULL}, ZX_POLICY_HOOKS_DS, 0},
    {{"mixtral-8x7b", "h100x32", 1024, 1, 1, ZX_RECOMPUTE_FULL}, ZX_POLICY_FSDP, 0},
    {{"mixtral-8x7b", "h100x32", 1024, 1, 1, ZX_RECOMPUTE_FULL}, ZX_POLICY_DEEPCOMPILE, 0},
};

// Error in percent of the published figure.
static double run(const struct point *p)
{
    static bench_model m;
    zx_err err = {0};
    bench_open(&p->c, &m);
    zx_plan_options po = bench_options(&m, &p->c);
    po.budget = m.machine.device_bytes / 10 * 9;
    zx_policy_input in = bench_input(&m, &p->c, &po);
    in.own_limits = true; // as they come
    zx_policy_result r;
    const double from = bench_now();
    bench_must(zx_policy_plan(p->policy, &in, &m.mem, &r, &err), &err);
    const double planned = bench_now();
    zx_plan_simulate(&m.train, &m.machine, NULL, &r.plan, &m.mem);
    const double simulated = bench_now();
    const double tf = bench_tflops(&m, &p->c, r.plan.step_seconds);
    const double error = p->published > 0 ? 100 * (tf / p->published - 1) : 0;
    printf("%-12s %-10s GA %-2u %-20s %6.1f", p->c.model, p->c.machine, p->c.accumulate,
           r.plan.policy, tf);
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
    bench_close(&m);
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
