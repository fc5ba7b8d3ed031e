// session_look.c - which node made the first value that isn't finite: the step is run again,
// without update or commit, and every output is looked at. Collectives run as ever, so ranks stay
// together.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <string.h>

#include "runtime/exec.h"

// What a rank has found, as the others see it; order: (micro-batch over all ranks, plan step).
typedef struct found {
    uint64_t micro;
    uint32_t found, step, value, unlabelled;
} found;
typedef struct findings {
    found nan, inf, given;
    uint32_t unit, unused; // whose gradient isn't finite on this rank; ZX_NONE
} findings;

static bool holds(zx_session *s, const zx_view *v, bool inf)
{
    if (v->data == NULL || !zx_dtype_is_float(v->type.dtype)) return false;
    const void *x = s->backend->see(s, v->data, zx_type_bytes(&v->type));
    const int64_t n = zx_shape_count(&v->type.shape);
    return x != NULL && zx_cpu_find_nonfinite_of(v->type.dtype, x, n, inf) >= 0;
}

// Whether a loss ignores every label that it is given.
static bool is_unlabelled(zx_session *s, const zx_node *n, const zx_call *c)
{
    const zx_attr *ignore = zx_attr_find(&n->attrs, ZX_A_IGNORE_INDEX);
    if (ignore == NULL) return false;
    const int64_t index = zx_attr_int(&n->attrs, ZX_A_IGNORE_INDEX, 0);
    for (uint32_t i = 0; i < c->n_in; i++) {
        const zx_view *v = &c->in[i];
        const bool wide = v->type.dtype == ZX_I64;
        if (v->data == NULL || (!wide && v->type.dtype != ZX_I32)) continue;
        const int64_t count = zx_shape_count(&v->type.shape);
        const void *x = s->backend->see(s, v->data, zx_type_bytes(&v->type));
        for (int64_t k = 0; k < count && x != NULL; k++)
            if ((wide ? ((const int64_t *)x)[k] : ((const int32_t *)x)[k]) != index) return false;
        return true;
    }
    return false;
}

void zx_look_before(zx_session *s, uint32_t step)
{
    const zx_call *c = &s->calls[step];
    const zx_node *n = &s->graph->nodes[s->plan->steps[step].node];
    s->look.finite = true;
    s->look.bad_in = s->look.inf_in = ZX_NONE;
    if (s->look.nan.found) return;
    for (uint32_t i = 0; i < c->n_in; i++) { // now: an output may overwrite its input
        const uint32_t v = zx_node_in(s->graph, n, i);
        const bool nan = holds(s, &c->in[i], false);
        if (nan && s->graph->values[v].role != ZX_R_MADE && s->look.bad_in == ZX_NONE)
            s->look.bad_in = v;
        const bool inf = holds(s, &c->in[i], true);
        const zx_role role = s->graph->values[v].role;
        if (nan || inf) s->look.finite = false;
        if (inf && s->look.inf_in == ZX_NONE && (role == ZX_R_INPUT || role == ZX_R_PARAM))
            s->look.inf_in = v; // constants and buffers may be masks
    }
}

void zx_look_after(zx_session *s, uint32_t step)
{
    zx_look *l = &s->look;
    const zx_call *c = &s->calls[step];
    const zx_node *n = &s->graph->nodes[s->plan->steps[step].node];
    for (uint32_t i = 0; i < c->n_out && !l->nan.found; i++) {
        const uint32_t v = zx_node_out(s->graph, n, i);
        if (holds(s, &c->out[i], false))
            l->nan =
                (zx_bad){1, step, l->bad_in != ZX_NONE ? l->bad_in : v, is_unlabelled(s, n, c)};
        else if (!l->inf.found && l->finite && holds(s, &c->out[i], true))
            l->inf = (zx_bad){1, step, v, false};
        else if (!l->given.found && l->inf_in != ZX_NONE && holds(s, &c->out[i], true))
            l->given = (zx_bad){1, step, l->inf_in, false};
    }
}

static found describe(const zx_session *s, const zx_bad *b)
{
    found f = {.found = b->found, .step = b->step, .value = b->value, .unlabelled = b->unlabelled};
    if (b->found)
        f.micro = s->first_micro + (uint64_t)s->plan->steps[b->step].micro * s->ranks + s->rank;
    return f;
}

// The first unit whose gradient on this rank isn't finite.
static uint32_t bad_gradient(zx_session *s)
{
    for (uint32_t u = 0; u < s->plan->n_units; u++) {
        const zx_unit *unit = &s->plan->units[u];
        if (unit->grad_slot == ZX_NONE) continue;
        int64_t at;
        const int64_t n = zx_unit_piece(unit, s->rank, &at);
        const uint64_t size = unit->grad_bytes;
        const unsigned char *held = zx_slot_at(s, unit->grad_slot);
        if (unit->grad_whole) held += (uint64_t)at * size;
        const void *g = s->backend->see(s, held, (uint64_t)n * size);
        const zx_dtype t = zx_unit_type(s, unit->grad_bytes);
        if (g == NULL) continue;
        if (zx_cpu_find_nonfinite_of(t, g, n, false) >= 0 ||
            zx_cpu_find_nonfinite_of(t, g, n, true) >= 0)
            return u;
    }
    return ZX_NONE;
}

static bool earlier(const found *a, const found *b)
{
    if (!a->found || !b->found) return a->found && !b->found;
    return a->micro != b->micro ? a->micro < b->micro : a->step < b->step;
}

static zx_status say_node(zx_session *s, uint64_t step, const char *what, const found *f,
                          zx_err *err)
{
    const zx_node *n = &s->graph->nodes[s->plan->steps[f->step].node];
    const zx_value *v = &s->graph->values[f->value];
    const uint32_t rank = (uint32_t)((f->micro - s->first_micro) % s->ranks);
    zx_arena mem = {0};
    const char *value = zx_text_safe(&mem, v->name);
    static const char *const roles[] = {[ZX_R_INPUT] = "input",
                                        [ZX_R_PARAM] = "parameter",
                                        [ZX_R_BUFFER] = "buffer",
                                        [ZX_R_CONST] = "constant",
                                        [ZX_R_MADE] = "tensor"};
    zx_err one = {0};
    ZX_FAIL(&one, ZX_E_DIVERGED,
            "step %" PRIu64 ": %s first in %s, %s%s '%s', micro-batch %" PRIu64 " (rank %u)",
            step + 1, what, zx_exec_node_text(s->graph, n, &mem),
            v->role == ZX_R_MADE ? "" : "which reads it from ", roles[v->role], value, f->micro,
            rank);
    zx_err_in(&one, "%s", zx_text_safe(&mem, s->graph->name));
    if (f->unlabelled)
        zx_err_hint(
            &one,
            "samples with labels: it ignores all that it has there, and a mean over none is NaN");
    zx_arena_free(&mem);
    return zx_err_merge(err, &one);
}

static zx_status say(zx_session *s, uint64_t step, const findings *all, zx_err *err)
{
    found nan = {0}, inf = {0}, given = {0};
    uint32_t unit = ZX_NONE;
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (earlier(&all[r].nan, &nan)) nan = all[r].nan;
        if (earlier(&all[r].inf, &inf)) inf = all[r].inf;
        if (earlier(&all[r].given, &given)) given = all[r].given;
        if (all[r].unit < unit) unit = all[r].unit;
    }
    if (nan.found) { // which an overflow before it may have led to
        const zx_status st = say_node(s, step, "NaN", &nan, err);
        if (earlier(&inf, &nan)) say_node(s, step, "infinity", &inf, err);
        return st;
    }
    if (inf.found) return say_node(s, step, "infinity", &inf, err);
    if (given.found) return say_node(s, step, "infinity", &given, err); // or a mask
    if (unit != ZX_NONE) {
        zx_arena mem = {0};
        const zx_param *p = &s->graph->params[s->plan->units[unit].param];
        const zx_status st =
            ZX_FAIL(err, ZX_E_DIVERGED,
                    "step %" PRIu64 ": the gradient of '%s' overflows where ranks and "
                    "micro-batches are summed",
                    step + 1, zx_text_safe(&mem, p->name));
        zx_arena_free(&mem);
        return st;
    }
    return ZX_FAIL(err, ZX_E_DIVERGED,
                   "step %" PRIu64
                   ": loss %g, gradient norm %g; every tensor of the step is finite",
                   step + 1, s->loss, s->norm);
}

zx_status zx_session_explain_nonfinite(zx_session *s, uint64_t step, uint64_t first_micro,
                                       zx_err *err)
{
    findings mine = {.unit = ZX_NONE};
    s->mode = ZX_RUN_LOOK; // s->step is still that of the step
    s->first_micro = first_micro;
    s->look = (zx_look){0};
    const bool ok = s->backend->run(s);
    s->mode = ZX_RUN_STEP;
    if (ok) s->backend->reset_working(s);
    if (!ok)
        return s->fatal.code != ZX_OK ? zx_err_merge(err, &s->fatal)
                                      : zx_world_why(s->o.world, err);
    mine.nan = describe(s, &s->look.nan);
    mine.inf = describe(s, &s->look.inf);
    mine.given = describe(s, &s->look.given);
    mine.unit = bad_gradient(s);
    findings *all = ZX_NEW(&s->mem, findings, s->ranks);
    ZX_TRY(zx_world_exchange(s->o.world, &mine, sizeof mine, all, err));
    return say(s, step, all, err);
}
