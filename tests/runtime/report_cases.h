// report_cases.h - plans for the tests of pictures: chains of layers whose names mean harm.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_RUNTIME_REPORT_CASES_H
#define ZX_TESTS_RUNTIME_REPORT_CASES_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/autodiff.h"
#include "runtime/report_priv.h"
#include "sched/lives.h"
#include "sched/sched.h"
#include "sched/trace_json.h"
#include "tests/test.h"

// Each would do something if it were anything but text: a flag that the browser's test looks for.
static const char *const hostile[] = {
    "</script><script>document.documentElement.dataset.hostile=1</script>",
    "<img src=x onerror=document.documentElement.dataset.hostile=1>",
    "\"'><svg onload=document.documentElement.dataset.hostile=1>",
    "a\xE2\x80\xA8"
    "b\xE2\x80\xA9"
    "c",
    "<!--<script>",
    "{{data}}]]>\\\"\\u003c",
    "\x01\x1b[2J\xff\xfe",
    "&lt;b&gt; & \\",
};

typedef struct report_case {
    const char *name;
    uint32_t layers, micros, ranks;
    bool hostile, least, measured;
} report_case;

typedef struct report_made {
    zx_arena mem;
    zx_graph train;
    zx_plan plan;
    double *start, *seconds; // as if they had been measured
} report_made;

static inline zx_type report_type(uint32_t rank, int64_t a, int64_t b, zx_dtype t)
{
    zx_type y = {.dtype = t, .shape = {.rank = rank}};
    y.shape.dim[0] = a;
    if (rank > 1) y.shape.dim[1] = b;
    return y;
}

static inline const char *report_name(const report_case *c, zx_arena *mem, const char *what,
                                      uint32_t layer)
{
    const char *s = zx_arena_printf(mem, "h.%u.%s", layer, what);
    return c->hostile ? zx_arena_printf(mem, "%s%s", s, hostile[layer % ZX_COUNT(hostile)]) : s;
}

static inline void report_graph(const report_case *c, zx_arena *mem, zx_graph *train)
{
    zx_builder b;
    zx_err err = {0};
    zx_graph forward;
    zx_builder_start(&b, mem, c->hostile ? hostile[0] : "chain");
    zx_type t = report_type(2, 8, 16, ZX_F32);
    uint32_t h = zx_build_input(&b, "x", &t);
    t = report_type(1, 8, 0, ZX_I64);
    const uint32_t labels = zx_build_input(&b, "labels", &t);
    t = report_type(2, 16, 16, ZX_F32);
    for (uint32_t k = 0; k < c->layers; k++) {
        const zx_param p = {.name = report_name(c, mem, "weight", k),
                            .grad = ZX_NONE,
                            .init = {.kind = ZX_INIT_NORMAL, .b = 0.1}};
        const uint32_t w = zx_build_param(&b, &t, &p);
        b.at_name = report_name(c, mem, "fc", k);
        h = zx_build1(&b, ZX_OP_MATMUL, (zx_attrs){0}, 2, h, w);
        b.at_name = report_name(c, mem, "relu", k);
        h = zx_build1(&b, ZX_OP_RELU, (zx_attrs){0}, 1, h);
    }
    uint32_t loss[2];
    const uint32_t in[2] = {h, labels};
    b.at_name = "loss";
    const zx_attrs a = zx_attrs_int(mem, (zx_attrs){0}, ZX_A_REDUCTION, 1);
    assert_zx_ok(zx_build_node(&b, ZX_OP_CROSS_ENTROPY, in, 2, a, NULL, loss, &err), &err);
    b.g.loss = loss[0];
    zx_builder_done(&b, &forward);
    assert_zx_ok(zx_autodiff(&forward, 1, mem, train, &err), &err);
}

static inline void report_make(const report_case *c, report_made *m)
{
    zx_err err = {0};
    *m = (report_made){0};
    report_graph(c, &m->mem, &m->train);
    const zx_plan_options po = {.ranks = c->ranks,
                                .stage = 3,
                                .micro_batches = c->micros,
                                .optimizer_states = 2,
                                .work_bytes = ZX_NEW(&m->mem, uint64_t, m->train.n_nodes + 1),
                                .machine = zx_machine_host(c->ranks, 1),
                                .budget = UINT64_MAX,
                                .least = c->least};
    assert_zx_ok(zx_plan_make(&m->train, &po, &m->mem, &m->plan, &err), &err);
    assert_non_null(m->plan.start);
    m->start = ZX_NEW(&m->mem, double, m->plan.n_insns);
    m->seconds = ZX_NEW(&m->mem, double, m->plan.n_insns);
    for (uint32_t i = 0; i < m->plan.n_insns; i++) { // slower, evenly
        m->start[i] = 1.5 * m->plan.start[i];
        m->seconds[i] = 1.5 * m->plan.seconds[i];
    }
}

static inline zx_report report_of(const report_case *c, const report_made *m)
{
    static const zx_report_policy policies[] = {
        {"hooks", "as DeepSpeed", 0.0041, 0.0043, 1 << 20, 0, false},
        {"fsdp", "", 0.0035, 0.0036, 3 << 20, 1 << 19, false},
        {"zerox", "", 0.0031, 0.0032, 1 << 20, 0, true}};
    static const zx_report_point points[] = {
        {"zerox", 1 << 20, 0.0031},     {"zerox", 2 << 20, 0.0029},
        {"zerox", 4 << 20, 0.0028},     {"</svg><b>", 1 << 20, 0.0041},
        {"</svg><b>", 2 << 20, 0.0039}, {"</svg><b>", 4 << 20, 0.0030}};
    zx_report r = {
        .title = c->hostile ? hostile[0] : c->name, .train = &m->train, .plan = &m->plan};
    if (!c->hostile) return r;
    static const zx_bound bound = {.seconds = 0.0005, .compute = 0.0005, .wire = 0.0004};
    r.bound = &bound;
    r.machine = hostile[1];
    r.n_policies = ZX_COUNT(policies);
    r.policies = policies;
    r.n_points = ZX_COUNT(points);
    r.points = points;
    if (!c->measured) return r;
    r.measured_start = m->start;
    r.measured_seconds = m->seconds;
    r.measured_step_seconds = 1.5 * m->plan.step_seconds;
    return r;
}

#endif
