// tfevents.h - TensorBoard's event files: records of protobuf messages, each with its checksums.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_PROTO_TFEVENTS_H
#define ZX_PROTO_TFEVENTS_H

#include "graph/base/text.h"

typedef struct zx_scalar { // a number of a step under its name
    const char *tag;
    double value;
} zx_scalar;

// Appends to `out` what a file begins with.
void zx_tfevents_begin(double wall_seconds, zx_text *out);
// Appends one record with all n scalars of a step, as float32.
void zx_tfevents_scalars(double wall_seconds, uint64_t step, const zx_scalar *scalars, uint32_t n,
                         zx_text *out);
// CRC-32C (Castagnoli), bits reflected.
uint32_t zx_crc32c(const void *bytes, size_t n);

#endif
