// job_params.h - parameters chosen by names: those that stay as they are (zerox.freeze), and groups
// with a rate or a weight decay of their own (zerox.param_groups).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_JOB_PARAMS_H
#define ZX_RUNTIME_JOB_PARAMS_H

#include "graph/base/text.h"

struct zx_job;

typedef struct zx_param_group {
    uint32_t n_patterns; // 0: by dimensions alone
    const char *const *patterns;
    int64_t max_dims; // < 0: any
    bool has_lr, has_decay;
    double lr, weight_decay;
    uint32_t n_params; // that are in it
} zx_param_group;

// Reads zerox.param_groups; what is wrong with it is said by group and member. Before the import.
zx_status zx_job_param_groups(struct zx_job *job, zx_err *err);
// Of the job's imported model: marks what is frozen, finds who is in which group. E_USAGE for a
// pattern that matches nothing, a group that is left with nothing, and where all would be frozen.
zx_status zx_job_params(struct zx_job *job, zx_err *err);
// Lines about frozen parameters and groups; "" where there is nothing to say.
void zx_job_params_text(const struct zx_job *job, zx_text *out);

#endif
