// memory.h - what this host has for us: memory, cores; what this process really occupies; and the
// budget of a rank that follows.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_MEMORY_H
#define ZX_RUNTIME_MEMORY_H

#include "graph/base/err.h"

// The least of the cgroup's limits and the memory that is available now; 0: nothing says.
uint64_t zx_memory_usable(void);
// Bytes of this process in memory, shared pages divided by their users (Pss); 0: nothing says.
uint64_t zx_memory_pss(void);
// Cores that this process may use: affinity and the cgroup's quota; at least 1.
uint32_t zx_memory_cores(void);

typedef struct zx_budget {
    uint64_t bytes; // of one rank's reservation
    bool least;     // "min": the least that a plan is found for
    bool roomy;     // nothing was asked for: 80 %, and within it least memory at nearly best speed
} zx_budget;
// "24GB", "24GiB", "80%", "min", bytes; NULL: the default. `usable` is zx_memory_usable().
zx_status zx_budget_parse(const char *text, uint64_t usable, uint32_t local_ranks, zx_budget *out,
                          zx_err *err);

#endif
