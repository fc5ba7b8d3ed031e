// test_data.c - sources of inputs: what they mean, which misfits are refused and in which words,
// and which samples a micro-batch gets.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/data.h"
#include "tests/test.h"

// ---- files to read ------------------------------------------------------------------------------

static void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

// An .npy file whose data are 0, 1, 2, ... in its type.
static void put_npy(const char *path, const char *descr, uint32_t width, const char *shape,
                    size_t n)
{
    char head[128];
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    const int len = snprintf(
        head + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    head[10 + len] = ' ';
    head[127] = '\n';
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(head, 1, sizeof head, f);
    for (size_t i = 0; i < n; i++) {
        const float x = (float)i;
        const double d = (double)i;
        const int64_t v = (int64_t)i;
        const uint16_t half = i < 2 ? (uint16_t)(i * 0x3C00) : 0x4000; // 0, 1, 2, 2, ...
        const void *bytes = descr[1] == 'i' || descr[1] == 'u' ? (const void *)&v
                            : width == 8                       ? (const void *)&d
                            : width == 2                       ? (const void *)&half
                                                               : (const void *)&x;
        fwrite(bytes, width, 1, f);
    }
    fclose(f);
}

static char folder[] = "/tmp/zerox-data-XXXXXX";

static int make_files(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    put_npy("x.npy", "<f4", 4, "(6, 3)", 18);
    put_npy("x64.npy", "<f8", 8, "(6, 3)", 18);
    put_npy("x16.npy", "<f2", 2, "(6, 3)", 18);
    put_npy("x4.npy", "<f4", 4, "(6, 4)", 24);
    put_npy("flat.npy", "<f4", 4, "(6,)", 6);
    put_npy("five.npy", "<f4", 4, "(5, 3)", 15);
    put_npy("none.npy", "<f4", 4, "(0, 3)", 0);
    put_npy("scalar.npy", "<f4", 4, "()", 1);
    put_npy("y.npy", "<i8", 8, "(6,)", 6);
    put_npy("ybyte.npy", "|u1", 1, "(6,)", 6);
    put_npy("ids.npy", "<i8", 8, "(6, 4)", 24);
    put_npy("wide.npy", "<i8", 8, "(200, 4)", 800);
    put_file("text.txt", "abcdefghijklmnopq", 17); // 4 windows of 4, also one token on
    put_file("short.txt", "abcdefgh", 8);          // 2 windows, 1 one token on
    put_file("tiny.txt", "abc", 3);
    put_file("empty.txt", "", 0);
    static unsigned char bin[1024 + 16];
    const int32_t head[3] = {20240520, 1, 8};
    memcpy(bin, head, sizeof head);
    for (uint16_t i = 0; i < 8; i++)
        memcpy(bin + 1024 + 2 * i, &(uint16_t){(uint16_t)(i + 1000)}, 2);
    put_file("gpt.bin", bin, sizeof bin);
    put_file("cut.bin", bin, sizeof bin - 2);
    put_file("raw.bin", bin + 1024, 16); // no header: uint16, or uint32 with :u32
    put_file("odd.bin", bin + 1024, 15);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : 1;
}

// ---- a model without a model --------------------------------------------------------------------

typedef struct input {
    const char *name;
    zx_dtype dtype;
    uint32_t rank;
    int64_t dim[2]; // of a micro-batch
} input;

typedef struct opened {
    zx_arena mem;
    zx_data *data;
    zx_graph graph;
    zx_notes notes;
    zx_err err;
} opened;

static uint32_t weight(zx_builder *b, const char *name, uint32_t rank, int64_t d0, int64_t d1,
                       int64_t d2, int64_t d3)
{
    const zx_type t = {ZX_F32, {rank, {d0, d1, d2, d3}}};
    return zx_build_param(b, &t, &(zx_param){.name = name});
}

// A node that reads an input of one of these names.
static void use_input(zx_builder *b, const char *name, uint32_t v)
{
    uint32_t out[2];
    if (strcmp(name, "of five classes") == 0) {
        const uint32_t in[] = {weight(b, "x", 3, 2, 3, 4, 0), weight(b, "w", 2, 5, 4, 0, 0), v};
        zx_build_node(b, ZX_OP_LINEAR_CROSS_ENTROPY, in, 3, (zx_attrs){0}, NULL, out, NULL);
    } else if (strcmp(name, "of seven positions") == 0) {
        const uint32_t cache = weight(b, "c", 2, 7, 1, 0, 0);
        const uint32_t in[] = {weight(b, "x", 4, 2, 1, 3, 2), cache, cache, v};
        zx_build_node(b, ZX_OP_ROTARY_EMBEDDING, in, 4, (zx_attrs){0}, NULL, out, NULL);
    }
}

// Opens data for inputs whose first dim is symbolic, then binds to a graph with just these inputs.
static zx_status open_data(opened *o, const input *in, const char *const *given, uint32_t per_step,
                           bool shuffle)
{
    zx_config c;
    zx_builder b;
    zx_input_decl decl[3];
    memset(decl, 0, sizeof decl);
    uint32_t n = 0, n_given = 0;
    while (n_given < 3 && given[n_given] != NULL) n_given++;
    zx_builder_start(&b, &o->mem, "test");
    for (; n < 3 && in[n].name != NULL; n++) {
        zx_type type = {in[n].dtype, {in[n].rank, {in[n].dim[0], in[n].dim[1]}}};
        decl[n] = (zx_input_decl){.name = in[n].name, .dtype = in[n].dtype, .rank = in[n].rank};
        decl[n].dim[0] = -1;
        decl[n].symbol[0] = "batch";
        decl[n].dim[1] = in[n].dim[1];
        use_input(&b, in[n].name, zx_build_input(&b, in[n].name, &type));
    }
    b.g.loss = ZX_NONE;
    zx_builder_done(&b, &o->graph);
    o->graph.loss = ZX_NONE;
    zx_status st = zx_config_read(NULL, false, &o->mem, &c, &o->notes, &o->err);
    const zx_data_request r = {.model = "elsewhere/m.onnx",
                               .n_inputs = n,
                               .inputs = zx_arena_copy(&o->mem, decl, sizeof decl),
                               .n_given = n_given,
                               .given = given,
                               .config = &c,
                               .seed = 1,
                               .shuffle = shuffle};
    if (st == ZX_OK) st = zx_data_open(&r, &o->mem, &o->data, &o->notes, &o->err);
    if (st == ZX_OK)
        st = zx_data_bind(o->data, &o->graph, in[0].dim[0], per_step, &o->notes, &o->err);
    zx_config_close(&c);
    return st;
}

static void close_data(opened *o)
{
    zx_data_close(o->data);
    zx_arena_free(&o->mem);
}

#define X3                                                                                         \
    {                                                                                              \
        "x", ZX_F32, 2,                                                                            \
        {                                                                                          \
            2, 3                                                                                   \
        }                                                                                          \
    }
#define IDS4                                                                                       \
    {                                                                                              \
        "input_ids", ZX_I64, 2,                                                                    \
        {                                                                                          \
            1, 4                                                                                   \
        }                                                                                          \
    }

static const struct row {
    const char *name;
    input in[3];
    const char *given[3];
    uint64_t micro;    // which micro-batch is looked at, of input 0
    double want[4];    // its first values
    const char *cause; // instead
    uint64_t epoch;    // steps
} rows[] = {
    {"a file", {X3}, {"x=x.npy"}, 1, {6, 7, 8, 9}, NULL, 3},
    {"past its end it begins again", {X3}, {"x=x.npy"}, 3, {0, 1, 2, 3}, NULL, 3},
    {"half to float", {X3}, {"x=x16.npy"}, 0, {0, 1, 2, 2}, NULL, 3},
    {"a file of doubles",
     {X3},
     {"x=x64.npy"},
     0,
     {0},
     "input 'x' is float32 [2, 3]; x64.npy holds float64 [6, 3] (samples along axis 0)",
     0},
    {"another width", {X3}, {"x=x4.npy"}, 0, {0}, "x4.npy holds float32 [6, 4]", 0},
    {"another rank", {X3}, {"x=flat.npy"}, 0, {0}, "flat.npy holds float32 [6]", 0},
    {"no samples", {X3}, {"x=none.npy"}, 0, {0}, "none.npy has no samples", 0},
    {"a single number", {X3}, {"x=scalar.npy"}, 0, {0}, "holds a single number", 0},
    {"fewer samples than a step",
     {{"x", ZX_F32, 2, {7, 3}}},
     {"x=x.npy"},
     0,
     {0},
     "6 samples are less than one step, which takes 7",
     0},
    {"no such file", {X3}, {"x=gone.npy"}, 0, {0}, "gone.npy", 0},
    {"bytes to int64", {{"y", ZX_I64, 1, {2}}}, {"y=ybyte.npy"}, 1, {2, 3}, NULL, 3},
    {"int64 to int32 where all fit", {{"y", ZX_I32, 1, {2}}}, {"y=y.npy"}, 2, {4, 5}, NULL, 3},
    {"int64 that doesn't fit a byte",
     {{"y", ZX_U8, 2, {2, 4}}},
     {"y=wide.npy"},
     0,
     {0},
     "element 256 of wide.npy is 256, which doesn't fit",
     0},
    {"integers for floats", {X3}, {"x=ids.npy"}, 0, {0}, "x", 0},
    {"different counts",
     {X3, {"y", ZX_I64, 1, {2}}},
     {"x=five.npy", "y=y.npy"},
     0,
     {0},
     "'x' has 5 samples (five.npy), 'y' has 6 (y.npy)",
     0},
    {"text is bytes", {IDS4}, {"input_ids=text.txt"}, 1, {'e', 'f', 'g', 'h'}, NULL, 4},
    {"one token on", {IDS4}, {"input_ids=text.txt:+1"}, 1, {'f', 'g', 'h', 'i'}, NULL, 4},
    {"windows and the next ones are cut to the shorter",
     {IDS4, {"labels", ZX_I64, 2, {1, 4}}},
     {"input_ids=short.txt", "labels=short.txt:+1"},
     0,
     {'a', 'b', 'c', 'd'},
     NULL,
     1},
    {"less than a window", {IDS4}, {"input_ids=tiny.txt"}, 0, {0}, "a window is 4 tokens", 0},
    {"nothing", {IDS4}, {"input_ids=empty.txt"}, 0, {0}, "no samples", 0},
    {"llm.c's header", {IDS4}, {"input_ids=gpt.bin"}, 1, {1004, 1005, 1006, 1007}, NULL, 2},
    {"a header that lies",
     {IDS4},
     {"input_ids=cut.bin"},
     0,
     {0},
     "its header promises 8 tokens",
     0},
    {"a header against :u32",
     {IDS4},
     {"input_ids=gpt.bin:u32"},
     0,
     {0},
     "its header says uint16",
     0},
    {"no header: uint16", {IDS4}, {"input_ids=raw.bin"}, 0, {1000, 1001, 1002, 1003}, NULL, 2},
    {"no header: uint32",
     {IDS4},
     {"input_ids=raw.bin:u32"},
     0,
     {1000 + 1001 * 65536.0, 1002 + 1003 * 65536.0},
     NULL,
     1},
    {"both suffixes",
     {{"input_ids", ZX_I64, 2, {1, 3}}},
     {"input_ids=raw.bin:u32:+1"},
     0,
     {1002 + 1003 * 65536.0, 1004 + 1005 * 65536.0},
     NULL,
     1},
    {"half a token", {IDS4}, {"input_ids=odd.bin"}, 0, {0}, "15 bytes are no whole number", 0},
    {"tokens for floats", {X3}, {"x=text.txt"}, 0, {0}, "holds uint8 tokens", 0},
    {"suffixes are for tokens", {X3}, {"x=x.npy:+1"}, 0, {0}, "not for .npy", 0},
    {"ones", {X3, {"y", ZX_I64, 1, {2}}}, {"x=ones", "y=y.npy"}, 5, {1, 1, 1, 1}, NULL, 3},
    {"arange counts along the last axis", {IDS4}, {"input_ids=arange"}, 5, {0, 1, 2, 3}, NULL, 0},
    {"a constant", {X3}, {"x=const:-2.5"}, 0, {-2.5, -2.5, -2.5, -2.5}, NULL, 0},
    {"a fraction for integers",
     {IDS4},
     {"input_ids=const:0.5"},
     0,
     {0},
     "const:0.5 doesn't fit",
     0},
    {"not a constant", {X3}, {"x=const:abc"}, 0, {0}, "const: needs a number", 0},
    {"a copy",
     {IDS4, {"labels", ZX_I64, 2, {1, 4}}},
     {"input_ids=copy:labels", "labels=text.txt"},
     0,
     {'a', 'b', 'c', 'd'},
     NULL,
     4},
    {"a copy of nothing", {X3}, {"x=copy:q"}, 0, {0}, "copy:q: there is no such input", 0},
    {"a copy of itself", {X3}, {"x=copy:x"}, 0, {0}, "copy of itself", 0},
    {"a bare file feeds tokens", {IDS4}, {"text.txt"}, 0, {'a', 'b', 'c', 'd'}, NULL, 4},
    {"a bare source that is no file", {IDS4}, {"synthetic"}, 0, {0}, "needs an input's name", 0},
    {"a bare file for no tokens",
     {X3},
     {"text.txt"},
     0,
     {0},
     "which input takes tokens isn't clear",
     0},
    {"an unknown input",
     {X3},
     {"xx=x.npy"},
     0,
     {0},
     "the model has no input 'xx'; the nearest is 'x'",
     0},
    {"twice", {X3}, {"x=x.npy", "x=ones"}, 0, {0}, "given twice", 0},
    {"nowhere",
     {X3, {"y", ZX_I64, 1, {2}}},
     {NULL},
     0,
     {0},
     "no data for 'x', 'y'; the inputs are x float32 [batch, 3]; y int64 [batch]",
     0},
    {"a mask has a default",
     {{"attention_mask", ZX_I64, 2, {2, 4}}},
     {NULL},
     0,
     {1, 1, 1, 1},
     NULL,
     0},
    {"positions have a default",
     {{"position_ids", ZX_I64, 2, {2, 4}}},
     {NULL},
     0,
     {0, 1, 2, 3},
     NULL,
     0},
};

static double value_at(const void *data, zx_dtype t, size_t i)
{
    if (t == ZX_F32) return ((const float *)data)[i];
    if (t == ZX_I32) return ((const int32_t *)data)[i];
    if (t == ZX_U8) return ((const uint8_t *)data)[i];
    return (double)((const int64_t *)data)[i];
}

static void test_row(void **state)
{
    const struct row *row = *state;
    opened o = {0};
    const zx_status st = open_data(&o, row->in, row->given, 1, false);
    if (row->cause != NULL) {
        assert_int_not_equal(st, ZX_OK);
        if (strstr(o.err.cause[0], row->cause) == NULL) fail_msg("said: %s", o.err.cause[0]);
        close_data(&o);
        return;
    }
    assert_zx_ok(st, &o.err);
    assert_int_equal(zx_data_epoch(o.data), row->epoch);
    const input *in = &row->in[0];
    const size_t n = (size_t)(in->dim[0] * (in->rank > 1 ? in->dim[1] : 1));
    int64_t to[64];
    const zx_feed feed = zx_data_feed(o.data);
    feed.fill(feed.self, 0, row->micro, to);
    for (size_t i = 0; i < n && i < 4; i++)
        if (value_at(to, in->dtype, i) != row->want[i] && !(i > 1 && row->want[i] == 0))
            fail_msg("element %zu is %g, not %g", i, value_at(to, in->dtype, i), row->want[i]);
    close_data(&o);
}

// A step of 2 micro-batches of 2 samples over 6 samples: 2 of them stay out of every epoch.
static void remainder_is_dropped_in_every_epoch(void **state)
{
    (void)state;
    opened o = {0};
    const input in[3] = {X3};
    const char *const given[3] = {"x=x.npy"};
    assert_zx_ok(open_data(&o, in, given, 2, false), &o.err);
    assert_int_equal(zx_data_samples(o.data), 6);
    assert_int_equal(zx_data_epoch(o.data), 1);
    bool said = false;
    for (uint32_t i = 0; i < o.notes.n; i++)
        said |= strstr(o.notes.text[i], "2 of 6 samples are left out") != NULL;
    assert_true(said);
    float to[6];
    const zx_feed feed = zx_data_feed(o.data);
    feed.fill(feed.self, 0, 3, to); // second epoch's second micro-batch
    assert_true(to[0] == 6);
    close_data(&o);
}

static void shuffled_epochs_are_permutations(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 40; n++) {
        uint64_t seen = 0, other = 0, moved = 0;
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t p = zx_data_permute(3, 7, n, i);
            assert_true(p < n);
            seen |= UINT64_C(1) << p;
            other += p != zx_data_permute(3, 8, n, i);
            moved += p != i;
        }
        assert_true(seen == (UINT64_C(1) << n) - 1);
        if (n > 20) assert_true(other > n / 2 && moved > n / 2);
    }
    opened o = {0};
    const input in[3] = {X3};
    const char *const given[3] = {"x=x.npy"};
    assert_zx_ok(open_data(&o, in, given, 1, true), &o.err);
    const zx_feed feed = zx_data_feed(o.data);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        unsigned seen = 0;
        for (uint64_t m = 0; m < 3; m++) {
            float to[6];
            feed.fill(feed.self, 0, 3 * epoch + m, to);
            for (size_t j = 0; j < 2; j++) seen |= 1u << (unsigned)(to[3 * j] / 3);
        }
        assert_int_equal(seen, 63);
    }
    close_data(&o);
}

static void synthetic_is_a_function_of_the_sample(void **state)
{
    (void)state;
    opened o = {0};
    const input in[3] = {X3, {"mask", ZX_I64, 2, {2, 3}}};
    const char *const given[3] = {"x=synthetic", "mask=synthetic"};
    assert_zx_ok(open_data(&o, in, given, 1, false), &o.err);
    const zx_feed feed = zx_data_feed(o.data);
    float a[6], b[6];
    int64_t m[6], ones = 0;
    double mean = 0;
    feed.fill(feed.self, 0, 4, a);
    feed.fill(feed.self, 0, 4, b);
    assert_memory_equal(a, b, sizeof a);
    feed.fill(feed.self, 0, 5, b);
    assert_memory_not_equal(a, b, sizeof a);
    for (uint64_t micro = 0; micro < 500; micro++) {
        feed.fill(feed.self, 0, micro, a);
        feed.fill(feed.self, 1, micro, m);
        for (size_t i = 0; i < 6; i++) {
            mean += (double)a[i];
            assert_in_range(m[i], 0, 1); // nothing is indexed with it: a mask
            ones += m[i];
        }
    }
    assert_true(mean / 3000 < 0.1 && mean / 3000 > -0.1);
    assert_in_range(ones, 1300, 1700);
    close_data(&o);
}

// Made integers reach all of what they index, and no further.
static void synthetic_indices_fit(void **state)
{
    (void)state;
    opened o = {0};
    const input in[3] = {{"of five classes", ZX_I64, 2, {2, 3}},
                         {"of seven positions", ZX_I64, 2, {2, 3}}};
    const char *const given[3] = {"of five classes=synthetic", "of seven positions=synthetic"};
    assert_zx_ok(open_data(&o, in, given, 1, false), &o.err);
    const zx_feed feed = zx_data_feed(o.data);
    for (uint32_t k = 0; k < 2; k++) {
        int64_t most = 0, to[6];
        for (uint64_t micro = 0; micro < 100; micro++) {
            feed.fill(feed.self, k, micro, to);
            for (size_t i = 0; i < 6; i++) most = to[i] > most ? to[i] : most;
        }
        assert_int_equal(most, k == 0 ? 4 : 6);
    }
    close_data(&o);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 4];
    size_t n = 0;
    for (; n < ZX_COUNT(rows); n++) tests[n] = zx_case(rows[n].name, test_row, &rows[n]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(remainder_is_dropped_in_every_epoch);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(shuffled_epochs_are_permutations);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(synthetic_is_a_function_of_the_sample);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(synthetic_indices_fit);
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
