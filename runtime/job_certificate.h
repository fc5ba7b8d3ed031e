// job_certificate.h - what a command line and a configuration say about plans of zerox's planner
// (objective, pins), and what is said of such a plan: its certificate, what named limits cost.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_JOB_CERTIFICATE_H
#define ZX_RUNTIME_JOB_CERTIFICATE_H

#include "runtime/certificate.h"
#include "runtime/cmd.h"

// --objective: E_USAGE for what is neither time nor memory.
zx_status zx_job_check_objective(zx_job *job, zx_err *err);
// Whether it is memory; where it isn't said: where no budget was asked for on this host.
bool zx_job_spares_memory(const zx_job *job);
// E_USAGE for options that only zerox's own planner understands, of another policy.
zx_status zx_job_check_own(const zx_options *o, const char *policy, zx_err *err);
// --pin: by unit, into mem; *out is NULL where nothing is pinned. E_USAGE for a pattern that no
// parameter matches, with the nearest.
zx_status zx_job_pins(zx_job *job, zx_arena *mem, const bool **out, zx_err *err);

// Of a plan that was made from `o`: the certificate, what each named limit costs, and with --jitter
// how the plan holds; in job->mem.
zx_status zx_job_certificate(zx_job *job, const zx_plan_options *o, const zx_plan *p,
                             zx_certificate *out, zx_err *err);

#endif
