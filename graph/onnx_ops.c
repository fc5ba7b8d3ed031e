// onnx_ops.c - onnx_ops.def turned into a table.
// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx_ops.h"

#include <string.h>

#include "graph/base/text.h"

#define LAST ZX_ONNX_OPSET_LAST
#define ALL UINT32_MAX

const zx_onnx_op zx_onnx_ops[] = {
#define ZX_ONNX(domain, name, first, last, lo, hi, outs, diff, lower, op)                          \
    {domain, name, first, last, lo, hi, outs, diff, zx_lower_##lower, ZX_OP_##op},
#include "graph/onnx_ops.def"
#undef ZX_ONNX
};
const uint32_t zx_onnx_n_ops = ZX_COUNT(zx_onnx_ops);

const zx_onnx_op *zx_onnx_op_find(const char *domain, const char *name)
{
    if (strcmp(domain, "ai.onnx") == 0) domain = "";
    for (uint32_t i = 0; i < zx_onnx_n_ops; i++)
        if (strcmp(zx_onnx_ops[i].name, name) == 0 && strcmp(zx_onnx_ops[i].domain, domain) == 0)
            return &zx_onnx_ops[i];
    return NULL;
}

const char *zx_onnx_op_nearest(const char *name)
{
    const char *names[ZX_COUNT(zx_onnx_ops)];
    for (uint32_t i = 0; i < zx_onnx_n_ops; i++) names[i] = zx_onnx_ops[i].name;
    return zx_text_nearest(name, names, zx_onnx_n_ops);
}
