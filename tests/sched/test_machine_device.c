// test_machine_device.c - GPUs as machines: rows of machines.def, and what their own figures say.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "sched/machine.h"
#include "tests/test.h"

#define GB UINT64_C(1000000000)

static bool near(double a, double b, double part)
{
    return fabs(a - b) <= part * fabs(b);
}

// As GPUs describe themselves: peaks of what is derived are those of data sheets.
static const struct device_case {
    const char *name;
    zx_device device;
    zx_device_use use;
    const char *machine; // NULL: it can't be told
    bool known;
    double peak, peak_16, memory;
} devices[] = {
    {"a row",
     {"NVIDIA H200", 150 * GB, 149 * GB, 9, 0, 132, 3, 1.98e9, 4.9e12},
     {1, 0, false},
     "h200x1",
     true,
     67e12,
     989e12,
     4.8e12},
    {"a row of 8",
     {"NVIDIA A100-SXM4-80GB", 85 * GB, 0, 8, 0, 108, 3, 1.41e9, 2.04e12},
     {8, 0, false},
     "a100-80x8",
     true,
     19.5e12,
     312e12,
     2e12},
    {"its bandwidth untold",
     {"Tesla V100-SXM2-32GB", 34 * GB, 0, 7, 0, 80, 3, 1.53e9, 0},
     {2, 0, false},
     "v100x2",
     true,
     15.7e12,
     125e12,
     0.9e12},
    {"the same name, less memory",
     {"NVIDIA A100-SXM4-40GB", 42 * GB, 0, 8, 0, 108, 3, 1.41e9, 1.555e12},
     {1, 0, false},
     "NVIDIA A100-SXM4-40GBx1",
     false,
     19.5e12,
     312e12,
     1.555e12},
    {"the same name, slower memory",
     {"NVIDIA H100 PCIe", 85 * GB, 0, 9, 0, 114, 3, 1.755e9, 2.04e12},
     {1, 0, false},
     "NVIDIA H100 PCIex1",
     false,
     51.2e12,
     819e12,
     2.04e12},
    {"more than a node has",
     {"Tesla V100-SXM3-32GB", 34 * GB, 0, 7, 0, 80, 3, 1.53e9, 0.9e12},
     {16, 0, false},
     "Tesla V100-SXM3-32GBx16",
     false,
     15.7e12,
     125e12,
     0.9e12},
    {"between two capabilities",
     {"NVIDIA GeForce RTX 4090", 25 * GB, 0, 8, 9, 128, 2, 2.52e9, 1.008e12},
     {1, 0, false},
     "NVIDIA GeForce RTX 4090x1",
     false,
     82.6e12,
     165e12,
     1.008e12},
    {"a name without an end",
     {"NVIDIA with a name that is longer than what a machine's may be", 8 * GB, 0, 8, 6, 4, 2, 1e9,
      1e11},
     {2, 0, false},
     "NVIDIA with a name that is longer thx2",
     false,
     1.024e12,
     2.048e12,
     1e11},
    {"nothing to go by",
     {"NVIDIA H200", GB, 0, 9, 0, 0, 0, 0, 0},
     {1, 0, false},
     NULL,
     false,
     0,
     0,
     0},
};

static void test_device(void **state)
{
    const struct device_case *k = *state;
    zx_machine m;
    zx_err err = {0};
    bool known;
    const zx_status st = zx_machine_of_device(&k->device, &k->use, &m, &known, &err);
    if (k->machine == NULL) {
        assert_int_equal(st, ZX_E_DEVICE);
        return;
    }
    assert_zx_ok(st, &err);
    assert_string_equal(m.name, k->machine);
    assert_true(known == k->known && m.host && m.cores == 0 && m.ranks == k->use.ranks);
    assert_true(m.device_bytes == k->device.bytes);
    assert_true(near(m.peak, k->peak, 0.02) && near(m.peak_16, k->peak_16, 0.02));
    assert_true(near(m.memory, k->memory, 1e-9));
    assert_true(m.flops < m.peak && m.flops_16 < m.peak_16);
    assert_true(m.ranks == 1 || zx_gather_seconds(&m, m.ranks, GB) > GB / 1e12);
}

// Two ranks on one device have half of it each, and the host's memory between them.
static void test_shared_device(void **state ZX_UNUSED)
{
    const zx_device *d = &devices[0].device;
    zx_machine one, two;
    zx_err err = {0};
    bool known;
    assert_zx_ok(zx_machine_of_device(d, &devices[0].use, &one, &known, &err), &err);
    const zx_device_use use = {12, 2, true};
    assert_zx_ok(zx_machine_of_device(d, &use, &two, &known, &err), &err);
    assert_true(known && two.ranks == 12);
    assert_string_equal(two.name, "h200x12");
    assert_true(two.flops == one.flops / 2 && two.memory == one.memory / 2);
    assert_true(two.device_bytes == one.device_bytes / 2);
    assert_true(zx_gather_seconds(&two, 12, GB) > GB / 20e9 &&
                zx_gather_seconds(&two, 12, GB) < GB / 1e9);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(devices) + 1] = {cmocka_unit_test(test_shared_device)};
    size_t n = 1;
    for (size_t i = 0; i < ZX_COUNT(devices); i++)
        tests[n++] = zx_case(devices[i].name, test_device, &devices[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
