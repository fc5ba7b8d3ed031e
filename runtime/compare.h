// compare.h - what a comparison of policies found, and how it is written: a table, JSON.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_COMPARE_H
#define ZX_RUNTIME_COMPARE_H

#include "sched/bound.h"
#include "sched/policy.h"

typedef struct zx_compare_row { // a policy
    zx_policy_id id;
    const char *name;                 // "hooks, as DeepSpeed"
    const struct zx_variant *variant; // its own train graph (--recompute auto); NULL: everybody's
    zx_policy_result result;          // its plan
    double predicted, predicted_exposed; // seconds
    uint32_t collectives;                // in a step
    uint64_t over_bytes;                 // more than the budget; 0: within it
    const char *idle; // why it wasn't executed where the others were; NULL: it was
    bool ranked;
    double ratio; // of its step to the fastest's; 0: not ranked
    // Executed: seconds of every timed step, the slowest rank's.
    uint32_t n_steps;
    double *steps, *exposed;
    double least, median, exposed_median;
    double from, to;        // the median lies between, to 95 %
    uint64_t touched_bytes; // of the reservation, by any rank
} zx_compare_row;

typedef struct zx_compare {
    const char *model, *machine; // machine: NULL: this host
    const char *recompute;       // "none", "full": of all rows without a variant
    uint32_t ranks, threads, micro_batches;
    uint64_t budget;           // UINT64_MAX: none
    double bandwidth, latency; // of the emulated link; 0: none
    zx_bound bound;
    uint32_t n_rows, fastest; // fastest: a row; ZX_NONE: none is ranked
    zx_compare_row *rows;
    zx_notes notes; // below the table
    // Executed:
    bool executed, one_by_one; // opened anew for each round, as not all fit at once
    uint32_t warm, timed;      // steps of each policy, timed: those that were done
    uint32_t asked;            // and that were to be
    uint32_t n_losses;         // steps whose losses were compared, warm-up included
    const double *losses;      // of the first policy
    const char *differ;        // where losses differ; NULL: nowhere
    double
        drift; // op times before and after the rounds: the longer by the shorter - 1; 0: one pass
} zx_compare;

// Of op times: more tells that others used the machine.
#define ZX_COMPARE_DRIFT 0.15
// Whether a row was measured below the bound, which is made of op times.
bool zx_compare_below(const zx_compare *c, const zx_compare_row *r);

// Least and medians of what was executed; who is ranked, the fastest and the ratios.
void zx_compare_rank(zx_compare *c);
double zx_compare_median(const double *x, uint32_t n); // 0 of none
// The 95 % interval of the median of n values, from their ranks alone; the least and the greatest
// where n is too few for one.
void zx_compare_interval(const double *x, uint32_t n, double *from, double *to);
// How far the median of n values may be off at most, by that interval and the median; 0 of none.
double zx_compare_off(const double *x, uint32_t n);
// The same, the widest of all rows. 0: nothing was executed.
double zx_compare_known(const zx_compare *c);

void zx_compare_table(const zx_compare *c, zx_text *out);
void zx_compare_json(const zx_compare *c, zx_text *out);

// The same over several budgets or bandwidths.
typedef struct zx_sweep_point {
    double value;      // bytes, or bytes a second
    const char *typed; // as it was asked for
    zx_compare c;      // with the same policies in each
} zx_sweep_point;
typedef struct zx_sweep {
    bool budgets; // false: bandwidths
    uint32_t n;
    zx_sweep_point *points;
} zx_sweep;
void zx_sweep_table(const zx_sweep *s, zx_text *out);
void zx_sweep_json(const zx_sweep *s, zx_text *out);

// "0.5 GB/s"
const char *zx_compare_rate(double bytes_per_second, char buf[ZX_BYTES_TEXT]);

#endif
