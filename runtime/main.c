// main.c - the program: finds the command and prints what it failed at; the only place that exits.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "runtime/cmd.h"
#include "runtime/version.h"

static int run(const zx_options *o, zx_err *err)
{
    static int (*const commands[ZX_CMD_COUNT])(const zx_options *, zx_err *) = {
        [ZX_CMD_TRAIN] = zx_cmd_train, [ZX_CMD_PLAN] = zx_cmd_plan, [ZX_CMD_CHECK] = zx_cmd_check,
        [ZX_CMD_OPS] = zx_cmd_ops,     [ZX_CMD_NEW] = zx_cmd_new,
    };
    zx_text out = {0};
    if (o->version)
        zx_version_put(&out);
    else if (o->help)
        zx_options_help(o->command, &out);
    else
        return commands[o->command](o, err);
    zx_cmd_put(&out);
    zx_text_free(&out);
    return 0;
}

int main(int argc, char **argv)
{
    zx_arena mem = {0};
    zx_options o;
    zx_err err = {0};
    const zx_status st = zx_options_parse(argc, argv, &mem, &o, &err);
    int code = st == ZX_OK ? run(&o, &err) : zx_status_exit(st);
    if (err.n_causes > 0) zx_cmd_fail(&err);
    if (fflush(stdout) != 0 && code == 0) {
        perror("zerox: cannot write to standard output");
        code = 1;
    }
    zx_arena_free(&mem);
    return code;
}
