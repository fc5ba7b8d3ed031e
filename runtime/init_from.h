// init_from.h - weights and buffers from files as first values, found by their names: of a session
// (train --init), or of a checkpoint (convert).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_INIT_FROM_H
#define ZX_RUNTIME_INIT_FROM_H

#include "runtime/tensors.h"

typedef struct zx_init_from {
    zx_tensors files;
    uint32_t n_units;
    const uint32_t *at; // of files: by unit, then by buffer; ZX_NONE: isn't there
    zx_text report;     // what was found, a line each
} zx_init_from;

// Opens what `path` names (zx_tensors_open) and finds each parameter and buffer by its name or
// another name of the same tensor; a tensor that is there under several names has to be the same
// under all. A float type becomes float32. Without `partial` all of the model's have to be there
// and nothing else (optimizer states apart): E_DATA, each with the nearest name. thorough: reads
// what is only compared, too; on one rank. convert: what is said is for that command. Of the plan
// only what its units are is read.
typedef struct zx_init_how {
    bool partial, thorough, convert;
} zx_init_how;
zx_status zx_init_open(const char *path, const zx_graph *train, const zx_plan *plan,
                       zx_init_how how, zx_arena *mem, zx_init_from *out, zx_err *err);
void zx_init_close(zx_init_from *f);             // accepts a zeroed one
zx_values zx_init_values(const zx_init_from *f); // lives as long as f

#endif
