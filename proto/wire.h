// wire.h - protobuf's wire format, checked and cut down before protobuf-c sees it.
//
// protobuf-c recurses as deep as the bytes say, copies every payload and keeps every unknown field.
// So a message is first walked here, against protobuf-c's own tables: depth and lengths are
// bounded, unknown fields are dropped, and long payloads are left where they are, with a reference
// in their place. What is then decoded is small and well formed.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_PROTO_WIRE_H
#define ZX_PROTO_WIRE_H

#include <protobuf-c/protobuf-c.h>

#include "graph/base/arena.h"
#include "graph/base/err.h"

#define ZX_WIRE_DEPTH 100 // messages inside each other; ONNX with nested branches needs about 30
#define ZX_WIRE_LEFT_OUT 1024           // payloads of so many bytes and more are left out
#define ZX_WIRE_REF ((uint32_t)1 << 20) // + field number: the number of a reference

typedef struct zx_wire_payload { // what was left out
    const unsigned char *bytes;
    uint64_t n;
} zx_wire_payload;

typedef struct zx_wire {
    unsigned char *bytes; // the message without its payloads, from malloc
    size_t n;
    uint32_t n_payloads, cap_payloads;
    zx_wire_payload *payloads; // in the arena; they point into the message that was walked
} zx_wire;

// Walks the `n` bytes of a message of type `desc` and writes it anew. In messages of type `holder`
// those bytes fields and packed numbers that are long are replaced by references. Each error names
// the byte and the field. E_FORMAT: malformed, too deep, a wire type that the field can't have,
// text with a NUL in it, or far more memory wanted than real files want. zx_wire_free also after an
// error.
zx_status zx_wire_cut(const ProtobufCMessageDescriptor *desc,
                      const ProtobufCMessageDescriptor *holder, const void *bytes, uint64_t n,
                      zx_arena *mem, zx_wire *out, zx_err *err);
void zx_wire_free(zx_wire *w); // `bytes` only; the payloads are the arena's

// The payload that was left out of field `number` of a decoded message; NULL if none was.
const zx_wire_payload *zx_wire_find(const ProtobufCMessage *m, uint32_t number,
                                    const zx_wire_payload *payloads, uint32_t n_payloads);

// Reads a varint at *at, at most to `end`; false if it doesn't end or is longer than 10 bytes.
bool zx_wire_varint(const unsigned char **at, const unsigned char *end, uint64_t *out);

#endif
