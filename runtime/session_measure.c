// session_measure.c - how long things take on this machine with all ranks at work, for the
// simulator: steps of a serial session, and copies and sums out of the ranks' reservations.
// Nothing is left out of the steps: without what it gathers a rank would compute with whatever lies
// there, and products of numbers near 0 take many times as long.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "runtime/exec.h"

#define LEAST_BLOCK ((uint64_t)4 << 10) // bytes that a copy or a sum moves at once
#define MOST_BLOCK ((uint64_t)64 << 20)
#define HANDOFFS 1000   // there and back
#define MOST_TURNS 1000 // that are kept

struct zx_measuring {
    zx_session *s;
    zx_arena mem;
    uint64_t step;        // counts
    uint32_t steps;       // turns that are kept
    uint32_t most;        // of them
    double *took;         // [step][instruction]
    double *norm;         // [step]
    double *copy;         // [step] bytes a second
    double *sum;          // [step]
    double *handoff;      // [step] seconds
    uint64_t half, block; // bytes that are moved a turn, and at once; half: 0 where nothing ever is
    unsigned char *to;    // `half` bytes, in room
    zx_arena room;
    const float **operand;
    double *scratch; // room for as many samples as there may be of one thing
    uint32_t *first; // by node: its executions are [first[n], first[n + 1]) of `insn`
    uint32_t *insn;
};
typedef zx_measuring measuring;

// A rank's figures as one block of doubles, which the ranks exchange.
typedef struct figures {
    double *all, *node, *update, *norm, *feed, *copy, *sum, *handoff;
    size_t n;
} figures;

static figures figures_in(double *at, uint32_t n_nodes, uint32_t n_units)
{
    figures f = {.all = at, .node = at, .n = (size_t)n_nodes + n_units + 5};
    f.update = at + n_nodes;
    f.norm = f.update + n_units;
    f.feed = f.norm + 1;
    f.copy = f.norm + 2;
    f.sum = f.norm + 3;
    f.handoff = f.norm + 4;
    return f;
}

static zx_times times_of(figures f)
{
    return (zx_times){.node = f.node,
                      .update = f.update,
                      .norm = *f.norm,
                      .feed = *f.feed,
                      .copy = *f.copy,
                      .sum = *f.sum,
                      .handoff = *f.handoff};
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *x, size_t n)
{
    if (n == 0) return 0;
    qsort(x, n, sizeof *x, by_value);
    return n % 2 == 1 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

// ---- steps --------------------------------------------------------------------------------------

static zx_status run_step(measuring *m, zx_err *err)
{
    zx_session *s = m->s;
    const uint64_t each = (uint64_t)s->plan->micro_batches * s->ranks;
    zx_step_report r;
    ZX_TRY(zx_session_step(s, m->step, m->step * each, 0, &r, err));
    m->step++;
    return ZX_OK;
}

static void keep_step(measuring *m)
{
    const uint32_t n = m->s->plan->n_insns;
    memcpy(m->took + (size_t)m->steps * n, m->s->seconds, n * sizeof *m->took);
    m->norm[m->steps] = m->s->sum_seconds;
}

// ---- what they say ------------------------------------------------------------------------------

static void sort_by_node(measuring *m)
{
    const zx_plan *p = m->s->plan;
    const uint32_t n_nodes = m->s->graph->n_nodes;
    m->first = ZX_NEW(&m->mem, uint32_t, n_nodes + 2);
    m->insn = ZX_NEW(&m->mem, uint32_t, p->n_insns + 1);
    for (uint32_t i = 0; i < p->n_insns; i++)
        if (p->insns[i].id == ZX_I_EXEC) m->first[p->steps[p->insns[i].a].node + 2]++;
    for (uint32_t k = 2; k <= n_nodes + 1; k++) m->first[k] += m->first[k - 1];
    for (uint32_t i = 0; i < p->n_insns; i++)
        if (p->insns[i].id == ZX_I_EXEC) m->insn[m->first[p->steps[p->insns[i].a].node + 1]++] = i;
}

static size_t add_samples(const measuring *m, uint32_t insn, size_t n)
{
    for (uint32_t k = 0; k < m->steps; k++)
        m->scratch[n++] = m->took[(size_t)k * m->s->plan->n_insns + insn];
    return n;
}

// A step is as long as the sum of its parts, but the median of sums is more than the sum of
// medians: what delays an instruction now and then counts in every step. And it is over when the
// slowest rank is done, which isn't always the same one. So the medians say how instructions
// compare, and the steps of the slowest ranks how long they are.
static zx_status scale_to_steps(measuring *m, figures *f, zx_err *err)
{
    const zx_plan *p = m->s->plan;
    const uint32_t ranks = m->s->ranks;
    double sum = 0, *all = ZX_NEW(&m->mem, double, (size_t)m->steps *ranks + 1);
    for (uint32_t k = 0; k < m->steps; k++) {
        m->scratch[k] = 0;
        for (uint32_t i = 0; i < p->n_insns; i++)
            if (p->insns[i].id == ZX_I_EXEC || p->insns[i].id == ZX_I_UPDATE)
                m->scratch[k] += m->took[(size_t)k * p->n_insns + i];
    }
    ZX_TRY(zx_world_exchange(m->s->o.world, m->scratch, m->steps * sizeof *all, all, err));
    for (uint32_t k = 0; k < m->steps; k++)
        for (uint32_t r = 0; r < ranks; r++)
            if (all[(size_t)r * m->steps + k] > m->scratch[k])
                m->scratch[k] = all[(size_t)r * m->steps + k];
    for (uint32_t i = 0; i < p->n_insns; i++)
        if (p->insns[i].id == ZX_I_EXEC)
            sum += f->node[p->steps[p->insns[i].a].node];
        else if (p->insns[i].id == ZX_I_UPDATE)
            sum += f->update[p->insns[i].a];
    const double scale = sum > 0 ? median(m->scratch, m->steps) / sum : 1;
    for (uint32_t k = 0; k < m->s->graph->n_nodes; k++) f->node[k] *= scale;
    for (uint32_t u = 0; u < p->n_units; u++) f->update[u] *= scale;
    return ZX_OK;
}

static zx_status sum_up(measuring *m, figures *f, zx_err *err)
{
    const zx_plan *p = m->s->plan;
    for (uint32_t k = 0; k < m->s->graph->n_nodes; k++) {
        size_t n = 0;
        for (uint32_t i = m->first[k]; i < m->first[k + 1]; i++) n = add_samples(m, m->insn[i], n);
        f->node[k] = median(m->scratch, n);
    }
    for (uint32_t i = 0; i < p->n_insns; i++)
        if (p->insns[i].id == ZX_I_UPDATE)
            f->update[p->insns[i].a] = median(m->scratch, add_samples(m, i, 0));
    *f->norm = median(m->norm, m->steps);
    *f->copy = median(m->copy, m->steps);
    *f->sum = median(m->sum, m->steps);
    *f->handoff = median(m->handoff, m->steps);
    size_t n = 0;
    for (uint32_t i = 0; i < p->n_insns; i++)
        if (p->insns[i].id == ZX_I_FEED) n = add_samples(m, i, n);
    *f->feed = median(m->scratch, n);
    return scale_to_steps(m, f, err);
}

// The turn k by itself; a node that runs several times a step: their mean.
static void of_turn(const measuring *m, uint32_t k, figures *f)
{
    const zx_plan *p = m->s->plan;
    const double *took = m->took + (size_t)k * p->n_insns;
    uint32_t fed = 0;
    memset(f->all, 0, f->n * sizeof *f->all);
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        if (in->id == ZX_I_EXEC) {
            const uint32_t node = p->steps[in->a].node;
            f->node[node] += took[i] / (m->first[node + 1] - m->first[node]);
        } else if (in->id == ZX_I_UPDATE) {
            f->update[in->a] = took[i];
        } else if (in->id == ZX_I_FEED) {
            *f->feed += took[i];
            fed++;
        }
    }
    if (fed > 0) *f->feed /= fed;
    *f->norm = m->norm[k];
    *f->copy = m->copy[k];
    *f->sum = m->sum[k];
    *f->handoff = m->handoff[k];
}

// ---- moving bytes -------------------------------------------------------------------------------

// Half of what a rank has reserved, once a turn: out of all ranks' reservations in turn, as gathers
// and reduces read, into memory of its own, so that the next step finds what the last one left. A
// block is as large as a shard, so that a copy is the same code (large ones pass the cache by) and
// nothing lies in a cache that wouldn't in a step.

// The size of shard that most bytes lie in.
static uint64_t shard_bytes(const zx_plan *p)
{
    double bytes = 0, squares = 0;
    for (uint32_t u = 0; u < p->n_units; u++) {
        const double x = (double)p->units[u].shard * p->units[u].param_bytes;
        bytes += x;
        squares += x * x;
    }
    return bytes > 0 ? (uint64_t)(squares / bytes) : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static double copy_rate(const measuring *m)
{
    const zx_session *s = m->s;
    const double from = zx_seconds();
    uint64_t at = 0;
    for (uint32_t k = 1; at + m->block <= m->half; k++, at += m->block)
        memcpy(m->to + at, s->base[(s->rank + k) % s->ranks] + at, (size_t)m->block);
    const double took = zx_seconds() - from;
    return took > 0 ? (double)at / took : 0;
}

static double sum_rate(const measuring *m)
{
    const zx_session *s = m->s;
    const double from = zx_seconds();
    uint64_t at = 0;
    for (; at + m->block <= m->half; at += m->block) {
        for (uint32_t r = 0; r < s->ranks; r++)
            m->operand[r] = (const float *)(const void *)(s->base[r] + at);
        zx_cpu_sum_ranks((float *)(void *)(m->to + at), m->operand, s->ranks,
                         (int64_t)(m->block / sizeof(float)), false, 1);
    }
    const double took = zx_seconds() - from;
    return took > 0 ? (double)at * s->ranks / took : 0;
}

static zx_status move_bytes(measuring *m, bool kept, zx_err *err)
{
    const zx_session *s = m->s;
    if (m->half == 0) return ZX_OK; // nothing is held, nothing is ever moved
    // Not before: until then what a session before this one had is still there.
    if (m->to == NULL) m->to = zx_arena_alloc(&m->room, (size_t)m->half + 1, 1, ZX_ALIGN);
    if (!s->transport->barrier(s->comm)) return zx_world_why(s->o.world, err);
    const double copy = copy_rate(m);
    if (!s->transport->barrier(s->comm)) return zx_world_why(s->o.world, err);
    const double sum = sum_rate(m);
    if (!kept) return ZX_OK;
    m->copy[m->steps] = copy;
    m->sum[m->steps] = sum;
    return ZX_OK;
}

// ---- waking -------------------------------------------------------------------------------------

typedef struct ping { // two threads that wake each other in turn
    zx_word there, back;
    const zx_patience *own;
} ping;

static void *answer(void *arg)
{
    ping *p = arg;
    for (uint32_t i = 1; i <= HANDOFFS; i++) {
        zx_word_wait(&p->there, i, p->own, ZX_NO_PEER);
        zx_word_set(&p->back, i);
    }
    return NULL;
}

static zx_status hand_off(measuring *m, bool kept, zx_err *err)
{
    zx_session *s = m->s;
    ping p = {.own = &s->own};
    pthread_t thread;
    if (!s->transport->barrier(s->comm)) return zx_world_why(s->o.world, err);
    if (pthread_create(&thread, NULL, answer, &p) != 0) return ZX_OK; // not known: counts as none
    const double from = zx_seconds();
    for (uint32_t i = 1; i <= HANDOFFS; i++) {
        zx_word_set(&p.there, i);
        zx_word_wait(&p.back, i, p.own, ZX_NO_PEER);
    }
    if (kept) m->handoff[m->steps] = (zx_seconds() - from) / (2.0 * HANDOFFS);
    pthread_join(thread, NULL);
    return ZX_OK;
}

// ---- all ranks ----------------------------------------------------------------------------------

static double total_of(const figures *f, const zx_plan *p, const zx_graph *g)
{
    double t = *f->norm;
    for (uint32_t k = 0; k < g->n_nodes; k++) t += f->node[k] * p->micro_batches;
    for (uint32_t u = 0; u < p->n_units; u++) t += f->update[u];
    return t;
}

// The others wait for the slowest rank; its figures are of one piece. The least rates.
static zx_status choose(measuring *m, const figures *mine, zx_arena *mem, zx_times *out,
                        zx_err *err)
{
    const zx_session *s = m->s;
    const uint32_t n_nodes = s->graph->n_nodes, n_units = s->plan->n_units;
    double *all = ZX_NEW(&m->mem, double, mine->n * s->ranks);
    ZX_TRY(zx_world_exchange(s->o.world, mine->all, mine->n * sizeof *all, all, err));
    figures slowest = figures_in(all, n_nodes, n_units);
    double copy = *slowest.copy, sum = *slowest.sum, most = total_of(&slowest, s->plan, s->graph);
    double handoff = *slowest.handoff / s->ranks;
    for (uint32_t r = 1; r < s->ranks; r++) {
        const figures f = figures_in(all + r * mine->n, n_nodes, n_units);
        const double total = total_of(&f, s->plan, s->graph);
        if (*f.copy < copy) copy = *f.copy;
        if (*f.sum < sum) sum = *f.sum;
        handoff += *f.handoff / s->ranks;
        if (total <= most) continue;
        most = total;
        slowest = f;
    }
    *out = times_of(slowest);
    out->node = zx_arena_copy(mem, slowest.node, n_nodes * sizeof(double));
    out->update = zx_arena_copy(mem, slowest.update, n_units * sizeof(double));
    out->copy = copy;
    out->sum = sum;
    out->handoff = handoff;
    return ZX_OK;
}

static zx_status medians(measuring *m, const figures *mine, zx_arena *mem, zx_times *out,
                         zx_err *err)
{
    const zx_session *s = m->s;
    const uint32_t n_nodes = s->graph->n_nodes, n_units = s->plan->n_units;
    double *all = ZX_NEW(&m->mem, double, mine->n * s->ranks);
    double *x = ZX_NEW(&m->mem, double, s->ranks);
    ZX_TRY(zx_world_exchange(s->o.world, mine->all, mine->n * sizeof *all, all, err));
    const figures f = figures_in(ZX_NEW(mem, double, mine->n), n_nodes, n_units);
    for (size_t i = 0; i < f.n; i++) {
        for (uint32_t r = 0; r < s->ranks; r++) x[r] = all[r * f.n + i];
        f.all[i] = median(x, s->ranks);
    }
    *out = times_of(f);
    return ZX_OK;
}

static void make_room(measuring *m)
{
    const zx_plan *p = m->s->plan;
    m->took = ZX_NEW(&m->mem, double, (size_t)m->most *(p->n_insns + 1));
    m->scratch = ZX_NEW(&m->mem, double, (size_t)m->most *(p->n_insns + 1));
    m->norm = ZX_NEW(&m->mem, double, m->most);
    m->copy = ZX_NEW(&m->mem, double, m->most);
    m->sum = ZX_NEW(&m->mem, double, m->most);
    m->handoff = ZX_NEW(&m->mem, double, m->most);
    m->operand = ZX_NEW(&m->mem, const float *, m->s->ranks);
    m->half = p->arena_bytes / 2;
    if (m->s->o.from != NULL) m->half = least(m->half, p->held_bytes); // as much as the switch took
    m->half = m->half / ZX_ALIGN * ZX_ALIGN;
    m->block = shard_bytes(p) / ZX_ALIGN * ZX_ALIGN;
    if (m->block < LEAST_BLOCK) m->block = LEAST_BLOCK;
    m->block = least(m->half, least(m->block, MOST_BLOCK));
    sort_by_node(m);
}

zx_status zx_measuring_open(const zx_graph *train, const zx_plan *plan, const zx_session_options *o,
                            uint32_t turns, zx_measuring **out, zx_err *err)
{
    zx_session_options mine = *o;
    measuring *m = *out = calloc(1, sizeof *m);
    ZX_ASSERT(m != NULL);
    m->most = turns == 0 ? 1 : turns < MOST_TURNS ? turns : MOST_TURNS;
    mine.bandwidth = mine.latency_seconds = 0;
    mine.poison = false;
    mine.serial = mine.profile = true;
    const zx_status st = zx_session_open(train, plan, &mine, &m->s, err);
    if (st == ZX_OK) make_room(m);
    return st;
}

zx_session *zx_measuring_session(zx_measuring *m)
{
    return m->s;
}

zx_status zx_measuring_turn(zx_measuring *m, bool kept, zx_err *err)
{
    ZX_TRY(run_step(m, err));
    return zx_measuring_note(m, kept, err);
}

zx_status zx_measuring_note(zx_measuring *m, bool kept, zx_err *err)
{
    kept = kept && m->steps < m->most;
    if (kept) keep_step(m);
    ZX_TRY(move_bytes(m, kept, err));
    ZX_TRY(hand_off(m, kept, err));
    if (!m->s->transport->barrier(m->s->comm)) return zx_world_why(m->s->o.world, err);
    m->steps += kept;
    return ZX_OK;
}

static figures no_figures(measuring *m)
{
    const uint32_t n_nodes = m->s->graph->n_nodes, n_units = m->s->plan->n_units;
    return figures_in(ZX_NEW(&m->mem, double, (size_t)n_nodes + n_units + 5), n_nodes, n_units);
}

zx_status zx_measuring_times(zx_measuring *m, zx_arena *mem, zx_times *out, zx_err *err)
{
    figures f = no_figures(m);
    ZX_TRY(sum_up(m, &f, err));
    return choose(m, &f, mem, out, err);
}

zx_status zx_measuring_medians(zx_measuring *m, zx_arena *mem, zx_times *out, zx_err *err)
{
    figures f = no_figures(m);
    zx_arena_free(&m->room); // the session that comes next needs it
    m->half = 0;
    ZX_TRY(sum_up(m, &f, err));
    return medians(m, &f, mem, out, err);
}

zx_status zx_measuring_turns(zx_measuring *m, zx_arena *mem, const zx_times **out, uint32_t *turns,
                             zx_err *err)
{
    const uint32_t ranks = m->s->ranks, n_nodes = m->s->graph->n_nodes;
    figures mine = no_figures(m);
    zx_times *times = ZX_NEW(mem, zx_times, (size_t)m->steps * ranks + 1);
    for (uint32_t k = 0; k < m->steps; k++) {
        double *all = ZX_NEW(mem, double, mine.n *ranks);
        of_turn(m, k, &mine);
        ZX_TRY(zx_world_exchange(m->s->o.world, mine.all, mine.n * sizeof *all, all, err));
        for (uint32_t r = 0; r < ranks; r++)
            times[(size_t)k * ranks + r] =
                times_of(figures_in(all + r * mine.n, n_nodes, m->s->plan->n_units));
    }
    *out = times;
    *turns = m->steps;
    return ZX_OK;
}

void zx_measuring_close(zx_measuring *m)
{
    if (m == NULL) return;
    zx_session_close(m->s);
    zx_arena_free(&m->room);
    zx_arena_free(&m->mem);
    free(m);
}

zx_status zx_session_measure(const zx_graph *train, const zx_plan *plan,
                             const zx_session_options *o, uint32_t steps, zx_arena *mem,
                             zx_times *out, zx_err *err)
{
    zx_measuring *m = NULL;
    *out = (zx_times){0};
    zx_status st = zx_measuring_open(train, plan, o, steps, &m, err);
    if (st == ZX_OK) st = zx_measuring_turn(m, false, err); // pages are touched
    for (uint32_t k = 0; k < steps && st == ZX_OK; k++) st = zx_measuring_turn(m, true, err);
    if (st == ZX_OK) st = zx_measuring_times(m, mem, out, err);
    zx_measuring_close(m);
    return st;
}
