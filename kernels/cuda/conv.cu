// conv.cu - convolution and its two gradients, float32, without a library: the product of matrices
// that each of them is, whose second operand is looked up as it is multiplied.
//
// A block makes a tile of TM x 64 of y[m][n] = sum over k of a[m][k] b[k][n], a thread TM/16 x 4
// numbers of it. What has few tiles is cut along k into pieces, as many as the shape says, whose
// parts are added in order.
//              y    m          n                k                a    b
//   Conv       y    filter     image, output    channel, tap     w    x
//   ConvGradX  dx   channel    image, input     filter, tap      w    dy
//   ConvGradW  dw   filter     channel, tap     image, output    dy   x
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/naive.h"
#include "kernels/cuda/common.cuh"

namespace
{

#define TN 64
#define TK 16
#define SIDE 16 // threads of a block: SIDE x SIDE

typedef struct shape { // a zx_conv in 32 bits; in, out, window: elements of a plane, and of w's
    int images, groups, filters, channels, in, out, window;
    int x[3], y[3], k[3], stride[3], dilation[3], before[3];
    int m, n, length, pieces; // of the product; k of a piece
    int k_all;
} shape;

// A part of where an operand of b lies: an offset, and a place in a plane.
typedef struct place {
    int at, p[3];
} place;
static __device__ inline place place_of(int at, int i, const int box[3], const int step[3],
                                        const int minus[3])
{
    const int row = i / box[2], plane = row / box[1];
    return place{at,
                 {plane * step[0] - minus[0], (row - plane * box[1]) * step[1] - minus[1],
                  (i - row * box[2]) * step[2] - minus[2]}};
}
// Tap and output meet in an element of x; 0: in the padding.
static __device__ inline float meet(const shape &s, const float *x, const place &a, const place &b)
{
    int at = 0;
    for (int i = 0; i < 3; i++) {
        const int p = a.p[i] + b.p[i];
        if (p < 0 || p >= s.x[i]) return 0.0f;
        at = at * s.x[i] + p;
    }
    return x[a.at + b.at + at];
}

struct forward {
    static __device__ place column(const shape &s, int group, int n)
    {
        const int image = n / s.out;
        return place_of((image * s.groups + group) * s.channels * s.in, n - image * s.out, s.y,
                        s.stride, s.before);
    }
    static __device__ place row(const shape &s, int, int k)
    {
        const int c = k / s.window, none[3] = {0, 0, 0};
        return place_of(c * s.in, k - c * s.window, s.k, s.dilation, none);
    }
    static __device__ float b(const shape &s, const float *x, const place &column, const place &row)
    {
        return meet(s, x, column, row);
    }
    static __device__ int a(const shape &s, int group, int m, int k)
    {
        return (group * s.filters + m) * s.channels * s.window + k;
    }
    static __device__ int y(const shape &s, int group, int m, int n)
    {
        const int image = n / s.out;
        return ((image * s.groups + group) * s.filters + m) * s.out + (n - image * s.out);
    }
    enum { ALONG_K = 0 }; // neighbours in memory are neighbours along n
};
struct grad_x {
    static __device__ place column(const shape &s, int group, int n)
    {
        const int image = n / s.in, one[3] = {1, 1, 1};
        const int minus[3] = {-s.before[0], -s.before[1], -s.before[2]};
        return place_of((image * s.groups + group) * s.filters * s.out, n - image * s.in, s.x, one,
                        minus);
    }
    static __device__ place row(const shape &s, int, int k)
    {
        const int f = k / s.window, none[3] = {0, 0, 0};
        return place_of(f * s.out, k - f * s.window, s.k, s.dilation, none);
    }
    // The output whose tap reads the input; 0: there is none.
    static __device__ float b(const shape &s, const float *dy, const place &column,
                              const place &row)
    {
        int at = 0;
        for (int i = 0; i < 3; i++) {
            const int p = column.p[i] - row.p[i], o = p / s.stride[i];
            if (p < 0 || o * s.stride[i] != p || o >= s.y[i]) return 0.0f;
            at = at * s.y[i] + o;
        }
        return dy[column.at + row.at + at];
    }
    static __device__ int a(const shape &s, int group, int m, int k)
    {
        const int f = k / s.window;
        return ((group * s.filters + f) * s.channels + m) * s.window + (k - f * s.window);
    }
    static __device__ int y(const shape &s, int group, int m, int n)
    {
        const int image = n / s.in;
        return ((image * s.groups + group) * s.channels + m) * s.in + (n - image * s.in);
    }
    enum { ALONG_K = 0 };
};
struct grad_w {
    static __device__ place column(const shape &s, int group, int n)
    {
        return forward::row(s, group, n);
    }
    static __device__ place row(const shape &s, int group, int k)
    {
        return forward::column(s, group, k);
    }
    static __device__ float b(const shape &s, const float *x, const place &column, const place &row)
    {
        return meet(s, x, column, row);
    }
    static __device__ int a(const shape &s, int group, int m, int k)
    {
        const int image = k / s.out;
        return ((image * s.groups + group) * s.filters + m) * s.out + (k - image * s.out);
    }
    static __device__ int y(const shape &s, int group, int m, int n)
    {
        return (group * s.filters + m) * s.channels * s.window + n;
    }
    enum { ALONG_K = 1 };
};

// y, or parts [piece][elements of y].
template <class P, int TM>
__global__ void __launch_bounds__(SIDE *SIDE)
    product(const float *a, const float *b, const float *bias, float *y, shape s, int64_t count)
{
    __shared__ float ta[TK][TM + 1], tb[TK][TN + 1];
    const int tid = (int)threadIdx.x, tx = tid % SIDE, ty = tid / SIDE;
    const int tiles = (s.n + TN - 1) / TN, group = (int)blockIdx.y, piece = (int)blockIdx.z;
    const int m0 = (int)blockIdx.x / tiles * TM, n0 = (int)blockIdx.x % tiles * TN;
    const int begin = piece * s.length;
    const int end = begin + s.length < s.k_all ? begin + s.length : s.k_all;
    // Of the four that a thread loads of b: columns are fixed, or all of a row.
    const int own_n = P::ALONG_K ? ty : tid % TN, own_k = P::ALONG_K ? tx : tid / TN;
    const int step_n = P::ALONG_K ? SIDE : 0, step_k = P::ALONG_K ? 0 : TK / 4;
    place column[4];
    float sum[TM / SIDE][4];
    ZX_EVERY(j, 4)
    {
        column[j] = P::column(s, group, min(n0 + own_n + j * step_n, s.n - 1));
        ZX_EVERY(i, TM / SIDE) sum[i][j] = 0.0f;
    }
    for (int k0 = begin; k0 < end; k0 += TK) {
        ZX_EVERY(i, TM / SIDE)
        {
            const int m = m0 + ty + SIDE * i, k = k0 + tx;
            ta[tx][ty + SIDE * i] = m < s.m && k < end ? a[P::a(s, group, m, k)] : 0.0f;
        }
        ZX_EVERY(j, 4)
        {
            const int n = own_n + j * step_n, k = own_k + j * step_k;
            const bool inside = n0 + n < s.n && k0 + k < end;
            tb[k][n] = inside ? P::b(s, b, column[j], P::row(s, group, k0 + k)) : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < TK; k++) {
            float of_b[4];
            ZX_EVERY(j, 4) of_b[j] = tb[k][tx + SIDE * j];
            ZX_EVERY(i, TM / SIDE)
            {
                const float of_a = ta[k][ty + SIDE * i];
                ZX_EVERY(j, 4) sum[i][j] += of_a * of_b[j];
            }
        }
        __syncthreads();
    }
    ZX_EVERY(i, TM / SIDE)
    ZX_EVERY(j, 4)
    {
        const int m = m0 + ty + SIDE * i, n = n0 + tx + SIDE * j;
        const float plus = bias != NULL && m < s.m ? bias[group * s.m + m] : 0.0f;
        if (m < s.m && n < s.n) y[piece * count + P::y(s, group, m, n)] = sum[i][j] + plus;
    }
}
// bias: of y [images][filters][out].
__global__ void __launch_bounds__(ZX_BLOCK)
    join_pieces(const float *parts, const float *bias, float *y, int64_t n, int pieces,
                int64_t filters, int64_t out)
{
    ZX_FOR_EACH(i, n)
    {
        float sum = parts[i];
        for (int p = 1; p < pieces; p++) sum += parts[p * n + i];
        y[i] = sum + (bias != NULL ? bias[i / out % filters] : 0.0f);
    }
}

// ---- launches: which of in[0], in[1], out[0] are x, w, y ----------------------------------------
#define ENOUGH 512 // blocks; more pieces aren't made
#define TERMS 256  // of a piece, at least

int tile_rows(const shape *s)
{
    return s->m <= 16 ? 16 : 64;
}
int64_t tiles_of(const shape *s) // of a group
{
    return (int64_t)((s->m + tile_rows(s) - 1) / tile_rows(s)) * ((s->n + TN - 1) / TN);
}
shape shape_of(const zx_conv *g, uint32_t op)
{
    shape s;
    s.images = (int)g->n;
    s.groups = (int)g->groups;
    s.filters = (int)g->m;
    s.channels = (int)g->c;
    for (int i = 0; i < 3; i++) {
        s.x[i] = (int)g->x[i];
        s.y[i] = (int)g->y[i];
        s.k[i] = (int)g->k[i];
        s.stride[i] = (int)g->stride[i];
        s.dilation[i] = (int)g->dilation[i];
        s.before[i] = (int)g->before[i];
    }
    s.in = s.x[0] * s.x[1] * s.x[2];
    s.out = s.y[0] * s.y[1] * s.y[2];
    s.window = s.k[0] * s.k[1] * s.k[2];
    s.m = op == ZX_K_CONV_GRAD_X ? s.channels : s.filters;
    s.n = op == ZX_K_CONV          ? s.images * s.out
          : op == ZX_K_CONV_GRAD_X ? s.images * s.in
                                   : s.channels * s.window;
    s.k_all = op == ZX_K_CONV          ? s.channels * s.window
              : op == ZX_K_CONV_GRAD_X ? s.filters * s.window
                                       : s.images * s.out;
    const int64_t blocks = tiles_of(&s) * s.groups;
    const int64_t room = blocks > 0 ? ENOUGH / blocks : 1, wanted = (s.k_all + TERMS - 1) / TERMS;
    s.pieces = (int)max(1LL, min((long long)room, (long long)wanted));
    s.length = (s.k_all + s.pieces - 1) / s.pieces;
    return s;
}
zx_status make(const zx_call *c, shape *s, zx_err *err)
{
    const zx_view *const v[] = {&c->in[0], &c->in[1], &c->out[0]};
    const int x = c->op == ZX_K_CONV_GRAD_X ? 2 : 0;
    const int w = c->op == ZX_K_CONV_GRAD_W ? 2 : 1, y = 3 - x - w;
    zx_conv g;
    ZX_TRY(zx_conv_of(c->attrs, &v[x]->type.shape, &v[w]->type.shape, &v[y]->type.shape, &g, err));
    for (int i = 0; i < 3; i++)
        if (zx_count(v[i]) > INT32_MAX)
            return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                           "no CUDA kernel for a convolution of %lld elements",
                           (long long)zx_count(v[i]));
    *s = shape_of(&g, c->op);
    return ZX_OK;
}
zx_status prepare(const zx_call *c, uint64_t *work_bytes, void **, zx_err *err)
{
    shape s;
    ZX_TRY(zx_prepare_f32(c, NULL, NULL, err));
    ZX_TRY(make(c, &s, err));
    if (s.pieces > 1) *work_bytes = (uint64_t)s.pieces * zx_type_bytes(&c->out[0].type);
    return ZX_OK;
}
template <class P> cudaError_t launch(const zx_call *c, const shape &s)
{
    const int64_t count = zx_count(&c->out[0]);
    const float *bias = c->op == ZX_K_CONV && zx_has(c, 2) ? (const float *)c->in[2].data : NULL;
    float *to = (float *)(s.pieces > 1 ? c->work : c->out[0].data);
    const dim3 grid((unsigned)tiles_of(&s), (unsigned)s.groups, (unsigned)s.pieces);
    if (count == 0) return cudaSuccess;
    const auto as = [&](auto kernel) {
        return zx_launch(kernel, grid, SIDE * SIDE, 0, c->cuda->stream,
                         (const float *)c->in[1].data, (const float *)c->in[0].data,
                         s.pieces > 1 ? NULL : bias, to, s, count);
    };
    const cudaError_t e = s.m <= 16 ? as(product<P, 16>) : as(product<P, 64>);
    if (e != cudaSuccess || s.pieces == 1) return e;
    return zx_launch_each(c, count, join_pieces, (const float *)to, bias, (float *)c->out[0].data,
                          count, s.pieces, (int64_t)s.groups * s.filters, (int64_t)s.out);
}
zx_status run(const zx_call *c, zx_err *err)
{
    shape s;
    ZX_TRY(make(c, &s, err));
    return zx_cuda_check(c->op == ZX_K_CONV          ? launch<forward>(c, s)
                         : c->op == ZX_K_CONV_GRAD_X ? launch<grad_x>(c, s)
                                                     : launch<grad_w>(c, s),
                         "conv", err);
}

} // namespace

const zx_kernel zx_cuda_conv = {prepare, NULL, run};
const zx_kernel zx_cuda_conv_grad_x = {prepare, NULL, run};
const zx_kernel zx_cuda_conv_grad_w = {prepare, NULL, run};
