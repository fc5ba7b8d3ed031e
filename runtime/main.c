// main.c - the program: finds the command and prints what it failed at; the only place that exits.
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/cmd.h"
#include "runtime/version.h"

static int run(const zx_options *o, zx_err *err)
{
    static int (*const commands[ZX_CMD_COUNT])(const zx_options *, zx_err *) = {
        [ZX_CMD_TRAIN] = zx_cmd_train,       [ZX_CMD_PLAN] = zx_cmd_plan,
        [ZX_CMD_CHECK] = zx_cmd_check,       [ZX_CMD_COMPARE] = zx_cmd_compare,
        [ZX_CMD_SIMULATE] = zx_cmd_simulate, [ZX_CMD_OPS] = zx_cmd_ops,
        [ZX_CMD_NEW] = zx_cmd_new,           [ZX_CMD_MACHINE] = zx_cmd_machine,
        [ZX_CMD_DIFF] = zx_cmd_diff,         [ZX_CMD_CONFIG] = zx_cmd_config,
        [ZX_CMD_SHOW] = zx_cmd_show,         [ZX_CMD_CONVERT] = zx_cmd_convert,
        [ZX_CMD_REPORT] = zx_cmd_report,
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

// OpenMP's threads spin for milliseconds at every barrier unless told otherwise, and a spinning
// thread keeps the core that the thread it waits for needs: with other load on two cores a small
// model's step took 430 ms instead of 25. libgomp reads the setting before main begins and has no
// call for it, so the program starts itself again with it, once. What the user has set stays.
static void wait_asleep(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv("KMP_BLOCKTIME")) return;
    setenv("GOMP_SPINCOUNT", "2000", 1);
    setenv("KMP_BLOCKTIME", "0", 1);
    execv("/proc/self/exe", argv); // where that fails: as if nothing had been set
}

// A file that is opened where standard output or error is closed would get what is printed. Writing
// to a closed standard output stays an error, errors nobody wants to see aren't.
static void open_standard(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) < 0) return;
}

static int flush_output(zx_err *err)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    return zx_status_exit(
        ZX_FAIL(err, ZX_E_IO, "cannot write to standard output: %s", strerror(errno)));
}

int main(int argc, char **argv)
{
    zx_arena mem = {0};
    zx_options o;
    zx_err err = {0};
    open_standard();
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error with a sentence
    const zx_status st = zx_options_parse(argc, argv, &mem, &o, &err);
    const bool trains = o.command == ZX_CMD_TRAIN || zx_given(&o, ZX_OPT_EXECUTE);
    if (st == ZX_OK && trains && !o.help && !o.version) wait_asleep(argv);
    prctl(PR_SET_NAME, "zerox"); // not "exe", which it was started as
    int code = st == ZX_OK ? run(&o, &err) : zx_status_exit(st);
    if (code == 0) code = flush_output(&err);
    if (err.n_causes > 0) zx_cmd_fail(&err, o.command);
    zx_arena_free(&mem);
    return code;
}
