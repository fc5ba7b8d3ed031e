// onnx_file.h - an ONNX file, opened without copying its weights.
//
// A pre-scan of the wire format bounds depth and sizes and takes large tensor payloads out before
// protobuf-c sees the message (it has no recursion limit of its own and copies every payload).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_PROTO_ONNX_FILE_H
#define ZX_PROTO_ONNX_FILE_H

#include "graph/base/arena.h"
#include "graph/base/tensor.h"
#include "onnx.pb-c.h" // made from proto/onnx.proto by protoc --c_out at build time

typedef struct zx_onnx_file {
    const char *path;
    const Onnx__ModelProto *model; // graph is never NULL
    struct zx_onnx_inner *inner;   // mappings and payload offsets
} zx_onnx_file;

// Opens and decodes. Everything decoded lives in `mem`; tensor payloads stay in the mapped file,
// which is unmapped by zx_onnx_close. Errors: E_IO, E_FORMAT (not ONNX, truncated, too deep, sizes
// that the file doesn't have), E_UNSUPPORTED (IR version).
zx_status zx_onnx_open(zx_onnx_file *f, const char *path, zx_arena *mem, zx_err *err);
// The same from bytes in memory, which must stay until zx_onnx_close; `path` is for messages. There
// is no folder: external data is refused.
zx_status zx_onnx_open_bytes(zx_onnx_file *f, const char *path, const void *bytes, uint64_t n,
                             zx_arena *mem, zx_err *err);
void zx_onnx_close(zx_onnx_file *f); // accepts a zeroed or half-open file

// The type and bytes of a tensor: raw, typed fields or external data. *data points into a mapping
// (any alignment) or into `mem`; it is never NULL. Every size is checked against what is really
// there. Tensors are only ever read so: a long payload isn't in the decoded message. Errors name
// the tensor (the caller adds the file and the node). E_FORMAT, E_SHAPE, E_UNSUPPORTED (element
// types), E_IO (a missing file of external data).
zx_status zx_onnx_tensor(const zx_onnx_file *f, const Onnx__TensorProto *t, zx_arena *mem,
                         zx_type *type, const void **data, zx_err *err);

// Value of a metadata key; NULL if absent.
const char *zx_onnx_meta(Onnx__StringStringEntryProto *const *list, size_t n, const char *key);

#endif
