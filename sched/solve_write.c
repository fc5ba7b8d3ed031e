// solve_write.c - a solution as a schedule, from which a Plan is emitted.
// SPDX-License-Identifier: Apache-2.0
#include "sched/solve.h"

#include "sched/schedule.h"

void zx_solution_copy(const zx_solution *s, zx_arena *mem, zx_solution *out)
{
    *out = *s;
    out->moves = zx_arena_copy(mem, s->moves, s->n_moves * sizeof *s->moves);
    out->parts = zx_arena_copy(mem, s->parts, s->n_parts * sizeof *s->parts);
}

// Moves are enqueued in the order in which they take the wire, each as early as its gate and those
// before it allow.
void zx_solution_write(const zx_problem *p, const zx_solution *x, zx_schedule *s)
{
    int64_t at = 0, gathered = -1; // gathered: the position of the last gather
    uint32_t *units = ZX_NEW(s->mem, uint32_t, x->n_parts + 1);
    s->one_fifo = true;
    for (uint32_t i = 0; i < x->n_moves; i++) {
        const zx_move *m = &x->moves[i];
        const zx_part *part = &x->parts[m->first];
        if (m->gate > at) at = m->gate;
        for (uint32_t k = 0; k < m->n; k++)
            units[k] = m->reduce ? p->grads[part[k].what].unit : part[k].what;
        if (m->reduce) {
            const uint32_t launch =
                zx_schedule_reduce(s, at, part->micro, units, m->n, false, false);
            s->transfers[launch].late = gathered == s->transfers[launch].at;
            at = s->transfers[launch].at;
            zx_schedule_drain(s, m->over, launch);
            continue;
        }
        const uint32_t launch =
            zx_schedule_gather(s, at, m->gate, units, m->n, false, ZX_PASS_prefetch);
        gathered = at;
        zx_schedule_await(s, m->over, launch);
        for (uint32_t k = 0; k < m->n; k++) zx_schedule_free(s, part[k].gone, units[k]);
    }
    for (uint32_t i = 0; i < s->n_acts; i++)
        if (s->acts[i].kind == ZX_ACT_FREE) s->acts[i].by = ZX_PASS_residency;
}
