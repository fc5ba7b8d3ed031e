// lp.c - see lp.h. Solved by Clp, where the build found it.
// SPDX-License-Identifier: Apache-2.0
#include "sched/lp.h"

#include <math.h>

#ifdef ZX_CLP
#include <coin/Clp_C_Interface.h>
#endif

uint32_t zx_lp_column(zx_lp *lp, double least, double most, double cost)
{
    ZX_ASSERT(least <= most && isfinite(least) && isfinite(most));
    ZX_GROW(lp->mem, lp->least, lp->n_columns, lp->cap_columns[0]);
    ZX_GROW(lp->mem, lp->most, lp->n_columns, lp->cap_columns[1]);
    ZX_GROW(lp->mem, lp->cost, lp->n_columns, lp->cap_columns[2]);
    lp->least[lp->n_columns] = least;
    lp->most[lp->n_columns] = most;
    lp->cost[lp->n_columns] = cost;
    return lp->n_columns++;
}

void zx_lp_row(zx_lp *lp, double least, double most)
{
    ZX_GROW(lp->mem, lp->row_least, lp->n_rows, lp->cap_rows[0]);
    ZX_GROW(lp->mem, lp->row_most, lp->n_rows, lp->cap_rows[1]);
    ZX_GROW(lp->mem, lp->row_at, lp->n_rows, lp->cap_rows[2]);
    lp->row_least[lp->n_rows] = least;
    lp->row_most[lp->n_rows] = most;
    lp->row_at[lp->n_rows++] = lp->n_terms;
}

void zx_lp_put(zx_lp *lp, uint32_t column, double factor)
{
    ZX_GROW(lp->mem, lp->column, lp->n_terms, lp->cap_terms[0]);
    ZX_GROW(lp->mem, lp->factor, lp->n_terms, lp->cap_terms[1]);
    lp->column[lp->n_terms] = column;
    lp->factor[lp->n_terms++] = factor;
}

#ifdef ZX_CLP

static uint32_t row_end(const zx_lp *lp, uint32_t row)
{
    return row + 1 < lp->n_rows ? lp->row_at[row + 1] : lp->n_terms;
}

// Of any multipliers y: cost x = sum y (row x) + sum (cost - y column) x, each at its least. A
// multiplier whose side of the row is open counts as 0.
static double bound_by(const zx_lp *lp, const double *y)
{
    zx_arena mem = {0};
    double *left = ZX_NEW(&mem, double, lp->n_columns + 1), sum = 0;
    for (uint32_t c = 0; c < lp->n_columns; c++) left[c] = lp->cost[c];
    for (uint32_t r = 0; r < lp->n_rows; r++) {
        const double side = y[r] > 0 ? lp->row_least[r] : lp->row_most[r];
        if (y[r] == 0 || !isfinite(y[r]) || !isfinite(side)) continue;
        sum += y[r] * side;
        for (uint32_t t = lp->row_at[r]; t < row_end(lp, r); t++)
            left[lp->column[t]] -= y[r] * lp->factor[t];
    }
    for (uint32_t c = 0; c < lp->n_columns; c++)
        sum += left[c] * (left[c] > 0 ? lp->least[c] : lp->most[c]);
    zx_arena_free(&mem);
    return sum;
}

// Terms by column; those of one column and row are added up.
typedef struct columns {
    CoinBigIndex *at;
    int *row;
    double *factor;
} columns;

static columns by_column(const zx_lp *lp, zx_arena *mem)
{
    columns s = {ZX_NEW(mem, CoinBigIndex, lp->n_columns + 1), ZX_NEW(mem, int, lp->n_terms + 1),
                 ZX_NEW(mem, double, lp->n_terms + 1)};
    uint32_t *at = ZX_NEW(mem, uint32_t, lp->n_columns + 2);
    for (uint32_t t = 0; t < lp->n_terms; t++) at[lp->column[t] + 1]++;
    for (uint32_t c = 0; c < lp->n_columns; c++) at[c + 1] += at[c];
    uint32_t *end = ZX_NEW(mem, uint32_t, lp->n_columns + 1);
    for (uint32_t c = 0; c < lp->n_columns; c++) end[c] = at[c];
    for (uint32_t r = 0; r < lp->n_rows; r++)
        for (uint32_t t = lp->row_at[r]; t < row_end(lp, r); t++) {
            const uint32_t c = lp->column[t];
            if (end[c] > at[c] && s.row[end[c] - 1] == (int)r) {
                s.factor[end[c] - 1] += lp->factor[t];
                continue;
            }
            s.row[end[c]] = (int)r;
            s.factor[end[c]++] = lp->factor[t];
        }
    uint32_t n = 0;
    for (uint32_t c = 0; c < lp->n_columns; c++) {
        s.at[c] = (CoinBigIndex)n;
        for (uint32_t i = at[c]; i < end[c]; i++, n++) {
            s.row[n] = s.row[i];
            s.factor[n] = s.factor[i];
        }
    }
    s.at[lp->n_columns] = (CoinBigIndex)n;
    return s;
}

zx_status zx_lp_bound(const zx_lp *lp, double *out, zx_err *err)
{
    zx_arena mem = {0};
    zx_status st = ZX_OK;
    const columns s = by_column(lp, &mem);
    Clp_Simplex *model = Clp_newModel();
    Clp_setLogLevel(model, 0);
    Clp_loadProblem(model, (int)lp->n_columns, (int)lp->n_rows, s.at, s.row, s.factor, lp->least,
                    lp->most, lp->cost, lp->row_least, lp->row_most);
    Clp_dual(model, 0); // no presolve: its multipliers are those of the rows
    const double *y = Clp_dualRowSolution(model);
    if (y == NULL)
        st = ZX_FAIL(err, ZX_E_DEVICE, "the linear program of the bound has no multipliers");
    else
        *out = bound_by(lp, y);
    Clp_deleteModel(model);
    zx_arena_free(&mem);
    return st;
}

#else

zx_status zx_lp_bound(const zx_lp *lp ZX_UNUSED, double *out, zx_err *err)
{
    *out = 0;
    zx_err_hint(err, "install Clp (Debian: coinor-libclp-dev), build again");
    return ZX_FAIL(err, ZX_E_UNSUPPORTED, "zerox was built without a solver of linear programs");
}

#endif
