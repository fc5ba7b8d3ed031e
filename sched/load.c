// load.c - see load.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/load.h"

#include <string.h>

void zx_load_make(zx_load *l, uint32_t n_steps, zx_arena *mem)
{
    l->n = n_steps;
    l->leaves = 1;
    while (l->leaves < n_steps) l->leaves *= 2;
    l->most = ZX_NEW(mem, int64_t, 2 * (size_t)l->leaves);
    l->add = ZX_NEW(mem, int64_t, 2 * (size_t)l->leaves);
}

void zx_load_fill(zx_load *l, const int64_t *values)
{
    memset(l->add, 0, 2 * (size_t)l->leaves * sizeof *l->add);
    for (uint32_t i = 0; i < l->leaves; i++) l->most[l->leaves + i] = i < l->n ? values[i] : 0;
    for (uint32_t k = l->leaves; k-- > 1;) {
        const int64_t u = l->most[2 * k], v = l->most[2 * k + 1];
        l->most[k] = u > v ? u : v;
    }
}

// most[k] is the highest under node k with what was added to k and below; add[k] what was added to
// k.
static void add_plain(zx_load *l, uint32_t from, uint32_t to, int64_t x)
{
    uint32_t a = from + l->leaves, b = to + l->leaves + 1;
    const uint32_t a0 = a, b0 = b - 1;
    for (; a < b; a /= 2, b /= 2) {
        if (a & 1) l->most[a] += x, l->add[a] += x, a++;
        if (b & 1) b--, l->most[b] += x, l->add[b] += x;
    }
    const uint32_t ends[2] = {a0, b0};
    for (int e = 0; e < 2; e++)
        for (uint32_t k = ends[e] / 2; k > 0; k /= 2) {
            const int64_t u = l->most[2 * k], v = l->most[2 * k + 1];
            l->most[k] = (u > v ? u : v) + l->add[k];
        }
}

static int64_t most_plain(const zx_load *l, uint32_t from, uint32_t to)
{
    // From the two ends upwards: what lies between them, plus what was added above.
    uint32_t a = from + l->leaves, b = to + l->leaves;
    int64_t left = l->most[a], right = l->most[b];
    if (a == b) right = INT64_MIN / 2;
    while (a / 2 != b / 2) {
        if ((a & 1) == 0 && l->most[a + 1] > left) left = l->most[a + 1];
        if ((b & 1) == 1 && l->most[b - 1] > right) right = l->most[b - 1];
        a /= 2;
        b /= 2;
        left += l->add[a];
        right += l->add[b];
    }
    int64_t most = left > right ? left : right;
    for (a /= 2; a > 0; a /= 2) most += l->add[a];
    return most;
}

// A span around the circle as one or two plain ones; returns how many.
static uint32_t cut(const zx_load *l, int64_t from, int64_t to, uint32_t part[2][2])
{
    if (to < from) return 0;
    const int64_t n = l->n;
    if (to - from + 1 >= n) {
        part[0][0] = 0;
        part[0][1] = l->n - 1;
        return 1;
    }
    const int64_t a = ((from % n) + n) % n, b = a + (to - from);
    part[0][0] = (uint32_t)a;
    part[0][1] = (uint32_t)(b < n ? b : n - 1);
    if (b < n) return 1;
    part[1][0] = 0;
    part[1][1] = (uint32_t)(b - n);
    return 2;
}

void zx_load_add(zx_load *l, int64_t from, int64_t to, int64_t x)
{
    uint32_t part[2][2];
    const uint32_t n = cut(l, from, to, part);
    for (uint32_t i = 0; i < n; i++) add_plain(l, part[i][0], part[i][1], x);
}

int64_t zx_load_most(const zx_load *l, int64_t from, int64_t to)
{
    uint32_t part[2][2];
    const uint32_t n = cut(l, from, to, part);
    int64_t most = INT64_MIN;
    for (uint32_t i = 0; i < n; i++) {
        const int64_t m = most_plain(l, part[i][0], part[i][1]);
        if (m > most) most = m;
    }
    return most;
}
