// test_ops.c - CUDA kernels against the CPU's, on every row of tests/ops/cases.def whose op has
// one: the op itself, and each node of its gradient. A kernel that is added to cuda.h is tested by
// the rows there are.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/rig.h"

#include <cublasLt.h>
#include <math.h>

#include "graph/autodiff.h"
#include "graph/precision.h"
#include "kernels/cpu/common.h"
#include "kernels/cuda/cuda.h"
#include "tests/op_text.h"
#include "tests/ops/cases.h"
#include "tests/ops/rig.h"

static bool ran[ZX_OP_COUNT]; // on the device, and compared

// ---- a call on the device -----------------------------------------------------------------------

static cublasLtHandle_t blas;
static cudaStream_t stream; // one for all: its thread keeps its fibers
static void *held[128];     // memory of the check in progress
static size_t n_held;

static void *hold(size_t bytes)
{
    assert_true(n_held < ZX_COUNT(held));
    return held[n_held++] = on_device(bytes);
}
static void give_back(void)
{
    while (n_held > 0) assert_ok(cudaFree(held[--n_held]));
}

static bool widens; // kernels are those of any float type
static const zx_kernel *kernel_of(uint32_t op)
{
    return widens ? zx_cuda_kernel_of_any(op) : zx_cuda_kernel(op);
}
static bool large_blocks; // as much shared memory as there is

typedef struct device_call {
    zx_view in[64], out[8]; // of device memory
    zx_call call;
    struct zx_cuda cuda;
    zx_fault *fault;
    void *state;
    uint64_t work_bytes;
} device_call;

static zx_status prepare(device_call *d, zx_op_id op, const zx_attrs *attrs, const zx_view *in,
                         uint32_t n_in, const zx_view *out, uint32_t n_out, zx_err *err)
{
    static const zx_rng rng = {1, 2, 3};
    const zx_kernel *k = kernel_of(op);
    *d = (device_call){.cuda = {.stream = stream, .processors = 4, .blas = blas}};
    if (large_blocks) d->cuda.shared_bytes = 99 << 10; // else the least that a device gives
    for (uint32_t i = 0; i < n_in; i++)
        if (in[i].data != NULL) d->in[i].type = in[i].type;
    for (uint32_t i = 0; i < n_out; i++)
        if (out[i].data != NULL) d->out[i].type = out[i].type;
    d->call = (zx_call){.op = op,
                        .n_in = n_in,
                        .n_out = n_out,
                        .in = d->in,
                        .out = d->out,
                        .attrs = attrs,
                        .threads = 1,
                        .rng = &rng,
                        .cuda = &d->cuda};
    return k->prepare == NULL ? ZX_OK : k->prepare(&d->call, &d->work_bytes, &d->state, err);
}

// A tensor's memory on the device, `skew` elements into an allocation; holds the host's bytes.
static void *upload(const zx_view *v, size_t skew, cudaStream_t s)
{
    if (v->data == NULL) return NULL;
    const size_t bytes = (size_t)zx_type_bytes(&v->type);
    char *at = hold(bytes + 64 * skew + 1);
    if (bytes > 0)
        assert_ok(cudaMemcpyAsync(at + 64 * skew, v->data, bytes, cudaMemcpyHostToDevice, s));
    return at + 64 * skew;
}
// Runs it; *out are host tensors that get the results.
static void run(device_call *d, const zx_view *in, const zx_view *out, size_t skew, int over)
{
    const zx_kernel *k = kernel_of(d->call.op);
    zx_err err = {0};
    d->fault = hold(sizeof *d->fault);
    assert_ok(cudaMemsetAsync(d->fault, 0, sizeof *d->fault, d->cuda.stream));
    d->call.fault = d->fault;
    d->call.state = d->state;
    d->call.work = d->work_bytes > 0 ? hold((size_t)d->work_bytes) : NULL;
    for (uint32_t i = 0; i < d->call.n_in; i++)
        d->in[i].data = upload(&in[i], skew, d->cuda.stream);
    for (uint32_t i = 0; i < d->call.n_out; i++) {
        const size_t bytes = (size_t)zx_type_bytes(&out[i].type);
        d->out[i].data = out[i].data == NULL ? NULL : hold(bytes + 1);
    }
    if (over >= 0) d->out[0].data = d->in[over].data;
    assert_zx_ok(k->run(&d->call, &err), &err);
    for (uint32_t i = 0; i < d->call.n_out; i++) {
        const size_t bytes = (size_t)zx_type_bytes(&out[i].type);
        if (out[i].data != NULL && bytes > 0)
            assert_ok(cudaMemcpyAsync(out[i].data, d->out[i].data, bytes, cudaMemcpyDeviceToHost,
                                      d->cuda.stream));
    }
    zx_fault fault;
    assert_ok(
        cudaMemcpyAsync(&fault, d->fault, sizeof fault, cudaMemcpyDeviceToHost, d->cuda.stream));
    assert_ok(cudaStreamSynchronize(d->cuda.stream));
    assert_int_equal(fault.kind, ZX_FAULT_NONE);
}

// ---- against the CPU ----------------------------------------------------------------------------

static double unit_of(zx_dtype t)
{
    return t == ZX_F16 ? 2e-3 : t == ZX_BF16 ? 1.6e-2 : t == ZX_F32 ? 2e-6 : 0;
}
static void compare(const zx_view *got, const zx_view *want, const char *what)
{
    const double unit = unit_of(want->type.dtype);
    const int64_t n = zx_shape_count(&want->type.shape);
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(rig_get(want, i))) most = fmax(most, fabs(rig_get(want, i)));
    for (int64_t i = 0; i < n; i++) {
        const double g = rig_get(got, i), w = rig_get(want, i);
        if (isnan(w)      ? isnan(g)
            : isfinite(w) ? fabs(g - w) <= unit * fabs(w) + unit / 5 * fmin(most, 1e30)
                          : g == w)
            continue;
        fail_msg("%s, element %lld: %.9g, CPU %.9g", what, (long long)i, g, w);
    }
}

// Both kernels on the same operands. f64 is for folding constants: what a kernel refuses of it is
// no gap.
static void check(zx_op_id op, const zx_attrs *attrs, const zx_view *in, uint32_t n_in,
                  const zx_view *want, uint32_t n_out, zx_arena *mem)
{
    zx_err err = {0};
    for (uint64_t seed = 0; seed < 2; seed++) {
        device_call d;
        zx_view got[8];
        zx_standin_seed(seed);
        large_blocks = seed == 1;
        const zx_status st = prepare(&d, op, attrs, in, n_in, want, n_out, &err);
        if (st == ZX_E_UNSUPPORTED && in[0].type.dtype == ZX_F64) return;
        assert_zx_ok(st, &err);
        for (uint32_t i = 0; i < n_out; i++) {
            got[i] = rig_view(mem, &want[i].type);
            if (want[i].data == NULL) got[i].data = NULL;
        }
        run(&d, in, got, seed, -1);
        for (uint32_t i = 0; i < n_out; i++)
            if (want[i].data != NULL) compare(&got[i], &want[i], zx_ops[op].word);
        for (uint32_t i = 0; (zx_ops[op].flags & ZX_OP_INPLACE) && seed == 0 && i < n_in; i++) {
            zx_view over[8];
            if (in[i].data == NULL || in[i].type.dtype != want[0].type.dtype ||
                zx_type_bytes(&in[i].type) != zx_type_bytes(&want[0].type))
                continue;
            memcpy(over, got, sizeof over);
            over[0] = rig_view(mem, &want[0].type);
            run(&d, in, over, 0, (int)i);
            if (!rig_same(&over[0], &got[0]))
                fail_msg("%s: other bits when written over input %u", zx_ops[op].word, i);
        }
        if (kernel_of(op)->release != NULL) kernel_of(op)->release(d.state);
        give_back();
        assert_string_equal(zx_standin_said(), "");
    }
    ran[op] = true;
}

static void values(void **state)
{
    const op_case *row = *state;
    zx_arena mem = {0};
    zx_view in[8] = {{0}}, out[8];
    op_arg args[8];
    double *unused;
    const zx_attrs attrs = op_text_attrs(row->attrs, &mem);
    const uint32_t n_in = op_text_args(row->in, args, 8), n_out = zx_ops[row->op].n_out;
    for (uint32_t i = 0; i < n_in; i++)
        if (!args[i].omitted) in[i] = rig_fill(&mem, &args[i].type, args[i].fill, i + 1, &unused);
    const char *text = row->out;
    for (uint32_t i = 0; i < n_out; i++) {
        const zx_type t = op_text_type(&text);
        while (*text == ' ') text++;
        out[i] = rig_view(&mem, &t);
    }
    rig_run(row->op, &attrs, in, n_in, out, n_out, 1);
    check(row->op, &attrs, in, n_in, out, n_out, &mem);
    zx_arena_free(&mem);
}

// ---- gradients ----------------------------------------------------------------------------------

// The train graph of sum(op(inputs) * w), or of the op alone where it makes a loss that is `bare`;
// inputs to differentiate are parameters.
static void build(const op_case *row, bool bare, zx_arena *mem, zx_graph *g, zx_view **views)
{
    zx_builder b;
    op_arg args[8];
    uint32_t in[8], out[8];
    zx_view filled[16];
    double *unused;
    zx_err err = {0};
    zx_builder_start(&b, mem, "test");
    b.at_name = "node";
    const uint32_t n = op_text_args(row->in, args, 8);
    for (uint32_t i = 0; i < n; i++) {
        in[i] = ZX_NONE;
        if (args[i].omitted) continue;
        const char *name = zx_arena_printf(mem, "x%u", i);
        in[i] = strchr(row->differentiated, (int)('0' + i))
                    ? zx_build_param(&b, &args[i].type, &(zx_param){.name = name})
                    : zx_build_input(&b, name, &args[i].type);
        filled[in[i]] = rig_fill(mem, &args[i].type, args[i].fill, i + 1, &unused);
    }
    const char *text = row->out;
    const zx_type t = op_text_type(&text);
    const uint32_t w = zx_build_input(&b, "w", &t);
    filled[w] = rig_fill(mem, &t, "", 99, &unused);
    assert_zx_ok(zx_build_node(&b, row->op, in, n, op_text_attrs(row->attrs, mem), NULL, out, &err),
                 &err);
    uint32_t loss = out[0];
    if (!bare || t.shape.rank > 0) loss = zx_build1(&b, ZX_OP_MUL, (zx_attrs){0}, 2, out[0], w);
    static const int64_t all[ZX_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    zx_attrs attrs = zx_attrs_ints(mem, (zx_attrs){0}, ZX_A_AXES, all, t.shape.rank);
    attrs = zx_attrs_int(mem, attrs, ZX_A_KEEPDIMS, 0);
    if (t.shape.rank > 0) loss = zx_build1(&b, ZX_OP_REDUCE_SUM, attrs, 1, loss);
    b.g.loss = loss;
    zx_graph forward;
    zx_builder_done(&b, &forward);
    assert_zx_ok(zx_autodiff(&forward, 1, mem, g, &err), &err);
    *views = ZX_NEW(mem, zx_view, g->n_values + 1);
    for (uint32_t v = 0; v < g->n_values; v++)
        if (g->values[v].role == ZX_R_INPUT || g->values[v].role == ZX_R_PARAM)
            (*views)[v] = filled[v];
}

// x in 16 bits, and *wide: what those are in float32.
static zx_view narrow(zx_arena *mem, zx_view x, zx_dtype to, zx_view *wide)
{
    zx_type t = x.type;
    t.dtype = to;
    const zx_view y = rig_view(mem, &t);
    *wide = rig_view(mem, &x.type);
    for (int64_t i = 0; i < zx_shape_count(&t.shape); i++) {
        const double v = rig_get(&x, i);
        ((uint16_t *)y.data)[i] = to == ZX_F16 ? zx_f64_to_f16(v) : zx_f64_to_bf16(v);
        ((float *)wide->data)[i] = (float)rig_get(&y, i);
    }
    return y;
}

// As it is trained in 16 bits: what stays float32 is among them.
static void apply(zx_precision p, zx_arena *mem, zx_graph *g, zx_view *values_of)
{
    zx_graph low;
    zx_view unused;
    zx_precision_apply(g, p, mem, &low);
    *g = low;
    for (uint32_t v = 0; v < g->n_values; v++) {
        const zx_dtype to = g->values[v].type.dtype;
        if (values_of[v].data == NULL || values_of[v].type.dtype == to) continue;
        values_of[v] = narrow(mem, values_of[v], to, &unused);
    }
}

static void gradients_in(const op_case *row, zx_precision precision)
{
    static bool on_cpu[ZX_OP_COUNT];
    zx_arena mem = {0};
    zx_graph g;
    zx_view *values_of;
    // A loss's gradient is float32 where nothing else is made of the loss.
    build(row, precision != ZX_PREC_F32, &mem, &g, &values_of);
    apply(precision, &mem, &g, values_of);
    rig_graph(&g, values_of, &mem, 1, on_cpu);
    widens = precision != ZX_PREC_F32;
    for (uint32_t i = 0; i < g.n_nodes; i++) {
        const zx_node *n = &g.nodes[i];
        zx_view in[64], out[8];
        if (zx_cuda_kernel(n->op) == NULL || zx_ops[n->op].flags & ZX_OP_VIEW) continue;
        for (uint32_t k = 0; k < n->n_in; k++) {
            const uint32_t v = zx_node_in(&g, n, k);
            in[k] = v == ZX_NONE ? (zx_view){0} : values_of[v];
        }
        for (uint32_t k = 0; k < n->n_out; k++) out[k] = values_of[zx_node_out(&g, n, k)];
        check((zx_op_id)n->op, &n->attrs, in, n->n_in, out, n->n_out, &mem);
    }
    widens = false;
    zx_arena_free(&mem);
}
static void gradients(void **state)
{
    gradients_in(*state, ZX_PREC_F32);
}
static void gradients_of_16(void **state)
{
    gradients_in(*state, ZX_PREC_BF16);
}

// ---- halves: every row once more in f16 and bf16
// -------------------------------------------------

// What the CPU makes in float32 of the same numbers, rounded once.
static void halves_of(const op_case *row, zx_dtype to)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_view in[8] = {{0}}, wide[8] = {{0}}, out[8], want[8];
    const zx_type *in_types[8] = {0};
    zx_type types[8];
    op_arg args[8];
    double *unused;
    const zx_attrs attrs = op_text_attrs(row->attrs, &mem);
    const uint32_t n_in = op_text_args(row->in, args, 8), n_out = zx_ops[row->op].n_out;
    bool any = false;
    for (uint32_t i = 0; i < n_in; i++) {
        if (args[i].omitted) continue;
        in[i] = wide[i] = rig_fill(&mem, &args[i].type, args[i].fill, i + 1, &unused);
        if (args[i].type.dtype == ZX_F32) in[i] = narrow(&mem, wide[i], to, &wide[i]);
        any = any || args[i].type.dtype == ZX_F32;
        in_types[i] = &in[i].type;
    }
    const zx_op_args typed = {
        .op = row->op, .attrs = &attrs, .n_in = n_in, .n_out = n_out, .in = in_types, .out = types};
    any = any && zx_ops[row->op].infer(&typed, types, &err) == ZX_OK;
    const char *text = row->out;
    for (uint32_t i = 0; i < n_out && any; i++) {
        const zx_type t = op_text_type(&text);
        while (*text == ' ') text++;
        out[i] = rig_view(&mem, &t);
    }
    if (any) rig_run(row->op, &attrs, wide, n_in, out, n_out, 1);
    for (uint32_t i = 0; i < n_out && any; i++) {
        zx_view again;
        want[i] = out[i];
        if (types[i].dtype == to) want[i] = narrow(&mem, out[i], to, &again);
    }
    widens = true;
    if (any) check(row->op, &attrs, in, n_in, want, n_out, &mem);
    widens = false;
    zx_arena_free(&mem);
}
static void halves(void **state)
{
    halves_of(*state, ZX_BF16);
    halves_of(*state, ZX_F16);
}

// ---- sizes at which launches differ: rows of a block, several tiles and pieces ------------------

#define CONV1 "STRIDES=1,1 PADS=1,1,1,1 DILATIONS=1,1 GROUP=1"
// Of one sign, so that adding them up in 16 bits would come to a standstill.
static const op_case chunks = {"sums over chunks are float32",
                               ZX_OP_LINEAR_CROSS_ENTROPY,
                               "f32[2000,2]:pos f32[3,2] i64[2000]:=0",
                               "REDUCTION=2",
                               "f32[] f32[4000]",
                               "01"};

static const op_case larger[] = {
    {"the CPU's elements are kept", ZX_OP_DROPOUT, "f32[3,100]", "RATIO=0.3 KEY=7", "f32[3,100]",
     ""}, // both draw from {1, 2, 3}, KEY and the element's index
    {"softmax of a block", ZX_OP_SOFTMAX, "f32[3,1500]", "AXIS=1", "f32[3,1500]", ""},
    {"its gradient", ZX_OP_SOFTMAX_GRAD, "f32[3,1500] f32[3,1500]:pos", "AXIS=1", "f32[3,1500]",
     ""},
    {"norm of a block", ZX_OP_LAYER_NORM, "f32[3,1100] f32[1100] f32[1100]", "AXIS=1 EPSILON=1e-5",
     "f32[3,1100] f32[3,1] f32[3,1]", ""},
    {"its gradient", ZX_OP_LAYER_NORM_GRAD,
     "f32[2,1100] f32[2,1100] f32[2,1] f32[2,1]:pos f32[1100]", "AXIS=1",
     "f32[2,1100] f32[1100] f32[1100]", ""},
    {"columns in pieces", ZX_OP_LAYER_NORM_GRAD,
     "f32[200,40] f32[200,40] f32[200,1] f32[200,1]:pos f32[40]", "AXIS=1",
     "f32[200,40] f32[40] f32[40]", ""},
    {"indices beyond one list, rows beyond one tile", ZX_OP_GATHER_GRAD, "f32[600,3] i64[600]:<200",
     "AXIS=0 SHAPE=200,3", "f32[200,3]", ""},
    {"columns beyond one block, over a sum", ZX_OP_GATHER_GRAD,
     "f32[2,5,300] i32[5]:<3 f32[2,3,300]", "AXIS=1 SHAPE=2,3,300", "f32[2,3,300]", ""},
    {"a sum down in pieces", ZX_OP_REDUCE_SUM, "f32[3000,5]", "AXES=0 KEEPDIMS=0", "f32[5]", ""},
    {"a maximum down in pieces", ZX_OP_REDUCE_MAX, "i32[3000,5]:+-9999", "AXES=0 KEEPDIMS=0",
     "i32[5]", ""},
    {"a product of few in pieces", ZX_OP_CONV, "f32[2,40,5,5] f32[3,40,3,3] f32[3]", CONV1,
     "f32[2,3,5,5]", ""},
    {"a product of many in pieces", ZX_OP_CONV, "f32[1,30,6,6] f32[20,30,3,3] f32[20]", CONV1,
     "f32[1,20,6,6]", ""},
    {"its gradient", ZX_OP_CONV_GRAD_X, "f32[1,30,6,6] f32[30,70,3,3]", CONV1 " SHAPE=1,70,6,6",
     "f32[1,70,6,6]", ""},
    {"the weights' gradient in pieces", ZX_OP_CONV_GRAD_W, "f32[8,3,9,9] f32[8,20,9,9]",
     CONV1 " SHAPE=20,3,3,3", "f32[20,3,3,3]", ""},
    {"sums over many warps", ZX_OP_CUM_SUM, "f32[2,100]", "AXIS=1 EXCLUSIVE=1", "f32[2,100]", ""},
    {"the first of a block", ZX_OP_ARG_MAX, "f32[2,1500]:tie", "AXIS=1 KEEPDIMS=0", "i64[2]", ""},
    {"the best of a block", ZX_OP_TOP_K, "f32[2,1500]:tie", "AXIS=1 K=3 LARGEST=1",
     "f32[2,3] i64[2,3]", ""},
    {"heads of 128", ZX_OP_ATTENTION, "f32[1,2,3,128] f32[1,1,40,128] f32[1,1,40,120]", "SCALE=0.1",
     "f32[1,2,3,120] f32[1,2,3]", ""},
    {"heads of 129", ZX_OP_ATTENTION, "f32[1,1,40,129] f32[1,1,40,129] f32[1,1,40,129]",
     "SCALE=0.1 CAUSAL=1", "f32[1,1,40,129] f32[1,1,40]", ""},
    {"heads of 240", ZX_OP_ATTENTION, "f32[1,2,35,240] f32[1,1,50,240] f32[1,1,50,240]",
     "SCALE=0.03", "f32[1,2,35,240] f32[1,2,35]", ""},
    {"heads of 256", ZX_OP_ATTENTION, "f32[1,2,20,256] f32[1,1,40,256] f32[1,1,40,256] f32[20,40]",
     "SCALE=0.06", "f32[1,2,20,256] f32[1,2,20]", ""},
    {"heads of 256, values of 8", ZX_OP_ATTENTION, "f32[1,1,20,256] f32[1,1,40,256] f32[1,1,40,8]",
     "SCALE=0.06", "f32[1,1,20,8] f32[1,1,20]", ""},
    {"heads of 8, values of 256", ZX_OP_ATTENTION, "f32[1,1,20,8] f32[1,1,40,8] f32[1,1,40,256]",
     "SCALE=0.3", "f32[1,1,20,256] f32[1,1,20]", ""},
    {"heads of 256 side by side", ZX_OP_PACKED_ATTENTION, "f32[1,20,768]",
     "HEADS=1 KV_HEADS=1 SCALE=0.06 CAUSAL=1", "f32[1,20,256] f32[1,1,20]", ""},
#define GRADIENT(size, n)                                                                          \
    {                                                                                              \
        "gradient of heads of " size, ZX_OP_ATTENTION_GRAD,                                        \
            "f32[1,1,40," n "] f32[1,1,40," size "] f32[1,1,50," size "] f32[1,1,50," n            \
            "] f32[1,1,40," n "] f32[1,1,40]:pos",                                                 \
            "SCALE=0.05", "f32[1,1,40," size "] f32[1,1,50," size "] f32[1,1,50," n "]", ""        \
    }
    GRADIENT("8", "16"),
    GRADIENT("64", "64"),
    GRADIENT("128", "100"),
    GRADIENT("136", "136"),
    GRADIENT("240", "240"),
    GRADIENT("256", "256"),
    GRADIENT("16", "256"),
#undef GRADIENT
};

// Every kernel of cuda.h ran for some op.
static void every_kernel(void **state ZX_UNUSED)
{
#define X(name)                                                                                    \
    {                                                                                              \
        bool found = false;                                                                        \
        for (uint32_t op = 0; op < ZX_OP_COUNT; op++)                                              \
            found |= ran[op] && zx_cuda_kernel(op) == &zx_cuda_##name;                             \
        if (!found) fail_msg("no row of tests/ops/cases.def ran the kernel %s", #name);            \
    }
    ZX_CUDA_KERNELS(X)
#undef X
    for (uint32_t op = 0; op < ZX_OP_COUNT; op++)
        if (!ran[op] && zx_cuda_kernel(op) != NULL && !(zx_ops[op].flags & ZX_OP_VIEW))
            fail_msg("%s was not compared with the CPU", zx_ops[op].word);
}

// After a failed row too: the next one starts on a device that isn't stuck.
static int start(void **state ZX_UNUSED)
{
    if (stream == NULL || cudaStreamQuery(stream) != cudaSuccess || zx_standin_said()[0] != '\0') {
        zx_standin_reset();
        n_held = 0;
        stream = a_stream();
        if (blas == NULL) assert_int_equal(cublasLtCreate(&blas), CUBLAS_STATUS_SUCCESS);
    }
    return 0;
}

int main(void)
{
    static struct CMUnitTest tests[4 * ZX_COUNT(cases) + ZX_COUNT(larger) + 2];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(cases); i++) {
        if (zx_cuda_kernel(cases[i].op) != NULL)
            tests[n++] = zx_case(cases[i].name, values, &cases[i]);
        if (cases[i].differentiated[0] != '\0') {
            tests[n++] = zx_case(cases[i].name, gradients, &cases[i]);
            tests[n++] = zx_case(cases[i].name, gradients_of_16, &cases[i]);
        }
        if (zx_cuda_kernel(cases[i].op) != NULL && strchr(cases[i].in, 'f') != NULL)
            tests[n++] = zx_case(cases[i].name, halves, &cases[i]);
    }
    for (size_t i = 0; i < ZX_COUNT(larger); i++)
        tests[n++] = zx_case(larger[i].name, values, &larger[i]);
    tests[n++] = zx_case("sums over chunks are float32", gradients_of_16, &chunks);
    tests[n++] = zx_case("every kernel", every_kernel, NULL);
    for (size_t i = 0; i < n; i++) tests[i].setup_func = start;
    return _cmocka_run_group_tests("cuda_standin.ops", tests, n, NULL, fresh);
}
