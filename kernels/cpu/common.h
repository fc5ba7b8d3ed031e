// common.h - what the CPU kernels share: threads, clones for wider vectors, and blocks
// of elements of any type read into one of four types to compute in.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CPU_COMMON_H
#define ZX_KERNELS_CPU_COMMON_H

#include "kernels/cpu/cpu.h"
#include "kernels/dims.h"
#include "kernels/op_ids.h"

// A hot loop is compiled for several processors and the dynamic linker picks one. The loops hold
// plain IEEE operations in a stated order and nothing is contracted, so all clones give the same
// bits. Sanitizers can't run the linker's resolvers, clang's have clashing names: plain code there.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ZX_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ZX_CLONES
#endif
// Iterations are independent (an output may be exactly an input, never shifted against it).
#if defined(__clang__)
#define ZX_SIMD // clang takes the pragma for a promise, and warns where it vectorises nothing
#else
#define ZX_SIMD _Pragma("omp simd")
#endif

// Sums are kept in this many lanes, element i in lane i % ZX_LANES, whatever the vector's width.
#define ZX_LANES 16

#define ZX_PI 3.14159265358979323846

static inline int64_t zx_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t zx_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// ---- threads ------------------------------------------------------------------------------------
typedef void zx_range_fn(void *ctx, int64_t from, int64_t to);
// Calls fn on [0, n) cut into `threads` consecutive ranges at multiples of `align`, at once; in one
// piece on the calling thread where n is less than `grain`. What fn computes for an index must not
// depend on the range it comes in.
void zx_split(int threads, int64_t n, int64_t align, int64_t grain, zx_range_fn *fn, void *ctx);
// Long streams from memory, a line of the cache at a time: where each needs much work, or they are
// many, a processor foresees too little and is told what comes (it may lie behind the end).
#define ZX_LINE 16     // floats of a line
#define ZX_AHEAD 1024  // floats
#define ZX_GRAIN 16384 // elements of a cheap loop worth a second thread (about 5 us)

// Zero bytes, by all threads.
void zx_fill_zero(void *to, uint64_t bytes, int threads);

// ---- numbers of two bytes -----------------------------------------------------------------------
float zx_f16_to_f32(uint16_t h);
uint16_t zx_f64_to_f16(double x); // rounds to nearest, ties to even, once
float zx_bf16_to_f32(uint16_t h);
uint16_t zx_f64_to_bf16(double x);
static inline bool zx_is_16(zx_dtype t)
{
    return t == ZX_F16 || t == ZX_BF16;
}
// Whether an operand or a result of the call is of them.
static inline bool zx_has_16(const zx_call *c)
{
    bool any = false;
    for (uint32_t i = 0; i < c->n_in; i++) any = any || zx_is_16(c->in[i].type.dtype);
    for (uint32_t i = 0; i < c->n_out; i++) any = any || zx_is_16(c->out[i].type.dtype);
    return any;
}
// Whether the call is a product that the library computes in bf16 (widen.c).
bool zx_library_takes_bf16(const zx_call *call);
// zx_cpu_widen and zx_cpu_narrow by all threads.
void zx_widen_all(zx_dtype t, const void *x, float *y, int64_t n, int threads);
void zx_narrow_all(zx_dtype t, const float *x, void *y, int64_t n, int threads);
// y [rows,cols] = x scale, where one side is of 16 bits; rows lie x_row and y_row elements apart.
void zx_widen_rows(zx_dtype t, int64_t rows, int64_t cols, const void *x, int64_t x_row,
                   float scale, float *y, int64_t y_row);
void zx_narrow_rows(zx_dtype t, int64_t rows, int64_t cols, const float *x, int64_t x_row,
                    float scale, void *y, int64_t y_row);
// Kernels that compute in float32 on operands of float32 or 16 bits take some elements at a time:
// those [at, at + n) of x where they lie, or as float32 in `room`.
static inline const float *zx_floats(zx_dtype t, const void *x, int64_t at, int64_t n, float *room)
{
    if (!zx_is_16(t)) return (const float *)x + at;
    zx_cpu_widen(t, (const uint16_t *)x + at, room, n);
    return room;
}
// Where results [at, ...) of y are made: there or in `room`, which zx_floats_put then rounds.
static inline float *zx_floats_to(zx_dtype t, void *y, int64_t at, float *room)
{
    return zx_is_16(t) ? room : (float *)y + at;
}
static inline void zx_floats_put(zx_dtype t, const float *room, void *y, int64_t at, int64_t n)
{
    if (zx_is_16(t)) zx_cpu_narrow(t, room, (uint16_t *)y + at, n);
}

// ---- blocks -------------------------------------------------------------------------------------
// Elementwise kernels that work on every dtype compute in one of four types: half floats through
// f32, integers and bool in 64 bits (wrapping: the low bits of sums and products are right).
typedef enum zx_class { ZX_CLASS_F32, ZX_CLASS_F64, ZX_CLASS_I64, ZX_CLASS_U64 } zx_class;
zx_class zx_class_of(zx_dtype t);

#define ZX_BLOCK 512 // elements; a block of 8-byte ones is 4 KiB
typedef union zx_block {
    float f32[ZX_BLOCK];
    double f64[ZX_BLOCK];
    int64_t i64[ZX_BLOCK];
    uint64_t u64[ZX_BLOCK];
} zx_block;
// Elements at, at + stride, ... of x (n <= ZX_BLOCK of them) as class c. Float to integer
// truncates, saturates at 64 bits, NaN is 0; to bool is != 0 (only in stores).
void zx_load(zx_dtype t, const void *x, int64_t at, int64_t stride, int64_t n, zx_class c,
             zx_block *to);
// The block, of class c, as dtype t at y[at...]. Floats saturate at an integer type's ends;
// integers wrap into narrower ones.
void zx_store(zx_dtype t, void *y, int64_t at, int64_t n, zx_class c, const zx_block *from);
// One element as a double or an integer.
double zx_read_f64(zx_dtype t, const void *x, int64_t at);
int64_t zx_read_i64(zx_dtype t, const void *x, int64_t at);

// ---- broadcasting -------------------------------------------------------------------------------
// Does the run of `n` result elements from `at`, along the last dim; operand k starts at pos[k].
typedef void zx_run_fn(void *ctx, int64_t at, const int64_t pos[3], int64_t n);
// Cuts [0, count) over the threads and each part into runs.
void zx_broadcast_runs(const zx_broadcast *b, int threads, zx_run_fn *fn, void *ctx);

// ---- strided copies -----------------------------------------------------------------------------
void zx_move_run(zx_move m, int threads);

// ---- rows ---------------------------------------------------------------------------------------
// Sums in ZX_LANES lanes of double, lanes added in order.
double zx_row_sum(const float *x, int64_t n);
double zx_row_sum_of(zx_dtype t, const void *x, int64_t at, int64_t n); // of f32 or 16 bits
double zx_row_sum_square(const float *x, int64_t n);
double zx_row_dot(const float *a, const float *b, int64_t n);
double zx_row_deviation(const float *x, int64_t n, double mean); // sum of (x - mean)^2
// Whether the bits of some element without its sign exceed `limit`: infinity's are 0x7f800000,
// those of NaNs are above.
bool zx_any_above(const float *x, int64_t n, uint32_t limit);
float zx_row_max(const float *x, int64_t n); // -inf for n = 0; NaNs are passed over

// Column sums of `rows` rows into double sum[cols]. `add` adds rows [from, to) to sum[0..cols of
// tile). Rows are summed in blocks whose number follows from the shape alone.
#define ZX_COLUMNS_TILE 512 // n of `add` at most
typedef struct zx_columns {
    int64_t rows, cols;
    uint32_t n_sums; // sums per column that `add` makes at once: sum[k * cols + j]
    void (*add)(void *ctx, int64_t from, int64_t to, int64_t col, int64_t n, double *const *sum);
    void *ctx;
} zx_columns;
uint64_t zx_columns_work(int64_t rows, int64_t cols, uint32_t n_sums); // bytes of scratch
// Leaves the sums at the start of work: double [n_sums][cols]; returns that.
const double *zx_columns_run(const zx_columns *c, void *work, int threads);

// ---- checks -------------------------------------------------------------------------------------
// E_UNSUPPORTED where an input is of a float type other than f32 (and 16 bits).
zx_status zx_need_f32(const zx_call *call, zx_err *err);
zx_status zx_need_f32_or_16(const zx_call *call, zx_err *err);

#endif
