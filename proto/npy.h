// npy.h - NumPy's .npy files (versions 1 to 3), C order.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_PROTO_NPY_H
#define ZX_PROTO_NPY_H

#include "graph/base/tensor.h"
#include "proto/mapfile.h"

typedef struct zx_npy {
    zx_mapfile file;
    zx_type type;
    const unsigned char *data; // inside the mapping, any alignment
} zx_npy;

// Refuses Fortran order, object and big-endian types, headers that promise more than the file has.
zx_status zx_npy_open(zx_npy *n, const char *path, zx_err *err);
void zx_npy_close(zx_npy *n);

#endif
