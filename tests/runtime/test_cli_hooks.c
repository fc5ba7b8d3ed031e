// test_cli_hooks.c - zerox plan --policy hooks from outside: what it prints, what it refuses, and
// the list of calls.
// SPDX-License-Identifier: Apache-2.0
#include "graph/base/text.h"
#include "tests/runtime/cli.h"

#define PLAIN ZX_TEST_DATA "/hooks/plain.onnx"
#define HOOKS "plan", PLAIN, "--config", "small.json", "--ranks", "2", "--policy", "hooks"
#define DECISIONS HOOKS, "--format", "decisions"

static const cli_row rows[] = {
    {"decisions from the first micro-batch",
     {DECISIONS, "--micro-batches", "2"},
     0,
     "== MICRO 0\n"
     "FETCH step=0 F <root> mode=RECORD avail=0\n"
     "FETCH step=1 F emb mode=RECORD avail=0\n"
     "   AG ['emb.weight'] numel=640\n"
     "RELEASE step=2 F emb\n"
     "   FREE emb.weight\n",
     "note: assumed of modules, since no file can tell: see docs/COMPARE.md; --modules FILE"},
    {"the second replays",
     {DECISIONS, "--micro-batches", "2"},
     0,
     "<root> mode=COMPLETE avail=0\n   AG ['emb.weight'] numel=640\n",
     NULL},
    {"keys that steer the prefetcher do so here", {DECISIONS}, 0, "== MICRO 2\n", "note: assumed"},
    {"Hugging Face's limits",
     {"plan", PLAIN, "--policy", "hooks", "--format", "decisions", "--baseline-defaults", "hf"},
     0,
     "FETCH step=1 F emb mode=COMPLETE avail=640\n   AG ['blocks.0.fc1.weight'] numel=512\n",
     "by the hidden size 16: reduce bucket 256, prefetch 230, persistence 160"},
    {"DeepSpeed's own limits",
     {"plan", PLAIN, "--policy", "hooks", "--format", "decisions", "--baseline-defaults", "raw"},
     0,
     "== MICRO 2\n",
     "note: assumed"},
    {"other limits",
     {"plan", PLAIN, "--policy", "hooks", "--format", "decisions", "--baseline-defaults", "ds"},
     2,
     NULL,
     "--baseline-defaults is raw (DeepSpeed's own) or hf (Hugging Face's \"auto\"), not 'ds'"},
    {"defaults of no policy",
     {"plan", PLAIN, "--baseline-defaults", "hf"},
     2,
     NULL,
     "--baseline-defaults is read by --policy hooks"},
    {"half precision decides the same",
     {"plan", PLAIN, "--config", "half.json", "--policy", "hooks", "--format", "decisions"},
     0,
     "   AG ['emb.weight'] numel=640\n",
     NULL},
    {"leaf_module.names",
     {"plan", PLAIN, "--config", "leaf.json", "--policy", "hooks", "--format", "decisions"},
     0,
     "FETCH step=3 F blocks.1 mode=RECORD",
     NULL},
    {"calls listed by hand",
     {DECISIONS, "--modules", "calls.txt"},
     0,
     "RELEASE step=2 F emb\n"
     "   FREE emb.weight\n"
     "FETCH step=2 F drop mode=RECORD avail=0\n"
     "RELEASE step=3 F drop\n",
     NULL},
    {"a list that isn't this model's",
     {DECISIONS, "--modules", "other.txt"},
     2,
     NULL,
     "--modules: the call of 'emb'"},
    {"a list that no policy reads",
     {"compare", PLAIN, "--policy", "fsdp,zerox", "--modules", "calls.txt"},
     2,
     NULL,
     "--modules is read by --policy hooks or hooks-tuned, not by 'fsdp'"},
    {"nor simulated", {"simulate", PLAIN, "--modules", "calls.txt"}, 2, NULL, "not by 'zerox'"},
    {"an empty list", {DECISIONS, "--modules", "empty.txt"}, 2, NULL, "lists no calls"},
    {"no such list", {DECISIONS, "--modules", "gone.txt"}, 1, NULL, "gone.txt"},
    {"hooks in another format",
     {HOOKS, "--format", "json"},
     0,
     "\"policy\":\"hooks, schedule only\"",
     "note: assumed"},
    {"hooks without a format", {HOOKS}, 0, "\npolicy: hooks, schedule only\n", "note: assumed"},
    {"decisions of another policy",
     {"plan", PLAIN, "--policy", "fsdp", "--format", "decisions"},
     2,
     NULL,
     "--policy hooks"},
    {"a policy misspelt",
     {"plan", PLAIN, "--policy", "hook"},
     2,
     NULL,
     "unknown policy 'hook'; the nearest is 'hooks'"},
    {"decisions of no policy", {"plan", PLAIN, "--format", "decisions"}, 2, NULL, "--policy hooks"},
    {"micro-batches of no policy",
     {"plan", PLAIN, "--micro-batches", "2"},
     2,
     NULL,
     "--micro-batches needs --policy hooks --format decisions"},
    {"micro-batches of a plan",
     {HOOKS, "--micro-batches", "2"},
     2,
     NULL,
     "--micro-batches needs --policy hooks --format decisions"},
    {"one unit's decisions", {DECISIONS, "--unit", "*"}, 2, NULL, "--unit has no meaning"},
    {"none at all", {DECISIONS, "--micro-batches", "0"}, 2, NULL, "--micro-batches"},
};

static void test_row(void **state)
{
    const cli_row *row = *state;
    cli_result r;
    cli_run(row->args, &r);
    cli_expect(&r, row->code, row->out, row->err);
    if (strstr(r.err, "no effect") != NULL) fail_msg("it says: %s", r.err);
}

static int make_files(void **state)
{
    if (cli_setup(state) != 0) return 1;
    cli_write("small.json", "{\"zero_optimization\": {\"stage\": 3, "
                            "\"stage3_prefetch_bucket_size\": 600, "
                            "\"stage3_param_persistence_threshold\": 0}}");
    cli_write("leaf.json", "{\"zero_optimization\": {\"stage\": 3, \"leaf_module\": "
                           "{\"names\": [\"blocks.0\", \"blocks.1\", \"blocks.2\"]}}}");
    cli_write("half.json", "{\"bf16\": {\"enabled\": true}}");
    cli_write("other.txt", "norm\nhead\n");
    cli_write("empty.txt", "\n<root>\n\n");
    zx_text calls = {0};
    zx_text_put(&calls, "<root>\nemb\r\ndrop\n");
    for (int i = 0; i < 3; i++)
        zx_text_put(&calls,
                    "blocks.%d\nblocks.%d.ln\nblocks.%d.fc1\nblocks.%d.act\nblocks.%d.fc2\n", i, i,
                    i, i, i);
    zx_text_put(&calls, "norm\nhead");
    cli_write("calls.txt", calls.at);
    zx_text_free(&calls);
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, test_row, &rows[i]);
    return cmocka_run_group_tests(tests, make_files, cli_teardown);
}
