// solve_whole.c - further beginnings of the search, for short lines: some units stay for the whole
// step once they are gathered, any other is gathered for the forward pass and for the backward pass
// of every micro-batch.
//
// The list scheduler keeps what is read next for as long as there is room. Where room is short that
// can fill the memory with what stays, so that early gathers find none; what is decided beforehand
// may be faster. A unit that isn't chosen becomes two units here, one a pass. Solutions of such a
// problem are ones of the problem itself, in which a unit that is there isn't gathered again.
// SPDX-License-Identifier: Apache-2.0
#include "sched/solve.h"

#include <string.h>

#define SHORT 128 // steps of the line
#define PARTS 32  // numbers of units that are chosen: so many parts of the bytes, at most

typedef struct halver {
    const zx_problem *p;
    zx_arena *mem;
    uint32_t turn; // the first step of backward: no gradient is made before it
    bool *chosen;
} halver;

static bool pinned(const halver *k, uint32_t unit)
{
    return k->p->pinned != NULL && k->p->pinned[unit];
}

// Whether a unit that needn't stay is read in both passes.
static bool read_twice(const halver *k)
{
    bool *forward = ZX_NEW(k->mem, bool, k->p->n_units + 1);
    for (uint32_t i = 0; i < k->p->n_reads; i++) {
        const zx_read *r = &k->p->reads[i];
        if (r->step < k->turn)
            forward[r->unit] = true;
        else if (forward[r->unit] && !pinned(k, r->unit))
            return true;
    }
    return false;
}

static const uint64_t *twice(const halver *k, const uint64_t *list)
{
    const uint32_t n = k->p->n_units;
    uint64_t *both = ZX_NEW(k->mem, uint64_t, 2 * (size_t)n + 1);
    memcpy(both, list, n * sizeof *both);
    memcpy(both + n, list, n * sizeof *both);
    return both;
}

// Unit u in backward is unit n_units + u, unless it is chosen.
static void halve(const halver *k, zx_problem *out)
{
    const zx_problem *p = k->p;
    const uint32_t n = p->n_units;
    zx_read *reads = ZX_NEW(k->mem, zx_read, p->n_reads + 1);
    bool *stays = ZX_NEW(k->mem, bool, 2 * (size_t)n + 1);
    memcpy(stays, k->chosen, n * sizeof *stays);
    for (uint32_t i = 0; i < p->n_reads; i++) {
        zx_read r = p->reads[i];
        if (!k->chosen[r.unit] && r.step >= k->turn) r.unit += n;
        uint32_t at = i;
        for (; at > 0 && reads[at - 1].step == r.step && reads[at - 1].unit > r.unit; at--)
            reads[at] = reads[at - 1];
        reads[at] = r;
    }
    *out = *p;
    out->n_units = 2 * n;
    out->reads = reads;
    out->pinned = stays;
    out->unit_bytes = twice(k, p->unit_bytes);
    out->unit_wire = twice(k, p->unit_wire);
    out->unit_elements = twice(k, p->unit_elements);
}

// The first units that are read, up to a part of all bytes. False: no more than were chosen before.
static bool choose(const halver *k, uint64_t part)
{
    const zx_problem *p = k->p;
    uint64_t all = 0, bytes = 0;
    bool more = part == 0, *seen = ZX_NEW(k->mem, bool, p->n_units + 1);
    for (uint32_t u = 0; u < p->n_units; u++) all += p->unit_bytes[u];
    for (uint32_t u = 0; u < p->n_units && part == 0; u++) k->chosen[u] = pinned(k, u);
    for (uint32_t i = 0; i < p->n_reads && bytes < all / PARTS * part; i++) {
        const uint32_t u = p->reads[i].unit;
        if (!seen[u]) bytes += p->unit_bytes[u];
        more |= !k->chosen[u];
        seen[u] = k->chosen[u] = true;
    }
    return more;
}

// A solution of the halved problem, as one of the problem: what is there or leaves at that very
// position stays in place of being gathered.
static void join(const halver *k, zx_solution *s)
{
    const uint32_t n = k->p->n_units;
    uint32_t *last = ZX_NEW(k->mem, uint32_t, n + 1), *move = ZX_NEW(k->mem, uint32_t, n + 1);
    uint32_t moves = 0;
    for (uint32_t u = 0; u < n; u++) last[u] = ZX_NONE;
    for (uint32_t i = 0; i < s->n_moves; i++) {
        zx_move x = s->moves[i];
        const uint32_t parts = x.n;
        x.n = 0;
        for (uint32_t a = x.first; a < x.first + parts; a++) {
            zx_part part = s->parts[a];
            if (!x.reduce) {
                const uint32_t u = part.what % n;
                zx_part *was = last[u] != ZX_NONE ? &s->parts[last[u]] : NULL;
                if (was != NULL && was->gone >= x.gate) {
                    if (part.gone > was->gone) was->gone = part.gone;
                    if (move[u] < moves && x.over < s->moves[move[u]].over)
                        s->moves[move[u]].over = x.over;
                    continue;
                }
                part.what = u;
                last[u] = x.first + x.n;
                move[u] = moves;
            }
            s->parts[x.first + x.n++] = part;
        }
        if (x.n > 0) s->moves[moves++] = x;
    }
    s->n_moves = moves;
}

static double price(const zx_problem *p, const zx_solution *s, zx_arena *mem)
{
    zx_price x;
    const zx_mark mark = zx_arena_mark(mem);
    zx_problem_time(p, s, mem, &x);
    zx_arena_rewind(mem, mark);
    return x.seconds;
}

// Solves with what is chosen; true: that is faster than the best so far, which it becomes.
static bool improve(const halver *k, zx_stands *stands, zx_arena *mem, double *best, zx_solution *s)
{
    zx_arena scratch = {0};
    zx_problem half;
    zx_solution x;
    uint64_t least;
    bool better = false;
    halve(k, &half);
    if (zx_solve_stood(&half, stands, 0, &scratch, &x, &least)) {
        join(k, &x);
        const double seconds = price(k->p, &x, &scratch);
        better = seconds < *best;
        if (better) *best = seconds;
        if (better) zx_solution_copy(&x, mem, s);
    }
    zx_arena_free(&scratch);
    return better;
}

bool zx_solve_whole(const zx_problem *p, zx_stands *stands, bool fresh, zx_arena *mem, bool found,
                    zx_solution *s)
{
    zx_arena own = {0};
    halver k = {.p = p, .mem = &own};
    if (zx_problem_end(p) > SHORT || p->n_grads == 0 || p->n_reads == 0) return found;
    k.turn = (uint32_t)p->grads[0].ready - 1;
    k.chosen = ZX_NEW(&own, bool, p->n_units + 1);
    double best = found ? price(p, s, &own) : 1e300;
    const bool twice_read = read_twice(&k);
    for (uint32_t part = 0; part <= PARTS && twice_read; part++) {
        zx_stands half = {.one = true};
        if (!choose(&k, part)) continue;
        if (!fresh && (!stands->halved || part != stands->part)) continue;
        if (!fresh) half = (zx_stands){.n = 1, .one = true, .at = {stands->half}};
        if (!improve(&k, &half, mem, &best, s)) continue;
        found = true;
        if (!fresh) continue;
        stands->halved = half.n > 0;
        stands->part = part;
        stands->half = half.at[0];
    }
    zx_arena_free(&own);
    return found;
}
