// bench_roofline.c - what a model's step can't be faster than on this machine, measured now: its
// products and convolutions at the library's own rate, and the memory traffic that can't be
// avoided. Prints; is no test. bench.roofline THREADS MODEL [options of `zerox plan`]
//
// Counted are the products as the graph has them with nothing fused (attention's and the head's
// too, each once), operands warm, the best of several runs; for every parameter AdamW's 4 reads and
// 3 writes and the read of its gradient's norm; and what backward reads of what forward made,
// written and read once. Everything else could be done while a value is in the cache.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/common.h"
#include "runtime/cmd.h"

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(zx_status st, const zx_err *err)
{
    if (st == ZX_OK) return;
    fprintf(stderr, "%s\n", err->cause[0]);
    exit(1);
}

static float *filled(int64_t n)
{
    float *x = aligned_alloc(4096, (size_t)zx_align_up((uint64_t)n * sizeof *x + 64, 4096));
    if (x == NULL) abort();
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i * 7 % 13 - 6) / 8;
    return x;
}

// ---- products -----------------------------------------------------------------------------------

static bool is_product(uint32_t op)
{
    return op == ZX_OP_MATMUL || op == ZX_OP_CONV || op == ZX_OP_CONV_GRAD_X ||
           op == ZX_OP_CONV_GRAD_W;
}

static bool same_type(const zx_graph *g, uint32_t a, uint32_t b)
{
    if (a == ZX_NONE || b == ZX_NONE) return a == b;
    return zx_shape_equal(&g->values[a].type.shape, &g->values[b].type.shape);
}

static bool same_node(const zx_graph *g, const zx_node *a, const zx_node *b)
{
    bool same = a->op == b->op && a->n_in == b->n_in && a->attrs.n == b->attrs.n;
    for (uint32_t i = 0; same && i < a->n_in; i++)
        same = same_type(g, zx_node_in(g, a, i), zx_node_in(g, b, i));
    same = same && same_type(g, zx_node_out(g, a, 0), zx_node_out(g, b, 0));
    for (uint32_t i = 0; same && i < a->attrs.n; i++) {
        const zx_attr *x = &a->attrs.list[i], *y = &b->attrs.list[i];
        same = x->id == y->id && x->n == y->n &&
               (x->i == NULL || memcmp(x->i, y->i, x->n * sizeof *x->i) == 0);
    }
    return same;
}

// Best seconds of a run.
static double node_seconds(const zx_graph *g, const zx_node *n, int threads)
{
    const zx_kernel *k = zx_cpu_kernel(n->op);
    zx_view in[8] = {0}, out[8] = {0};
    zx_fault fault = {0};
    zx_err err = {0};
    uint64_t work = 0;
    void *state = NULL;
    zx_call call = {.op = n->op,
                    .n_in = n->n_in,
                    .n_out = 1,
                    .in = in,
                    .out = out,
                    .attrs = &n->attrs,
                    .threads = threads,
                    .fault = &fault};
    for (uint32_t i = 0; i < n->n_in; i++)
        if (zx_node_in(g, n, i) != ZX_NONE) in[i].type = g->values[zx_node_in(g, n, i)].type;
    out[0].type = g->values[zx_node_out(g, n, 0)].type;
    must(k->prepare(&call, &work, &state, &err), &err);
    for (uint32_t i = 0; i < n->n_in; i++) in[i].data = filled(zx_count(&in[i]));
    out[0].data = filled(zx_count(&out[0]));
    call.work = filled((int64_t)(work / sizeof(float)) + 16);
    call.state = state;
    double best = 1e9;
    const double start = now_seconds();
    for (int i = 0; i < 4 || now_seconds() - start < 0.4; i++) {
        const double from = now_seconds();
        must(k->run(&call, &err), &err);
        const double took = now_seconds() - from;
        if (i > 0 && took < best) best = took;
    }
    for (uint32_t i = 0; i < n->n_in; i++) free(in[i].data);
    free(out[0].data);
    free(call.work);
    if (k->release) k->release(state);
    return best;
}

static double product_seconds(const zx_graph *g, int threads)
{
    double total = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        uint32_t times = 0;
        bool before = !is_product(n->op);
        for (uint32_t k = 0; k < i && !before; k++) before = same_node(g, &g->nodes[k], n);
        for (uint32_t k = i; k < g->n_nodes && !before; k++) times += same_node(g, &g->nodes[k], n);
        if (before) continue;
        char a[ZX_SHAPE_TEXT], b[ZX_SHAPE_TEXT];
        const double one = node_seconds(g, n, threads);
        printf("  %4u x %9.3f ms  %-10s %s %s\n", times, 1e3 * one, zx_ops[n->op].word,
               zx_shape_text(&g->values[zx_node_in(g, n, 0)].type.shape, a),
               zx_shape_text(&g->values[zx_node_in(g, n, 1)].type.shape, b));
        total += times * one;
    }
    return total;
}

// ---- traffic ------------------------------------------------------------------------------------

enum { STREAM = 1 << 24 }; // floats of an array: more than caches hold

typedef struct streams {
    float *p, *m, *v;
    const float *g;
} streams;

// Four reads and three writes of next to no arithmetic.
ZX_CLONES static void stream_loop(float *restrict p, float *restrict m, float *restrict v,
                                  const float *restrict g, int64_t n)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++)
    {
        const float x = g[i];
        p[i] += x;
        m[i] -= x;
        v[i] += x;
    }
}
static void stream_range(void *ctx, int64_t from, int64_t to)
{
    const streams *s = ctx;
    stream_loop(s->p + from, s->m + from, s->v + from, s->g + from, to - from);
}

typedef enum way { STREAMS, ADAM, NORM, WAYS } way;

// Best bytes a second.
static double rate_of(way which, const streams *s, int threads)
{
    const zx_adam_args a = {0.9, 0.999, 1e-4f, 1e-8f, 0.01f, 0.5f, 0.5f, true, 1.0f};
    double best = 0;
    for (int i = 0; i < 9; i++) {
        const double from = now_seconds();
        if (which == STREAMS)
            zx_split(threads, STREAM, 1024, 2, stream_range, (void *)(uintptr_t)s);
        else if (which == ADAM)
            zx_cpu_adam(s->p, s->g, s->m, s->v, STREAM, &a, threads);
        else if (!(zx_cpu_square_sum(s->g, STREAM, threads) >= 0))
            abort();
        const double rate = (which == NORM ? 4.0 : 28.0) * STREAM / (now_seconds() - from);
        if (i > 0 && rate > best) best = rate;
    }
    return best;
}

// Bytes of what backward reads of what forward made.
static double saved_bytes(const zx_graph *g)
{
    double bytes = 0;
    bool *counted = calloc(g->n_values + 1, sizeof *counted);
    if (counted == NULL) abort();
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; g->nodes[i].phase == ZX_BACKWARD && k < g->nodes[i].n_in; k++) {
            uint32_t v = zx_node_in(g, &g->nodes[i], k);
            while (v != ZX_NONE && g->values[v].by != ZX_NONE &&
                   zx_ops[g->nodes[g->values[v].by].op].flags & ZX_OP_VIEW)
                v = zx_node_in(g, &g->nodes[g->values[v].by], 0);
            if (v == ZX_NONE || counted[v] || g->values[v].by == ZX_NONE ||
                g->nodes[g->values[v].by].phase != ZX_FORWARD)
                continue;
            counted[v] = true;
            bytes += (double)zx_type_bytes(&g->values[v].type);
        }
    free(counted);
    return bytes;
}

static void open_job(int argc, char **argv, bool fused, zx_arena *mem, zx_options *o, zx_job *job)
{
    char *words[64] = {argv[0], (char *)(uintptr_t) "plan"};
    char *const plain[] = {(char *)(uintptr_t) "--no-fuse", (char *)(uintptr_t) "all"};
    int n = 2;
    zx_err err = {0};
    for (int i = 2; i < argc && n < 60; i++) words[n++] = argv[i];
    for (int i = 0; i < 2 && !fused; i++) words[n++] = plain[i];
    must(zx_options_parse(n, words, mem, o, &err), &err);
    must(zx_job_open(job, o, 1, true, &err), &err);
    must(zx_job_import(job, false, &err), &err);
}

int main(int argc, char **argv)
{
    static zx_options o[2];
    static zx_job plain, fused;
    static const char *const words[WAYS] = {"4 reads, 3 writes", "AdamW", "norm"};
    zx_arena mem = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: %s THREADS MODEL [options of plan]\n", argv[0]);
        return 2;
    }
    const int threads = atoi(argv[1]);
    open_job(argc, argv, false, &mem, &o[0], &plain);
    open_job(argc, argv, true, &mem, &o[1], &fused);
    const streams s = {filled(STREAM), filled(STREAM), filled(STREAM), filled(STREAM)};
    double rate[WAYS], n = (double)plain.n_elements;
    for (int w = 0; w < WAYS; w++) {
        rate[w] = rate_of((way)w, &s, threads);
        printf("  %-18s %6.1f GB/s\n", words[w], 1e-9 * rate[w]);
    }
    const double products = product_seconds(&plain.train, threads);
    const double update = 28 * n / rate[STREAMS], norm = 4 * n / rate[NORM];
    const double saved = 2 * saved_bytes(&fused.train) / rate[STREAMS];
    printf("%-34s %8.4f s\n%-34s %8.4f s\n%-34s %8.4f s\n%-34s %8.4f s\n%-34s %8.4f s\n",
           "products", products, "update, 28 bytes a parameter", update,
           "norm, 4 bytes a parameter", norm, "saved activations", saved, "roofline",
           products + update + norm + saved);
    return 0;
}
