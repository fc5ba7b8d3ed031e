// test_hooks_logs.c - the hook-driven baseline against the real library: logs of DeepSpeed 0.19.6
// (two ranks, bf16) reproduced line for line, and which modules it takes for leaves.
// SPDX-License-Identifier: Apache-2.0
#include "tests/sched/hooks_model.h"

// ---- the logs -----------------------------------------------------------------------------------

// Leaves: leaf_module.names.
#define LEAVES(list)                                                                               \
    {                                                                                              \
        .n_names = ZX_COUNT(list), .names = list                                                   \
    }
// Checkpointed.
#define AGAIN(list)                                                                                \
    {                                                                                              \
        .n_again = ZX_COUNT(list), .again = list                                                   \
    }
static const char *const blocks[] = {"blocks.0", "blocks.1", "blocks.2"},
                         *const first[] = {"blocks.0"}, *const moe[] = {"Moe"},
                         *const one[] = {"blocks.1"}, *const ends[] = {"head", "emb"},
                         *const experts[] = {"layers.0.mlp", "layers.1.mlp"};

static const struct log_row {
    const char *name, *model;
    const char *said, *here; // a parameter's name in the log, and in the file
    zx_hook_limits l;
    zx_hooks_options o;
} logs[] = {
    {"A.p600_r0", "plain", "", "", {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false}, {0}},
    {"B.p600_r1200_persist32_gas2",
     "plain",
     "",
     "",
     {600, LOTS, 1200, 32, INT64_MAX, 5000, 2, false},
     {0}},
    {"C.tied",
     "tied",
     "emb.weight",
     "head.weight",
     {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false},
     {0}},
    {"H.live1500", "plain", "", "", {600, 1500, 0, 0, INT64_MAX, 600, 1, false}, {0}},
    {"D.tuple", "tuple", "", "", {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false}, {0}},
    {"D.tuple_leaves",
     "tuple",
     "",
     "",
     {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false},
     LEAVES(blocks)},
    {"D.three", "three", "", "", {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false}, {0}},
    {"D.handed_on", "chain", "", "", {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false}, {0}},
    {"I.p0_r1200", "plain", "", "", {0, LOTS, 1200, 0, INT64_MAX, 5000, 1, false}, {0}},
    {"J.p0_r0", "plain", "", "", {0, LOTS, 0, 0, INT64_MAX, 5000, 1, false}, {0}},
    {"L.leaves_live1500",
     "plain",
     "",
     "",
     {600, 1500, 0, 0, INT64_MAX, 5000, 1, false},
     LEAVES(blocks)},
    {"L.one_leaf_r1200",
     "plain",
     "",
     "",
     {600, LOTS, 1200, 0, INT64_MAX, 5000, 1, false},
     LEAVES(one)},
    {"L.leaves_persist32_gas2",
     "plain",
     "",
     "",
     {600, LOTS, 0, 32, INT64_MAX, 5000, 2, false},
     LEAVES(blocks)},
    {"L.tied_leaves",
     "tied",
     "emb.weight",
     "head.weight",
     {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false},
     LEAVES(ends)},
    {"E.again_p0", "plain", "", "", {0, LOTS, 0, 0, INT64_MAX, 5000, 1, false}, AGAIN(blocks)},
    {"E.again_live1500_persist32_gas2",
     "plain",
     "",
     "",
     {300, 1500, 300, 32, INT64_MAX, 600, 2, false},
     AGAIN(blocks)},
    {"K.model_persistence_gas2", "plain", "", "", {600, LOTS, 0, 600, 1200, 5000, 2, false}, {0}},
    {"K.live1000_gas2", "plain", "", "", {600, 1000, 0, 0, INT64_MAX, 600, 2, false}, {0}},
    {"K.bucket100", "plain", "", "", {600, LOTS, 0, 0, INT64_MAX, 100, 1, false}, {0}},
    {"K.tied_persists_gas2",
     "tied",
     "emb.weight",
     "head.weight",
     {600, LOTS, 0, 640, INT64_MAX, 5000, 2, false},
     {0}},
    {"K.called_twice", "twice", "", "", {0, LOTS, 1200, 0, INT64_MAX, 5000, 1, false}, {0}},
    {"L.experts",
     "experts",
     "",
     "",
     {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false},
     {.n_classes = 1, .classes = moe}},
    {"L.granularity280",
     "gpt",
     "wte.weight",
     "lm_head.weight",
     {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false},
     {.granularity = 280}},
    {"L.called_twice_bucket600",
     "twice",
     "",
     "",
     {600, LOTS, 0, 0, INT64_MAX, 600, 1, false},
     LEAVES(first)},
    {"K.addmm",
     "gpt",
     "wte.weight",
     "lm_head.weight",
     {300, 900, 300, 0, INT64_MAX, 600, 1, false},
     {0}},
    {"K.read_elsewhere", "elsewhere", "", "", {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false}, {0}},
    {"K.attention_gas2", "attention", "", "", {0, LOTS, 900, 20, INT64_MAX, 5000, 2, false}, {0}},
    {"K.no_gradient_in", "floats", "", "", {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false}, {0}},
    {"L.experts", "experts", "", "", {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false}, LEAVES(experts)},
};

typedef struct lines {
    uint32_t n, cap;
    const char **at;
} lines;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// The lines that count, without indentation; those that free between two others in order of names.
static void split(zx_arena *mem, const char *text, const struct log_row *r, lines *out)
{
    static const char *const idle[] = {"RESET", "->", "--", "OPT", "ds_ids", "mod ids"};
    uint32_t first_free = 0;
    for (const char *s = text; *s != '\0';) {
        const size_t n = strcspn(s, "\n");
        const char *line = zx_arena_strn(mem, s + strspn(s, " "), n - strspn(s, " "));
        s += n + (s[n] == '\n');
        bool skip = line[0] == '\0';
        for (size_t i = 0; i < ZX_COUNT(idle); i++)
            skip = skip || strncmp(line, idle[i], strlen(idle[i])) == 0;
        if (skip) continue;
        const char *at = r->said[0] ? strstr(line, r->said) : NULL;
        for (; at != NULL; at = strstr(line, r->said))
            line = zx_arena_printf(mem, "%.*s%s%s", (int)(at - line), line, r->here,
                                   at + strlen(r->said));
        ZX_GROW(mem, out->at, out->n, out->cap);
        out->at[out->n++] = line;
        if (strncmp(line, "FREE ", 5) != 0)
            first_free = out->n;
        else
            qsort(out->at + first_free, out->n - first_free, sizeof *out->at, by_text);
    }
}

static const char *read_all(zx_arena *mem, const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = ZX_NEW(mem, char, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

static void test_log(void **state)
{
    const struct log_row *r = *state;
    fixture f;
    lines want = {0}, got = {0};
    zx_text out = {0};
    open_model(&f, r->model, &r->o);
    const char *path = zx_arena_printf(&f.mem, "%s/hooks/%s.log", ZX_TEST_DATA, r->name);
    split(&f.mem, read_all(&f.mem, path), r, &want);
    uint32_t n = 0;
    for (uint32_t i = 0; i < want.n; i++) n += strncmp(want.at[i], "== ", 3) == 0;
    assert_true(n >= 3);
    zx_coordinator *c = zx_coordinator_make(&f.h, &r->l, &f.mem);
    for (uint32_t i = 0; i < n; i++) {
        assert_zx_ok(zx_coordinator_run(c, f.h.events, f.h.n_events, &f.err), &f.err);
        zx_hooks_put(&f.h, c, i, &out);
    }
    split(&f.mem, out.at, r, &got);
    for (uint32_t i = 0; i < want.n && i < got.n; i++)
        if (strcmp(want.at[i], got.at[i]) != 0)
            fail_msg("line %u: the log has '%s', here is '%s'", i, want.at[i], got.at[i]);
    assert_int_equal(want.n, got.n);
    zx_text_free(&out);
    close_model(&f);
}

// ---- which modules are leaves -------------------------------------------------------------------

static const char *const moe_long[] = {"none", "models.Moe"}, *const linear[] = {"Linear"};

static const struct leaf_row {
    const char *name, *model;
    zx_hooks_options o;
    const char *want, *note;
} leaves[] = {
    {"by class with its Python module",
     "experts",
     {.n_classes = 2, .classes = moe_long},
     " layers.0.mlp layers.1.mlp",
     "no module of the file is a 'none'"},
    {"classes that nobody asked for",
     "experts",
     {.n_classes = 1, .classes = moe_long, .default_classes = true},
     "",
     NULL},
    {"no class said in the file",
     "plain",
     {.n_classes = 1, .classes = linear},
     " blocks.0.fc1 blocks.0.fc2 blocks.1.fc1 blocks.1.fc2 blocks.2.fc1 blocks.2.fc2 head",
     NULL},
    {"containers are no layers",
     "experts",
     {.granularity = 270},
     "",
     "below every module's granularity"},
    {"a coarser one",
     "experts",
     {.granularity = 300},
     " <root>",
     "takes no tensor that needs a gradient"},
    {"a tied parameter counts twice",
     "gpt",
     {.granularity = 279},
     "",
     "below every module's granularity"},
    {"blocks", "gpt", {.granularity = 280}, " h.0 h.1", NULL},
    {"modules that nobody calls are layers", "attention", {.granularity = 300}, "", NULL},
};

static void test_leaves(void **state)
{
    const struct leaf_row *r = *state;
    fixture f;
    zx_text out = {0};
    open_model(&f, r->model, &r->o);
    zx_text_put(&out, "%s", "");
    for (uint32_t i = 0; i < f.h.n_modules; i++)
        if (f.h.modules[i].leaf) zx_text_put(&out, " %s", i == 0 ? "<root>" : f.h.modules[i].path);
    assert_string_equal(out.at, r->want);
    bool noted = r->note == NULL;
    for (uint32_t i = 0; i < f.notes.n; i++) {
        noted = noted || strstr(f.notes.text[i], r->note) != NULL;
        if (r->note == NULL) assert_null(strstr(f.notes.text[i], "class"));
    }
    assert_true(noted);
    zx_text_free(&out);
    close_model(&f);
}

// With a bucket that holds both calls' gradients the original stops.
static void test_leaf_twice(void **state ZX_UNUSED)
{
    const zx_hooks_options o = LEAVES(first);
    const zx_hook_limits l = {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false};
    fixture f;
    open_model(&f, "twice", &o);
    zx_coordinator *c = zx_coordinator_make(&f.h, &l, &f.mem);
    assert_int_equal(zx_coordinator_run(c, f.h.events, f.h.n_events, &f.err), ZX_E_UNSUPPORTED);
    close_model(&f);
}

#define ROWS(table, run)                                                                           \
    for (size_t i = 0; i < ZX_COUNT(table); i++) tests[n++] = zx_case(table[i].name, run, &table[i])

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(logs) + ZX_COUNT(leaves) + 1];
    size_t n = 0;
    ROWS(logs, test_log);
    ROWS(leaves, test_leaves);
    tests[n++] = zx_case("a leaf is called twice", test_leaf_twice, NULL);
    return _cmocka_run_group_tests("hooks_logs", tests, n, NULL, NULL);
}
