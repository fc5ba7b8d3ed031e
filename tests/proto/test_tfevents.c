// test_tfevents.c - event files: checksums by their published values, and a file as bytes.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "proto/tfevents.h"
#include "tests/test.h"

static const struct crc_row { // RFC 3720, B.4, and the check value of CRC-32C
    const char *name;
    unsigned char first, by;
    size_t n;
    uint32_t want;
} crcs[] = {
    {"nothing", 0, 0, 0, 0},
    {"32 zeros", 0, 0, 32, 0x8a9136aa},
    {"32 ones", 0xff, 0, 32, 0x62a8ab43},
    {"0 to 31", 0, 1, 32, 0x46dd794e},
    {"31 to 0", 31, 0xff, 32, 0x113fdb5c},
    {"digits", '1', 1, 9, 0xe3069283},
};

static void test_crc(void **state)
{
    const struct crc_row *row = *state;
    unsigned char bytes[32];
    for (size_t i = 0; i < row->n; i++) bytes[i] = (unsigned char)(row->first + i * row->by);
    assert_int_equal(zx_crc32c(bytes, row->n), row->want);
}

// Event and Summary of TensorFlow's event.proto and summary.proto, field by field.
static void records_are_these_bytes(void **state)
{
    (void)state;
    static const unsigned char begin[] = {
        0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22, // length and its
                                                           // checksum
        0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f,                // wall_time 1.5
        0x1a, 0x0d, 'b', 'r', 'a', 'i', 'n', '.', 'E', 'v', 'e', 'n', 't', ':', '2'};
    static const unsigned char event[] = {
        0x09, 0,    0,    0,    0,   0,    0, 0, 0x40,       // wall_time 2
        0x10, 0xac, 0x02,                                    // step 300
        0x2a, 0x14,                                          // summary of 20 bytes
        0x0a, 0x08, 0x0a, 0x01, 'a', 0x15, 0, 0, 0x20, 0x40, // a: 2.5
        0x0a, 0x08, 0x0a, 0x01, 'b', 0x15, 0, 0, 0x80, 0xbf, // b: -1
    };
    const zx_scalar scalars[] = {{"a", 2.5}, {"b", -1}};
    zx_text out = {0};
    zx_tfevents_begin(1.5, &out);
    assert_int_equal(out.n, sizeof begin + 4);
    assert_memory_equal(out.at, begin, sizeof begin);
    out.n = 0;
    zx_tfevents_scalars(2, 300, scalars, 2, &out);
    assert_int_equal(out.n, 12 + sizeof event + 4);
    assert_memory_equal(out.at + 12, event, sizeof event);
    zx_text_free(&out);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(crcs) + 1];
    size_t n = 0;
    for (; n < ZX_COUNT(crcs); n++) tests[n] = zx_case(crcs[n].name, test_crc, &crcs[n]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(records_are_these_bytes);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
