// cli.h - runs the program as a user does, in a folder of its own, and looks at what comes out.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_RUNTIME_CLI_H
#define ZX_TESTS_RUNTIME_CLI_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/wait.h"

#define CLI_ARGS 40

typedef struct cli_result {
    int code; // exit code; 1000 + n: killed by signal n
    char out[60000], err[60000];
} cli_result;

static char cli_folder[64];

static inline void cli_read(const char *path, char *to, size_t room)
{
    to[0] = '\0';
    FILE *f = fopen(path, "rb");
    if (f == NULL) return;
    to[fread(to, 1, room - 1, f)] = '\0';
    fclose(f);
}

// Starts `zerox ARGS` with stdout and stderr in files ".out" and ".err" of the folder at hand.
static inline pid_t cli_start(const char *const *args)
{
    const pid_t pid = wait_fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    char *argv[CLI_ARGS + 2] = {(char *)(uintptr_t)ZX_PROGRAM};
    for (size_t i = 0; i < CLI_ARGS && args[i] != NULL; i++)
        argv[i + 1] = (char *)(uintptr_t)args[i];
    const int out = open(".out", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int err = open(".err", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(out, 1);
    dup2(err, 2);
    execv(ZX_PROGRAM, argv);
    _exit(127);
}

static inline void cli_end(pid_t pid, cli_result *r)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    r->code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    cli_read(".out", r->out, sizeof r->out);
    cli_read(".err", r->err, sizeof r->err);
}

static inline void cli_run(const char *const *args, cli_result *r)
{
    cli_end(cli_start(args), r);
}

static inline void cli_expect(const cli_result *r, int code, const char *out, const char *err)
{
    if (r->code != code) fail_msg("exit code %d, not %d; said: %s", r->code, code, r->err);
    if (out != NULL && strstr(r->out, out) == NULL) fail_msg("no '%s' in: %s", out, r->out);
    if (err != NULL && strstr(r->err, err) == NULL) fail_msg("no '%s' in: %s", err, r->err);
}

// A command and what comes of it.
typedef struct cli_row {
    const char *name;
    const char *args[CLI_ARGS];
    int code;
    const char *out, *err; // parts of what is said; NULL: anything
} cli_row;

static inline bool cli_same_args(const char *const *a, const char *const *b)
{
    for (size_t i = 0; i < CLI_ARGS && (a[i] != NULL || b[i] != NULL); i++)
        if (a[i] == NULL || b[i] == NULL || strcmp(a[i], b[i]) != 0) return false;
    return true;
}

// Rows that look at what one command says share a run where they follow each other.
ZX_UNUSED static void cli_test_row(void **state)
{
    const cli_row *row = *state;
    static cli_result r;
    static const cli_row *before;
    if (before == NULL || !cli_same_args(before->args, row->args)) cli_run(row->args, &r);
    before = row;
    cli_expect(&r, row->code, row->out, row->err);
}

static inline void cli_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static inline bool cli_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

// Counts the lines of a file; -1: it isn't there.
static inline int cli_lines(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) return -1;
    int n = 0;
    for (int c; (c = fgetc(f)) != EOF;) n += c == '\n';
    fclose(f);
    return n;
}

static inline int cli_setup(void **state)
{
    (void)state;
    snprintf(cli_folder, sizeof cli_folder, "/tmp/zerox-cli-XXXXXX");
    if (mkdtemp(cli_folder) == NULL || chdir(cli_folder) != 0) return 1;
    unsetenv("RANK");
    unsetenv("OMP_NUM_THREADS");
    return 0;
}

static inline int cli_teardown(void **state)
{
    (void)state;
    char command[80];
    snprintf(command, sizeof command, "rm -rf %s", cli_folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : 1;
}

#endif
