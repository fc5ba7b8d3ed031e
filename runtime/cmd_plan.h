// cmd_plan.h - the parts of zerox plan.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CMD_PLAN_H
#define ZX_RUNTIME_CMD_PLAN_H

#include "runtime/cmd.h"

// Whether --policy and what goes with it can be done; ZX_OK without --policy.
zx_status zx_cmd_hooks_check(const zx_options *o, zx_err *err);
// --policy hooks --format decisions.
zx_status zx_cmd_hooks(const zx_options *o, zx_err *err);

#endif
