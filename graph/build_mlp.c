// build_mlp.c - a classifier of fully connected layers with ReLU between them.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "graph/build_net.h"

void zx_new_mlp(zx_net *n, const zx_new_sizes *s)
{
    const int64_t batch = s->batch > 0 ? s->batch : -1, x_dims[] = {batch, s->inputs};
    const char *const symbols[] = {"batch", ""};
    const char *x = "x";
    int64_t in = s->inputs;
    zx_onnx_input(&n->out, "x", ZX_F32, 2, x_dims, symbols);
    zx_onnx_input(&n->out, "labels", ZX_I64, 1, &batch, symbols);
    for (int64_t i = 0; i <= s->layers; i++) { // `layers` hidden ones, then the classes
        const int64_t out = i < s->layers ? s->width : s->vocab;
        zx_net_enter(n, zx_arena_printf(n->mem, "layers.%d", (int)i));
        // He et al. 2015: keeps the size of activations through ReLU.
        const char *weight = zx_net_normal(n, "weight", 2, (const int64_t[]){out, in},
                                           sqrt((i < s->layers ? 2.0 : 1.0) / (double)in));
        x = zx_net_op(n, "Gemm", "gemm", x, weight, zx_net_filled(n, "bias", out, 0.0f));
        zx_onnx_node_int(&n->out, n->node, "transB", 1);
        if (i < s->layers) x = zx_net_op(n, "Relu", "relu", x, NULL, NULL);
        zx_net_leave(n);
        in = out;
    }
    zx_net_loss(n, x, s->vocab);
}
