// onnx_inner.h - what an open ONNX file holds besides the decoded message. For proto/onnx_*.c only.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_PROTO_ONNX_INNER_H
#define ZX_PROTO_ONNX_INNER_H

#include "proto/mapfile.h"
#include "proto/onnx_file.h"
#include "proto/wire.h"

typedef struct zx_onnx_side { // a file with external data
    const char *location;
    zx_mapfile file;
} zx_onnx_side;

struct zx_onnx_inner { // lives in the arena given to zx_onnx_open
    zx_arena *mem;
    zx_mapfile file;    // closed where the model was opened from memory
    const char *folder; // of the model; external data may lie there and below; NULL: nowhere
    uint32_t n_payloads;
    const zx_wire_payload *payloads;
    uint32_t n_sides, cap_sides;
    zx_onnx_side *sides; // each mapped once
};

// The mapped file that `location` names, below the model's folder.
zx_status zx_onnx_side_open(struct zx_onnx_inner *inner, const char *location,
                            const zx_mapfile **out, zx_err *err);

#endif
