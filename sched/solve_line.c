// solve_line.c - what the list scheduler's runs on a line have in common.
// SPDX-License-Identifier: Apache-2.0
#include "sched/solve.h"

// What stays for the rest of the step is there at every step from its first read on; of several
// micro-batches, in all but the first at every step.
static void need_pinned(zx_line *l)
{
    const zx_problem *p = l->p;
    bool *seen = ZX_NEW(l->mem, bool, p->n_units + 1);
    for (uint32_t i = 0; i < p->n_reads; i++) {
        const zx_read *r = &p->reads[i];
        if (!p->pinned[r->unit] || seen[r->unit]) continue;
        seen[r->unit] = true;
        for (uint32_t q = p->micro_batches > 1 ? 0 : r->step; q < p->n_steps; q++)
            l->need[q] += p->unit_bytes[r->unit];
    }
}

void zx_line_make(zx_line *l, const zx_problem *p, zx_arena *mem)
{
    *l = (zx_line){.p = p, .mem = mem};
    l->at = zx_line_sums(p, mem);
    l->need = ZX_NEW(mem, uint64_t, p->n_steps + 1);
    l->next = ZX_NEW(mem, uint32_t, p->n_reads + 1);
    uint32_t *after = ZX_NEW(mem, uint32_t, p->n_units + 1);
    for (uint32_t u = 0; u < p->n_units; u++) after[u] = ZX_NONE;
    for (int round = 0; round < 2; round++)
        for (uint32_t i = p->n_reads; i-- > 0;) {
            l->next[i] = after[p->reads[i].unit];
            after[p->reads[i].unit] = i;
        }
    for (uint32_t i = 0; i < p->n_reads; i++)
        if (p->pinned == NULL || !p->pinned[p->reads[i].unit])
            l->need[p->reads[i].step] += p->unit_bytes[p->reads[i].unit];
    if (p->pinned != NULL) need_pinned(l);
    for (uint32_t q = 0; q < p->n_steps; q++)
        if (p->base[q] + l->need[q] > l->least) l->least = p->base[q] + l->need[q];
}
