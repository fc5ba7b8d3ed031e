// job_policy.h - what policies are told of a job, and which of them a command line asks for: plan,
// compare and simulate share it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_JOB_POLICY_H
#define ZX_RUNTIME_JOB_POLICY_H

#include "runtime/cmd.h"
#include "sched/policy.h"

// Everything that policies ask of an imported job; it is in job->mem. What is assumed of the
// modules goes to job->hook_notes, for zx_job_note_hooks where a policy looks at them. A file that
// shows no modules is no error yet: in->hooks_why says so.
zx_status zx_job_policy_input(zx_job *job, zx_policy_input *in, zx_err *err);
void zx_job_note_hooks(zx_job *job);
bool zx_policy_has_hooks(zx_policy_id id);

// The most bytes of values that are neither parameters nor their gradients at any step.
uint64_t zx_job_activation_bytes(const zx_job *job);
// A line on precision, recomputation and the most bytes that activations take, in `out`; nothing
// for a float32 graph as it is trained.
void zx_job_put_types(const zx_job *job, zx_text *out);

// Makes the plan of a policy. The notes tell what a reader of it should know beside.
zx_status zx_job_policy_plan(zx_job *job, zx_policy_id id, zx_policy_input *in, zx_arena *mem,
                             zx_policy_result *out, zx_err *err);

// The policies of a comma list of words, or of "all", in the table's order; of each word the forms
// that `form` ("as-deepspeed") names, all of them where it is NULL. E_USAGE with what is near.
zx_status zx_job_policies(const char *words, const char *form, zx_policy_id ids[ZX_POLICY_COUNT],
                          uint32_t *n, zx_err *err);
// Refuses options that none of these policies reads. E_USAGE.
zx_status zx_job_check_policies(const zx_options *o, const zx_policy_id *ids, uint32_t n,
                                zx_err *err);

#endif
