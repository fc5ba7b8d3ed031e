// cmd_diff.c - zerox diff: two plan files side by side. Exit codes are diff's: 0 equal, 1
// different, 2 trouble.
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/cmd.h"
#include "runtime/planfile.h"
#include "sched/diff.h"

int zx_cmd_diff(const zx_options *o, zx_err *err)
{
    zx_arena mem = {0};
    zx_planfile a, b;
    zx_text out = {0};
    bool differ = false;
    zx_status st = zx_plan_load(o->operand, &mem, &a, err);
    if (st == ZX_OK) st = zx_plan_load(o->second, &mem, &b, err);
    if (st == ZX_OK) {
        const zx_diff_side left = {&a.plan, zx_text_safe(&mem, o->operand), a.units},
                           right = {&b.plan, zx_text_safe(&mem, o->second), b.units};
        differ = zx_plan_diff(&left, &right, &out);
        zx_cmd_put(&out);
        if (fflush(stdout) != 0 || ferror(stdout)) // code 1 would say that they differ
            st = ZX_FAIL(err, ZX_E_IO, "cannot write to standard output: %s", strerror(errno));
    }
    zx_text_free(&out);
    zx_arena_free(&mem);
    return st != ZX_OK ? 2 : differ ? 1 : 0;
}
