// test_words.c - what the program says to somebody who is new to it: notes that a wrong run would
// have needed, advice that can be pasted, and nothing that misleads.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bad/bad.h"
#include "tests/bad/models.h"

#define GPT "train $IN/gpt.onnx --steps 1 --no-save "
#define X "train $IN/noloss.onnx --config $IN/loss.json --data labels=zeros "
#define SHIFTS                                                                                     \
    "train " ZX_TEST_DATA "/cases/gpt2_hf_loss/model.onnx --dim seq=8 --steps 1 --no-save "

static const struct row {
    const char *name;
    int code;
    const char *args;
    const char *out[3], *err[3]; // all of them are said
    const char *never;           // nowhere; NULL
} rows[] = {
    // ---- tokens
    {"text for a large vocabulary",
     0,
     GPT "--data $IN/text.txt",
     {NULL},
     {"text.txt is read as bytes (0..255); the model knows 1000 tokens"},
     "learns to repeat"},
    {"tokens that the model knows",
     0,
     GPT "--data $IN/good.bin",
     {NULL},
     {"done: 1 step in"},
     "note: data"},
    {"a token too large",
     3,
     GPT "--data $IN/far.bin",
     {NULL},
     {"token 1000 at position 100 of ", "far.bin; the model has 1000 tokens", "FILE.bin:u32"},
     "done"},
    {"no token too large, but the last ones fill no window",
     0,
     GPT "--data $IN/tail.bin",
     {NULL},
     {"done: 1 step in"},
     "position"},
    {"labels that are the tokens",
     0,
     GPT "--data input_ids=$IN/good.bin --data labels=$IN/good.bin",
     {NULL},
     {"learns to repeat its input; --data labels=", "good.bin:+1 gives the next ones"},
     NULL},
    {"labels that copy the tokens",
     0,
     GPT "--data input_ids=$IN/good.bin --data labels=copy:input_ids",
     {NULL},
     {"learns to repeat its input"},
     NULL},
    {"a graph that shifts them takes the tokens",
     0,
     SHIFTS "--data input_ids=$IN/text.txt --data labels=copy:input_ids",
     {NULL},
     {"done: 1 step"},
     "note: data: 'labels'"},
    {"labels moved on twice",
     0,
     SHIFTS "--data input_ids=$IN/text.txt --data labels=$IN/text.txt:+1",
     {NULL},
     {"the graph shifts them once more"},
     NULL},
    {"tokens without data", 3, GPT, {NULL}, {"try: zerox train ", "--data FILE.txt"}, NULL},
    {"a label of no class",
     3,
     "train $IN/m.onnx --data labels=$IN/far.npy --out o",
     {NULL},
     {"input 'labels': sample 1 of ", "far.npy is label 3; the model has 3 classes",
      "try: labels from 0 to 2"},
     "step 1/"},
    {"a label of no class, met in a step",
     3,
     SHIFTS "--data input_ids=$IN/text.txt --data labels=$IN/farther.npy --steps 2",
     {NULL},
     {"label 99999 is outside the ", "try: look at ",
      "farther.npy, which feeds 'labels': 99999 is in its sample 1"},
     "done"},
    // ---- a model and what lies beside it
    {"check tells of another model's data",
     0,
     "check $IN/other/m.onnx",
     {"to know:\n", "x.npy beside the model isn't its data", "parameters: 15 in"},
     {NULL},
     "zerox check"},
    {"so does plan",
     0,
     "plan $IN/other/m.onnx",
     {"peak"},
     {"x.npy beside the model isn't its data"},
     NULL},
    {"sizes that are asked for come before those of such data",
     0,
     "check " ZX_TEST_DATA "/cases/gpt2_hf_loss/model.onnx --dim seq=8",
     {"taken as [1, 8]", "to know:\n  data beside the model don't fit: "},
     {NULL},
     NULL},
    {"train doesn't do without them",
     3,
     "train $IN/other/m.onnx --data labels=zeros",
     {NULL},
     {"x.npy holds"},
     NULL},
    {"data that were asked for have to fit",
     3,
     "check $IN/m.onnx --data x=$IN/other/x.npy",
     {"parameters: 15 in"},
     {"x.npy holds", "try: another file"},
     "zerox check"},
    {"the model's fault comes before its data's",
     3,
     "train $IN/other/odd.onnx",
     {NULL},
     {"the operator LSTM isn't supported"},
     "x.npy"},
    {"check of what isn't supported",
     3,
     "check $IN/odd.onnx",
     {"inputs:\n  x float32 [2, 4]\n"},
     {"the operator LSTM isn't supported"},
     "zerox check"},
    {"check of a model that is fine says no more",
     0,
     "check $IN/m.onnx",
     {"  x float32 [2, 4]\n", "  2: ", "data: x: "},
     {NULL},
     "to know"},
    {"check without a loss names the way to one",
     3,
     "check $IN/noloss.onnx",
     {"loss: none", "\"prediction\": \"logits\", \"label\": \"labels\"}}}"},
     {"there is no loss", "or export the model with its loss inside"},
     "zerox check"},
    {"train does too, whatever its data",
     3,
     "train $IN/noloss.onnx --data x=$IN/text.txt",
     {NULL},
     {"no output is a scalar float", "\"prediction\": \"logits\", \"label\": \"labels\"}}}"},
     NULL},
    // ---- data
    {"doubles",
     3,
     X "--data x=$IN/doubles.npy",
     {NULL},
     {"float64 [12, 4]", "try: numpy.save(", "x.astype(numpy.float32)"},
     NULL},
    {"an archive",
     3,
     X "--data x=$IN/x.npz",
     {NULL},
     {".npz isn't read", "try: numpy.save("},
     NULL},
    {"a table of text",
     3,
     X "--data x=$IN/x.csv",
     {NULL},
     {"try: --data x=FILE.npy", "numpy.loadtxt("},
     NULL},
    // ---- what a run says
    {"of one rank",
     0,
     "train $IN/m.onnx --data x=$IN/x.npy --steps 1 --out o",
     {NULL},
     {"micro-batch 2 (fixed by the model), accumulation 1, batch 2\ndefaults: optimizer, lr,",
      "x.npy, labels: ", "12 samples, 6 steps an epoch"},
     "exposed"},
    {"of two ranks",
     0,
     "train $IN/m.onnx --ranks 2 --steps 1 --out o",
     {NULL},
     {"exposed communication", "(found beside the model)"},
     "note: data"},
    {"no last word after a failed step",
     3,
     "train $IN/m.onnx --data x=ones --data labels=const:9 --steps 2 --out o",
     {NULL},
     {"label 9 is outside"},
     "done"},
    {"many steps, few lines",
     0,
     "train $IN/m.onnx --steps 4001 --threads 1 --no-save --out o",
     {NULL},
     {"note: one line for every 3 steps; o/log.jsonl", "step    3/4001", "step 4001/4001"},
     "step    2/4001"},
    // ---- budgets
    {"no smaller micro-batch than the model's",
     4,
     "plan $IN/m.onnx --budget 1",
     {NULL},
     {"try: "},
     "train_micro_batch_size"},
    {"a plan for a larger machine",
     0,
     "plan $IN/huge.onnx --ranks 2",
     {"peak"},
     {"ranks don't fit on this host", "planned without a limit"},
     NULL},
    {"but not where a budget was asked for",
     4,
     "plan $IN/huge.onnx --ranks 2 --budget 80%",
     {NULL},
     {"a rank needs at least"},
     NULL},
    // ---- words
    {"no silly option",
     2,
     "train m.onnx --bogus",
     {NULL},
     {"unknown option '--bogus'\n"},
     "nearest"},
    {"nor a short one", 2, "train m.onnx --lr 1", {NULL}, {"unknown option '--lr'\n"}, "nearest"},
    {"a longer word for an option", 2, "train m.onnx --output o", {NULL}, {"'--out'"}, NULL},
    {"what is missing is said once", 2, "train", {NULL}, {"zerox: train needs a MODEL.onnx"}, NULL},
    {"what was written",
     0,
     "new gpt2 -o g.onnx",
     {NULL},
     {"wrote g.onnx: gpt2 tiny, 121k parameters, ", "; next: zerox check g.onnx"},
     "its own"},
    {"and with which sizes",
     0,
     "new mlp --set width=3 -o g.onnx",
     {NULL},
     {"mlp digits with sizes of its own, 247 parameters"},
     NULL},
    {"the list has a head", 0, "new --list", {"family preset"}, {NULL}, NULL},
    {"operators by domain",
     0,
     "ops",
     {"\n  Acos ", "\ncom.microsoft ", "  Mod                               10-25    no\n"},
     {NULL},
     NULL},
};

static void test_row(void **state)
{
    const struct row *row = *state;
    bad_result r;
    bad_run(row->args, &r);
    bad_expect(&r, row->code, NULL);
    for (size_t i = 0; i < 3 && row->out[i] != NULL; i++)
        if (strstr(r.out, row->out[i]) == NULL) fail_msg("no '%s' in: %s", row->out[i], r.out);
    for (size_t i = 0; i < 3 && row->err[i] != NULL; i++)
        if (strstr(r.err, row->err[i]) == NULL) fail_msg("no '%s' in: %s", row->err[i], r.err);
    if (row->never != NULL &&
        (strstr(r.out, row->never) != NULL || strstr(r.err, row->never) != NULL))
        fail_msg("'%s' in: %s%s", row->never, r.out, r.err);
    bad_clear();
}

static void an_interrupted_run_says_so(void **state)
{
    (void)state;
    bad_result r;
    const pid_t pid = bad_start("train $IN/m.onnx --steps 100000000 --out o");
    bad_wait_lines("o/log.jsonl", 3);
    kill(pid, SIGINT);
    bad_end(pid, &r);
    bad_expect(&r, 128 + SIGINT, "interrupted after ");
    bad_expect(&r, 128 + SIGINT, " of 100000000 steps in ");
    assert_null(strstr(r.err, "done:"));
    bad_clear();
}

// ---- files --------------------------------------------------------------------------------------

static void no_loss(zx_onnx_out *o)
{
    static const int64_t dims[2] = {2, 3};
    Onnx__GraphProto *g = o->model->graph;
    g->n_node--;  // the loss
    g->n_input--; // and its labels
    g->n_output = 0;
    zx_onnx_output(o, "logits", ZX_F32, 2, dims, NULL);
}

static void tokens(const char *name, int n, int at, uint16_t odd)
{
    static uint16_t ids[4096];
    for (int i = 0; i < n; i++) ids[i] = (uint16_t)(i * 37 % 1000);
    if (at >= 0) ids[at] = odd;
    bad_write(name, ids, (size_t)n * 2);
}

static int setup(void **state)
{
    static const double doubles[48] = {1};
    static const float wide[60] = {1};
    static const int64_t far[12] = {0, 3};
    static int64_t farther[125 * 8];
    char command[512];
    bad_result r;
    if (bad_setup(state) != 0) return 1;
    model_data();
    model_write("m.onnx", "", NULL);
    model_write("noloss.onnx", "", no_loss);
    model_write("odd.onnx", "h=LSTM(logits,w,w){name=rnn}", NULL);
    bad_npy("doubles.npy", "<f8", "12, 4", doubles, sizeof doubles);
    bad_npy("far.npy", "<i8", "12,", far, sizeof far);
    farther[8 + 4] = 99999;
    bad_npy("farther.npy", "<i8", "125, 8", farther, sizeof farther);
    bad_npy("wide.npy", "<f4", "12, 5", wide, sizeof wide);
    bad_text("x.npz", "PK");
    bad_text("x.csv", "1,2,3,4\n");
    bad_text("loss.json", "{\"zero_optimization\": {\"stage\": 3}, \"zerox\": {\"loss\": "
                          "{\"kind\": \"cross_entropy\", \"prediction\": \"logits\"}}}");
    char text[1001] = "";
    for (int i = 0; i < 1000; i++) text[i] = (char)('a' + i * 7 % 26);
    bad_text("text.txt", text);
    tokens("good.bin", 1000, -1, 0);
    tokens("far.bin", 1000, 100, 1000);
    tokens("tail.bin", 1000, 999, 1000); // windows of 64 end at 960
    bad_run("new gpt2 --set vocab=1000 -o $IN/gpt.onnx", &r);
    if (r.code != 0) return 1;
    bad_run("new mlp --set layers=3 --set width=400000 -o $IN/huge.onnx", &r);
    if (r.code != 0) return 1;
    snprintf(command, sizeof command,
             "cd %s && mkdir other && cp m.onnx odd.onnx other && mv wide.npy other/x.npy", bad_in);
    return system(command);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 1];
    size_t n = 0;
    for (; n < ZX_COUNT(rows); n++) tests[n] = zx_case(rows[n].name, test_row, &rows[n]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(an_interrupted_run_says_so);
    return cmocka_run_group_tests(tests, setup, bad_teardown);
}
