// certificate.h - how good a plan is: its distance to the lower bound, what binds, what more memory
// would give, what limits that were named cost, and how it holds when times aren't as predicted.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CERTIFICATE_H
#define ZX_RUNTIME_CERTIFICATE_H

#include "sched/bound.h"

#define ZX_CERTIFICATE_MORE (UINT64_C(64) << 20) // bytes that are asked about

typedef struct zx_limit { // that a configuration or a command line named
    const char *what;     // "stage3_max_live_parameters 1000000"
    zx_plan_options without;
    // Found: of the plan against one that is made without the limit.
    double seconds; // of a step, that it costs
    int64_t bytes;  // that it saves; < 0: that it takes
} zx_limit;

typedef struct zx_robust { // seconds of the same plan where times are others
    bool known;
    double jitter;    // the 95th percentile where every operator's time is drawn anew
    double slow_rank; // one rank computes slower, and the others wait for it
} zx_robust;

typedef struct zx_certificate {
    const char *machine;
    bool budgeted;
    double seconds; // of the step, predicted
    zx_bound bound;
    const char *binds; // "compute", "wire", "start and tail"
    const char *where; // the part of the step that binds: "layers 3-9"; NULL: all of it
    bool more_known;   // false: there is no budget, or the plan leaves as much of it unused
    double more_saves; // seconds of the bound, with ZX_CERTIFICATE_MORE bytes more
    double lp;         // seconds: the nearer bound; 0: not asked for, or there is none
    const char *no_lp; // why there is none though it was asked for; NULL
    uint32_t n_limits;
    const zx_limit *limits;
    zx_robust robust;
} zx_certificate;

// Of a plan that zx_plan_make made from these options. Text is in mem.
zx_status zx_certificate_make(const zx_graph *train, const zx_plan_options *o, const zx_plan *p,
                              zx_arena *mem, zx_certificate *out, zx_err *err);
// --certify: what takes longer to find of the bound besides; seconds, not milliseconds.
zx_status zx_certificate_lp(const zx_graph *train, const zx_plan_options *o, const zx_plan *p,
                            zx_arena *mem, zx_certificate *c, zx_err *err);
// Plans again without each of the limits, and fills what was found.
zx_status zx_limits_cost(const zx_graph *train, const zx_plan *p, zx_limit *limits, uint32_t n,
                         zx_err *err);
// Of any plan, on the machine and with the times that it was made for; times NULL: the machine's
// model. The same plan and machine always give the same figures.
void zx_robust_make(const zx_graph *train, const zx_machine *m, const zx_times *times,
                    const zx_plan *p, zx_robust *out);

// Steps [from, to] of the plan's line as a reader knows them: "layers 3-9 forward"; where none of
// them is in a repeated module "'fc1' to 'loss'"; NULL where they are a whole micro-batch or more.
const char *zx_steps_text(const zx_graph *train, const zx_plan *p, uint32_t from, uint32_t to,
                          zx_arena *mem);

void zx_certificate_text(const zx_certificate *c, zx_text *out); // lines
void zx_certificate_json(const zx_certificate *c, zx_text *out); // an object
void zx_robust_text(const zx_robust *r, zx_text *out);           // a line
void zx_robust_json(const zx_robust *r, zx_text *out);           // an object, or null

#endif
