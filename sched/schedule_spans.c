// schedule_spans.c - the bytes that a schedule takes at every step, and their addresses.
//
// Equal holds and flat buffers of successive micro-batches are one span that repeats, so they have
// one address; activations are the same in every micro-batch. That keeps plans small, but it may
// take more bytes than are alive: what is there at the end of one micro-batch and the beginning of
// the next, some of it at each of two times, has to lie apart from what is there at either. Where
// addresses don't fit so, they are others in every second micro-batch (or in more in a row).
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "sched/schedule.h"

#define EVEN 1.003 // a placement this near the load is as good as any

typedef struct pattern { // one remembered span: what it is for and when in its micro-batch
    uint64_t key, bytes;
    int64_t start, length;
    uint32_t kind, micro, span; // the last micro-batch that has it; ZX_NONE: free
} pattern;

typedef struct spanner {
    zx_schedule *s;
    uint32_t n_rows, used; // a power of two
    pattern *rows;
} spanner;

static uint32_t put_span(zx_schedule *s, const zx_span *x)
{
    ZX_GROW(s->mem, s->spans, s->n_spans, s->cap_spans);
    s->spans[s->n_spans] = *x;
    return s->n_spans++;
}

static uint64_t hash(uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ (b + UINT64_C(0x9e3779b97f4a7c15) + (a << 6) + (a >> 2)));
    h *= UINT64_C(0xff51afd7ed558ccd);
    return h ^ (h >> 32);
}

static uint32_t period_of(const zx_schedule *s)
{
    return s->apart > 0 ? s->apart : 1;
}

// The span of [from, to] for something with this key: that of the micro-batch before (a period
// before), where it is the same there.
static uint32_t repeat(spanner *k, uint32_t kind, uint64_t key, uint32_t index, int64_t from,
                       int64_t to, uint64_t bytes)
{
    const int64_t n = k->s->trace->n_steps;
    const uint32_t micro = (uint32_t)(from / n), period = period_of(k->s);
    const int64_t start = from % n, length = to - from;
    uint64_t h = hash(hash(key, kind), hash((uint64_t)start, (uint64_t)length));
    for (;; h++) {
        pattern *p = &k->rows[h & (k->n_rows - 1)];
        if (p->span == ZX_NONE) {
            *p = (pattern){key, bytes, start, length, kind, micro, ZX_NONE};
            p->span = put_span(k->s, &(zx_span){kind, index, from, to, 1, bytes, 0});
            return p->span;
        }
        if (p->key != key || p->kind != kind || p->start != start || p->length != length ||
            p->bytes != bytes || p->micro + period != micro || length >= n * period)
            continue;
        p->micro = micro;
        k->s->spans[p->span].repeat++;
        return p->span;
    }
}

static uint64_t element_bytes(const zx_schedule *s, uint32_t unit)
{
    const zx_graph *g = s->trace->graph;
    return zx_dtype_bytes(g->values[g->params[unit].value].type.dtype);
}

static uint64_t whole_bytes(const zx_schedule *s, uint32_t unit)
{
    const zx_graph *g = s->trace->graph;
    const uint64_t n = (uint64_t)zx_shape_count(&g->values[g->params[unit].value].type.shape);
    const uint64_t ranks = s->options->ranks;
    return (n / ranks + (n % ranks != 0)) * ranks * element_bytes(s, unit);
}

static void add_flats(spanner *k)
{
    zx_schedule *s = k->s;
    const int64_t n = s->trace->n_steps, end = n * s->trace->micro_batches;
    for (uint32_t i = 0; i < s->n_transfers; i++) {
        zx_transfer *x = &s->transfers[i];
        if (!x->flat) continue;
        if (!x->reduce && (x->unpack < x->gate || x->unpack > x->over))
            x->unpack = x->unpack >= 0 && x->unpack < x->gate ? x->gate : x->over;
        uint64_t bytes = 0, key = x->reduce;
        for (uint32_t m = 0; m < x->n; m++) {
            const uint32_t unit =
                x->reduce ? s->gradients[x->first + m].unit : s->holds[x->first + m].unit;
            bytes += whole_bytes(s, unit);
            key = hash(key, unit);
        }
        int64_t from = x->gate < end ? x->gate : end - 1;
        // At the end of a micro-batch gradients last until the position before: what they are
        // packed into begins there, not to share their bytes.
        const int64_t last = x->reduce ? n * (s->gradients[x->first].micro + (int64_t)1) - 1 : end;
        if (from > last) from = last;
        // A reduce is over before anything else happens where it is drained; what is gathered is
        // unpacked while others may begin there.
        int64_t to = x->reduce ? x->over - 1 : x->over;
        if (to < from) to = from;
        if (to > end - 1) to = end - 1;
        x->span = repeat(k, ZX_SPAN_FLAT, key, i, from, to, bytes);
    }
}

// A flat gather's members are there from where its copies out may begin.
static void add_holds(spanner *k)
{
    zx_schedule *s = k->s;
    for (uint32_t i = 0; i < s->n_holds; i++) {
        zx_hold *h = &s->holds[i];
        zx_transfer *x = &s->transfers[h->launch];
        const int64_t from = x->flat ? x->unpack : h->gate;
        h->span =
            repeat(k, ZX_SPAN_STAY, h->unit, h->unit, from, h->gone - 1, whole_bytes(s, h->unit));
    }
}

// Until which position compute doesn't give a gradient's bytes away: in place until the reduce is
// over, where it is copied until a step after.
static int64_t held_until(const zx_schedule *s, const zx_gradient *x)
{
    const zx_transfer *l = &s->transfers[x->launch];
    if (!l->flat) return l->over;
    const int64_t last = (int64_t)s->trace->n_steps * (x->micro + (int64_t)1);
    const int64_t copied = zx_schedule_copied(s, x);
    return copied < last ? copied : last;
}

int64_t zx_schedule_copied(const zx_schedule *s, const zx_gradient *x)
{
    const zx_transfer *l = &s->transfers[x->launch];
    const int64_t last = (int64_t)s->trace->n_steps * (x->micro + (int64_t)1);
    const int64_t at = (l->bucket ? x->bucketed : l->at) + 1;
    return at < last ? at : last;
}

// The bucket has room for every launch that goes through it, each gradient aligned.
static void fit_bucket(zx_schedule *s)
{
    for (uint32_t i = 0; i < s->n_transfers; i++) {
        const zx_transfer *x = &s->transfers[i];
        uint64_t bytes = 0;
        for (uint32_t k = 0; x->bucket && k < x->n; k++)
            bytes += s->unit_bytes[s->gradients[x->first + k].unit];
        if (bytes > s->bucket_bytes) s->bucket_bytes = bytes;
    }
}

// Whether a storage may lie elsewhere in every micro-batch. Inputs are fed to one address.
static bool is_loose(const zx_schedule *s, uint32_t storage)
{
    const zx_storage *x = &s->trace->storages[storage];
    return s->apart > 0 && s->made_in[storage] == ZX_NONE && x->input == ZX_NONE && x->bytes > 0;
}

// Gradients that are reduced leave when their launch is over, which may be another time in every
// micro-batch: their storages are spans of the line. All others are the same in every micro-batch,
// unless micro-batches are apart.
static void add_gradients(spanner *k)
{
    zx_schedule *s = k->s;
    const zx_trace *t = s->trace;
    const int64_t n = t->n_steps;
    const uint32_t micros = t->micro_batches;
    uint32_t *row = ZX_NEW(s->mem, uint32_t, t->n_storages + 1), n_rows = 0;
    for (uint32_t i = 0; i < t->n_storages; i++) row[i] = ZX_NONE;
    for (uint32_t i = 0; i < s->n_gradients; i++) {
        const zx_where w = t->where[t->graph->params[s->gradients[i].unit].grad];
        if (w.kind != ZX_AT_STORAGE || row[w.index] != ZX_NONE) continue;
        if (s->made_in[w.index] == ZX_NONE && t->storages[w.index].bytes > 0)
            row[w.index] = n_rows++;
    }
    for (uint32_t i = 0; i < t->n_storages; i++)
        if (row[i] == ZX_NONE && is_loose(s, i)) row[i] = n_rows++;
    int64_t *until = ZX_NEW(s->mem, int64_t, (size_t)n_rows * micros + 1);
    for (uint32_t i = 0; i < t->n_storages; i++)
        for (uint32_t m = 0; m < micros && row[i] != ZX_NONE; m++)
            until[(size_t)row[i] * micros + m] = n * m + t->storages[i].dies;
    for (uint32_t i = 0; i < s->n_gradients; i++) {
        const zx_gradient *x = &s->gradients[i];
        const zx_where w = t->where[t->graph->params[x->unit].grad];
        if (w.kind != ZX_AT_STORAGE || row[w.index] == ZX_NONE) continue;
        int64_t *to = &until[(size_t)row[w.index] * micros + x->micro];
        if (held_until(s, x) - 1 > *to) *to = held_until(s, x) - 1;
    }
    s->grad_row = row;
    s->grad_spans = ZX_NEW(s->mem, uint32_t, (size_t)n_rows * micros + 1);
    for (uint32_t i = 0; i < t->n_storages; i++)
        for (uint32_t m = 0; m < micros && row[i] != ZX_NONE; m++) {
            const size_t at = (size_t)row[i] * micros + m;
            s->grad_spans[at] = repeat(k, ZX_SPAN_STORAGE, i, i, n * m + t->storages[i].born,
                                       until[at], t->storages[i].bytes);
        }
}

static void add_fixed(zx_schedule *s)
{
    const zx_trace *t = s->trace;
    for (uint32_t i = 0; i < t->n_storages; i++) {
        const zx_storage *x = &t->storages[i];
        if (s->made_in[i] == ZX_NONE && s->grad_row[i] == ZX_NONE && x->bytes > 0)
            put_span(s, &(zx_span){ZX_SPAN_STORAGE, i, x->born, x->dies, 0, x->bytes, 0});
    }
    for (uint32_t i = 0; i < t->n_steps; i++)
        if (t->work[i] > 0) put_span(s, &(zx_span){ZX_SPAN_WORK, i, i, i, 0, t->work[i], 0});
    if (s->bucket_bytes > 0)
        put_span(s,
                 &(zx_span){ZX_SPAN_BUCKET, 0, 0, (int64_t)t->n_steps - 1, 0, s->bucket_bytes, 0});
}

void zx_schedule_spans(zx_schedule *s)
{
    spanner k = {.s = s, .n_rows = 64};
    const uint64_t loose = s->apart > 0 ? s->trace->n_storages : 0;
    const uint64_t many =
        s->n_holds + s->n_transfers + s->n_gradients + loose * s->trace->micro_batches;
    while (k.n_rows < 4 * many) k.n_rows *= 2;
    k.rows = ZX_NEW(s->mem, pattern, k.n_rows);
    for (uint32_t i = 0; i < k.n_rows; i++) k.rows[i].span = ZX_NONE;
    s->n_spans = 0;
    fit_bucket(s);
    add_gradients(&k);
    add_fixed(s);
    add_flats(&k);
    add_holds(&k);
}

uint64_t zx_schedule_held(const zx_schedule *s)
{
    return zx_held_bytes(s->trace, s->options);
}

// Without the held slots.
static uint64_t load_of(const zx_schedule *s)
{
    const zx_trace *t = s->trace;
    const int64_t n = t->n_steps, end = n * t->micro_batches;
    int64_t *change = ZX_NEW(s->mem, int64_t, (size_t)end + 1);
    for (uint32_t i = 0; i < s->n_spans; i++) {
        const zx_span *x = &s->spans[i];
        const int64_t bytes = (int64_t)zx_align_up(x->bytes, ZX_ALIGN);
        const uint32_t times = x->repeat == 0 ? t->micro_batches : x->repeat;
        const int64_t stride = x->repeat == 0 ? n : n * period_of(s);
        const bool before = x->repeat == 0 && x->to >= n; // what the micro-batch before left
        for (uint32_t m = 0; m < times + before; m++) {
            const int64_t round = stride * ((int64_t)m - before);
            const int64_t from = x->from + round, to = x->to + round + 1;
            if (to <= 0 || from >= end) continue;
            change[from < 0 ? 0 : from] += bytes;
            change[to < end ? to : end] -= bytes;
        }
    }
    int64_t now = 0, most = 0;
    for (int64_t p = 0; p < end; p++) {
        now += change[p];
        if (now > most) most = now;
    }
    return (uint64_t)most;
}

uint64_t zx_schedule_load(const zx_schedule *s)
{
    return zx_schedule_held(s) + load_of(s);
}

static void place(zx_schedule *s, uint64_t enough)
{
    const zx_trace *t = s->trace;
    const zx_place_line line = {t->n_steps, t->micro_batches, period_of(s)};
    const uint32_t effort = s->effort > 0 ? s->effort : 1;
    s->transient = zx_place_part(s->spans, s->n_spans, line, enough, effort, s->part, &s->work);
}

static uint64_t enough_for(const zx_schedule *s, uint64_t budget)
{
    const uint64_t held = zx_schedule_held(s), even = (uint64_t)((double)load_of(s) * EVEN);
    return budget > held && budget != UINT64_MAX && budget - held > even ? budget - held : even;
}

void zx_schedule_place(zx_schedule *s, uint64_t budget)
{
    place(s, enough_for(s, budget));
}

void zx_schedule_place_apart(zx_schedule *s, uint32_t apart, uint64_t budget)
{
    s->apart = apart;
    zx_schedule_spans(s);
    place(s, enough_for(s, budget));
}

void zx_schedule_above(const zx_schedule *s, uint64_t limit, uint64_t *above)
{
    const int64_t n = s->trace->n_steps;
    memset(above, 0, (size_t)n * sizeof *above);
    for (uint32_t i = 0; i < s->n_spans; i++) {
        const zx_span *x = &s->spans[i];
        const uint64_t end = x->offset + x->bytes;
        if (end <= limit) continue;
        const int64_t from = x->from, to = x->to < from + n - 1 ? x->to : from + n - 1;
        for (int64_t t = from; t <= to; t++) {
            uint64_t *a = &above[(t % n + n) % n];
            if (end - limit > *a) *a = end - limit;
        }
    }
}
