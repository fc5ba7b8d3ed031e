// report_priv.h - what the parts of a report share.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_REPORT_PRIV_H
#define ZX_RUNTIME_REPORT_PRIV_H

#include "runtime/report.h"

// The pieces of the page, embedded when zerox is built: name and text of each file in report/.
typedef struct zx_report_file {
    const char *name, *text;
} zx_report_file;
extern const zx_report_file zx_report_files[]; // ends with a NULL name
const char *zx_report_file_text(const char *name);

// ---- where the time of a step goes
// --------------------------------------------------------------- The compute stream's time, every
// second of it in one part.
typedef enum zx_step_part {
    ZX_PART_COMPUTE, // kernels
    ZX_PART_COPY,    // copies into and out of flat buffers and buckets, and waiting for them
    ZX_PART_HOST,    // nothing was enqueued yet
    ZX_PART_START,   // waiting before the first kernel
    ZX_PART_MEMORY,  // waiting for a collective that waited for memory while the wire was free
    ZX_PART_WIRE,    // waiting for bytes
    ZX_PART_LATENCY, // waiting for what a collective takes whatever its size
    ZX_PART_TAIL,    // waiting after the last kernel
    ZX_PART_UPDATE,  // norm, optimizer, buffers
    ZX_PART_COUNT
} zx_step_part;
typedef struct zx_parts {
    double seconds[ZX_PART_COUNT]; // they add up to `step`
    double step;
    double wire; // seconds in which a collective was on the wire
} zx_parts;
extern const char *const zx_part_words[ZX_PART_COUNT];
extern const char *const zx_part_what[ZX_PART_COUNT];
// Of a plan whose start, seconds and step_seconds are those to be told.
void zx_parts_make(const zx_plan *p, zx_arena *mem, zx_parts *out);

// ---- pieces of text
// ------------------------------------------------------------------------------
void zx_report_escape(zx_text *out, const char *name);    // as HTML, attributes included
void zx_report_seconds(zx_text *out, double seconds);     // "25.1 ms"
void zx_report_bytes(zx_text *out, uint64_t bytes);       // "1.98 GiB"
void zx_report_json_safe(zx_text *out, const char *json); // JSON that may stand in a script
// The plan with what was measured in place of what was predicted.
zx_plan zx_report_measured(const zx_report *r);
// Whether policies are compared by what was measured: where the one that is shown was run.
bool zx_report_by_measured(const zx_report *r);

// The sections that are words and tables.
void zx_report_verdict(const zx_report *r, zx_arena *mem, zx_text *out);
void zx_report_policies(const zx_report *r, zx_arena *mem, zx_text *out);
void zx_report_waterfall(const zx_report *r, zx_arena *mem, zx_text *out);
void zx_report_errors(const zx_report *r, zx_arena *mem, zx_text *out);
// What the pictures are drawn from, as JSON.
void zx_report_data(const zx_report *r, zx_arena *mem, zx_text *out);

#endif
