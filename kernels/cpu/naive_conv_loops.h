// naive_conv_loops.h - the three sums of a convolution for one element type T; included by
// naive_conv.c once a type, nowhere else. Sums are kept in double.
// SPDX-License-Identifier: Apache-2.0

// Planes [from, to) of y: an image's output channel each.
static void FOR_T(forward)(void *ctx, int64_t from, int64_t to)
{
    const job *j = ctx;
    const zx_conv *g = j->g;
    const int64_t filters = g->groups * g->m, in = volume(g->x), window = volume(g->k);
    for (int64_t p = from; p < to; p++) {
        const int64_t n = p / filters, f = p % filters;
        const T *x = (const T *)j->in0 + (n * g->groups + f / g->m) * g->c * in;
        const T *w = (const T *)j->in1 + f * g->c * window;
        T *y = (T *)j->out + p * volume(g->y);
        EACH(o, at_y, g->y)
        {
            double sum = j->in2 ? (double)((const T *)j->in2)[f] : 0.0;
            EACH(k, at_w, g->k)
            {
                const int64_t at = input_of(g, o, k);
                if (at < 0) continue;
                for (int64_t c = 0; c < g->c; c++)
                    sum += (double)x[c * in + at] * (double)w[c * window + at_w];
            }
            y[at_y] = (T)sum;
        }
    }
}

// Planes [from, to) of dx: an image's input channel each.
static void FOR_T(backward_x)(void *ctx, int64_t from, int64_t to)
{
    const job *j = ctx;
    const zx_conv *g = j->g;
    const int64_t channels = g->groups * g->c, out = volume(g->y), window = volume(g->k);
    for (int64_t p = from; p < to; p++) {
        const int64_t n = p / channels, group = p % channels / g->c, c = p % g->c;
        const T *dy = (const T *)j->in0 + (n * g->groups + group) * g->m * out;
        const T *w = (const T *)j->in1 + (group * g->m * g->c + c) * window;
        T *dx = (T *)j->out + p * volume(g->x);
        EACH(i, at_x, g->x)
        {
            double sum = 0;
            EACH(k, at_w, g->k)
            {
                const int64_t at = output_of(g, i, k);
                if (at < 0) continue;
                for (int64_t m = 0; m < g->m; m++)
                    sum += (double)dy[m * out + at] * (double)w[m * g->c * window + at_w];
            }
            dx[at_x] = (T)sum;
        }
    }
}

// Windows [from, to) of dw: a filter's input channel each.
static void FOR_T(backward_w)(void *ctx, int64_t from, int64_t to)
{
    const job *j = ctx;
    const zx_conv *g = j->g;
    const int64_t in = volume(g->x), out = volume(g->y);
    for (int64_t p = from; p < to; p++) {
        const int64_t f = p / g->c, c = f / g->m * g->c + p % g->c;
        T *dw = (T *)j->out + p * volume(g->k);
        EACH(k, at_w, g->k)
        {
            double sum = 0;
            for (int64_t n = 0; n < g->n; n++) {
                const T *x = (const T *)j->in0 + (n * g->groups * g->c + c) * in;
                const T *dy = (const T *)j->in1 + (n * g->groups * g->m + f) * out;
                EACH(o, at_y, g->y)
                {
                    const int64_t at = input_of(g, o, k);
                    if (at >= 0) sum += (double)x[at] * (double)dy[at_y];
                }
            }
            dw[at_w] = (T)sum;
        }
    }
}
