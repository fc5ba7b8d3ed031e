// safetensors.h - reading and writing .safetensors files.
// Format: u64 header length, JSON header, data; offsets are relative to the data's start.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_PROTO_SAFETENSORS_H
#define ZX_PROTO_SAFETENSORS_H

#include "graph/base/arena.h"
#include "graph/base/tensor.h"
#include "proto/mapfile.h"

typedef struct zx_safe_tensor {
    const char *name;
    zx_type type;
    const unsigned char *data; // reading: inside the mapping, any alignment
} zx_safe_tensor;

typedef struct zx_safe_file {
    zx_mapfile file;
    uint32_t n;
    zx_safe_tensor *tensors; // in the file's order
    uint32_t n_meta;
    const char *(*meta)[2]; // key, value
} zx_safe_file;
zx_status zx_safe_open(zx_safe_file *f, const char *path, zx_arena *mem, zx_err *err);
void zx_safe_close(zx_safe_file *f);
const zx_safe_tensor *zx_safe_find(const zx_safe_file *f, const char *name); // NULL: absent

// The complete header block (length and JSON, padded so that data starts at a multiple of 64) for
// tensors in the given order, metadata keys in the order given. The bytes depend on nothing else.
// *offsets[i] is where tensor i's data begins, counted from the start of the file; *total the
// file's size.
zx_status zx_safe_header(uint32_t n, const zx_safe_tensor *tensors, uint32_t n_meta,
                         const char *const (*meta)[2], zx_arena *mem, const void **header,
                         uint64_t *header_bytes, uint64_t *offsets, uint64_t *total, zx_err *err);

#endif
