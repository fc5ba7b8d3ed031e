// test_policy_hooks.c - plans of the hook-driven prefetcher: where in the executed steps its events
// fall, that a plan's collectives are the real logs', what each form does beside them, and that
// searched limits keep the budget.
// SPDX-License-Identifier: Apache-2.0
#include "sched/policy_hooks.h"

#include "graph/autodiff.h"
#include "graph/blocks.h"
#include "graph/recompute.h"
#include "runtime/eval.h"
#include "tests/graph/onnx_text.h"

#define LOTS 1000000000

typedef struct fixture {
    zx_arena mem;
    zx_onnx_file file;
    zx_graph forward, train;
    zx_hooks h;
    zx_notes notes;
    zx_err err;
} fixture;

static void import(fixture *f, const zx_hooks_options *o)
{
    const zx_import_options io = {.eval = &zx_cpu_eval};
    zx_graph both;
    assert_zx_ok(zx_import(&f->file, &io, &f->mem, &f->forward, &f->notes, &f->err), &f->err);
    assert_zx_ok(zx_autodiff(&f->forward, 1.0, &f->mem, &both, &f->err), &f->err);
    zx_simplify(&both, &f->mem, &f->train);
    assert_zx_ok(zx_hooks_make(&f->forward, o, &f->mem, &f->h, &f->notes, &f->err), &f->err);
}

static void open_model(fixture *f, const char *name, const zx_hooks_options *o)
{
    *f = (fixture){0};
    const char *path = zx_arena_printf(&f->mem, "%s/hooks/%s.onnx", ZX_TEST_DATA, name);
    assert_zx_ok(zx_onnx_open(&f->file, path, &f->mem, &f->err), &f->err);
    import(f, o);
}

static void close_model(fixture *f)
{
    zx_onnx_close(&f->file);
    zx_arena_free(&f->mem);
}

static zx_plan_options options(uint32_t ranks, uint32_t micros)
{
    return (zx_plan_options){.ranks = ranks,
                             .stage = 3,
                             .micro_batches = micros,
                             .optimizer_states = 2,
                             .machine = zx_machine_host(ranks, 1),
                             .budget = UINT64_MAX};
}

static zx_policy_input input(const fixture *f, const zx_plan_options *o, const zx_hook_limits *l)
{
    return (zx_policy_input){.train = &f->train, .options = o, .hooks = &f->h, .limits = *l};
}

// Every block of the model.
static void recompute(fixture *f)
{
    zx_blocks blocks;
    zx_graph again;
    zx_blocks_make(&f->train, &f->mem, &blocks);
    const zx_hooks_options o = {.n_again = blocks.n, .again = blocks.names};
    assert_int_equal(blocks.n, 2);
    assert_zx_ok(zx_recompute_apply(&f->train, ZX_RECOMPUTE_FULL, NULL, &f->mem, &again, &f->err),
                 &f->err);
    f->train = again;
    assert_zx_ok(zx_hooks_make(&f->forward, &o, &f->mem, &f->h, &f->notes, &f->err), &f->err);
}

// ---- where events fall --------------------------------------------------------------------------

#define XW "in x f32[2];init w f32[2] 1 2;init v f32[2] 3 4;"
#define THREE XW "init u f32[2] 5 6;a = Mul(x, w) @a;b = Mul(a, v) @b;y = Mul(b, u) @c" LOSS
#define LOSS ";l = ReduceMean(y) keepdims=0 @;out l f32"

// "+a1": a fetch before step 1; "w5": a gradient. The steps' names come after "|".
static const struct at_row {
    const char *name, *model, *want;
    bool again; // blocks are recomputed
} at_rows[] = {
    {"one module after the other", XW "a = Mul(x, w) @a;b = Exp(a) @b;y = Mul(b, v) @c" LOSS,
     "+/0 +a0 -a1 +b1 -b2 +c2 -c3 -/4 +/4 +c6 v8 -c8 +b8 -b9 +a9 w10 | Mul Exp Mul ReduceMean Mul "
     "Expand Mul Mul ExpGrad Mul"},
    {"a module whose weight another one reads",
     "in x f32[2,2];init w f32[2,2] 1 2 3 4;u = Transpose(w) @a;y = MatMul(x, u) @b" LOSS,
     "+/0 +a0 -a0 +b0 -b1 -/2 +/2 +b4 -b5 +a5 w5 | MatMul ReduceMean Mul Expand MatMul"},
    {"blocks run again",
     XW "a = Mul(x, w) @h.0.a;b = Exp(a) @h.0.b;c = Mul(b, v) @h.0.c;d = Add(c, x) @h.0;e = Exp(d) "
        "@h.1.a;y = Mul(e, w) @h.1.b" LOSS,
     "+/0 +h0 +h.00 +h.0.a0 -h.0.a1 +h.0.b1 -h.0.b2 +h.0.c2 -h.0.c3 -h.04 +h.14 +h.1.a4 -h.1.a5 "
     "+h.1.b5 -h.1.b6 -h.16 -h6 -/7 +/7 +h9 +h.19 +h.1.b9 +h.19 +h.1.a9 -h.1.a10 +h.1.b10 -h.1.b12 "
     "+h.1.a12 -h.1.a13 -h.113 +h.013 +h.0.c13 +h.013 +h.0.a13 -h.0.a14 +h.0.b14 -h.0.b15 +h.0.c15 "
     "v17 -h.0.c17 +h.0.b17 -h.0.b18 +h.0.a18 w20 | Mul Exp Mul Add Exp Mul ReduceMean Mul Expand "
     "Exp Mul Mul ExpGrad Mul Exp Mul Mul ExpGrad Mul Add",
     true},
    {"a node that was folded away",
     XW "u = Add(x, x) @a;a = Mul(u, w) @a;b = Identity(a) @b;y = Mul(b, v) @c" LOSS,
     "+/0 +a0 -a2 +b2 -b2 +c2 -c3 -/4 +/4 +c6 v8 -c8 +b8 -b8 +a8 w9 | Add Mul Mul ReduceMean Mul "
     "Expand Mul Mul Mul"},
};

static void test_at(void **state)
{
    const struct at_row *r = *state;
    const zx_hooks_options none = {0};
    fixture f = {0};
    zx_text t = {0};
    zx_trace trace;
    const zx_plan_options o = options(2, 1);
    assert_zx_ok(ot_open(&f.mem, r->model, NULL, 0, &f.file, &f.err), &f.err);
    import(&f, &none);
    if (r->again) recompute(&f);
    assert_zx_ok(zx_trace_make(&f.train, &o, &f.mem, &trace, &f.err), &f.err);
    const int64_t *at = zx_hooks_boundaries(&trace, &f.h, &f.mem);
    for (uint32_t i = 0; i < f.h.n_events; i++) {
        const zx_hook *e = &f.h.events[i];
        const char *path = e->kind == ZX_HOOK_GRAD ? f.h.params[e->id] : f.h.modules[e->id].path;
        zx_text_put(&t, "%s%s%lld ", &"+\0-\0\0"[2 * e->kind], path[0] ? path : "/",
                    (long long)at[i]);
    }
    zx_text_put(&t, "|");
    for (uint32_t s = 0; s < trace.n_steps; s++)
        zx_text_put(&t, " %s", zx_ops[f.train.nodes[trace.node[s]].op].word);
    assert_string_equal(t.at, r->want);
    zx_text_free(&t);
    close_model(&f);
}

// ---- the logs -----------------------------------------------------------------------------------

static const struct log_row {
    const char *name, *model, *said, *here;
    zx_hook_limits l;
} logs[] = {
    {"A.p600_r0", "plain", "", "", {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false}},
    {"B.p600_r1200_persist32_gas2",
     "plain",
     "",
     "",
     {600, LOTS, 1200, 32, INT64_MAX, 5000, 2, false}},
    {"C.tied", "tied", "emb.weight", "head.weight", {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false}},
    {"H.live1500", "plain", "", "", {600, 1500, 0, 0, INT64_MAX, 600, 1, false}},
};

static char *read_all(zx_arena *mem, const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = ZX_NEW(mem, char, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

// The collectives of micro-batches [first, end) of a log: "AG [names]" and "RS [names]", a line
// each, in order.
static const char *collectives_of_log(zx_arena *mem, const struct log_row *r, uint32_t first,
                                      uint32_t end)
{
    char *text = read_all(mem, zx_arena_printf(mem, "%s/hooks/%s.log", ZX_TEST_DATA, r->name));
    zx_text out = {0};
    uint32_t micro = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        line += strspn(line, " ");
        if (sscanf(line, "== MICRO %u", &micro) == 1) continue;
        if (micro < first || micro >= end || (strncmp(line, "AG", 2) && strncmp(line, "RS", 2)))
            continue;
        *strrchr(line, ']') = '\0';
        zx_text_put(&out, "%.2s", line);
        for (char *at = strchr(line, '\''); at != NULL; at = strchr(at, '\'')) {
            const size_t n = strcspn(++at, "'");
            const char *name = zx_arena_strn(mem, at, n);
            zx_text_put(&out, " %s", r->said[0] && strcmp(name, r->said) == 0 ? r->here : name);
            at += n + 1;
        }
        zx_text_put(&out, "\n");
    }
    const char *kept = zx_arena_str(mem, out.n > 0 ? out.at : "");
    zx_text_free(&out);
    return kept;
}

// The plan's, without what persists and is gathered first.
static const char *collectives_of_plan(zx_arena *mem, const fixture *f, const zx_plan *p,
                                       uint32_t skip)
{
    zx_text out = {0};
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        if (in->id != ZX_I_GATHER && in->id != ZX_I_REDUCE) continue;
        if (in->id == ZX_I_GATHER && skip > 0) {
            skip--;
            continue;
        }
        zx_text_put(&out, in->id == ZX_I_GATHER ? "AG" : "RS");
        const zx_launch *l = &p->launches[in->a];
        for (uint32_t k = 0; k < l->n_members; k++)
            zx_text_put(&out, " %s", f->h.params[p->members[l->member + k].unit]);
        zx_text_put(&out, "\n");
    }
    const char *kept = zx_arena_str(mem, out.n > 0 ? out.at : "");
    zx_text_free(&out);
    return kept;
}

static void test_log(void **state)
{
    const struct log_row *r = *state;
    const zx_hooks_options none = {0};
    for (int form = 0; form < 2; form++) {
        fixture f;
        open_model(&f, r->model, &none);
        const zx_plan_options o = options(2, r->l.accumulate);
        const zx_policy_input in = input(&f, &o, &r->l);
        const zx_policy_id id = form == 0 ? ZX_POLICY_HOOKS : ZX_POLICY_HOOKS_DS;
        zx_policy_result out;
        assert_zx_ok(zx_policy_plan(id, &in, &f.mem, &out, &f.err), &f.err);
        uint32_t persist = 0;
        for (uint32_t i = 0; i < f.h.n_params; i++)
            persist += f.h.numel[i] <= r->l.param_persistence;
        const char *here = collectives_of_plan(&f.mem, &f, &out.plan, persist),
                   *there = collectives_of_log(&f.mem, r, 2, 2 + r->l.accumulate);
        if (r->l.accumulate > 1) { // the log ends before the step does
            assert_true(strlen(there) > 0 && strlen(here) > strlen(there));
            here = zx_arena_strn(&f.mem, here, strlen(there));
        }
        assert_string_equal(here, there);
        assert_int_equal(out.mended, 0);
        close_model(&f);
    }
}

// ---- what is written down -----------------------------------------------------------------------

// "G ab 3<1": gathered at 3, from 1 on; "W": awaited, "U2": unpacked from 2 on; "F": freed, "B":
// into the bucket, "R": reduced, "D": over, "S": the host waits for what was the n-th launch, "H":
// hooks.
static const struct write_row {
    const char *name, *model, *want;
    bool copies;
    uint32_t ranks, micros;
    zx_hook_limits l;
} write_rows[] = {
    {"in place",
     THREE,
     "G w 0<0 W0 0 F w 1 G v 1<0 W1 1 F v 2 G u 2<0 W2 2 F u 3 G u 6<3 W3 6 F u 8 G v 8<2 W4 8 F v "
     "10 G w 10<6 W5 10 R uv 11 R w 11 F w 11 D6 11 D7 11",
     false,
     2,
     1,
     {0, LOTS, 0, 0, INT64_MAX, 4, 1, false}},
    {"prefetched",
     THREE,
     "G wv 0<0 W0 0 G u 0<0 W1 2 F u 8 F v 10 R uv 11 R w 11 F w 11 D2 11 D3 11",
     false,
     2,
     1,
     {4, LOTS, 0, 0, INT64_MAX, 4, 1, false}},
    {"as DeepSpeed",
     THREE,
     "H1 0 G* wv 0<0 H1 0 W0 0U0 G u 0<0 H2 1 H2 2 W1 2 H1 3 H2 4 H1 6 H1 8 B u 8 H1 8 F u 8 H1 8 "
     "H1 10 B v 10 H1 10 F v 10 H1 10 R** uv 11 H1 11 B w 11 R** w 11 F w 11 S3 11 D2 11 D3 11",
     true,
     2,
     1,
     {4, LOTS, 0, 0, INT64_MAX, 4, 1, false}},
    {"the host waits for the third wait before",
     THREE,
     "H2 0 G w 0<0 W0 0 H1 1 F w 1 H1 1 G v 1<0 W1 1 H1 2 F v 2 H1 2 G u 2<0 W2 2 H1 3 F u 3 H2 4 "
     "H1 6 G u 6<3 S0 6 W3 6 H1 8 B u 8 H1 8 F u 8 H1 8 G v 8<2 S1 8 W4 8 H1 10 B v 10 H1 10 F v "
     "10 H1 10 G w 10<6 S2 10 W5 10 H1 11 B w 11 R** uvw 11 F w 11 S6 11 D6 11",
     true,
     2,
     1,
     {0, LOTS, 0, 0, INT64_MAX, 6, 1, false}},
    {"what persists",
     THREE,
     "G w 0<0 W0 0 S0 0 H1 0 G* vu 0<0 H1 0 H2 1 W1 1U0 H2 2 H1 3 H2 4 H1 6 H1 8 B u 8 H1 8 F u 8 "
     "H1 8 H1 10 B v 10 H1 10 F v 10 H1 10 R** uv 11 H1 11 B w 11 R** w 11 S3 11 D2 11 D3 11 H1 11 "
     "G* vu 11<11 H1 11 H2 12 W4 12U11 H2 13 H1 14 H2 15 H1 17 H1 19 B u 19 H1 19 F u 19 H1 19 H1 "
     "21 B v 21 H1 21 F v 21 H1 21 R** uv 22 H1 22 B w 22 R** w 22 F w 22 S6 22 D5 22 D6 22",
     true,
     2,
     2,
     {4, LOTS, 0, 2, 2, 4, 1, false}},
    {"a gradient larger than the bucket",
     THREE,
     "H2 0 G w 0<0 W0 0 H2 1 G v 1<0 W1 1 H2 2 G u 2<0 W2 2 H1 3 H2 4 H1 6 H1 8 H1 8 F u 8 H1 8 R* "
     "u 10 H1 10 H1 10 F v 10 H1 10 R* v 11 H1 11 D3 11 R* w 11 F w 11 S5 11 D4 11 D5 11",
     true,
     2,
     1,
     {0, LOTS, LOTS, 0, 0, 1, 1, false}},
    {"a gradient without a hook",
     XW "a = Mul(x, w) @a;b = Identity(a) @b:detach_1;y = Mul(b, v) @c" LOSS,
     "H2 0 G w 0<0 W0 0 H1 1 F w 1 H3 1 G v 1<0 W1 1 H1 2 H2 3 H1 5 H1 7 B v 7 R** v 8 F v 8 B w 8 "
     "R** w 8 S3 8 D2 8 D3 8",
     true,
     2,
     1,
     {0, LOTS, LOTS, 0, 0, 4, 1, false}},
    {"one rank",
     THREE,
     "R uv 11 R w 11 D0 11 D1 11 R uv 22 R w 22 D2 22 D3 22",
     true,
     1,
     2,
     {4, LOTS, 0, 0, INT64_MAX, 4, 1, false}},
};

static void put_members(const fixture *f, const zx_schedule *s, const zx_transfer *x, zx_text *t)
{
    for (uint32_t i = x->first; i < x->first + x->n; i++)
        zx_text_put(t, "%s", f->h.params[x->reduce ? s->gradients[i].unit : s->holds[i].unit]);
}

static void put_acts(const fixture *f, const zx_schedule *s, zx_text *t)
{
    for (uint32_t i = 0; i < s->n_acts; i++) {
        const zx_act *a = &s->acts[i];
        const long long at = (long long)a->at;
        const zx_transfer *x = a->what < s->n_transfers ? &s->transfers[a->what] : NULL;
        if (i > 0) zx_text_put(t, " ");
        switch ((zx_act_kind)a->kind) {
        case ZX_ACT_GATHER:
            zx_text_put(t, x->flat ? "G* " : "G ");
            put_members(f, s, x, t);
            zx_text_put(t, " %lld<%lld", at, (long long)x->gate);
            break;
        case ZX_ACT_REDUCE:
            zx_text_put(t, x->bucket ? "R** " : x->flat ? "R* " : "R ");
            put_members(f, s, x, t);
            zx_text_put(t, " %lld", at);
            break;
        case ZX_ACT_AWAIT:
            zx_text_put(t, "W%u %lld", a->what, at);
            if (x->flat) zx_text_put(t, "U%lld", (long long)x->unpack);
            break;
        case ZX_ACT_DRAIN:
            zx_text_put(t, "D%u %lld", a->what, at);
            break;
        case ZX_ACT_SYNC:
            zx_text_put(t, "S%u %lld", a->what, at);
            break;
        case ZX_ACT_FREE:
            zx_text_put(t, "F %s %lld", f->h.params[s->holds[a->what].unit], at);
            break;
        case ZX_ACT_BUCKET:
            zx_text_put(t, "B %s %lld", f->h.params[s->gradients[a->what].unit], at);
            break;
        case ZX_ACT_HOOK:
            zx_text_put(t, "H%u %lld", a->what, at);
            break;
        }
    }
}

static void test_write(void **state)
{
    const struct write_row *r = *state;
    const zx_hooks_options none = {0};
    fixture f = {0};
    zx_text t = {0};
    zx_trace trace;
    zx_schedule s;
    const zx_plan_options o = options(r->ranks, r->micros);
    assert_zx_ok(ot_open(&f.mem, r->model, NULL, 0, &f.file, &f.err), &f.err);
    import(&f, &none);
    assert_zx_ok(zx_trace_make(&f.train, &o, &f.mem, &trace, &f.err), &f.err);
    const int64_t *at = zx_hooks_boundaries(&trace, &f.h, &f.mem);
    zx_schedule_start(&s, &trace, &o, &f.mem);
    assert_zx_ok(zx_hooks_write(&s, &f.h, &r->l, at, r->copies, &f.err), &f.err);
    put_acts(&f, &s, &t);
    assert_string_equal(t.at, r->want);
    zx_text_free(&t);
    close_model(&f);
}

// ---- plans --------------------------------------------------------------------------------------

static const char *const blocks[] = {"blocks.0", "blocks.1", "blocks.2"};

static const struct plan_row {
    const char *name, *model;
    zx_hook_limits l;
    zx_hooks_options o;
} plan_rows[] = {
    {"defaults", "plain", {50000000, LOTS, LOTS, 100000, INT64_MAX, 500000000, 1, false}, {0}},
    {"nothing ahead, nothing kept", "plain", {0, LOTS, 0, 0, INT64_MAX, 5000, 1, false}, {0}},
    {"kept near", "plain", {0, LOTS, 1200, 0, INT64_MAX, 5000, 1, false}, {0}},
    {"ahead", "plain", {600, LOTS, 0, 0, INT64_MAX, 600, 1, false}, {0}},
    {"few may live", "plain", {600, 1500, 0, 0, INT64_MAX, 600, 1, false}, {0}},
    {"small ones persist", "plain", {600, LOTS, 1200, 32, INT64_MAX, 700, 1, false}, {0}},
    {"gradients larger than the bucket", "plain", {600, LOTS, 0, 0, INT64_MAX, 20, 1, false}, {0}},
    {"all persists", "plain", {600, LOTS, 0, LOTS, INT64_MAX, 600, 1, false}, {0}},
    {"tied", "tied", {600, LOTS, 0, 0, INT64_MAX, 600, 1, false}, {0}},
    {"tied, kept", "tied", {300, 2000, 900, 16, INT64_MAX, 300, 1, false}, {0}},
    {"blocks as leaves",
     "plain",
     {600, 1500, 0, 0, INT64_MAX, 5000, 1, false},
     {.n_names = 3, .names = blocks}},
    {"one leaf, nothing ahead",
     "plain",
     {0, LOTS, 1200, 0, INT64_MAX, 600, 1, false},
     {.n_names = 1, .names = blocks}},
    {"all one leaf", "tied", {600, LOTS, 0, 0, INT64_MAX, 600, 1, false}, {.granularity = 5000}},
};

static void test_plan(void **state)
{
    const struct plan_row *r = *state;
    fixture f;
    open_model(&f, r->model, &r->o);
    for (uint32_t ranks = 1; ranks <= 3; ranks++)
        for (uint32_t micros = 1; micros <= 4; micros++)
            for (int form = 0; form < 2; form++) {
                const zx_mark mark = zx_arena_mark(&f.mem);
                const zx_plan_options o = options(ranks, micros);
                const zx_policy_input in = input(&f, &o, &r->l);
                zx_policy_result out;
                const zx_policy_id id = form == 0 ? ZX_POLICY_HOOKS : ZX_POLICY_HOOKS_DS;
                assert_zx_ok(zx_policy_plan(id, &in, &f.mem, &out, &f.err), &f.err);
                assert_zx_ok(zx_plan_check(&f.train, &out.plan, &f.err), &f.err);
                assert_int_equal(out.mended, 0);
                uint64_t hooks = 0, syncs = 0, copies = 0;
                for (uint32_t i = 0; i < out.plan.n_insns; i++) {
                    const zx_insn *x = &out.plan.insns[i];
                    hooks += x->id == ZX_I_HOOK ? x->a : 0;
                    syncs += x->id == ZX_I_WAIT && x->by == ZX_PASS_sync;
                    copies += x->id == ZX_I_PACK || x->id == ZX_I_UNPACK || x->id == ZX_I_BUCKET;
                }
                const bool as_said = form == 1 && ranks > 1;
                assert_int_equal(hooks, as_said ? f.h.n_events * micros : 0);
                assert_int_equal(syncs > 0, as_said);
                assert_int_equal(copies > 0, as_said);
                zx_arena_rewind(&f.mem, mark);
            }
    close_model(&f);
}

// ---- limits at random ---------------------------------------------------------------------------

static int64_t some_of(uint32_t *seed, int64_t all) // 0, all or more, or anything between
{
    *seed = *seed * 1664525u + 1013904223u;
    const uint32_t x = *seed >> 16;
    if (x % 7 == 0) return 0;
    if (x % 7 == 1) return 2 * all;
    return all >> (x % 12);
}

static void test_random(void **state ZX_UNUSED)
{
    const zx_hooks_options none = {0};
    fixture f = {0};
    const char *path = zx_arena_printf(&f.mem, "%s/cases/gpt2/model.onnx", ZX_TEST_DATA);
    assert_zx_ok(zx_onnx_open(&f.file, path, &f.mem, &f.err), &f.err);
    import(&f, &none);
    uint32_t seed = 1;
    for (uint32_t i = 0; i < 60; i++) {
        const zx_mark mark = zx_arena_mark(&f.mem);
        const zx_plan_options o = options(2 + i % 2, 1 + i % 3);
        const int64_t all = 220544;
        const zx_hook_limits l = {some_of(&seed, all),
                                  some_of(&seed, all),
                                  some_of(&seed, all),
                                  some_of(&seed, all),
                                  some_of(&seed, all),
                                  some_of(&seed, all),
                                  1,
                                  false};
        const zx_policy_input in = input(&f, &o, &l);
        zx_policy_result out;
        const zx_policy_id id = i % 4 == 0 ? ZX_POLICY_HOOKS : ZX_POLICY_HOOKS_DS;
        assert_zx_ok(zx_policy_plan(id, &in, &f.mem, &out, &f.err), &f.err);
        assert_int_equal(out.mended, 0);
        zx_arena_rewind(&f.mem, mark);
    }
    close_model(&f);
}

// ---- searched limits ----------------------------------------------------------------------------

static void plan_with(fixture *f, zx_policy_id id, uint64_t budget, const zx_hook_limits *l,
                      zx_policy_result *out)
{
    zx_plan_options o = options(2, 3);
    o.budget = budget;
    const zx_policy_input in = input(f, &o, l);
    assert_zx_ok(zx_policy_plan(id, &in, &f->mem, out, &f->err), &f->err);
}

static void plan_of(fixture *f, zx_policy_id id, uint64_t budget, zx_policy_result *out)
{
    static const zx_hook_limits l = {50000000, LOTS, LOTS, 100000, INT64_MAX, 500000000, 1, false};
    plan_with(f, id, budget, &l, out);
}

static void test_tuned(void **state ZX_UNUSED)
{
    static const zx_policy_id forms[2][2] = {{ZX_POLICY_HOOKS, ZX_POLICY_TUNED},
                                             {ZX_POLICY_HOOKS_DS, ZX_POLICY_TUNED_DS}};
    const zx_hooks_options none = {0};
    for (int form = 0; form < 2; form++) {
        fixture f;
        zx_policy_result given, best, again, least, tight;
        open_model(&f, "plain", &none);
        plan_of(&f, forms[form][0], UINT64_MAX, &given);
        plan_of(&f, forms[form][1], UINT64_MAX, &best);
        assert_true(best.plan.step_seconds <= given.plan.step_seconds);
        assert_non_null(strstr(best.knobs, "prefetch "));
        plan_of(&f, forms[form][1], UINT64_MAX, &again);
        assert_true(zx_plan_hash(&best.plan) == zx_plan_hash(&again.plan));
        assert_string_equal(best.knobs, again.knobs);
        // Nothing fits: the least is shown, and is over. A little more than that fits.
        plan_of(&f, forms[form][1], 1, &least);
        assert_true(least.over);
        assert_true(least.plan.arena_bytes < best.plan.arena_bytes);
        const uint64_t budget = (least.plan.arena_bytes + best.plan.arena_bytes) / 2;
        plan_of(&f, forms[form][1], budget, &tight);
        assert_false(tight.over);
        assert_true(tight.plan.arena_bytes <= budget);
        assert_true(tight.plan.step_seconds <= least.plan.step_seconds);
        close_model(&f);
    }
}

// ---- limits that exceed the budget --------------------------------------------------------------

// Only vectors persist.
static const zx_hook_limits loose = {50000000, LOTS, LOTS, 16, INT64_MAX, 500000000, 1, false};

static void test_lowered(void **state ZX_UNUSED)
{
    static const zx_policy_id forms[] = {ZX_POLICY_HOOKS, ZX_POLICY_HOOKS_DS};
    const zx_hooks_options none = {0};
    for (int form = 0; form < 2; form++) {
        fixture f;
        zx_policy_result own, low, again, nothing;
        open_model(&f, "plain", &none);
        plan_with(&f, forms[form], UINT64_MAX, &loose, &own);
        assert_string_equal(own.knobs, "");
        const uint64_t budget = own.plan.arena_bytes * 9 / 10;
        plan_with(&f, forms[form], budget, &loose, &low);
        assert_true(!low.over && low.plan.arena_bytes <= budget);
        assert_non_null(strstr(low.knobs, "reduce bucket "));
        plan_with(&f, forms[form], budget, &loose, &again);
        assert_true(zx_plan_hash(&low.plan) == zx_plan_hash(&again.plan));
        // Nothing fits: its own, over.
        plan_with(&f, forms[form], 1, &loose, &nothing);
        assert_true(nothing.over);
        assert_true(nothing.plan.arena_bytes == own.plan.arena_bytes);
        assert_string_equal(nothing.knobs, "");
        close_model(&f);
    }
}

// None of the three could be a quarter larger.
static void test_largest(void **state ZX_UNUSED)
{
    const zx_hooks_options none = {0};
    fixture f;
    zx_policy_result own;
    open_model(&f, "plain", &none);
    plan_with(&f, ZX_POLICY_HOOKS_DS, UINT64_MAX, &loose, &own);
    zx_plan_options o = options(2, 2);
    zx_trace t;
    assert_zx_ok(zx_trace_make(&f.train, &o, &f.mem, &t, &f.err), &f.err);
    const int64_t *at = zx_hooks_boundaries(&t, &f.h, &f.mem);
    uint32_t bound = 0;
    int64_t all = 0;
    for (uint32_t i = 0; i < f.h.n_params; i++) all += f.h.numel[i];
    for (uint64_t part = 5; part < 10; part++) {
        const uint64_t room = own.plan.arena_bytes * part / 10;
        zx_hook_limits fit;
        bool fits;
        const zx_policy_input in = input(&f, &o, &loose);
        assert_zx_ok(zx_hooks_fit(&in, &t, &o, at, true, room, &fit, &fits, &f.err), &f.err);
        if (!fits) continue;
        for (int k = 0; k < 3; k++) {
            zx_hook_limits more = fit;
            int64_t *x[] = {&more.reduce_bucket, &more.prefetch_bucket, &more.max_live};
            *x[k] = *x[k] * 5 / 4 + 1;
            if (k == 2) more.max_reuse = more.max_reuse * 5 / 4 + 1;
            if (*x[k] > all) continue; // its own
            zx_schedule s;
            uint32_t mended;
            zx_schedule_start(&s, &t, &o, &f.mem);
            assert_zx_ok(zx_hooks_write(&s, &f.h, &more, at, true, &f.err), &f.err);
            assert_zx_ok(zx_schedule_finish(&s, &mended, &f.err), &f.err);
            if (zx_schedule_load(&s) <= room) fail_msg("part %d, limit %d", (int)part, k);
            bound++;
        }
    }
    assert_true(bound > 0);
    close_model(&f);
}

#define ROWS(table, run)                                                                           \
    for (size_t i = 0; i < ZX_COUNT(table); i++) tests[n++] = zx_case(table[i].name, run, &table[i])

int main(void)
{
    struct CMUnitTest
        tests[ZX_COUNT(at_rows) + ZX_COUNT(logs) + ZX_COUNT(write_rows) + ZX_COUNT(plan_rows) + 4];
    size_t n = 0;
    ROWS(at_rows, test_at);
    ROWS(logs, test_log);
    ROWS(write_rows, test_write);
    ROWS(plan_rows, test_plan);
    tests[n++] = zx_case("limits at random", test_random, NULL);
    tests[n++] = zx_case("searched limits", test_tuned, NULL);
    tests[n++] = zx_case("limits that are lowered to the budget", test_lowered, NULL);
    tests[n++] = zx_case("they are the largest", test_largest, NULL);
    return _cmocka_run_group_tests("policy_hooks", tests, n, NULL, NULL);
}
