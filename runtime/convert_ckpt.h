// convert_ckpt.h - weights from files as a run that has done no step yet: a folder that
// train --resume goes on in.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CONVERT_CKPT_H
#define ZX_RUNTIME_CONVERT_CKPT_H

#include "graph/base/err.h"
#include "runtime/options.h"

// o: FROM, TO (the folder), --model, and maybe --config, --ranks, --dim, --data, --force. Writes
// TO/checkpoints/step-0, then TO/config.json. Optimizer states are zero, however many FROM has.
// E_DATA as zx_init_open; E_USAGE for a folder that has a run. On failure nothing is there.
zx_status zx_convert_checkpoint(const zx_options *o, zx_err *err);

#endif
