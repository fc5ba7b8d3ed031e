// cmd_plan_auto.h - zerox plan --auto.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CMD_PLAN_AUTO_H
#define ZX_RUNTIME_CMD_PLAN_AUTO_H

#include "runtime/cmd.h"

// Plans every way to cut the config's global batch, and prints them.
zx_status zx_cmd_plan_auto(const zx_options *o, zx_err *err);

#endif
