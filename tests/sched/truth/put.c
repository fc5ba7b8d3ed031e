// put.c - a tiny problem and a solution of it, to be read.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>

#include "tests/sched/truth/truth.h"

static double kib(uint64_t bytes)
{
    return (double)bytes / 1024;
}

static void put_machine(const zx_problem *p, zx_text *out)
{
    const zx_machine *m = &p->machine;
    if (m->wire > 0)
        zx_text_put(out, "link %.4g GB/s, %.4g ms", m->wire / 1e9, m->latency * 1e3);
    else
        zx_text_put(out, "tables, interference %.3g", m->interference);
    if (m->cores > 0)
        zx_text_put(out, "; %g cores, %u threads, copy %.4g GB/s, sum %.4g GB/s", m->cores,
                    m->threads, m->copy / 1e9, m->sum / 1e9);
    zx_text_put(out, "; %u ranks", p->ranks);
}

void truth_put_problem(const zx_problem *p, zx_text *out)
{
    zx_text_put(out, "  ");
    put_machine(p, out);
    zx_text_put(out, "; %u steps, %u micro-batches; limit %.3f KiB, least %.3f\n", p->n_steps,
                p->micro_batches, kib(p->limit), kib(truth_least(p)));
    for (uint32_t t = 0; t < p->n_steps; t++) {
        zx_text_put(out, "  step %u: %.4f ms, %.3f KiB, reads", t, p->seconds[t] * 1e3,
                    kib(p->base[t]));
        for (uint32_t r = p->read_at[t]; r < p->read_at[t + 1]; r++)
            zx_text_put(out, " %u", p->reads[r].unit);
        zx_text_put(out, "\n");
    }
    for (uint32_t u = 0; u < p->n_units; u++)
        zx_text_put(out, "  unit %u: %.3f KiB, gather %.4f ms, reduce %.4f ms\n", u,
                    kib(p->unit_bytes[u]),
                    zx_gather_seconds(&p->machine, p->ranks, p->unit_wire[u]) * 1e3,
                    zx_reduce_seconds(&p->machine, p->ranks, p->unit_wire[u]) * 1e3);
    for (uint32_t g = 0; g < p->n_grads; g++) {
        const zx_grad *x = &p->grads[g];
        zx_text_put(out,
                    "  gradient %u of unit %u: ready %" PRId64 ", spare %" PRId64
                    ", latest %" PRId64 ", %.3f KiB, storage %d\n",
                    g, x->unit, x->ready, x->spare, x->latest, kib(x->bytes), (int)x->storage);
    }
}

void truth_put_solution(const zx_problem *p, const zx_solution *s, zx_text *out)
{
    for (uint32_t i = 0; i < s->n_moves; i++) {
        const zx_move *x = &s->moves[i];
        zx_text_put(out, "    %s from %" PRId64 ", over %" PRId64 ":",
                    x->reduce ? "reduce" : "gather", x->gate, x->over);
        for (uint32_t k = x->first; k < x->first + x->n; k++) {
            const zx_part *a = &s->parts[k];
            if (!x->reduce)
                zx_text_put(out, " unit %u (gone %" PRId64 ")", a->what, a->gone);
            else
                zx_text_put(out, " gradient %u%s", a->what,
                            p->micro_batches < 2 ? ""
                            : a->micro == 0      ? " of micro-batch 0"
                                                 : " of micro-batch 1");
        }
        zx_text_put(out, "\n");
    }
}
