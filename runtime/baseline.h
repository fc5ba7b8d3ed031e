// baseline.h - what the hook-driven baseline is told: the module calls and the limits that a config
// gives DeepSpeed's prefetcher.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_BASELINE_H
#define ZX_RUNTIME_BASELINE_H

#include "graph/blocks.h"
#include "runtime/cmd.h"
#include "sched/hooks.h"

// Where the config is silent: DeepSpeed's own defaults, or what Hugging Face's Trainer puts in the
// place of "auto".
typedef enum zx_baseline { ZX_BASELINE_RAW, ZX_BASELINE_HF } zx_baseline;

// --baseline-defaults raw|hf; raw where it isn't given. E_USAGE.
zx_status zx_baseline_defaults(const zx_options *o, zx_baseline *out, zx_err *err);
// Elements of the model's hidden size: the most frequent length of its norms' weights, or, where it
// has no norms, of its vectors. 0: it has neither.
int64_t zx_baseline_hidden(const zx_graph *forward);
// The limits by the config. hidden: for HF; 0: unknown, DeepSpeed's own defaults then.
void zx_baseline_limits(const zx_config *c, zx_baseline defaults, int64_t hidden,
                        uint32_t accumulate, zx_hook_limits *out);

// The hook events and limits of a job whose model is imported. `again`: the blocks that are
// recomputed; NULL: none. Notes say what is assumed. E_UNSUPPORTED: the file shows no modules.
zx_status zx_baseline_make(zx_job *job, const zx_blocks *again, zx_hooks *hooks,
                           zx_hook_limits *limits, zx_err *err);

#endif
