// reduce.cu - reductions over any set of axes, and SumTo.
//
// Floats are joined in double, integers wrap. Where the innermost dim is reduced, a warp or a block
// goes along it; where it stays, a block has 32 neighbouring results and 8 threads for each. What
// few results have many terms for is cut into pieces first, as many as the shape says, so that
// there are blocks enough; their parts are joined in order.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/any.cuh"
#include "kernels/cuda/rows.cuh"

// log of a sum of exponentials, carried as its largest term and the rest divided by e to it.
typedef struct log_sum {
    double most, sum;
} log_sum;
template <> __device__ inline log_sum zx_shuffle_xor(log_sum a, int with)
{
    return log_sum{__shfl_xor_sync(ZX_ALL, a.most, with), __shfl_xor_sync(ZX_ALL, a.sum, with)};
}

namespace
{

// ---- the reductions: of numbers of C, parts of which are an `acc` -------------------------------
template <class C> struct limits;
template <> struct limits<double> {
    static __device__ double least()
    {
        return -(double)INFINITY;
    }
    static __device__ double most()
    {
        return (double)INFINITY;
    }
};
template <> struct limits<int64_t> {
    static __device__ int64_t least()
    {
        return INT64_MIN;
    }
    static __device__ int64_t most()
    {
        return INT64_MAX;
    }
};
template <> struct limits<uint64_t> {
    static __device__ uint64_t least()
    {
        return 0;
    }
    static __device__ uint64_t most()
    {
        return UINT64_MAX;
    }
};

// Starts from START; a term of x is TERM; a and b are joined as JOIN says.
#define REDUCTION(name, START, TERM, JOIN)                                                         \
    template <class C> struct name {                                                               \
        typedef C acc;                                                                             \
        static __device__ C start()                                                                \
        {                                                                                          \
            return START;                                                                          \
        }                                                                                          \
        static __device__ C of(C x)                                                                \
        {                                                                                          \
            return TERM;                                                                           \
        }                                                                                          \
        static __device__ C join(C a, C b)                                                         \
        {                                                                                          \
            return JOIN;                                                                           \
        }                                                                                          \
        static __device__ C value(C a)                                                             \
        {                                                                                          \
            return a;                                                                              \
        }                                                                                          \
    };
REDUCTION(plain_sum, 0, x, zx_plus(a, b))
REDUCTION(size_sum, 0, x < 0 ? zx_minus(x) : x, zx_plus(a, b))
REDUCTION(square_sum, 0, zx_times(x, x), zx_plus(a, b))
REDUCTION(product, 1, x, zx_times(a, b))
REDUCTION(greatest, limits<C>::least(), x, a > b || !(a == a) ? a : b) // a NaN stays
REDUCTION(smallest, limits<C>::most(), x, a < b || !(a == a) ? a : b)

template <class C> struct log_of_sum {
    typedef log_sum acc;
    static __device__ log_sum start()
    {
        return log_sum{-(double)INFINITY, 0.0};
    }
    static __device__ log_sum of(double x)
    {
        return log_sum{x, 1.0};
    }
    static __device__ log_sum join(log_sum a, log_sum b)
    {
        const double most = a.most > b.most || a.most != a.most ? a.most : b.most;
        if (fabs(most) == (double)INFINITY) return log_sum{most, 1.0};
        return log_sum{most, a.sum * exp(a.most - most) + b.sum * exp(b.most - most)};
    }
    static __device__ double value(log_sum a)
    {
        return fabs(a.most) == (double)INFINITY ? a.most : a.most + log(a.sum);
    }
};

// ---- kernels ------------------------------------------------------------------------------------
typedef struct shape { // of a call
    zx_dims kept, reduced;
    int64_t pieces, length; // of the terms of a result, and terms of one
    zx_dtype dtype;
    uint32_t op;
} shape;

template <class C, bool F32>
static __device__ inline C read(const shape &s, const void *x, int64_t i)
{
    return F32 ? (C)((const float *)x)[i] : zx_get<C>(s.dtype, x, i);
}
static __device__ inline double ended(const shape &s, double v)
{
    return s.op == ZX_K_REDUCE_MEAN ? v / (double)s.reduced.count
           : s.op == ZX_K_REDUCE_L2 ? sqrt(v)
                                    : v;
}
template <class C> static __device__ inline C ended(const shape &s, C v)
{
    if (s.reduced.count == 0) return s.op == ZX_K_REDUCE_PROD;
    return s.op == ZX_K_REDUCE_MEAN ? v / (C)s.reduced.count
           : s.op == ZX_K_REDUCE_L2 ? (C)sqrt((double)v)
                                    : v;
}
// A result, or a part of one.
template <class R, class C>
static __device__ inline void put(const shape &s, typename R::acc a, int64_t o, int64_t piece,
                                  void *y, typename R::acc *parts)
{
    if (parts != NULL)
        parts[piece * s.kept.count + o] = a;
    else
        zx_put<C>(s.dtype, y, o, ended(s, R::value(a)));
}

template <int N, class R, class C, bool F32>
__global__ void __launch_bounds__(ZX_BLOCK)
    along(shape s, const void *x, void *y, typename R::acc *parts)
{
    const int64_t task = zx_team_row<N>(), o = task / s.pieces, piece = task - o * s.pieces;
    const int64_t end = min((long long)s.reduced.count, ((long long)piece + 1) * s.length);
    typename R::acc a = R::start();
    const bool mine = o < s.kept.count;
    const int64_t base = mine ? zx_dims_place(s.kept, o) : 0;
    for (int64_t r = piece * s.length + zx_team_place<N>(); mine && r < end; r += N)
        a = R::join(a, R::of(read<C, F32>(s, x, base + zx_dims_place(s.reduced, r))));
    a = zx_team_join<N>(a, R::join);
    if (mine && zx_team_place<N>() == 0) put<R, C>(s, a, o, piece, y, parts);
}

#define SIDE 32 // results of a block
template <class R, class C, bool F32>
__global__ void __launch_bounds__(ZX_BLOCK)
    down(shape s, const void *x, void *y, typename R::acc *parts)
{
    __shared__ typename R::acc part[ZX_BLOCK / SIDE][SIDE];
    const int64_t sides = (s.kept.count + SIDE - 1) / SIDE, piece = blockIdx.x / sides;
    const int64_t o = blockIdx.x % sides * SIDE + threadIdx.x % SIDE;
    const int64_t end = min((long long)s.reduced.count, ((long long)piece + 1) * s.length);
    typename R::acc a = R::start();
    const bool mine = o < s.kept.count;
    const int64_t base = mine ? zx_dims_place(s.kept, o) : 0;
    for (int64_t r = piece * s.length + threadIdx.x / SIDE; mine && r < end; r += ZX_BLOCK / SIDE)
        a = R::join(a, R::of(read<C, F32>(s, x, base + zx_dims_place(s.reduced, r))));
    part[threadIdx.x / SIDE][threadIdx.x % SIDE] = a;
    __syncthreads();
    if (threadIdx.x >= SIDE || !mine) return;
    for (int k = 1; k < ZX_BLOCK / SIDE; k++) a = R::join(a, part[k][threadIdx.x]);
    put<R, C>(s, a, o, piece, y, parts);
}

template <class R, class C>
__global__ void __launch_bounds__(ZX_BLOCK)
    join_pieces(shape s, const typename R::acc *parts, void *y)
{
    ZX_FOR_EACH(o, s.kept.count)
    {
        typename R::acc a = parts[o];
        for (int64_t k = 1; k < s.pieces; k++) a = R::join(a, parts[k * s.kept.count + o]);
        zx_put<C>(s.dtype, y, o, ended(s, R::value(a)));
    }
}

// ---- launches -----------------------------------------------------------------------------------
#define ENOUGH 1024 // blocks; more pieces aren't made
#define TERMS 1024  // of a piece, at least

typedef struct job {
    shape s;
    bool along;
} job;
job job_of(const zx_call *c)
{
    const zx_shape *x = &c->in[0].type.shape;
    const zx_reduction r = c->op == ZX_K_SUM_TO ? zx_sum_to_reduction(x, &c->out[0].type.shape)
                                                : zx_reduction_make(x, zx_axes_bits(c, x->rank));
    job j;
    j.s.kept = r.kept;
    j.s.reduced = r.reduced;
    j.s.dtype = c->in[0].type.dtype;
    j.s.op = c->op;
    j.along = r.last_reduced;
    const int64_t blocks = j.along ? r.kept.count : (r.kept.count + SIDE - 1) / SIDE;
    const int64_t room = blocks > 0 ? ENOUGH / blocks : 0;
    const int64_t wanted = (r.reduced.count + TERMS - 1) / TERMS;
    const int64_t pieces = room < wanted ? room : wanted;
    j.s.pieces = pieces > 1 ? pieces : 1;
    j.s.length = (r.reduced.count + j.s.pieces - 1) / j.s.pieces;
    return j;
}

template <class R, class C, bool F32> cudaError_t launch(const zx_call *c)
{
    typedef typename R::acc acc;
    const job j = job_of(c);
    const int64_t results = j.s.kept.count, tasks = results * j.s.pieces;
    acc *const parts = j.s.pieces > 1 ? (acc *)c->work : NULL;
    const void *x = c->in[0].data;
    void *y = c->out[0].data;
    cudaError_t e;
    if (results == 0) return cudaSuccess;
    if (!j.along)
        e = zx_launch((down<R, C, F32>), (unsigned)((results + SIDE - 1) / SIDE * j.s.pieces),
                      ZX_BLOCK, 0, c->cuda->stream, j.s, x, y, parts);
    else if (j.s.length <= ZX_WARP_ROW)
        e = zx_launch((along<ZX_WARP, R, C, F32>), zx_team_blocks<ZX_WARP>(tasks), ZX_BLOCK, 0,
                      c->cuda->stream, j.s, x, y, parts);
    else
        e = zx_launch((along<ZX_BLOCK, R, C, F32>), zx_team_blocks<ZX_BLOCK>(tasks), ZX_BLOCK, 0,
                      c->cuda->stream, j.s, x, y, parts);
    if (e != cudaSuccess || parts == NULL) return e;
    return zx_launch_each(c, results, (join_pieces<R, C>), j.s, (const acc *)parts, y);
}

template <template <class> class R> cudaError_t launch_any(const zx_call *c)
{
    const zx_dtype t = c->in[0].type.dtype;
    return t == ZX_F32            ? launch<R<double>, double, true>(c)
           : zx_dtype_is_float(t) ? launch<R<double>, double, false>(c)
           : t == ZX_U64          ? launch<R<uint64_t>, uint64_t, false>(c)
                                  : launch<R<int64_t>, int64_t, false>(c);
}
cudaError_t launch_log(const zx_call *c)
{
    return c->in[0].type.dtype == ZX_F32 ? launch<log_of_sum<double>, double, true>(c)
                                         : launch<log_of_sum<double>, double, false>(c);
}

const struct {
    uint32_t op;
    cudaError_t (*launch)(const zx_call *);
} rows[] = {
    {ZX_K_REDUCE_SUM, launch_any<plain_sum>}, {ZX_K_REDUCE_MEAN, launch_any<plain_sum>},
    {ZX_K_SUM_TO, launch_any<plain_sum>},     {ZX_K_REDUCE_L1, launch_any<size_sum>},
    {ZX_K_REDUCE_L2, launch_any<square_sum>}, {ZX_K_REDUCE_SUM_SQUARE, launch_any<square_sum>},
    {ZX_K_REDUCE_MAX, launch_any<greatest>},  {ZX_K_REDUCE_MIN, launch_any<smallest>},
    {ZX_K_REDUCE_PROD, launch_any<product>},  {ZX_K_REDUCE_LOG_SUM_EXP, launch_log},
};

zx_status prepare(const zx_call *call, uint64_t *work_bytes, void **, zx_err *err)
{
    const zx_dtype t = call->in[0].type.dtype;
    if (call->op == ZX_K_REDUCE_LOG_SUM_EXP && !zx_dtype_is_float(t))
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "no CUDA kernel for %s", zx_dtypes[t].word);
    const job j = job_of(call);
    *work_bytes =
        j.s.pieces > 1 ? (uint64_t)j.s.pieces * (uint64_t)j.s.kept.count * sizeof(log_sum) : 0;
    return ZX_OK;
}
zx_status run(const zx_call *call, zx_err *err)
{
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        if (rows[i].op == call->op) return zx_cuda_check(rows[i].launch(call), "reduce", err);
    zx_bug(__FILE__, __LINE__, "a reduction");
}

} // namespace

const zx_kernel zx_cuda_reduce = {prepare, NULL, run};
const zx_kernel zx_cuda_sum_to = {prepare, NULL, run};
