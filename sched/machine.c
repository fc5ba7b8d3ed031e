// machine.c - how fast machines are, one row each. Constants, not measurements of this run.
// SPDX-License-Identifier: Apache-2.0
#include "sched/sched.h"

#include <string.h>

static const zx_machine machines[] = {
    // name, flops, memory, op_seconds, wire, launch_seconds, sum
    // One core of a current server (AVX-512, oneDNN f32), ranks on one host over shared memory.
    {"core", 100e9, 8e9, 3e-6, 4e9, 30e-6, 6e9},
    // One H100 SXM of 32, f32 through TF32: PLANNER.md 3.1 and 3.2.
    {"h100", 400e12, 2.7e12, 5e-6, 328e9, 270e-6, 1.5e12},
};

const zx_machine *zx_machine_find(const char *name)
{
    for (size_t i = 0; i < ZX_COUNT(machines); i++)
        if (strcmp(machines[i].name, name) == 0) return &machines[i];
    return NULL;
}

// Cores share a host's memory: two of them move about 1.7 times as much as one, many about 4 times.
zx_machine zx_machine_host(uint32_t threads)
{
    zx_machine m = machines[0];
    const double t = threads == 0 ? 1 : (double)threads;
    m.name = "host";
    m.flops *= t;
    m.memory *= 5 * t / (t + 4);
    return m;
}
