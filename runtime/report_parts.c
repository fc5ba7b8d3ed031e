// report_parts.c - where the time of a step goes: every second of the compute stream in one part.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "runtime/report_priv.h"
#include "sched/lives.h"

const char *const zx_part_words[ZX_PART_COUNT] = {
    "compute", "copies",  "host", "start", "memory-blocked or late",
    "wire",    "latency", "tail", "update"};
const char *const zx_part_what[ZX_PART_COUNT] = {
    "kernels of the micro-batches",
    "copies into and out of flat buffers and buckets, and waiting for them",
    "the compute stream had been given nothing yet",
    "waiting before the first kernel of the step",
    "waiting for a collective that began late though the wire was free",
    "waiting for bytes on the wire",
    "waiting for what a collective takes whatever its size",
    "waiting after the last kernel of the step",
    "norm, optimizer, buffers"};

typedef struct walk {
    const zx_plan *p;
    const uint32_t *event; // by event: the instruction that makes it happen
    const double *idle;    // by instruction: how long the wire was free before this collective
    double rate;           // the best bytes a second of any collective
    uint32_t first, last;  // instructions: the first and last kernel
    zx_parts *out;
} walk;

static bool is_collective(const zx_insn *in)
{
    return in->id == ZX_I_GATHER || in->id == ZX_I_REDUCE || in->id == ZX_I_ALLREDUCE;
}

typedef struct ride { // a collective on the wire
    double start, end;
    uint32_t insn;
} ride;
static int by_start(const void *a, const void *b)
{
    const ride *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->insn > y->insn) - (x->insn < y->insn);
}

static void look_at_wire(walk *w, double *idle, zx_arena *mem)
{
    ride *rides = ZX_NEW(mem, ride, w->p->n_insns);
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->p->n_insns; i++)
        if (is_collective(&w->p->insns[i]) && w->p->seconds[i] > 0) {
            rides[n++] = (ride){w->p->start[i], w->p->start[i] + w->p->seconds[i], i};
            const double rate = (double)zx_launch_bytes(w->p, w->p->insns[i].a) / w->p->seconds[i];
            if (rate > w->rate) w->rate = rate;
        }
    if (n > 0) qsort(rides, n, sizeof *rides, by_start);
    double free_since = 0;
    for (uint32_t k = 0; k < n; k++) {
        const double from = rides[k].start > free_since ? rides[k].start : free_since;
        idle[rides[k].insn] = from - free_since;
        if (rides[k].end > from) w->out->wire += rides[k].end - from;
        if (rides[k].end > free_since) free_since = rides[k].end;
    }
}

static void add(walk *w, zx_step_part part, double seconds)
{
    if (seconds > 0) w->out->seconds[part] += seconds;
}

static void add_wait(walk *w, uint32_t insn, double waited)
{
    if (insn <= w->first || w->first == ZX_NONE) {
        add(w, ZX_PART_START, waited);
        return;
    }
    if (insn > w->last) {
        add(w, ZX_PART_TAIL, waited);
        return;
    }
    const uint32_t by = w->event[w->p->insns[insn].a];
    const zx_insn *in = by == ZX_NONE ? NULL : &w->p->insns[by];
    if (in == NULL || !is_collective(in)) {
        const bool copies =
            in != NULL && (in->id == ZX_I_PACK || in->id == ZX_I_UNPACK || in->id == ZX_I_BUCKET);
        add(w, copies ? ZX_PART_COPY : ZX_PART_HOST, waited);
        return;
    }
    const double late = w->idle[by] < waited ? w->idle[by] : waited;
    const double takes = w->p->seconds[by], moves = (double)zx_launch_bytes(w->p, in->a) / w->rate;
    const double fixed = takes > 0 && takes > moves ? (takes - moves) / takes : 0;
    add(w, ZX_PART_MEMORY, late);
    add(w, ZX_PART_LATENCY, (waited - late) * fixed);
    add(w, ZX_PART_WIRE, (waited - late) * (1 - fixed));
}

static zx_step_part part_of(zx_insn_id id)
{
    switch (id) {
    case ZX_I_PACK:
    case ZX_I_UNPACK:
    case ZX_I_BUCKET:
        return ZX_PART_COPY;
    case ZX_I_HOOK:
        return ZX_PART_HOST;
    case ZX_I_NORM:
    case ZX_I_UPDATE:
    case ZX_I_COMMIT:
        return ZX_PART_UPDATE;
    default:
        return ZX_PART_COMPUTE;
    }
}

void zx_parts_make(const zx_plan *p, zx_arena *mem, zx_parts *out)
{
    *out = (zx_parts){.step = p->step_seconds};
    uint32_t *event = ZX_NEW(mem, uint32_t, p->n_events);
    double *idle = ZX_NEW(mem, double, p->n_insns);
    for (uint32_t i = 0; i < p->n_events; i++) event[i] = ZX_NONE;
    walk w = {p, event, idle, 0, ZX_NONE, 0, out};
    for (uint32_t i = 0; i < p->n_insns; i++) {
        if (p->insns[i].c != ZX_NONE) event[p->insns[i].c] = i;
        if (p->insns[i].id != ZX_I_EXEC) continue;
        if (w.first == ZX_NONE) w.first = i;
        w.last = i;
    }
    look_at_wire(&w, idle, mem);
    double now = 0;
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        if (in->stream != ZX_S_COMPUTE) continue;
        if (p->start[i] > now)
            add(&w,
                i <= w.first ? ZX_PART_START
                : i > w.last ? ZX_PART_TAIL
                             : ZX_PART_HOST,
                p->start[i] - now);
        if (in->id == ZX_I_WAIT)
            add_wait(&w, i, p->seconds[i]);
        else
            add(&w, part_of((zx_insn_id)in->id), p->seconds[i]);
        if (p->start[i] + p->seconds[i] > now) now = p->start[i] + p->seconds[i];
    }
    add(&w, ZX_PART_TAIL, p->step_seconds - now);
}
