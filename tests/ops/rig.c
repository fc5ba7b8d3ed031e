// rig.c - see rig.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"
#include "tests/ops/rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

#define GUARD 64 // bytes behind every tensor that nobody may write

// ---- numbers
// ----------------------------------------------------------------------------------------

static uint64_t next(uint64_t *state) // SplitMix64
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static double uniform(uint64_t *state)
{
    return ((double)(next(state) >> 11) + 0.5) * 0x1p-53;
}
static double normal(uint64_t *state)
{
    const double r = sqrt(-2 * log(uniform(state)));
    return r * cos(2 * M_PI * uniform(state));
}

// A binary float with `digits` significant bits, smallest exponent `least`, greatest value `most`.
static double round_to(double x, int digits, int least, double most)
{
    if (x == 0 || !isfinite(x)) return x;
    int e = ilogb(x) + 1 - digits;
    if (e < least) e = least;
    const double y = ldexp(rint(ldexp(x, -e)), e);
    return fabs(y) > most ? copysign(INFINITY, x) : y;
}

double rig_round(zx_dtype t, double x)
{
    switch (t) {
    case ZX_F32:
        return (float)x;
    case ZX_F16:
        return round_to(x, 11, -24, 65504);
    case ZX_BF16:
        return round_to(x, 8, -133, 0x1.FEp127);
    default:
        return x;
    }
}

static double half(uint16_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const double x = e == 31  ? (m ? NAN : INFINITY)
                     : e == 0 ? ldexp(m, -24)
                              : ldexp(m + 1024, e - 25);
    return h >> 15 ? -x : x;
}

static uint16_t to_half(double x) // x is one exactly
{
    for (uint32_t h = 0; h < 65536; h++)
        if (half((uint16_t)h) == x && signbit(half((uint16_t)h)) == signbit(x)) return (uint16_t)h;
    return 0x7E00;
}

// clang-format off
#define INTEGERS(X)                                                                                \
    X(I8, int8_t) X(I16, int16_t) X(I32, int32_t) X(I64, int64_t) X(U8, uint8_t)                   \
    X(U16, uint16_t) X(U32, uint32_t) X(U64, uint64_t) X(BOOL, uint8_t)
// clang-format on

double rig_get(const zx_view *v, int64_t i)
{
    const char *at = (const char *)v->data + i * zx_dtype_bytes(v->type.dtype);
    float f;
    double d;
    uint16_t h;
    switch (v->type.dtype) {
    case ZX_F32:
        memcpy(&f, at, sizeof f);
        return f;
    case ZX_F64:
        memcpy(&d, at, sizeof d);
        return d;
    case ZX_F16:
        memcpy(&h, at, sizeof h);
        return half(h);
    case ZX_BF16: {
        memcpy(&h, at, sizeof h);
        const uint32_t bits = (uint32_t)h << 16;
        memcpy(&f, &bits, sizeof f);
        return f;
    }
#define X(id, T)                                                                                   \
    case ZX_##id: {                                                                                \
        T x;                                                                                       \
        memcpy(&x, at, sizeof x);                                                                  \
        return (double)x;                                                                          \
    }
        INTEGERS(X)
#undef X
    default:
        return NAN;
    }
}

static void set(zx_view *v, int64_t i, double x)
{
    char *at = (char *)v->data + i * zx_dtype_bytes(v->type.dtype);
    const float f = (float)x;
    uint16_t h;
    uint32_t bits;
    switch (v->type.dtype) {
    case ZX_F32:
        memcpy(at, &f, sizeof f);
        break;
    case ZX_F64:
        memcpy(at, &x, sizeof x);
        break;
    case ZX_F16:
        h = to_half(x);
        memcpy(at, &h, sizeof h);
        break;
    case ZX_BF16:
        memcpy(&bits, &f, sizeof bits);
        h = (uint16_t)(bits >> 16);
        memcpy(at, &h, sizeof h);
        break;
#define X(id, T)                                                                                   \
    case ZX_##id: {                                                                                \
        const T y = (T)x;                                                                          \
        memcpy(at, &y, sizeof y);                                                                  \
        break;                                                                                     \
    }
        INTEGERS(X)
#undef X
    default:
        break;
    }
}

// Element i of a tensor that is filled like that.
static double filling(const char *fill, zx_dtype t, uint64_t *rng, int64_t i)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1e-41, 3e38, -1e-41, 70000};
    if (fill[0] == '<') return floor(uniform(rng) * atof(fill + 1));
    if (strncmp(fill, "+-", 2) == 0)
        return floor(uniform(rng) * (2 * atof(fill + 2) + 1)) - atof(fill + 2);
    if (fill[0] == '=') { // the i-th of the list, round and round
        int64_t n = 1;
        const char *p = fill + 1;
        for (const char *q = p; *q; q++) n += *q == ',';
        for (i %= n; i > 0; p++) i -= *p == ',';
        return strtod(p, NULL);
    }
    if (t == ZX_BOOL) return uniform(rng) < 0.5;
    if (strcmp(fill, "pos") == 0) return 0.2 + 2 * uniform(rng);
    if (strcmp(fill, "unit") == 0) return 1.8 * uniform(rng) - 0.9;
    if (strcmp(fill, "far") == 0) return 8 * normal(rng);
    if (strcmp(fill, "cycle") == 0) return (double)i;
    if (strcmp(fill, "tie") == 0) return floor(uniform(rng) * 3) - 1;
    if (strcmp(fill, "odd") == 0 && uniform(rng) < 0.4) return odd[next(rng) % ZX_COUNT(odd)];
    ZX_ASSERT(fill[0] == '\0' || strcmp(fill, "odd") == 0);
    return zx_dtype_is_float(t) ? normal(rng) : 0;
}

zx_view rig_view(zx_arena *mem, const zx_type *type)
{
    const size_t bytes = zx_type_bytes(type) + GUARD;
    zx_view v = {zx_arena_alloc(mem, bytes, 1, ZX_ALIGN), *type};
    memset(v.data, 0xFF, bytes);
    return v;
}

zx_view rig_fill(zx_arena *mem, const zx_type *type, const char *fill, uint64_t seed,
                 double **values)
{
    const int64_t n = zx_shape_count(&type->shape);
    zx_view v = rig_view(mem, type);
    *values = ZX_NEW(mem, double, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) {
        set(&v, i, rig_round(type->dtype, filling(fill, type->dtype, &seed, i)));
        (*values)[i] = rig_get(&v, i);
    }
    return v;
}

bool rig_same(const zx_view *a, const zx_view *b)
{
    const size_t bytes = zx_type_bytes(&a->type);
    return bytes == zx_type_bytes(&b->type) && memcmp(a->data, b->data, bytes) == 0;
}

// ---- running
// ----------------------------------------------------------------------------------------

static void run(zx_op_id op, const zx_attrs *attrs, const zx_view *in, uint32_t n_in,
                const zx_view *out, uint32_t n_out, int threads, const zx_rng *rng, zx_fault *fault)
{
    const zx_kernel *kernel = zx_cpu_kernel_of_any(op);
    zx_view types_in[64], types_out[8];
    ZX_ASSERT(n_in <= ZX_COUNT(types_in) && n_out <= ZX_COUNT(types_out));
    memcpy(types_in, in, n_in * sizeof *in);
    memcpy(types_out, out, n_out * sizeof *out);
    // Which operands there are is known while preparing; what they hold isn't.
    static char there;
    for (uint32_t i = 0; i < n_in; i++) types_in[i].data = in[i].data ? &there : NULL;
    for (uint32_t i = 0; i < n_out; i++) types_out[i].data = out[i].data ? &there : NULL;
    zx_call call = {.op = op,
                    .n_in = n_in,
                    .n_out = n_out,
                    .in = types_in,
                    .out = types_out,
                    .attrs = attrs,
                    .threads = threads,
                    .rng = rng,
                    .fault = fault};
    zx_err err = {0};
    uint64_t work_bytes = 0;
    void *state = NULL;
    if (kernel->prepare != NULL)
        assert_zx_ok(kernel->prepare(&call, &work_bytes, &state, &err), &err);
    zx_arena work = {0};
    call.in = in;
    call.out = out;
    call.state = state;
    call.work = zx_arena_alloc(&work, work_bytes + 1, 1, ZX_ALIGN);
    memset(call.work, 0xA5, work_bytes + 1);
    assert_zx_ok(kernel->run(&call, &err), &err);
    assert_int_equal(((unsigned char *)call.work)[work_bytes], 0xA5);
    if (kernel->release != NULL) kernel->release(state);
    zx_arena_free(&work);
}

void rig_run_random(zx_op_id op, const zx_attrs *attrs, const zx_view *in, uint32_t n_in,
                    const zx_view *out, uint32_t n_out, int threads, const zx_rng *rng)
{
    unsigned char behind[8][GUARD];
    zx_fault fault = {0};
    for (uint32_t i = 0; i < n_out; i++)
        if (out[i].data)
            memcpy(behind[i], (char *)out[i].data + zx_type_bytes(&out[i].type), GUARD);
    run(op, attrs, in, n_in, out, n_out, threads, rng, &fault);
    assert_int_equal(fault.kind, ZX_FAULT_NONE);
    for (uint32_t i = 0; i < n_out; i++)
        if (out[i].data)
            assert_memory_equal(behind[i], (char *)out[i].data + zx_type_bytes(&out[i].type),
                                GUARD);
}

void rig_run(zx_op_id op, const zx_attrs *attrs, const zx_view *in, uint32_t n_in,
             const zx_view *out, uint32_t n_out, int threads)
{
    const zx_rng rng = {1, 2, 3};
    rig_run_random(op, attrs, in, n_in, out, n_out, threads, &rng);
}

zx_fault rig_run_faulty(zx_op_id op, const zx_attrs *attrs, const zx_view *in, uint32_t n_in,
                        const zx_view *out, uint32_t n_out, int threads)
{
    const zx_rng rng = {1, 2, 3};
    zx_fault fault = {0};
    run(op, attrs, in, n_in, out, n_out, threads, &rng, &fault);
    return fault;
}

// Values that something reads: nodes, or the one who asked for the graph.
static bool *find_read(const zx_graph *g, zx_arena *mem)
{
    bool *read = ZX_NEW(mem, bool, g->n_values + 1);
    read[g->loss] = true;
    for (uint32_t i = 0; i < g->n_params; i++)
        if (g->params[i].grad != ZX_NONE) read[g->params[i].grad] = true;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            const uint32_t v = zx_node_in(g, &g->nodes[i], k);
            if (v != ZX_NONE) read[v] = true;
        }
    return read;
}

void rig_graph(const zx_graph *g, zx_view *values, zx_arena *mem, int threads, bool *ran)
{
    const bool *read = find_read(g, mem);
    for (uint32_t v = 0; v < g->n_values; v++) {
        const zx_value *x = &g->values[v];
        if (x->role == ZX_R_CONST) {
            values[v] = rig_view(mem, &x->type);
            memcpy(values[v].data, x->data, zx_type_bytes(&x->type));
        } else if (x->role == ZX_R_MADE) {
            values[v] = rig_view(mem, &x->type);
            const zx_node *by = &g->nodes[x->by];
            if (!read[v] && zx_node_out(g, by, 0) != v) values[v].data = NULL;
        }
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        zx_view in[64], out[8];
        for (uint32_t k = 0; k < n->n_in; k++) {
            const uint32_t v = zx_node_in(g, n, k);
            in[k] = v == ZX_NONE ? (zx_view){0} : values[v];
        }
        for (uint32_t k = 0; k < n->n_out; k++) out[k] = values[zx_node_out(g, n, k)];
        ran[n->op] = true;
        if (zx_ops[n->op].flags & ZX_OP_VIEW)
            values[zx_node_out(g, n, 0)].data = in[0].data;
        else
            rig_run((zx_op_id)n->op, &n->attrs, in, n->n_in, out, n->n_out, threads);
    }
}
