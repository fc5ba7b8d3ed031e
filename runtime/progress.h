// progress.h - the one line a step that a person sees.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_PROGRESS_H
#define ZX_RUNTIME_PROGRESS_H

#include "graph/base/text.h"

typedef struct zx_progress_step {
    uint64_t step, steps; // 1-based; of all
    double loss, grad_norm, lr;
    double rate;            // tokens or samples a second
    const char *unit;       // "tok/s", "smp/s"
    double seconds;         // of a step
    double eta;             // seconds to go; < 0: not known
    double exposed_seconds; // < 0: there is no communication
    uint64_t resident_bytes;
    double overflow_scale; // > 0: it overflowed and was skipped, this is the next one's scale
    bool skipped;          // for another reason
    double clip_factor;    // what the gradient was multiplied by; 0, 1: it wasn't clipped
    double eval_loss;      // 0: the step wasn't evaluated
} zx_progress_step;

// "step 120/1000 loss 3.412 |g| 0.91 lr 3.0e-4 1.6k tok/s 152 ms eta 2:14": as many of these as fit
// in `width` columns, at least the first, all where it is 0; "|g| 3.10→1.00" where the gradient was
// clipped; from 100 columns on also exposed communication and memory. No newline, no escape
// sequences.
void zx_progress_line(const zx_progress_step *s, uint32_t width, zx_text *out);

const char *zx_progress_time(double seconds, char buf[ZX_BYTES_TEXT]);  // "152 ms", "1.52 s"
const char *zx_progress_clock(double seconds, char buf[ZX_BYTES_TEXT]); // "2:14", "1:02:14"

// How the terminal on `fd` is to be written to. Nothing is ever coloured, so NO_COLOR holds.
typedef struct zx_progress_style {
    bool in_place;  // rewrite one line: a terminal that isn't dumb
    uint32_t width; // columns; where nothing says, 80 of a terminal, 0 of a file
} zx_progress_style;
zx_progress_style zx_progress_style_of(int fd);

#endif
