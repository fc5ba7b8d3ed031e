// simulate.h - what zerox simulate found, and how it is written.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_SIMULATE_H
#define ZX_RUNTIME_SIMULATE_H

#include "runtime/certificate.h"
#include "runtime/job_policy.h"

typedef struct zx_simulated_row { // a policy
    zx_policy_id id;
    bool again;                    // --recompute auto: planned with what it decides to recompute
    const char *refused;           // why there is no plan of it; NULL: there is one
    double step, compute, exposed; // seconds
    double tflops, mfu;            // of a rank; mfu 0: the machine's peak isn't known
    uint64_t peak_bytes, held_bytes, over_bytes, wire_bytes, activation_bytes;
    uint32_t collectives, mended;
    char knobs[160];
    const char *certificate, *certificate_json; // of zerox's own; NULL
    zx_robust robust;
} zx_simulated_row;

typedef struct zx_simulated {
    const zx_job *job;
    uint64_t active;  // parameters that work on a token, without the embedding table
    uint64_t tokens;  // of a rank and step
    const char *unit; // "tokens"; "samples" of a model that reads none
    uint64_t budget;  // UINT64_MAX: none
    int64_t sequence; // of a preset; 0: a file's
    uint32_t n_rows;
    zx_simulated_row *rows;
} zx_simulated;

// Of a forward graph: elements of its parameters without those that are only looked up by an input
// (the embedding table), and how many positions that input has in a micro-batch (0: there is none).
uint64_t zx_simulated_active(const zx_graph *forward, uint64_t *tokens);
// Fills a row of a plan that was simulated.
void zx_simulated_fill(const zx_simulated *s, const zx_policy_result *r, zx_simulated_row *row);
uint32_t zx_simulated_fastest(const zx_simulated *s); // of those within the budget; ZX_NONE

void zx_simulated_text(const zx_simulated *s, zx_text *out);
void zx_simulated_json(const zx_simulated *s, zx_text *out);

#endif
