// wire.c - see wire.h. Encoding: https://protobuf.dev/programming-guides/encoding/
// SPDX-License-Identifier: Apache-2.0
#include "proto/wire.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PADDED_LENGTH 5 // a length written as 5 bytes, so that it can be filled in afterwards
#define NUMBER_MOST (((uint32_t)1 << 29) - 1)

// Decoding allocates for each field a struct, a copy, or a number, and 2 x 40 bytes while it scans.
// Real exports need 3 to 12 bytes for a byte of the file; a file of nothing but empty messages
// needs hundreds.
#define SCAN_BYTES 80
#define GROWTH_MOST 64
#define GROWTH_FREE ((uint64_t)1 << 20)

typedef struct walk {
    const unsigned char *first; // of the whole message, for positions in errors
    const ProtobufCMessageDescriptor *holder;
    zx_arena *mem;
    zx_wire *out;
    size_t cap;
    uint64_t read_bytes;    // of the message, without what was left out
    uint64_t decoded_bytes; // what decoding will allocate
    zx_err *err;
} walk;

typedef struct field {
    const ProtobufCFieldDescriptor *desc; // NULL: unknown
    uint32_t number, wire;
    const unsigned char *begin; // of its tag
    const unsigned char *value; // of what follows tag and length
    uint64_t n;                 // bytes of the value
} field;

bool zx_wire_varint(const unsigned char **at, const unsigned char *end, uint64_t *out)
{
    uint64_t v = 0;
    const unsigned char *p = *at;
    for (unsigned shift = 0; shift < 64 && p < end; shift += 7) {
        v |= (uint64_t)(*p & 0x7F) << shift;
        if ((*p++ & 0x80) != 0) continue;
        *out = v;
        *at = p;
        return true;
    }
    return false;
}

// Bytes of each scalar type on the wire; 0: a varint.
static uint32_t fixed_bytes(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return 4;
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    default:
        return 0;
    }
}

static bool is_number(ProtobufCType type)
{
    return type != PROTOBUF_C_TYPE_STRING && type != PROTOBUF_C_TYPE_BYTES &&
           type != PROTOBUF_C_TYPE_MESSAGE;
}

static void put(walk *w, const void *bytes, size_t n)
{
    if (n > w->cap - w->out->n) {
        while (n > w->cap - w->out->n) w->cap = w->cap < 4096 ? 4096 : w->cap * 2;
        w->out->bytes = realloc(w->out->bytes, w->cap);
        ZX_ASSERT(w->out->bytes != NULL);
    }
    if (n > 0) memcpy(w->out->bytes + w->out->n, bytes, n);
    w->out->n += n;
}

static void put_varint(walk *w, uint64_t v)
{
    unsigned char text[10];
    size_t n = 0;
    for (; v > 0x7F; v >>= 7) text[n++] = (unsigned char)(v | 0x80);
    text[n++] = (unsigned char)v;
    put(w, text, n);
}

static zx_status malformed(walk *w, const ProtobufCMessageDescriptor *desc, const field *f,
                           const char *what)
{
    const uint64_t at = (uint64_t)(f->begin - w->first);
    if (f->desc == NULL)
        return ZX_FAIL(w->err, ZX_E_FORMAT,
                       "not a well-formed ONNX file: byte %" PRIu64 ", in %s: %s", at,
                       desc->short_name, what);
    return ZX_FAIL(w->err, ZX_E_FORMAT,
                   "not a well-formed ONNX file: byte %" PRIu64 ", in %s.%s: %s", at,
                   desc->short_name, f->desc->name, what);
}

// Reads tag and length of the field at *at and moves *at behind it.
static zx_status read_field(walk *w, const ProtobufCMessageDescriptor *desc,
                            const unsigned char **at, const unsigned char *end, field *f)
{
    uint64_t tag, length;
    *f = (field){.begin = *at};
    if (!zx_wire_varint(at, end, &tag)) return malformed(w, desc, f, "cut off inside a tag");
    if (tag >> 3 == 0 || tag >> 3 > NUMBER_MOST)
        return malformed(w, desc, f, "a field number that can't be");
    f->number = (uint32_t)(tag >> 3);
    f->wire = (uint32_t)(tag & 7);
    f->desc = protobuf_c_message_descriptor_get_field(desc, f->number);
    f->value = *at;
    switch (f->wire) {
    case PROTOBUF_C_WIRE_TYPE_VARINT:
        if (!zx_wire_varint(at, end, &length)) return malformed(w, desc, f, "cut off");
        f->n = (uint64_t)(*at - f->value);
        return ZX_OK;
    case PROTOBUF_C_WIRE_TYPE_64BIT:
        f->n = 8;
        break;
    case PROTOBUF_C_WIRE_TYPE_32BIT:
        f->n = 4;
        break;
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
        if (!zx_wire_varint(at, end, &f->n)) return malformed(w, desc, f, "cut off");
        f->value = *at;
        break;
    default:
        return malformed(w, desc, f, "a wire type that ONNX doesn't use");
    }
    if (f->n > (uint64_t)(end - *at))
        return malformed(w, desc, f, "it says that it is longer than what is left of the file");
    *at += f->n;
    return ZX_OK;
}

static bool fits(const field *f)
{
    const ProtobufCType type = f->desc->type;
    if (f->wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
        return !is_number(type) || f->desc->label == PROTOBUF_C_LABEL_REPEATED;
    if (!is_number(type)) return false;
    return f->wire == (fixed_bytes(type) == 4   ? PROTOBUF_C_WIRE_TYPE_32BIT
                       : fixed_bytes(type) == 8 ? PROTOBUF_C_WIRE_TYPE_64BIT
                                                : PROTOBUF_C_WIRE_TYPE_VARINT);
}

static zx_status check_packed(walk *w, const ProtobufCMessageDescriptor *desc, const field *f,
                              uint64_t *count)
{
    const uint32_t each = fixed_bytes(f->desc->type);
    if (each != 0) {
        if (f->n % each != 0) return malformed(w, desc, f, "cut off inside an element");
        *count = f->n / each;
        return ZX_OK;
    }
    *count = 0;
    for (const unsigned char *at = f->value, *end = at + f->n; at < end; (*count)++) {
        uint64_t v;
        if (!zx_wire_varint(&at, end, &v)) return malformed(w, desc, f, "cut off in an element");
    }
    return ZX_OK;
}

// Elements of a tensor: raw bytes, or numbers that the schema wants packed (dims aren't).
static bool is_payload(const walk *w, const ProtobufCMessageDescriptor *desc, const field *f)
{
    return desc == w->holder && f->wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED &&
           ((f->desc->flags & PROTOBUF_C_FIELD_FLAG_PACKED) != 0 ||
            (f->desc->type == PROTOBUF_C_TYPE_BYTES &&
             f->desc->label != PROTOBUF_C_LABEL_REPEATED));
}

static void put_reference(walk *w, const field *f)
{
    const uint64_t index = w->out->n_payloads;
    ZX_GROW(w->mem, w->out->payloads, w->out->n_payloads, w->out->cap_payloads);
    w->out->payloads[w->out->n_payloads++] = (zx_wire_payload){f->value, f->n};
    put_varint(w, (uint64_t)(ZX_WIRE_REF + f->number) << 3 | PROTOBUF_C_WIRE_TYPE_64BIT);
    put(w, &index, sizeof index);
    w->decoded_bytes += sizeof(ProtobufCMessageUnknownField) + 16;
}

static zx_status cut_message(walk *w, const ProtobufCMessageDescriptor *desc,
                             const unsigned char *at, const unsigned char *end, uint32_t depth);

// A message inside a message: its length is known when it has been written.
static zx_status cut_inner(walk *w, const field *f, uint32_t depth)
{
    const unsigned char none[PADDED_LENGTH] = {0x80, 0x80, 0x80, 0x80, 0};
    put(w, none, sizeof none);
    const size_t from = w->out->n;
    ZX_TRY(cut_message(w, f->desc->descriptor, f->value, f->value + f->n, depth + 1));
    const size_t n = w->out->n - from;
    if (n > INT_MAX / 2)
        return ZX_FAIL(w->err, ZX_E_UNSUPPORTED, "%s takes more than 1 GiB without its tensors",
                       f->desc->name);
    for (uint32_t i = 0; i < PADDED_LENGTH; i++)
        w->out->bytes[from - PADDED_LENGTH + i] |= (unsigned char)(n >> 7 * i & 0x7F);
    return ZX_OK;
}

static zx_status cut_field(walk *w, const ProtobufCMessageDescriptor *desc, const field *f,
                           uint32_t depth)
{
    const ProtobufCType type = f->desc->type;
    const bool prefixed = f->wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
    if (!fits(f)) return malformed(w, desc, f, "a wire type that this field can't have");
    w->decoded_bytes += SCAN_BYTES;
    w->read_bytes += (uint64_t)(f->value - f->begin);
    if (type == PROTOBUF_C_TYPE_MESSAGE) {
        put_varint(w, (uint64_t)f->number << 3 | f->wire);
        const ProtobufCMessageDescriptor *inner = f->desc->descriptor;
        w->decoded_bytes += inner->sizeof_message + sizeof(void *);
        return cut_inner(w, f, depth);
    }
    uint64_t count = 1;
    if (prefixed && is_number(type)) ZX_TRY(check_packed(w, desc, f, &count));
    if (is_payload(w, desc, f) && f->n >= ZX_WIRE_LEFT_OUT) {
        put_reference(w, f);
        return ZX_OK;
    }
    if (type == PROTOBUF_C_TYPE_STRING && f->n > 0 && memchr(f->value, 0, (size_t)f->n) != NULL)
        return malformed(w, desc, f, "text with a NUL byte in it");
    if (f->n > INT_MAX) return malformed(w, desc, f, "longer than 2 GiB");
    w->decoded_bytes += is_number(type) ? count * 8 : f->n + 32;
    w->read_bytes += f->n;
    put(w, f->begin, (size_t)(f->value - f->begin));
    put(w, f->value, (size_t)f->n);
    return ZX_OK;
}

static zx_status cut_message(walk *w, const ProtobufCMessageDescriptor *desc,
                             const unsigned char *at, const unsigned char *end, uint32_t depth)
{
    uint64_t seen = 0; // what may come once; protobuf-c would merge messages in quadratic time
    if (depth > ZX_WIRE_DEPTH)
        return ZX_FAIL(w->err, ZX_E_FORMAT, "%s: messages nested more than %d deep",
                       desc->short_name, ZX_WIRE_DEPTH);
    while (at < end) {
        field f;
        ZX_TRY(read_field(w, desc, &at, end, &f));
        if (f.desc == NULL) continue;
        const ptrdiff_t row = f.desc - desc->fields;
        if ((f.desc->type == PROTOBUF_C_TYPE_MESSAGE &&
             f.desc->label != PROTOBUF_C_LABEL_REPEATED) ||
            is_payload(w, desc, &f)) {
            ZX_ASSERT(row < 64);
            if ((seen >> row & 1) != 0) return malformed(w, desc, &f, "it is there twice");
            seen |= (uint64_t)1 << row;
        }
        ZX_TRY(cut_field(w, desc, &f, depth));
        if (w->decoded_bytes > GROWTH_FREE + GROWTH_MOST * w->read_bytes)
            return malformed(w, desc, &f,
                             "decoding would take far more memory than any real model does");
    }
    return ZX_OK;
}

zx_status zx_wire_cut(const ProtobufCMessageDescriptor *desc,
                      const ProtobufCMessageDescriptor *holder, const void *bytes, uint64_t n,
                      zx_arena *mem, zx_wire *out, zx_err *err)
{
    *out = (zx_wire){0};
    walk w = {.first = bytes, .holder = holder, .mem = mem, .out = out, .err = err};
    ZX_TRY(cut_message(&w, desc, w.first, w.first + n, 1));
    if (out->n > INT_MAX)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "it takes more than 2 GiB without its tensors");
    return ZX_OK;
}

void zx_wire_free(zx_wire *w)
{
    free(w->bytes);
    w->bytes = NULL;
    w->n = 0;
}

const zx_wire_payload *zx_wire_find(const ProtobufCMessage *m, uint32_t number,
                                    const zx_wire_payload *payloads, uint32_t n_payloads)
{
    for (unsigned i = 0; i < m->n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *u = &m->unknown_fields[i];
        if (u->tag != ZX_WIRE_REF + number || u->len != sizeof(uint64_t)) continue;
        uint64_t index;
        memcpy(&index, u->data, sizeof index);
        return index < n_payloads ? &payloads[index] : NULL;
    }
    return NULL;
}
