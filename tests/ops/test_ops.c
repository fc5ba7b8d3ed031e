// test_ops.c - every row of cases.def four ways, and every row of ops.def at least once.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"
#include "tests/op_text.h"
#include "tests/ops/rig.h"
#include "tests/ops/naive.h"

#include "graph/autodiff.h"
#include "kernels/cpu/cpu.h"
#include "tests/ops/cases.h"

// What is said at the end: rows whose kernel ran, rows whose gradient was checked.
static bool kernel_ran[ZX_OP_COUNT], gradient_checked[ZX_OP_COUNT];

// ---- one node
// ----------------------------------------------------------------------------------------

typedef struct one_node {
    zx_arena mem;
    zx_attrs attrs;
    uint32_t n_in, n_out;
    op_arg args[8];
    zx_view in[8], out[8];
    naive_tensor naive_in[8], naive_out[8];
} one_node;

// Infers the outputs, which must be those that the row says, and fills the inputs.
static void set_up(const op_case *row, one_node *n)
{
    memset(n, 0, sizeof *n);
    n->attrs = op_text_attrs(row->attrs, &n->mem);
    n->n_in = op_text_args(row->in, n->args, 8);
    n->n_out = zx_ops[row->op].n_out;
    const zx_type *types[8] = {NULL};
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!n->args[i].omitted) types[i] = &n->args[i].type;
    zx_type out[8];
    zx_err err = {0};
    const zx_op_args args = {.op = row->op,
                             .attrs = &n->attrs,
                             .n_in = n->n_in,
                             .n_out = n->n_out,
                             .in = types,
                             .out = out};
    assert_zx_ok(zx_ops[row->op].infer(&args, out, &err), &err);
    char text[512];
    assert_string_equal(op_text_print(out, n->n_out, text, sizeof text), row->out);
    const zx_cost cost = zx_ops[row->op].cost(&args);
    assert_true(cost.flops >= 0 && cost.bytes >= 0 && isfinite(cost.flops + cost.bytes));
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (n->args[i].omitted) continue;
        n->naive_in[i] = (naive_tensor){n->args[i].type, NULL};
        n->in[i] = rig_fill(&n->mem, &n->args[i].type, n->args[i].fill, i + 1, &n->naive_in[i].x);
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        n->out[i] = rig_view(&n->mem, &out[i]);
        n->naive_out[i] = (naive_tensor){
            out[i], ZX_NEW(&n->mem, double, (size_t)zx_shape_count(&out[i].shape) + 1)};
    }
}

static void run_naive(const op_case *row, one_node *n)
{
    naive_fn *naive = naive_of(row->op);
    assert_non_null(naive);
    naive(&(naive_call){.op = row->op,
                        .attrs = &n->attrs,
                        .n_in = n->n_in,
                        .n_out = n->n_out,
                        .in = n->naive_in,
                        .out = n->naive_out});
}

// How far a kernel may be from the naive one, as a part of the value and of the greatest value.
static void tolerance(zx_op_id op, zx_dtype t, double *of_value, double *of_most)
{
    const bool elementwise = zx_ops[op].cost == zx_cost_elwise || zx_ops[op].cost == zx_cost_move;
    const double unit = t == ZX_F64 ? 1e-13 : t == ZX_F16 ? 2e-3 : t == ZX_BF16 ? 1.6e-2 : 1e-6;
    *of_value = unit;
    *of_most = elementwise ? unit / 20 : unit * 4;
}

static void compare(const op_case *row, const one_node *n, const zx_view *out, const char *how)
{
    for (uint32_t o = 0; o < n->n_out; o++) {
        const int64_t count = zx_shape_count(&out[o].type.shape);
        const double *want = n->naive_out[o].x;
        double of_value, of_most, most = 0;
        tolerance(row->op, out[o].type.dtype, &of_value, &of_most);
        for (int64_t i = 0; i < count; i++)
            if (isfinite(want[i])) most = fmax(most, fabs(want[i]));
        for (int64_t i = 0; i < count; i++) {
            const double got = rig_get(&out[o], i);
            const double w = rig_round(out[o].type.dtype, want[i]); // overflows as the type does
            if (isnan(w)      ? isnan(got)
                : isfinite(w) ? fabs(got - w) <= of_value * fabs(w) + of_most * fmin(most, 1e30)
                              : got == w)
                continue;
            fail_msg("output %u, element %lld (%s): %.9g, naive %.9g", o, (long long)i, how, got,
                     w);
        }
    }
}

// ---- 1 and 2: shapes, kernels against naive ones
// -------------------------------------------------------

static void values(void **state)
{
    const op_case *row = *state;
    static const int threads[] = {1, 2, 3};
    one_node n;
    set_up(row, &n);
    run_naive(row, &n);
    for (size_t t = 0; t < ZX_COUNT(threads); t++) {
        char how[32];
        snprintf(how, sizeof how, "%d threads", threads[t]);
        zx_view out[8], again[8];
        for (uint32_t i = 0; i < n.n_out; i++) {
            out[i] = rig_view(&n.mem, &n.out[i].type);
            again[i] = rig_view(&n.mem, &n.out[i].type);
        }
        rig_run(row->op, &n.attrs, n.in, n.n_in, out, n.n_out, threads[t]);
        compare(row, &n, out, how);
        // The same threads, the same bits; outputs that nobody reads needn't be there.
        for (uint32_t i = 1; t == 0 && i < n.n_out; i++) again[i].data = NULL;
        rig_run(row->op, &n.attrs, n.in, n.n_in, again, n.n_out, threads[t]);
        for (uint32_t i = 0; i < n.n_out; i++)
            if (again[i].data != NULL && !rig_same(&out[i], &again[i]))
                fail_msg("output %u differs between two runs (%s)", i, how);
    }
    kernel_ran[row->op] = true;
    zx_arena_free(&n.mem);
}

// ---- 2 in 16 bits: the same values from operands of 16 bits
// ----------------------------------------

// Operands that were float32 in 16 bits; the naive kernel gets the rounded ones.
static void halve(one_node *n, zx_dtype t)
{
    for (uint32_t i = 0; i < n->n_in; i++) {
        zx_view *v = &n->in[i];
        if (n->args[i].omitted || v->type.dtype != ZX_F32) continue;
        const int64_t count = zx_shape_count(&v->type.shape);
        const zx_type type = {t, v->type.shape};
        zx_view half = rig_view(&n->mem, &type);
        zx_cpu_narrow(t, v->data, half.data, count);
        for (int64_t k = 0; k < count; k++) n->naive_in[i].x[k] = rig_get(&half, k);
        n->naive_in[i].type = half.type;
        *v = half;
    }
    for (uint32_t o = 0; o < n->n_out; o++)
        if (n->out[o].type.dtype == ZX_F32) n->out[o].type.dtype = t;
}

// Computed in float32 and rounded once.
static void halves(void **state)
{
    const op_case *row = *state;
    static const zx_dtype types[] = {ZX_BF16, ZX_F16};
    for (size_t t = 0; t < ZX_COUNT(types); t++) {
        one_node n;
        zx_view out[8];
        set_up(row, &n);
        halve(&n, types[t]);
        for (uint32_t i = 0; i < n.n_out; i++) {
            out[i] = rig_view(&n.mem, &n.out[i].type);
            n.naive_out[i].type = n.out[i].type;
        }
        run_naive(row, &n);
        rig_run(row->op, &n.attrs, n.in, n.n_in, out, n.n_out, 2);
        compare(row, &n, out, zx_dtypes[types[t]].word);
        zx_arena_free(&n.mem);
    }
    one_node n;
    set_up(row, &n);
    rig_run_halves(row->op, &n.attrs, n.in, n.n_in, n.out, n.n_out);
    zx_arena_free(&n.mem);
}

// ---- 4: the same bits over an input, at any address, in any part
// ----------------------------------------

static void in_place(const op_case *row, const one_node *n, zx_arena *mem)
{
    if (!(zx_ops[row->op].flags & ZX_OP_INPLACE)) return;
    zx_view want = rig_view(mem, &n->out[0].type);
    rig_run(row->op, &n->attrs, n->in, n->n_in, &want, n->n_out, 2);
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (n->in[i].data == NULL || n->in[i].type.dtype != want.type.dtype ||
            zx_type_bytes(&n->in[i].type) != zx_type_bytes(&want.type))
            continue;
        zx_view in[8], got = rig_view(mem, &want.type);
        memcpy(in, n->in, sizeof in);
        memcpy(got.data, in[i].data, zx_type_bytes(&want.type));
        in[i].data = got.data;
        rig_run(row->op, &n->attrs, in, n->n_in, &got, n->n_out, 2);
        if (!rig_same(&want, &got)) fail_msg("other bits when written over input %u", i);
    }
}

// Elements [from, from + n) of a flat tensor where they lie, or a scalar as it is.
static zx_view piece(const zx_view *v, int64_t from, int64_t n)
{
    zx_view p = *v;
    if (p.data == NULL || zx_shape_count(&p.type.shape) == 1) return p;
    p.type.shape = (zx_shape){1, {n}};
    p.data = (char *)p.data + from * zx_dtype_bytes(p.type.dtype);
    return p;
}

static void in_pieces(const op_case *row, const one_node *n, zx_arena *mem)
{
    const int64_t count = zx_shape_count(&n->out[0].type.shape);
    if (zx_ops[row->op].cost != zx_cost_elwise || n->n_out != 1 || count < 60 || count > 100)
        return;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i].data != NULL && zx_shape_count(&n->in[i].type.shape) != count &&
            zx_shape_count(&n->in[i].type.shape) != 1)
            return;
    zx_view whole = rig_view(mem, &n->out[0].type);
    rig_run(row->op, &n->attrs, n->in, n->n_in, &whole, 1, 1);
    for (int64_t from = 0; from < 19; from++) {
        const int64_t lengths[] = {1, 3, 8, 17, 31, count - from};
        for (size_t l = 0; l < ZX_COUNT(lengths); l++) {
            zx_view in[8], got = rig_view(mem, &whole.type);
            for (uint32_t i = 0; i < n->n_in; i++) in[i] = piece(&n->in[i], from, lengths[l]);
            zx_view to = piece(&got, from, lengths[l]), want = piece(&whole, from, lengths[l]);
            rig_run(row->op, &n->attrs, in, n->n_in, &to, 1, 1);
            if (!rig_same(&want, &to))
                fail_msg("other bits for elements [%lld, %lld) by themselves", (long long)from,
                         (long long)(from + lengths[l]));
        }
    }
}

static void bits(void **state)
{
    const op_case *row = *state;
    one_node n;
    set_up(row, &n);
    in_place(row, &n, &n.mem);
    in_pieces(row, &n, &n.mem);
    zx_arena_free(&n.mem);
}

// ---- 3: gradients against central differences
// ------------------------------------------------------------

// sum(op(inputs)[0] * w), in double.
static double naive_loss(const op_case *row, one_node *n, const double *w)
{
    double loss = 0;
    run_naive(row, n);
    for (int64_t i = 0; i < naive_count(&n->naive_out[0]); i++) loss += n->naive_out[0].x[i] * w[i];
    return loss;
}

typedef struct train {
    zx_graph g;
    zx_view *values; // one a value of g
} train;

// The train graph of sum(op(inputs)[0] * w), with the inputs that are differentiated as parameters.
static void build(const op_case *row, one_node *n, const zx_view *w, train *t)
{
    zx_builder b;
    uint32_t in[8], out[8], loss;
    zx_view views[16]; // of the first values
    zx_err err = {0};
    zx_builder_start(&b, &n->mem, "test");
    b.at_name = "node";
    for (uint32_t i = 0; i < n->n_in; i++) {
        in[i] = ZX_NONE;
        if (n->in[i].data == NULL) continue;
        const char *name = zx_arena_printf(&n->mem, "x%u", i);
        in[i] = strchr(row->differentiated, (int)('0' + i))
                    ? zx_build_param(&b, &n->in[i].type, &(zx_param){.name = name})
                    : zx_build_input(&b, name, &n->in[i].type);
        views[in[i]] = n->in[i];
    }
    const uint32_t wv = zx_build_input(&b, "w", &w->type);
    views[wv] = *w;
    assert_zx_ok(zx_build_node(&b, row->op, in, n->n_in, n->attrs, NULL, out, &err), &err);
    loss = zx_build1(&b, ZX_OP_MUL, (zx_attrs){0}, 2, out[0], wv);
    static const int64_t all[ZX_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    zx_attrs attrs = zx_attrs_ints(&n->mem, (zx_attrs){0}, ZX_A_AXES, all, w->type.shape.rank);
    attrs = zx_attrs_int(&n->mem, attrs, ZX_A_KEEPDIMS, 0);
    if (w->type.shape.rank > 0) loss = zx_build1(&b, ZX_OP_REDUCE_SUM, attrs, 1, loss);
    b.g.loss = loss;
    zx_graph forward;
    zx_builder_done(&b, &forward);
    assert_zx_ok(zx_autodiff(&forward, 1, &n->mem, &t->g, &err), &err);
    t->values = ZX_NEW(&n->mem, zx_view, t->g.n_values + 1);
    for (uint32_t v = 0; v < t->g.n_values; v++) // inputs and parameters come first, in order
        if (t->g.values[v].role == ZX_R_INPUT || t->g.values[v].role == ZX_R_PARAM)
            t->values[v] = views[v];
}

static void check_gradient(const op_case *row, one_node *n, uint32_t i, const zx_view *got,
                           const double *w)
{
    const double h = 1e-5;
    const int64_t count = naive_count(&n->naive_in[i]);
    double *want = ZX_NEW(&n->mem, double, (size_t)count + 1), most = 0;
    for (int64_t k = 0; k < count; k++) {
        double *x = &n->naive_in[i].x[k];
        const double at = *x;
        *x = at + h;
        const double above = naive_loss(row, n, w);
        *x = at - h;
        want[k] = (above - naive_loss(row, n, w)) / (2 * h);
        *x = at;
        most = fmax(most, fabs(want[k]));
    }
    for (int64_t k = 0; k < count; k++)
        if (!(fabs(rig_get(got, k) - want[k]) <= 1e-5 * most + 2e-6))
            fail_msg("gradient of input %u, element %lld: %.9g, central difference %.9g", i,
                     (long long)k, rig_get(got, k), want[k]);
}

// What a row's gradient is made of, in 16 bits.
static void halve_gradients(const train *t)
{
    for (uint32_t i = 0; i < t->g.n_nodes; i++) {
        const zx_node *n = &t->g.nodes[i];
        zx_view in[64], out[8];
        if (zx_ops[n->op].flags & ZX_OP_VIEW) continue;
        for (uint32_t k = 0; k < n->n_in; k++) {
            const uint32_t v = zx_node_in(&t->g, n, k);
            in[k] = v == ZX_NONE ? (zx_view){0} : t->values[v];
        }
        for (uint32_t k = 0; k < n->n_out; k++) out[k] = t->values[zx_node_out(&t->g, n, k)];
        rig_run_halves((zx_op_id)n->op, &n->attrs, in, n->n_in, out, n->n_out);
    }
}

static void gradients(void **state)
{
    const op_case *row = *state;
    one_node n;
    train t;
    double *w;
    set_up(row, &n);
    const zx_view wv = rig_fill(&n.mem, &n.out[0].type, "", 99, &w);
    build(row, &n, &wv, &t);
    rig_graph(&t.g, t.values, &n.mem, 2, kernel_ran);
    halve_gradients(&t);
    uint32_t p = 0;
    for (uint32_t i = 0; i < n.n_in; i++) {
        if (n.in[i].data == NULL || !strchr(row->differentiated, (int)('0' + i))) continue;
        const uint32_t grad = t.g.params[p++].grad;
        if (zx_shape_count(&n.in[i].type.shape) == 0) continue;
        assert_int_not_equal(grad, ZX_NONE);
        assert_true(zx_shape_equal(&t.values[grad].type.shape, &n.in[i].type.shape));
        check_gradient(row, &n, i, &t.values[grad], w);
    }
    gradient_checked[row->op] = true;
    zx_arena_free(&n.mem);
}

// ---- what isn't a row
// -----------------------------------------------------------------------------------

// Ties: Max and Min give all to their first operand, a reduction to the first in row-major order.
static void ties(void **state ZX_UNUSED)
{
    static const struct {
        zx_op_id op;
        const char *in, *attrs;
        double want[2][6];
    } rows[] = {
        {ZX_OP_MAX, "f32[3]:=1,2,3 f32[3]:=1,1,4", "", {{1, 1, 0}, {0, 0, 1}}},
        {ZX_OP_MIN, "f32[3]:=1,2,3 f32[3]:=1,1,4", "", {{1, 0, 1}, {0, 1, 0}}},
        {ZX_OP_REDUCE_MAX, "f32[2,3]:=5,1,5,5,5,2", "AXES=0,1 KEEPDIMS=0", {{1, 0, 0, 0, 0, 0}}},
        {ZX_OP_REDUCE_MIN, "f32[2,3]:=5,1,1,3,3,3", "AXES=1 KEEPDIMS=0", {{0, 1, 0, 1, 0, 0}}},
        {ZX_OP_MAX_POOL,
         "f32[1,1,6]:=7,7,1,2,2,2",
         "KERNEL_SHAPE=3 STRIDES=3 PADS=0,0 DILATIONS=1 SHAPE=1,1,2",
         {{1, 0, 0, 1, 0, 0}}},
        {ZX_OP_CLIP, "f32[4]:=-1,0,1,2 f32[]:=-1 f32[]:=1", "", {{1, 1, 1, 0}}},
        {ZX_OP_RELU, "f32[3]:=-1,0,1", "", {{0, 0, 1}}},
        {ZX_OP_ABS, "f32[3]:=-1,0,1", "", {{-1, 0, 1}}},
        {ZX_OP_REDUCE_L2, "f32[2,2]:=0,0,3,4", "AXES=1", {{0, 0, 0.6, 0.8}}},
        {ZX_OP_POW, "f32[3]:=0,2,3 f32[]:=2", "", {{0, 4, 6}}},
    };
    for (size_t r = 0; r < ZX_COUNT(rows); r++) {
        const op_case row = {"", rows[r].op, rows[r].in, rows[r].attrs, NULL, "01"};
        op_case shaped = row;
        char text[256];
        one_node n;
        train t;
        memset(&n, 0, sizeof n);
        n.attrs = op_text_attrs(row.attrs, &n.mem);
        n.n_in = op_text_args(row.in, n.args, 8);
        const zx_type *types[8] = {&n.args[0].type, &n.args[1].type, &n.args[2].type};
        zx_type out[8];
        zx_err err = {0};
        const zx_op_args args = {.op = row.op,
                                 .attrs = &n.attrs,
                                 .n_in = n.n_in,
                                 .n_out = zx_ops[row.op].n_out,
                                 .in = types,
                                 .out = out};
        assert_zx_ok(zx_ops[row.op].infer(&args, out, &err), &err);
        shaped.out = op_text_print(out, args.n_out, text, sizeof text);
        if (row.op == ZX_OP_CLIP || row.op == ZX_OP_POW) shaped.differentiated = "0";
        zx_arena_free(&n.mem);
        set_up(&shaped, &n);
        double *ones;
        const zx_view w = rig_fill(&n.mem, &n.out[0].type, "=1", 1, &ones);
        build(&shaped, &n, &w, &t);
        rig_graph(&t.g, t.values, &n.mem, 1, kernel_ran);
        for (uint32_t p = 0; p < t.g.n_params; p++)
            for (int64_t k = 0; k < zx_shape_count(&n.in[p].type.shape); k++) {
                const double got = rig_get(&t.values[t.g.params[p].grad], k);
                if (fabs(got - rows[r].want[p][k]) > 1e-6)
                    fail_msg("%s: gradient of input %u, element %lld is %g, not %g",
                             zx_ops[row.op].word, p, (long long)k, got, rows[r].want[p][k]);
            }
        zx_arena_free(&n.mem);
    }
}

// 0^p for p >= 0 has no gradient in p, though log 0 is infinite.
static void pow_at_zero(void **state ZX_UNUSED)
{
    const op_case row = {"", ZX_OP_POW, "f32[3]:=0,0,2 f32[3]:=2,0,1", "", "f32[3]", "1"};
    one_node n;
    train t;
    double *ones;
    set_up(&row, &n);
    const zx_view w = rig_fill(&n.mem, &n.out[0].type, "=1", 1, &ones);
    build(&row, &n, &w, &t);
    rig_graph(&t.g, t.values, &n.mem, 1, kernel_ran);
    const zx_view *d = &t.values[t.g.params[0].grad];
    assert_true(rig_get(d, 0) == 0 && rig_get(d, 1) == 0);
    assert_true(fabs(rig_get(d, 2) - 2 * log(2)) < 1e-6);
    zx_arena_free(&n.mem);
}

// Two operators, one after the other, on x; the gradient of the sum of the result.
static void gradient_of_two(const zx_view *x, zx_op_id first, const char *first_attrs,
                            zx_op_id second, bool masked, zx_arena *mem, zx_view *grad)
{
    zx_builder b;
    zx_graph forward, g;
    zx_err err = {0};
    zx_builder_start(&b, mem, "test");
    const uint32_t p = zx_build_param(&b, &x->type, &(zx_param){.name = "x"});
    uint32_t y = zx_build1(&b, first, op_text_attrs(first_attrs, mem), 1, p);
    if (masked) { // Where(x > 0, second, x)
        const uint32_t zero = zx_build_scalar(&b, ZX_F32, 0);
        const uint32_t mask = zx_build1(&b, ZX_OP_GREATER, (zx_attrs){0}, 2, p, zero);
        y = zx_build1(&b, second, (zx_attrs){0}, 3, mask, y, p);
    } else {
        y = zx_build1(&b, second, (zx_attrs){0}, 1, y);
    }
    b.g.loss = zx_build1(&b, ZX_OP_REDUCE_SUM, op_text_attrs("AXES=0 KEEPDIMS=0", mem), 1, y);
    zx_builder_done(&b, &forward);
    assert_zx_ok(zx_autodiff(&forward, 1, mem, &g, &err), &err);
    zx_view *values = ZX_NEW(mem, zx_view, g.n_values + 1);
    values[g.params[0].value] = *x;
    rig_graph(&g, values, mem, 1, kernel_ran);
    *grad = values[g.params[0].grad];
}

// Where sends an exact 0 to what it didn't choose, and an operator whose slope there is infinite or
// NaN makes NaN of that: as PyTorch does, and found by the search for the first bad node.
static void zero_times_infinity(void **state ZX_UNUSED)
{
    const zx_type two = {ZX_F32, {1, {2}}};
    zx_arena mem = {0};
    double *unused;
    zx_view grad;
    const zx_view negative = rig_fill(&mem, &two, "=-1,4", 1, &unused);
    gradient_of_two(&negative, ZX_OP_SQRT, "", ZX_OP_WHERE, true, &mem, &grad);
    assert_true(isnan(rig_get(&grad, 0)) && rig_get(&grad, 1) == 0.25);
    // The norm written as two operators has no slope at 0; ReduceL2 has the slope 0 there (ties).
    const zx_view zero = rig_fill(&mem, &two, "=0", 1, &unused);
    gradient_of_two(&zero, ZX_OP_REDUCE_SUM_SQUARE, "AXES=0", ZX_OP_SQRT, false, &mem, &grad);
    assert_true(isnan(rig_get(&grad, 0)));
    zx_arena_free(&mem);
}

typedef struct faulty {
    const char *name;
    zx_op_id op;
    const char *in, *attrs;
    zx_fault_kind kind;
    int64_t a;
} faulty;

// Values that a kernel must notice, never follow.
static const faulty faults[] = {
    {"gather past the end", ZX_OP_GATHER, "f32[3,2] i64[2]:=0,3", "AXIS=0", ZX_FAULT_INDEX, 3},
    {"gather before the start", ZX_OP_GATHER, "f32[3,2] i32[2]:=0,-4", "AXIS=0", ZX_FAULT_INDEX,
     -4},
    {"gather elements", ZX_OP_GATHER_ELEMENTS, "f32[3,2] i64[1,2]:=0,9", "AXIS=0", ZX_FAULT_INDEX,
     9},
    {"gather ND", ZX_OP_GATHER_ND, "f32[3,2] i64[1,2]:=0,2", "", ZX_FAULT_INDEX, 2},
    {"scatter elements", ZX_OP_SCATTER_ELEMENTS, "f32[3] i64[1]:=-5 f32[1]", "AXIS=0",
     ZX_FAULT_INDEX, -5},
    {"scatter ND", ZX_OP_SCATTER_ND, "f32[3] i64[1,1]:=3 f32[1]", "", ZX_FAULT_INDEX, 3},
    {"gather gradient", ZX_OP_GATHER_GRAD, "f32[1,2] i64[1]:=3", "AXIS=0 SHAPE=3,2", ZX_FAULT_INDEX,
     3},
    {"label past the classes", ZX_OP_CROSS_ENTROPY, "f32[2,3] i64[2]:=0,3", "", ZX_FAULT_LABEL, 3},
    {"label below 0", ZX_OP_CROSS_ENTROPY, "f32[2,3] i64[2]:=0,-100", "", ZX_FAULT_LABEL, -100},
    {"label is another than ignored", ZX_OP_CROSS_ENTROPY, "f32[2,3] i64[2]:=-100,-1",
     "IGNORE_INDEX=-100", ZX_FAULT_LABEL, -1},
    {"label of log-probabilities", ZX_OP_NLL_LOSS, "f32[2,3] i32[2]:=0,7", "", ZX_FAULT_LABEL, 7},
    {"label past the classes of a linear layer", ZX_OP_LINEAR_CROSS_ENTROPY,
     "f32[2,3] f32[5,3] i64[2]:=0,5", "", ZX_FAULT_LABEL, 5},
    {"label below 0 of a linear layer", ZX_OP_LINEAR_CROSS_ENTROPY,
     "f32[2,3] f32[5,3] i64[2]:=0,-1", "IGNORE_INDEX=-100", ZX_FAULT_LABEL, -1},
    {"gradient of a label past the classes", ZX_OP_LINEAR_CROSS_ENTROPY_GRAD,
     "f32[] f32[2,3] f32[5,3] i64[2]:=0,7", "", ZX_FAULT_LABEL, 7},
    {"rotary position past the cache", ZX_OP_ROTARY_EMBEDDING,
     "f32[1,1,2,2] f32[3,1] f32[3,1] i64[1,2]:=2,3", "", ZX_FAULT_INDEX, 3},
    {"rotary position below 0", ZX_OP_ROTARY_EMBEDDING,
     "f32[1,1,2,2] f32[3,1] f32[3,1] i64[1,2]:=2,-1", "", ZX_FAULT_INDEX, -1},
    {"division by 0", ZX_OP_DIV, "i64[2]:=4,5 i64[2]:=2,0", "", ZX_FAULT_DIVIDE, 5},
    {"remainder by 0", ZX_OP_MOD, "i32[2]:=4,5 i32[2]:=2,0", "", ZX_FAULT_DIVIDE, 5},
};

static void fault(void **state)
{
    const faulty *row = *state;
    zx_arena mem = {0};
    op_arg args[8];
    zx_view in[8], out[8];
    const zx_type *types[8];
    zx_type made[8];
    zx_err err = {0};
    const uint32_t n = op_text_args(row->in, args, 8), n_out = zx_ops[row->op].n_out;
    const zx_attrs attrs = op_text_attrs(row->attrs, &mem);
    for (uint32_t i = 0; i < n; i++) {
        double *unused;
        types[i] = &args[i].type;
        in[i] = rig_fill(&mem, &args[i].type, args[i].fill, i + 1, &unused);
    }
    const zx_op_args a = {row->op, &attrs, n, n_out, types, made};
    assert_zx_ok(zx_ops[row->op].infer(&a, made, &err), &err);
    for (uint32_t i = 0; i < n_out; i++) out[i] = rig_view(&mem, &made[i]);
    const zx_fault got = rig_run_faulty(row->op, &attrs, in, n, out, n_out, 2);
    assert_int_equal(got.kind, row->kind);
    assert_int_equal(got.a, row->a);
    zx_arena_free(&mem);
}

// ---- dropout
// ---------------------------------------------------------------------------------------------

static void drop(zx_view *x, zx_view *y, double ratio, int64_t key, zx_rng rng, int threads)
{
    zx_arena mem = {0};
    zx_attrs attrs = zx_attrs_float(&mem, (zx_attrs){0}, ZX_A_RATIO, ratio);
    attrs = zx_attrs_int(&mem, attrs, ZX_A_KEY, key);
    rig_run_random(ZX_OP_DROPOUT, &attrs, x, 1, y, 1, threads, &rng);
    zx_arena_free(&mem);
}

static void dropout(void **state ZX_UNUSED)
{
    const zx_type type = {ZX_F32, {1, {20011}}};
    const zx_rng rng = {.seed = 5, .step = 3, .micro = 2};
    zx_arena mem = {0};
    double *values;
    zx_view x = rig_fill(&mem, &type, "", 1, &values), y = rig_view(&mem, &type);
    zx_view z = rig_view(&mem, &type);
    drop(&x, &y, 0.25, 7, rng, 1);
    int64_t kept = 0;
    for (int64_t i = 0; i < 20011; i++) {
        const float got = (float)rig_get(&y, i), want = (float)values[i] / 0.75f;
        assert_true(got == 0 || fabsf(got - want) <= 1e-6f * fabsf(want));
        kept += got != 0;
    }
    assert_true(llabs(kept - 15008) < 400); // 6 deviations
    drop(&x, &z, 0.25, 7, rng, 3);
    assert_true(rig_same(&y, &z)); // whatever the threads
    static const struct {
        int64_t key;
        zx_rng rng;
    } others[] = {{8, {5, 3, 2}}, {7, {6, 3, 2}}, {7, {5, 4, 2}}, {7, {5, 3, 3}}};
    for (size_t i = 0; i < ZX_COUNT(others); i++) {
        int64_t same = 0; // masks that know nothing of each other agree on 0.75^2 + 0.25^2 of all
        drop(&x, &z, 0.25, others[i].key, others[i].rng, 1);
        for (int64_t k = 0; k < 20011; k++) same += (rig_get(&y, k) == 0) == (rig_get(&z, k) == 0);
        assert_true(llabs(same - 12507) < 450);
    }
    drop(&x, &z, 0, 7, rng, 1);
    assert_true(rig_same(&x, &z));
    kernel_ran[ZX_OP_DROPOUT] = true;
    zx_arena_free(&mem);
}

// The gradient falls through the same mask.
static void dropout_gradient(void **state ZX_UNUSED)
{
    const op_case row = {"", ZX_OP_DROPOUT, "f32[101]", "RATIO=0.5 KEY=3", "f32[101]", "0"};
    one_node n;
    train t;
    double *w;
    set_up(&row, &n);
    const zx_view wv = rig_fill(&n.mem, &n.out[0].type, "", 9, &w);
    build(&row, &n, &wv, &t);
    rig_graph(&t.g, t.values, &n.mem, 1, kernel_ran);
    const zx_view *dx = &t.values[t.g.params[0].grad];
    rig_run(row.op, &n.attrs, n.in, 1, n.out, 1, 1);
    int64_t kept = 0;
    for (int64_t i = 0; i < 101; i++) {
        const bool keep = rig_get(&n.out[0], i) != 0;
        assert_true(rig_get(dx, i) == (keep ? 2 * w[i] : 0));
        kept += keep;
    }
    assert_true(kept > 20 && kept < 81);
    gradient_checked[ZX_OP_DROPOUT] = true;
    zx_arena_free(&n.mem);
}

// ---- nothing is left out
// -----------------------------------------------------------------------------------

static void every_row(void **state ZX_UNUSED)
{
    static const char *const excused[ZX_OP_COUNT] = {
#define ZX_CASE(op, in, attrs, out, grads)
#define ZX_EXCUSED(op, why) [ZX_OP_##op] = why,
#include "tests/ops/cases.def"
#undef ZX_CASE
#undef ZX_EXCUSED
    };
    uint32_t missing = 0;
    for (uint32_t i = 0; i < ZX_OP_COUNT; i++) {
        bool has_case = false;
        for (size_t k = 0; k < ZX_COUNT(cases); k++) has_case = has_case || cases[k].op == i;
        if (!kernel_ran[i]) {
            print_error("%s: no case of tests/ops/cases.def runs its kernel\n", zx_ops[i].word);
            missing++;
        }
        if (naive_of((zx_op_id)i) != NULL && !has_case && excused[i] == NULL) {
            print_error("%s: has no case of its own\n", zx_ops[i].word);
            missing++;
        }
        if (zx_ops[i].grad != NULL && zx_ops[i].grad != zx_grad_zero && !gradient_checked[i]) {
            print_error("%s: no case checks its gradient\n", zx_ops[i].word);
            missing++;
        }
    }
    assert_int_equal(missing, 0);
}

int main(void)
{
    static struct CMUnitTest tests[4 * ZX_COUNT(cases) + ZX_COUNT(faults) + 6];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(cases); i++) {
        tests[n++] = zx_case(cases[i].name, values, &cases[i]);
        if (cases[i].op != ZX_OP_CAST && (!test_few() || i % 3 == 0))
            tests[n++] = zx_case(cases[i].name, halves, &cases[i]);
        if (zx_ops[cases[i].op].flags & ZX_OP_INPLACE || zx_ops[cases[i].op].cost == zx_cost_elwise)
            tests[n++] = zx_case(cases[i].name, bits, &cases[i]);
        if (cases[i].differentiated[0] != '\0')
            tests[n++] = zx_case(cases[i].name, gradients, &cases[i]);
    }
    for (size_t i = 0; i < ZX_COUNT(faults); i++)
        tests[n++] = zx_case(faults[i].name, fault, &faults[i]);
    tests[n++] = zx_case("ties", ties, NULL);
    tests[n++] = zx_case("pow at zero", pow_at_zero, NULL);
    tests[n++] = zx_case("zero times infinity", zero_times_infinity, NULL);
    tests[n++] = zx_case("dropout", dropout, NULL);
    tests[n++] = zx_case("dropout gradient", dropout_gradient, NULL);
    tests[n++] = zx_case("every row of ops.def", every_row, NULL);
    return _cmocka_run_group_tests("ops.ops", tests, n, NULL, NULL);
}
