// cmd_ops.c - zerox ops: the ONNX operators that are imported.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/fuse.h"
#include "graph/onnx_ops.h"
#include "runtime/cmd.h"
#include "runtime/job_fuse.h"

static int by_domain_and_name(const void *a, const void *b)
{
    const zx_onnx_op *x = *(const zx_onnx_op *const *)a, *y = *(const zx_onnx_op *const *)b;
    const int d = strcmp(x->domain, y->domain);
    return d != 0 ? d : strcmp(x->name, y->name);
}

// "no" is what a training run can miss: float outputs that follow float inputs.
static const char *gradient(const zx_onnx_op *op)
{
    static const zx_op_id stops[] = {ZX_OP_MOD, ZX_OP_SIGN, ZX_OP_FLOOR, ZX_OP_CEIL, ZX_OP_ROUND};
    if (op->diff != 0) return "yes";
    for (size_t i = 0; i < ZX_COUNT(stops); i++)
        if (op->op == stops[i]) return "no";
    return "none needed";
}

int zx_cmd_ops(const zx_options *o, zx_err *err)
{
    zx_text out = {0};
    zx_arena mem = {0};
    const zx_onnx_op **ops = ZX_NEW(&mem, const zx_onnx_op *, zx_onnx_n_ops);
    int width = 0;
    (void)o;
    (void)err;
    for (uint32_t i = 0; i < zx_onnx_n_ops; i++) {
        const int n = (int)strlen(zx_onnx_ops[i].name);
        ops[i] = &zx_onnx_ops[i];
        if (n > width) width = n;
    }
    qsort(ops, zx_onnx_n_ops, sizeof *ops, by_domain_and_name);
    for (uint32_t i = 0; i < zx_onnx_n_ops; i++) {
        const zx_onnx_op *op = ops[i];
        char opsets[32];
        if (i == 0 || strcmp(op->domain, ops[i - 1]->domain) != 0)
            zx_text_put(&out, "%s%-*s  %-7s  gradient\n", i > 0 ? "\n" : "", width + 2,
                        op->domain[0] != '\0' ? op->domain : "ai.onnx", "opsets");
        snprintf(opsets, sizeof opsets, "%d-%d", op->first, op->last);
        zx_text_put(&out, "  %-*s  %-7s  %s\n", width, op->name, opsets, gradient(op));
    }
    zx_text_put(&out, "\ngradient: yes; none needed: of integers, booleans, shapes, constants; no: "
                      "what it depends on isn't trained through it\n");
    zx_text_put(&out, "\nfusions (--no-fuse leaves them out):\n");
    for (uint32_t i = 0; i < ZX_FUSE_COUNT; i++)
        zx_text_put(&out, "  %-*s  %s\n", width, zx_fuses[i].word, zx_fuses[i].help);
    zx_text_put(&out,
                "  %-*s  on GPUs: a product with GELU by tanh, its gradient, a bias' gradient\n",
                width, ZX_EPILOGUES_WORD);
    zx_cmd_put(&out);
    zx_text_free(&out);
    zx_arena_free(&mem);
    return 0;
}
