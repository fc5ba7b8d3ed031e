// simulate.c - see simulate.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulate.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/progress.h"

// ---- figures ------------------------------------------------------------------------------------

// The input whose values choose rows of a parameter; ZX_NONE: this node does something else.
static uint32_t looked_up_by(const zx_graph *g, const uint32_t *root, const zx_node *n)
{
    const uint32_t ids = n->op == ZX_OP_GATHER ? zx_node_in(g, n, 1) : ZX_NONE;
    if (ids == ZX_NONE || g->values[root[ids]].role != ZX_R_INPUT) return ZX_NONE;
    return root[ids];
}

uint64_t zx_simulated_active(const zx_graph *g, uint64_t *tokens)
{
    zx_arena mem = {0};
    const uint32_t *root = zx_graph_roots(g, &mem);
    bool *looked_up = ZX_NEW(&mem, bool, g->n_values + 1);
    bool *read = ZX_NEW(&mem, bool, g->n_values + 1); // in another way
    uint64_t active = 0;
    *tokens = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        if ((zx_ops[n->op].flags & ZX_OP_VIEW) != 0) continue;
        const uint32_t ids = looked_up_by(g, root, n);
        for (uint32_t a = 0; a < n->n_in; a++) {
            const uint32_t v = zx_node_in(g, n, a);
            if (v == ZX_NONE || g->values[root[v]].role != ZX_R_PARAM) continue;
            if (a > 0 || ids == ZX_NONE) {
                read[root[v]] = true;
                continue;
            }
            const uint64_t positions = (uint64_t)zx_shape_count(&g->values[ids].type.shape);
            looked_up[root[v]] = true;
            if (positions > *tokens) *tokens = positions;
        }
    }
    for (uint32_t u = 0; u < g->n_params; u++) {
        const uint32_t v = g->params[u].value;
        if (looked_up[v] && !read[v]) continue;
        active += (uint64_t)zx_shape_count(&g->values[v].type.shape);
    }
    zx_arena_free(&mem);
    return active;
}

void zx_simulated_fill(const zx_simulated *s, const zx_policy_result *r, zx_simulated_row *row)
{
    const zx_plan *p = &r->plan;
    const zx_machine *m = &s->job->machine;
    const double peak = s->job->precision == ZX_PREC_F32 ? m->peak : m->peak_16;
    row->step = p->step_seconds;
    row->compute = p->compute_seconds;
    row->exposed = p->exposed_seconds;
    if (p->step_seconds > 0)
        row->tflops = 6.0 * (double)s->active * (double)s->tokens / p->step_seconds / 1e12;
    row->mfu = peak > 0 ? row->tflops * 1e12 / peak : 0;
    row->peak_bytes = p->arena_bytes;
    row->activation_bytes = zx_job_activation_bytes(s->job);
    row->held_bytes = p->held_bytes;
    row->over_bytes = p->arena_bytes > s->budget ? p->arena_bytes - s->budget : 0;
    row->wire_bytes = p->wire_bytes;
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const uint8_t id = p->insns[i].id;
        row->collectives += id == ZX_I_GATHER || id == ZX_I_REDUCE || id == ZX_I_ALLREDUCE;
    }
    row->mended = r->mended;
    memcpy(row->knobs, r->knobs, sizeof row->knobs);
}

uint32_t zx_simulated_fastest(const zx_simulated *s)
{
    uint32_t best = ZX_NONE;
    for (uint32_t i = 0; i < s->n_rows; i++) {
        const zx_simulated_row *x = &s->rows[i];
        if (x->refused != NULL || x->over_bytes > 0) continue;
        if (x->again && s->n_rows > 1) continue; // it computes something else
        if (best == ZX_NONE || x->step < s->rows[best].step) best = i;
    }
    return best;
}

// ---- text ---------------------------------------------------------------------------------------

static const char *precision_of(const zx_simulated *s)
{
    static const char *const words[] = {"fp32", "bf16", "fp16"};
    return words[s->job->precision];
}

static void put_head(const zx_simulated *s, zx_text *out)
{
    const zx_job *job = s->job;
    char a[ZX_BYTES_TEXT];
    zx_arena mem = {0};
    zx_text_put(out, "SIMULATED, not measured: %s on %s\n", zx_text_safe(&mem, job->model),
                zx_text_safe(&mem, job->machine.name));
    zx_text_put(out, "%u rank%s, %" PRId64 " %s of ", job->ranks, job->ranks == 1 ? "" : "s",
                job->batch.accumulate,
                job->batch.accumulate == 1 ? "micro-batch" : "micro-batches");
    if (s->sequence > 0)
        zx_text_put(out, "%" PRId64 " x %" PRId64 " tokens", job->batch.micro, s->sequence);
    else
        zx_text_put(out, "%" PRId64 " (%" PRIu64 " %s)", job->batch.micro,
                    s->tokens / (uint64_t)job->batch.accumulate, s->unit);
    if (s->budget == UINT64_MAX)
        zx_text_put(out, job->budget.least ? ", the least budget\n" : ", no budget\n");
    else
        zx_text_put(out, ", budget %s a rank\n", zx_text_size(s->budget, a));
    const size_t before = out->n;
    zx_job_put_types(job, out);
    if (out->n == before) zx_text_put(out, "precision %s\n", precision_of(s));
    zx_arena_free(&mem);
}

static void put_foot(const zx_simulated *s, zx_text *out)
{
    char a[ZX_BYTES_TEXT], b[ZX_BYTES_TEXT];
    zx_text_put(out,
                "TFLOP/s: 6 x %s active parameters, without the embedding table, x %s %s a rank "
                "and step; recomputation isn't counted\n",
                zx_text_count((double)s->active, a), zx_text_count((double)s->tokens, b), s->unit);
}

static void put_certificate(const zx_simulated_row *x, zx_text *out)
{
    if (x->certificate != NULL)
        zx_text_put(out, "%s", x->certificate);
    else
        zx_robust_text(&x->robust, out);
}

static void put_one(const zx_simulated *s, zx_text *out)
{
    const zx_simulated_row *x = &s->rows[0];
    char a[ZX_BYTES_TEXT], b[ZX_BYTES_TEXT], c[ZX_BYTES_TEXT];
    zx_arena mem = {0};
    put_head(s, out);
    zx_text_put(out, "policy: %s\n", zx_policy_name(x->id, &mem));
    if (x->knobs[0] != '\0') zx_text_put(out, "knobs: %s\n", x->knobs);
    if (x->mended > 0)
        zx_text_put(out,
                    "%u gathered parameters are held for longer than their modules ask: a step "
                    "reads them elsewhere\n",
                    x->mended);
    zx_text_put(out, "step %s: compute %s, exposed communication %s (%.1f %%)\n",
                zx_progress_time(x->step, a), zx_progress_time(x->compute, b),
                zx_progress_time(x->exposed, c), x->step > 0 ? 100 * x->exposed / x->step : 0);
    zx_text_put(out, "%.1f TFLOP/s a GPU", x->tflops);
    if (x->mfu > 0) zx_text_put(out, ", %.1f %% of its peak", 100 * x->mfu);
    zx_text_put(out, "\npeak %s a rank", zx_text_size(x->peak_bytes, a));
    if (x->over_bytes > 0) zx_text_put(out, ", OVER by %s", zx_text_size(x->over_bytes, b));
    zx_text_put(out, "; %s on the wire each way in %u collectives\n",
                zx_text_size(x->wire_bytes, a), x->collectives);
    put_certificate(x, out);
    put_foot(s, out);
    zx_arena_free(&mem);
}

static const char *name_of(const zx_simulated_row *x, zx_arena *mem)
{
    return x->again ? "zerox, recompute auto" : zx_policy_name(x->id, mem);
}

static void put_table(const zx_simulated *s, zx_text *out)
{
    const uint32_t fastest = zx_simulated_fastest(s);
    char a[ZX_BYTES_TEXT], b[ZX_BYTES_TEXT], c[ZX_BYTES_TEXT], d[ZX_BYTES_TEXT];
    put_head(s, out);
    zx_text_put(out, "\n  %-12s %-14s %10s %10s %8s %8s %10s %11s %10s\n", "policy", "form", "step",
                "compute", "TFLOP/s", "exposed", "wire", "collectives", "peak");
    for (uint32_t i = 0; i < s->n_rows; i++) {
        const zx_simulated_row *x = &s->rows[i];
        const zx_policy_row *row = &zx_policies[x->id];
        zx_text_put(out, "%c %-12s %-14s ", i == fastest ? '*' : ' ', row->word,
                    x->again ? "recompute auto" : row->form);
        if (x->refused != NULL) {
            zx_text_put(out, "%10s\n", "-");
            continue;
        }
        zx_text_put(out, "%10s %10s %8.1f %6.1f %% %10s %11u %10s", zx_progress_time(x->step, a),
                    zx_progress_time(x->compute, d), x->tflops,
                    x->step > 0 ? 100 * x->exposed / x->step : 0, zx_text_size(x->wire_bytes, b),
                    x->collectives, zx_text_size(x->peak_bytes, c));
        if (x->over_bytes > 0) zx_text_put(out, "  OVER by %s", zx_text_size(x->over_bytes, d));
        zx_text_put(out, "\n");
    }
    zx_text_put(out, "\n");
    if (fastest != ZX_NONE) zx_text_put(out, "* the fastest within the budget\n");
    put_foot(s, out);
    zx_arena mem = {0};
    for (uint32_t i = 0; i < s->n_rows; i++) {
        const zx_simulated_row *x = &s->rows[i];
        if (x->certificate == NULL && !x->robust.known) continue;
        zx_text_put(out, "%s: ", name_of(x, &mem));
        put_certificate(x, out);
    }
    for (uint32_t i = 0; i < s->n_rows; i++)
        if (s->rows[i].refused == NULL && s->rows[i].knobs[0] != '\0')
            zx_text_put(out, "%s: %s\n", name_of(&s->rows[i], &mem), s->rows[i].knobs);
    for (uint32_t i = 0; i < s->n_rows; i++)
        if (s->rows[i].refused != NULL)
            zx_text_put(out, "no plan: %s: %s\n", name_of(&s->rows[i], &mem),
                        zx_text_safe(&mem, s->rows[i].refused));
    zx_arena_free(&mem);
}

void zx_simulated_text(const zx_simulated *s, zx_text *out)
{
    if (s->n_rows == 1)
        put_one(s, out);
    else
        put_table(s, out);
}

// ---- JSON ---------------------------------------------------------------------------------------

static void json_row(const zx_simulated *s, const zx_simulated_row *x, bool fastest, zx_text *out)
{
    const zx_job *job = s->job;
    const zx_policy_row *row = &zx_policies[x->id];
    zx_text_put(out, "{\"simulated\":true,\"model\":");
    zx_text_json(out, job->model);
    zx_text_put(out, ",\"machine\":");
    zx_text_json(out, job->machine.name);
    zx_text_put(out, ",\"policy\":\"%s\",\"form\":\"%s\",\"ranks\":%u,", row->word, row->form,
                job->ranks);
    if (s->sequence > 0) zx_text_put(out, "\"sequence\":%" PRId64 ",", s->sequence);
    zx_text_put(out,
                "\"batch\":%" PRId64 ",\"accumulate\":%" PRId64
                ",\"precision\":\"%s\",\"recompute\":\"%s\",\n\"active_params\":%" PRIu64
                ",\"tokens\":%" PRIu64 ",",
                job->batch.micro, job->batch.accumulate, precision_of(s),
                x->again                              ? "auto"
                : job->recompute == ZX_RECOMPUTE_FULL ? "full"
                                                      : "none",
                s->active, s->tokens);
    if (s->budget == UINT64_MAX)
        zx_text_put(out, "\"budget_bytes\":null");
    else
        zx_text_put(out, "\"budget_bytes\":%" PRIu64, s->budget);
    if (x->refused != NULL) {
        zx_text_put(out, ",\"refused\":");
        zx_text_json(out, x->refused);
        zx_text_put(out, "}");
        return;
    }
    zx_text_put(out,
                ",\n\"step_seconds\":%.9g,\"compute_seconds\":%.9g,\"exposed_seconds\":%.9g,"
                "\"tflops_per_gpu\":%.6g,\"mfu\":",
                x->step, x->compute, x->exposed, x->tflops);
    zx_text_put(out, x->mfu > 0 ? "%.5g" : "null", x->mfu);
    zx_text_put(out,
                ",\n\"peak_bytes\":%" PRIu64 ",\"held_bytes\":%" PRIu64
                ",\"activation_bytes\":%" PRIu64 ",\"over_bytes\":%" PRIu64
                ",\"wire_bytes\":%" PRIu64 ",\"collectives\":%u,\"mended\":%u,\"knobs\":",
                x->peak_bytes, x->held_bytes, x->activation_bytes, x->over_bytes, x->wire_bytes,
                x->collectives, x->mended);
    zx_text_json(out, x->knobs);
    zx_text_put(out, ",\"fastest\":%s", fastest ? "true" : "false");
    zx_text_put(out, ",\n\"certificate\":%s,\n\"robust\":",
                x->certificate_json != NULL ? x->certificate_json : "null");
    zx_robust_json(&x->robust, out);
    zx_text_put(out, "}");
}

void zx_simulated_json(const zx_simulated *s, zx_text *out)
{
    const uint32_t fastest = zx_simulated_fastest(s);
    if (s->n_rows > 1) zx_text_put(out, "[");
    for (uint32_t i = 0; i < s->n_rows; i++) {
        if (i > 0) zx_text_put(out, ",\n");
        json_row(s, &s->rows[i], i == fastest, out);
    }
    zx_text_put(out, s->n_rows > 1 ? "]\n" : "\n");
}
