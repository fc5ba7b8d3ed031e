// matmul.c - MATMUL: oneDNN for f32 and bf16, own loops for the rest.
//
// A transposed operand is handed over by its strides: oneDNN 2.6 copies blocks of it into its
// scratchpad as it goes, which measures as fast as any layout that we could make. A wide b that
// isn't transposed it reads in place, and rows a multiple of 4 KiB apart then fight for the same
// lines of the first-level cache: 80 GFLOP/s in place of 150. Those are reordered first, where one
// thread makes the whole product (docs/PERF.md).
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/dnnl_util.h"
#include "kernels/cpu/naive.h"

static zx_status run_loops(const zx_call *call, zx_err *err ZX_UNUSED)
{
    zx_naive_matmul(call);
    return ZX_OK;
}

#ifndef ZX_NAIVE
enum { A, B, C, Y }; // outside operands of the program

// Operand with `rows` x `cols` matrices: broadcast batch dims have size 1, which the library
// repeats.
static zx_dnnl_tensor matrices(const zx_product *p, const int64_t *batch, int64_t rows,
                               int64_t cols, int64_t row, int64_t col, uint32_t outside)
{
    zx_dnnl_tensor t = {.rank = (int)p->n_batch + 2, .outside = outside};
    for (uint32_t i = 0; i < p->n_batch; i++) {
        t.dim[i] = batch[i] == 0 ? 1 : p->batch[i];
        t.stride[i] = batch[i] == 0 ? rows * cols : batch[i];
    }
    t.dim[p->n_batch] = rows;
    t.stride[p->n_batch] = row;
    t.dim[p->n_batch + 1] = cols;
    t.stride[p->n_batch + 1] = col;
    return t;
}

// Whether reordering b pays: it is wide, there are rows enough to pay for it, and the library
// doesn't copy it anyway (as it does where n is a power of two).
static bool reorder_pays(const zx_product *p)
{
    const int64_t most_bytes = (int64_t)64 << 20; // of scratch
    return p->n_batch == 0 && p->b_col == 1 && p->m >= 64 && p->n >= 3072 &&
           (p->n & (p->n - 1)) != 0 && p->k <= most_bytes / 4 / p->n;
}

// NULL in *out: the library has nothing for it.
static zx_status library_product(const zx_product *p, bool bf16, int threads, zx_dnnl **out,
                                 zx_err *err)
{
    zx_dnnl_tensor a = matrices(p, p->a_batch, p->m, p->k, p->a_row, p->a_col, A);
    zx_dnnl_tensor b = matrices(p, p->b_batch, p->k, p->n, p->b_row, p->b_col, B);
    zx_dnnl_tensor c = {.outside = C}, y;
    int64_t dim[ZX_DNNL_RANK];
    for (uint32_t i = 0; i < p->n_batch; i++) dim[i] = p->batch[i];
    dim[p->n_batch] = p->m;
    dim[p->n_batch + 1] = p->n;
    y = zx_dnnl_plain((int)p->n_batch + 2, dim, false, Y);
    b.any = !bf16 && reorder_pays(p);
    if (p->bias) {
        for (uint32_t i = 0; i <= p->n_batch; i++) dim[i] = 1;
        c = zx_dnnl_plain((int)p->n_batch + 2, dim, false, C);
    }
    a.bf16 = b.bf16 = c.bf16 = y.bf16 = bf16;
    zx_err refused = {0};
    const zx_status st =
        zx_dnnl_matmul(&a, &b, &c, &y, (float)p->alpha, false, threads, out, &refused);
    return st == ZX_OK || st == ZX_E_UNSUPPORTED ? ZX_OK : zx_err_merge(err, &refused);
}

static bool is_empty(const zx_product *p)
{
    bool empty = p->m == 0 || p->n == 0 || p->k == 0;
    for (uint32_t i = 0; i < p->n_batch; i++) empty = empty || p->batch[i] == 0;
    return empty;
}
#endif

static zx_status matmul_prepare(const zx_call *call, uint64_t *work_bytes, void **state,
                                zx_err *err)
{
    ZX_TRY(zx_floats_check(call, "MatMul", err));
    if (zx_is_half(call)) *work_bytes = zx_half_bytes(call);
#ifndef ZX_NAIVE
    const zx_product p = zx_product_of(call);
    const bool bf16 = zx_library_takes_bf16(call);
    if ((call->in[0].type.dtype != ZX_F32 && !bf16) || is_empty(&p)) return ZX_OK;
    zx_dnnl *d = NULL;
    ZX_TRY(library_product(&p, bf16, call->threads, &d, err));
    if (d) *work_bytes = zx_dnnl_work_bytes(d);
    *state = d;
#else
    (void)state;
#endif
    return ZX_OK;
}

static zx_status matmul_run(const zx_call *call, zx_err *err)
{
#ifndef ZX_NAIVE
    if (call->state) {
        void *const outside[] = {call->in[0].data, call->in[1].data,
                                 call->n_in > 2 ? call->in[2].data : NULL, call->out[0].data};
        return zx_dnnl_run(call->state, outside, call, err);
    }
#endif
    if (zx_is_half(call)) return zx_half_run(call, call->work, run_loops, err);
    return run_loops(call, err);
}

static void matmul_release(void *state)
{
#ifndef ZX_NAIVE
    zx_dnnl_free(state);
#else
    (void)state;
#endif
}

const zx_kernel zx_cpu_matmul = {
    .prepare = matmul_prepare, .release = matmul_release, .run = matmul_run};
