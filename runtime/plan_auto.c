// plan_auto.c - see plan_auto.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan_auto.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "runtime/progress.h"

#define MOST_REASONS 4 // that are told

// ---- which --------------------------------------------------------------------------------------

// At least as good in both, and better in one.
static bool beats(const zx_auto_row *a, const zx_auto_row *b)
{
    if (a->step > b->step || a->peak_bytes > b->peak_bytes) return false;
    return a->step < b->step || a->peak_bytes < b->peak_bytes;
}

static bool is_beaten(const zx_auto *a, const zx_auto_row *row)
{
    for (uint32_t i = 0; i < a->n_rows; i++)
        if (a->rows[i].refused == NULL && beats(&a->rows[i], row)) return true;
    return false;
}

void zx_auto_judge(zx_auto *a)
{
    double fastest = INFINITY;
    a->chosen = ZX_NONE;
    for (uint32_t i = 0; i < a->n_rows; i++) {
        zx_auto_row *r = &a->rows[i];
        r->front = r->refused == NULL && !is_beaten(a, r);
        if (r->refused == NULL && r->step < fastest) fastest = r->step;
    }
    for (uint32_t i = 0; i < a->n_rows; i++) {
        const zx_auto_row *r = &a->rows[i];
        if (!r->front || r->step > fastest * ZX_AUTO_NEAR) continue;
        if (a->chosen == ZX_NONE || r->peak_bytes < a->rows[a->chosen].peak_bytes) a->chosen = i;
    }
}

// ---- text ---------------------------------------------------------------------------------------

static void put_config(const zx_auto *a, zx_text *out)
{
    const zx_auto_row *r = &a->rows[a->chosen];
    zx_text_put(out,
                "{\"train_batch_size\": %" PRId64 ", \"train_micro_batch_size_per_gpu\": %" PRId64
                ", \"gradient_accumulation_steps\": %" PRId64
                ", \"zero_optimization\": {\"stage\": %u}, \"zerox\": {\"recompute\": \"%s\"}}",
                a->total, r->micro, r->accumulate, r->stage, r->recompute);
}

static void put_row(const zx_auto *a, uint32_t i, zx_text *out)
{
    const zx_auto_row *r = &a->rows[i];
    char step[ZX_BYTES_TEXT], rate[ZX_BYTES_TEXT], peak[ZX_BYTES_TEXT], over[ZX_BYTES_TEXT] = "";
    zx_text_put(out, "%c%c %6" PRId64 " %11" PRId64 " %10s %6u ", i == a->chosen ? '*' : ' ',
                r->front ? '+' : ' ', r->micro, r->accumulate, r->recompute, r->stage);
    if (r->refused != NULL) {
        zx_text_put(out, "%10s", "no plan");
    } else {
        if (r->bound > 0) snprintf(over, sizeof over, "%.1f %%", 100 * (r->step / r->bound - 1));
        zx_text_put(out, "%10s %10s %10s %11s", zx_progress_time(r->step, step),
                    zx_text_count(r->rate, rate), zx_text_size(r->peak_bytes, peak), over);
    }
    zx_text_put(out, "%s\n", r->given ? "  as the config says" : "");
}

static void put_refused(const zx_auto *a, zx_arena *mem, zx_text *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_rows; i++) {
        const zx_auto_row *r = &a->rows[i];
        if (r->refused == NULL || n++ >= MOST_REASONS) continue;
        zx_text_put(out, "no plan: %" PRId64 " x %" PRId64 ", recompute %s, stage %u: %s\n",
                    r->micro, r->accumulate, r->recompute, r->stage, zx_text_safe(mem, r->refused));
    }
    if (n > MOST_REASONS)
        zx_text_put(out, "and %u more without a plan; --format json says why\n", n - MOST_REASONS);
}

static void put_foot(const zx_auto *a, zx_text *out)
{
    zx_arena mem = {0};
    zx_text_put(out, "\n+ none is as fast in less memory, or faster in as much\n");
    if (a->chosen != ZX_NONE)
        zx_text_put(out, "* recommended: the fastest; of those within 1 %% of it the one with the "
                         "least memory\n");
    put_refused(a, &mem, out);
    if (a->left_out > 0)
        zx_text_put(out,
                    "micro-batches of %" PRId64 " and more weren't tried: smaller ones "
                    "don't fit\n",
                    a->left_out);
    if (a->fixed_batch > 0)
        zx_text_put(out,
                    "%s has a fixed batch of %" PRId64 ": micro-batch and accumulation follow from "
                    "it; exported with a symbolic batch, others could be tried\n",
                    zx_text_safe(&mem, a->model), a->fixed_batch);
    if (a->chosen != ZX_NONE) {
        zx_text_put(out, "in the config: ");
        put_config(a, out);
        zx_text_put(out, "\n");
    }
    zx_arena_free(&mem);
}

void zx_auto_text(const zx_auto *a, zx_text *out)
{
    char size[ZX_BYTES_TEXT];
    zx_arena mem = {0};
    zx_text_put(out, "%s on %s: %u rank%s, %" PRId64 " samples a step, ",
                zx_text_safe(&mem, a->model), zx_text_safe(&mem, a->machine), a->ranks,
                a->ranks == 1 ? "" : "s", a->total);
    if (a->budget == UINT64_MAX)
        zx_text_put(out, "no budget\n\n");
    else
        zx_text_put(out, "budget %s a rank\n\n", zx_text_size(a->budget, size));
    zx_text_put(out, "   %6s %11s %10s %6s %10s %8s/s %10s %11s\n", "micro", "accumulate",
                "recompute", "stage", "step", a->unit, "peak", "over bound");
    for (uint32_t i = 0; i < a->n_rows; i++) put_row(a, i, out);
    put_foot(a, out);
    zx_arena_free(&mem);
}

// ---- JSON ---------------------------------------------------------------------------------------

static void json_number(const char *name, double x, zx_text *out)
{
    zx_text_put(out, ", \"%s\": ", name);
    if (x > 0 && isfinite(x))
        zx_text_put(out, "%.9g", x);
    else
        zx_text_put(out, "null");
}

static void json_row(const zx_auto *a, uint32_t i, zx_text *out)
{
    const zx_auto_row *r = &a->rows[i];
    zx_text_put(out,
                "{\"micro\": %" PRId64 ", \"accumulate\": %" PRId64
                ", \"recompute\": \"%s\", \"stage\": %u, \"feasible\": %s, \"pareto\": %s, "
                "\"recommended\": %s, \"given\": %s",
                r->micro, r->accumulate, r->recompute, r->stage,
                r->refused == NULL ? "true" : "false", r->front ? "true" : "false",
                i == a->chosen ? "true" : "false", r->given ? "true" : "false");
    json_number("step_seconds", r->step, out);
    json_number("per_second", r->rate, out);
    json_number("bound_seconds", r->bound, out);
    zx_text_put(out, ", \"peak_bytes\": ");
    if (r->refused == NULL)
        zx_text_put(out, "%" PRIu64, r->peak_bytes);
    else
        zx_text_put(out, "null");
    zx_text_put(out, ", \"refused\": ");
    if (r->refused != NULL)
        zx_text_json(out, r->refused);
    else
        zx_text_put(out, "null");
    zx_text_put(out, "}");
}

void zx_auto_json(const zx_auto *a, zx_text *out)
{
    zx_text_put(out, "{\"model\": ");
    zx_text_json(out, a->model);
    zx_text_put(out, ", \"machine\": ");
    zx_text_json(out, a->machine);
    zx_text_put(out,
                ", \"ranks\": %u, \"train_batch_size\": %" PRId64 ", \"budget_bytes\": ", a->ranks,
                a->total);
    if (a->budget == UINT64_MAX)
        zx_text_put(out, "null");
    else
        zx_text_put(out, "%" PRIu64, a->budget);
    zx_text_put(out, ", \"fixed_batch\": %s, \"unit\": \"%s\",\n\"rows\": [",
                a->fixed_batch > 0 ? "true" : "false", a->unit);
    for (uint32_t i = 0; i < a->n_rows; i++) {
        zx_text_put(out, "%s\n", i > 0 ? "," : "");
        json_row(a, i, out);
    }
    zx_text_put(out, "],\n\"config\": ");
    if (a->chosen != ZX_NONE)
        put_config(a, out);
    else
        zx_text_put(out, "null");
    zx_text_put(out, "}\n");
}
