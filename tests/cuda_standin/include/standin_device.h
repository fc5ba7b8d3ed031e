// standin_device.h - what CUDA kernels say, for the host's C++ compiler: a kernel is a function
// that is called once a thread, blocks are fibers of one host thread (tests/cuda_standin/block.c).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_DEVICE_H
#define ZX_STANDIN_DEVICE_H

#include <math.h>
#include <string.h>

#include "standin_launch.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __shared__ static thread_local // a block runs on one host thread, one after the other
#define __align__(n) alignas(n)

// ---- vectors ------------------------------------------------------------------------------------
#define ZX_STANDIN_VECTOR(T, name, align)                                                          \
    struct alignas(2 * sizeof(T)) name##2                                                          \
    {                                                                                              \
        T x, y;                                                                                    \
    };                                                                                             \
    struct name##3                                                                                 \
    {                                                                                              \
        T x, y, z;                                                                                 \
    };                                                                                             \
    struct alignas(align) name##4                                                                  \
    {                                                                                              \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    static inline name##2 make_##name##2(T x, T y)                                                 \
    {                                                                                              \
        return name##2 {x, y};                                                                     \
    }                                                                                              \
    static inline name##3 make_##name##3(T x, T y, T z)                                            \
    {                                                                                              \
        return name##3 {x, y, z};                                                                  \
    }                                                                                              \
    static inline name##4 make_##name##4(T x, T y, T z, T w)                                       \
    {                                                                                              \
        return name##4 {x, y, z, w};                                                               \
    }
ZX_STANDIN_VECTOR(float, float, 16)
ZX_STANDIN_VECTOR(double, double, 16)
ZX_STANDIN_VECTOR(int, int, 16)
ZX_STANDIN_VECTOR(unsigned, uint, 16)
ZX_STANDIN_VECTOR(short, short, 8)
ZX_STANDIN_VECTOR(unsigned short, ushort, 8)
ZX_STANDIN_VECTOR(unsigned char, uchar, 4)
ZX_STANDIN_VECTOR(long long, longlong, 16)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

// ---- where a thread is --------------------------------------------------------------------------
typedef struct zx_standin_index {
    unsigned x, y, z;
} zx_standin_index;
extern "C" {
extern __thread zx_standin_index zx_standin_thread, zx_standin_block, zx_standin_block_dim,
    zx_standin_grid_dim;
void zx_standin_syncthreads(const char *file, int line);
int zx_standin_syncthreads_count(int yes, const char *file, int line);
void *zx_standin_shared(void); // the block's dynamic shared memory
// Every lane of the warp gives 8 bytes and gets all 32 lanes' back.
const uint64_t *zx_standin_exchange(unsigned mask, uint64_t mine, const char *file, int line);
unsigned zx_standin_lane(void);
}
#define threadIdx zx_standin_thread
#define blockIdx zx_standin_block
#define blockDim zx_standin_block_dim
#define gridDim zx_standin_grid_dim
#define warpSize 32

// ---- barriers and warps: with the full mask only ------------------------------------------------
#define __syncthreads() zx_standin_syncthreads(__FILE__, __LINE__)
#define __syncthreads_count(yes) zx_standin_syncthreads_count((yes), __FILE__, __LINE__)
#define __syncthreads_or(yes) (zx_standin_syncthreads_count((yes), __FILE__, __LINE__) != 0)
#define __syncwarp(...) zx_standin_syncwarp(__FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_sync(...) zx_standin_shfl(__FILE__, __LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) zx_standin_shfl_up(__FILE__, __LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) zx_standin_shfl_down(__FILE__, __LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) zx_standin_shfl_xor(__FILE__, __LINE__, __VA_ARGS__)
#define __ballot_sync(mask, yes) zx_standin_ballot(__FILE__, __LINE__, (mask), (yes))
#define __any_sync(mask, yes) (zx_standin_ballot(__FILE__, __LINE__, (mask), (yes)) != 0)
#define __all_sync(mask, yes) (zx_standin_ballot(__FILE__, __LINE__, (mask), (yes)) == 0xffffffffu)

static inline void zx_standin_syncwarp(const char *file, int line, unsigned mask = 0xffffffffu)
{
    zx_standin_exchange(mask, 0, file, line);
}
template <class T>
static inline T zx_standin_from(const char *file, int line, unsigned mask, T x, unsigned lane)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    bits = zx_standin_exchange(mask, bits, file, line)[lane & 31];
    memcpy(&x, &bits, sizeof x);
    return x;
}
template <class T>
static inline T zx_standin_shfl(const char *file, int line, unsigned mask, T x, int from,
                                int width = 32)
{
    const unsigned l = zx_standin_lane(), w = (unsigned)width;
    return zx_standin_from(file, line, mask, x, (l & ~(w - 1)) | ((unsigned)from & (w - 1)));
}
template <class T>
static inline T zx_standin_shfl_up(const char *file, int line, unsigned mask, T x, unsigned by,
                                   int width = 32)
{
    const unsigned l = zx_standin_lane(), w = (unsigned)width;
    return zx_standin_from(file, line, mask, x, (l & (w - 1)) >= by ? l - by : l);
}
template <class T>
static inline T zx_standin_shfl_down(const char *file, int line, unsigned mask, T x, unsigned by,
                                     int width = 32)
{
    const unsigned l = zx_standin_lane(), w = (unsigned)width;
    return zx_standin_from(file, line, mask, x, (l & (w - 1)) + by < w ? l + by : l);
}
template <class T>
static inline T zx_standin_shfl_xor(const char *file, int line, unsigned mask, T x, int with,
                                    int width = 32)
{
    const unsigned l = zx_standin_lane(), w = (unsigned)width, to = l ^ (unsigned)with;
    return zx_standin_from(file, line, mask, x, (to & ~(w - 1)) == (l & ~(w - 1)) ? to : l);
}
static inline unsigned zx_standin_ballot(const char *file, int line, unsigned mask, int yes)
{
    const uint64_t *all = zx_standin_exchange(mask, yes != 0, file, line);
    unsigned bits = 0;
    for (unsigned l = 0; l < 32; l++) bits |= (unsigned)all[l] << l;
    return bits;
}

// ---- atomics: relaxed, as the device's ----------------------------------------------------------
template <class T> static inline T zx_standin_bits_cas(T *at, T seen, T x)
{
    __atomic_compare_exchange_n(at, &seen, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return seen;
}
static inline int atomicCAS(int *at, int seen, int x)
{
    return zx_standin_bits_cas(at, seen, x);
}
static inline unsigned atomicCAS(unsigned *at, unsigned seen, unsigned x)
{
    return zx_standin_bits_cas(at, seen, x);
}
static inline unsigned long long atomicCAS(unsigned long long *at, unsigned long long seen,
                                           unsigned long long x)
{
    return zx_standin_bits_cas(at, seen, x);
}
#define ZX_STANDIN_ATOMIC(name, T, expr)                                                           \
    static inline T name(T *at, T x)                                                               \
    {                                                                                              \
        T old;                                                                                     \
        __atomic_load(at, &old, __ATOMIC_RELAXED);                                                 \
        for (;;) {                                                                                 \
            T next = expr;                                                                         \
            if (__atomic_compare_exchange(at, &old, &next, false, __ATOMIC_RELAXED,                \
                                          __ATOMIC_RELAXED))                                       \
                return old;                                                                        \
        }                                                                                          \
    }
#define ZX_STANDIN_ATOMICS(T)                                                                      \
    ZX_STANDIN_ATOMIC(atomicAdd, T, (T)(old + x))                                                  \
    ZX_STANDIN_ATOMIC(atomicMax, T, old < x ? x : old)                                             \
    ZX_STANDIN_ATOMIC(atomicMin, T, old > x ? x : old)                                             \
    ZX_STANDIN_ATOMIC(atomicExch, T, x)
ZX_STANDIN_ATOMICS(int)
ZX_STANDIN_ATOMICS(unsigned)
ZX_STANDIN_ATOMICS(unsigned long long)
ZX_STANDIN_ATOMIC(atomicAdd, float, old + x)
ZX_STANDIN_ATOMIC(atomicAdd, double, old + x)
ZX_STANDIN_ATOMIC(atomicExch, float, x)
ZX_STANDIN_ATOMIC(atomicOr, unsigned, old | x)
ZX_STANDIN_ATOMIC(atomicAnd, unsigned, old &x)
ZX_STANDIN_ATOMIC(atomicOr, int, old | x)
static inline void __threadfence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

// ---- loads, bits, arithmetic --------------------------------------------------------------------
template <class T> static inline T __ldg(const T *at)
{
    return *at;
}
template <class To, class From> static inline To zx_standin_as(From x)
{
    static_assert(sizeof(To) == sizeof(From), "the same size");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline int __float_as_int(float x)
{
    return zx_standin_as<int>(x);
}
static inline unsigned __float_as_uint(float x)
{
    return zx_standin_as<unsigned>(x);
}
static inline float __int_as_float(int x)
{
    return zx_standin_as<float>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return zx_standin_as<float>(x);
}
static inline long long __double_as_longlong(double x)
{
    return zx_standin_as<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
    return zx_standin_as<double>(x);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
#define __expf(x) expf(x) // macros: the C library declares functions of these names
#define __logf(x) logf(x)
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
// One operation, rounded to nearest, that no compiler contracts with another.
#define ZX_STANDIN_RN(T, pre, post)                                                                \
    static inline T __##pre##add_rn(T a, T b)                                                      \
    {                                                                                              \
        return a + b;                                                                              \
    }                                                                                              \
    static inline T __##pre##sub_rn(T a, T b)                                                      \
    {                                                                                              \
        return a - b;                                                                              \
    }                                                                                              \
    static inline T __##pre##mul_rn(T a, T b)                                                      \
    {                                                                                              \
        return a * b;                                                                              \
    }                                                                                              \
    static inline T __##pre##div_rn(T a, T b)                                                      \
    {                                                                                              \
        return a / b;                                                                              \
    }                                                                                              \
    static inline T post(T a)                                                                      \
    {                                                                                              \
        return (T)sqrt((double)a);                                                                 \
    }
ZX_STANDIN_RN(float, f, __fsqrt_rn)
ZX_STANDIN_RN(double, d, __dsqrt_rn)
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __double2float_rn(double x)
{
    return (float)x;
}
#define ZX_STANDIN_MIN_MAX(T)                                                                      \
    static inline T min(T a, T b)                                                                  \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    static inline T max(T a, T b)                                                                  \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }
ZX_STANDIN_MIN_MAX(int)
ZX_STANDIN_MIN_MAX(unsigned)
ZX_STANDIN_MIN_MAX(long)
ZX_STANDIN_MIN_MAX(unsigned long)
ZX_STANDIN_MIN_MAX(long long)
ZX_STANDIN_MIN_MAX(unsigned long long)

// ---- launches -----------------------------------------------------------------------------------
template <class T> inline constexpr bool zx_standin_is_pointer = false;
template <class T> inline constexpr bool zx_standin_is_pointer<T *> = true;
template <class... P> struct zx_standin_args;
template <> struct zx_standin_args<> {
    template <class F, class... Done> void call(F f, const Done &...done) const
    {
        f(done...);
    }
    void pointers(const void **, uint32_t *) const
    {
    }
};
template <class P, class... Rest> struct zx_standin_args<P, Rest...> {
    static_assert(__is_trivially_copyable(P), "arguments of kernels are copied as bytes");
    P first;
    zx_standin_args<Rest...> rest;
    template <class F, class... Done> void call(F f, const Done &...done) const
    {
        rest.call(f, done..., first);
    }
    static const void *pointer(const volatile void *p)
    {
        return const_cast<const void *>(p);
    }
    void pointers(const void **list, uint32_t *n) const
    {
        if constexpr (zx_standin_is_pointer<P>) list[(*n)++] = pointer(first);
        rest.pointers(list, n);
    }
};
template <class... P> struct zx_standin_packer {
    static zx_standin_args<> pack()
    {
        return {};
    }
};
template <class P, class... Rest> struct zx_standin_packer<P, Rest...> {
    static zx_standin_args<P, Rest...> pack(P first, Rest... rest)
    {
        return {first, zx_standin_packer<Rest...>::pack(rest...)};
    }
};
template <class... P> static zx_standin_args<P...> zx_standin_pack(P... args)
{
    return zx_standin_packer<P...>::pack(args...);
}
template <class... P> struct zx_standin_closure {
    void (*kernel)(P...);
    zx_standin_args<P...> args;
    static void thread(const void *self)
    {
        const zx_standin_closure *c = static_cast<const zx_standin_closure *>(self);
        c->args.call(c->kernel);
    }
};
template <class... P>
static cudaError_t zx_standin_launch_kernel(const char *name, void (*kernel)(P...), dim3 grid,
                                            dim3 block, size_t shared, cudaStream_t stream,
                                            zx_standin_args<P...> args)
{
    const zx_standin_closure<P...> c = {kernel, args};
    const void *list[sizeof...(P) + 1];
    uint32_t n = 0;
    args.pointers(list, &n);
    const zx_standin_kernel k = {name,
                                 c.thread,
                                 &c,
                                 sizeof c,
                                 list,
                                 n,
                                 {grid.x, grid.y, grid.z},
                                 {block.x, block.y, block.z},
                                 shared};
    return zx_standin_launch(&k, stream);
}

#endif
