// solve_path.c - other launches of what a solution gathers and reduces: the shortest of all ways
// along the line, from launch to launch.
//
// What is gathered, in which order and how long it stays is as it was. Whenever the wire is free
// some gathers and some reduces have been sent: a place. A way there has two numbers, when that is
// and how far compute has come; of ways to the same place some are kept that no other is better
// than in both. The next launch is of any number of gathers that there is room for, or of gradients
// that are whole; or the wire rests until compute has done a bit more. Neighbours are put together
// until there are few enough. What is found is made in full, each launch as early as it may go, and
// taken if it is faster then.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "sched/solve_path.h"

#define FINE 240     // parts, up to which more launches may have been looked at before
#define SENDS 200000 // so many at most, beyond that
#define MORE_SENDS 1200000
#define SCANNED 8        // groups that are looked at beside one take as long as another launch
#define TOO_MANY 6000000 // launches: there is no way then
#define PINCH 8          // parts of the room where they are needed, at least
#define SIZES 12         // of launches: up to so many parts all are tried
#define LABELS 6         // ways that are kept to a place
#define COSTS 4096
#define LONG 20000 // steps of a line: nothing is tried
#define NEVER 1e300

// Parts of a micro-batch's gathers, half as many of its reduces: tried in turn.
static const uint32_t grids[] = {60, 120, 150, 240, 480, 960};

typedef struct items {
    uint32_t n, n_atoms;
    const zx_item *all;
    uint32_t *atom; // n_atoms + 1: the first of each
    double *sum;    // n_atoms + 1: wire bytes before
    double *cost;   // COSTS + 1: seconds of a launch, by parts of all bytes
} items;

typedef struct label {
    double wire, work; // when the wire is free; seconds of compute done then
    uint32_t from;     // step of a way; ZX_NONE: the beginning
} label;

typedef struct place {
    uint32_t n;
    double left; // the work of ways that were gone on with
    label *at;
} place;

typedef struct way { // a launch of n atoms
    uint32_t from, n;
    bool reduce;
} way;

typedef struct path {
    const zx_problem *p;
    zx_arena *mem;
    items gather, reduce;
    uint32_t n_groups;                   // of steps
    int64_t *group;                      // n_groups + 1: the first step
    double *at;                          // n_groups + 1: seconds before
    double *room;                        // by group
    double **held;                       // by gathers sent, by group
    double **pending;                    // by reduces over, by group
    uint32_t *need, *due, *most, *whole; // by group: gathers and reduces that it needs; gathers
                                         // that have room from there on; gradients that are whole
    place *places;
    double rate;                      // of compute, beside the wire
    bool pinched;                     // parts are smaller where there is little room
    way *ways;                        // launches that may be on the best way
    uint32_t n_ways, cap_ways, sends; // sends: launches that were looked at
} path;

// ---- parts --------------------------------------------------------------------------------------

// By step: bytes that have room beside what stays for a read.
static const double *find_slack(const path *k, const zx_items *gathers)
{
    const zx_problem *p = k->p;
    const int64_t end = zx_problem_end(p);
    double *slack = ZX_NEW(k->mem, double, (size_t)end + 2), taken = 0;
    for (uint32_t i = 0; i < gathers->n; i++) {
        slack[gathers->all[i].at] += (double)gathers->all[i].bytes;
        slack[gathers->all[i].gone] -= (double)gathers->all[i].bytes;
    }
    for (int64_t q = 0; q < end; q++) {
        taken += slack[q];
        slack[q] = (double)p->limit - (double)p->base[q % p->n_steps] - taken;
    }
    slack[end] = end > 0 ? slack[end - 1] : 0;
    return slack;
}

// Neighbours up to so many bytes are one, fewer where there is little room.
static void find_atoms(path *k, items *x, const zx_items *list, bool reduce, uint32_t most,
                       const double *slack)
{
    x->n = list->n;
    x->all = list->all;
    double all = 1;
    for (uint32_t i = 0; i < x->n; i++) all += (double)x->all[i].wire;
    x->atom = ZX_NEW(k->mem, uint32_t, x->n + 2);
    x->sum = ZX_NEW(k->mem, double, x->n + 2);
    double has = 0, sum = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        const double bytes = (double)x->all[i].wire;
        const double fit = fmin(all / most, slack != NULL ? slack[x->all[i].at] / PINCH : NEVER);
        if (i == 0 || has + bytes > fit || x->all[i].micro != x->all[i - 1].micro) {
            x->atom[x->n_atoms] = i;
            x->sum[x->n_atoms++] = sum;
            has = 0;
        }
        has += bytes;
        sum += bytes;
    }
    x->atom[x->n_atoms] = x->n;
    x->sum[x->n_atoms] = sum;
    x->cost = ZX_NEW(k->mem, double, COSTS + 2);
    for (uint32_t i = 0; i <= COSTS; i++)
        x->cost[i] = zx_problem_launch(k->p, reduce, (uint64_t)((sum + 1) * i / COSTS)).wire;
    x->cost[COSTS + 1] = x->cost[COSTS];
}

static double cost_of(const items *x, uint32_t from, uint32_t to)
{
    const double part = (x->sum[to] - x->sum[from]) / (x->sum[x->n_atoms] + 1) * COSTS;
    const uint32_t i = (uint32_t)part;
    return x->cost[i] + (part - i) * (x->cost[i + 1] - x->cost[i]);
}

// When an atom is needed (its first gather), or whole (its last gradient).
static int64_t when(const items *x, uint32_t atom, bool reduce)
{
    if (!reduce) return x->all[x->atom[atom]].at;
    int64_t at = 0;
    for (uint32_t i = x->atom[atom]; i < x->atom[atom + 1]; i++)
        if (x->all[i].at > at) at = x->all[i].at;
    return at;
}

// ---- groups of steps ----------------------------------------------------------------------------

static void find_groups(path *k)
{
    const zx_problem *p = k->p;
    const int64_t end = zx_problem_end(p);
    bool *first = ZX_NEW(k->mem, bool, (size_t)end + 1);
    first[0] = true;
    for (uint32_t i = 0; i < k->gather.n_atoms; i++) first[when(&k->gather, i, false)] = true;
    for (uint32_t i = 0; i < k->reduce.n_atoms; i++) first[when(&k->reduce, i, true)] = true;
    for (uint32_t m = 1; m < p->micro_batches; m++) first[(int64_t)m * p->n_steps] = true;
    for (int64_t q = 0; q < end; q++) k->n_groups += first[q];
    k->group = ZX_NEW(k->mem, int64_t, k->n_groups + 1);
    k->at = ZX_NEW(k->mem, double, k->n_groups + 1);
    k->room = ZX_NEW(k->mem, double, k->n_groups + 1);
    double *sum = zx_line_sums(p, k->mem);
    uint32_t n = 0;
    for (int64_t q = 0; q < end; q++)
        if (first[q]) k->group[n++] = q;
    k->group[n] = end;
    for (uint32_t c = 0; c <= n; c++) k->at[c] = zx_line_at(sum, p->n_steps, k->group[c]);
    for (uint32_t c = 0; c < n; c++) {
        uint64_t most = 0;
        for (int64_t q = k->group[c]; q < k->group[c + 1]; q++)
            if (p->base[q % p->n_steps] > most) most = p->base[q % p->n_steps];
        k->room[c] = p->limit > most ? (double)(p->limit - most) : 0;
    }
}

static void find_bytes(path *k)
{
    const uint32_t n = k->n_groups;
    k->held = ZX_NEW(k->mem, double *, k->gather.n_atoms + 1);
    k->pending = ZX_NEW(k->mem, double *, k->reduce.n_atoms + 1);
    for (uint32_t i = 0; i <= k->gather.n_atoms; i++) {
        k->held[i] = ZX_NEW(k->mem, double, n + 1);
        if (i == 0) continue;
        memcpy(k->held[i], k->held[i - 1], n * sizeof(double));
        for (uint32_t a = k->gather.atom[i - 1]; a < k->gather.atom[i]; a++)
            for (uint32_t c = 0; c < n && k->group[c] < k->gather.all[a].gone; c++)
                k->held[i][c] += (double)k->gather.all[a].bytes;
    }
    for (uint32_t j = k->reduce.n_atoms + 1; j-- > 0;) {
        k->pending[j] = ZX_NEW(k->mem, double, n + 1);
        if (j == k->reduce.n_atoms) continue;
        memcpy(k->pending[j], k->pending[j + 1], n * sizeof(double));
        for (uint32_t a = k->reduce.atom[j]; a < k->reduce.atom[j + 1]; a++)
            for (uint32_t c = n; c-- > 0 && k->group[c + 1] > k->reduce.all[a].gone;)
                k->pending[j][c] += (double)k->reduce.all[a].bytes;
    }
}

static void find_needs(path *k)
{
    const uint32_t n = k->n_groups;
    uint32_t i = 0, j = 0, most = k->gather.n_atoms;
    k->need = ZX_NEW(k->mem, uint32_t, n + 1);
    k->due = ZX_NEW(k->mem, uint32_t, n + 1);
    k->most = ZX_NEW(k->mem, uint32_t, n + 1);
    k->whole = ZX_NEW(k->mem, uint32_t, n + 1);
    for (uint32_t c = 0; c <= n; c++) {
        while (c < n && i < k->gather.n_atoms && when(&k->gather, i, false) < k->group[c + 1]) i++;
        while (j < k->reduce.n_atoms && when(&k->reduce, j, true) <= k->group[c]) j++;
        k->need[c] = i;
        k->whole[c] = j;
    }
    for (uint32_t a = 0; a < k->reduce.n_atoms; a++)
        for (uint32_t x = k->reduce.atom[a]; x < k->reduce.atom[a + 1]; x++)
            for (uint32_t c = n; c-- > 0 && k->group[c + 1] > k->reduce.all[x].latest;)
                if (k->due[c] < a + 1) k->due[c] = a + 1;
    k->most[n] = most;
    for (uint32_t c = n; c-- > 0;) {
        while (most > 0 && k->held[most][c] > k->room[c]) most--;
        k->most[c] = most;
    }
}

// ---- ways ---------------------------------------------------------------------------------------

static uint32_t group_at(const path *k, double work)
{
    uint32_t a = 0, b = k->n_groups;
    while (a < b) { // the last one that begins by then
        const uint32_t mid = a + (b - a + 1) / 2;
        if (k->at[mid] <= work)
            a = mid;
        else
            b = mid - 1;
    }
    return a;
}

static bool begins(const path *k, uint32_t c, uint32_t i, uint32_t sent, uint32_t j)
{
    return i >= k->need[c] && j >= k->due[c] && k->held[sent][c] + k->pending[j][c] <= k->room[c];
}

// How far compute comes in so many of its seconds; i: gathers that are whole, `sent`: that take
// room.
static double advance(path *k, double work, double seconds, uint32_t i, uint32_t sent, uint32_t j)
{
    uint32_t c = group_at(k, work);
    const double to = work + seconds;
    if (c < k->n_groups && k->at[c] < work) c++; // this one has begun
    const uint32_t first = c;
    while (c < k->n_groups && k->at[c] < to && begins(k, c, i, sent, j)) c++;
    k->sends += (c - first) / SCANNED;
    return fmin(to, k->at[c]);
}

static place *place_of(const path *k, uint32_t i, uint32_t j)
{
    return &k->places[(size_t)i * (k->reduce.n_atoms + 1) + j];
}

// Keeps it unless another is as good in both; of too many one goes that is much like its
// neighbours.
static bool arrive(path *k, place *x, label l)
{
    uint32_t kept = 0, at;
    if (l.work <= x->left) return false;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->at[i].wire <= l.wire && x->at[i].work >= l.work) return false;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->at[i].wire < l.wire || x->at[i].work > l.work) x->at[kept++] = x->at[i];
    if (x->at == NULL) x->at = ZX_NEW(k->mem, label, LABELS + 1);
    for (at = kept; at > 0 && x->at[at - 1].wire > l.wire; at--) x->at[at] = x->at[at - 1];
    x->at[at] = l; // in order of time
    x->n = kept + 1;
    if (x->n <= LABELS) return true;
    uint32_t worst = 0; // between two neighbours it matters least
    double least = NEVER;
    for (uint32_t i = 1; i + 1 < x->n; i++) {
        const double apart =
            (x->at[i + 1].wire - x->at[i].wire) * (x->at[i].work - x->at[i - 1].work);
        if (apart >= least) continue;
        least = apart;
        worst = i;
    }
    memmove(&x->at[worst], &x->at[worst + 1], (x->n - worst - 1) * sizeof *x->at);
    x->n--;
    return true;
}

static void send(path *k, const label *l, uint32_t i, uint32_t j, way w)
{
    const uint32_t gathers = w.reduce ? i : i + w.n, reduces = w.reduce ? j + w.n : j;
    const double takes =
        w.reduce ? cost_of(&k->reduce, j, reduces) : cost_of(&k->gather, i, gathers);
    const double work = advance(k, l->work, takes * k->rate, i, gathers, j);
    const label x = {l->wire + takes, work, k->n_ways};
    k->sends++;
    if (!arrive(k, place_of(k, gathers, reduces), x)) return;
    ZX_GROW(k->mem, k->ways, k->n_ways, k->cap_ways);
    k->ways[k->n_ways++] = w;
}

static uint32_t micro_of(const path *k, uint32_t reduce)
{
    return k->reduce.all[k->reduce.atom[reduce]].micro;
}

// Of many sizes some are tried: the largest, and ones that differ by a part.
static uint32_t next_size(uint32_t n, uint32_t most)
{
    const uint32_t next = n + 1 + n / SIZES;
    return n < most && next > most ? most : next;
}

static void leave(path *k, uint32_t i, uint32_t j, const label *l)
{
    const uint32_t c = group_at(k, l->work), last = k->n_groups;
    uint32_t most = i;
    while (c < last && most < k->most[c] && k->held[most + 1][c] + k->pending[j][c] <= k->room[c])
        most++;
    for (uint32_t n = 1; n <= most - i; n = next_size(n, most - i))
        send(k, l, i, j, (way){l->from, n, false});
    most = j;
    while (most < k->whole[c] && micro_of(k, most) == micro_of(k, j)) most++;
    for (uint32_t n = 1; n <= most - j; n = next_size(n, most - j))
        send(k, l, i, j, (way){l->from, n, true});
    if (c == last || (k->at[c] >= l->work && !begins(k, c, i, i, j))) return;
    const label rested = {l->wire + k->at[c + 1] - l->work, k->at[c + 1], l->from};
    arrive(k, place_of(k, i, j), rested);
}

// The end of the best way; ZX_NONE: there is none.
static uint32_t walk(path *k)
{
    const uint32_t n = k->gather.n_atoms, r = k->reduce.n_atoms;
    k->places = ZX_NEW(k->mem, place, (size_t)(n + 1) * (r + 1));
    for (size_t i = 0; i < (size_t)(n + 1) * (r + 1); i++) k->places[i].left = -1;
    arrive(k, place_of(k, 0, 0), (label){0, 0, ZX_NONE});
    for (uint32_t i = 0; i <= n; i++)
        for (uint32_t j = 0; j <= r; j++) {
            place *x = place_of(k, i, j);
            if (i == n && j == r) break;
            if (k->sends > TOO_MANY) return ZX_NONE;
            while (x->n > 0) {
                const label l = x->at[0];
                x->n--;
                memmove(x->at, x->at + 1, x->n * sizeof l);
                x->left = l.work;
                leave(k, i, j, &l);
            }
        }
    const place *x = place_of(k, n, r);
    double least = NEVER;
    uint32_t end = ZX_NONE;
    for (uint32_t a = 0; a < x->n; a++) {
        const double seconds = x->at[a].wire + k->at[k->n_groups] - x->at[a].work;
        if (seconds >= least) continue;
        least = seconds;
        end = x->at[a].from;
    }
    return end;
}

// ---- in full ------------------------------------------------------------------------------------

static double seconds_of(const zx_problem *p, const zx_solution *s, zx_arena *mem)
{
    zx_price x;
    zx_problem_time(p, s, mem, &x);
    return x.seconds;
}

// The best way's launches, made in full; they may wait for each other.
static bool find_path(path *k, uint32_t atoms, const zx_solution *s, zx_solution *out)
{
    zx_wanted w;
    uint32_t n = 0, i = 0, j = 0;
    zx_wanted_make(k->p, s, k->mem, &w);
    const double *slack = k->pinched ? find_slack(k, &w.gather) : NULL;
    find_atoms(k, &k->gather, &w.gather, false, atoms * k->p->micro_batches, slack);
    find_atoms(k, &k->reduce, &w.reduce, true, atoms / 2 * k->p->micro_batches, slack);
    find_groups(k);
    find_bytes(k);
    find_needs(k);
    const uint32_t end = walk(k);
    for (uint32_t q = end; q != ZX_NONE; q = k->ways[q].from) n++;
    zx_sending *list = ZX_NEW(k->mem, zx_sending, n + 1);
    for (uint32_t q = end, at = n; q != ZX_NONE; q = k->ways[q].from)
        list[--at] = (zx_sending){k->ways[q].reduce, k->ways[q].n};
    for (uint32_t q = 0; q < n; q++) { // of atoms so far
        const items *x = list[q].reduce ? &k->reduce : &k->gather;
        uint32_t *at = list[q].reduce ? &j : &i;
        const uint32_t from = *at;
        *at += list[q].n;
        list[q].n = x->atom[*at] - x->atom[from];
    }
    return n > 0 && zx_wanted_send(&w, list, n, k->mem, out);
}

bool zx_solve_path(const zx_problem *p, bool pinched, zx_arena *mem, zx_solution *s)
{
    zx_arena own = {0};
    bool better = false;
    if (p->max_live > 0 || p->max_reduce > 0 || p->no_overlap || p->machine.cores > 0 ||
        p->n_reads == 0 || p->n_grads == 0 || zx_problem_end(p) > LONG)
        return false;
    double seconds = seconds_of(p, s, &own);
    uint32_t sends = 0;
    for (size_t q = 0; q < ZX_COUNT(grids); q++) {
        if (sends > (grids[q] > FINE ? SENDS : MORE_SENDS)) break;
        path k = {
            .p = p, .mem = &own, .pinched = pinched, .rate = 1 / (1 + p->machine.interference)};
        zx_solution x = {0};
        const bool found = find_path(&k, grids[q], s, &x);
        const double its = found ? seconds_of(p, &x, &own) : NEVER;
        sends = k.sends;
        if (its < seconds * (1 - 1e-9) && zx_problem_wrong(p, &x, &own) == NULL) {
            zx_solution_copy(&x, mem, s);
            seconds = its;
            better = true;
        }
        zx_arena_free(&own);
    }
    zx_arena_free(&own);
    return better;
}
