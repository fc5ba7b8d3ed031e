// policy_fsdp.c - policies: PyTorch's FSDP2 (torch.distributed.fsdp.fully_shard), one group of
// parameters a block.
//
// As fully_shard does it by default: the root group holds all that no block does, is gathered when
// forward begins and kept until backward is over. A block is gathered when the group before it
// begins (in forward since the host runs ahead, in backward by explicit prefetch: the last block
// when backward begins, and each only once the one before is copied out), given up after its
// forward, and again after its backward, when its gradients leave as one launch; the launch before
// that has to be over by then. Gathers and reduces go through flat buffers, which are copied into
// and out of. A block that would be gathered again no later than it is given up is kept.
//
// Assumed: gathers and reduces don't queue behind one another. fully_shard has a stream for each;
// by default they are of one process group, which may still put them in line. In forward a fast
// host may be two groups ahead where the device is slow; here it is one. A model without blocks has
// one group for each module at the top, if there are several with parameters.
// SPDX-License-Identifier: Apache-2.0
#include "sched/policy_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct group { // parameters that are gathered together
    uint32_t n;
    uint32_t *units;
    int64_t begin[2], end[2]; // by phase: its first step and its last; -1: it has none
} group;

typedef struct groups {
    uint32_t n; // without the root
    group *at;
    group root;
    const char *kind; // "block", "module": what a group is
} groups;

typedef struct knobs {
    uint32_t blocks, ahead; // blocks a group; groups gathered ahead
    bool reshard;           // after forward
} knobs;

// ---- groups -------------------------------------------------------------------------------------

typedef struct parts { // which group each node and each parameter belongs to; ZX_NONE: the root
    uint32_t n;
    const uint32_t *of_node, *of_param;
} parts;

// The first part of a node's module path; NULL: it has none.
static const char *top_module(const zx_graph *g, const zx_node *n, zx_arena *mem)
{
    const char *path = n->name;
    if (n->source != ZX_NONE) {
        const zx_source *s = &g->sources[n->source];
        if (!zx_source_has_module(s)) return NULL;
        path = zx_scope_path(s->scopes[s->n_scopes - 1], mem);
    }
    path += path[0] == '/';
    const size_t length = strcspn(path, "./");
    return length == 0 ? NULL : zx_arena_strn(mem, path, length);
}

static uint32_t find_name(const char **names, uint32_t *n, const char *name)
{
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(names[i], name) == 0) return i;
    names[*n] = name;
    return (*n)++;
}

// Modules at the top, in place of blocks.
static parts top_modules(const zx_graph *g, zx_arena *mem)
{
    uint32_t *of_node = ZX_NEW(mem, uint32_t, g->n_nodes + 1);
    uint32_t *of_param = ZX_NEW(mem, uint32_t, g->n_params + 1), n = 0;
    const char **names = ZX_NEW(mem, const char *, 2 * g->n_params + 1); // two a parameter at most
    bool *seen = ZX_NEW(mem, bool, g->n_params + 1);
    for (uint32_t p = 0; p < g->n_params; p++) of_param[p] = ZX_NONE;
    for (uint32_t pass = 0; pass < 2; pass++) // those that read a parameter, then all
        for (uint32_t i = 0; i < g->n_nodes; i++) {
            const char *name = top_module(g, &g->nodes[i], mem);
            of_node[i] = ZX_NONE;
            for (uint32_t k = 0; pass == 1 && name != NULL && k < n; k++)
                if (strcmp(names[k], name) == 0) of_node[i] = k;
            for (uint32_t a = 0; pass == 0 && a < g->nodes[i].n_in; a++) {
                const uint32_t v = zx_node_in(g, &g->nodes[i], a);
                if (v == ZX_NONE || g->values[v].role != ZX_R_PARAM) continue;
                const uint32_t p = g->values[v].index;
                if (seen[p] && of_param[p] == ZX_NONE) continue;
                const uint32_t at = name == NULL ? ZX_NONE : find_name(names, &n, name);
                of_param[p] = seen[p] && of_param[p] != at ? ZX_NONE : at;
                seen[p] = true;
            }
        }
    return (parts){n > 1 ? n : 0, of_node, of_param};
}

static bool has_elements(const zx_graph *g, uint32_t unit)
{
    return zx_shape_count(&g->values[g->params[unit].value].type.shape) > 0;
}

static void stretch_to(group *x, int64_t step, zx_phase phase)
{
    if (x->begin[phase] < 0 || step < x->begin[phase]) x->begin[phase] = step;
    if (step > x->end[phase]) x->end[phase] = step;
}

static uint32_t group_of(const parts *p, uint32_t part, uint32_t blocks)
{
    return p->n == 0 || part == ZX_NONE ? ZX_NONE : part / blocks;
}

static void make_groups(const zx_trace *t, uint32_t blocks, zx_arena *mem, groups *out)
{
    const zx_graph *g = t->graph;
    zx_blocks b;
    zx_blocks_make(g, mem, &b);
    parts p = {b.n, b.of_node, b.of_param};
    if (b.n == 0) p = top_modules(g, mem);
    *out = (groups){.n = (p.n + blocks - 1) / blocks, .kind = b.n > 0 ? "block" : "module"};
    if (p.n == 0) out->kind = "model";
    out->at = ZX_NEW(mem, group, out->n + 1);
    // The root is the last while they are filled: counted first, then written.
    for (uint32_t i = 0; i <= out->n; i++) out->at[i] = (group){.begin = {-1, -1}, .end = {-1, -1}};
    uint32_t *of = ZX_NEW(mem, uint32_t, g->n_params + 1);
    for (uint32_t u = 0; u < g->n_params; u++) {
        of[u] = group_of(&p, p.of_param[u], blocks);
        if (of[u] == ZX_NONE) of[u] = out->n;
        if (has_elements(g, u)) out->at[of[u]].n++;
    }
    for (uint32_t i = 0; i <= out->n; i++) {
        out->at[i].units = ZX_NEW(mem, uint32_t, out->at[i].n + 1);
        out->at[i].n = 0;
    }
    for (uint32_t u = 0; u < g->n_params; u++) {
        group *x = &out->at[of[u]];
        if (has_elements(g, u)) x->units[x->n++] = u;
    }
    const uint32_t turn = zx_policy_turn(t);
    for (uint32_t s = 0; s < t->n_steps; s++) {
        const zx_phase phase = s < turn ? ZX_FORWARD : ZX_BACKWARD;
        const uint32_t at = group_of(&p, p.of_node[t->node[s]], blocks);
        if (at != ZX_NONE) stretch_to(&out->at[at], s, phase);
        for (uint32_t i = t->use_at[s]; i < t->use_at[s + 1]; i++) {
            const uint32_t by = group_of(&p, p.of_param[t->uses[i].unit], blocks);
            if (by != ZX_NONE) stretch_to(&out->at[by], s, phase);
        }
    }
    out->root = out->at[out->n];
}

// ---- the schedule -------------------------------------------------------------------------------

typedef struct begun { // a group where it begins in one phase
    int64_t step;
    uint32_t group;
} begun;

static int by_step(const void *a, const void *b)
{
    const begun *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return x->group < y->group ? -1 : x->group > y->group;
}

// The groups of a phase in their order, those without parameters left out.
static uint32_t order_of(const groups *g, zx_phase phase, begun *list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++)
        if (g->at[i].n > 0 && g->at[i].begin[phase] >= 0)
            list[n++] = (begun){g->at[i].begin[phase], i};
    qsort(list, n, sizeof *list, by_step);
    return n;
}

typedef struct writer {
    zx_schedule *s;
    const groups *g;
    knobs k;
    bool gathers;
    int64_t n, turn; // steps of a micro-batch, of its forward
    uint32_t n_order[2];
    begun *order[2];
    bool *open;       // by group: it is whole
    uint32_t *launch; // by group: that brings it
    uint32_t reduced; // the launch that may still be under way; ZX_NONE
    int64_t reduced_at;
} writer;

// Where, in a micro-batch, the i-th group of a phase is gathered: when the one `ahead` before it
// begins, or the phase itself.
static int64_t gathered_at(const writer *w, zx_phase phase, uint32_t i)
{
    if (i < w->k.ahead) return phase == ZX_FORWARD ? 0 : w->turn;
    return w->order[phase][i - w->k.ahead].step;
}

// Whether a group goes after forward: not if backward asks for it by then.
static bool goes(const writer *w, uint32_t which)
{
    for (uint32_t i = 0; i < w->n_order[ZX_BACKWARD]; i++)
        if (w->order[ZX_BACKWARD][i].group == which)
            return w->k.reshard &&
                   gathered_at(w, ZX_BACKWARD, i) > w->g->at[which].end[ZX_FORWARD] + 1;
    return true;
}

static void give_up(writer *w, const group *x, int64_t at)
{
    for (uint32_t i = 0; i < x->n; i++) zx_schedule_free(w->s, at, x->units[i]);
}

// The gradients of a group leave at `at`, or once the last of them is whole.
static void reduce(writer *w, const group *x, uint32_t micro, int64_t at)
{
    const zx_trace *t = w->s->trace;
    uint32_t *units = ZX_NEW(w->s->mem, uint32_t, x->n + 1), n = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        if (!zx_policy_reduced(w->s, x->units[i])) continue;
        const int64_t whole = w->n * micro + t->grad_ready[x->units[i]] + 1;
        if (whole > at) at = whole;
        units[n++] = x->units[i];
    }
    if (n == 0) return;
    if (at < w->reduced_at) at = w->reduced_at;
    if (w->reduced != ZX_NONE) zx_schedule_drain(w->s, at, w->reduced);
    w->reduced = zx_schedule_reduce(w->s, at, micro, units, n, w->gathers, false);
    w->reduced_at = at;
}

static uint32_t gather(writer *w, const group *x, int64_t at)
{
    return zx_schedule_gather(w->s, at, at, x->units, x->n, true, ZX_PASS_policy);
}

// The i-th group of a phase, unless it is still there.
static void gather_nth(writer *w, uint32_t micro, zx_phase phase, uint32_t i)
{
    if (i >= w->n_order[phase]) return;
    const uint32_t at = w->order[phase][i].group;
    w->launch[at] = ZX_NONE;
    if (w->gathers && !w->open[at])
        w->launch[at] = gather(w, &w->g->at[at], w->n * micro + gathered_at(w, phase, i));
}

static void write_phase(writer *w, uint32_t micro, zx_phase phase, uint32_t root)
{
    const int64_t base = w->n * micro;
    for (uint32_t i = 0; i < w->k.ahead; i++) gather_nth(w, micro, phase, i);
    if (root != ZX_NONE) zx_schedule_await(w->s, base, root);
    for (uint32_t i = 0; i < w->n_order[phase]; i++) {
        const uint32_t at = w->order[phase][i].group;
        const group *x = &w->g->at[at];
        const int64_t end = base + x->end[phase] + 1;
        if (phase == ZX_FORWARD) gather_nth(w, micro, phase, i + w->k.ahead);
        if (w->launch[at] != ZX_NONE)
            zx_schedule_await(w->s, base + x->begin[phase], w->launch[at]);
        if (phase == ZX_BACKWARD) gather_nth(w, micro, phase, i + w->k.ahead);
        w->open[at] = phase == ZX_FORWARD && !goes(w, at);
        if (!w->open[at] && w->gathers) give_up(w, x, end);
        if (phase == ZX_BACKWARD) reduce(w, x, micro, end);
    }
}

static void write_micro(writer *w, uint32_t micro)
{
    const int64_t base = w->n * micro;
    const group *root = &w->g->root;
    w->reduced = ZX_NONE;
    w->reduced_at = 0;
    const bool gathers = w->gathers && root->n > 0;
    write_phase(w, micro, ZX_FORWARD, gathers ? gather(w, root, base) : ZX_NONE);
    write_phase(w, micro, ZX_BACKWARD, ZX_NONE);
    for (uint32_t i = 0; i < w->g->n; i++) // groups without a backward of their own
        if (w->g->at[i].begin[ZX_BACKWARD] < 0) reduce(w, &w->g->at[i], micro, base + w->n);
    if (gathers) give_up(w, root, base + w->n);
    reduce(w, root, micro, base + w->n);
}

static void write_down(zx_schedule *s, const zx_trace *t, const zx_plan_options *o, knobs k,
                       groups *g, zx_arena *mem)
{
    make_groups(t, k.blocks, mem, g);
    zx_schedule_start(s, t, o, mem);
    writer w = {.s = s, .g = g, .k = k, .n = t->n_steps, .turn = zx_policy_turn(t)};
    w.gathers = !s->whole_params;
    w.open = ZX_NEW(mem, bool, g->n + 1);
    w.launch = ZX_NEW(mem, uint32_t, g->n + 1);
    for (int phase = 0; phase < 2; phase++) {
        w.order[phase] = ZX_NEW(mem, begun, g->n + 1);
        w.n_order[phase] = order_of(g, (zx_phase)phase, w.order[phase]);
    }
    for (uint32_t m = 0; m < o->micro_batches; m++) write_micro(&w, m);
}

static void put_knobs(const groups *g, const knobs *k, zx_policy_result *out)
{
    if (k == NULL) {
        if (strcmp(g->kind, "block") != 0)
            snprintf(out->knobs, sizeof out->knobs, "no blocks: one unit a %s", g->kind);
        return;
    }
    snprintf(out->knobs, sizeof out->knobs, "%u %s%s a unit, %u ahead, %s after forward", k->blocks,
             g->kind, k->blocks > 1 ? "s" : "", k->ahead, k->reshard ? "resharded" : "kept");
}

zx_status zx_policy_fsdp(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                         const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                         zx_err *err)
{
    zx_arena scratch = {0};
    zx_schedule s;
    groups g;
    write_down(&s, t, o, (knobs){1, 1, true}, &g, &scratch);
    put_knobs(&g, NULL, out);
    const zx_status st = zx_policy_finish(&s, id, in, mem, out, err);
    zx_arena_free(&scratch);
    return st;
}

// ---- tuned --------------------------------------------------------------------------------------

#define MOST_BLOCKS 4
#define MOST_AHEAD 2
#define TRIES (MOST_BLOCKS * MOST_AHEAD * 2)
#define ENOUGH 4 // micro-batches in a try: they are alike

typedef struct tried {
    knobs k;
    uint64_t load; // bytes, before placement
    double seconds;
    uint32_t nth;
} tried;

static zx_status try_knobs(const zx_policy_input *in, const zx_trace *t, const zx_plan_options *o,
                           tried *x, zx_err *err)
{
    zx_arena scratch = {0};
    zx_trace few = *t;
    zx_plan_options fewer = *o;
    zx_schedule s;
    groups g;
    zx_plan p;
    uint32_t mended;
    if (few.micro_batches > ENOUGH) few.micro_batches = fewer.micro_batches = ENOUGH;
    write_down(&s, &few, &fewer, x->k, &g, &scratch);
    const zx_status st = zx_schedule_finish(&s, &mended, err);
    if (st == ZX_OK) {
        x->load = zx_schedule_load(&s);
        zx_schedule_emit(&s, &scratch, &p); // addresses don't matter for its time
        zx_plan_simulate(in->train, &o->machine, in->times, &p, &scratch);
        x->seconds = p.step_seconds;
    }
    zx_arena_free(&scratch);
    return st;
}

static int by_seconds(const void *a, const void *b)
{
    const tried *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? -1 : 1;
    if (x->load != y->load) return x->load < y->load ? -1 : 1;
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

static int by_load(const void *a, const void *b)
{
    const tried *x = a, *y = b;
    if (x->load != y->load) return x->load < y->load ? -1 : 1;
    return by_seconds(a, b);
}

static zx_status make_with(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                           const zx_plan_options *o, const knobs *k, zx_arena *mem,
                           zx_policy_result *out, zx_err *err)
{
    zx_arena scratch = {0};
    zx_schedule s;
    groups g;
    write_down(&s, t, o, *k, &g, &scratch);
    put_knobs(&g, k, out);
    const zx_status st = zx_policy_finish(&s, id, in, mem, out, err);
    zx_arena_free(&scratch);
    return st;
}

// The fastest that fits; where none does, the one with the least bytes.
zx_status zx_policy_fsdp_tuned(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                               const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                               zx_err *err)
{
    tried all[TRIES];
    uint32_t n = 0;
    const uint64_t room = zx_policy_room(o);
    for (uint32_t i = 0; i < TRIES; i++) {
        all[n] =
            (tried){.k = {1 + i / (2 * MOST_AHEAD), 1 + i / 2 % MOST_AHEAD, i % 2 == 0}, .nth = i};
        ZX_TRY(try_knobs(in, t, o, &all[n++], err));
    }
    qsort(all, n, sizeof *all, by_seconds);
    for (uint32_t i = 0; i < n; i++) {
        if (all[i].load > room) continue;
        const zx_mark mark = zx_arena_mark(mem);
        ZX_TRY(make_with(id, in, t, o, &all[i].k, mem, out, err));
        if (out->plan.arena_bytes <= room) return ZX_OK;
        zx_arena_rewind(mem, mark); // placement took more than the load
    }
    qsort(all, n, sizeof *all, by_load);
    return make_with(id, in, t, o, &all[0].k, mem, out, err);
}
