// resume.h - train --resume: what a run's folder says a run is, as the command line that goes on
// with it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_RESUME_H
#define ZX_RUNTIME_RESUME_H

#include "runtime/options.h"

typedef struct zx_resume {
    const char *dir;       // the run's folder
    const char *folder;    // its checkpoints'
    uint32_t n;            // that may be gone on from
    const char *const *at; // their folders, newest first
    const char *leftover;  // of a save that was cut off; NULL
    bool exact;            // one was named: no other one will do
    zx_options options;    // what was given, then what the run's folder says
    uint32_t n_said;
    const char *const *said; // what was given in place of the folder's, a sentence each
} zx_resume;

// `o` has --resume. Reads RUN/config.json, which is checked. E_USAGE for what is no run, or
// contradicts going on with it.
zx_status zx_resume_open(const zx_options *o, zx_arena *mem, zx_resume *out, zx_err *err);

// Members of zx.run in config.json: what of a command line a run goes on with.
void zx_resume_record(const zx_options *o, zx_text *out);

#endif
