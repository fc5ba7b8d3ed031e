// rules.c - the rules of problem.h, checked one by one without what the planner has for it.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>

#include "tests/sched/truth/truth.h"

typedef struct judge {
    const zx_problem *p;
    const zx_solution *s;
    zx_arena *mem;
    const char *why;
    int64_t end;
} judge;

#define BROKEN(j, ...)                                                                             \
    do {                                                                                           \
        if ((j)->why == NULL) (j)->why = zx_arena_printf((j)->mem, __VA_ARGS__);                   \
    } while (0)

static const zx_part *part_of(const judge *j, const zx_move *x, uint32_t i)
{
    return &j->s->parts[x->first + i];
}

// The position in the line of one in the circle.
static int64_t in_line(const judge *j, const zx_part *a, int64_t at)
{
    const int64_t in = at + (int64_t)a->micro * j->p->n_steps;
    return in < j->end ? in : j->end;
}

static void check_gather(judge *j, uint32_t i)
{
    const zx_move *x = &j->s->moves[i];
    if (x->over >= j->end) BROKEN(j, "gather %u is over when nothing is left", i);
    if (j->p->no_overlap && x->gate != x->over) BROKEN(j, "gather %u overlaps", i);
    for (uint32_t k = 0; k < x->n; k++) {
        const zx_part *a = part_of(j, x, k);
        if (a->what >= j->p->n_units) BROKEN(j, "gather %u: no unit %u", i, a->what);
        if (a->gone <= x->over || a->gone > j->end)
            BROKEN(j, "gather %u: unit %u is gone at %" PRId64, i, a->what, a->gone);
        if (j->why == NULL && j->p->pinned != NULL && j->p->pinned[a->what] && a->gone != j->end)
            BROKEN(j, "gather %u: unit %u is pinned", i, a->what);
    }
}

static void check_reduce(judge *j, uint32_t i)
{
    const zx_move *x = &j->s->moves[i];
    uint64_t elements = 0;
    if (j->p->no_overlap && x->gate != x->over) BROKEN(j, "reduce %u overlaps", i);
    for (uint32_t k = 0; k < x->n; k++) {
        const zx_part *a = part_of(j, x, k);
        if (a->what >= j->p->n_grads || a->micro >= j->p->micro_batches) {
            BROKEN(j, "reduce %u: no gradient %u.%u", i, a->what, a->micro);
            return;
        }
        const zx_grad *g = &j->p->grads[a->what];
        elements += j->p->unit_elements[g->unit];
        if (a->micro != part_of(j, x, 0)->micro) BROKEN(j, "reduce %u: two micro-batches", i);
        if (x->gate < in_line(j, a, g->ready)) BROKEN(j, "reduce %u goes too early", i);
        if (x->over > in_line(j, a, g->latest)) BROKEN(j, "reduce %u is over too late", i);
    }
    if (j->p->max_reduce > 0 && x->n > 1 && elements > j->p->max_reduce)
        BROKEN(j, "reduce %u is too large", i);
}

static void check_moves(judge *j)
{
    uint32_t *owners = ZX_NEW(j->mem, uint32_t, j->s->n_parts + 1);
    for (uint32_t i = 0; i < j->s->n_moves && j->why == NULL; i++) {
        const zx_move *x = &j->s->moves[i];
        if (x->n == 0 || x->first > j->s->n_parts || x->n > j->s->n_parts - x->first) {
            BROKEN(j, "launch %u has no parts", i);
            return;
        }
        if (x->gate < 0 || x->gate > x->over || x->over > j->end)
            BROKEN(j, "launch %u: gate %" PRId64 ", over %" PRId64, i, x->gate, x->over);
        for (uint32_t k = 0; k < x->n; k++)
            if (owners[x->first + k]++ > 0) BROKEN(j, "launch %u shares parts", i);
        if (x->reduce)
            check_reduce(j, i);
        else
            check_gather(j, i);
    }
}

static void check_reads(judge *j)
{
    for (int64_t q = 0; q < j->end; q++)
        for (uint32_t r = 0; r < j->p->n_reads; r++) {
            if (j->p->reads[r].step != q % j->p->n_steps) continue;
            bool whole = false;
            for (uint32_t i = 0; i < j->s->n_moves; i++) {
                const zx_move *x = &j->s->moves[i];
                for (uint32_t k = 0; k < x->n && !x->reduce; k++)
                    whole |= part_of(j, x, k)->what == j->p->reads[r].unit && x->over <= q &&
                             part_of(j, x, k)->gone > q;
            }
            if (!whole) BROKEN(j, "step %" PRId64 " doesn't find unit %u", q, j->p->reads[r].unit);
        }
}

// Each once in every micro-batch, and in their order.
static void check_gradients(judge *j)
{
    for (uint32_t g = 0; g < j->p->n_grads; g++) {
        uint32_t next = 0;
        for (uint32_t i = 0; i < j->s->n_moves; i++)
            for (uint32_t k = 0; k < j->s->moves[i].n && j->s->moves[i].reduce; k++) {
                const zx_part *a = part_of(j, &j->s->moves[i], k);
                if (a->what == g && a->micro != next++)
                    BROKEN(j, "gradient %u: micro-batch %u isn't next", g, a->micro);
            }
        if (next != j->p->micro_batches) BROKEN(j, "gradient %u is reduced %u times", g, next);
    }
}

static uint64_t gradient_bytes(const judge *j, int64_t q)
{
    uint64_t bytes = 0;
    const zx_grad *counted[TRUTH_PARTS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->s->n_moves; i++)
        for (uint32_t k = 0; k < j->s->moves[i].n && j->s->moves[i].reduce; k++) {
            const zx_part *a = part_of(j, &j->s->moves[i], k);
            const zx_grad *g = &j->p->grads[a->what];
            if (q < in_line(j, a, g->spare) || q >= j->s->moves[i].over) continue;
            bool again = false;
            for (uint32_t c = 0; c < n; c++)
                again |= g->storage != ZX_NONE && counted[c]->storage == g->storage;
            if (again) continue;
            counted[n++] = g;
            bytes += g->bytes;
        }
    return bytes;
}

static void check_memory(judge *j)
{
    for (int64_t q = 0; q < j->end; q++) {
        uint64_t bytes = j->p->base[q % j->p->n_steps] + gradient_bytes(j, q), elements = 0;
        for (uint32_t i = 0; i < j->s->n_moves; i++)
            for (uint32_t k = 0; k < j->s->moves[i].n && !j->s->moves[i].reduce; k++) {
                const zx_part *a = part_of(j, &j->s->moves[i], k);
                if (q < j->s->moves[i].gate || q >= a->gone) continue;
                bytes += j->p->unit_bytes[a->what];
                elements += j->p->unit_elements[a->what];
            }
        if (bytes > j->p->limit) BROKEN(j, "%" PRIu64 " bytes at step %" PRId64, bytes, q);
        if (j->p->max_live > 0 && elements > j->p->max_live)
            BROKEN(j, "%" PRIu64 " elements at step %" PRId64, elements, q);
    }
}

// A launch waits for all before it, each of which waits until compute comes to its gate. So compute
// must not wait for it before that: at the same position it has come, but its reduces it waits for
// before gathers may go.
static void check_circles(judge *j)
{
    for (uint32_t y = 0; y < j->s->n_moves; y++)
        for (uint32_t x = 0; x <= y; x++) {
            const zx_move *a = &j->s->moves[x], *b = &j->s->moves[y];
            if (a->gate > b->over || (a->gate == b->over && b->reduce && !a->reduce))
                BROKEN(j, "compute waits for launch %u, that for %u, that for compute", y, x);
        }
}

const char *truth_wrong(const zx_problem *p, const zx_solution *s, zx_arena *mem)
{
    judge j = {p, s, mem, NULL, zx_problem_end(p)};
    check_moves(&j);
    if (j.why == NULL) check_reads(&j);
    if (j.why == NULL) check_gradients(&j);
    if (j.why == NULL) check_memory(&j);
    if (j.why == NULL) check_circles(&j);
    return j.why;
}
