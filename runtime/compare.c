// compare.c - a comparison of policies as a table; see compare.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/progress.h"

// ---- who is fastest -----------------------------------------------------------------------------

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double *sorted_of(const double *x, uint32_t n)
{
    double *sorted = malloc(n * sizeof *sorted);
    ZX_ASSERT(sorted != NULL);
    memcpy(sorted, x, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    return sorted;
}

double zx_compare_median(const double *x, uint32_t n)
{
    if (n == 0) return 0;
    double *sorted = sorted_of(x, n);
    const double median = n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    free(sorted);
    return median;
}

// Each value is below the median or above it, like a coin: the k least and the k greatest can be
// left out while k or fewer of n on one side are rarer than 2.5 %.
void zx_compare_interval(const double *x, uint32_t n, double *from, double *to)
{
    *from = *to = 0;
    if (n == 0) return;
    uint32_t out = 0;
    double chance = exp2(-(double)n), below = chance; // that none, that `out` or fewer are below
    while (below <= 0.025 && 2 * out + 2 < n) {
        out++;
        chance *= (n - out + 1.0) / out;
        below += chance;
    }
    if (out > 0) out--; // the last one was too many
    double *sorted = sorted_of(x, n);
    *from = sorted[out];
    *to = sorted[n - 1 - out];
    free(sorted);
}

double zx_compare_off(const double *x, uint32_t n)
{
    double from, to;
    const double median = zx_compare_median(x, n);
    zx_compare_interval(x, n, &from, &to);
    return median > 0 ? fmax(to - median, median - from) / median : 0;
}

double zx_compare_known(const zx_compare *c)
{
    double known = 0;
    for (uint32_t i = 0; i < c->n_rows; i++)
        known = fmax(known, zx_compare_off(c->rows[i].steps, c->rows[i].n_steps));
    return known;
}

// What is compared: measured where policies were executed. 0: this one wasn't.
static double seconds_of(const zx_compare *c, const zx_compare_row *r)
{
    return c->executed ? r->median : r->predicted;
}

void zx_compare_rank(zx_compare *c)
{
    c->fastest = ZX_NONE;
    for (uint32_t i = 0; i < c->n_rows; i++) {
        zx_compare_row *r = &c->rows[i];
        r->least = 0;
        for (uint32_t k = 0; k < r->n_steps; k++)
            if (k == 0 || r->steps[k] < r->least) r->least = r->steps[k];
        r->median = zx_compare_median(r->steps, r->n_steps);
        zx_compare_interval(r->steps, r->n_steps, &r->from, &r->to);
        r->exposed_median = zx_compare_median(r->exposed, r->n_steps);
        const double seconds = seconds_of(c, r);
        r->ranked = seconds > 0 && r->over_bytes == 0 && zx_policies[r->id].runs &&
                    r->variant == NULL; // it computes something else
        if (!r->ranked) continue;
        if (c->fastest == ZX_NONE || seconds < seconds_of(c, &c->rows[c->fastest])) c->fastest = i;
    }
    for (uint32_t i = 0; i < c->n_rows && c->fastest != ZX_NONE; i++) {
        zx_compare_row *r = &c->rows[i];
        if (r->over_bytes == 0) r->ratio = seconds_of(c, r) / seconds_of(c, &c->rows[c->fastest]);
    }
}

bool zx_compare_below(const zx_compare *c, const zx_compare_row *r)
{
    return c->executed && r->n_steps > 0 && r->over_bytes == 0 && r->variant == NULL &&
           r->median < (1 - 0.0005) * c->bound.seconds;
}

// ---- tables -------------------------------------------------------------------------------------

typedef struct grid { // cells of text, columns as wide as they must be; the first is flush left
    zx_arena *mem;
    uint32_t columns, rows;
    const char **cell;
} grid;

static grid grid_of(uint32_t columns, uint32_t rows, zx_arena *mem)
{
    return (grid){mem, columns, rows, ZX_NEW(mem, const char *, (size_t)columns *rows)};
}

static void put_grid(const grid *g, zx_text *out)
{
    for (uint32_t r = 0; r < g->rows; r++) {
        size_t pad = 0; // not before it is known that something follows: no line ends in blanks
        for (uint32_t c = 0; c < g->columns; c++) {
            const char *text = g->cell[r * g->columns + c];
            size_t width = 0;
            for (uint32_t k = 0; k < g->rows; k++) {
                const char *other = g->cell[k * g->columns + c];
                if (other != NULL && strlen(other) > width) width = strlen(other);
            }
            if (width == 0) continue;
            const size_t n = text != NULL ? strlen(text) : 0;
            const bool left = c == 0 || c + 1 == g->columns; // names, and remarks at the end
            if (c > 0) pad += 2;
            if (!left) pad += width - n;
            if (n > 0) {
                zx_text_put(out, "%*s%s", (int)pad, "", text);
                pad = 0;
            } else if (!left)
                pad += n;
            if (left) pad += width - n;
        }
        zx_text_put(out, "\n");
    }
}

static const char *time_text(zx_arena *mem, double seconds)
{
    char buf[ZX_BYTES_TEXT];
    return zx_arena_str(mem, zx_progress_time(seconds, buf));
}
static const char *size_text(zx_arena *mem, uint64_t bytes)
{
    char buf[ZX_BYTES_TEXT];
    return zx_arena_str(mem, zx_text_size(bytes, buf));
}

const char *zx_compare_rate(double bytes_per_second, char buf[ZX_BYTES_TEXT])
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    size_t u = 0;
    for (; bytes_per_second >= 100 && u + 1 < ZX_COUNT(units); u++) bytes_per_second /= 1000;
    if (bytes_per_second >= 100 || u == 0)
        snprintf(buf, ZX_BYTES_TEXT, "%.4g %s", bytes_per_second, units[u]);
    else
        snprintf(buf, ZX_BYTES_TEXT, "%.3g %s", bytes_per_second, units[u]);
    return buf;
}

// Above the bound, of a policy that keeps to what the bound assumes.
static const char *over_bound(const zx_compare *c, const zx_compare_row *r, zx_arena *mem)
{
    const double seconds = seconds_of(c, r);
    if (r->over_bytes > 0 || !zx_policies[r->id].runs || seconds <= 0 || c->bound.seconds <= 0 ||
        r->variant != NULL || zx_compare_below(c, r))
        return "-";
    const double over = 100 * (seconds / c->bound.seconds - 1);
    return zx_arena_printf(mem, "%.1f %%", over > -0.05 && over < 0 ? 0 : over);
}

// What stands in place of "fastest" where nothing else is ranked; NULL: something is.
static const char *why_alone(const zx_compare *c)
{
    uint32_t ranked = 0, within = 0;
    for (uint32_t i = 0; i < c->n_rows; i++) {
        const zx_compare_row *r = &c->rows[i];
        ranked += r->ranked;
        within +=
            r->predicted > 0 && r->over_bytes == 0 && zx_policies[r->id].runs && r->variant == NULL;
    }
    if (ranked > 1) return NULL;
    return within > 1 ? "the only one executed" : "alone within the budget";
}

static const char *remark(const zx_compare *c, const zx_compare_row *r, zx_arena *mem)
{
    zx_text t = {0};
    const bool fastest = c->fastest != ZX_NONE && r == &c->rows[c->fastest];
    const char *alone = fastest ? why_alone(c) : NULL;
    if (alone != NULL)
        zx_text_put(&t, "%s", alone);
    else if (r->ratio > 0 && r->over_bytes == 0)
        zx_text_put(&t, "%.2fx%s", r->ratio, fastest ? " fastest" : "");
    if (r->over_bytes > 0) zx_text_put(&t, "OVER by %s", size_text(mem, r->over_bytes));
    if (!zx_policies[r->id].runs) zx_text_put(&t, "%ssimulated only", t.n > 0 ? ", " : "");
    if (c->executed && r->idle != NULL && r->idle[0] != '\0')
        zx_text_put(&t, "%s%s", t.n > 0 ? ", " : "", r->idle);
    const char *text = zx_arena_str(mem, t.at != NULL ? t.at : "");
    zx_text_free(&t);
    return text;
}

enum {
    POLICY,
    PREDICTED,
    MEASURED,
    LEAST,
    EXPOSED,
    WIRE,
    COLLECTIVES,
    PEAK,
    OVER,
    REMARK,
    COLUMNS
};

static void fill_row(const zx_compare *c, const zx_compare_row *r, const char **cell, zx_arena *mem)
{
    const bool ran = c->executed && r->n_steps > 0;
    cell[POLICY] = zx_text_safe(mem, r->name);
    cell[PREDICTED] = time_text(mem, r->predicted);
    if (c->executed) {
        cell[MEASURED] = ran ? time_text(mem, r->median) : "-";
        cell[LEAST] = ran ? time_text(mem, r->least) : "-";
    }
    cell[EXPOSED] = time_text(mem, ran ? r->exposed_median : r->predicted_exposed);
    cell[WIRE] = size_text(mem, r->result.plan.wire_bytes);
    cell[COLLECTIVES] = zx_arena_printf(mem, "%u", r->collectives);
    cell[PEAK] = size_text(mem, r->result.plan.arena_bytes);
    cell[OVER] = over_bound(c, r, mem);
    cell[REMARK] = remark(c, r, mem);
}

static void put_rows(const zx_compare *c, zx_text *out)
{
    zx_arena mem = {0};
    grid g = grid_of(COLUMNS, c->n_rows + 1, &mem);
    static const char *const heads[COLUMNS] = {"policy",     "predicted", NULL,          NULL,
                                               "exposed",    "wire",      "collectives", "peak",
                                               "over bound", ""};
    memcpy(g.cell, heads, sizeof heads);
    if (c->executed) {
        g.cell[MEASURED] = "measured";
        g.cell[LEAST] = "min";
    }
    for (uint32_t i = 0; i < c->n_rows; i++)
        fill_row(c, &c->rows[i], &g.cell[(i + 1) * COLUMNS], &mem);
    put_grid(&g, out);
    zx_arena_free(&mem);
}

// ---- below the table ----------------------------------------------------------------------------

static void put_bound(const zx_bound *b, zx_text *out)
{
    char all[ZX_BYTES_TEXT], compute[ZX_BYTES_TEXT], wire[ZX_BYTES_TEXT], path[ZX_BYTES_TEXT],
        bytes[ZX_BYTES_TEXT], moving[ZX_BYTES_TEXT];
    zx_text_put(out, "bound %s, by %s: compute %s", zx_progress_time(b->seconds, all),
                zx_bound_binds(b), zx_progress_time(b->compute, compute));
    if (b->moving > 0)
        zx_text_put(out, " (with %s of a core to move and add bytes)",
                    zx_progress_time(b->moving, moving));
    zx_text_put(out, ", wire %s (%s)", zx_progress_time(b->wire, wire),
                zx_text_size(b->wire_bytes, bytes));
    zx_text_put(out, ", start and tail %s\n", zx_progress_time(b->path, path));
}

static void put_setting(const zx_compare *c, bool budget, bool link, zx_text *out)
{
    char size[ZX_BYTES_TEXT], rate[ZX_BYTES_TEXT], late[ZX_BYTES_TEXT];
    zx_arena mem = {0};
    if (budget && c->budget == UINT64_MAX) zx_text_put(out, "no budget, ");
    if (budget && c->budget != UINT64_MAX)
        zx_text_put(out, "budget %s a rank, ", zx_text_size(c->budget, size));
    zx_text_put(out, "%u rank%s", c->ranks, c->ranks == 1 ? "" : "s");
    if (c->machine == NULL)
        zx_text_put(out, " x %u thread%s", c->threads, c->threads == 1 ? "" : "s");
    zx_text_put(out, ", %u micro-batch%s a step", c->micro_batches,
                c->micro_batches == 1 ? "" : "es");
    if (link && (c->bandwidth > 0 || c->latency > 0))
        zx_text_put(out, ", link %s and %s a collective",
                    c->bandwidth > 0 ? zx_compare_rate(c->bandwidth, rate) : "without limit",
                    zx_progress_time(c->latency, late));
    else if (link && c->ranks > 1 && c->machine == NULL)
        zx_text_put(out, ", no link: ranks share this host's memory");
    if (c->machine != NULL)
        zx_text_put(out, "\nSIMULATED on %s", zx_text_safe(&mem, c->machine));
    else if (!c->executed)
        zx_text_put(out, "\npredicted for this host: --execute runs them");
    zx_text_put(out, "\n");
    zx_arena_free(&mem);
}

static void put_busy(const zx_compare *c, zx_text *out)
{
    bool busy = c->drift > ZX_COMPARE_DRIFT;
    for (uint32_t i = 0; i < c->n_rows; i++) busy |= zx_compare_below(c, &c->rows[i]);
    if (!busy) return;
    zx_text_put(out, "the machine was busy while op times were measured");
    if (c->drift > 0) zx_text_put(out, " (before/after passes differ by %.0f %%)", 100 * c->drift);
    zx_text_put(out, ": measure again on a quiet one\n");
}

static void put_execution(const zx_compare *c, zx_text *out)
{
    if (c->timed < c->asked)
        zx_text_put(out, "interrupted: %u of %u steps of each policy were timed after %u\n",
                    c->timed, c->asked, c->warm);
    else
        zx_text_put(out,
                    "%u steps of each policy timed after %u, %s; measured is the median, known to "
                    "%.1f %%\n",
                    c->timed, c->warm,
                    c->one_by_one ? "each in a session of its own, as not all fit at once"
                                  : "in turn",
                    100 * zx_compare_known(c));
    put_busy(c, out);
    uint32_t executed = 0;
    for (uint32_t i = 0; i < c->n_rows; i++) executed += c->rows[i].idle == NULL;
    if (c->n_losses == 0 || executed < 2) return;
    if (c->differ != NULL)
        zx_text_put(out, "losses identical: no: %s\n", c->differ);
    else
        zx_text_put(out, "losses identical: yes (%u steps of %u policies)\n", c->n_losses,
                    executed);
}

void zx_compare_table(const zx_compare *c, zx_text *out)
{
    zx_arena mem = {0};
    put_rows(c, out);
    zx_text_put(out, "\n");
    put_bound(&c->bound, out);
    put_setting(c, true, true, out);
    if (c->executed) put_execution(c, out);
    for (uint32_t i = 0; i < c->n_rows; i++)
        if (c->rows[i].result.knobs[0] != '\0')
            zx_text_put(out, "%s: %s\n", zx_text_safe(&mem, c->rows[i].name),
                        c->rows[i].result.knobs);
    for (uint32_t i = 0; i < c->notes.n; i++)
        zx_text_put(out, "%s\n", zx_text_safe(&mem, c->notes.text[i]));
    zx_arena_free(&mem);
}

// ---- sweeps -------------------------------------------------------------------------------------

// A row a policy; in a column of bandwidths or budgets its step, "over" where it isn't in it.
void zx_sweep_table(const zx_sweep *s, zx_text *out)
{
    zx_arena mem = {0};
    const zx_compare *first = &s->points[0].c;
    const uint32_t columns = s->n + 2, n = first->n_rows;
    grid g = grid_of(columns, n + 2, &mem);
    g.cell[0] = s->budgets ? "policy \\ budget" : "policy \\ bandwidth";
    g.cell[(n + 1) * columns] = "bound";
    for (uint32_t k = 0; k < s->n; k++) {
        const zx_compare *c = &s->points[k].c;
        g.cell[k + 1] = zx_text_safe(&mem, s->points[k].typed);
        const char *best =
            c->fastest != ZX_NONE ? time_text(&mem, c->rows[c->fastest].predicted) : "";
        for (uint32_t i = 0; i < n; i++) {
            const zx_compare_row *r = &c->rows[i];
            const char *time = time_text(&mem, r->predicted);
            if (r->predicted <= 0) time = "-";
            if (r->over_bytes > 0)
                time = zx_arena_printf(&mem, "over %s", time);
            else if (r->ranked && strcmp(time, best) == 0) // ties of what is printed are ties
                time = zx_arena_printf(&mem, "*%s", time);
            g.cell[(i + 1) * columns + k + 1] = time;
            g.cell[(i + 1) * columns] = zx_text_safe(&mem, r->name);
        }
        g.cell[(n + 1) * columns + k + 1] = time_text(&mem, c->bound.seconds);
    }
    put_grid(&g, out);
    zx_text_put(out, "\n*: the fastest within the budget; over: it takes more than the budget\n");
    put_setting(first, !s->budgets, s->budgets, out);
    for (uint32_t i = 0; i < first->notes.n; i++)
        zx_text_put(out, "%s\n", zx_text_safe(&mem, first->notes.text[i]));
    zx_arena_free(&mem);
}
