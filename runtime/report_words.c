// report_words.c - the sections of a report that are words and tables: the verdict, the policies,
// the waterfall, and what was measured against what was predicted.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/report_priv.h"
#include "sched/check.h"

// ---- the verdict --------------------------------------------------------------------------------

typedef struct verdict {
    double step;
    zx_bound bound;
    bool own_bound; // made here, of the plan's own predictions
    bool measured;
    zx_parts parts;
} verdict;

static verdict judge(const zx_report *r, zx_arena *mem)
{
    verdict v = {0};
    const zx_plan p = zx_report_measured(r);
    zx_parts_make(&p, mem, &v.parts);
    v.step = p.step_seconds;
    v.measured = r->measured_seconds != NULL;
    if (r->measured_seconds != NULL && r->measured_median_seconds > 0)
        v.step = r->measured_median_seconds;
    if (r->bound != NULL) {
        v.bound = *r->bound;
        return v;
    }
    zx_parts predicted;
    zx_parts_make(r->plan, mem, &predicted);
    v.own_bound = true;
    v.bound.compute = predicted.seconds[ZX_PART_COMPUTE] + predicted.seconds[ZX_PART_UPDATE];
    v.bound.wire = predicted.wire;
    // The wire of a step may overlap the next one's: no longer than what is predicted.
    v.bound.seconds = fmin(fmax(v.bound.compute, v.bound.wire), r->plan->step_seconds);
    return v;
}

static double gap_of(const verdict *v)
{
    return v->bound.seconds > 0 ? v->step / v->bound.seconds - 1 : 0;
}

// Shorter than it can be: op times, which the bound is made of, were measured on a busy machine.
static bool is_below(const verdict *v)
{
    return v->measured && gap_of(v) < -5e-4;
}

static void put_percent(zx_text *out, double x)
{
    const bool fine = fabs(x) < 0.0995 || (x > 0.9 && x < 0.9995);
    zx_text_put(out, "%.*f&nbsp;%%", fine ? 1 : 0, fabs(x) < 5e-5 ? 0.0 : 100 * x);
}

static const zx_step_part waits[] = {ZX_PART_MEMORY, ZX_PART_WIRE, ZX_PART_LATENCY, ZX_PART_START,
                                     ZX_PART_TAIL,   ZX_PART_COPY, ZX_PART_HOST};

static zx_step_part largest_wait(const zx_parts *p)
{
    zx_step_part most = waits[0];
    for (size_t i = 1; i < ZX_COUNT(waits); i++)
        if (p->seconds[waits[i]] > p->seconds[most]) most = waits[i];
    return most;
}

// What binds, as a word for the tile and as a sentence.
static const char *put_binding(const verdict *v, zx_text *out)
{
    const double kernels = v->parts.seconds[ZX_PART_COMPUTE] + v->parts.seconds[ZX_PART_UPDATE];
    const double lost = v->parts.step - kernels;
    const zx_step_part most = largest_wait(&v->parts);
    if (is_below(v)) {
        zx_text_put(out, "The machine was busier while operators were timed, so what binds can't "
                         "be told: measure again on a quiet one.");
        return "&ndash;";
    }
    if (v->bound.compute > 0 && kernels - v->bound.compute > lost) {
        zx_text_put(out, "<b>Kernels are slower than predicted:</b> they and the optimizer take ");
        zx_report_seconds(out, kernels);
        zx_text_put(out, ", of which ");
        zx_report_seconds(out, v->bound.compute);
        zx_text_put(out, " were predicted.");
        return "compute";
    }
    if (v->bound.compute >= v->bound.wire && gap_of(v) < 0.01) {
        zx_text_put(out, "<b>Compute binds.</b> Kernels and the optimizer fill ");
        put_percent(out, kernels / v->parts.step);
        zx_text_put(out, " of the step: no schedule has more than that gap to win.");
        return "compute";
    }
    if (v->bound.wire > v->bound.compute && gap_of(v) < 0.01) {
        zx_text_put(out, "<b>The wire binds.</b> It is busy all the time; only a schedule that "
                         "moves fewer bytes is faster.");
        return "wire";
    }
    static const char *const names[ZX_PART_COUNT] = {"Compute",   "Copies",   "The host",
                                                     "The start", "Memory",   "The wire",
                                                     "Latency",   "The tail", "The update"};
    zx_text_put(out, "<b>%s %s.</b> ", names[most], most == ZX_PART_COPY ? "bind" : "binds");
    zx_report_seconds(out, v->parts.seconds[most]);
    zx_text_put(out, " of ");
    zx_report_seconds(out, lost);
    zx_text_put(out, " that kernels don't use are spent %s.", zx_part_what[most]);
    return most == ZX_PART_MEMORY ? "memory" : zx_part_words[most];
}

static void put_policy_name(zx_text *out, const zx_report_policy *x)
{
    zx_report_escape(out, x->policy);
    if (x->form == NULL || x->form[0] == '\0') return;
    zx_text_put(out, ", ");
    zx_report_escape(out, x->form);
}

bool zx_report_by_measured(const zx_report *r)
{
    for (uint32_t i = 0; i < r->n_policies; i++)
        if (r->policies[i].here) return r->policies[i].measured_seconds > 0;
    return false;
}
static double time_of(const zx_report_policy *x, bool measured)
{
    return measured ? x->measured_seconds : x->predicted_seconds;
}

#define MOST_NAMED 3

// The fastest of the others within the budget, and how many those are.
static uint32_t nearest(const zx_report *r, bool measured, const zx_report_policy **named,
                        uint32_t *others)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_policies; i++) {
        const zx_report_policy *x = &r->policies[i];
        if (x->here || x->over_bytes > 0 || !(time_of(x, measured) > 0)) continue;
        ++*others;
        uint32_t at = n < MOST_NAMED ? n++ : MOST_NAMED;
        for (; at > 0 && time_of(x, measured) < time_of(named[at - 1], measured); at--)
            if (at < MOST_NAMED) named[at] = named[at - 1];
        if (at < MOST_NAMED) named[at] = x;
    }
    return n;
}

static void put_ratios(const zx_report *r, zx_text *out)
{
    const bool measured = zx_report_by_measured(r);
    const zx_report_policy *here = NULL;
    for (uint32_t i = 0; i < r->n_policies; i++)
        if (r->policies[i].here) here = &r->policies[i];
    if (here == NULL || r->n_policies < 2 || here->over_bytes > 0) return;
    const double mine = time_of(here, measured);
    const zx_report_policy *named[MOST_NAMED];
    uint32_t others = 0;
    const uint32_t n = nearest(r, measured, named, &others);
    zx_text_put(out, "<p>Within the same budget ");
    put_policy_name(out, here);
    zx_text_put(out, " is ");
    if (n == 0 || !(mine > 0))
        zx_text_put(out, "the only one that %s", measured ? "was run" : "fits");
    for (uint32_t i = 0; i < n && mine > 0; i++) {
        zx_text_put(out, "%s<b>%.2f&times;</b> as fast as ", i > 0 ? "; " : "",
                    time_of(named[i], measured) / mine);
        put_policy_name(out, named[i]);
    }
    if (others > n) zx_text_put(out, "; the table below has all %u", r->n_policies);
    zx_text_put(out, ".</p>\n");
}

static void put_tile(zx_text *out, const char *what, const zx_text *value, const char *more)
{
    zx_text_put(out, "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>\n", what,
                value->at ? value->at : "", more);
}

static void put_tiles(const zx_report *r, const verdict *v, const char *binds, zx_text *out)
{
    zx_text t[6] = {{0}}, budget = {0}, sides = {0};
    const zx_plan *p = r->plan;
    zx_report_seconds(&t[0], v->step);
    zx_report_seconds(&t[1], v->bound.seconds);
    if (is_below(v))
        zx_text_put(&t[2], "&ndash;");
    else
        put_percent(&t[2], gap_of(v));
    zx_text_put(&t[3], "%s", binds);
    zx_report_bytes(&t[4], p->arena_bytes);
    zx_report_bytes(&t[5], p->wire_bytes);
    if (v->bound.compute > 0) {
        zx_text_put(&sides, "compute ");
        zx_report_seconds(&sides, v->bound.compute);
        zx_text_put(&sides, ", wire ");
        zx_report_seconds(&sides, v->bound.wire);
    }
    if (p->budget == UINT64_MAX)
        zx_text_put(&budget, "no budget");
    else {
        zx_text_put(&budget, "of ");
        zx_report_bytes(&budget, p->budget);
    }
    zx_text_put(out, "<dl class=\"tiles\">\n");
    put_tile(out, "Step", &t[0],
             r->measured_seconds == NULL      ? "simulated"
             : r->measured_median_seconds > 0 ? "measured, the median"
                                              : "measured");
    put_tile(out, "Bound", &t[1],
             v->own_bound  ? "the larger of compute and wire"
             : is_below(v) ? "of op times on a busy machine"
                           : "no schedule takes less");
    put_tile(out, "Gap", &t[2], is_below(v) ? "none: below the bound" : "above the bound");
    put_tile(out, "Binds", &t[3], sides.at ? sides.at : "");
    put_tile(out, "Peak memory", &t[4], budget.at);
    put_tile(out, "On the wire", &t[5], "each way, a rank and step");
    zx_text_put(out, "</dl>\n");
    for (size_t i = 0; i < ZX_COUNT(t); i++) zx_text_free(&t[i]);
    zx_text_free(&budget);
    zx_text_free(&sides);
}

void zx_report_verdict(const zx_report *r, zx_arena *mem, zx_text *out)
{
    const verdict v = judge(r, mem);
    zx_text binding = {0};
    const char *binds = put_binding(&v, &binding);
    zx_text_put(out, "<p class=\"lead\">One optimizer step takes <b>");
    zx_report_seconds(out, v.step);
    zx_text_put(out, "</b>, ");
    if (is_below(&v)) {
        zx_text_put(out, "less than its bound, which was made of longer op times: ");
        zx_report_seconds(out, v.bound.seconds);
    } else {
        put_percent(out, fmax(0, gap_of(&v)));
        zx_text_put(out, " above the bound of ");
        zx_report_seconds(out, v.bound.seconds);
    }
    zx_text_put(out, ".</p>\n<p>%s</p>\n", binding.at);
    put_ratios(r, out);
    put_tiles(r, &v, binds, out);
    zx_text_free(&binding);
}

// ---- policies -----------------------------------------------------------------------------------

void zx_report_policies(const zx_report *r, zx_arena *mem ZX_UNUSED, zx_text *out)
{
    if (r->n_policies == 0) return;
    const bool measured = zx_report_by_measured(r);
    double fastest = INFINITY;
    for (uint32_t i = 0; i < r->n_policies; i++)
        if (r->policies[i].over_bytes == 0 && time_of(&r->policies[i], measured) > 0)
            fastest = fmin(fastest, time_of(&r->policies[i], measured));
    zx_text_put(out,
                "<div class=\"scroll\"><table><thead><tr><th>policy</th><th>simulated</th><th>"
                "measured</th><th>ratio</th><th>peak</th><th>budget</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < r->n_policies; i++) {
        const zx_report_policy *x = &r->policies[i];
        zx_text_put(out, "<tr%s><th>", x->here ? " class=\"here\"" : "");
        put_policy_name(out, x);
        zx_text_put(out, "</th><td>");
        zx_report_seconds(out, x->predicted_seconds);
        zx_text_put(out, "</td><td>");
        if (x->measured_seconds > 0)
            zx_report_seconds(out, x->measured_seconds);
        else
            zx_text_put(out, "&ndash;");
        zx_text_put(out, "</td><td>");
        if (x->over_bytes > 0 || !(time_of(x, measured) > 0))
            zx_text_put(out, "not ranked");
        else
            zx_text_put(out, "%.2f&times;", time_of(x, measured) / fastest);
        zx_text_put(out, "</td><td>");
        zx_report_bytes(out, x->peak_bytes);
        zx_text_put(out, "</td><td>");
        if (x->over_bytes > 0) {
            zx_text_put(out, "<b class=\"over\">OVER by ");
            zx_report_bytes(out, x->over_bytes);
            zx_text_put(out, "</b>");
        } else
            zx_text_put(out, "fits");
        zx_text_put(out, "</td></tr>\n");
    }
    zx_text_put(out, "</tbody></table></div>\n");
}

// ---- the waterfall ------------------------------------------------------------------------------

typedef struct fall { // the axis of the bars, in seconds
    double from, to;
} fall;

static void put_bar(zx_text *out, fall axis, double from, double to, const char *kind)
{
    const double span = axis.to > axis.from ? axis.to - axis.from : 1;
    const bool torn = from < axis.from;
    const double a = torn ? 0 : (from - axis.from) / span, b = (to - axis.from) / span;
    zx_text_put(out,
                "<td class=\"bars\" aria-hidden=\"true\"><i class=\"%s%s\" "
                "style=\"margin-left:%.3f%%;width:%.3f%%\"></i></td>",
                kind, torn ? " torn" : "", 100 * a, 100 * fmax(0, b - a));
}

static void put_fall_row(zx_text *out, fall axis, const char *word, const char *what, double from,
                         double seconds, const char *kind)
{
    zx_text_put(out, "<tr class=\"%s\"><th>%s</th><td>", strcmp(kind, "whole") == 0 ? "sum" : "",
                word);
    zx_report_seconds(out, seconds);
    zx_text_put(out, "</td><td>");
    put_percent(out, axis.to > 0 ? seconds / axis.to : 0);
    zx_text_put(out, "</td>");
    put_bar(out, axis, from, from + seconds, kind);
    zx_text_put(out, "<td class=\"what\">%s</td></tr>\n", what);
}

// Where kernels take nearly all of it, the bars begin late, so that the rest can be seen.
static fall axis_of(const zx_parts *p)
{
    fall axis = {0, p->step};
    double sum = 0;
    for (uint32_t k = 0; k < ZX_PART_COUNT; k++) sum += p->seconds[k];
    if (sum > axis.to) axis.to = sum;
    const double rest = axis.to - p->seconds[ZX_PART_COMPUTE];
    if (rest > 0 && rest < 0.2 * axis.to) axis.from = axis.to - 1.4 * rest;
    return axis;
}

void zx_report_waterfall(const zx_report *r, zx_arena *mem, zx_text *out)
{
    static const struct {
        zx_step_part part;
        bool always; // also where nothing is in it
    } order[] = {{ZX_PART_COMPUTE, true}, {ZX_PART_START, true},   {ZX_PART_MEMORY, true},
                 {ZX_PART_WIRE, true},    {ZX_PART_LATENCY, true}, {ZX_PART_COPY, false},
                 {ZX_PART_HOST, false},   {ZX_PART_TAIL, true},    {ZX_PART_UPDATE, true}};
    const verdict v = judge(r, mem);
    const fall axis = axis_of(&v.parts);
    double at = 0;
    zx_text_put(out, "<div class=\"scroll\"><table class=\"fall\"><thead><tr><th>part</th><th>time"
                     "</th><th>of the step</th><th aria-hidden=\"true\">");
    if (axis.from > 0) {
        zx_text_put(out, "bars begin at ");
        zx_report_seconds(out, axis.from);
    }
    zx_text_put(out, "</th><th>what it is</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < ZX_COUNT(order); i++) {
        const zx_step_part k = order[i].part;
        const double x = v.parts.seconds[k];
        if (!order[i].always && x <= 1e-9 * v.parts.step) continue;
        put_fall_row(out, axis, zx_part_words[k], zx_part_what[k], at, x,
                     k == ZX_PART_COMPUTE  ? "compute"
                     : k == ZX_PART_UPDATE ? "update"
                                           : "wait");
        at += x;
    }
    put_fall_row(out, axis, "step",
                 r->measured_seconds == NULL ? "as simulated"
                 : r->measured_median_seconds > 0
                     ? "the measured step that is nearest to the median"
                     : "as measured",
                 0, v.parts.step, "whole");
    zx_text_put(out, "</tbody></table></div>\n");
}

// ---- measured against predicted -----------------------------------------------------------------

#define MOST_NODES 25

typedef struct error_row {
    const char *name;
    uint32_t n, order;
    double predicted, measured;
} error_row;

// Worst first: by the seconds that the prediction was off.
static int by_error(const void *a, const void *b)
{
    const error_row *x = a, *y = b;
    const double p = fabs(x->measured - x->predicted), q = fabs(y->measured - y->predicted);
    if (p != q) return p > q ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static void put_error_table(zx_text *out, const char *what, error_row *rows, uint32_t n,
                            uint32_t most)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].predicted > 0 || rows[i].measured > 0) rows[used++] = rows[i];
    if (used > 0) qsort(rows, used, sizeof *rows, by_error);
    zx_text_put(out,
                "<div class=\"scroll\"><table><thead><tr><th>%s</th><th>times</th><th>predicted"
                "</th><th>measured</th><th>off by</th><th>ratio</th></tr></thead><tbody>\n",
                what);
    for (uint32_t i = 0; i < used && i < most; i++) {
        const error_row *x = &rows[i];
        zx_text_put(out, "<tr><th><bdi>");
        zx_report_escape(out, x->name);
        zx_text_put(out, "</bdi></th><td>%u</td><td>", x->n);
        zx_report_seconds(out, x->predicted);
        zx_text_put(out, "</td><td>");
        zx_report_seconds(out, x->measured);
        zx_text_put(out, "</td><td>%s", x->measured < x->predicted ? "&minus;" : "+");
        zx_report_seconds(out, fabs(x->measured - x->predicted));
        if (x->predicted > 0)
            zx_text_put(out, "</td><td>%.2f&times;</td></tr>\n", x->measured / x->predicted);
        else
            zx_text_put(out, "</td><td>&ndash;</td></tr>\n");
    }
    zx_text_put(out, "</tbody></table></div>\n");
    if (used > most) zx_text_put(out, "<p class=\"note\">and %u more</p>\n", used - most);
}

static void add_error(error_row *x, const char *name, uint32_t order, const zx_report *r,
                      uint32_t i)
{
    x->name = name;
    x->order = order;
    x->n++;
    x->predicted += r->plan->seconds[i];
    x->measured += r->measured_seconds[i];
}

void zx_report_errors(const zx_report *r, zx_arena *mem, zx_text *out)
{
    if (r->measured_seconds == NULL) {
        zx_text_put(out, "<p class=\"note\">Nothing was run: <code>zerox train MODEL --report "
                         "FILE.html</code> measures every instruction.</p>\n");
        return;
    }
    const uint32_t n_kinds = ZX_OP_COUNT + ZX_INSN_COUNT;
    error_row *kinds = ZX_NEW(mem, error_row, n_kinds);
    error_row *nodes = ZX_NEW(mem, error_row, r->train->n_nodes);
    for (uint32_t i = 0; i < r->plan->n_insns; i++) {
        const zx_insn *in = &r->plan->insns[i];
        if (in->id == ZX_I_WAIT || in->id == ZX_I_FREE || in->id == ZX_I_MARK) continue;
        if (in->id != ZX_I_EXEC) {
            const uint32_t k = (uint32_t)ZX_OP_COUNT + in->id;
            add_error(&kinds[k], zx_insn_rows[in->id].word, k, r, i);
            continue;
        }
        const uint32_t node = r->plan->steps[in->a].node;
        const zx_node *x = &r->train->nodes[node];
        add_error(&kinds[x->op], zx_ops[x->op].word, x->op, r, i);
        add_error(&nodes[node], x->name, node, r, i);
    }
    put_error_table(out, "kind", kinds, n_kinds, n_kinds);
    zx_text_put(out, "<details><summary>By node</summary>\n");
    put_error_table(out, "node", nodes, r->train->n_nodes, MOST_NODES);
    zx_text_put(out, "</details>\n");
}
