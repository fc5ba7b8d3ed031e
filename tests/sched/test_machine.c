// test_machine.c - machines as numbers: curves, rows by name, links, JSON there and back.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sched/machine.h"
#include "sched/trace.h"
#include "tests/sched/graphs.h"

static bool near(double a, double b, double part)
{
    return fabs(a - b) <= part * fabs(b);
}

// ---- curves -------------------------------------------------------------------------------------

// 10 B/s at 100 bytes, 30 B/s at 10,000.
static const struct curve_case {
    const char *name;
    double bytes, seconds;
} curves[] = {
    {"below the first point: its time", 1, 10},
    {"the first point", 100, 10},
    {"half way in the logarithms", 1000, 57.7350269189625764},
    {"the last point", 10000, 10000.0 / 30},
    {"beyond the last point: its rate", 30000, 1000},
};

static void test_curve(void **state)
{
    const struct curve_case *k = *state;
    const zx_curve c = {2, {100, 10000}, {10, 10000.0 / 30}};
    assert_true(near(zx_curve_seconds(&c, k->bytes), k->seconds, 1e-12));
    assert_true(zx_curve_seconds(&(zx_curve){0}, k->bytes) == 0);
}

// ---- rows ---------------------------------------------------------------------------------------

static const struct row_case {
    const char *name;
    uint32_t ranks;
    const char *found; // NULL: refused
    const char *says;
} rows[] = {
    {"h100x32", 0, "h100x32", NULL},
    {"h100", 32, "h100x32", NULL},
    {"h100x32", 32, "h100x32", NULL},
    {"h100", 0, "h100x8", NULL},
    {"h100-1x16", 0, "h100-1x16", NULL},
    {"h100x4", 0, "h100x4", NULL},
    {"a100x8", 0, "a100-80x8", NULL},
    {"v100", 8, "v100x8", NULL},
    {"h200x64", 0, "h200x64", NULL},
    {"b200x32", 0, "b200x32", NULL},
    {"h100x32", 16, NULL, "of 32 ranks, not 16"},
    {"h100x12", 0, NULL, "12 ranks don't fill whole nodes"},
    {"h100x0", 0, NULL, "outside 1 to"},
    {"h100x999999999", 0, NULL, "outside 1 to"},
    {"h10", 0, NULL, "the nearest is 'h100'"},
    {"", 0, NULL, "there is no machine ''"},
    {"x8", 0, NULL, "there is no machine 'x8'"},
    {"h100x", 0, NULL, "there is no machine 'h100x'"},
    {"\x1b[2J", 8, NULL, "there is no machine '\\x1b[2J'"},
};

static void test_row(void **state)
{
    const struct row_case *k = *state;
    zx_machine m;
    zx_err err = {0};
    const zx_status st = zx_machine_find(k->name, k->ranks, &m, &err);
    if (k->found == NULL) {
        assert_int_equal(st, ZX_E_USAGE);
        if (strstr(err.cause[0], k->says) == NULL) fail_msg("%s", err.cause[0]);
        return;
    }
    assert_zx_ok(st, &err);
    assert_string_equal(m.name, k->found);
    assert_true(m.flops_16 > m.flops && m.memory > 0 && m.device_bytes > 0 && !m.host);
    for (uint32_t i = 0; i + 1 < m.gather.n; i++)
        assert_true(m.gather.seconds[i] <= m.gather.seconds[i + 1] &&
                    m.reduce.seconds[i] <= m.reduce.seconds[i + 1]);
}

static double gather_of(const char *name, double bytes)
{
    zx_machine m;
    zx_err err = {0};
    assert_zx_ok(zx_machine_find(name, 0, &m, &err), &err);
    return zx_gather_seconds(&m, m.ranks, (uint64_t)bytes);
}

static double reduce_of(const char *name, double bytes)
{
    zx_machine m;
    zx_err err = {0};
    assert_zx_ok(zx_machine_find(name, 0, &m, &err), &err);
    return zx_reduce_seconds(&m, m.ranks, (uint64_t)bytes);
}

// Against the formula that the rows stand for: latency + (n - 1) / n * S / rate.
static void test_links(void **state ZX_UNUSED)
{
    const double mib = 1048576.0;
    for (double s = 0.25 * mib; s < 4096 * mib; s *= 1.7) {
        assert_true(near(gather_of("h100x8", s), 162.7e-6 + s * 7 / 8 / 386e9, 0.015));
        assert_true(near(gather_of("h100x32", s), 272.7e-6 + s * 31 / 32 / 328e9, 0.015));
        assert_true(near(reduce_of("h100x32", s), 259e-6 + s * 31 / 32 / 369e9, 0.015));
        // Half way from 1 to 4 nodes is no row of the reduces: a third of the way from 1.
        const double one = 168e-6 + s * 15 / 16 / 392e9, four = 259e-6 + s * 15 / 16 / 369e9;
        assert_true(near(reduce_of("h100x16", s), one + (four - one) / 3, 0.015));
    }
    // Beyond 32 nodes the latency grows on: by (870.8 - 526.5) / 16 us a node.
    assert_true(
        near(gather_of("h100x512", 4096), 870.8e-6 + 32 * (870.8 - 526.5) / 16 * 1e-6, 1e-3));
    assert_true(near(gather_of("h100-1x16", 2048 * 16 * mib), 671e-3, 0.02));
    // As measured: 36, 255 and 846 GB/s.
    assert_true(near(gather_of("b200x8", mib), mib * 7 / 8 / 36e9, 1e-9));
    assert_true(near(gather_of("b200x8", 16 * mib), 16 * mib * 7 / 8 / 255e9, 1e-9));
    assert_true(near(gather_of("b200x8", 65536 * mib), 65536 * mib * 7 / 8 / 846e9, 1e-9));
    assert_true(gather_of("b200x16", mib) > gather_of("b200x8", mib));
    assert_true(gather_of("b200x16", mib) < gather_of("b200x32", mib));
    assert_true(gather_of("h100x1", mib) == 0);
}

static void test_host(void **state ZX_UNUSED)
{
    const zx_machine one = zx_machine_host(1, 1), four = zx_machine_host(1, 4);
    assert_true(four.flops == 4 * one.flops);
    assert_true(four.memory > one.memory && four.memory < 4 * one.memory);
    assert_true(one.host && one.cores == 1 && four.cores == 4);
}

// A link's bytes, and what a core does for them beside it: the longer of the two.
static void test_link(void **state ZX_UNUSED)
{
    zx_machine m = zx_machine_host(2, 1);
    m.copy = 8e9;
    m.sum = 4e9;
    zx_machine_link(&m, 0.5e9, 0.2e-3);
    assert_true(near(zx_gather_seconds(&m, 2, 100000000), 0.2e-3 + 0.1, 1e-12));
    assert_true(near(zx_allreduce_seconds(&m, 2, 100000000), 0.2e-3 + 0.2, 1e-12));
    zx_machine_link(&m, 1e12, 0.2e-3);
    assert_true(near(zx_gather_seconds(&m, 2, 100000000), 1e8 / 8e9, 1e-12));
    assert_true(near(zx_reduce_seconds(&m, 2, 100000000), 1e8 / 4e9, 1e-12));
    assert_true(near(zx_allreduce_seconds(&m, 2, 100000000), 1e8 / 4e9 + 0.5e8 / 8e9, 1e-12));
    assert_true(zx_gather_seconds(&m, 1, 100000000) == 0);
}

// As large a part of TF32's peak as 16-bit operands achieve of theirs; a V100 has no TF32.
static void test_tf32(void **state ZX_UNUSED)
{
    static const char *const names[] = {"a100", "v100"};
    for (size_t i = 0; i < ZX_COUNT(names); i++) {
        zx_machine m, had;
        zx_err err = {0};
        assert_zx_ok(zx_machine_find(names[i], 0, &had, &err), &err);
        m = had;
        zx_machine_tf32(&m);
        assert_true(i == 0 ? near(m.flops, had.flops_16 / 2, 1e-9) : m.flops == had.flops);
        assert_true(m.peak == (i == 0 ? 156e12 : had.peak));
        assert_true(m.flops_16 == had.flops_16 && m.peak_16 == had.peak_16);
    }
}

// Products of 16-bit operands have a rate of their own.
static void test_products(void **state ZX_UNUSED)
{
    const zx_machine m = {.flops = 1, .flops_16 = 4, .memory = 1e300};
    for (int half = 0; half < 2; half++) {
        zx_arena mem = {0};
        zx_builder b;
        zx_graph g;
        zx_cost cost;
        zx_builder_start(&b, &mem, "product");
        const zx_type in = {half ? ZX_BF16 : ZX_F32, {2, {8, 8}}};
        const uint32_t x = zx_build_input(&b, "x", &in);
        zx_build1(&b, ZX_OP_MATMUL, (zx_attrs){0}, 2, x, x);
        zx_builder_done(&b, &g);
        assert_true(zx_trace_seconds(&g, &g.nodes[0], &m, &cost) == 2 * 8 * 8 * 8 / (half ? 4 : 1));
        zx_arena_free(&mem);
    }
}

// The loss' gradient is one float32 number beside 16 bits: it isn't what products are of.
static void test_one_number(void **state ZX_UNUSED)
{
    const zx_machine m = {.flops = 1, .flops_16 = 4, .memory = 1e300};
    zx_arena mem = {0};
    zx_builder b;
    zx_graph g;
    zx_cost cost;
    zx_err err = {0};
    const zx_type types[] = {
        {ZX_F32, {0, {0}}}, {ZX_BF16, {2, {8, 8}}}, {ZX_BF16, {2, {8, 8}}}, {ZX_I32, {1, {8}}}};
    uint32_t in[ZX_COUNT(types)], out[4];
    zx_builder_start(&b, &mem, "loss");
    for (uint32_t i = 0; i < ZX_COUNT(types); i++)
        in[i] = zx_build_input(&b, zx_arena_printf(&mem, "in%u", i), &types[i]);
    assert_zx_ok(zx_build_node(&b, ZX_OP_LINEAR_CROSS_ENTROPY_GRAD, in, ZX_COUNT(in), (zx_attrs){0},
                               NULL, out, &err),
                 &err);
    zx_builder_done(&b, &g);
    assert_true(zx_trace_seconds(&g, &g.nodes[0], &m, &cost) == 3 * 2 * 8 * 8 * 8 / 4.0);
    zx_arena_free(&mem);
}

// ---- JSON ---------------------------------------------------------------------------------------

static zx_status read_text(const char *text, zx_machine *m, zx_err *err)
{
    char path[] = "/tmp/zx-machine-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    const zx_status st = zx_machine_read(path, m, err);
    unlink(path);
    return st;
}

static void test_json(void **state ZX_UNUSED)
{
    zx_machine all[3], back;
    zx_err err = {0};
    assert_zx_ok(zx_machine_find("h100x32", 0, &all[0], &err), &err);
    all[1] = zx_machine_host(2, 1);
    zx_machine_link(&all[1], 0.1e9 / 3, 0.2e-3);
    all[2] = zx_machine_host(1, 3);
    all[2].device_bytes = (UINT64_C(1) << 53) + 1;
    snprintf(all[2].name, sizeof all[2].name, "a \"name\"\n");
    for (uint32_t k = 1; k < ZX_KIND_COUNT; k++) all[2].rates[k] = 1e9 / k; // the first: unknown
    all[2].bf16 = (zx_rates_16){.flops = 3e12, .flops_tn = 1e12, .sum = 7e9, .rates = {1e9, 2e9}};
    all[2].fp16 = (zx_rates_16){.flops = 1e11, .near = 5e9, .update = 1e10, .rates = {0, 0, 1e8}};
    for (size_t i = 0; i < ZX_COUNT(all); i++) {
        zx_text text = {0}, again = {0};
        zx_machine_put(&all[i], &text);
        assert_zx_ok(read_text(text.at, &back, &err), &err);
        zx_machine_put(&back, &again);
        assert_string_equal(text.at, again.at);
        assert_true(back.flops == all[i].flops && back.wire == all[i].wire);
        assert_true(back.device_bytes == all[i].device_bytes && back.host == all[i].host);
        assert_true(memcmp(&back.gather, &all[i].gather, sizeof back.gather) == 0);
        assert_true(memcmp(&back.reduce, &all[i].reduce, sizeof back.reduce) == 0);
        assert_true(memcmp(back.rates, all[i].rates, sizeof back.rates) == 0);
        assert_true(memcmp(&back.bf16, &all[i].bf16, sizeof back.bf16) == 0);
        assert_true(memcmp(&back.fp16, &all[i].fp16, sizeof back.fp16) == 0);
        zx_text_free(&text);
        zx_text_free(&again);
    }
}

#define GOOD                                                                                       \
    "\"name\": \"m\", \"flops\": 1e12, \"memory\": 1e9, \"copy\": 1e9, \"sum\": 1e9, "             \
    "\"update\": 1e9"

static const struct json_case {
    const char *name, *text, *says; // says NULL: read
} texts[] = {
    {"the least", "{" GOOD ", \"wire\": 1e9}", NULL},
    {"tables", "{" GOOD ", \"gather\": [[1, 2]], \"reduce\": [[1, 2], [3, 4]]}", NULL},
    {"tables of its ranks",
     "{" GOOD ", \"ranks\": 2, \"tables_ranks\": 2, \"gather\": [[1, 2]], \"reduce\": [[1, 2]]}",
     NULL},
    {"tables of other ranks",
     "{" GOOD ", \"ranks\": 4, \"tables_ranks\": 2, \"gather\": [[1, 2]], \"reduce\": [[1, 2]]}",
     "key 'ranks' is 4, but the tables 'gather' and 'reduce' are of 2 ranks"},
    {"of other ranks, but unused",
     "{" GOOD ", \"ranks\": 4, \"tables_ranks\": 2, \"wire\": 1e9, \"gather\": [[1, 2]]}", NULL},
    {"no link", "{" GOOD "}", "key 'gather' needs points, or 'wire' a rate"},
    {"one table", "{" GOOD ", \"gather\": [[1, 2]]}", "key 'reduce' needs points"},
    {"one rank needs no link", "{" GOOD ", \"ranks\": 1}", NULL},
    {"not an object", "[1]", "a machine is a JSON object"},
    {"not JSON", "{\"flops\": }", "zx-machine"},
    {"missing", "{\"name\": \"m\"}", "key 'flops' is missing"},
    {"misspelt", "{" GOOD ", \"wires\": 1}", "key 'wires' is unknown; the nearest is 'wire'"},
    {"a rate of 0", "{\"name\": \"m\", \"flops\": 0}", "key 'flops' needs a number above 0"},
    {"a text for a rate", "{\"flops\": \"1\"}", "key 'flops' needs a number above 0"},
    {"a rate that takes for ever", "{\"name\": \"m\", \"flops\": 1e-308}",
     "key 'flops' needs a number from 1e-12 to 1e24"},
    {"an overhead that takes for ever", "{" GOOD ", \"hook_seconds\": 1e308}",
     "key 'hook_seconds' needs 0, or a number from 1e-12 to 1e24"},
    {"negative", "{" GOOD ", \"wire\": -1}", "key 'wire' needs a number from 0 on"},
    {"too large for a number", "{\"flops\": 1e999}", "zx-machine"},
    {"whole floats",
     "{" GOOD ", \"wire\": 1, \"device_bytes\": 24e9, \"cores\": 2, \"threads\": 2.0}", NULL},
    {"half a byte", "{\"device_bytes\": 0.5}", "key 'device_bytes' needs a whole number"},
    {"too many bytes", "{\"device_bytes\": 2e18}", "key 'device_bytes' needs a whole number"},
    {"less than no bytes", "{\"device_bytes\": -1e9}", "key 'device_bytes' needs a whole number"},
    {"half a rank", "{\"ranks\": 1.5}", "key 'ranks' needs a whole number"},
    {"a name that is too long", "{\"name\": \"0123456789012345678901234567890123456789012345678\"}",
     "key 'name' needs a text of 1 to 47 bytes"},
    {"host is no flag", "{\"host\": 1}", "key 'host' needs true or false"},
    {"falling points", "{\"gather\": [[1, 2], [1, 3]]}", "key 'gather' needs a list"},
    {"a point of three", "{\"gather\": [[1, 2, 3]]}", "key 'gather' needs a list"},
    {"a point of 0 bytes", "{\"gather\": [[0, 2]]}", "key 'gather' needs a list"},
    {"too many points",
     "{\"reduce\": [[1,1],[2,1],[3,1],[4,1],[5,1],[6,1],[7,1],[8,1],[9,1],[10,1],[11,1],[12,1],"
     "[13,1],[14,1],[15,1],[16,1],[17,1],[18,1],[19,1],[20,1],[21,1],[22,1],[23,1],[24,1],[25,1]]}",
     "key 'reduce' needs a list of at most 24"},
    {"cores without threads", "{" GOOD ", \"wire\": 1, \"cores\": 2}", "key 'threads' needs"},
    {"rates of kinds", "{" GOOD ", \"wire\": 1, \"rates\": {\"Gelu\": 1e9, \"Conv\": 2}}", NULL},
    {"a misspelt kind", "{" GOOD ", \"rates\": {\"Gelo\": 1}}",
     "key 'Gelo' is unknown; the nearest is 'Gelu'"},
    {"a kind's rate of 0", "{" GOOD ", \"rates\": {\"Gelu\": 0}}",
     "key 'Gelu' needs a number from 1e-12 to 1e24"},
    {"a text for a kind's rate", "{" GOOD ", \"rates\": {\"Gelu\": \"1\"}}", "key 'Gelu' needs"},
    {"rates are no list", "{" GOOD ", \"rates\": [1]}", "key 'rates' needs an object"},
    {"twice", "{" GOOD ", \"wire\": 1, \"wire\": 2}", "zx-machine"},
};

static void test_text(void **state)
{
    const struct json_case *k = *state;
    zx_machine m;
    zx_err err = {0};
    const zx_status st = read_text(k->text, &m, &err);
    if (k->says == NULL) {
        assert_zx_ok(st, &err);
        assert_true(m.flops_16 == m.flops);
        return;
    }
    assert_true(st != ZX_OK);
    if (strstr(err.cause[0], k->says) == NULL) fail_msg("%s", err.cause[0]);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(curves) + ZX_COUNT(rows) + ZX_COUNT(texts) + 6] = {
        cmocka_unit_test(test_links),      cmocka_unit_test(test_host),
        cmocka_unit_test(test_link),       cmocka_unit_test(test_products),
        cmocka_unit_test(test_one_number), cmocka_unit_test(test_json),
        cmocka_unit_test(test_tf32)};
    size_t n = 6;
    for (size_t i = 0; i < ZX_COUNT(curves); i++)
        tests[n++] = zx_case(curves[i].name, test_curve, &curves[i]);
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, test_row, &rows[i]);
    for (size_t i = 0; i < ZX_COUNT(texts); i++)
        tests[n++] = zx_case(texts[i].name, test_text, &texts[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
