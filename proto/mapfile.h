// mapfile.h - a file's bytes, mapped read-only.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_PROTO_MAPFILE_H
#define ZX_PROTO_MAPFILE_H

#include "graph/base/err.h"

typedef struct zx_mapfile {     // zeroed is closed
    const unsigned char *bytes; // NULL when size is 0
    uint64_t size;
} zx_mapfile;

// E_IO with the path and the system's words; a directory, pipe or device is refused.
zx_status zx_mapfile_open(zx_mapfile *m, const char *path, zx_err *err);
zx_status zx_mapfile_open_fd(zx_mapfile *m, int fd, const char *path,
                             zx_err *err); // fd stays the caller's
void zx_mapfile_close(zx_mapfile *m);

#endif
