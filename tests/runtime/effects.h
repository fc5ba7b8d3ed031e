// effects.h - that something makes a difference: two commands that differ in it alone are run, and
// what they say, write and compute is compared in the one place where it has to be another.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_RUNTIME_EFFECTS_H
#define ZX_TESTS_RUNTIME_EFFECTS_H

#include <math.h>

#include "tests/graph/onnx_text.h"
#include "tests/runtime/cli.h"

typedef enum effect_look {
    FIGURE, // of log.jsonl: what the steps have under this name
    SHOWN,  // standard output
    SAYS,   // these words, with the second alone
    FILES,  // this file, with the second alone
    TEXT,   // what this file of the run's folder has
    SIZE,   // the size of model.safetensors
    ENDS,   // the second: with an exit code that isn't 0, and these words
} effect_look;

// ---- runs ---------------------------------------------------------------------------------------

// What came of a command; who needs the same one shares it.
typedef struct effect_outcome {
    char *command, *config; // config: "" where there is none
    int code;
    char *out, *err;
    char folder[16]; // of a run that names none
} effect_outcome;
static effect_outcome effect_outcomes[400];
static uint32_t effect_n;

static inline char *effect_slurp(const char *path)
{
    static char text[200000];
    cli_read(path, text, sizeof text);
    return strdup(text);
}

// `zerox COMMAND`, words between blanks, with `config` (NULL: none) in a file; a run gets a folder.
static inline const effect_outcome *effect_run(const char *command, const char *config)
{
    static cli_result r;
    static char words[1000];
    const char *args[CLI_ARGS + 1] = {0}, *text = config != NULL ? config : "";
    uint32_t n = 0;
    for (uint32_t i = 0; i < effect_n; i++)
        if (strcmp(effect_outcomes[i].command, command) == 0 &&
            strcmp(effect_outcomes[i].config, text) == 0)
            return &effect_outcomes[i];
    assert_true(effect_n < sizeof effect_outcomes / sizeof *effect_outcomes);
    effect_outcome *o = &effect_outcomes[effect_n];
    *o = (effect_outcome){.command = strdup(command), .config = strdup(text)};
    snprintf(o->folder, sizeof o->folder, "run%u", effect_n++);
    snprintf(words, sizeof words, "%s", command);
    for (char *at = strtok(words, " "); at != NULL && n + 6 < CLI_ARGS; at = strtok(NULL, " "))
        args[n++] = at;
    const bool placed = strstr(command, " --out ") != NULL || strstr(command, " --resume ") != NULL;
    if (strncmp(command, "train ", 6) == 0 && !placed) {
        args[n++] = "--out";
        args[n++] = o->folder;
    }
    if (config != NULL) {
        cli_write("c.json", config);
        args[n++] = "--config";
        args[n++] = "c.json";
    }
    cli_run(args, &r);
    o->code = r.code;
    o->out = strdup(r.out);
    o->err = strdup(r.err);
    return o;
}

static inline char *effect_file(const effect_outcome *o, const char *name)
{
    char path[100];
    snprintf(path, sizeof path, "%s/%s", o->folder, name);
    return effect_slurp(path);
}

static inline long effect_size(const effect_outcome *o)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "%s/model.safetensors", o->folder);
    return stat(path, &info) == 0 ? (long)info.st_size : -1;
}

// ---- compared -----------------------------------------------------------------------------------

// Values of the steps, a line each; "-" where a step has none. The caller's to free.
static inline char *effect_figures(const effect_outcome *o, const char *name)
{
    static char to[8192];
    char field[64], *log = effect_file(o, "log.jsonl");
    size_t n = 0;
    to[0] = '\0';
    snprintf(field, sizeof field, "\"%s\": ", name);
    for (const char *line = log; *line != '\0'; line += strcspn(line, "\n") + 1) {
        const char *at = strstr(line, field), *end = line + strcspn(line, "\n");
        const bool has = at != NULL && at < end;
        if (has) at += strlen(field);
        n += (size_t)snprintf(to + n, sizeof to - n, "%.*s\n", has ? (int)strcspn(at, ",}") : 1,
                              has ? at : "-");
    }
    free(log);
    return strdup(to);
}

static inline bool effect_says(const effect_outcome *o, const char *words)
{
    return strstr(o->out, words) != NULL || strstr(o->err, words) != NULL;
}

static inline bool effect_same(char *a, char *b)
{
    const bool same = strcmp(a, b) == 0;
    free(a);
    free(b);
    return same;
}

static inline void effect_expect_ok(const effect_outcome *o)
{
    if (o->code != 0) fail_msg("%s %s ends with %d: %s", o->command, o->config, o->code, o->err);
}

// `what`: the name, the words or the file to look at. `who` is what makes the difference.
static inline void effect_expect(const char *who, const effect_outcome *(*first)(const void *row),
                                 const effect_outcome *(*second)(const void *row), const void *row,
                                 effect_look look, const char *what)
{
    const effect_outcome *x = first(row);
    const bool before = look == FILES && cli_exists(what);
    const effect_outcome *y = second(row);
    bool same = false;
    effect_expect_ok(x);
    if (look != ENDS) effect_expect_ok(y);
    switch (look) {
    case FIGURE:
        same = effect_same(effect_figures(x, what), effect_figures(y, what));
        break;
    case SHOWN:
        same = strcmp(x->out, y->out) == 0;
        break;
    case SAYS:
        if (effect_says(x, what)) fail_msg("%s: %s %s says it too", who, x->command, x->config);
        same = !effect_says(y, what);
        break;
    case FILES:
        if (before) fail_msg("%s is there without %s", what, who);
        same = !cli_exists(what);
        break;
    case TEXT:
        same = effect_same(effect_file(x, what), effect_file(y, what));
        break;
    case SIZE:
        same = effect_size(x) == effect_size(y);
        break;
    case ENDS:
        same = y->code == 0 || !effect_says(y, what);
        break;
    }
    if (same)
        fail_msg("%s has no effect: %s %s and %s %s are the same in %s\nout: %s\nerr: %s", who,
                 x->command, x->config, y->command, y->config,
                 what != NULL ? what : "what is shown", y->out, y->err);
}

// ---- files --------------------------------------------------------------------------------------

static inline void effect_model(const char *path, const char *text)
{
    zx_arena mem = {0};
    size_t n;
    const uint8_t *bytes = ot_bytes(&mem, text, NULL, 0, &n);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(bytes, 1, n, f);
    assert_int_equal(fclose(f), 0);
    zx_arena_free(&mem);
}

// `n` samples of `each` numbers: int64_t where descr says "<i8", else float.
static inline void effect_npy(const char *path, const char *descr, int n, int each,
                              const void *bytes)
{
    char head[129];
    memset(head, ' ', sizeof head);
    const int k =
        snprintf(head + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }",
                 descr, n, each);
    head[10 + k] = ' ';
    head[127] = '\n';
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(head, 1, 128, f);
    fwrite(bytes, descr[1] == 'i' ? 8 : 4, (size_t)(n * each), f);
    assert_int_equal(fclose(f), 0);
}

enum { EFFECT_SAMPLES = 16, EFFECT_WORDS = 8 };

// A folder with lm/model.onnx, a GPT-2 of 2 layers, and data beside it; the labels of some samples
// don't count.
static inline int effect_setup(void **state)
{
    static cli_result r;
    static const char *const args[] = {
        "new",   "gpt2",      "-o",    "lm/model.onnx", "--set", "layers=2",
        "--set", "width=8",   "--set", "heads=1",       "--set", "vocab=16",
        "--set", "context=8", "--set", "sequence=8",    NULL};
    int64_t ids[EFFECT_SAMPLES * EFFECT_WORDS], labels[EFFECT_SAMPLES * EFFECT_WORDS];
    if (cli_setup(state) != 0 || mkdir("lm", 0777) != 0) return 1;
    cli_run(args, &r);
    if (r.code != 0) return 1;
    for (int i = 0; i < EFFECT_SAMPLES * EFFECT_WORDS; i++) {
        const int sample = i / EFFECT_WORDS, word = i % EFFECT_WORDS;
        ids[i] = i * 7 % 16;
        labels[i] = word < sample % 4 ? -100 : (i * 7 + 7) % 16; // 0 to 3 don't count
    }
    effect_npy("lm/input_ids.npy", "<i8", EFFECT_SAMPLES, EFFECT_WORDS, ids);
    effect_npy("lm/labels.npy", "<i8", EFFECT_SAMPLES, EFFECT_WORDS, labels);
    return 0;
}

#endif
