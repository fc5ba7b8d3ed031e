// test_usage.c - command lines that make no sense, budgets that can't be kept, and targets that
// can't be written: said before the first step, and nothing is left half.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bad/bad.h"
#include "tests/bad/models.h"

#define M "train $IN/m.onnx "
#define P "plan $IN/m.onnx "

static const bad_row rows[] = {
    // ---- words
    {"no command", 2, "", NULL, {"Try 'zerox --help'"}, 0},
    {"an unknown command", 2, "trian m.onnx", NULL, {"'trian'"}, 0},
    {"an empty command", 2, "--", NULL, {NULL}, 0},
    {"no model", 2, "train", NULL, {"MODEL.onnx", "Try 'zerox train --help'"}, 0},
    {"two models", 2, M "other.onnx", NULL, {"other.onnx"}, 0},
    {"a model that isn't there", 1, "train gone.onnx", NULL, {"gone.onnx"}, 0},
    {"a folder as a model", 1, "train $IN", NULL, {"folder"}, 0},
    {"a device as a model", 1, "train /dev/zero", NULL, {"/dev/zero"}, 0},
    {"an unknown option", 2, M "--stepz 3", NULL, {"'--stepz'", "'--steps'"}, 0},
    {"a backend that isn't there", 2, M "--backend gpu", NULL, {"'gpu'", "cpu, cuda or auto"}, 0},
#if defined(ZX_PROGRAM_CUDA) // which finds no device here: see CMakeLists.txt
    {"a backend without a device", 1, M "--backend cuda", NULL, {"no CUDA device"}, 0},
#else
    {"a backend that wasn't built", 3, M "--backend cuda", NULL, {"built without CUDA"}, 0},
#endif
    {"another way to exchange", 2, M "--comm mpi", NULL, {"'mpi'", "nccl or shm"}, 0},
    {"GPUs' way to exchange", 2, M "--backend cpu --comm nccl", NULL, {"is for GPUs"}, 0},
    {"parameters of a whole plan", 2, P "--format json --unit *", NULL, {"--unit", "json"}, 0},
    {"of a trace", 2, P "--format trace --unit *", NULL, {"--unit", "trace"}, 0},
    {"of instructions", 2, P "--instructions --unit *", NULL, {"--unit", "--instructions"}, 0},
    {"instructions as JSON", 2, P "--instructions --format json", NULL, {"--instructions"}, 0},
    {"an option of another command", 2, M "--instructions", NULL, {"--instructions"}, 0},
    {"an option without its argument", 2, M "--steps", NULL, {"--steps"}, 0},
    {"checkpoints that stay, of none",
     2,
     M "--steps 1 --keep 3",
     NULL,
     {"--keep", "--save-every"},
     0},
    {"a flag with an argument", 2, M "--shuffle=yes", NULL, {"--shuffle"}, 0},
    {"a model whose name forges a line",
     1,
     "train a\nzerox:\x1b[2J",
     NULL,
     {"a\\x0azerox:\\x1b[2J"},
     0},
    // ---- numbers
    {"0 ranks", 2, M "--ranks 0", NULL, {"--ranks"}, 0},
    {"-1 ranks", 2, M "--ranks -1", NULL, {"--ranks"}, 0},
    {"a million ranks", 2, M "--ranks 1000000", NULL, {"1000000"}, 0},
    {"2^64 ranks", 2, M "--ranks 18446744073709551616", NULL, {"--ranks"}, 0},
    {"a plan for a million ranks", 2, P "--ranks 1000000", NULL, {"1000000"}, 0},
    {"0 threads", 2, M "--threads 0", NULL, {"--threads"}, 0},
    {"a million threads", 2, M "--threads 1000000", NULL, {"1000000"}, 0},
    {"2^32 threads", 2, M "--threads 4294967297", NULL, {"4294967297"}, 0},
    {"0 steps", 2, M "--steps 0", NULL, {"--steps"}, 0},
    {"half a step", 2, M "--steps 0.5", NULL, {"--steps"}, 0},
    {"2^64 epochs", 2, M "--epochs 18446744073709551615", NULL, {"--epochs"}, 0},
    {"steps and epochs", 2, M "--steps 3 --epochs 2", NULL, {"--epochs"}, 0},
    {"stage 4", 2, M "--stage 4", NULL, {"--stage"}, 0},
    {"stage 2^32 + 3", 2, M "--stage 4294967299", NULL, {"--stage"}, 0},
    {"a dimension of 0", 2, M "--dim N=0", NULL, {"--dim"}, 0},
    {"a dimension without a size", 2, M "--dim N", NULL, {"--dim"}, 0},
    {"a dimension that isn't there", 2, M "--dim N=3", NULL, {"'N'"}, 0},
    {"a delay that is none", 2, M "--wire-delay fast", NULL, {"fast"}, 0},
    {"a delay below 0", 2, M "--wire-delay -5ms", NULL, {"-5ms"}, 0},
    // ---- budgets
    {"a budget of 0", 2, M "--budget 0", NULL, {"'0'"}, 0},
    {"a budget of 1 byte", 4, M "--budget 1", NULL, {"a rank needs at least", "(1 bytes)"}, 0},
    {"a budget of 101 %", 2, M "--budget 101%", NULL, {"'101%'"}, 0},
    {"a budget of 0 %", 2, M "--budget 0%", NULL, {"'0%'"}, 0},
    {"a budget of -5", 2, M "--budget -5", NULL, {"'-5'"}, 0},
    {"a budget of -5 %", 2, M "--budget -5%", NULL, {"'-5%'"}, 0},
    {"a budget of nan", 2, M "--budget nan", NULL, {"'nan'"}, 0},
    {"a budget of nan %", 2, M "--budget nan%", NULL, {"'nan%'"}, 0},
    {"a budget of inf", 2, M "--budget inf", NULL, {"'inf'"}, 0},
    {"a budget beyond 2^64", 2, M "--budget 99999999999999GB", NULL, {"is no size"}, 0},
    {"a budget in parsecs", 2, M "--budget 3parsecs", NULL, {"'3parsecs'"}, 0},
    {"a budget of a little %", 4, M "--budget 0.0000001%", NULL, {"a rank needs at least"}, 0},
    {"the least budget", 0, M "--budget min --steps 1 --out o", NULL, {"done: 1 step"}, BAD_LEAVES},
    {"all there is", 0, P "--budget 100%", NULL, {NULL}, 0},
    // ---- targets
    {"a folder below a file", 1, M "--out $IN/m.onnx/run", NULL, {"m.onnx"}, 0},
    {"a folder that is a file", 1, M "--out $IN/m.onnx", NULL, {"m.onnx"}, 0},
    {"a folder in /proc", 1, M "--out /proc/run", NULL, {"/proc/run"}, 0},
    {"a log below a file", 1, M "--log $IN/m.onnx/log --save s", NULL, {"m.onnx"}, 0},
    {"a log that is a folder", 1, M "--log $IN --save s", NULL, {"folder"}, 0},
    {"a log in a folder that isn't there", 1, M "--log gone/log --save s", NULL, {"gone"}, 0},
    {"a log that is there", 2, M "--log $IN/there --save s", NULL, {"there", "--force"}, 0},
    {"weights below a file", 1, M "--save $IN/m.onnx/w --log l", NULL, {"m.onnx"}, 0},
    {"weights in a file", 1, M "--save $IN/m.onnx --log l", NULL, {"m.onnx"}, 0},
    {"gradients in a folder", 1, M "--dump-grads $IN --log l --save s", NULL, {"folder"}, 0},
    {"gradients that are there",
     2,
     M "--dump-grads $IN/there --log l --save s",
     NULL,
     {"there", "--force"},
     0},
    {"gradients where none can be",
     1,
     M "--dump-grads /proc/g --log l --save s",
     NULL,
     {"/proc"},
     0},
    {"an empty name", 1, M "--out=", NULL, {NULL}, 0},
    {"the program's own model, forced",
     2,
     M "--log $IN/m.onnx --save s --force",
     NULL,
     {"m.onnx is the model itself"},
     0},
    {"its data, forced",
     2,
     M "--dump-grads $IN/x.npy --force --log l --save s",
     NULL,
     {"x.npy is what the run reads"},
     0},
    {"log and gradients in one file",
     2,
     M "--log f --dump-grads f --save s",
     NULL,
     {"one file"},
     0},
    {"a report and a profile in one file",
     2,
     M "--report f --profile f --out o",
     NULL,
     {"one file"},
     0},
    {"weights wanted and not", 2, M "--save s --no-save", NULL, {"--save and --no-save"}, 0},
    {"a plan and a report in one file", 2, P "-o f --report f", NULL, {"one file"}, 0},
    {"a plan over what isn't zerox's",
     2,
     P "-o $IN/there",
     NULL,
     {"there exists already", "--force"},
     0},
    {"JSON likewise", 2, P "--format json -o $IN/there", NULL, {"there exists already"}, 0},
    {"decisions likewise",
     2,
     P "--policy hooks --format decisions -o $IN/there",
     NULL,
     {"there exists already"},
     0},
    {"all ways likewise", 2, P "--auto --format json -o $IN/there", NULL, {"there exists"}, 0},
    {"a simulation likewise",
     2,
     "simulate $IN/m.onnx --machine v100x4 -o $IN/there",
     NULL,
     {"there exists already"},
     0},
    {"a report likewise", 2, P "--report $IN/there", NULL, {"there exists already"}, 0},
    {"a comparison's likewise",
     2,
     "compare $IN/m.onnx --ranks 2 --report $IN/there",
     NULL,
     {"there exists already"},
     0},
    {"a profile likewise", 2, M "--profile $IN/there --out o", NULL, {"there exists already"}, 0},
    {"a backend of another machine", 2, P "--backend cpu --machine h100", NULL, {"--backend"}, 0},
    {"the same, spelled differently", 2, P "-o f --report ./f", NULL, {"one file"}, 0},
    {"a report that is there", 2, M "--report $IN/x.npy --out o", NULL, {"x.npy"}, 0},
    {"a new model where none can be", 1, "new mlp -o $IN/m.onnx/new.onnx", NULL, {"m.onnx"}, 0},
    {"a new model that is there", 2, "new mlp -o $IN/m.onnx", NULL, {"m.onnx", "--force"}, 0},
    {"a new model in a folder", 1, "new mlp -o $IN", NULL, {"folder"}, 0},
    {"a new model of no family", 2, "new gtp2", NULL, {"gtp2"}, 0},
    {"a new model of 2^60 layers",
     2,
     "new mlp --set layers=1152921504606846976",
     NULL,
     {"layers"},
     0},
    {"a new model whose mask is too large",
     2,
     "new gpt2 --set sequence=99999",
     NULL,
     {"99999 x 99999 numbers", "32768 is the most"},
     0},
    {"the same by its context", 2, "new llama --set context=40000", NULL, {"40000 x 40000"}, 0},
    {"a new model of no layers", 2, "new mlp --set layers=0", NULL, {"layers"}, 0},
};

// ---- a run's files ------------------------------------------------------------------------------

static void existing_files_stay(void **state)
{
    (void)state;
    bad_result r;
    bad_run(M "--steps 1 --out o", &r);
    bad_expect(&r, 0, NULL);
    size_t n = 0, m = 0;
    char *was = bad_read("o/log.jsonl", &n);
    bad_run(M "--steps 1 --out o", &r);
    bad_expect(&r, 2, "--force");
    bad_format(&r);
    char *is = bad_read("o/log.jsonl", &m);
    assert_int_equal(n, m);
    assert_memory_equal(was, is, n);
    free(was);
    free(is);
    bad_run(M "--steps 1 --out o --force", &r);
    bad_expect(&r, 0, NULL);
    // What the new run doesn't write isn't there from the old one.
    assert_int_equal(access("o/model.safetensors", F_OK), 0);
    bad_run(M "--steps 1 --out o --force --no-save --log l", &r);
    bad_expect(&r, 0, NULL);
    assert_int_not_equal(access("o/model.safetensors", F_OK), 0);
    assert_int_not_equal(access("o/log.jsonl", F_OK), 0);
    assert_int_equal(access("o/plan.txt", F_OK), 0);
    bad_clear();
}

static void devices_and_pipes_are_accepted(void **state)
{
    (void)state;
    bad_result r;
    bad_run(M "--steps 3 --log /dev/null --dump-grads /dev/null --save s --force", &r);
    bad_expect(&r, 0, NULL);
    bad_clear();
    assert_int_equal(mkfifo("pipe", 0666), 0);
    const pid_t pid = bad_start(M "--steps 3 --log pipe --save s --force");
    char *log = bad_read("pipe", NULL); // until the writer closes it
    bad_end(pid, &r);
    bad_expect(&r, 0, NULL);
    assert_non_null(strstr(log, "{\"step\": 3, "));
    free(log);
    bad_nothing_left(false);
    bad_clear();
}

static void a_full_device_is_said(void **state)
{
    (void)state;
    static const char *const args[] = {
        M "--steps 3 --log /dev/full --out o",
        M "--steps 3 --log /dev/full --out o --ranks 3",
        M "--steps 3 --dump-grads /dev/full --out o",
        M "--steps 3 --dump-grads /dev/full --out o --ranks 3",
        M "--steps 2 --report /dev/full --out o --ranks 2",
        M "--steps 2 --profile /dev/full --out o --ranks 2",
        "plan $IN/m.onnx -o /dev/full",
        "plan $IN/m.onnx --format json -o /dev/full",
        "plan $IN/m.onnx --report /dev/full",
        "compare $IN/m.onnx --ranks 2 --policies zerox,ddp --report /dev/full",
    };
    for (size_t i = 0; i < ZX_COUNT(args); i++) {
        bad_result r;
        bad_run(args[i], &r);
        bad_expect(&r, 1, "cannot write /dev/full: No space left on device");
        bad_format(&r);
        bad_nothing_left(false);
        bad_clear();
    }
}

// ---- a full disk --------------------------------------------------------------------------------

static uint32_t count_temporary(const char *folder)
{
    char command[256], text[64] = "";
    snprintf(command, sizeof command, "find %s -name '*tmp*' -o -name '.zerox*' | wc -l", folder);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    pclose(f);
    return (uint32_t)atoi(text);
}

// What is there is whole: weights that can be read to their end, or no weights.
static void whole_or_absent(const char *path)
{
    size_t n = 0;
    char *bytes = bad_read(path, &n);
    if (bytes == NULL) return;
    uint64_t header = 0;
    assert_true(n > 8);
    memcpy(&header, bytes, 8);
    assert_true(header < n && bytes[8] == '{');
    free(bytes);
}

// Every size of disk from nothing to enough: whatever write is the one that fails, it is said, and
// no file is half.
static void a_full_disk_leaves_nothing_half(void **state)
{
    (void)state;
    static const char *const ranks[] = {"1", "3"};
    if (geteuid() != 0) skip();
    for (uint32_t kib = 4; kib <= 100; kib += 12) {
        bad_result r;
        char options[64], args[256];
        snprintf(options, sizeof options, "size=%uk", kib);
        assert_int_equal(mkdir("disk", 0777), 0);
        if (mount("zerox-test", "disk", "tmpfs", 0, options) != 0) {
            rmdir("disk");
            skip(); // a container without the right to mount
        }
        snprintf(args, sizeof args, M "--steps 2 --out disk/o --dump-grads disk/g --ranks %s",
                 ranks[kib / 12 % 2]);
        bad_run(args, &r);
        const uint32_t temporary = count_temporary("disk");
        whole_or_absent("disk/o/model.safetensors");
        whole_or_absent("disk/g");
        umount2("disk", MNT_DETACH);
        rmdir("disk");
        assert_int_equal(temporary, 0);
        if (r.code == 0) return; // it all fitted: so does more
        bad_expect(&r, 1, "No space left on device");
        bad_format(&r);
        bad_nothing_left(true);
    }
    fail_msg("it never fitted");
}

// The same by the limit on the size of a file, which anybody can set. The signal that comes with
// it is ignored, as shells' jobs may have it; where it isn't, the run still ends by itself.
static void a_file_too_large(void **state)
{
    (void)state;
    // One rank fails at the weights, two at the memory that they share.
    static const char *const args[] = {"train $IN/wide.onnx --steps 1 --out o",
                                       "train $IN/wide.onnx --steps 1 --out o --ranks 2"};
    for (int i = 0; i < 4; i++) {
        bad_result r;
        struct rlimit limit, small;
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
        small = limit;
        small.rlim_cur = 8192;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        signal(SIGXFSZ, i / 2 ? SIG_IGN : SIG_DFL);
        const pid_t pid = bad_start(args[i % 2]);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        signal(SIGXFSZ, SIG_DFL);
        bad_end(pid, &r);
        bad_expect(&r, i % 2 == 0 ? 1 : 4, "File too large");
        bad_format(&r);
        assert_int_equal(count_temporary("o"), 0);
        whole_or_absent("o/model.safetensors");
        assert_int_not_equal(access("o/model.safetensors", F_OK), 0);
        bad_nothing_left(false);
        bad_clear();
    }
}

// A folder that may not be written: root writes everywhere but on what is mounted read-only.
static void a_read_only_folder(void **state)
{
    (void)state;
    bad_result r;
    if (geteuid() != 0) skip();
    assert_int_equal(mkdir("disk", 0777), 0);
    if (mount("zerox-test", "disk", "tmpfs", MS_RDONLY, "size=64k") != 0) {
        rmdir("disk");
        skip();
    }
    bad_run(M "--steps 2 --out disk/o", &r);
    bad_result s = r;
    umount2("disk", MNT_DETACH);
    rmdir("disk");
    bad_expect(&s, 1, "Read-only file system");
    bad_format(&s);
    bad_nothing_left(true);
}

// ---- standard streams ---------------------------------------------------------------------------

static int by_shell(const char *line)
{
    char command[2048];
    snprintf(command, sizeof command, "Z=%s; IN=%s; { %s; } >out 2>err", ZX_PROGRAM, bad_in, line);
    const int status = system(command); // NOLINT: this is what is tested
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void who_looks_may_leave(void **state)
{
    (void)state;
    // What is printed has a reader for one line only; the run goes on.
    assert_int_equal(by_shell("bash -c '$0 train $1/m.onnx --steps 40 --out o 2>&1 | head -n 1; "
                              "exit ${PIPESTATUS[0]}' $Z $IN"),
                     0);
    assert_int_equal(access("o/model.safetensors", F_OK), 0);
    bad_clear();
    assert_int_equal(by_shell("$Z train $IN/m.onnx --steps 2 --out o --ranks 2 <&- >&- 2>&-"), 0);
    char *log = bad_read("o/log.jsonl", NULL), *second = strstr(log, "{\"step\": 2, ");
    assert_int_equal(strncmp(log, "{\"step\": 1, ", 12), 0);
    assert_non_null(second);
    assert_string_equal(strchr(second, '\n'), "\n"); // nothing printed went into it
    free(log);
    bad_clear();
    assert_int_equal(by_shell("$Z plan $IN/m.onnx >/dev/full"), 1);
    char *err = bad_read("err", NULL);
    assert_non_null(strstr(err, "zerox: cannot write to standard output: No space left"));
    free(err);
    bad_clear();
    assert_int_equal(by_shell("$Z plan $IN/m.onnx >&-"), 1);
    assert_int_equal(by_shell("$Z check $IN/m.onnx >/dev/full"), 1);
    bad_clear();
    assert_int_equal(by_shell("$Z plan $IN/m.onnx -o a && $Z plan $IN/m.onnx --ranks 2 -o b"), 0);
    assert_int_equal(by_shell("$Z diff a b"), 1);
    assert_int_equal(by_shell("$Z diff a b >/dev/full"), 2);
    bad_clear();
}

static void names_are_shown_harmless(void **state)
{
    (void)state;
    static const char *const args[] = {
        "train $IN/m\x1b[2J.onnx --steps 2 --ranks 2 --out o\x1b[2J --report r\x1b[2J",
        "train $IN/m\x1b[2J.onnx --steps 600 --out o --log l\x1b[2J --no-save",
        "compare $IN/m\x1b[2J.onnx --ranks 2 --policies zerox,ddp --execute --steps 9 --report "
        "c\x1b[2J",
        "plan $IN/m\x1b[2J.onnx --ranks 2",
        "simulate $IN/m\x1b[2J.onnx --machine h100x2",
    };
    for (size_t i = 0; i < ZX_COUNT(args); i++) {
        bad_result r;
        bad_run(args[i], &r);
        assert_int_equal(r.code, 0);
        for (const char *text = r.err; text != NULL; text = text == r.err ? r.out : NULL)
            for (const char *c = text; *c != '\0'; c++)
                if (*c == '\x1b') fail_msg("an escape in: %s", text);
        bad_nothing_left(false);
        bad_clear();
    }
}

static int clear(void **state)
{
    (void)state;
    bad_clear();
    return 0;
}

static int setup(void **state)
{
    if (bad_setup(state) != 0) return 1;
    model_data();
    model_write("m.onnx", "", NULL);
    model_write("m\x1b[2J.onnx", "", NULL);
    bad_text("there", "mine\n");
    // More weights than a file of 8 KiB holds: [3, 3000] and [3000, 3] between logits and loss.
    model_write("wide.onnx",
                "u:f32[3,3000]=0.01; v:f32[3000,3]=0.02; m=MatMul(logits,u); "
                "h=MatMul(m,v)",
                NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test_setup(existing_files_stay, clear),
        cmocka_unit_test_setup(devices_and_pipes_are_accepted, clear),
        cmocka_unit_test_setup(a_full_device_is_said, clear),
        cmocka_unit_test_setup(a_full_disk_leaves_nothing_half, clear),
        cmocka_unit_test_setup(a_file_too_large, clear),
        cmocka_unit_test_setup(a_read_only_folder, clear),
        cmocka_unit_test_setup(who_looks_may_leave, clear),
        cmocka_unit_test_setup(names_are_shown_harmless, clear),
    };
    struct CMUnitTest tests[ZX_COUNT(rows) + ZX_COUNT(others)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, bad_row_test, &rows[i]);
    memcpy(tests + ZX_COUNT(rows), others, sizeof others);
    return cmocka_run_group_tests(tests, setup, bad_teardown);
}
