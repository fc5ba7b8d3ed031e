// convert_ckpt.h - weights as a checkpoint of a model, before its first step.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CONVERT_CKPT_H
#define ZX_RUNTIME_CONVERT_CKPT_H

#include "runtime/options.h"

// convert FROM TO --model MODEL: TO/checkpoints/step-0, in as many files as --ranks says, with
// every parameter and buffer of the model and no optimizer state. TO is made; where it is there it
// has no checkpoints, unless --force lets them go. Nothing larger than some MiB is held. E_DATA as
// zx_init_open.
zx_status zx_convert_ckpt(const zx_options *o, zx_err *err);

#endif
