// cmd_ops.c - zerox ops: the ONNX operators that are imported.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "graph/onnx_ops.h"
#include "runtime/cmd.h"

int zx_cmd_ops(const zx_options *o, zx_err *err)
{
    zx_text out = {0};
    (void)o;
    (void)err;
    zx_text_put(&out, "%-34s %-8s gradient\n", "operator", "opsets");
    for (uint32_t i = 0; i < zx_onnx_n_ops; i++) {
        const zx_onnx_op *op = &zx_onnx_ops[i];
        const bool plain = op->domain[0] == '\0';
        char name[96], opsets[32];
        snprintf(name, sizeof name, "%s%s%s", plain ? "" : op->domain, plain ? "" : ".", op->name);
        snprintf(opsets, sizeof opsets, "%d-%d", op->first, op->last);
        zx_text_put(&out, "%-34s %-8s %s\n", name, opsets, op->diff != 0 ? "yes" : "no");
    }
    zx_cmd_put(&out);
    zx_text_free(&out);
    return 0;
}
