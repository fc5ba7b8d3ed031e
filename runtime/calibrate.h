// calibrate.h - this host as a machine: measured once, kept in the user's cache.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CALIBRATE_H
#define ZX_RUNTIME_CALIBRATE_H

#include "sched/machine.h"

// Measures what `ranks` ranks of `threads` threads reach on this host, all at work at the same
// time; takes 3 seconds, up to 5 where others use the cores. E_DEVICE where threads or memory can't
// be had.
zx_status zx_calibrate(uint32_t ranks, uint32_t threads, zx_machine *out, zx_err *err);

// Where its figures are kept: $XDG_CACHE_HOME/zerox/ or ~/.cache/zerox/, a file for each processor,
// ranks, threads and version. NULL: there is no such place.
const char *zx_calibrate_path(uint32_t ranks, uint32_t threads, zx_arena *mem);

typedef struct zx_calibrated {
    zx_machine machine;
    bool fresh;       // it was measured now
    double seconds;   // how long that took
    const char *path; // where it is kept; NULL: nowhere, because of:
    const char *why;
} zx_calibrated;
// From the cache; measured and kept there where it isn't, or if `again`. What can't be kept is no
// error.
zx_status zx_calibrate_host(uint32_t ranks, uint32_t threads, bool again, zx_arena *mem,
                            zx_calibrated *out, zx_err *err);

#endif
