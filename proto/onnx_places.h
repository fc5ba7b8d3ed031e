// onnx_places.h - where in an ONNX file the bytes of its initializers lie, for writing others into
// a copy of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_PROTO_ONNX_PLACES_H
#define ZX_PROTO_ONNX_PLACES_H

#include "graph/base/arena.h"
#include "graph/base/tensor.h"
#include "proto/mapfile.h"

typedef struct zx_onnx_place {
    const char *name;
    zx_type type; // dtype ZX_DTYPE_COUNT: one that zerox doesn't know
    uint64_t
        at; // of the file; UINT64_MAX: its bytes aren't in the file, or not as they are in memory
} zx_onnx_place;

// The initializers of the main graph, in the file's order. The file was opened as a model before
// (zx_onnx_open), which has checked its form; E_FORMAT where it isn't that one.
zx_status zx_onnx_places(const zx_mapfile *m, zx_arena *mem, uint32_t *n, const zx_onnx_place **out,
                         zx_err *err);

#endif
