// optim.h - what an optimizer's step is given, on the CPU and on GPUs alike.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_OPTIM_H
#define ZX_KERNELS_OPTIM_H

#include "kernels/kernel.h"

ZX_BEGIN_C

typedef struct zx_adam_args {
    double beta1, beta2; // double: 1 - 0.999 is off by 5e-5 of itself once 0.999 is a float
    float lr, eps, weight_decay;
    float correction1, correction2; // 1 - beta^t, or 1 without bias correction
    bool decoupled;                 // AdamW; false: L2 added to the gradient
    float grad_scale;               // the clip factor: the gradient is read as g * grad_scale
} zx_adam_args;

// What is the same for all elements of an Adam step, divided once: m = b1 m + r1 d, v = b2 v + r2
// d^2, p -= rate m / (sqrt(part v) + eps) + decay p, with d = scale g + l2 p.
typedef struct zx_adam_numbers {
    float b1, b2, r1, r2, l2, eps, scale;
    float rate, part, decay; // lr/c1, 1/c2, lr wd
} zx_adam_numbers;
static inline zx_adam_numbers zx_adam_numbers_of(const zx_adam_args *a)
{
    zx_adam_numbers n;
    n.b1 = (float)a->beta1;
    n.b2 = (float)a->beta2;
    n.r1 = (float)(1 - a->beta1);
    n.r2 = (float)(1 - a->beta2);
    n.l2 = a->decoupled ? 0.0f : a->weight_decay;
    n.eps = a->eps;
    n.scale = a->grad_scale;
    n.rate = a->lr / a->correction1;
    n.part = 1.0f / a->correction2;
    n.decay = a->decoupled ? a->lr * a->weight_decay : 0.0f;
    return n;
}

typedef struct zx_sgd_args {
    float lr, momentum, dampening, weight_decay;
    bool nesterov, first; // first: the momentum buffer is set to g, not mixed
    float grad_scale;
} zx_sgd_args;

// c = b1 m + r1 d; p -= decay p + lr sign(c); m = b2 m + r2 d, with d = scale g. The sign of 0 is
// 0: what never gets a gradient stays where it is.
typedef struct zx_lion_args {
    double beta1, beta2;
    float lr, weight_decay, grad_scale;
} zx_lion_args;
typedef struct zx_lion_numbers {
    float b1, b2, r1, r2, lr, decay, scale;
} zx_lion_numbers;
static inline zx_lion_numbers zx_lion_numbers_of(const zx_lion_args *a)
{
    zx_lion_numbers n;
    n.b1 = (float)a->beta1;
    n.b2 = (float)a->beta2;
    n.r1 = (float)(1 - a->beta1);
    n.r2 = (float)(1 - a->beta2);
    n.lr = a->lr;
    n.decay = a->lr * a->weight_decay;
    n.scale = a->grad_scale;
    return n;
}

// A parameter of 16 bits: the optimizer changes its float32 copy, and `low` gets that, rounded,
// once it is made. The gradient is of its own type, f32 or the parameter's.
typedef struct zx_mixed {
    zx_dtype low_type, g_type;
    void *low;
    const void *g;
} zx_mixed;

ZX_END_C

#endif
