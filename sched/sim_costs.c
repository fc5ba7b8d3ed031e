// sim_costs.c - what the instructions of a plan take on a machine, each by itself.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "sched/sim.h"

typedef struct pricer {
    const zx_graph *g;
    const zx_plan *p;
    zx_machine m;          // with the rates that were measured
    const zx_times *times; // never NULL
    const double *node;    // seconds by node
    const uint64_t *bytes; // by launch: whole units
    const uint64_t *moved; // by launch: what a gather copies; its own shard may lie there already
    const bool *reduces;   // by launch
    double norm;
} pricer;

// One rank's word to all others; ranks in one memory need no wire for it.
static double exchange_seconds(const pricer *k)
{
    if (k->m.wire > 0) return 0;
    return zx_wire_seconds(&k->m, ZX_ALL_GATHER, k->p->ranks, k->p->ranks * sizeof(double));
}

// One function a handler of insns.def.
typedef zx_sim_cost handler(const pricer *k, const zx_insn *in);

static zx_sim_cost compute(double seconds)
{
    return (zx_sim_cost){.kind = ZX_SIM_COMPUTE, .alone = seconds};
}
static zx_sim_cost move(const pricer *k, double bytes)
{
    return (zx_sim_cost){.kind = ZX_SIM_MOVE,
                         .alone = bytes / k->m.copy + zx_refill_seconds(&k->m, 2 * bytes)};
}
// Where no core helps, adding is a part of the reduce.
static zx_sim_cost send(const pricer *k, const zx_insn *in, zx_collective what)
{
    const uint32_t ranks = k->p->ranks;
    const uint64_t bytes = k->bytes[in->a], moved = what == ZX_ALL_GATHER ? k->moved[in->a] : bytes;
    zx_sim_cost c = {.kind = ZX_SIM_SEND,
                     .alone = zx_wire_seconds(&k->m, what, ranks, bytes),
                     .core = zx_core_seconds(&k->m, what, ranks, moved),
                     .wire_bytes = what == ZX_ALL_REDUCE ? zx_allreduce_wire(ranks, bytes)
                                                         : zx_gather_wire(ranks, bytes)};
    c.core += zx_refill_seconds(&k->m, (double)moved);
    if (k->m.cores <= 0) {
        c.alone += c.core;
        c.core = 0;
    }
    return c;
}

static zx_sim_cost price_feed(const pricer *k, const zx_insn *in)
{
    if (k->times->feed > 0) return compute(k->times->feed);
    return compute(in->a == ZX_NONE ? 0 : 2 * (double)k->p->slots[in->a].bytes / k->m.memory);
}
static zx_sim_cost price_gather(const pricer *k, const zx_insn *in)
{
    return send(k, in, ZX_ALL_GATHER);
}
static zx_sim_cost price_pack(const pricer *k, const zx_insn *in)
{
    const double whole = (double)k->bytes[in->a];
    return move(k, k->reduces[in->a] ? whole : whole / k->p->ranks);
}
static zx_sim_cost price_unpack(const pricer *k, const zx_insn *in)
{
    return move(k, (double)k->bytes[in->a]);
}
static zx_sim_cost price_bucket(const pricer *k, const zx_insn *in)
{
    const zx_unit *u = &k->p->units[k->p->members[k->p->launches[in->a].member + in->b].unit];
    return move(k, (double)zx_unit_room(k->p, u, 1) * u->param_bytes);
}
static zx_sim_cost price_hook(const pricer *k, const zx_insn *in)
{
    return (zx_sim_cost){.host = k->m.hook_seconds * in->a};
}
static zx_sim_cost price_exec(const pricer *k, const zx_insn *in)
{
    return compute(k->node[k->p->steps[in->a].node]);
}
static zx_sim_cost price_reduce(const pricer *k, const zx_insn *in)
{
    return send(k, in, ZX_REDUCE_SCATTER);
}
static zx_sim_cost price_allreduce(const pricer *k, const zx_insn *in)
{
    return send(k, in, ZX_ALL_REDUCE);
}
static zx_sim_cost price_free(const pricer *k ZX_UNUSED, const zx_insn *in ZX_UNUSED)
{
    return (zx_sim_cost){0};
}
#define price_mark price_free
#define price_loss price_free
static zx_sim_cost price_wait(const pricer *k ZX_UNUSED, const zx_insn *in ZX_UNUSED)
{
    return (zx_sim_cost){.kind = ZX_SIM_WAIT};
}
static zx_sim_cost meet(const pricer *k, double seconds)
{
    return (zx_sim_cost){.kind = ZX_SIM_MEET, .alone = seconds + exchange_seconds(k)};
}
static zx_sim_cost price_norm(const pricer *k, const zx_insn *in ZX_UNUSED)
{
    return meet(k, k->norm);
}
static zx_sim_cost price_update(const pricer *k, const zx_insn *in)
{
    if (k->times->update != NULL) return compute(k->times->update[in->a]);
    const zx_unit *u = &k->p->units[in->a];
    const uint32_t element = zx_update_bytes(u->param_bytes, u->grad_bytes, k->p->optimizer_states);
    const int64_t elements = u->state_whole ? u->numel : u->shard;
    return compute((double)elements * element / k->m.update + k->m.op_seconds);
}
static zx_sim_cost price_commit(const pricer *k, const zx_insn *in)
{
    const zx_value *v = &k->g->values[k->g->buffers[in->a].value];
    const double bytes = (double)zx_type_bytes(&v->type) * k->p->ranks;
    return meet(k, bytes / k->m.memory);
}

static handler *const handlers[ZX_INSN_COUNT] = {
#define ZX_INSN(id, word, a, b, c, name, what) [ZX_I_##id] = price_##name,
#include "sched/insns.def"
#undef ZX_INSN
};

static const double *node_seconds(const zx_graph *g, const zx_machine *m, const zx_times *times,
                                  zx_arena *mem)
{
    if (times->node != NULL) return times->node;
    double *seconds = ZX_NEW(mem, double, g->n_nodes);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        zx_cost cost;
        if (zx_node_runs(&g->nodes[i])) seconds[i] = zx_trace_seconds(g, &g->nodes[i], m, &cost);
    }
    return seconds;
}

static void measure_launches(pricer *k, zx_arena *mem)
{
    const zx_plan *p = k->p;
    uint64_t *bytes = ZX_NEW(mem, uint64_t, p->n_launches);
    uint64_t *moved = ZX_NEW(mem, uint64_t, p->n_launches);
    bool *reduces = ZX_NEW(mem, bool, p->n_launches);
    for (uint32_t l = 0; l < p->n_launches; l++)
        for (uint32_t i = 0; i < p->launches[l].n_members; i++) {
            const zx_member *m = &p->members[p->launches[l].member + i];
            const zx_unit *u = &p->units[m->unit];
            const uint64_t whole = zx_unit_room(p, u, 1) * u->param_bytes;
            const bool own = p->launches[l].flat != ZX_NONE || u->param_whole != 0;
            bytes[l] += whole;
            moved[l] += own ? zx_gather_wire(p->ranks, whole) : whole;
        }
    for (uint32_t i = 0; i < p->n_insns; i++)
        if (p->insns[i].id == ZX_I_REDUCE || p->insns[i].id == ZX_I_ALLREDUCE)
            reduces[p->insns[i].a] = true;
    k->bytes = bytes;
    k->moved = moved;
    k->reduces = reduces;
}

// Every rank reads its shards of the gradient.
static double norm_seconds(const pricer *k)
{
    if (k->times->norm > 0) return k->times->norm;
    const zx_dtype type = zx_trace_param_type(k->g);
    double seconds = 0;
    for (uint32_t u = 0; u < k->p->n_units; u++) {
        const zx_unit *x = &k->p->units[u];
        const double rate = zx_machine_norm(&k->m, x->grad_bytes == 2 ? type : ZX_F32);
        if (x->grad_slot != ZX_NONE) seconds += (double)x->shard * x->grad_bytes / rate;
    }
    return seconds;
}

const zx_sim_cost *zx_sim_costs(const zx_graph *train, const zx_machine *m, const zx_times *times,
                                const zx_plan *p, zx_arena *mem)
{
    static const zx_times none = {0};
    pricer k = {.g = train, .p = p, .times = times != NULL ? times : &none};
    k.m = zx_machine_in(m, zx_trace_param_type(train));
    if (k.times->copy > 0) k.m.copy = k.times->copy;
    if (k.times->sum > 0) k.m.sum = k.times->sum;
    k.node = node_seconds(train, m, k.times, mem);
    measure_launches(&k, mem);
    k.norm = norm_seconds(&k);
    zx_sim_cost *cost = ZX_NEW(mem, zx_sim_cost, p->n_insns);
    for (uint32_t i = 0; i < p->n_insns; i++) {
        cost[i] = handlers[p->insns[i].id](&k, &p->insns[i]);
        if (cost[i].kind >= ZX_SIM_COMPUTE) cost[i].host = m->host_seconds;
    }
    return cost;
}
