// bad.c - see bad.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bad/bad.h"
#include "tests/left.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[64], run_folder[64], out_path[64], err_path[64];
static pid_t last;    // process that was started
static uint32_t n_in; // names in bad_in when the group began
char bad_in[64];

// ---- folders ------------------------------------------------------------------------------------

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info;
    (void)type;
    return at->level == 0 ? 0 : remove(path);
}

void bad_clear(void)
{
    left_end();
    nftw(run_folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

// Names in a folder; the first is written to `first`.
static uint32_t count_names(const char *folder, char first[256])
{
    DIR *d = opendir(folder);
    if (d == NULL) return 0;
    uint32_t n = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (n++ == 0) snprintf(first, 256, "%s", e->d_name);
    }
    closedir(d);
    return n;
}

int bad_setup(void **state)
{
    static const char *const unset[] = {"RANK",        "WORLD_SIZE",     "LOCAL_RANK",
                                        "MASTER_ADDR", "MASTER_PORT",    "LOCAL_WORLD_SIZE",
                                        "NO_COLOR",    "OMP_NUM_THREADS"};
    (void)state;
    for (size_t i = 0; i < ZX_COUNT(unset); i++) unsetenv(unset[i]);
    // A sanitizer leaves the signal of cut-off files to the program.
    char options[512];
    const char *given = getenv("ASAN_OPTIONS");
    snprintf(options, sizeof options, "%s:handle_sigbus=0", given != NULL ? given : "");
    setenv("ASAN_OPTIONS", options, 1);
    snprintf(root, sizeof root, "/tmp/zerox-bad-XXXXXX");
    if (mkdtemp(root) == NULL) return 1;
    snprintf(run_folder, sizeof run_folder, "%s/run", root);
    snprintf(bad_in, sizeof bad_in, "%s/in", root);
    snprintf(out_path, sizeof out_path, "%s/out", root);
    snprintf(err_path, sizeof err_path, "%s/err", root);
    left_begin(); // a rank whose launcher has gone becomes our child
    return mkdir(run_folder, 0777) != 0 || mkdir(bad_in, 0777) != 0 || chdir(run_folder) != 0;
}

int bad_teardown(void **state)
{
    (void)state;
    left_end();
    if (chdir("/") != 0) return 1;
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return rmdir(root);
}

// ---- files --------------------------------------------------------------------------------------

const char *bad_path(const char *name)
{
    static char paths[8][256];
    static uint32_t n;
    char *path = paths[n++ % 8];
    snprintf(path, 256, "%s/%s", bad_in, name);
    return path;
}

void bad_write(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(bad_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void bad_text(const char *name, const char *text)
{
    bad_write(name, text, strlen(text));
}

void bad_npy(const char *name, const char *descr, const char *dims, const void *bytes, size_t n)
{
    char head[512];
    memset(head, ' ', sizeof head);
    const int k = snprintf(head + 10, sizeof head - 10,
                           "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, dims);
    assert_true(k > 0 && k < 400);
    const size_t all = (10 + (size_t)k + 1 + 63) / 64 * 64;
    head[10 + k] = ' ';
    head[all - 1] = '\n';
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = (char)((all - 10) & 255);
    head[9] = (char)((all - 10) >> 8);
    FILE *f = fopen(bad_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(head, 1, all, f), all);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

char *bad_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) return NULL;
    size_t cap = 1 << 16, at = 0;
    char *bytes = malloc(cap + 1);
    assert_non_null(bytes);
    for (size_t k; (k = fread(bytes + at, 1, cap - at, f)) > 0;) {
        at += k;
        if (at < cap) continue;
        bytes = realloc(bytes, 2 * cap + 1);
        assert_non_null(bytes);
        cap *= 2;
    }
    fclose(f);
    bytes[at] = '\0';
    if (n != NULL) *n = at;
    return bytes;
}

void bad_wait_lines(const char *path, int lines)
{
    int n = 0;
    for (wait_limit w = {0}; n < lines; wait_more(&w, path)) {
        char *text = bad_read(path, NULL);
        n = 0;
        for (const char *at = text; at != NULL && (at = strchr(at, '\n')) != NULL; at++) n++;
        free(text);
    }
}

// ---- one run ------------------------------------------------------------------------------------

// The words of `args`, "$IN" replaced; kept until the next call.
static char **words_of(const char *args)
{
    static char text[16384];
    static char *word[BAD_ARGS + 2];
    size_t n = 1, at = 0;
    word[0] = (char *)(uintptr_t)ZX_PROGRAM;
    while (*args != '\0') {
        args += strspn(args, " ");
        if (*args == '\0') break;
        assert_true(n <= BAD_ARGS);
        word[n++] = text + at;
        while (*args != '\0' && *args != ' ') {
            if (strncmp(args, "$IN", 3) == 0) {
                at += (size_t)snprintf(text + at, sizeof text - at, "%s", bad_in);
                args += 3;
            } else {
                text[at++] = *args++;
            }
            assert_true(at + 2 < sizeof text);
        }
        text[at++] = '\0';
    }
    word[n] = NULL;
    return word;
}

pid_t bad_start(const char *args)
{
    char **words = words_of(args);
    n_in = count_names(bad_in, (char[256]){""});
    const pid_t pid = wait_fork();
    assert_true(pid >= 0);
    if (pid > 0) return last = pid;
    const int in = open("/dev/null", O_RDONLY);
    const int out = open(out_path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int err = open(err_path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    execv(ZX_PROGRAM, words);
    _exit(127);
}

void bad_end(pid_t pid, bad_result *r)
{
    static char *out, *err;
    const int code = wait_end(pid);
    free(out);
    free(err);
    out = bad_read(out_path, NULL);
    err = bad_read(err_path, NULL);
    *r = (bad_result){.code = code, .out = out, .err = err};
}

void bad_run(const char *args, bad_result *r)
{
    bad_end(bad_start(args), r);
}

// ---- what must hold -----------------------------------------------------------------------------

void bad_expect(const bad_result *r, int code, const char *said)
{
    if (r->code == -1) fail_msg("it hung; so far it said: %s", r->err);
    if (r->code != code) fail_msg("exit code %d, not %d; it said: %s", r->code, code, r->err);
    if (said != NULL && strstr(r->err, said) == NULL) fail_msg("no '%s' in: %s", said, r->err);
}

static bool begins(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

uint32_t bad_causes(const bad_result *r)
{
    uint32_t n = 0;
    for (const char *line = r->err; *line != '\0'; line += strcspn(line, "\n") + 1) {
        n += begins(line, "zerox: ");
        if (line[strcspn(line, "\n")] == '\0') break;
    }
    return n;
}

// What may stand before the causes is said while all is well. Then: 1 to 20 causes, perhaps a
// count, one line to try, and the end.
void bad_format(const bad_result *r)
{
    uint32_t causes = 0, hints = 0;
    for (const unsigned char *c = (const unsigned char *)r->err; *c != '\0'; c++)
        if ((*c < 32 && *c != '\n') || *c == 127) fail_msg("byte %d in: %s", *c, r->err);
    for (const char *line = r->err; *line != '\0'; line += strcspn(line, "\n") + 1) {
        if (line[strcspn(line, "\n")] == '\0') fail_msg("no end of line in: %s", r->err);
        if (begins(line, "zerox: ")) {
            if (hints > 0) fail_msg("a cause after the hint: %s", r->err);
            if (causes == 20 && !begins(line, "zerox: and ")) fail_msg("too long: %s", r->err);
            causes++;
        } else if (begins(line, "try: ") || begins(line, "Try '")) {
            hints++;
        } else if (causes > 0) {
            fail_msg("a line that is neither cause nor hint: %s", r->err);
        }
    }
    if (causes == 0) fail_msg("no cause in: %s", r->err);
    if (hints != 1) fail_msg("%u lines say what to try: %s", hints, r->err);
}

void bad_nothing_left(bool files_too)
{
    char name[256] = "";
    // Ranks end with their launcher: what runs long after it doesn't.
    left_no_process(HANG_SECONDS);
    left_no_shm(last, NULL);
    if (count_names(bad_in, name) != n_in) fail_msg("something was written beside the model");
    if (files_too && count_names(run_folder, name) > 0) fail_msg("%s is left", name);
}

static void check_row(const bad_row *row, const char *args, bool full)
{
    bad_result r;
    bad_run(args, &r);
    if (!full) { // plan and check needn't see what is wrong
        if (r.code == -1 || r.code > 6) fail_msg("%s: exit code %d: %s", args, r.code, r.err);
        if (r.code != 0) bad_format(&r);
        bad_nothing_left(true);
        return;
    }
    bad_expect(&r, row->code, NULL);
    for (size_t i = 0; i < ZX_COUNT(row->says) && row->says[i] != NULL; i++)
        bad_expect(&r, row->code, row->says[i]);
    if (row->code != 0) bad_format(&r);
    bad_nothing_left(!(row->flags & BAD_LEAVES));
    bad_clear();
}

void bad_row_test(void **state)
{
    const bad_row *row = *state;
    static uint32_t n_alone; // few: a third of the rows also on several ranks
    char args[4096];
    bad_clear();
    if (row->config != NULL) bad_text("config.json", row->config);
    snprintf(args, sizeof args, "%s%s", row->args,
             row->config != NULL ? " --config $IN/config.json" : "");
    check_row(row, args, true);
    char more[4200];
    if (begins(args, "train ") && !(row->flags & BAD_ONCE) && strstr(args, "--ranks") == NULL &&
        (!test_few() || n_alone++ % 3 == 0)) {
        snprintf(more, sizeof more, "%s --ranks 3", args);
        check_row(row, more, true);
    }
    if (row->flags & BAD_MODEL) {
        char *rest = args + strlen("train ");
        rest[strcspn(rest, " ")] = '\0'; // the model alone
        snprintf(more, sizeof more, "plan %s", rest);
        check_row(row, more, false);
        snprintf(more, sizeof more, "check %s", rest);
        check_row(row, more, false);
    }
}
