// naive_product.c - matrix products, convolutions, pooling, resizing; see naive.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/naive.h"

void naive_matmul(const naive_call *c)
{
    const bool ta = zx_attr_int(c->attrs, ZX_A_TRANS_A, 0),
               tb = zx_attr_int(c->attrs, ZX_A_TRANS_B, 0);
    const double alpha = zx_attr_float(c->attrs, ZX_A_ALPHA, 1);
    const zx_shape *a = &c->in[0].type.shape, *b = &c->in[1].type.shape, *y = &c->out->type.shape;
    const int64_t inner = a->dim[a->rank - (ta ? 2 : 1)];
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t at[ZX_MAX_RANK], of_a[ZX_MAX_RANK], of_b[ZX_MAX_RANK];
        naive_index(y, i, at);
        const int64_t row = at[y->rank - 2], column = at[y->rank - 1];
        for (uint32_t d = 0; d + 2 < a->rank; d++)
            of_a[d] = a->dim[d] == 1 ? 0 : at[d + y->rank - a->rank];
        for (uint32_t d = 0; d + 2 < b->rank; d++)
            of_b[d] = b->dim[d] == 1 ? 0 : at[d + y->rank - b->rank];
        double sum = 0;
        for (int64_t k = 0; k < inner; k++) {
            of_a[a->rank - 2] = ta ? k : row;
            of_a[a->rank - 1] = ta ? row : k;
            of_b[b->rank - 2] = tb ? column : k;
            of_b[b->rank - 1] = tb ? k : column;
            sum += c->in[0].x[naive_flat(a, of_a)] * c->in[1].x[naive_flat(b, of_b)];
        }
        c->out->x[i] = alpha * sum + (c->in[2].x ? c->in[2].x[column] : 0);
    }
}

// ---- a product and its epilogue
// ------------------------------------------------------------------

static double gelu(double x, bool by_tanh)
{
    const double t = tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x));
    return 0.5 * x * (1 + (by_tanh ? t : erf(x / sqrt(2.0))));
}
void naive_matmul_gelu(const naive_call *c)
{
    const bool by_tanh = zx_attr_int(c->attrs, ZX_A_MODE, 0) == 1;
    naive_matmul(c);
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        c->out[1].x[i] = c->out->x[i];
        c->out->x[i] = gelu(c->out->x[i], by_tanh);
    }
}
// The slope by a difference that double has digits for.
void naive_matmul_dgelu(const naive_call *c)
{
    const bool by_tanh = zx_attr_int(c->attrs, ZX_A_MODE, 0) == 1;
    const naive_tensor in[3] = {c->in[0], c->in[1]};
    const int64_t n = c->out[1].type.shape.dim[0];
    naive_matmul(&(naive_call){.op = c->op, .attrs = c->attrs, .in = in, .out = c->out});
    for (int64_t i = 0; i < n; i++) c->out[1].x[i] = 0;
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        const double x = c->in[2].x[i], h = 1e-5;
        c->out->x[i] *= (gelu(x + h, by_tanh) - gelu(x - h, by_tanh)) / (2 * h);
        c->out[1].x[i % n] += c->out->x[i];
    }
}
void naive_matmul_sum(const naive_call *c)
{
    const int of = zx_attr_int(c->attrs, ZX_A_MODE, 0) != 0 ? 0 : 1;
    const bool turned = zx_attr_int(c->attrs, of == 0 ? ZX_A_TRANS_A : ZX_A_TRANS_B, 0) != 0;
    const naive_tensor in[3] = {c->in[0], c->in[1]};
    const zx_shape *s = &c->in[of].type.shape;
    naive_matmul(&(naive_call){.op = c->op, .attrs = c->attrs, .in = in, .out = c->out});
    for (int64_t i = 0; i < naive_count(&c->out[1]); i++) c->out[1].x[i] = 0;
    for (int64_t i = 0; i < naive_count(&c->in[of]); i++) {
        const int64_t row = i / s->dim[1], column = i % s->dim[1];
        c->out[1].x[turned == (of == 0) ? column : row] += c->in[of].x[i];
    }
}

// ---- windows
// ---------------------------------------------------------------------------------------

typedef void tap_fn(void *state, int64_t x, int64_t w, int64_t y);

// Calls `tap` with the flat elements of x, w and y of every product that a convolution sums.
static void convolve(const naive_call *c, const zx_shape *x, const zx_shape *w, const zx_shape *y,
                     tap_fn *tap, void *state)
{
    const int64_t *strides = zx_attr_ints(c->attrs, ZX_A_STRIDES, NULL);
    const int64_t *pads = zx_attr_ints(c->attrs, ZX_A_PADS, NULL);
    const int64_t *dilations = zx_attr_ints(c->attrs, ZX_A_DILATIONS, NULL);
    const int64_t groups = zx_attr_int(c->attrs, ZX_A_GROUP, 1);
    for (int64_t i = 0; i < zx_shape_count(y); i++) {
        int64_t at[ZX_MAX_RANK];
        naive_index(y, i, at);
        for (int64_t k = 0; k < zx_shape_span(w, 1, w->rank); k++) {
            int64_t of_w[ZX_MAX_RANK], of_x[ZX_MAX_RANK];
            naive_index(w, k, of_w); // of filter 0: [0, channel in the group, window]
            of_w[0] = at[1];
            of_x[0] = at[0];
            of_x[1] = at[1] / (w->dim[0] / groups) * w->dim[1] + of_w[1];
            bool inside = true;
            for (uint32_t d = 0; d + 2 < x->rank; d++) {
                of_x[d + 2] = at[d + 2] * strides[d] - pads[d] + of_w[d + 2] * dilations[d];
                inside = inside && of_x[d + 2] >= 0 && of_x[d + 2] < x->dim[d + 2];
            }
            if (inside) tap(state, naive_flat(x, of_x), naive_flat(w, of_w), i);
        }
    }
}

typedef struct taps {
    double *x, *w, *y;
} taps;
static void tap_y(void *state, int64_t x, int64_t w, int64_t y)
{
    taps *t = state;
    t->y[y] += t->x[x] * t->w[w];
}
static void tap_x(void *state, int64_t x, int64_t w, int64_t y)
{
    taps *t = state;
    t->x[x] += t->y[y] * t->w[w];
}
static void tap_w(void *state, int64_t x, int64_t w, int64_t y)
{
    taps *t = state;
    t->w[w] += t->y[y] * t->x[x];
}

static void zero(const naive_tensor *t)
{
    for (int64_t i = 0; i < naive_count(t); i++) t->x[i] = 0;
}

void naive_conv(const naive_call *c)
{
    const zx_shape *y = &c->out->type.shape;
    const int64_t plane = zx_shape_span(y, 2, y->rank);
    taps t = {c->in[0].x, c->in[1].x, c->out->x};
    for (int64_t i = 0; i < naive_count(c->out); i++)
        t.y[i] = c->in[2].x ? c->in[2].x[i / plane % y->dim[1]] : 0;
    convolve(c, &c->in[0].type.shape, &c->in[1].type.shape, y, tap_y, &t);
}

void naive_conv_grad_x(const naive_call *c)
{
    taps t = {c->out->x, c->in[1].x, c->in[0].x};
    zero(c->out);
    convolve(c, &c->out->type.shape, &c->in[1].type.shape, &c->in[0].type.shape, tap_x, &t);
}

void naive_conv_grad_w(const naive_call *c)
{
    taps t = {c->in[0].x, c->out->x, c->in[1].x};
    zero(c->out);
    convolve(c, &c->in[0].type.shape, &c->out->type.shape, &c->in[1].type.shape, tap_w, &t);
}

// Element k of the window of pooled element `at`; false outside x. *padded: inside x's padding or
// x.
static bool window_at(const naive_call *c, const int64_t *at, int64_t k, int64_t *flat,
                      bool *padded)
{
    uint32_t dims;
    const int64_t *kernel = zx_attr_ints(c->attrs, ZX_A_KERNEL_SHAPE, &dims);
    const int64_t *strides = zx_attr_ints(c->attrs, ZX_A_STRIDES, NULL);
    const int64_t *pads = zx_attr_ints(c->attrs, ZX_A_PADS, NULL);
    const int64_t *dilations = zx_attr_ints(c->attrs, ZX_A_DILATIONS, NULL);
    const zx_shape *x = &c->in->type.shape;
    int64_t index[ZX_MAX_RANK] = {at[0], at[1]};
    bool inside = true;
    *padded = true;
    for (uint32_t d = dims; d-- > 0; k /= kernel[d]) {
        const int64_t p = at[d + 2] * strides[d] - pads[d] + k % kernel[d] * dilations[d];
        inside = inside && p >= 0 && p < x->dim[d + 2];
        *padded = *padded && p >= -pads[d] && p < x->dim[d + 2] + pads[d + dims];
        index[d + 2] = p;
    }
    if (inside) *flat = naive_flat(x, index);
    return inside;
}

static int64_t window_size(const naive_call *c)
{
    uint32_t dims;
    const int64_t *kernel = zx_attr_ints(c->attrs, ZX_A_KERNEL_SHAPE, &dims);
    int64_t n = 1;
    for (uint32_t d = 0; d < dims; d++) n *= kernel[d];
    return n;
}

void naive_max_pool(const naive_call *c)
{
    const int64_t plane = zx_shape_span(&c->in->type.shape, 2, c->in->type.shape.rank);
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t at[ZX_MAX_RANK], flat = 0, best = -1;
        bool padded;
        naive_index(&c->out->type.shape, i, at);
        for (int64_t k = 0; k < window_size(c); k++) {
            if (!window_at(c, at, k, &flat, &padded)) continue;
            const double x = c->in->x[flat], most = best < 0 ? 0 : c->in->x[best];
            if (best < 0 || x > most || (isnan(x) && !isnan(most))) best = flat;
        }
        c->out[0].x[i] = c->in->x[best];
        c->out[1].x[i] = (double)(best % plane);
    }
}

void naive_avg_pool(const naive_call *c)
{
    const bool count_pads = zx_attr_int(c->attrs, ZX_A_COUNT_INCLUDE_PAD, 0) != 0;
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t at[ZX_MAX_RANK], flat = 0, n = 0;
        double sum = 0;
        naive_index(&c->out->type.shape, i, at);
        for (int64_t k = 0; k < window_size(c); k++) {
            bool padded;
            const bool inside = window_at(c, at, k, &flat, &padded);
            if (inside) sum += c->in->x[flat];
            n += inside || (count_pads && padded);
        }
        c->out->x[i] = sum / (double)n;
    }
}

// ---- resizing
// --------------------------------------------------------------------------------------

// Where output position o lies in an input dimension of n, by ONNX's
// coordinate_transformation_mode.
static double coordinate(int64_t mode, double o, double scale, double n, double n_out)
{
    switch (mode) {
    case 1:
        return n_out > 1 ? (o + 0.5) / scale - 0.5 : 0;
    case 2:
        return n_out > 1 ? o * (n - 1) / (n_out - 1) : 0;
    case 3:
        return o / scale;
    case 4: {
        const double adjustment = n_out / (scale * n);
        return n / 2 * (1 - adjustment) + (o + 0.5) / scale - 0.5;
    }
    default:
        return (o + 0.5) / scale - 0.5;
    }
}

static double nearest(int64_t mode, double x)
{
    switch (mode) {
    case 1:
        return floor(x + 0.5); // round_prefer_ceil
    case 2:
        return floor(x);
    case 3:
        return ceil(x);
    default:
        return ceil(x - 0.5); // round_prefer_floor
    }
}

static double cubic(double t, double a) // Keys' kernel
{
    t = fabs(t);
    if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    if (t < 2) return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
    return 0;
}

// The weight of input position `i` for output position `o` of one dimension.
static double share(const naive_call *c, uint32_t d, int64_t o, int64_t i)
{
    const double n = (double)c->in->type.shape.dim[d], n_out = (double)c->out->type.shape.dim[d];
    const double scale = zx_attr_find(c->attrs, ZX_A_SCALES)->f[d];
    const int64_t mode = zx_attr_int(c->attrs, ZX_A_MODE, 0);
    if (scale == 1 && n == n_out) return o == i;
    const double x = coordinate(zx_attr_int(c->attrs, ZX_A_COORD, 0), (double)o, scale, n, n_out);
    if (mode == 0) {
        const double at = nearest(zx_attr_int(c->attrs, ZX_A_NEAREST, 0), x);
        return (at < 0 ? 0 : at > n - 1 ? n - 1 : at) == (double)i;
    }
    double sum = 0;
    for (double k = floor(x) - 1; k <= floor(x) + 2; k++) { // neighbours past an edge are the edge
        if ((k < 0 ? 0 : k > n - 1 ? n - 1 : k) != (double)i) continue;
        sum += mode == 2 ? cubic(x - k, zx_attr_float(c->attrs, ZX_A_ALPHA, -0.75))
                         : fmax(0, 1 - fabs(x - k));
    }
    return sum;
}

void naive_resize(const naive_call *c)
{
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t to[ZX_MAX_RANK], from[ZX_MAX_RANK];
        double sum = 0;
        naive_index(&c->out->type.shape, i, to);
        for (int64_t k = 0; k < naive_count(c->in); k++) {
            double weight = 1;
            naive_index(&c->in->type.shape, k, from);
            for (uint32_t d = 0; weight != 0 && d < c->in->type.shape.rank; d++)
                weight *= share(c, d, to[d], from[d]);
            if (weight != 0) sum += weight * c->in->x[k];
        }
        c->out->x[i] = sum;
    }
}
