// test_cli_option_effects.c - every option of every command changes something, or is refused or
// told of where it can't: for each, two command lines that differ in it alone. An option that gets
// no row for a command that takes it fails.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/options.h"
#include "tests/runtime/effects.h"

#define TRAIN "train lm/model.onnx --steps 6 --threads 1"
#define TWO "train lm/model.onnx --steps 6 --threads 1 --ranks 2 --config plan.json"
#define PLAN "plan lm/model.onnx --ranks 2 --threads 1 --config plan.json"
#define HOOKS PLAN " --policy hooks"
#define DECISIONS                                                                                  \
    "plan lm/model.onnx --ranks 2 --config plan.json --policy hooks --format decisions"
#define COMPARE                                                                                    \
    "compare lm/model.onnx --ranks 2 --threads 1 --config plan.json --policies zerox,hooks"
#define SIMULATE "simulate lm/model.onnx --machine h100x2 --budget 1GiB"
#define PRESET "simulate llama3-8b --machine h100x8 --seq 64 --policy fsdp"
#define CHECK "check lm/model.onnx"
#define EXPLAIN "config --explain plan.json lm/model.onnx"
#define MERGED "merged.onnx"
#define EVAL " --eval-data input_ids=lm/input_ids.npy --eval-data labels=lm/labels.npy"
#define ODD " --config odd.json"
#define INTO "convert seeded --model lm/model.onnx"

static const struct row {
    zx_command command;
    zx_option_id option;
    const char *base, *a, *b; // `zerox BASE A` and `zerox BASE B`
    effect_look look;
    const char *what; // of effects.h
} rows[] = {
#define T(id, base, a, b, look, what)                                                              \
    {                                                                                              \
        ZX_CMD_TRAIN, ZX_OPT_##id, base, a, b, look, what                                          \
    }
    T(CONFIG, TRAIN, "", "--config sgd.json", FIGURE, "loss"),
    T(RANKS, TRAIN, "", "--ranks 2", FIGURE, "loss"),
    T(BACKEND, TRAIN, "--backend cpu", "--backend cuda", ENDS, "CUDA"),
    T(COMM, TRAIN, "--comm shm", "--comm nccl", ENDS, "is for GPUs"),
    T(TIMEOUT, TRAIN, "--timeout 30s", "--timeout soon", ENDS, "--timeout needs a time"),
    T(THREADS, TRAIN, "", "--threads 2", SAYS, "x 2 threads"),
    T(DATA, TRAIN, "", "--data input_ids=zeros", FIGURE, "loss"),
    T(DIM, TRAIN, "", "--dim batch=2", FIGURE, "loss"),
    T(STEPS, TRAIN, "", "--steps 3", FIGURE, "loss"),
    T(EPOCHS, "train lm/model.onnx --dim batch=16", "", "--epochs 2", FIGURE, "loss"),
    T(SHUFFLE, TRAIN, "", "--shuffle", FIGURE, "loss"),
    T(SHUFFLE, TRAIN " --data input_ids=zeros --data labels=ones", "", "--shuffle", SAYS,
      "--shuffle has no effect"),
    T(SEED, TRAIN, "", "--seed 5", FIGURE, "loss"),
    T(SEED, "train " MERGED " --data x=ones --steps 2 --threads 1", "", "--seed 5", SAYS,
      "--seed has no effect"),
    T(STAGE, TWO, "", "--stage 1", TEXT, "plan.txt"),
    T(BUDGET, TWO, "", "--budget min", TEXT, "plan.txt"),
    T(BUDGET, TWO, "--plan lm.plan", "--plan lm.plan --budget min", ENDS,
      "--budget has no effect: the least memory is looked for where a plan is made"),
    T(OBJECTIVE, TWO, "--objective time", "--objective memory", TEXT, "plan.txt"),
    T(PIN, TWO, "", "--pin *wte*", TEXT, "plan.txt"),
    T(NO_OVERLAP, TWO, "", "--no-overlap", TEXT, "plan.txt"),
    T(NO_OVERLAP, TRAIN, "", "--no-overlap", SAYS, "--no-overlap has no effect"),
    T(OUT, TRAIN, "", "--out other", FILES, "other/log.jsonl"),
    T(LOG, TRAIN, "", "--log l.jsonl", FILES, "l.jsonl"),
    T(SAVE, TRAIN, "", "--save sv", FILES, "sv/model.safetensors"),
    T(NO_SAVE, TRAIN, "", "--no-save", SIZE, NULL),
    T(INIT, TRAIN, "", "--init seeded", FIGURE, "loss"),
    T(INIT_PARTIAL, TRAIN, "--init small --init-partial", "--init small", ENDS, "--init-partial"),
    T(SAVE_EVERY, TRAIN, "", "--save-every 2 --out se", FILES, "se/checkpoints/step-4"),
    T(SAVE_ASYNC, TRAIN, "--save-every 2", "--save-every 2 --save-async", SAYS, "--save-async:"),
    T(KEEP, TRAIN " --save-every 2", "", "--keep 3 --out kept", FILES, "kept/checkpoints/step-2"),
    T(RESUME, "train --threads 1 --steps 3", "lm/model.onnx", "--resume going", SAYS,
      "resumed: going"),
    T(DUMP_GRADS, TRAIN, "", "--dump-grads g", FILES, "g"),
    T(FORCE, TRAIN, "--log there --force", "--log there", ENDS, "there exists already"),
    T(KEEP_TIES, "train " MERGED " --data x=ones --steps 2 --threads 1", "", "--keep-ties", SIZE,
      NULL),
    T(ALLOW_UNKNOWN, TRAIN ODD, "--allow-unknown", "", ENDS, "unknown key 'stge'"),
    T(ALLOW_UNKNOWN, TRAIN, "", "--allow-unknown", SAYS, "--allow-unknown has no effect"),
    T(RECOMPUTE, TRAIN, "", "--recompute full", TEXT, "plan.txt"),
    T(NO_FUSE, TRAIN, "", "--no-fuse all", TEXT, "plan.txt"),
    T(REPORT, TRAIN, "", "--report tr.html", FILES, "tr.html"),
    T(PROFILE, TRAIN, "", "--profile tp.json", FILES, "tp.json"),
    T(EVAL_DATA, TRAIN, "", EVAL, FIGURE, "eval_loss"),
    T(EVAL_EVERY, TRAIN EVAL, "", "--eval-every 2", FIGURE, "eval_loss"),
    T(WATCH, TRAIN, "", "--watch *wte*", FIGURE, "weight_norm"),
    T(WATCH_EVERY, TRAIN " --watch *wte*", "", "--watch-every 2", FIGURE, "weight_norm"),
    T(PLAN_FILE, TWO, "", "--plan hooks.plan", TEXT, "plan.txt"),
    T(REPLAN_AFTER, TWO, "", "--replan-after 2", SAYS, "planned again"),
#undef T
#define P(id, base, a, b, look, what)                                                              \
    {                                                                                              \
        ZX_CMD_PLAN, ZX_OPT_##id, base, a, b, look, what                                           \
    }
    P(CONFIG, PLAN, "", "--config stage2.json", SHOWN, NULL),
    P(RANKS, PLAN, "", "--ranks 3", SHOWN, NULL),
    P(BACKEND, PLAN, "--backend cpu", "--backend cuda", ENDS, "CUDA"),
    P(THREADS, PLAN, "", "--threads 2", SHOWN, NULL),
    P(THREADS, PLAN, "", "--machine h100x2", SAYS, "--threads has no effect"),
    P(DATA, PLAN, "", "--data input_ids=gone.npy", ENDS, "gone.npy"),
    P(DIM, PLAN, "", "--dim batch=2", SHOWN, NULL),
    P(SEED, PLAN, "", "--seed 5", SAYS, "--seed has no effect"),
    P(STAGE, PLAN, "", "--stage 1", SHOWN, NULL),
    P(BUDGET, PLAN, "", "--budget min", SHOWN, NULL),
    P(OBJECTIVE, PLAN, "--objective time", "--objective memory", SHOWN, NULL),
    P(PIN, PLAN, "", "--pin *wte*", SHOWN, NULL),
    P(CERTIFY, PLAN, "", "--certify", SAYS, "certified: "),
    P(CERTIFY, PLAN " --format states", "", "--certify", ENDS, "--certify has no effect"),
    P(CERTIFY, PLAN " --auto", "", "--certify", ENDS, "--certify is of one"),
    P(CERTIFY, DECISIONS, "", "--certify", ENDS, "--certify has no meaning"),
    P(JITTER, PLAN, "", "--jitter", SAYS, "robust: "),
    P(JITTER, PLAN " --format trace", "", "--jitter", ENDS, "--jitter has no effect"),
    P(NO_OVERLAP, PLAN, "", "--no-overlap", SHOWN, NULL),
    P(SAVE_ASYNC, PLAN, "", "--save-async", SAYS, "--save-async: "),
    P(FORCE, PLAN, "-o there --force", "-o mine", ENDS, "mine exists already"),
    P(FORCE, PLAN, "", "--force", SAYS, "--force has no effect"),
    P(KEEP_TIES, "plan " MERGED " --ranks 2 --budget 1GiB", "", "--keep-ties", SHOWN, NULL),
    P(ALLOW_UNKNOWN, PLAN ODD, "--allow-unknown", "", ENDS, "unknown key 'stge'"),
    P(INSTRUCTIONS, PLAN, "", "--instructions", SHOWN, NULL),
    P(UNIT, PLAN, "", "--unit *wte*", SHOWN, NULL),
    P(FORMAT, PLAN, "", "--format json", SHOWN, NULL),
    P(AUTO, PLAN, "", "--auto", SHOWN, NULL),
    P(POLICY, PLAN, "", "--policy hooks", SHOWN, NULL),
    P(FORM, HOOKS, "", "--form as-deepspeed", SHOWN, NULL),
    P(RECOMPUTE, PLAN, "", "--recompute full", SHOWN, NULL),
    P(NO_FUSE, PLAN, "", "--no-fuse all", SHOWN, NULL),
    P(REPORT, PLAN, "", "--report pr.html", FILES, "pr.html"),
    P(EVAL_DATA, PLAN, "", EVAL, SAYS, "evaluation: "),
    P(MICRO_BATCHES, DECISIONS, "", "--micro-batches 2", SHOWN, NULL),
    P(THREADS, DECISIONS, "", "--threads 2", ENDS, "--threads has no meaning"),
    P(MODULES, HOOKS, "", "--modules gone", ENDS, "cannot open gone"),
    P(BASELINE_DEFAULTS, HOOKS, "", "--baseline-defaults hf", SAYS, "--baseline-defaults hf: "),
    P(OUTPUT, PLAN, "", "-o new.plan", FILES, "new.plan"),
    P(MACHINE, PLAN, "", "--machine h100x2", SHOWN, NULL),
#undef P
#define C(id, base, a, b, look, what)                                                              \
    {                                                                                              \
        ZX_CMD_COMPARE, ZX_OPT_##id, base, a, b, look, what                                        \
    }
    C(CONFIG, COMPARE, "", "--config twice.json", SHOWN, NULL),
    C(RANKS, COMPARE, "", "--ranks 3", SHOWN, NULL),
    C(BACKEND, COMPARE, "--backend cpu", "--backend cuda", ENDS, "CUDA"),
    C(THREADS, COMPARE, "", "--threads 2", SHOWN, NULL),
    C(DATA, COMPARE, "", "--data input_ids=gone.npy", ENDS, "gone.npy"),
    C(DIM, COMPARE, "", "--dim batch=2", SHOWN, NULL),
    C(STEPS, COMPARE, "", "--steps 9", ENDS, "--execute"),
    C(SEED, COMPARE, "", "--seed 5", SAYS, "--seed has no effect"),
    C(BUDGET, COMPARE, "", "--budget 128MiB", SHOWN, NULL),
    C(BUDGET, COMPARE " --sweep budget=1MB,2MB", "", "--budget 1MB", ENDS,
      "--sweep has the budgets"),
    C(FORCE, COMPARE, "--report there --force", "--report mine", ENDS, "mine exists already"),
    C(KEEP_TIES, "compare " MERGED " --ranks 2 --policies zerox,ddp --budget 1GiB", "",
      "--keep-ties", SHOWN, NULL),
    C(ALLOW_UNKNOWN, COMPARE ODD, "--allow-unknown", "", ENDS, "unknown key 'stge'"),
    C(FORMAT, COMPARE, "", "--format json", SHOWN, NULL),
    C(POLICY, COMPARE, "", "--policies zerox", SHOWN, NULL),
    C(RECOMPUTE, COMPARE, "", "--recompute full", SHOWN, NULL),
    C(NO_FUSE, COMPARE, "", "--no-fuse all", SHOWN, NULL),
    C(REPORT, COMPARE, "", "--report cr.html", FILES, "cr.html"),
    C(MODULES, COMPARE, "", "--modules gone", ENDS, "cannot open gone"),
    C(BASELINE_DEFAULTS, COMPARE, "", "--baseline-defaults hf", SAYS, "--baseline-defaults hf: "),
    C(EXECUTE, COMPARE " --machine h100x2", "", "--execute", ENDS, "--execute runs on this host"),
    C(BANDWIDTH, COMPARE, "", "--bandwidth 1GB/s", SHOWN, NULL),
    C(BANDWIDTH, COMPARE " --sweep bandwidth=1GB/s,2GB/s", "", "--bandwidth 1GB/s", ENDS,
      "--sweep has the bandwidths"),
    C(LATENCY, COMPARE, "", "--latency 1ms", SHOWN, NULL),
    C(SWEEP, COMPARE, "", "--sweep budget=1MB,2MB", SHOWN, NULL),
    C(SEQ, COMPARE, "", "--seq 4", ENDS, "--seq is of a preset"),
    C(BATCH, COMPARE, "", "--batch 2", SHOWN, NULL),
    C(ACCUMULATE, COMPARE, "", "--accumulate 2", SHOWN, NULL),
    C(MACHINE, COMPARE, "", "--machine h100x2", SHOWN, NULL),
#undef C
#define S(id, base, a, b, look, what)                                                              \
    {                                                                                              \
        ZX_CMD_SIMULATE, ZX_OPT_##id, base, a, b, look, what                                       \
    }
    S(CONFIG, SIMULATE, "", "--config twice.json", SHOWN, NULL),
    S(RANKS, SIMULATE, "", "--ranks 3", ENDS, "not 3"),
    S(DIM, SIMULATE, "", "--dim batch=2", SHOWN, NULL),
    S(BUDGET, SIMULATE, "", "--budget min", SHOWN, NULL),
    S(OBJECTIVE, "simulate llama3-8b --machine h100x16 --seq 32", "--objective time",
      "--objective memory", SHOWN, NULL),
    S(PIN, SIMULATE, "", "--pin *wte*", SHOWN, NULL),
    S(CERTIFY, SIMULATE, "", "--certify", SAYS, "certified: "),
    S(JITTER, SIMULATE, "", "--jitter", SAYS, "robust: "),
    S(JITTER, SIMULATE " --format trace", "", "--jitter", ENDS, "--jitter has no effect"),
    S(FORCE, SIMULATE, "-o there --force", "-o mine", ENDS, "mine exists already"),
    S(KEEP_TIES, "simulate " MERGED " --machine h100x2", "", "--keep-ties", SHOWN, NULL),
    S(ALLOW_UNKNOWN, SIMULATE ODD, "--allow-unknown", "", ENDS, "unknown key 'stge'"),
    S(FORMAT, SIMULATE, "", "--format json", SHOWN, NULL),
    S(POLICY, SIMULATE, "", "--policy ddp", SHOWN, NULL),
    S(FORM, SIMULATE " --policy hooks", "", "--form as-deepspeed", SHOWN, NULL),
    S(RECOMPUTE, SIMULATE, "", "--recompute full", SHOWN, NULL),
    S(NO_FUSE, SIMULATE, "", "--no-fuse all", SHOWN, NULL),
    S(MODULES, SIMULATE " --policy hooks", "", "--modules gone", ENDS, "cannot open gone"),
    S(BASELINE_DEFAULTS, SIMULATE " --policy hooks", "", "--baseline-defaults hf", SAYS,
      "--baseline-defaults hf: "),
    S(SEQ, PRESET, "", "--seq 128", SHOWN, NULL),
    S(BATCH, SIMULATE, "", "--batch 2", SHOWN, NULL),
    S(ACCUMULATE, SIMULATE, "", "--accumulate 2", SHOWN, NULL),
    S(OUTPUT, SIMULATE, "", "-o sim.txt", FILES, "sim.txt"),
    S(MACHINE, SIMULATE, "", "--machine a100x2", SHOWN, NULL),
#undef S
#define K(id, base, a, b, look, what)                                                              \
    {                                                                                              \
        ZX_CMD_CHECK, ZX_OPT_##id, base, a, b, look, what                                          \
    }
    K(CONFIG, CHECK, "", "--config frozen.json", SHOWN, NULL),
    K(DATA, CHECK, "", "--data input_ids=zeros", SHOWN, NULL),
    K(DIM, CHECK, "", "--dim batch=2", SHOWN, NULL),
    K(KEEP_TIES, "check " MERGED, "", "--keep-ties", SHOWN, NULL),
    K(ALLOW_UNKNOWN, CHECK ODD, "--allow-unknown", "", ENDS, "unknown key 'stge'"),
    K(NO_FUSE, CHECK, "", "--no-fuse all", SHOWN, NULL),
#undef K
#define E(id, base, a, b, look, what)                                                              \
    {                                                                                              \
        ZX_CMD_CONFIG, ZX_OPT_##id, base, a, b, look, what                                         \
    }
    E(RANKS, EXPLAIN, "", "--ranks 2", SHOWN, NULL),
    E(DIM, EXPLAIN, "", "--dim batch=2", SHOWN, NULL),
    E(DIM, "config --explain plan.json", "", "--dim batch=2", ENDS, "--dim has no effect"),
    E(SEED, EXPLAIN, "", "--seed 5", SHOWN, NULL),
    E(STAGE, EXPLAIN, "", "--stage 1", SHOWN, NULL),
    E(BUDGET, EXPLAIN, "", "--budget min", SHOWN, NULL),
    E(ALLOW_UNKNOWN, "config --explain odd.json", "--allow-unknown", "", ENDS,
      "unknown key 'stge'"),
    E(FORMAT, EXPLAIN, "", "--format json", SHOWN, NULL),
    E(RECOMPUTE, EXPLAIN, "", "--recompute full", SHOWN, NULL),
    E(EXPLAIN, EXPLAIN, "", "--explain twice.json", SHOWN, NULL),
    E(SCHEMA, "config", "--schema", "", ENDS, "config needs --explain FILE or --schema"),
#undef E
    {ZX_CMD_NEW, ZX_OPT_SEED, "new mlp", "-o n0.onnx", "-o n1.onnx --seed 5", FILES, "n1.onnx"},
    {ZX_CMD_NEW, ZX_OPT_FORCE, "new mlp -o there", "--force", "", ENDS, "there exists already"},
    {ZX_CMD_NEW, ZX_OPT_PRESET, "new gpt2 -o", "n2.onnx", "n3.onnx --preset tiny", FILES,
     "n3.onnx"},
    {ZX_CMD_NEW, ZX_OPT_SET, "new mlp --force -o n4.onnx", "", "--set width=99", SAYS,
     "sizes of its own"},
    {ZX_CMD_NEW, ZX_OPT_OUTPUT, "new mlp", "-o n5.onnx", "-o n6.onnx", FILES, "n6.onnx"},
    {ZX_CMD_NEW, ZX_OPT_LIST_PRESETS, "new", "--list", "", ENDS, "new needs a FAMILY"},
    {ZX_CMD_SHOW, ZX_OPT_TENSOR, "show seeded", "", "--tensor *wte*", SHOWN, NULL},
#define V(id, base, a, b, look, what)                                                              \
    {                                                                                              \
        ZX_CMD_CONVERT, ZX_OPT_##id, base, a, b, look, what                                        \
    }
    V(FORCE, "convert seeded", "w4.safetensors --force", "mine.safetensors", ENDS,
      "mine.safetensors exists already"),
    V(MODEL, "convert seeded", "w0.safetensors", "w1.onnx --model lm/model.onnx", FILES, "w1.onnx"),
    V(CONFIG, INTO, "k0", "k1 --config odd.json", ENDS, "unknown key 'stge'"),
    V(RANKS, INTO, "k2", "k3 --ranks 2", FILES,
      "k3/checkpoints/step-0/rank-00001-of-00002.safetensors"),
    V(DIM, INTO, "k4", "k5 --dim q=2", ENDS, "'q'"),
    V(DATA, INTO, "k6", "k7 --data input_ids=gone.npy", ENDS, "gone.npy"),
    V(ALLOW_UNKNOWN, INTO ODD, "k8 --allow-unknown", "k9", ENDS, "unknown key 'stge'"),
    V(DIM, "convert seeded", "w5.safetensors", "w6.safetensors --dim batch=2", ENDS,
      "--dim is for a checkpoint"),
#undef V
    {ZX_CMD_CONVERT, ZX_OPT_SHARD_SIZE, "convert seeded", "w2.safetensors", "hf --shard-size 1KB",
     FILES, "hf/model.safetensors.index.json"},
    {ZX_CMD_CONVERT, ZX_OPT_SHARD_SIZE, "convert seeded", "w7.safetensors",
     "w3.onnx --shard-size 1KB", ENDS, "has to be a folder"},
    {ZX_CMD_REPORT, ZX_OPT_FORCE, "report seeded", "-o there --force", "-o mine", ENDS,
     "mine exists already"},
    {ZX_CMD_REPORT, ZX_OPT_OUTPUT, "report seeded", "", "-o rr.html", FILES, "rr.html"},
#define M(id, base, a, b, look, what)                                                              \
    {                                                                                              \
        ZX_CMD_MACHINE, ZX_OPT_##id, base, a, b, look, what                                        \
    }
    M(RANKS, "machine", "--ranks 1", "--ranks 2", SHOWN, NULL),
    M(BACKEND, "machine", "--backend cpu", "--backend cuda", ENDS, "CUDA"),
    M(THREADS, "machine", "--threads 1", "--threads 2", SHOWN, NULL),
    M(THREADS, "machine h100x8", "", "--threads 2", ENDS, "--threads has no effect"),
    M(FORMAT, "machine", "", "--format json", SHOWN, NULL),
    M(LIST_PRESETS, "machine", "", "--list", SHOWN, NULL),
    M(MACHINE, "machine", "", "--machine h100", SHOWN, NULL),
    M(CALIBRATE, "machine --machine h100", "", "--calibrate", ENDS, "--calibrate has no effect"),
#undef M
};

static const effect_outcome *run(const struct row *row, const char *with)
{
    char command[600];
    snprintf(command, sizeof command, "%s %s", row->base, with);
    return effect_run(command, NULL);
}

static const effect_outcome *first(const void *row)
{
    return run(row, ((const struct row *)row)->a);
}

static const effect_outcome *second(const void *row)
{
    return run(row, ((const struct row *)row)->b);
}

static void test_row(void **state)
{
    const struct row *row = *state;
    zx_arena mem = {0};
    effect_expect(zx_option_word(row->option, &mem), first, second, row, row->look, row->what);
    zx_arena_free(&mem);
}

// Which options are advertised is what --help has.
static void every_option_has_a_row(void **state)
{
    (void)state;
    zx_arena mem = {0};
    for (unsigned c = 0; c < ZX_CMD_COUNT; c++) {
        zx_text help = {0};
        zx_options_help((zx_command)c, &help);
        for (unsigned i = 0; i < ZX_OPT_COUNT; i++) {
            const char *word = zx_option_word((zx_option_id)i, &mem);
            const char *shown = zx_arena_printf(&mem, "\n  %s", word);
            const char *at = strstr(help.at, shown);
            if (at == NULL || i == ZX_OPT_HELP) continue;
            if (strchr(" ,\n", at[strlen(shown)]) == NULL) continue; // a longer word
            bool has = false;
            for (size_t k = 0; k < ZX_COUNT(rows); k++)
                has |= rows[k].command == c && rows[k].option == i;
            if (!has)
                fail_msg("%s %s: no row here shows its effect", zx_command_word((zx_command)c),
                         word);
        }
        zx_text_free(&help);
    }
    zx_arena_free(&mem);
}

static int make_files(void **state)
{
    static const char *const make[] = {
        "train lm/model.onnx --steps 1 --threads 1 --out seeded --seed 9 --config plan.json",
        "new gpt2 -o small.onnx --set layers=1 --set width=8 --set heads=1 --set vocab=16 --set "
        "context=8 --set sequence=8",
        "train small.onnx --steps 1 --threads 1 --out small --data input_ids=zeros --data "
        "labels=zeros",
        "train lm/model.onnx --steps 1 --threads 1 --save-every 1 --out going",
        PLAN " -o lm.plan",
        HOOKS " -o hooks.plan",
    };
    if (effect_setup(state) != 0) return 1;
    cli_write("plan.json",
              "{\"zero_optimization\": {\"stage\": 3}, \"zerox\": {\"budget\": \"64MiB\"}}");
    cli_write("stage2.json",
              "{\"zero_optimization\": {\"stage\": 2}, \"zerox\": {\"budget\": \"64MiB\"}}");
    cli_write("twice.json",
              "{\"gradient_accumulation_steps\": 2, \"zero_optimization\": {\"stage\": "
              "3}, \"zerox\": {\"budget\": \"64MiB\"}}");
    cli_write("sgd.json", "{\"optimizer\": {\"type\": \"SGD\"}}");
    cli_write("frozen.json", "{\"zerox\": {\"freeze\": \"*wte*\"}}");
    cli_write("mine", "mine");
    cli_write("mine.safetensors", "mine");
    effect_model("merged.onnx",
                 "in x f32[batch,2];init h.0.ln.weight f32[2] 1;init w f32[2] 5 6;"
                 "a = LayerNormalization(x, h.0.ln.weight) @h.0.ln;b = Mul(a, w);"
                 "y = LayerNormalization(b, h.0.ln.weight) @h.1.ln;l = ReduceMean(y) keepdims=0;"
                 "out l f32");
    cli_write("odd.json", "{\"stge\": 3}");
    for (size_t i = 0; i < ZX_COUNT(make); i++)
        if (effect_run(make[i], NULL)->code != 0) return 1;
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 1];
    static char names[ZX_COUNT(rows)][60];
    zx_arena mem = {0};
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i += test_few() ? 3 : 1) {
        snprintf(names[i], sizeof names[i], "%s %s", zx_command_word(rows[i].command),
                 zx_option_word(rows[i].option, &mem));
        tests[n++] = zx_case(names[i], test_row, &rows[i]);
    }
    zx_arena_free(&mem);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_option_has_a_row);
    return _cmocka_run_group_tests("option effects", tests, n, make_files, cli_teardown);
}
