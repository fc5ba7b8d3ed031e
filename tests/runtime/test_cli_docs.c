// test_cli_docs.c - what the documentation shows runs: an example of every command, and of every
// key that is zerox's own.
// SPDX-License-Identifier: Apache-2.0
#include <jansson.h>

#include "runtime/config_row.h"
#include "runtime/options.h"
#include "tests/graph/onnx_text.h"
#include "tests/runtime/cli.h"

// ---- commands -----------------------------------------------------------------------------------

// As a user types it, in a shell that finds the program.
static void shell(const char *line, cli_result *r)
{
    char command[1200];
    const int dir = (int)(strrchr(ZX_PROGRAM, '/') - ZX_PROGRAM);
    snprintf(command, sizeof command, "PATH=%.*s:$PATH; (%s) >.out 2>.err", dir, ZX_PROGRAM, line);
    const int status = system(command);
    r->code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    cli_read(".out", r->out, sizeof r->out);
    cli_read(".err", r->err, sizeof r->err);
}

static void example_runs(void **state)
{
    const char *word = *state, *example = NULL;
    static cli_result r;
    char begin[40];
    for (unsigned c = 0; c < ZX_CMD_COUNT; c++)
        if (zx_command_word((zx_command)c) == word) example = zx_command_example((zx_command)c);
    assert_non_null(example);
    snprintf(begin, sizeof begin, "zerox %s ", word);
    assert_true(strncmp(example, begin, strlen(word) + 6) == 0);
    shell(example, &r);
    cli_expect(&r, strcmp(word, "diff") == 0 ? 1 : 0, NULL, NULL); // two plans that do differ
    assert_true(strlen(r.out) + strlen(r.err) > 0);
}

static void commands_are_documented(void **state)
{
    (void)state;
    static char doc[100000];
    zx_text all = {0};
    cli_read(ZX_SOURCE "/docs/COMMANDS.md", doc, sizeof doc);
    zx_options_document(&all);
    if (strstr(doc, all.at) == NULL) fail_msg("docs/COMMANDS.md isn't options.h any more");
    zx_text_free(&all);
}

// ---- keys ---------------------------------------------------------------------------------------

// Marks the rows that are in `j`, whose path is `prefix`.
static void mark(const json_t *j, const char *prefix, bool *shown)
{
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)j, key, member)
    {
        char path[200];
        snprintf(path, sizeof path, "%s%s", prefix, key);
        for (uint32_t i = 0; i < zx_config_n_rows; i++)
            shown[i] |= strcmp(zx_config_rows[i].path, path) == 0;
        strcat(path, ".");
        if (json_is_object(member)) mark(member, path, shown);
    }
}

// A loss is for a model that has none; the other one brings its own.
static void run_key(const char *line, bool *shown)
{
    static cli_result r;
    json_error_t e;
    json_t *j = json_loads(line, 0, &e);
    if (j == NULL) fail_msg("%s in: %s", e.text, line);
    const json_t *ours = json_object_get(j, "zerox");
    const bool loss = json_object_get(ours, "loss") != NULL;
    const char *const args[] = {"train",     loss ? "classifier/model.onnx" : "model.onnx",
                                "--config",  "own.json",
                                "--steps",   "1",
                                "--threads", "1",
                                "--no-save", NULL};
    cli_write("own.json", line);
    cli_run(args, &r);
    if (r.code != 0) fail_msg("%s says: %s", line, r.err);
    mark(j, "", shown);
    json_decref(j);
}

static void own_keys_have_an_example(void **state)
{
    (void)state;
    static char doc[100000];
    bool *shown = calloc(zx_config_n_rows, sizeof *shown);
    assert_non_null(shown);
    cli_read(ZX_SOURCE "/docs/CONFIG.md", doc, sizeof doc);
    const char *at = strstr(doc, "```json\n");
    assert_non_null(at);
    for (at += strlen("```json\n"); strncmp(at, "```", 3) != 0; at += strcspn(at, "\n") + 1) {
        char line[500];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        run_key(line, shown);
    }
    for (uint32_t i = 0; i < zx_config_n_rows; i++)
        if (strncmp(zx_config_rows[i].path, "zerox.", 6) == 0 && !shown[i] &&
            zx_config_rows[i].verdict == ZX_VERDICT_HONOUR)
            fail_msg("docs/CONFIG.md has no example of %s", zx_config_rows[i].path);
    free(shown);
}

// ---- tests/REPORTS.md ---------------------------------------------------------------------------

// Reads the source of the test `program`.
static void read_test(const char *program, char *text, size_t room)
{
    char path[300];
    const char *dot = strchr(program, '.');
    assert_non_null(dot);
    snprintf(path, sizeof path, "%s/tests/%.*s/test_%s.c", ZX_SOURCE, (int)(dot - program), program,
             dot + 1);
    cli_read(path, text, room);
}

// Programs are between backquotes; what is in quotes behind one is in its source.
static void reports_name_tests_that_there_are(void **state)
{
    (void)state;
    static char doc[30000], test[100000];
    uint32_t rows = 0;
    cli_read(ZX_SOURCE "/tests/REPORTS.md", doc, sizeof doc);
    for (const char *row = doc; (row = strstr(row, "\n| B")) != NULL; rows++) {
        const char *end = strchr(++row, '\n'), *at = row;
        uint32_t names = 0;
        test[0] = '\0';
        while ((at = strpbrk(at, "`\"")) != NULL && at < end) {
            char word[128];
            const char close[2] = {*at, '\0'};
            const size_t n = strcspn(at + 1, close);
            snprintf(word, sizeof word, "%.*s", (int)n, at + 1);
            if (*at == '`') {
                read_test(word, test, sizeof test);
            } else {
                if (strstr(test, word) == NULL) fail_msg("no '%s': %.*s", word, 80, row);
                names++;
            }
            at += n + 2;
        }
        if (names == 0) fail_msg("no test: %.*s", 80, row);
    }
    assert_true(rows > 30);
}

// ---- files --------------------------------------------------------------------------------------

// 8 samples of `each` numbers below `below`.
static void write_npy(const char *path, const char *descr, int each, int below)
{
    char head[129];
    char shape[40] = "8,";
    if (each > 1) snprintf(shape, sizeof shape, "8, %d", each);
    memset(head, ' ', sizeof head);
    const int n = snprintf(
        head + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape);
    head[10 + n] = ' ';
    head[127] = '\n';
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(head, 1, 128, f);
    for (int i = 0; i < 8 * each; i++) {
        const int64_t label = (i * 7) % below;
        const float x = (float)label;
        if (descr[1] == 'i')
            fwrite(&label, sizeof label, 1, f);
        else
            fwrite(&x, sizeof x, 1, f);
    }
    assert_int_equal(fclose(f), 0);
}

static void write_classifier(void)
{
    zx_arena mem = {0};
    size_t n;
    const uint8_t *bytes =
        ot_bytes(&mem,
                 "in x f32[batch,4];param head.weight f32[4,3] 0.5;param head.bias f32[3] 0;"
                 "y = MatMul(x, head.weight);logits = Add(y, head.bias);out logits f32[batch,3]",
                 NULL, 0, &n);
    FILE *f = fopen("classifier/model.onnx", "wb");
    assert_non_null(f);
    fwrite(bytes, 1, n, f);
    assert_int_equal(fclose(f), 0);
    zx_arena_free(&mem);
}

static int make_files(void **state)
{
    static cli_result r;
    if (cli_setup(state) != 0 || mkdir("classifier", 0777) != 0) return 1;
    shell(
        "zerox new gpt2 --set layers=1 --set width=8 --set heads=1 --set vocab=16 --set context=8 "
        "--set sequence=8 -o model.onnx",
        &r);
    if (r.code != 0) return 1;
    cli_write("zero3.json", "{\"zero_optimization\": {\"stage\": 3}}");
    write_npy("input_ids.npy", "<i8", 8, 16);
    write_npy("labels.npy", "<i8", 8, 16);
    write_npy("classifier/x.npy", "<f4", 4, 5);
    write_npy("classifier/labels.npy", "<i8", 1, 3);
    write_classifier();
    shell("zerox plan model.onnx --ranks 2 -o zerox.plan && "
          "zerox plan model.onnx --ranks 2 --policy hooks -o hooks.plan",
          &r);
    return r.code;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--commands") == 0) {
        zx_text all = {0};
        zx_options_document(&all);
        fputs(all.at, stdout);
        zx_text_free(&all);
        return 0;
    }
    struct CMUnitTest tests[ZX_CMD_COUNT + 3];
    size_t n = 0;
    for (unsigned c = 0; c < ZX_CMD_COUNT; c++) {
        const char *word = zx_command_word((zx_command)c);
        tests[n++] = zx_case(word, example_runs, word);
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(commands_are_documented);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(own_keys_have_an_example);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(reports_name_tests_that_there_are);
    return cmocka_run_group_tests(tests, make_files, cli_teardown);
}
