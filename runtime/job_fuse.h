// job_fuse.h - the fusion passes of a job.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_JOB_FUSE_H
#define ZX_RUNTIME_JOB_FUSE_H

#include "graph/fuse.h"
#include "runtime/cmd.h"

// job->forward with what is recognised in it replaced, but for the passes that --no-fuse names;
// counts[ZX_FUSE_COUNT]: how often each did; NULL. E_USAGE for a pass that there isn't.
zx_status zx_job_fuse(zx_job *job, uint32_t *counts, zx_graph *out, zx_err *err);

// The same of another graph of the job.
zx_status zx_job_fuse_of(zx_job *job, const zx_graph *g, uint32_t *counts, zx_graph *out,
                         zx_err *err);

// job->plain with products and what follows them in one, where the job's backend has it and
// --no-fuse doesn't say ZX_EPILOGUES_WORD.
#define ZX_EPILOGUES_WORD "epilogue"
zx_status zx_job_epilogues(zx_job *job, zx_err *err);

#endif
