// test_mutated_files.c - configs and data with something changed, read as `train` reads them: up to
// the train graph. Whatever was changed, the answer is a status and a sentence.
// SPDX-License-Identifier: Apache-2.0
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/cmd.h"
#include "tests/bad/bad.h"
#include "tests/bad/models.h"

static uint64_t state_of_random;

static uint64_t next(void)
{
    uint64_t z = (state_of_random += UINT64_C(0x9E3779B97F4A7C15)); // splitmix64
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static size_t below(size_t n)
{
    return n > 0 ? (size_t)(next() % n) : 0;
}

// ---- configs ------------------------------------------------------------------------------------

// A config that says much; `auto` and defaults are in it as well.
static const char rich[] =
    "{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 2,"
    " \"gradient_accumulation_steps\": 2, \"gradient_clipping\": 1.0, \"steps_per_print\": 10,"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001, \"betas\": [0.9, 0.95],"
    " \"eps\": 1e-8, \"weight_decay\": 0.1}},"
    " \"fp16\": {\"enabled\": false}, \"bf16\": {\"enabled\": \"auto\"},"
    " \"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true, \"reduce_bucket_size\": 5e8,"
    " \"stage3_max_live_parameters\": 1e9, \"stage3_prefetch_bucket_size\": \"auto\","
    " \"offload_param\": {\"device\": \"none\"}},"
    " \"zerox\": {\"data\": {\"x\": \"ones\", \"labels\": \"zeros\"}, \"dims\": {},"
    " \"seed\": 7, \"budget\": \"80%\", \"parameters\": [\"w\", \"b*\"], \"buffers\": [],"
    " \"batch_norm\": \"training\"}}";

static json_t *odd_value(void)
{
    static const char *const texts[] = {
        "", "auto", "none", "cpu", "0", "-1", "1e400", "w", "*", "copy:x", "min", "101%", "mse",
    };
    switch (below(12)) {
    case 0:
        return json_null();
    case 1:
        return json_true();
    case 2:
        return json_false();
    case 3:
        return json_integer(0);
    case 4:
        return json_integer((json_int_t)next());
    case 5:
        return json_integer(-(json_int_t)below(5));
    case 6:
        return json_real(0.5 * (double)below(9) - 1);
    case 7:
        return json_real(1e300);
    case 8:
        return json_array();
    case 9:
        return json_object();
    case 10:
        return json_pack("[s, i, []]", "x", 3);
    default:
        return json_string(texts[below(ZX_COUNT(texts))]);
    }
}

// Changes one value somewhere, renames or removes a key.
static void change_value(json_t *at)
{
    for (;;) {
        const size_t n = json_is_array(at) ? json_array_size(at) : json_object_size(at);
        if (n == 0) return;
        size_t k = below(n);
        if (json_is_array(at)) {
            json_t *inner = json_array_get(at, k);
            if (below(2) == 0 && (json_is_object(inner) || json_is_array(inner))) {
                at = inner;
                continue;
            }
            json_array_set_new(at, k, odd_value());
            return;
        }
        void *it = json_object_iter(at);
        for (; k > 0; k--) it = json_object_iter_next(at, it);
        json_t *inner = json_object_iter_value(it);
        if (below(4) > 0 && (json_is_object(inner) || json_is_array(inner))) {
            at = inner;
            continue;
        }
        char key[128];
        snprintf(key, sizeof key, "%s", json_object_iter_key(it));
        if (below(6) == 0) {
            json_object_del(at, key);
        } else if (below(6) == 0 && key[0] != '\0') {
            json_incref(inner);
            json_object_del(at, key);
            key[below(strlen(key))] = (char)('a' + below(26));
            json_object_set_new(at, key, inner);
        } else {
            json_object_set_new(at, key, odd_value());
        }
        return;
    }
}

static size_t change_config(char *out, size_t room)
{
    json_t *config = json_loads(rich, 0, NULL);
    assert_non_null(config);
    for (size_t k = 1 + below(3); k > 0; k--) change_value(config);
    const size_t n = json_dumpb(config, out, room, JSON_INDENT(1));
    json_decref(config);
    return n < room ? n : 0;
}

static size_t change_bytes(char *bytes, size_t n, size_t first)
{
    for (size_t k = 1 + below(4); k > 0 && n > 0; k--) {
        const size_t at = below(n < first ? n : first);
        switch (below(5)) {
        case 0:
            bytes[at] ^= (char)(1 << below(8));
            break;
        case 1:
            bytes[at] = (char)next();
            break;
        case 2:
            bytes[at] = "{}[]\",:'0-9.eE\\()"[below(17)];
            break;
        case 3:
            memmove(bytes + at, bytes + below(n), below(n - at > 8 ? 8 : n - at));
            break;
        default:
            n = below(3) == 0 ? at : n; // cut off
        }
        if (n == 0) break;
    }
    return n;
}

// ---- rows ---------------------------------------------------------------------------------------

typedef enum kind { CONFIG_VALUES, CONFIG_BYTES, NPY, LABELS, TOKENS } kind;

static const struct row {
    const char *name;
    kind kind;
    uint32_t n;
    const char *args[12];
} rows[] = {
    {"a config's values", CONFIG_VALUES, 1000, {"zerox", "train", "m", "--config", "f"}},
    {"a config's bytes", CONFIG_BYTES, 500, {"zerox", "train", "m", "--config", "f"}},
    {"samples", NPY, 500, {"zerox", "train", "m", "--data", "x=f.npy", "--data", "labels=zeros"}},
    {"labels", LABELS, 300, {"zerox", "train", "m", "--data", "x=ones", "--data", "labels=f.npy"}},
    {"tokens",
     TOKENS,
     200,
     {"zerox", "train", ZX_TEST_DATA "/cases/gpt2_dynamic/model.onnx", "--dim", "seq=8", "--data",
      "f.bin"}},
};

typedef struct progress {
    volatile uint32_t at, ok, refused;
} progress;

static void put_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(name, "wb");
    if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) _exit(99);
}

static void make_file(const struct row *row, uint32_t i, const char *npy, size_t n_npy)
{
    static char bytes[1 << 16];
    state_of_random = (uint64_t)row->kind << 32 | i;
    size_t n = 0;
    switch (row->kind) {
    case CONFIG_VALUES:
        put_file("f", bytes, change_config(bytes, sizeof bytes));
        return;
    case CONFIG_BYTES:
        memcpy(bytes, rich, sizeof rich - 1);
        put_file("f", bytes, change_bytes(bytes, sizeof rich - 1, sizeof rich));
        return;
    case NPY:
    case LABELS:
        memcpy(bytes, npy, n_npy);
        n = change_bytes(bytes, n_npy, 128); // of the header mostly
        put_file("f.npy", bytes, n);
        return;
    case TOKENS:
        memset(bytes, 0, 4096);
        memcpy(bytes, (const int32_t[3]){20240520, 1, 1536}, 12);
        put_file("f.bin", bytes, change_bytes(bytes, 4096, 24));
        return;
    }
}

static zx_status read_all(const struct row *row, zx_err *err)
{
    zx_arena mem = {0};
    zx_options o;
    zx_job job = {0};
    char *argv[12];
    int argc = 0;
    for (; row->args[argc] != NULL; argc++) argv[argc] = (char *)(uintptr_t)row->args[argc];
    zx_status st = zx_options_parse(argc, argv, &mem, &o, err);
    if (st == ZX_OK) st = zx_job_open(&job, &o, 3, false, err);
    if (st == ZX_OK) st = zx_job_import(&job, false, err);
    if (st == ZX_OK && zx_data_samples(job.data) > 0) { // the last sample is read
        static char to[1 << 16];
        const zx_feed feed = zx_data_feed(job.data);
        for (uint32_t i = 0; i < job.forward.n_inputs; i++)
            if (zx_type_bytes(&job.forward.values[job.forward.inputs[i]].type) <= sizeof to)
                feed.fill(feed.self, i, 3 * zx_data_epoch(job.data) - 1, to);
    }
    zx_job_close(&job);
    zx_arena_free(&mem);
    return st;
}

static void go_through(const struct row *row, progress *p)
{
    size_t n = 0;
    char *npy = bad_read(bad_path(row->kind == LABELS ? "labels.npy" : "x.npy"), &n);
    if (npy == NULL) _exit(99);
    for (uint32_t i = 0; i < row->n; i++) {
        zx_err err = {0};
        p->at = i;
        make_file(row, i, npy, n);
        alarm(HANG_SECONDS);
        const zx_status st = read_all(row, &err);
        alarm(0);
        p->ok += st == ZX_OK;
        p->refused += st != ZX_OK;
        if (st != ZX_OK && (err.n_causes == 0 || err.cause[0][0] == '\0')) _exit(98);
    }
    free(npy);
    _exit(0);
}

static void test_row(void **state)
{
    const struct row *row = *state;
    progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    *p = (progress){0};
    bad_clear();
    model_write("m.onnx", "", NULL);
    assert_int_equal(symlink(bad_path("m.onnx"), "m"), 0);
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) go_through(row, p);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0)
        fail_msg("change %u: %s %d", p->at, WIFSIGNALED(status) ? "ended by signal" : "exit code",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    print_message("  of %u: %u read, %u refused\n", row->n, p->ok, p->refused);
    assert_true(p->ok > row->n / 50);
    assert_true(p->refused > row->n / 50);
    munmap(p, sizeof *p);
}

static int setup(void **state)
{
    if (bad_setup(state) != 0) return 1;
    model_data();
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, test_row, &rows[i]);
    return cmocka_run_group_tests(tests, setup, bad_teardown);
}
