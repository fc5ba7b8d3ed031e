// test_mutations.c - real models with something changed, taken as far as they go (see
// tests/fuzz/fuzz_import.c): whatever was changed, the answer is a status, never a crash or a hang.
//
// Each row's changes follow from the row alone. One that fails is run again by itself with
// ZX_MUTATION=ROW:NUMBER, which also writes the changed model to /tmp/zerox-mutation.onnx.
// SPDX-License-Identifier: Apache-2.0
#define ZX_FUZZ_IN_TEST
#include "tests/fuzz/fuzz_import.c" // the same code that libFuzzer drives

#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bad/bad.h"

typedef enum kind { STRUCTURE, BYTES, CUT } kind;

static const struct row {
    const char *name, *path;
    kind kind;
    uint32_t n;
} rows[] = {
    {"mlp, parts changed", ZX_TEST_DATA "/cases/mlp/model.onnx", STRUCTURE, 500},
    {"convnet, parts changed", ZX_TEST_DATA "/cases/convnet/model.onnx", STRUCTURE, 500},
    {"gpt2, parts changed", ZX_TEST_DATA "/cases/gpt2_dynamic/model.onnx", STRUCTURE, 150},
    {"gpt2 that shifts, parts changed", ZX_TEST_DATA "/cases/gpt2_hf_loss/model.onnx", STRUCTURE,
     150},
    {"llama, parts changed", ZX_TEST_DATA "/cases/llama/model.onnx", STRUCTURE, 120},
    {"bert, parts changed", ZX_TEST_DATA "/cases/bert/model.onnx", STRUCTURE, 150},
    {"vit, parts changed", ZX_TEST_DATA "/cases/vit/model.onnx", STRUCTURE, 250},
    {"mlp, bytes changed", ZX_TEST_DATA "/cases/mlp/model.onnx", BYTES, 400},
    {"convnet, bytes changed", ZX_TEST_DATA "/cases/convnet/model.onnx", BYTES, 400},
    {"gpt2, bytes changed", ZX_TEST_DATA "/cases/gpt2_dynamic/model.onnx", BYTES, 80},
    {"mlp, cut off", ZX_TEST_DATA "/cases/mlp/model.onnx", CUT, 300},
    {"llama, cut off", ZX_TEST_DATA "/cases/llama/model.onnx", CUT, 100},
};

typedef struct progress { // shared with the process that does the work
    volatile uint32_t at;
    volatile uint32_t got[TRAINED + 1];
} progress;

// Flipped, copied or overwritten bytes, more of them where the model isn't weights: those change
// nothing but numbers.
static size_t change_bytes(uint64_t seed, const uint8_t *in, size_t n, uint8_t *out)
{
    mutate m = {.state = seed};
    memcpy(out, in, n);
    for (size_t k = 1 + mutate_below(&m, 8); k > 0; k--) {
        size_t at = 0;
        for (int again = 0; again < 16; again++) { // text has few bytes above 127 around it
            at = mutate_below(&m, n - 16);
            int plain = 0;
            for (size_t i = 0; i < 16; i++) plain += out[at + i] >= 32 && out[at + i] < 127;
            if (plain > 6) break;
        }
        switch (mutate_below(&m, 4)) {
        case 0:
            out[at] ^= (uint8_t)(1u << mutate_below(&m, 8));
            break;
        case 1:
            out[at] = (uint8_t)mutate_random(&m);
            break;
        case 2:
            out[at] = 0xff;
            break;
        default:
            memmove(out + at, out + mutate_below(&m, n - 16), 1 + mutate_below(&m, 8));
        }
    }
    return n;
}

static size_t change(const struct row *row, uint32_t i, const uint8_t *in, size_t n, uint8_t *out)
{
    const uint64_t seed = (uint64_t)(row - rows) << 32 | i;
    mutate m = {.state = seed};
    switch (row->kind) {
    case STRUCTURE:
        return mutate_model(seed, in, n, out, 2 * n);
    case BYTES:
        return change_bytes(seed, in, n, out);
    case CUT:
        break;
    }
    const size_t left = mutate_below(&m, n);
    memcpy(out, in, left);
    return left;
}

static void go_through(const struct row *row, uint32_t from, uint32_t to, progress *p)
{
    size_t n = 0;
    uint8_t *in = (uint8_t *)bad_read(row->path, &n), *out = malloc(2 * n);
    if (in == NULL || out == NULL) _exit(99);
    for (uint32_t i = from; i < to; i++) {
        zx_err err = {0};
        p->at = i;
        const size_t size = change(row, i, in, n, out);
        alarm(HANG_SECONDS);
        const int got = fuzz_import(out, size, &err);
        alarm(0);
        p->got[got]++;
        // What was refused was refused with a sentence, of one line.
        if (got != TRAINED && got != NOT_DIFFERENTIATED && err.n_causes == 0) _exit(98);
        if (err.n_causes > 0 && strchr(err.cause[0], '\n') != NULL) _exit(97);
    }
    free(in);
    free(out);
    _exit(0);
}

static void test_row(void **state)
{
    const struct row *row = *state;
    progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    *p = (progress){0};
    fflush(NULL);
    const pid_t pid = fork(); // one process a row: a crash costs no other row
    assert_true(pid >= 0);
    if (pid == 0) go_through(row, 0, row->n, p);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0)
        fail_msg("ZX_MUTATION=%d:%u %s %d", (int)(row - rows), p->at,
                 WIFSIGNALED(status) ? "ended by signal" : "exit code",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    print_message("  of %u: %u no model, %u not imported, %u without gradients, %u not planned, "
                  "%u failed in a step, %u trained\n",
                  row->n, p->got[NOT_OPENED], p->got[NOT_IMPORTED], p->got[NOT_DIFFERENTIATED],
                  p->got[NOT_PLANNED], p->got[NOT_TRAINED], p->got[TRAINED]);
    // A list of changes that never gets past the front door shows nothing.
    if (row->kind == STRUCTURE) {
        assert_true(p->got[TRAINED] > row->n / 10);
        assert_true(p->got[NOT_IMPORTED] > row->n / 10);
    }
    munmap(p, sizeof *p);
}

static int once(const char *what)
{
    uint32_t r = 0, i = 0;
    if (sscanf(what, "%u:%u", &r, &i) != 2 || r >= ZX_COUNT(rows)) return 2;
    size_t n = 0;
    uint8_t *in = (uint8_t *)bad_read(rows[r].path, &n), *out = malloc(2 * n);
    if (in == NULL || out == NULL) return 1;
    const size_t size = change(&rows[r], i, in, n, out);
    FILE *f = fopen("/tmp/zerox-mutation.onnx", "wb");
    if (f == NULL || fwrite(out, 1, size, f) != size || fclose(f) != 0) return 1;
    zx_err err = {0};
    printf("got %d: %s\n", fuzz_import(out, size, &err), err.cause[0]);
    free(in);
    free(out);
    return 0;
}

int main(void)
{
    if (getenv("ZX_MUTATION") != NULL) return once(getenv("ZX_MUTATION"));
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, test_row, &rows[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
