// cmd_machine.h - the machine that a command plans for.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CMD_MACHINE_H
#define ZX_RUNTIME_CMD_MACHINE_H

#include "graph/import.h"
#include "runtime/backend.h"
#include "runtime/options.h"
#include "sched/machine.h"

// By --machine: a row of machines.def, a file, "host", or "constants" (of zx_machine_host). Without
// it this host, from the cache; measured first where it isn't there, of which a note tells. With
// ZX_NO_CALIBRATE in the environment this host is always the constants.
zx_status zx_cmd_machine_of(const zx_options *o, uint32_t ranks, uint32_t threads, zx_arena *mem,
                            zx_notes *notes, zx_machine *out, zx_err *err);
// The same for plans of a site: on a GPU of this host, its row of machines.def or what it says of
// itself; a note tells which.
zx_status zx_cmd_machine_at(const zx_site *site, const zx_options *o, uint32_t ranks,
                            uint32_t threads, zx_arena *mem, zx_notes *notes, zx_machine *out,
                            zx_err *err);
// Where plans of a command line run: --backend of this host, or (site left zeroed) --machine's.
// *ranks: as many as there are devices where --ranks doesn't say, as train does.
zx_status zx_cmd_site_open(const zx_options *o, zx_site *site, uint64_t *ranks, zx_err *err);
// --ranks, or as many as the machine of --machine has, or 1.
uint64_t zx_cmd_ranks(const zx_options *o);

#endif
