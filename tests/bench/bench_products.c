// bench_products.c - how fast the products and convolutions of typical models are on this machine:
// GFLOP/s, best of several runs, operands warm. Prints; is no test.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/cpu.h"

typedef struct row {
    const char *name;
    int64_t batch, m, k, n;
    bool trans_a, trans_b, bias;
} row;

static const row rows[] = {
    {"qkv", 1, 256, 768, 2304, 0, 0, 1},
    {"mlp up", 1, 256, 768, 3072, 0, 0, 1},
    {"mlp down", 1, 256, 3072, 768, 0, 0, 1},
    {"mlp up, gradient of x", 1, 256, 3072, 768, 0, 1, 0},
    {"mlp down, gradient of x", 1, 256, 768, 3072, 0, 1, 0},
    {"mlp up, gradient of w", 1, 768, 256, 3072, 1, 0, 0},
    {"mlp down, gradient of w", 1, 3072, 256, 768, 1, 0, 0},
    {"head", 1, 256, 768, 50257, 0, 1, 0},
    {"head, gradient of x", 1, 256, 50257, 768, 0, 0, 0},
    {"head, gradient of w", 1, 50257, 256, 768, 1, 0, 0},
    {"head as [k, n], gradient of w", 1, 768, 256, 50257, 1, 0, 0},
    {"attention, scores", 48, 64, 64, 64, 0, 1, 0},
    {"attention, values", 48, 64, 64, 64, 0, 0, 0},
    {"attention, gradient of values", 48, 64, 64, 64, 1, 0, 0},
};

typedef struct conv_row {
    const char *name;
    int64_t n, c, m, group, size, k, stride;
} conv_row;

static const conv_row conv_rows[] = {
    {"stem 3 to 64, 7x7, stride 2", 8, 3, 64, 1, 112, 7, 2},
    {"64 to 64, 3x3", 8, 64, 64, 1, 56, 3, 1},
    {"64 to 128, 3x3, stride 2", 8, 64, 128, 1, 56, 3, 2},
    {"256 to 64, 1x1", 8, 256, 64, 1, 56, 1, 1},
    {"depthwise 128, 3x3", 8, 128, 128, 128, 56, 3, 1},
    {"patches 3 to 192, 16x16", 8, 3, 192, 1, 224, 16, 16},
};

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static zx_view view_of(zx_arena *mem, uint32_t rank, const int64_t *dim)
{
    zx_view v = {.type = {ZX_F32, {.rank = rank}}};
    for (uint32_t i = 0; i < rank; i++) v.type.shape.dim[i] = dim[i];
    const int64_t n = zx_shape_count(&v.type.shape);
    float *x = ZX_NEW(mem, float, (size_t)n + 16);
    x = (float *)(void *)(((uintptr_t)x + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i * 7 % 13 - 6) / 8;
    v.data = x;
    return v;
}

// Best seconds of a run.
static double time_of(const zx_kernel *k, zx_call *call)
{
    zx_err err = {0};
    uint64_t work_bytes = 0;
    void *state = NULL;
    double best = 1e9;
    if (k->prepare(call, &work_bytes, &state, &err) != ZX_OK) {
        fprintf(stderr, "%s\n", err.cause[0]);
        exit(1);
    }
    call->work = aligned_alloc(64, (size_t)zx_align_up(work_bytes + 64, 64));
    if (!call->work) abort();
    memset(call->work, 0, (size_t)work_bytes);
    call->state = state;
    const double start = now_seconds();
    for (int i = 0; i < 4 || now_seconds() - start < 0.4; i++) {
        const double from = now_seconds();
        if (k->run(call, &err) != ZX_OK) abort();
        const double took = now_seconds() - from;
        if (i > 0 && took < best) best = took;
    }
    free(call->work);
    k->release(state);
    return best;
}

static void print_row(const char *name, double flops, const double seconds[2])
{
    printf("%-32s %8.1f GFLOP/s %8.3f ms   %8.1f GFLOP/s %8.3f ms\n", name,
           1e-9 * flops / seconds[0], 1e3 * seconds[0], 1e-9 * flops / seconds[1],
           1e3 * seconds[1]);
}

static void product(const row *r)
{
    zx_arena mem = {0};
    zx_attrs attrs = {0};
    zx_fault fault = {0};
    const int64_t a[] = {r->batch, r->trans_a ? r->k : r->m, r->trans_a ? r->m : r->k};
    const int64_t b[] = {r->batch, r->trans_b ? r->n : r->k, r->trans_b ? r->k : r->n};
    const int64_t y[] = {r->batch, r->m, r->n};
    const int skip = r->batch == 1;
    const uint32_t rank = skip ? 2 : 3;
    zx_view in[3] = {view_of(&mem, rank, a + skip), view_of(&mem, rank, b + skip)};
    const zx_view out = view_of(&mem, rank, y + skip);
    if (r->bias) in[2] = view_of(&mem, 1, &r->n);
    attrs = zx_attrs_int(&mem, attrs, ZX_A_TRANS_A, r->trans_a);
    attrs = zx_attrs_int(&mem, attrs, ZX_A_TRANS_B, r->trans_b);
    zx_call call = {.n_in = r->bias ? 3 : 2, .n_out = 1, .in = in, .out = &out, .attrs = &attrs};
    call.fault = &fault;
    double seconds[2];
    for (int t = 0; t < 2; t++) {
        call.threads = t + 1;
        seconds[t] = time_of(&zx_cpu_matmul, &call);
    }
    print_row(r->name, 2.0 * (double)(r->batch * r->m * r->k * r->n), seconds);
    zx_arena_free(&mem);
}

static void convolution(const conv_row *r)
{
    static const struct {
        const char *name;
        const zx_kernel *kernel;
        int in0, in1, out;
    } kinds[] = {{"", &zx_cpu_conv, 0, 1, 2},
                 {"  gradient of x", &zx_cpu_conv_grad_x, 2, 1, 0},
                 {"  gradient of w", &zx_cpu_conv_grad_w, 0, 2, 1}};
    zx_arena mem = {0};
    zx_attrs attrs = {0};
    zx_fault fault = {0};
    const int64_t pad = r->stride == r->k ? 0 : r->k / 2;
    const int64_t side = (r->size + 2 * pad - r->k) / r->stride + 1;
    const int64_t x[] = {r->n, r->c, r->size, r->size}, w[] = {r->m, r->c / r->group, r->k, r->k};
    const int64_t y[] = {r->n, r->m, side, side}, pads[] = {pad, pad, pad, pad}, ones[] = {1, 1};
    const int64_t strides[] = {r->stride, r->stride};
    const zx_view v[3] = {view_of(&mem, 4, x), view_of(&mem, 4, w), view_of(&mem, 4, y)};
    attrs = zx_attrs_ints(&mem, attrs, ZX_A_STRIDES, strides, 2);
    attrs = zx_attrs_ints(&mem, attrs, ZX_A_DILATIONS, ones, 2);
    attrs = zx_attrs_ints(&mem, attrs, ZX_A_PADS, pads, 4);
    attrs = zx_attrs_int(&mem, attrs, ZX_A_GROUP, r->group);
    for (size_t i = 0; i < ZX_COUNT(kinds); i++) {
        const zx_view in[2] = {v[kinds[i].in0], v[kinds[i].in1]};
        zx_call call = {.n_in = 2, .n_out = 1, .in = in, .out = &v[kinds[i].out], .attrs = &attrs};
        call.fault = &fault;
        double seconds[2];
        for (int t = 0; t < 2; t++) {
            call.threads = t + 1;
            seconds[t] = time_of(kinds[i].kernel, &call);
        }
        print_row(i == 0 ? r->name : kinds[i].name,
                  2.0 * (double)(r->n * r->m * side * side * r->c / r->group * r->k * r->k),
                  seconds);
    }
    zx_arena_free(&mem);
}

int main(void)
{
    printf("%-32s %-33s %s\n", "", "1 thread", "2 threads");
    for (size_t i = 0; i < ZX_COUNT(rows); i++) product(&rows[i]);
    for (size_t i = 0; i < ZX_COUNT(conv_rows); i++) convolution(&conv_rows[i]);
    return 0;
}
