// compare_json.c - a comparison of policies as JSON: all that was found, every step that was timed.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <math.h>

#include "runtime/compare.h"

// 17 digits: the number itself.
static void put_number(zx_text *out, double x)
{
    if (isfinite(x))
        zx_text_put(out, "%.17g", x);
    else
        zx_text_put(out, "null");
}

static void put_numbers(zx_text *out, const double *x, uint32_t n)
{
    zx_text_put(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) zx_text_put(out, ", ");
        put_number(out, x[i]);
    }
    zx_text_put(out, "]");
}

static void put_member(zx_text *out, const char *name, double x)
{
    zx_text_put(out, ", \"%s\": ", name);
    put_number(out, x);
}

static void put_string(zx_text *out, const char *name, const char *text)
{
    zx_text_put(out, ", \"%s\": ", name);
    if (text != NULL)
        zx_text_json(out, text);
    else
        zx_text_put(out, "null");
}

static void put_bound(zx_text *out, const zx_bound *b)
{
    zx_text_put(out, ",\n  \"bound\": {\"by\": \"%s\"", zx_bound_binds(b));
    put_member(out, "seconds", b->seconds);
    put_member(out, "compute_seconds", b->compute);
    put_member(out, "moving_core_seconds", b->moving);
    put_member(out, "wire_seconds", b->wire);
    put_member(out, "path_seconds", b->path);
    put_member(out, "start_seconds", b->start);
    put_member(out, "tail_seconds", b->tail);
    zx_text_put(out, ", \"wire_bytes\": %" PRIu64 ", \"regather_bytes\": %" PRIu64 "}",
                b->wire_bytes, b->regather_bytes);
}

static void put_measured(zx_text *out, const zx_compare_row *r)
{
    zx_text_put(out, ",\n     \"measured\": ");
    if (r->n_steps == 0) {
        zx_text_put(out, "null");
        return;
    }
    zx_text_put(out, "{\"steps\": %u", r->n_steps);
    put_member(out, "median_seconds", r->median);
    put_member(out, "min_seconds", r->least);
    zx_text_put(out, ", \"interval_seconds\": [%.17g, %.17g]", r->from, r->to);
    put_member(out, "exposed_seconds", r->exposed_median);
    zx_text_put(out, ", \"peak_bytes\": %" PRIu64 ", \"step_seconds\": ", r->touched_bytes);
    put_numbers(out, r->steps, r->n_steps);
    zx_text_put(out, "}");
}

static void put_row(zx_text *out, const zx_compare *c, const zx_compare_row *r)
{
    const zx_policy_row *policy = &zx_policies[r->id];
    const double seconds = c->executed ? r->median : r->predicted;
    zx_text_put(out, "\n    {\"policy\": ");
    zx_text_json(out, policy->word);
    put_string(out, "form", policy->form);
    put_string(out, "recompute", r->variant != NULL ? "auto" : c->recompute);
    put_string(out, "name", r->name);
    zx_text_put(out, ", \"stage\": %u, \"executable\": %s", policy->stage,
                policy->runs ? "true" : "false");
    put_member(out, "predicted_seconds", r->predicted);
    put_member(out, "predicted_exposed_seconds", r->predicted_exposed);
    put_member(out, "predicted_compute_seconds", r->result.plan.compute_seconds);
    zx_text_put(out,
                ",\n     \"wire_bytes\": %" PRIu64 ", \"collectives\": %u, \"peak_bytes\": %" PRIu64
                ", \"over_budget_bytes\": %" PRIu64,
                r->result.plan.wire_bytes, r->collectives, r->result.plan.arena_bytes,
                r->over_bytes);
    put_string(out, "knobs", r->result.knobs);
    zx_text_put(out, ", \"mended\": %u, \"ranked\": %s, \"fastest\": %s", r->result.mended,
                r->ranked ? "true" : "false",
                c->fastest != ZX_NONE && r == &c->rows[c->fastest] ? "true" : "false");
    put_member(out, "ratio", r->ratio > 0 ? r->ratio : NAN);
    put_member(out, "over_bound", r->ranked ? seconds / c->bound.seconds - 1 : NAN);
    put_string(out, "not_executed", c->executed ? r->idle : NULL);
    put_measured(out, r);
    zx_text_put(out, "}");
}

static void put_execution(zx_text *out, const zx_compare *c)
{
    zx_text_put(out, ",\n  \"execution\": ");
    if (!c->executed) {
        zx_text_put(out, "null");
        return;
    }
    zx_text_put(out,
                "{\"warm_up_steps\": %u, \"timed_steps\": %u, \"asked_steps\": %u, "
                "\"one_by_one\": %s, \"losses_identical\": %s",
                c->warm, c->timed, c->asked, c->one_by_one ? "true" : "false",
                c->n_losses == 0    ? "null"
                : c->differ == NULL ? "true"
                                    : "false");
    put_string(out, "losses_differ", c->differ);
    put_member(out, "op_times_drift", c->drift > 0 ? c->drift : NAN);
    zx_text_put(out, ", \"losses\": ");
    put_numbers(out, c->losses, c->n_losses);
    zx_text_put(out, "}");
}

static void put_all(zx_text *out, const zx_compare *c)
{
    zx_text_put(out, "{\n  \"model\": ");
    zx_text_json(out, c->model);
    put_string(out, "machine", c->machine != NULL ? c->machine : "host");
    zx_text_put(out, ", \"simulated\": %s", c->machine != NULL ? "true" : "false");
    zx_text_put(out, ", \"ranks\": %u, \"threads\": %u, \"micro_batches\": %u, \"budget_bytes\": ",
                c->ranks, c->threads, c->micro_batches);
    if (c->budget == UINT64_MAX)
        zx_text_put(out, "null");
    else
        zx_text_put(out, "%" PRIu64, c->budget);
    put_member(out, "bandwidth", c->bandwidth > 0 ? c->bandwidth : NAN);
    put_member(out, "latency_seconds", c->latency);
    put_bound(out, &c->bound);
    zx_text_put(out, ",\n  \"policies\": [");
    for (uint32_t i = 0; i < c->n_rows; i++) {
        if (i > 0) zx_text_put(out, ",");
        put_row(out, c, &c->rows[i]);
    }
    zx_text_put(out, "]");
    put_execution(out, c);
    zx_text_put(out, ",\n  \"notes\": [");
    for (uint32_t i = 0; i < c->notes.n; i++) {
        if (i > 0) zx_text_put(out, ", ");
        zx_text_json(out, c->notes.text[i]);
    }
    zx_text_put(out, "]\n}");
}

void zx_compare_json(const zx_compare *c, zx_text *out)
{
    put_all(out, c);
    zx_text_put(out, "\n");
}

void zx_sweep_json(const zx_sweep *s, zx_text *out)
{
    zx_text_put(out, "{\"sweep\": \"%s\", \"points\": [", s->budgets ? "budget" : "bandwidth");
    for (uint32_t k = 0; k < s->n; k++) {
        zx_text_put(out, "%s\n{\"value\": ", k > 0 ? "," : "");
        put_number(out, s->points[k].value);
        zx_text_put(out, ", \"comparison\": ");
        put_all(out, &s->points[k].c);
        zx_text_put(out, "}");
    }
    zx_text_put(out, "\n]}\n");
}
