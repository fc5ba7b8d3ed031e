// tfevents.c - see tfevents.h.
//
// A record is: u64 length, u32 masked checksum of these 8 bytes, the message, u32 masked checksum
// of the message. The messages are TensorFlow's Event and Summary, of which four fields are needed.
// SPDX-License-Identifier: Apache-2.0
#include "proto/tfevents.h"

#include <string.h>

uint32_t zx_crc32c(const void *bytes, size_t n)
{
    // The remainder of each 4 bits by the polynomial 0x1EDC6F41, reflected.
    static const uint32_t of_four[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    const unsigned char *p = bytes;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = (crc >> 4) ^ of_four[crc & 15];
        crc = (crc >> 4) ^ of_four[crc & 15];
    }
    return ~crc;
}

// As the format wants it: a checksum of bytes that hold checksums would be weak.
static uint32_t masked(const void *bytes, size_t n)
{
    const uint32_t crc = zx_crc32c(bytes, n);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void put_little(zx_text *out, uint64_t v, size_t bytes)
{
    unsigned char at[8];
    for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)(v >> (8 * i));
    zx_text_bytes(out, at, bytes);
}

// ---- protobuf -----------------------------------------------------------------------------------

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static size_t varint_bytes(uint64_t v)
{
    size_t n = 1;
    for (; v >= 128; v >>= 7) n++;
    return n;
}

static void put_varint(zx_text *out, uint64_t v)
{
    for (; v >= 128; v >>= 7) put_little(out, (v & 127) | 128, 1);
    put_little(out, v, 1);
}

static void put_field(zx_text *out, unsigned number, unsigned type)
{
    put_varint(out, number << 3 | type);
}

static void put_double(zx_text *out, unsigned number, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_field(out, number, FIXED64);
    put_little(out, bits, 8);
}

static void put_float(zx_text *out, unsigned number, double v)
{
    const float narrow = (float)v;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    put_field(out, number, FIXED32);
    put_little(out, bits, 4);
}

// Summary.Value {tag = 1, simple_value = 2}
static size_t value_bytes(const zx_scalar *s)
{
    const size_t n = strlen(s->tag);
    return 1 + varint_bytes(n) + n + 5;
}

static void put_value(zx_text *out, const zx_scalar *s)
{
    const size_t n = strlen(s->tag);
    put_field(out, 1, BYTES);
    put_varint(out, n);
    zx_text_bytes(out, s->tag, n);
    put_float(out, 2, s->value);
}

// ---- records ------------------------------------------------------------------------------------

// The message is what `out` holds from `at` + 12 on: writes the 12 bytes before it and the 4
// behind.
static void close_record(zx_text *out, size_t at)
{
    const size_t n = out->n - at - 12;
    const uint32_t of_message = masked(out->at + at + 12, n);
    zx_text head = {0};
    put_little(&head, n, 8);
    put_little(&head, masked(head.at, 8), 4);
    memcpy(out->at + at, head.at, 12);
    zx_text_free(&head);
    put_little(out, of_message, 4);
}

static size_t open_record(zx_text *out)
{
    static const char room[12] = {0};
    const size_t at = out->n;
    zx_text_bytes(out, room, sizeof room);
    return at;
}

// Event {wall_time = 1, step = 2, file_version = 3, summary = 5}
void zx_tfevents_begin(double wall_seconds, zx_text *out)
{
    static const char version[] = "brain.Event:2";
    const size_t at = open_record(out);
    put_double(out, 1, wall_seconds);
    put_field(out, 3, BYTES);
    put_varint(out, sizeof version - 1);
    zx_text_bytes(out, version, sizeof version - 1);
    close_record(out, at);
}

void zx_tfevents_scalars(double wall_seconds, uint64_t step, const zx_scalar *scalars, uint32_t n,
                         zx_text *out)
{
    const size_t at = open_record(out);
    size_t summary = 0;
    for (uint32_t i = 0; i < n; i++) {
        const size_t value = value_bytes(&scalars[i]);
        summary += 1 + varint_bytes(value) + value;
    }
    put_double(out, 1, wall_seconds);
    put_field(out, 2, VARINT);
    put_varint(out, step);
    put_field(out, 5, BYTES);
    put_varint(out, summary);
    for (uint32_t i = 0; i < n; i++) { // Summary {value = 1}
        put_field(out, 1, BYTES);
        put_varint(out, value_bytes(&scalars[i]));
        put_value(out, &scalars[i]);
    }
    close_record(out, at);
}
