// hash.h - XXH64, a fast 64-bit checksum of bytes that come in pieces (the public algorithm: what
// other programs call xxh64, seed 0).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_BASE_HASH_H
#define ZX_BASE_HASH_H

#include "graph/base/zx.h"

ZX_BEGIN_C

typedef struct zx_hash {
    uint64_t lane[4], total;
    unsigned char tail[32]; // the last total % 32 bytes
} zx_hash;

void zx_hash_start(zx_hash *h);
void zx_hash_bytes(zx_hash *h, const void *bytes, size_t n);
uint64_t zx_hash_end(const zx_hash *h);
uint64_t zx_hash_of(const void *bytes, size_t n); // all at once

ZX_END_C

#endif
