// place_grid.c - what makes spans easier to lay beside each other: a grid.
//
// Units of a model have a few sizes, mostly multiples of each other. But for a norm's weight
// between them, or a vocabulary that no power of two divides, what one leaves another could fill.
// So sizes are made multiples of the largest grid that costs next to nothing, and the smallest
// spans lie apart.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "sched/place_parts.h"

#define PARTS 4  // of a size, that a grid may be
#define TRIES 64 // grids
#define ROOM 100 // at most a hundredth of the load is given away,
#define APART 6  // a sixth of it by what lies apart,
#define ROUND 2  // half of it by sizes that grow
#define GROWN 20 // sizes that grow by a twentieth altogether aren't even tried

uint64_t zx_placing_load(const zx_span *spans, uint32_t n, zx_place_line line, uint64_t grid,
                         int64_t *change)
{
    const int64_t micros = line.micro_batches, end = line.n_steps * micros;
    memset(change, 0, ((size_t)end + 1) * sizeof *change);
    for (uint32_t i = 0; i < n; i++) {
        const zx_span *x = &spans[i];
        const int64_t round = line.n_steps * (x->repeat == 0 ? (int64_t)1 : line.period);
        const int64_t bytes = (int64_t)((x->bytes + grid - 1) / grid * grid);
        const int64_t first = x->repeat > 0 ? 0 : -micros - 1;
        const int64_t last = x->repeat > 0 ? x->repeat - (int64_t)1 : 2 * micros;
        int64_t was = 0; // what comes back before it has gone is there once
        for (int64_t m = first; m <= last; m++) {
            int64_t from = x->from + m * round, to = (x->to < x->from ? x->from : x->to) + 1;
            to += m * round;
            if (from < was) from = was;
            if (to > end) to = end;
            if (to <= from) continue;
            change[from] += bytes;
            change[to] -= bytes;
            was = to;
        }
    }
    int64_t now = 0, most = 0;
    for (int64_t t = 0; t < end; t++) {
        now += change[t];
        if (now > most) most = now;
    }
    return (uint64_t)most;
}

static int by_bytes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

// Different sizes, the smallest first; returns how many.
static uint32_t list_sizes(const zx_span *spans, uint32_t n, uint64_t *sizes)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) sizes[i] = zx_align_up(spans[i].bytes, ZX_ALIGN);
    qsort(sizes, n, sizeof *sizes, by_bytes);
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || sizes[i] != sizes[kept - 1]) sizes[kept++] = sizes[i];
    return kept;
}

// The largest size such that all spans up to it take at most `room`.
static uint64_t find_small(const zx_span *spans, uint32_t n, zx_place_line line,
                           const uint64_t *sizes, uint32_t n_sizes, uint64_t room, zx_span *some,
                           int64_t *change)
{
    uint32_t lo = 0, hi = n_sizes; // sizes below lo do
    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        uint32_t k = 0;
        for (uint32_t i = 0; i < n; i++)
            if (spans[i].bytes <= sizes[mid]) some[k++] = spans[i];
        if (zx_placing_load(some, k, line, ZX_ALIGN, change) <= room)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 ? sizes[lo - 1] : 0;
}

static bool grows(const zx_span *spans, uint32_t n, uint64_t grid)
{
    double before = 0, after = 0;
    for (uint32_t i = 0; i < n; i++) {
        before += (double)spans[i].bytes;
        after += (double)((spans[i].bytes + grid - 1) / grid * grid);
    }
    return after > before * (1 + 1.0 / GROWN);
}

void zx_placing_ease(const zx_span *spans, uint32_t n, zx_place_line line, uint64_t enough,
                     zx_arena *mem, uint64_t *small, uint64_t *grid)
{
    int64_t *change = ZX_NEW(mem, int64_t, (size_t)line.n_steps * line.micro_batches + 1);
    uint64_t *sizes = ZX_NEW(mem, uint64_t, n), *grids = ZX_NEW(mem, uint64_t, PARTS * (size_t)n);
    zx_span *some = ZX_NEW(mem, zx_span, n);
    const uint64_t load = zx_placing_load(spans, n, line, ZX_ALIGN, change);
    uint64_t room = enough > load ? enough - load : 0;
    if (room > load / ROOM) room = load / ROOM;
    const uint32_t n_sizes = list_sizes(spans, n, sizes);
    *grid = ZX_ALIGN;
    *small = find_small(spans, n, line, sizes, n_sizes, room / APART, some, change);
    uint32_t k = 0, n_grids = 0, tried = 0;
    for (uint32_t i = 0; i < n; i++)
        if (spans[i].bytes > *small) some[k++] = spans[i];
    for (uint32_t i = 0; i < n_sizes; i++)
        for (uint32_t part = 1; part <= PARTS; part++)
            if (sizes[i] % (part * ZX_ALIGN) == 0) grids[n_grids++] = sizes[i] / part;
    qsort(grids, n_grids, sizeof *grids, by_bytes);
    for (uint32_t i = n_grids; i-- > 0 && tried < TRIES;) {
        if (grids[i] <= ZX_ALIGN || (i + 1 < n_grids && grids[i] == grids[i + 1])) continue;
        if (grows(some, k, grids[i])) continue;
        tried++;
        if (zx_placing_load(some, k, line, grids[i], change) > load + room / ROUND) continue;
        *grid = grids[i];
        return;
    }
}
