// test_random.c - plans for random graphs: every one is proved, fits its budget, and when it is run
// on three streams that interleave at random, computes what the graph says. Plans with a random
// fault that the checker still accepts must compute it too: then the fault was none.
//
// Running is done on tags in place of numbers: a node's output is a hash of its inputs, so one
// wrong byte anywhere shows in the end.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched/pass.h"
#include "tests/sched/random_graph.h"

#define GRAPHS 60
#define FEW_GRAPHS 15
#define SCHEDULES 3
#define FAULTS 30

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

// ---- what the graph says
// ----------------------------------------------------------------------------------

typedef struct outcome { // tags
    uint64_t params[128], buffers[128], losses[8];
} outcome;

static uint64_t first_param(uint32_t u)
{
    return mix(1, u);
}

static uint64_t node_tag(const zx_graph *g, const zx_node *n, const uint64_t *in, uint32_t micro)
{
    uint64_t h = mix(2, n->op);
    for (uint32_t i = 0; i < n->n_in; i++) h = mix(h, in[i]);
    (void)g;
    return n->op == ZX_OP_DROPOUT ? mix(h, micro) : h;
}

static void expect(const zx_graph *g, uint32_t micro_batches, uint32_t states, zx_arena *mem,
                   outcome *out)
{
    uint64_t *tag = ZX_NEW(mem, uint64_t, g->n_values), *grad = ZX_NEW(mem, uint64_t, g->n_params);
    for (uint32_t b = 0; b < g->n_buffers; b++) out->buffers[b] = mix(3, b);
    for (uint32_t m = 0; m < micro_batches; m++) {
        for (uint32_t v = 0; v < g->n_values; v++) {
            const zx_value *x = &g->values[v];
            if (x->role == ZX_R_PARAM) tag[v] = first_param(x->index);
            if (x->role == ZX_R_CONST) tag[v] = mix(4, v);
            if (x->role == ZX_R_INPUT) tag[v] = mix(mix(5, x->index), m);
            if (x->role == ZX_R_BUFFER) tag[v] = out->buffers[x->index];
        }
        for (uint32_t i = 0; i < g->n_nodes; i++) {
            const zx_node *n = &g->nodes[i];
            uint64_t in[16] = {0};
            for (uint32_t k = 0; k < n->n_in; k++)
                if (zx_node_in(g, n, k) != ZX_NONE) in[k] = tag[zx_node_in(g, n, k)];
            for (uint32_t k = 0; k < n->n_out; k++)
                if (zx_node_out(g, n, k) != ZX_NONE)
                    tag[zx_node_out(g, n, k)] =
                        zx_node_runs(n) ? mix(node_tag(g, n, in, m), k) : in[0];
        }
        for (uint32_t b = 0; b < g->n_buffers; b++)
            if (g->buffers[b].next != ZX_NONE) out->buffers[b] = tag[g->buffers[b].next];
        for (uint32_t u = 0; u < g->n_params; u++)
            if (g->params[u].grad != ZX_NONE)
                grad[u] = mix(m == 0 ? 0 : grad[u], tag[g->params[u].grad]);
        out->losses[m] = tag[g->loss];
    }
    for (uint32_t u = 0; u < g->n_params; u++) {
        out->params[u] = first_param(u);
        if (!zx_param_trained(g, u)) continue;
        uint64_t h = mix(first_param(u), grad[u]);
        for (uint32_t k = 0; k < states; k++) h = mix(h, mix(6, k));
        out->params[u] = h;
    }
}

// ---- running a plan
// ---------------------------------------------------------------------------------------

typedef struct machine {
    const zx_graph *g;
    const zx_plan *p;
    uint64_t *block; // by 64 bytes
    bool *event;
    rng r;
    outcome *out;
    uint64_t seen[ZX_STREAM_COUNT]; // what a transfer that is under way has read
    bool under_way[ZX_STREAM_COUNT];
} machine;

static uint64_t n_blocks(const zx_slot *s)
{
    return (s->bytes + 63) / 64;
}

static uint64_t load(const machine *m, uint32_t slot)
{
    const zx_slot *s = &m->p->slots[slot];
    if (s->bytes == 0) return 0;
    const uint64_t *b = m->block + s->offset / 64;
    for (uint64_t i = 1; i < n_blocks(s); i++)
        if (b[i] != b[0]) return mix(b[0], b[i]); // torn: a tag that nobody else has
    return b[0];
}

static void store(machine *m, uint32_t slot, uint64_t tag)
{
    const zx_slot *s = &m->p->slots[slot];
    for (uint64_t i = 0; i < n_blocks(s); i++) m->block[s->offset / 64 + i] = tag;
}

static void store_garbage(machine *m, uint32_t slot)
{
    store(m, slot, mix(7, draw(&m->r, 1u << 30)));
}

static void run_step(machine *m, uint32_t step)
{
    const zx_plan_step *t = &m->p->steps[step];
    const zx_node *n = &m->g->nodes[t->node];
    const uint32_t *args = m->p->args + t->arg;
    uint64_t in[16] = {0};
    for (uint32_t i = 0; i < t->n_in; i++)
        if (args[i] != ZX_NONE) in[i] = load(m, args[i]);
    if (t->work != ZX_NONE) store_garbage(m, t->work);
    // Empty tensors have no bytes to carry a tag.
    for (uint32_t i = 0; i < t->n_in; i++)
        if (args[i] != ZX_NONE && m->p->slots[args[i]].bytes == 0) {
            const zx_value *v = &m->g->values[zx_node_in(m->g, n, i)];
            in[i] = v->role == ZX_R_PARAM ? first_param(v->index) : 0;
        }
    for (uint32_t i = 0; i < t->n_out; i++)
        if (args[t->n_in + i] != ZX_NONE)
            store(m, args[t->n_in + i], mix(node_tag(m->g, n, in, t->micro), i));
}

// A transfer reads its operands when it begins and again when it ends, and its result is garbage in
// between.
static void run_launch(machine *m, const zx_insn *in, bool ends)
{
    const zx_launch *l = &m->p->launches[in->a];
    uint64_t seen = 0;
    for (uint32_t k = l->member; k < l->member + l->n_members; k++) {
        const zx_member *x = &m->p->members[k];
        const zx_unit *u = &m->p->units[x->unit];
        seen = mix(seen, load(m, in->id == ZX_I_GATHER ? u->param_slot : x->slot));
    }
    if (!ends) m->seen[in->stream] = seen;
    for (uint32_t k = l->member; k < l->member + l->n_members; k++) {
        const zx_member *x = &m->p->members[k];
        const zx_unit *u = &m->p->units[x->unit];
        if (in->id == ZX_I_GATHER && x->slot == u->param_slot) {
            if (ends) store(m, x->slot, load(m, x->slot) - 1); // whole again
        } else if (in->id == ZX_I_GATHER) {
            if (!ends || seen != m->seen[in->stream])
                store_garbage(m, x->slot);
            else
                store(m, x->slot, load(m, u->param_slot));
        } else if (ends) {
            const uint64_t sum = mix(in->b ? load(m, u->grad_slot) : 0, load(m, x->slot));
            store(m, u->grad_slot, seen == m->seen[in->stream] ? sum : mix(sum, 8));
        }
    }
}

// The gradient may have been made in place: then its tag isn't a sum's yet.
static uint64_t gradient(const machine *m, uint32_t unit, bool reduced)
{
    const uint64_t tag = load(m, m->p->units[unit].grad_slot);
    return reduced ? tag : mix(0, tag);
}

static bool is_reduced(const zx_plan *p, uint32_t unit)
{
    for (uint32_t i = 0; i < p->n_insns; i++) {
        if (p->insns[i].id != ZX_I_REDUCE && p->insns[i].id != ZX_I_ALLREDUCE) continue;
        const zx_launch *l = &p->launches[p->insns[i].a];
        for (uint32_t k = l->member; k < l->member + l->n_members; k++)
            if (p->members[k].unit == unit) return true;
    }
    return false;
}

static void run_update(machine *m, uint32_t unit)
{
    const zx_unit *u = &m->p->units[unit];
    uint64_t h = mix(load(m, u->param_slot), gradient(m, unit, is_reduced(m->p, unit)));
    for (uint32_t k = 0; k < m->p->optimizer_states; k++) h = mix(h, load(m, u->state_slot[k]));
    const bool part = u->param_whole && !u->state_whole && m->p->ranks > 1;
    store(m, u->param_slot, h + part); // until it is gathered only this rank's shard is right
}

static uint32_t find_slot(const zx_plan *p, uint32_t kind, uint32_t what)
{
    for (uint32_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].kind == kind && p->slots[i].what == what) return i;
    return ZX_NONE;
}

// Runs one instruction, or one half of it; false: it can't run yet.
static bool run_insn(machine *m, const zx_insn *in)
{
    const zx_plan *p = m->p;
    const bool launch = in->id == ZX_I_GATHER || in->id == ZX_I_REDUCE || in->id == ZX_I_ALLREDUCE;
    if (launch && !m->under_way[in->stream]) {
        run_launch(m, in, false);
        m->under_way[in->stream] = true;
        return false;
    }
    switch ((zx_insn_id)in->id) {
    case ZX_I_FEED:
        store(m, in->a, mix(mix(5, p->slots[in->a].what), in->b));
        break;
    case ZX_I_GATHER:
    case ZX_I_REDUCE:
    case ZX_I_ALLREDUCE:
        run_launch(m, in, true);
        m->under_way[in->stream] = false;
        break;
    case ZX_I_EXEC:
        run_step(m, in->a);
        break;
    case ZX_I_FREE:
        store_garbage(m, in->a);
        break;
    case ZX_I_WAIT:
        if (!m->event[in->a]) return false;
        break;
    case ZX_I_LOSS:
        m->out->losses[in->b] = load(m, in->a);
        break;
    case ZX_I_UPDATE:
        run_update(m, in->a);
        break;
    case ZX_I_COMMIT:
        store(m, find_slot(p, ZX_SLOT_BUFFER, in->a),
              load(m, find_slot(p, ZX_SLOT_WORKING, in->a)));
        break;
    case ZX_I_PACK:
    case ZX_I_UNPACK:
    case ZX_I_BUCKET:
    case ZX_I_HOOK:
        fail_msg("the planner copies nothing, and has no hooks");
        break;
    case ZX_I_MARK:
    case ZX_I_NORM:
    case ZX_INSN_COUNT:
        break;
    }
    if (in->c != ZX_NONE) m->event[in->c] = true;
    return true;
}

static void run_plan(const zx_graph *g, const zx_plan *p, uint64_t seed, zx_arena *mem,
                     outcome *out)
{
    machine m = {.g = g, .p = p, .r = {seed}, .out = out};
    m.block = ZX_NEW(mem, uint64_t, p->arena_bytes / 64 + 1);
    m.event = ZX_NEW(mem, bool, p->n_events);
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const zx_slot *s = &p->slots[i];
        const uint32_t kind = s->kind;
        if (kind == ZX_SLOT_PARAM) store(&m, i, first_param(s->what));
        if (kind == ZX_SLOT_STATE) store(&m, i, mix(6, p->units[s->what].state_slot[1] == i));
        if (kind == ZX_SLOT_BUFFER || kind == ZX_SLOT_WORKING) store(&m, i, mix(3, s->what));
        if (kind == ZX_SLOT_CONST) store(&m, i, mix(4, s->what));
    }
    uint32_t next[ZX_STREAM_COUNT] = {0};
    uint32_t left = p->n_insns;
    while (left > 0) {
        // One stream runs for a while; which and how long is chance.
        const uint32_t s = draw(&m.r, ZX_STREAM_COUNT);
        for (uint32_t n = draw(&m.r, 12); n > 0; n--) {
            while (next[s] < p->n_insns && p->insns[next[s]].stream != s) next[s]++;
            if (next[s] == p->n_insns) break;
            if (!run_insn(&m, &p->insns[next[s]])) continue;
            next[s]++;
            left--;
        }
    }
    for (uint32_t u = 0; u < g->n_params; u++)
        out->params[u] = p->slots[p->units[u].param_slot].bytes ? load(&m, p->units[u].param_slot)
                                                                : first_param(u);
    for (uint32_t b = 0; b < g->n_buffers; b++)
        out->buffers[b] = load(&m, find_slot(p, ZX_SLOT_BUFFER, b));
}

// "" where the plan computes what the graph says on a few schedules.
static const char *compare(const zx_graph *g, const zx_plan *p, const outcome *want, zx_arena *mem)
{
    for (uint32_t k = 0; k < SCHEDULES; k++) {
        outcome got = {0};
        run_plan(g, p, 77 + k, mem, &got);
        for (uint32_t u = 0; u < g->n_params; u++)
            if (got.params[u] != want->params[u]) return g->params[u].name;
        for (uint32_t b = 0; b < g->n_buffers; b++)
            if (got.buffers[b] != want->buffers[b]) return g->buffers[b].name;
        if (memcmp(got.losses, want->losses, sizeof got.losses) != 0) return "loss";
    }
    return "";
}

// ---- faults
// -----------------------------------------------------------------------------------------------

// A copy of the plan with something wrong in its instructions, operands or addresses.
static void break_plan(const zx_plan *p, rng *r, zx_arena *mem, zx_plan *out)
{
    *out = *p;
    zx_insn *insns = zx_arena_copy(mem, p->insns, p->n_insns * sizeof *insns);
    zx_slot *slots = zx_arena_copy(mem, p->slots, p->n_slots * sizeof *slots);
    uint32_t *args = zx_arena_copy(mem, p->args, p->n_args * sizeof *args);
    zx_member *members = zx_arena_copy(mem, p->members, p->n_members * sizeof *members);
    out->insns = insns;
    out->slots = slots;
    out->args = args;
    out->members = members;
    const uint32_t i = draw(r, p->n_insns), j = draw(r, p->n_insns);
    switch (draw(r, 6)) {
    case 0: // left out
        memmove(insns + i, insns + i + 1, (p->n_insns - i - 1) * sizeof *insns);
        out->n_insns--;
        break;
    case 1: { // moved to another place
        const zx_insn x = insns[i];
        memmove(insns + i, insns + i + 1, (p->n_insns - i - 1) * sizeof *insns);
        memmove(insns + j + 1, insns + j, (p->n_insns - j - 1) * sizeof *insns);
        insns[j] = x;
        break;
    }
    case 2: { // an operand that belongs to another instruction
        uint32_t *to[] = {&insns[i].a, &insns[i].b, &insns[i].c};
        const uint32_t from[] = {insns[j].a, insns[j].b, insns[j].c};
        const uint32_t k = draw(r, 3);
        *to[k] = from[k];
        break;
    }
    case 3: // another slot
        args[draw(r, p->n_args)] = draw(r, p->n_slots);
        break;
    case 4: // another address
        slots[draw(r, p->n_slots)].offset = slots[draw(r, p->n_slots)].offset;
        break;
    default:
        if (p->n_members > 0) members[draw(r, p->n_members)].slot = draw(r, p->n_slots);
    }
}

typedef struct tally {
    uint32_t plans, caught, harmless;
} tally;

static void try_faults(const zx_graph *g, const zx_plan *p, const outcome *want, rng *r, tally *t)
{
    for (uint32_t k = 0; k < FAULTS; k++) {
        zx_arena mem = {0};
        zx_plan bad;
        zx_err err = {0};
        break_plan(p, r, &mem, &bad);
        if (zx_plan_check(g, &bad, &err) != ZX_OK) {
            assert_int_not_equal(err.n_causes, 0);
            t->caught++;
        } else {
            const char *wrong = compare(g, &bad, want, &mem);
            if (wrong[0]) fail_msg("the checker accepts a plan that gets '%s' wrong", wrong);
            t->harmless++;
        }
        zx_arena_free(&mem);
    }
}

// ---- the property
// -----------------------------------------------------------------------------------------

static void try_options(const zx_graph *g, zx_plan_options *o, rng *r, tally *t)
{
    zx_arena mem = {0};
    zx_plan p;
    zx_err err = {0};
    outcome want = {0};
    expect(g, o->micro_batches, o->optimizer_states, &mem, &want);
    o->least = true;
    assert_zx_ok(zx_plan_make(g, o, &mem, &p, &err), &err);
    const uint64_t least = p.arena_bytes;
    o->least = false;
    o->budget = least - 1;
    assert_int_equal(zx_plan_make(g, o, &mem, &p, &err), ZX_E_BUDGET);
    char number[32];
    snprintf(number, sizeof number, "(%" PRIu64 " bytes)", least);
    if (strstr(err.cause[0], number) == NULL) fail_msg("%s vs %s", err.cause[0], number);
    for (uint32_t k = 0; k < 5; k++) {
        o->budget = k == 4 ? UINT64_MAX : k == 0 ? least : least + k * (least / 16 + draw(r, 999));
        o->roomy = draw(r, 3) == 0;
        err = (zx_err){0};
        assert_zx_ok(zx_plan_make(g, o, &mem, &p, &err), &err);
        if (p.arena_bytes > o->budget) fail_msg("the plan is over its budget");
        const char *wrong = compare(g, &p, &want, &mem);
        if (wrong[0]) fail_msg("the plan gets '%s' wrong", wrong);
        t->plans++;
        if (k == 0) try_faults(g, &p, &want, r, t);
    }
    zx_arena_free(&mem);
}

static void test_random_graphs(void **state ZX_UNUSED)
{
    tally t = {0};
    for (uint64_t seed = 0; seed < (test_few() ? FEW_GRAPHS : GRAPHS); seed++) {
        zx_arena mem = {0};
        zx_graph g;
        rng r = {seed};
        make_random(&mem, seed, &g);
        assert_true(g.n_params <= 128 && g.n_buffers <= 128);
        uint64_t *work = ZX_NEW(&mem, uint64_t, g.n_nodes);
        for (uint32_t i = 0; i < g.n_nodes; i++)
            if (draw(&r, 3) == 0) work[i] = 1 + draw(&r, 500);
        for (uint32_t k = 1; k <= 3; k++)
            for (uint32_t stage = 0; stage <= 3; stage++) {
                zx_plan_options o = {.ranks = k < 3 ? k : 3 + draw(&r, 6),
                                     .stage = stage,
                                     .micro_batches = 1 + draw(&r, 3),
                                     .optimizer_states = draw(&r, 3),
                                     .work_bytes = work,
                                     .machine = zx_machine_host(1, 1)};
                o.machine.latency = draw(&r, 2) ? 1e-3 : 1e-6;
                o.no_overlap = draw(&r, 5) == 0;
                if (draw(&r, 4) == 0) o.reduce_bucket_elements = 1 + draw(&r, 60);
                try_options(&g, &o, &r, &t);
            }
        zx_arena_free(&mem);
    }
    print_message("%u plans; %u faults caught, %u harmless\n", t.plans, t.caught, t.harmless);
    assert_true(t.caught > t.harmless);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
