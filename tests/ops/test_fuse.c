// test_fuse.c - fusion passes: each row of fuse.def is a model in which a pattern is written out.
// What is recognised is counted, and loss and every gradient are the same with and without, within
// rounding.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "graph/autodiff.h"
#include "graph/fuse.h"
#include "graph/import.h"
#include "runtime/eval.h"
#include "tests/graph/onnx_text.h"
#include "tests/ops/rig.h"

static const struct row {
    const char *name, *model, *counts, *ops;
} rows[] = {
#define ROW(name, model, counts, ops) {name, model, counts, ops},
#include "tests/ops/fuse.def"
#undef ROW
};

typedef struct ran { // a train graph and what its values came to
    zx_graph g;
    zx_view *values;
} ran;

static zx_view fill(zx_arena *mem, const zx_type *t, uint64_t seed)
{
    if (zx_dtype_is_float(t->dtype)) {
        double *numbers;
        return rig_fill(mem, t, "", seed, &numbers);
    }
    const zx_view v = rig_view(mem, t);
    for (int64_t i = 0; i < zx_shape_count(&t->shape); i++) {
        const int64_t x = i % 3;
        memcpy((char *)v.data + (uint64_t)i * zx_dtype_bytes(t->dtype), &x,
               zx_dtype_bytes(t->dtype));
    }
    return v;
}

// Inputs and parameters have the same numbers in every graph: a value's seed is its place.
static void run(const zx_graph *forward, zx_arena *mem, ran *r)
{
    zx_err err = {0};
    zx_graph full;
    assert_zx_ok(zx_autodiff(forward, 1, mem, &full, &err), &err);
    zx_simplify(&full, mem, &r->g);
    r->values = ZX_NEW(mem, zx_view, r->g.n_values + 1);
    for (uint32_t v = 0; v < r->g.n_values; v++) {
        const zx_value *x = &r->g.values[v];
        if (x->role == ZX_R_INPUT || x->role == ZX_R_PARAM)
            r->values[v] = fill(mem, &x->type, 100 * (uint64_t)x->role + x->index);
    }
    bool seen[ZX_OP_COUNT] = {0};
    rig_graph(&r->g, r->values, mem, 1, seen);
}

static void same(const zx_view *a, const zx_view *b, const char *name)
{
    double most = 0;
    for (int64_t i = 0; i < zx_shape_count(&a->type.shape); i++)
        most = fmax(most, fabs(rig_get(a, i)));
    for (int64_t i = 0; i < zx_shape_count(&a->type.shape); i++) {
        const double x = rig_get(a, i), y = rig_get(b, i);
        if (!(fabs(x - y) <= 2e-5 * most + 1e-7))
            fail_msg("%s[%d] is %.9g fused, %.9g as written", name, (int)i, y, x);
    }
}

static void compare(const ran *a, const ran *b)
{
    same(&a->values[a->g.loss], &b->values[b->g.loss], "loss");
    assert_int_equal(a->g.n_params, b->g.n_params);
    for (uint32_t i = 0; i < a->g.n_params; i++) {
        const zx_param *p = &a->g.params[i], *q = &b->g.params[i];
        assert_int_equal(p->grad == ZX_NONE, q->grad == ZX_NONE);
        if (p->grad != ZX_NONE) same(&a->values[p->grad], &b->values[q->grad], p->name);
    }
}

static void check_counts(const struct row *row, const uint32_t *counts)
{
    zx_text out = {0};
    zx_text_put(&out, "%s", "");
    for (uint32_t i = 0; i < ZX_FUSE_COUNT; i++)
        if (counts[i] > 0)
            zx_text_put(&out, "%s%s %u", out.n > 0 ? ", " : "", zx_fuses[i].word, counts[i]);
    assert_string_equal(out.at, row->counts);
    zx_text_free(&out);
}

static bool has_op(const zx_graph *g, const char *word, size_t n)
{
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const char *w = zx_ops[g->nodes[i].op].word;
        if (strlen(w) == n && memcmp(w, word, n) == 0) return true;
    }
    return false;
}

static void check_ops(const struct row *row, const zx_graph *g)
{
    for (const char *at = row->ops; *at != '\0';) {
        const size_t n = strcspn(at, " ");
        const bool gone = *at == '-';
        if (has_op(g, at + gone, n - gone) == gone)
            fail_msg("%.*s %s", (int)(n - gone), at + gone, gone ? "is left" : "isn't there");
        at += n + (at[n] == ' ');
    }
}

// Nodes read what was made before them, and know who makes what.
static void check_order(const zx_graph *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        for (uint32_t a = 0; a < n->n_in; a++) {
            const uint32_t v = zx_node_in(g, n, a);
            if (v != ZX_NONE && g->values[v].by != ZX_NONE) assert_true(g->values[v].by < i);
        }
        for (uint32_t o = 0; o < n->n_out; o++)
            if (zx_node_out(g, n, o) != ZX_NONE)
                assert_int_equal(g->values[zx_node_out(g, n, o)].by, i);
        assert_true(n->first_source <= n->source);
    }
}

static void test_row(void **state)
{
    const struct row *row = *state;
    zx_arena mem = {0};
    zx_onnx_file f = {0};
    zx_graph plain, fused, left;
    zx_err err = {0};
    uint32_t counts[ZX_FUSE_COUNT];
    bool off[ZX_FUSE_COUNT];
    ran a, b;
    const zx_import_options o = {.eval = &zx_cpu_eval};
    assert_zx_ok(ot_open(&mem, row->model, NULL, 0, &f, &err), &err);
    assert_zx_ok(zx_import(&f, &o, &mem, &plain, NULL, &err), &err);
    zx_fuse(&plain, NULL, &mem, &fused, counts);
    check_counts(row, counts);
    check_ops(row, &fused);
    check_order(&fused);
    run(&plain, &mem, &a);
    run(&fused, &mem, &b);
    compare(&a, &b);
    for (uint32_t i = 0; i < ZX_FUSE_COUNT; i++) off[i] = true;
    zx_fuse(&plain, off, &mem, &left, counts);
    assert_true(zx_graph_hash(&left) == zx_graph_hash(&plain));
    zx_onnx_close(&f);
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, test_row, &rows[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
