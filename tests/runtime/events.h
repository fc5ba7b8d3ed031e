// events.h - reads TensorBoard's event files, knowing nothing of how zerox writes them: records
// with checksums, protobuf by field number.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_RUNTIME_EVENTS_H
#define ZX_TESTS_RUNTIME_EVENTS_H

#include <stdio.h>
#include <string.h>

#include "tests/test.h"

#define EVENTS_MOST 4096
typedef struct event_value {
    char tag[128];
    uint64_t step;
    float value;
} event_value;

typedef struct event_file {
    uint32_t n_records, n;
    event_value values[EVENTS_MOST];
} event_file;

static inline uint32_t event_crc(const unsigned char *p, uint64_t n)
{
    uint32_t crc = ~0u;
    for (uint64_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    crc = ~crc;
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static inline uint64_t event_little(const unsigned char *p, int n)
{
    uint64_t v = 0;
    for (int i = n - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static inline uint64_t event_varint(const unsigned char **p, const unsigned char *end)
{
    uint64_t v = 0;
    for (int shift = 0; *p < end && shift < 64; shift += 7) {
        const unsigned char byte = *(*p)++;
        v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return v;
    }
    fail_msg("a varint that doesn't end");
    return 0;
}

// The next field of a message: its number; *at and *n: its bytes, or *v.
static inline uint32_t event_field(const unsigned char **p, const unsigned char *end,
                                   const unsigned char **at, uint64_t *n, uint64_t *v)
{
    const uint64_t key = event_varint(p, end);
    *n = 0;
    switch (key & 7) {
    case 0:
        *v = event_varint(p, end);
        break;
    case 1:
        *n = 8;
        break;
    case 5:
        *n = 4;
        break;
    case 2:
        *n = event_varint(p, end);
        break;
    default:
        fail_msg("a field of type %d", (int)(key & 7));
    }
    assert_true(*n <= (uint64_t)(end - *p));
    *at = *p;
    *p += *n;
    return (uint32_t)(key >> 3);
}

static inline void event_scalar(event_file *f, uint64_t step, const unsigned char *p,
                                const unsigned char *end)
{
    const unsigned char *at;
    uint64_t n, v;
    assert_true(f->n < EVENTS_MOST);
    event_value *out = &f->values[f->n++];
    *out = (event_value){.step = step};
    while (p < end) {
        const uint32_t field = event_field(&p, end, &at, &n, &v);
        if (field == 1) {
            assert_true(n < sizeof out->tag);
            memcpy(out->tag, at, n);
        }
        if (field == 2) memcpy(&out->value, at, 4);
    }
}

static inline void event_message(event_file *f, const unsigned char *p, const unsigned char *end)
{
    const unsigned char *at, *summary = NULL;
    uint64_t n, v = 0, step = 0, n_summary = 0;
    bool version = false;
    while (p < end) {
        const uint32_t field = event_field(&p, end, &at, &n, &v);
        if (field == 2) step = v;
        if (field == 3) version = n == 13 && memcmp(at, "brain.Event:2", 13) == 0;
        if (field == 5) {
            summary = at;
            n_summary = n;
        }
    }
    assert_true(version == (f->n_records == 0)); // a file begins with its version
    for (p = summary, end = summary + n_summary; p < end;) {
        const uint32_t field = event_field(&p, end, &at, &n, &v);
        if (field == 1) event_scalar(f, step, at, at + n);
    }
}

// Fails the test unless all of the file is whole records.
static inline void events_read(const char *path, event_file *out)
{
    static unsigned char bytes[1 << 20];
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_msg("no %s", path);
    const size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    *out = (event_file){0};
    for (size_t at = 0; at < size; out->n_records++) {
        if (size - at < 16) fail_msg("%zu bytes behind the last record", size - at);
        const uint64_t n = event_little(bytes + at, 8);
        if (n > size - at - 16) fail_msg("a record of %zu bytes is cut", (size_t)n);
        assert_int_equal(event_little(bytes + at + 8, 4), event_crc(bytes + at, 8));
        assert_int_equal(event_little(bytes + at + 12 + n, 4), event_crc(bytes + at + 12, n));
        event_message(out, bytes + at + 12, bytes + at + 12 + n);
        at += 16 + n;
    }
}

// The value under a tag at a step; fails the test if there isn't exactly one.
static inline double events_get(const event_file *f, const char *tag, uint64_t step)
{
    double found = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (strcmp(f->values[i].tag, tag) == 0 && f->values[i].step == step) {
            found = (double)f->values[i].value;
            n++;
        }
    if (n != 1) fail_msg("%u values of %s at %u", n, tag, (unsigned)step);
    return found;
}

#endif
