// cmd_plan.h - the parts of zerox plan.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CMD_PLAN_H
#define ZX_RUNTIME_CMD_PLAN_H

#include "runtime/cmd.h"

// Whether --format decisions was asked for; E_USAGE for what doesn't go with it, or only with it.
zx_status zx_cmd_decisions_check(const zx_options *o, bool *decisions, zx_err *err);
// What has no effect on plans of zerox's own mostly has one on hooks: those notes would mislead.
void zx_cmd_drop_idle_notes(zx_notes *notes);
// --policy hooks --format decisions.
zx_status zx_cmd_decisions(const zx_options *o, zx_err *err);

#endif
