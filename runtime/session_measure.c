// session_measure.c - how long things take on this machine with all ranks at work, for the
// simulator: steps of a serial session, and copies and sums between the ranks' reservations.
// Nothing is left out of the steps: without what it gathers a rank would compute with whatever lies
// there, and products of numbers near 0 take many times as long.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "runtime/exec.h"

#define BLOCK_BYTES ((uint64_t)64 << 20) // that a copy or a sum moves at once, where there is room
#define MOST_BYTES (4 * BLOCK_BYTES)     // of each reservation that is used for it
#define LOOP_SECONDS 0.05
#define HANDOFFS 1000 // there and back

typedef struct measuring {
    zx_session *s;
    zx_arena mem;
    uint32_t steps;
    double *took;    // [step][instruction]
    double *norm;    // [step]
    double *scratch; // room for as many samples as there may be of one thing
    uint32_t *first; // by node: its executions are [first[n], first[n + 1]) of `insn`
    uint32_t *insn;
} measuring;

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

static zx_status run_steps(measuring *m, zx_err *err)
{
    zx_session *s = m->s;
    const uint32_t n = s->plan->n_insns;
    const uint64_t each = (uint64_t)s->plan->micro_batches * s->ranks;
    zx_step_report r;
    ZX_TRY(zx_session_step(s, 0, 0, 0, &r, err)); // pages are touched
    for (uint32_t k = 0; k < m->steps; k++) {
        ZX_TRY(zx_session_step(s, k + 1, (k + 1) * each, 0, &r, err));
        memcpy(m->took + (size_t)k * n, s->seconds, n * sizeof *m->took);
        m->norm[k] = s->sum_seconds;
    }
    return ZX_OK;
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

static void sum_up(measuring *m, figures *f)
{
    const zx_plan *p = m->s->plan;
    m->scratch = ZX_NEW(&m->mem, double, (size_t)m->steps *(p->n_insns + 1));
    sort_by_node(m);
    for (uint32_t k = 0; k < m->s->graph->n_nodes; k++) {
        size_t n = 0;
        for (uint32_t i = m->first[k]; i < m->first[k + 1]; i++) n = add_samples(m, m->insn[i], n);
        f->node[k] = median(m->scratch, n);
    }
    for (uint32_t i = 0; i < p->n_insns; i++)
        if (p->insns[i].id == ZX_I_UPDATE)
            f->update[p->insns[i].a] = median(m->scratch, add_samples(m, i, 0));
    *f->norm = median(m->norm, m->steps);
    size_t n = 0;
    for (uint32_t i = 0; i < p->n_insns; i++)
        if (p->insns[i].id == ZX_I_FEED) n = add_samples(m, i, n);
    *f->feed = median(m->scratch, n);
}

// ---- moving bytes -------------------------------------------------------------------------------

// Where bytes are moved: reads begin at 0 of any rank's reservation, writes at `half` of one's own,
// a block at a time, as gathers and reduces do. What a session held there is gone.
typedef struct place {
    uint64_t half, room, block; // bytes; room: of each side that is used
} place;

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_block(const place *p, uint64_t at)
{
    return at + 2 * p->block > p->room ? 0 : at + p->block;
}

static double copy_rate(const zx_session *s, const place *p)
{
    const double from = zx_seconds();
    double took = 0, bytes = 0;
    uint64_t at = 0;
    for (uint32_t k = 1; took < LOOP_SECONDS; k++, at = next_block(p, at)) {
        const uint32_t r = (s->rank + k) % s->ranks;
        memcpy(s->mine + p->half + at, s->base[r] + at, (size_t)p->block);
        bytes += (double)p->block;
        took = zx_seconds() - from;
    }
    return bytes / took;
}

static double sum_rate(const zx_session *s, const place *p, zx_arena *mem)
{
    const float **operand = ZX_NEW(mem, const float *, s->ranks);
    const double from = zx_seconds();
    double took = 0, bytes = 0;
    for (uint64_t at = 0; took < LOOP_SECONDS; at = next_block(p, at)) {
        for (uint32_t r = 0; r < s->ranks; r++)
            operand[r] = (const float *)(const void *)(s->base[r] + at);
        zx_cpu_sum_ranks((float *)(void *)(s->mine + p->half + at), operand, s->ranks,
                         (int64_t)(p->block / sizeof(float)), false, 1);
        bytes += (double)p->block * s->ranks;
        took = zx_seconds() - from;
    }
    return bytes / took;
}

static zx_status measure_rates(measuring *m, figures *f, zx_err *err)
{
    zx_session *s = m->s;
    place p = {.half = s->plan->arena_bytes / 2 / ZX_ALIGN * ZX_ALIGN};
    p.room = least(p.half, MOST_BYTES);
    p.block = least(p.half, BLOCK_BYTES);
    if (p.block == 0) return ZX_OK; // nothing is held, nothing is ever moved
    memset(s->mine + p.half, 0, (size_t)p.room);
    if (!s->transport->barrier(s->comm)) return zx_world_why(s->o.world, err);
    *f->copy = copy_rate(s, &p);
    if (!s->transport->barrier(s->comm)) return zx_world_why(s->o.world, err);
    *f->sum = sum_rate(s, &p, &m->mem);
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

static zx_status measure_handoff(measuring *m, figures *f, zx_err *err)
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
    *f->handoff = (zx_seconds() - from) / (2.0 * HANDOFFS);
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
    *out = (zx_times){.node = zx_arena_copy(mem, slowest.node, n_nodes * sizeof(double)),
                      .update = zx_arena_copy(mem, slowest.update, n_units * sizeof(double)),
                      .norm = *slowest.norm,
                      .feed = *slowest.feed,
                      .copy = copy,
                      .sum = sum,
                      .handoff = handoff};
    return ZX_OK;
}

static zx_status measure(measuring *m, zx_arena *mem, zx_times *out, zx_err *err)
{
    const zx_session *s = m->s;
    const uint32_t n_nodes = s->graph->n_nodes, n_units = s->plan->n_units;
    m->took = ZX_NEW(&m->mem, double, (size_t)m->steps *(s->plan->n_insns + 1));
    m->norm = ZX_NEW(&m->mem, double, m->steps);
    figures f =
        figures_in(ZX_NEW(&m->mem, double, (size_t)n_nodes + n_units + 5), n_nodes, n_units);
    ZX_TRY(run_steps(m, err));
    sum_up(m, &f);
    ZX_TRY(measure_rates(m, &f, err));
    ZX_TRY(measure_handoff(m, &f, err));
    return choose(m, &f, mem, out, err);
}

zx_status zx_session_measure(const zx_graph *train, const zx_plan *plan,
                             const zx_session_options *o, uint32_t steps, zx_arena *mem,
                             zx_times *out, zx_err *err)
{
    zx_session_options mine = *o;
    measuring m = {.steps = steps > 0 ? steps : 1};
    mine.bandwidth = mine.latency_seconds = 0;
    mine.poison = mine.dump_grads = false;
    mine.serial = mine.profile = true;
    *out = (zx_times){0};
    zx_status st = zx_session_open(train, plan, &mine, &m.s, err);
    if (st == ZX_OK) st = measure(&m, mem, out, err);
    zx_session_close(m.s);
    zx_arena_free(&m.mem);
    return st;
}
