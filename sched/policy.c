// policy.c - the table of policies, and what all of them have in common: see policy.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/policy_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const zx_policy_row zx_policies[ZX_POLICY_COUNT] = {
#define ZX_POLICY(id, word, form, run, maker, stage, what)                                         \
    [ZX_POLICY_##id] = {word, form, what, run, stage, zx_policy_##maker},
#include "sched/policies.def"
#undef ZX_POLICY
};

const char *zx_policy_name(zx_policy_id id, zx_arena *mem)
{
    const zx_policy_row *row = &zx_policies[id];
    if (row->form[0] == '\0') return row->word;
    return zx_arena_printf(mem, "%s, %s", row->word, row->form);
}

zx_status zx_policy_find(const char *word, zx_policy_id *out, uint32_t *n, zx_err *err)
{
    const char *words[ZX_POLICY_COUNT];
    *n = 0;
    for (uint32_t i = 0; i < ZX_POLICY_COUNT; i++) {
        words[i] = zx_policies[i].word;
        if (strcmp(word, words[i]) == 0) out[(*n)++] = (zx_policy_id)i;
    }
    if (*n > 0) return ZX_OK;
    zx_arena mem = {0};
    zx_text all = {0};
    for (uint32_t i = 0; i < ZX_POLICY_COUNT; i++)
        if (i == 0 || strcmp(words[i], words[i - 1]) != 0)
            zx_text_put(&all, "%s%s", i > 0 ? ", " : "", words[i]);
    const char *safe = zx_text_safe(&mem, word);
    const char *near = zx_text_nearest(word, words, ZX_POLICY_COUNT);
    const zx_status st =
        near != NULL
            ? ZX_FAIL(err, ZX_E_USAGE, "unknown policy '%s'; the nearest is '%s'", safe, near)
            : ZX_FAIL(err, ZX_E_USAGE, "unknown policy '%s': there are %s", safe, all.at);
    zx_text_free(&all);
    zx_arena_free(&mem);
    return st;
}

static bool asks_hooks(const zx_policy_row *row)
{
    return row->make == zx_policy_hooks || row->make == zx_policy_hooks_tuned;
}

static zx_status refuse_hooks(zx_policy_id id, const zx_policy_input *in, zx_err *err)
{
    zx_arena mem = {0};
    const char *name = zx_policy_name(id, &mem), *file = zx_text_safe(&mem, in->train->name);
    const zx_status st = ZX_FAIL(
        err, ZX_E_UNSUPPORTED, "%s: policy '%s' needs the modules that the hooks sit on: %s", file,
        name, in->hooks_why != NULL ? in->hooks_why : "the model has no module paths");
    zx_arena_free(&mem);
    return st;
}

zx_status zx_policy_plan(zx_policy_id id, const zx_policy_input *in, zx_arena *mem,
                         zx_policy_result *out, zx_err *err)
{
    const zx_policy_row *row = &zx_policies[id];
    zx_plan_options o = *in->options;
    *out = (zx_policy_result){0};
    o.stage = row->stage;
    if (o.ranks == 0 || o.micro_batches == 0 || o.optimizer_states > 2)
        return ZX_FAIL(err, ZX_E_USAGE, "%u ranks, %u micro-batches, %u states: no such plan",
                       o.ranks, o.micro_batches, o.optimizer_states);
    if (asks_hooks(row) && in->hooks == NULL) return refuse_hooks(id, in, err);
    zx_arena scratch = {0};
    zx_trace t;
    zx_status st = zx_trace_make(in->train, &o, &scratch, &t, err);
    if (st == ZX_OK && (uint64_t)t.n_steps * o.micro_batches >= ZX_NONE / 4)
        st = ZX_FAIL(err, ZX_E_UNSUPPORTED, "%u micro-batches of %u nodes are too many for a plan",
                     o.micro_batches, t.n_steps);
    if (st == ZX_OK) st = row->make(id, in, &t, &o, mem, out, err);
    zx_arena_free(&scratch);
    return st;
}

zx_status zx_policy_finish(zx_schedule *s, zx_policy_id id, const zx_policy_input *in,
                           zx_arena *mem, zx_policy_result *out, zx_err *err)
{
    const zx_plan_options *o = s->options;
    const char *name = zx_policy_name(id, s->mem);
    snprintf(s->policy, sizeof s->policy, "%s", name);
    ZX_TRY(zx_schedule_finish(s, &out->mended, err));
    zx_schedule_place(s, o->budget);
    zx_schedule_emit(s, mem, &out->plan);
    snprintf(out->plan.policy, sizeof out->plan.policy, "%s", name);
    out->over = out->plan.arena_bytes > o->budget;
    out->plan.budget = out->over ? out->plan.arena_bytes : o->budget;
    zx_plan_simulate(in->train, &o->machine, in->times, &out->plan, mem);
    if (!zx_policies[id].runs) return ZX_OK;
    const zx_status st = zx_plan_check(in->train, &out->plan, err);
    if (st != ZX_OK) zx_err_in(err, "policy '%s'", name);
    return st;
}

// ---- what makers share --------------------------------------------------------------------------

uint64_t zx_policy_room(const zx_plan_options *o)
{
    if (o->budget != UINT64_MAX) return o->budget;
    if (o->machine.device_bytes == 0) return UINT64_MAX;
    return (uint64_t)(0.9 * (double)o->machine.device_bytes);
}

uint64_t zx_policy_less(uint64_t room, const zx_policy_result *over, const zx_plan_options *o,
                        int nth)
{
    const uint64_t more = (over->plan.arena_bytes - o->budget) << nth;
    return room > more ? room - more : 0;
}

int64_t zx_policy_rounded(int64_t x)
{
    int64_t unit = 1;
    while (x / unit >= 100) unit *= 10;
    return x / unit * unit;
}

void zx_policy_put_elements(zx_text *out, int64_t x)
{
    int64_t head = x;
    int power = 0;
    for (; head > 99 || (head > 9 && head % 10 == 0); head /= 10) power++;
    if (x >= ZX_POLICY_ANY)
        zx_text_put(out, "any");
    else if (x < 1000)
        zx_text_put(out, "%lld", (long long)x);
    else
        zx_text_put(out, "%ge%d", head > 9 ? (double)head / 10 : (double)head, power + (head > 9));
}

void zx_policy_put_bucket(zx_policy_result *out, int64_t elements)
{
    zx_text t = {0};
    zx_text_put(&t, "%s%sreduce bucket ", out->knobs, out->knobs[0] != '\0' ? ", " : "");
    zx_policy_put_elements(&t, elements);
    snprintf(out->knobs, sizeof out->knobs, "%s (elements)", t.at);
    zx_text_free(&t);
}

static int by_time(const void *a, const void *b)
{
    const zx_ready *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return x->unit < y->unit ? -1 : x->unit > y->unit;
}

bool zx_policy_reduced(const zx_schedule *s, uint32_t unit)
{
    const zx_graph *g = s->trace->graph;
    if (!zx_param_trained(g, unit)) return false;
    const zx_where w = s->trace->where[g->params[unit].grad];
    return w.kind != ZX_AT_STORAGE || s->made_in[w.index] == ZX_NONE;
}

const zx_ready *zx_policy_ready(const zx_schedule *s, uint32_t *n)
{
    const zx_graph *g = s->trace->graph;
    zx_ready *list = ZX_NEW(s->mem, zx_ready, g->n_params + 1);
    *n = 0;
    for (uint32_t u = 0; u < g->n_params; u++) {
        if (!zx_policy_reduced(s, u)) continue;
        const zx_type *type = &g->values[g->params[u].value].type;
        list[(*n)++] = (zx_ready){u, s->trace->grad_ready[u],
                                  (uint64_t)zx_shape_count(&type->shape), zx_type_bytes(type)};
    }
    qsort(list, *n, sizeof *list, by_time);
    return list;
}

uint32_t zx_policy_turn(const zx_trace *t)
{
    uint32_t s = 0;
    while (s < t->n_steps && t->graph->nodes[t->node[s]].phase == ZX_FORWARD) s++;
    return s;
}
