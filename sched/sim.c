// sim.c - runs a plan on a machine that is only numbers.
//
// Three streams, each in order, with events between them; gathers and reduces of a rank share one
// wire, one launch at a time, whichever is ready first. All ranks are taken to be alike.
// SPDX-License-Identifier: Apache-2.0
#include "sched/pass.h"

typedef struct sim {
    const zx_graph *g;
    const zx_machine *m;
    const zx_plan *p;
    const double *node_seconds;      // by node
    double *start, *seconds, *event; // by instruction, by event: when it happened, < 0: not yet
    const uint32_t *order;           // instructions by stream, each in plan order
    uint32_t next[ZX_STREAM_COUNT], end[ZX_STREAM_COUNT]; // in `order`
    double now[ZX_STREAM_COUNT]; // when the stream is done with what it was given so far
    double wire;                 // when the wire is free
    double exposed, computing;
    uint64_t wire_bytes;
} sim;

static uint64_t launch_bytes(const zx_plan *p, uint32_t launch)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->launches[launch].n_members; i++) {
        const zx_unit *u = &p->units[p->members[p->launches[launch].member + i].unit];
        bytes += zx_unit_room(p, u, 1) * u->param_bytes;
    }
    return bytes;
}

static uint64_t slot_bytes(const zx_plan *p, uint32_t slot)
{
    return slot == ZX_NONE ? 0 : p->slots[slot].bytes;
}

// What an instruction takes by itself; one function a handler of insns.def.
typedef double handler(sim *s, const zx_insn *in);

static double take_feed(sim *s, const zx_insn *in)
{
    return 2 * (double)slot_bytes(s->p, in->a) / s->m->memory;
}
static double take_gather(sim *s, const zx_insn *in)
{
    const uint64_t bytes = launch_bytes(s->p, in->a);
    s->wire_bytes += zx_gather_wire(s->p->ranks, bytes);
    return zx_gather_seconds(s->m, s->p->ranks, bytes);
}
static double take_exec(sim *s, const zx_insn *in)
{
    return s->node_seconds[s->p->steps[in->a].node];
}
static double take_reduce(sim *s, const zx_insn *in)
{
    const uint64_t bytes = launch_bytes(s->p, in->a);
    s->wire_bytes += zx_gather_wire(s->p->ranks, bytes);
    return zx_reduce_seconds(s->m, s->p->ranks, bytes);
}
static double take_allreduce(sim *s, const zx_insn *in)
{
    const uint64_t bytes = launch_bytes(s->p, in->a);
    s->wire_bytes += zx_allreduce_wire(s->p->ranks, bytes);
    return zx_allreduce_seconds(s->m, s->p->ranks, bytes);
}
static double take_free(sim *s ZX_UNUSED, const zx_insn *in ZX_UNUSED)
{
    return 0;
}
#define take_mark take_free
#define take_wait take_free
#define take_loss take_free
#define take_hook take_free
#define take_pack take_copy
#define take_unpack take_copy
static double take_copy(sim *s, const zx_insn *in)
{
    return (double)launch_bytes(s->p, in->a) / s->m->copy;
}
static double take_bucket(sim *s, const zx_insn *in)
{
    const zx_unit *u = &s->p->units[s->p->members[s->p->launches[in->a].member + in->b].unit];
    return (double)zx_unit_room(s->p, u, 1) * u->param_bytes / s->m->copy;
}
static double take_norm(sim *s, const zx_insn *in ZX_UNUSED)
{
    double bytes = 0; // every rank reads its shards of the gradient
    for (uint32_t u = 0; u < s->p->n_units; u++)
        if (s->p->units[u].grad_slot != ZX_NONE)
            bytes += (double)s->p->units[u].shard * s->p->units[u].grad_bytes;
    return bytes / s->m->memory + (s->p->ranks > 1 ? s->m->latency : 0);
}
static double take_update(sim *s, const zx_insn *in)
{
    const zx_unit *u = &s->p->units[in->a];
    // Reads the gradient; reads and writes the parameter and its states.
    const double words = 1 + 2 * (1 + (double)s->p->optimizer_states);
    const int64_t elements = u->state_whole ? u->numel : u->shard;
    return words * (double)elements * sizeof(float) / s->m->memory + s->m->op_seconds;
}
static double take_commit(sim *s, const zx_insn *in)
{
    const zx_value *v = &s->g->values[s->g->buffers[in->a].value];
    const double bytes = (double)zx_type_bytes(&v->type) * s->p->ranks;
    return bytes / s->m->memory + (s->p->ranks > 1 ? s->m->latency : 0);
}

static handler *const handlers[ZX_INSN_COUNT] = {
#define ZX_INSN(id, word, a, b, c, name, what) [ZX_I_##id] = take_##name,
#include "sched/insns.def"
#undef ZX_INSN
};

static bool uses_wire(const zx_insn *in)
{
    return in->id == ZX_I_GATHER || in->id == ZX_I_REDUCE || in->id == ZX_I_ALLREDUCE;
}

static void finish(sim *s, uint32_t i, double start)
{
    const zx_insn *in = &s->p->insns[i];
    const double takes = handlers[in->id](s, in);
    s->start[i] = start;
    s->seconds[i] = takes;
    s->now[in->stream] = start + takes;
    if (in->stream == ZX_S_COMPUTE) s->computing += takes;
    if (uses_wire(in)) s->wire = start + takes;
    if (in->c != ZX_NONE) s->event[in->c] = start + takes;
    s->next[in->stream]++;
}

// Runs a stream up to a launch for the wire or an event that hasn't happened.
static bool advance(sim *s, uint32_t stream)
{
    bool moved = false;
    for (; s->next[stream] < s->end[stream]; moved = true) {
        const uint32_t i = s->order[s->next[stream]];
        const zx_insn *in = &s->p->insns[i];
        if (uses_wire(in)) return moved;
        const double from = s->now[stream];
        if (in->id == ZX_I_WAIT) {
            if (s->event[in->a] < 0) return moved;
            finish(s, i, from);
            if (s->event[in->a] > from) { // the wait lasts until the event
                s->seconds[i] = s->event[in->a] - from;
                s->now[stream] = s->event[in->a];
                if (stream == ZX_S_COMPUTE) s->exposed += s->seconds[i];
            }
            continue;
        }
        finish(s, i, from);
    }
    return moved;
}

static void sort_by_stream(sim *s, zx_arena *mem)
{
    uint32_t *order = ZX_NEW(mem, uint32_t, s->p->n_insns);
    uint32_t n = 0;
    for (uint32_t stream = 0; stream < ZX_STREAM_COUNT; stream++) {
        s->next[stream] = n;
        for (uint32_t i = 0; i < s->p->n_insns; i++)
            if (s->p->insns[i].stream == stream) order[n++] = i;
        s->end[stream] = n;
    }
    s->order = order;
}

void zx_plan_simulate(const zx_graph *train, const zx_machine *m, const zx_times *times ZX_UNUSED,
                      zx_plan *p, zx_arena *mem)
{
    sim s = {.g = train, .m = m, .p = p};
    double *node_seconds = ZX_NEW(mem, double, train->n_nodes);
    for (uint32_t i = 0; i < train->n_nodes; i++) {
        zx_cost cost;
        if (zx_node_runs(&train->nodes[i]))
            node_seconds[i] = zx_trace_seconds(train, &train->nodes[i], m, &cost);
    }
    s.node_seconds = node_seconds;
    s.start = ZX_NEW(mem, double, p->n_insns);
    s.seconds = ZX_NEW(mem, double, p->n_insns);
    s.event = ZX_NEW(mem, double, p->n_events);
    for (uint32_t i = 0; i < p->n_events; i++) s.event[i] = -1;
    sort_by_stream(&s, mem);
    for (;;) {
        bool moved = false;
        for (uint32_t stream = 0; stream < ZX_STREAM_COUNT; stream++) moved |= advance(&s, stream);
        // Everything stands at the wire or behind it: the launch that is ready first goes next.
        uint32_t best = ZX_NONE;
        for (uint32_t stream = 0; stream < ZX_STREAM_COUNT; stream++) {
            if (s.next[stream] == s.end[stream]) continue;
            const uint32_t i = s.order[s.next[stream]];
            if (!uses_wire(&p->insns[i])) continue;
            if (best == ZX_NONE || s.now[stream] < s.now[p->insns[best].stream]) best = i;
        }
        if (best != ZX_NONE) {
            const double ready = s.now[p->insns[best].stream];
            finish(&s, best, ready > s.wire ? ready : s.wire);
        } else if (!moved)
            break;
    }
    p->start = s.start;
    p->seconds = s.seconds;
    p->step_seconds = 0;
    for (uint32_t stream = 0; stream < ZX_STREAM_COUNT; stream++)
        if (s.now[stream] > p->step_seconds) p->step_seconds = s.now[stream];
    p->compute_seconds = s.computing;
    p->exposed_seconds = s.exposed;
    p->wire_bytes = s.wire_bytes;
}
