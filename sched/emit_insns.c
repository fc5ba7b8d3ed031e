// emit_insns.c - instructions and events of a schedule, position by position.
//
// Compute is the clock. At a position, in this order: reduces in place are enqueued; compute waits
// for reduces whose bytes are given away here; units that were read for the last time are freed;
// gradients are copied; gathers are enqueued and awaited. What a transfer overwrites is therefore
// done with once compute has passed the mark of the transfer's gate. Streams run in order, so that
// waiting for what a stream did later is waiting for all before it: waits that say nothing new are
// left out.
// SPDX-License-Identifier: Apache-2.0
#include "sched/emit.h"

typedef struct happening { // an event and its place on its stream
    uint32_t event, seq, stream;
} happening;

typedef struct writer {
    zx_emitter *e;
    uint32_t seq[ZX_STREAM_COUNT];                    // instructions so far of each stream
    uint32_t known[ZX_STREAM_COUNT][ZX_STREAM_COUNT]; // how many of each one each has waited for
    uint32_t last_event[ZX_STREAM_COUNT], last_seq[ZX_STREAM_COUNT]; // the latest of each stream
    uint32_t mark;     // compute has done nothing since this event; ZX_NONE
    uint32_t mark_seq; // of it
    bool *gated;       // by position: some transfer waits for compute to come there
    happening *gate;   // by position
    happening *ready;  // by transfer: GATHER or REDUCE
    happening *packed; // by transfer: PACK
    happening *whole;  // by transfer: where its members are whole (UNPACK, GATHER), or READY
    happening *copied; // by position: the copies of gradients that compute has to know there
    bool *copy_due;    // by position
} writer;

static uint32_t put(writer *w, zx_insn_id id, uint32_t stream, zx_pass_id by, uint32_t step,
                    uint32_t a, uint32_t b, uint32_t c)
{
    zx_emitter *e = w->e;
    ZX_GROW(e->mem, e->insns, e->p->n_insns, e->cap_insns);
    e->insns[e->p->n_insns++] =
        (zx_insn){(uint8_t)id, (uint8_t)stream, (uint16_t)by, step, a, b, c};
    w->seq[stream]++;
    if (stream == ZX_S_COMPUTE && id != ZX_I_HOOK) w->mark = ZX_NONE;
    if (c != ZX_NONE) {
        w->last_event[stream] = c;
        w->last_seq[stream] = w->seq[stream];
    }
    return c;
}

static happening put_event(writer *w, zx_insn_id id, uint32_t stream, zx_pass_id by, uint32_t step,
                           uint32_t a, uint32_t b)
{
    const uint32_t event = put(w, id, stream, by, step, a, b, w->e->p->n_events++);
    return (happening){event, w->seq[stream], stream};
}

static happening mark_here(writer *w, uint32_t step)
{
    if (w->mark == ZX_NONE) {
        const happening h =
            put_event(w, ZX_I_MARK, ZX_S_COMPUTE, ZX_PASS_emit, step, ZX_NONE, ZX_NONE);
        w->mark = h.event;
        w->mark_seq = h.seq;
    }
    return (happening){w->mark, w->mark_seq, ZX_S_COMPUTE};
}

static void put_wait(writer *w, uint32_t stream, zx_pass_id by, uint32_t step, happening h)
{
    if (stream == h.stream || w->known[stream][h.stream] >= h.seq) return;
    put(w, ZX_I_WAIT, stream, by, step, h.event, ZX_NONE, ZX_NONE);
    w->known[stream][h.stream] = h.seq;
}

// ---- acts ---------------------------------------------------------------------------------------

static uint32_t stream_of_reduces(const writer *w)
{
    return w->e->s->one_fifo ? ZX_S_GATHER : ZX_S_REDUCE;
}

// Compute has to know at `due` that gradients were copied.
static void note_copy(writer *w, int64_t at, int64_t due, uint32_t step, happening copied)
{
    if (due <= at) {
        put_wait(w, ZX_S_COMPUTE, ZX_PASS_emit, step, copied);
        return;
    }
    w->copied[due] = copied;
    w->copy_due[due] = true;
}

static void do_bucket(writer *w, const zx_act *a, uint32_t step)
{
    const zx_schedule *s = w->e->s;
    const zx_gradient *g = &s->gradients[a->what];
    const uint32_t member = a->what - s->transfers[g->launch].first;
    put_wait(w, ZX_S_BUCKET, ZX_PASS_emit, step, mark_here(w, step));
    const happening copied = put_event(w, ZX_I_BUCKET, ZX_S_BUCKET, ZX_PASS_gradients, step,
                                       w->e->row_of[g->launch], member);
    note_copy(w, a->at, zx_schedule_copied(s, g), step, copied);
}

static void do_reduce(writer *w, const zx_act *a)
{
    const zx_schedule *s = w->e->s;
    const zx_transfer *x = &s->transfers[a->what];
    const uint32_t stream = stream_of_reduces(w), row = w->e->row_of[a->what];
    const uint32_t micro = s->gradients[x->first].micro, step = a->at > 0 ? (uint32_t)a->at - 1 : 0;
    if (x->flat) {
        put_wait(w, ZX_S_BUCKET, ZX_PASS_emit, step, mark_here(w, step));
        w->packed[a->what] =
            put_event(w, ZX_I_PACK, ZX_S_BUCKET, ZX_PASS_gradients, step, row, ZX_NONE);
        if (!x->bucket)
            note_copy(w, a->at, zx_schedule_copied(s, &s->gradients[x->first]), step,
                      w->packed[a->what]);
        put_wait(w, stream, ZX_PASS_emit, step, w->packed[a->what]);
    } else
        put_wait(w, stream, ZX_PASS_emit, step, mark_here(w, step));
    const zx_insn_id id = w->e->o->stage < 2 ? ZX_I_ALLREDUCE : ZX_I_REDUCE;
    w->ready[a->what] = w->whole[a->what] =
        put_event(w, id, stream, ZX_PASS_gradients, step, row, micro > 0 && !s->local);
}

static uint32_t first_read(const writer *w, const zx_transfer *x)
{
    int64_t first = -1;
    for (uint32_t i = 0; i < x->n; i++) {
        const int64_t f = w->e->s->holds[x->first + i].first;
        if (f >= 0 && (first < 0 || f < first)) first = f;
    }
    return first < 0 ? ZX_NONE : (uint32_t)first;
}

static void do_gather(writer *w, const zx_act *a, uint32_t step)
{
    const zx_transfer *x = &w->e->s->transfers[a->what];
    const uint32_t row = w->e->row_of[a->what], serves = first_read(w, x);
    const happening gate = w->gate[x->gate];
    if (x->flat) {
        put_wait(w, ZX_S_COPY, ZX_PASS_emit, step, gate);
        w->packed[a->what] =
            put_event(w, ZX_I_PACK, ZX_S_COPY, (zx_pass_id)a->by, serves, row, ZX_NONE);
        put_wait(w, ZX_S_GATHER, ZX_PASS_emit, step, w->packed[a->what]);
    } else
        put_wait(w, ZX_S_GATHER, ZX_PASS_emit, step, gate);
    w->ready[a->what] = w->whole[a->what] =
        put_event(w, ZX_I_GATHER, ZX_S_GATHER, (zx_pass_id)a->by, serves, row, ZX_NONE);
}

static void do_await(writer *w, const zx_act *a, uint32_t step)
{
    const zx_transfer *x = &w->e->s->transfers[a->what];
    if (x->flat) {
        put_wait(w, ZX_S_COPY, ZX_PASS_emit, step, w->ready[a->what]);
        put_wait(w, ZX_S_COPY, ZX_PASS_emit, step, w->gate[x->unpack]);
        w->whole[a->what] = put_event(w, ZX_I_UNPACK, ZX_S_COPY, (zx_pass_id)a->by,
                                      first_read(w, x), w->e->row_of[a->what], ZX_NONE);
    }
    put_wait(w, ZX_S_COMPUTE, ZX_PASS_emit, step, w->whole[a->what]);
}

// Nothing that is enqueued later begins before: on any stream.
static void do_sync(writer *w, const zx_act *a, uint32_t step)
{
    for (uint32_t stream = 0; stream < ZX_STREAM_COUNT; stream++)
        if (w->seq[stream] > 0) put_wait(w, stream, ZX_PASS_sync, step, w->whole[a->what]);
}

static void do_act(writer *w, const zx_act *a, uint32_t step)
{
    const zx_schedule *s = w->e->s;
    switch ((zx_act_kind)a->kind) {
    case ZX_ACT_BUCKET:
        do_bucket(w, a, step);
        break;
    case ZX_ACT_REDUCE:
        do_reduce(w, a);
        break;
    case ZX_ACT_DRAIN:
        put_wait(w, ZX_S_COMPUTE, ZX_PASS_emit, step, w->ready[a->what]);
        break;
    case ZX_ACT_FREE: {
        const uint32_t last = (uint32_t)(s->holds[a->what].gone - 1);
        put(w, ZX_I_FREE, ZX_S_COMPUTE, (zx_pass_id)a->by, last,
            w->e->slot_of_span[s->holds[a->what].span], ZX_NONE, w->e->p->n_events++);
        break;
    }
    case ZX_ACT_GATHER:
        do_gather(w, a, step);
        break;
    case ZX_ACT_AWAIT:
        do_await(w, a, step);
        break;
    case ZX_ACT_SYNC:
        do_sync(w, a, step);
        break;
    case ZX_ACT_HOOK:
        put(w, ZX_I_HOOK, ZX_S_COMPUTE, (zx_pass_id)a->by, step, a->what, ZX_NONE, ZX_NONE);
        break;
    }
}

// ---- the line -----------------------------------------------------------------------------------

static bool takes_bytes(const zx_schedule *s, const zx_act *a)
{
    if (a->kind == ZX_ACT_DRAIN)
        return s->transfers[a->what].late && s->transfers[a->what].at == a->at;
    return (a->kind == ZX_ACT_REDUCE && s->transfers[a->what].late) || a->kind == ZX_ACT_GATHER ||
           a->kind == ZX_ACT_AWAIT || a->kind == ZX_ACT_SYNC || a->kind == ZX_ACT_HOOK;
}

static void put_position(writer *w, int64_t p, int64_t end, uint32_t *at)
{
    const zx_schedule *s = w->e->s;
    const uint32_t step = p < end ? (uint32_t)p : ZX_NONE;
    if (w->copy_due[p]) put_wait(w, ZX_S_COMPUTE, ZX_PASS_emit, step, w->copied[p]);
    for (; *at < s->n_acts && s->acts[*at].at == p && !takes_bytes(s, &s->acts[*at]); ++*at)
        do_act(w, &s->acts[*at], step);
    if (p < end && w->gated[p]) w->gate[p] = mark_here(w, step);
    for (; *at < s->n_acts && s->acts[*at].at == p; ++*at) do_act(w, &s->acts[*at], step);
}

static void put_feeds(writer *w, uint32_t step)
{
    const zx_trace *t = w->e->t;
    const uint32_t s = step % t->n_steps;
    for (uint32_t i = 0; i < t->graph->n_inputs; i++)
        if (t->input_at[i] != ZX_NONE && t->storages[t->input_at[i]].born == s)
            put(w, ZX_I_FEED, ZX_S_COMPUTE, ZX_PASS_emit, step,
                w->e->slot_of_storage[t->input_at[i]], step / t->n_steps, ZX_NONE);
}

// Compute knows that every other stream is done with all it was given.
static void join_streams(writer *w)
{
    for (uint32_t s = 0; s < ZX_STREAM_COUNT; s++) {
        if (s == ZX_S_COMPUTE || w->seq[s] == 0 || w->known[ZX_S_COMPUTE][s] == w->seq[s]) continue;
        happening last = {w->last_event[s], w->last_seq[s], s};
        if (w->last_seq[s] < w->seq[s])
            last = put_event(w, ZX_I_MARK, s, ZX_PASS_emit, ZX_NONE, ZX_NONE, ZX_NONE);
        put_wait(w, ZX_S_COMPUTE, ZX_PASS_emit, ZX_NONE, last);
    }
}

static void put_line(writer *w)
{
    const zx_trace *t = w->e->t;
    const zx_graph *g = t->graph;
    const int64_t end = (int64_t)t->n_steps * t->micro_batches;
    bool *feeds = ZX_NEW(w->e->mem, bool, t->n_steps);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (t->input_at[i] != ZX_NONE) feeds[t->storages[t->input_at[i]].born] = true;
    uint32_t at = 0;
    for (int64_t p = 0; p <= end; p++) {
        const uint32_t step = (uint32_t)p;
        put_position(w, p, end, &at);
        if (p == end) break;
        if (feeds[step % t->n_steps]) put_feeds(w, step);
        put(w, ZX_I_EXEC, ZX_S_COMPUTE, ZX_PASS_emit, step, step, ZX_NONE, ZX_NONE);
        const uint32_t micro = step / t->n_steps;
        if (step % t->n_steps == t->loss_ready)
            put(w, ZX_I_LOSS, ZX_S_COMPUTE, ZX_PASS_emit, step, zx_emit_loss_slot(w->e, micro),
                micro, ZX_NONE);
    }
    join_streams(w);
}

// ---- the update ---------------------------------------------------------------------------------

// Stages 1 and 2 keep parameters whole: what each rank updated goes to all.
static void put_updates(writer *w)
{
    zx_emitter *e = w->e;
    const zx_graph *g = e->t->graph;
    const zx_plan_options *o = e->o;
    const bool spread = (o->stage == 1 || o->stage == 2) && o->ranks > 1;
    for (uint32_t u = 0; u < g->n_params;) {
        uint64_t bytes = 0;
        uint32_t launch = ZX_NONE;
        for (; u < g->n_params; u++) {
            if (!zx_param_trained(g, u)) continue;
            if (launch != ZX_NONE && bytes + e->s->unit_bytes[u] > e->s->update_launch) break;
            put(w, ZX_I_UPDATE, ZX_S_COMPUTE, ZX_PASS_emit, ZX_NONE, u, ZX_NONE, ZX_NONE);
            bytes += e->s->unit_bytes[u];
            if (!spread) continue;
            if (launch == ZX_NONE) launch = zx_emit_open_launch(e);
            zx_emit_add_member(e, u, e->units[u].param_slot, ZX_NONE);
        }
        if (launch == ZX_NONE) continue;
        put_wait(w, ZX_S_GATHER, ZX_PASS_emit, ZX_NONE, mark_here(w, ZX_NONE));
        const happening h =
            put_event(w, ZX_I_GATHER, ZX_S_GATHER, ZX_PASS_prefetch, ZX_NONE, launch, ZX_NONE);
        if (o->no_overlap) put_wait(w, ZX_S_COMPUTE, ZX_PASS_emit, ZX_NONE, h);
    }
    join_streams(w);
}

static bool buffer_changes(const zx_trace *t, uint32_t b)
{
    const zx_buffer *x = &t->graph->buffers[b];
    return x->next != ZX_NONE && t->root[x->next] != x->value;
}

static void find_gates(writer *w)
{
    const zx_schedule *s = w->e->s;
    for (uint32_t i = 0; i < s->n_transfers; i++) {
        const zx_transfer *x = &s->transfers[i];
        if (x->reduce) continue;
        w->gated[x->gate] = true;
        if (x->flat) w->gated[x->unpack] = true;
    }
}

void zx_emit_insns(zx_emitter *e)
{
    const zx_graph *g = e->t->graph;
    const size_t positions = (size_t)e->t->n_steps * e->t->micro_batches + 1;
    const uint32_t n = e->s->n_transfers;
    writer w = {.e = e,
                .mark = ZX_NONE,
                .gated = ZX_NEW(e->mem, bool, positions),
                .gate = ZX_NEW(e->mem, happening, positions),
                .copied = ZX_NEW(e->mem, happening, positions),
                .copy_due = ZX_NEW(e->mem, bool, positions),
                .ready = ZX_NEW(e->mem, happening, n + 1),
                .packed = ZX_NEW(e->mem, happening, n + 1),
                .whole = ZX_NEW(e->mem, happening, n + 1)};
    find_gates(&w);
    put_line(&w);
    put(&w, ZX_I_NORM, ZX_S_COMPUTE, ZX_PASS_emit, ZX_NONE, ZX_NONE, ZX_NONE, ZX_NONE);
    for (uint32_t b = 0; b < g->n_buffers; b++)
        if (buffer_changes(e->t, b))
            put(&w, ZX_I_COMMIT, ZX_S_COMPUTE, ZX_PASS_emit, ZX_NONE, b, ZX_NONE, ZX_NONE);
    put_updates(&w);
}
