// lp.h - a linear program, row by row, and a lower bound of its least cost.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_LP_H
#define ZX_SCHED_LP_H

#include "graph/base/arena.h"
#include "graph/base/err.h"

typedef struct zx_lp { // zeroed but for mem is empty
    zx_arena *mem;
    uint32_t n_columns, n_rows, n_terms;
    uint32_t cap_columns[3], cap_rows[3], cap_terms[2];
    double *least, *most, *cost; // by column
    double *row_least, *row_most;
    uint32_t *row_at; // by row: its first term
    uint32_t *column; // by term
    double *factor;
} zx_lp;

// A column between finite bounds; its index. A row; the terms put next are its own. A column may
// come up in a row more than once.
uint32_t zx_lp_column(zx_lp *lp, double least, double most, double cost);
void zx_lp_row(zx_lp *lp, double least, double most);
void zx_lp_put(zx_lp *lp, uint32_t column, double factor);

// At most the least cost, and that itself but for rounding: from the multipliers that a solver
// finds, added up here. E_UNSUPPORTED where the program was built without one.
zx_status zx_lp_bound(const zx_lp *lp, double *out, zx_err *err);

#endif
