// session.c - opening a session, one step of it, and reading what it holds; see session.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/eval.h"
#include "runtime/exec.h"
#include "runtime/memory.h"

#define SPINS 2000 // looks before a sleep where every thread has a core: about 20 us

uint32_t zx_optim_states(const zx_optim *o)
{
    if (o->kind == ZX_OPTIM_ADAM) return 2;
    if (o->kind == ZX_OPTIM_LION) return 1;
    return o->momentum != 0 ? 1 : 0;
}

zx_status zx_session_work_bytes(const zx_graph *train, uint32_t threads, uint64_t *work_bytes,
                                zx_err *err)
{
    return zx_session_work_bytes_at(NULL, train, threads, work_bytes, err);
}

zx_status zx_session_node_work(const zx_site *site, const zx_graph *train, uint32_t node,
                               uint32_t threads, uint64_t *bytes, zx_err *err)
{
    void *state = NULL;
    const zx_kernel *k = zx_site_backend(site)->kernel(train->nodes[node].op);
    *bytes = 0;
    if (zx_ops[train->nodes[node].op].flags & ZX_OP_VIEW) return ZX_OK;
    const zx_status st = zx_exec_prepare_node(site, train, node, (int)threads, bytes, &state, err);
    if (state != NULL && k->release != NULL) k->release(state);
    return st;
}

zx_status zx_session_work_bytes_at(const zx_site *site, const zx_graph *train, uint32_t threads,
                                   uint64_t *work_bytes, zx_err *err)
{
    ZX_TRY(zx_backend_check(zx_site_backend(site), train, err));
    for (uint32_t n = 0; n < train->n_nodes; n++)
        ZX_TRY(zx_session_node_work(site, train, n, threads, &work_bytes[n], err));
    return ZX_OK;
}

// ---- opening ------------------------------------------------------------------------------------

static zx_status refuse(const zx_session *s, uint32_t param, zx_err *err)
{
    zx_arena mem = {0};
    const zx_value *v = &s->graph->values[s->graph->params[param].value];
    const zx_status st = ZX_FAIL(
        err, ZX_E_UNSUPPORTED, "parameter '%s' is %s: they are float32, or of one type of 16 bits",
        zx_text_safe(&mem, s->graph->params[param].name), zx_dtypes[v->type.dtype].word);
    zx_arena_free(&mem);
    return st;
}

// Parameters are f32, or of one type of 16 bits; the plan says so too.
static zx_status check_precision(zx_session *s, zx_err *err)
{
    const zx_graph *g = s->graph;
    s->half = ZX_F32;
    for (uint32_t i = 0; i < g->n_params; i++) {
        const zx_dtype t = g->values[g->params[i].value].type.dtype;
        const bool known = t == ZX_F16 || t == ZX_BF16;
        if (t == ZX_F32) continue;
        if (!known || (s->half != ZX_F32 && s->half != t)) return refuse(s, i, err);
        s->half = t;
    }
    return ZX_OK;
}

static zx_status check_plan(zx_session *s, zx_err *err)
{
    const zx_plan *p = s->plan;
    ZX_TRY(check_precision(s, err));
    ZX_TRY(zx_plan_check(s->graph, p, err));
    if (p->graph_hash != zx_graph_hash(s->graph))
        return ZX_FAIL(err, ZX_E_DEVICE, "the plan was made for another train graph");
    if (p->ranks != s->ranks)
        return ZX_FAIL(err, ZX_E_DEVICE, "the plan was made for %u ranks, there are %u", p->ranks,
                       s->ranks);
    return ZX_OK;
}

static void make_boards(zx_session *s)
{
    uint64_t n = sizeof(zx_board) +
                 sizeof(double) * (2 * (uint64_t)s->plan->micro_batches + s->plan->n_units);
    if (n < sizeof(zx_end_board)) n = sizeof(zx_end_board);
    n = zx_align_up(n, ZX_ALIGN);
    s->board_bytes = n;
    s->board = zx_arena_alloc(&s->mem, 1, n, ZX_ALIGN);
    s->boards = zx_arena_alloc(&s->mem, s->ranks, n, ZX_ALIGN);
    s->end_board = zx_arena_alloc(&s->mem, 1, n, ZX_ALIGN);
    s->end_boards = zx_arena_alloc(&s->mem, s->ranks, n, ZX_ALIGN);
}

static zx_status open_parts(zx_session *s, zx_err *err)
{
    zx_world *w = s->o.world;
    ZX_TRY(zx_world_agree(w, check_plan(s, err), err));
    ZX_TRY(zx_world_same(w, "the plan", zx_plan_hash(s->plan), err));
    make_boards(s);
    s->base = ZX_NEW(&s->mem, unsigned char *, s->ranks);
    ZX_TRY(s->backend->reserve(s, err));
    const zx_comm_args a = {.plan = s->plan,
                            .base = s->base,
                            .half = s->half,
                            .patience = s->patience,
                            .board_bytes = s->board_bytes,
                            .bandwidth = s->o.bandwidth,
                            .latency_seconds = s->o.latency_seconds};
    ZX_TRY(s->transport->open(&a, &s->comm, err));
    zx_status st = zx_exec_prepare(s, err);
    if (st == ZX_OK && s->o.from != NULL) st = zx_exec_take_over(s, err);
    if (st == ZX_OK && s->o.from == NULL) st = zx_exec_fill(s, err);
    if (st == ZX_OK) st = s->backend->start(s, err);
    s->scale = s->o.from != NULL ? s->o.from->scale : 1; // that of the seed, which was taken over
    return zx_world_agree(w, st, err);
}

zx_status zx_session_open(const zx_graph *train, const zx_plan *plan, const zx_session_options *o,
                          zx_session **out, zx_err *err)
{
    *out = NULL;
    zx_session *s = calloc(1, sizeof *s);
    ZX_ASSERT(s != NULL);
    s->graph = train;
    s->plan = plan;
    s->o = *o;
    s->backend = zx_site_backend(&o->site);
    s->rank = zx_world_rank(o->world);
    s->ranks = zx_world_size(o->world);
    s->transport = &zx_comm_shm;
    s->timed = o->profile || o->bandwidth > 0 || o->latency_seconds > 0;
    // A rank has `threads` compute threads and two that move bytes.
    const bool roomy = (uint64_t)s->ranks * (o->threads + 2) <= zx_memory_cores();
    s->patience = (zx_patience){.world = o->world, .spins = roomy ? SPINS : 0};
    s->own = (zx_patience){.spins = s->patience.spins};
    const zx_status st = open_parts(s, err);
    if (st == ZX_OK)
        *out = s;
    else
        zx_session_close(s);
    return st;
}

bool zx_session_lost(const zx_session *s)
{
    return s->lane[ZX_S_COMPUTE].broken || s->fatal.code != ZX_OK || zx_world_lost(s->o.world);
}

void zx_session_close(zx_session *s)
{
    if (s == NULL) return;
    s->backend->stop(s);
    zx_exec_release(s);
    s->transport->close(s->comm);
    s->backend->release(s);
    zx_arena_free(&s->mem);
    free(s->seen);
    free(s);
}

// ---- a step -------------------------------------------------------------------------------------

// The lowest rank's fault, on every rank alike.
static zx_status say_fault(const zx_session *s, zx_err *err)
{
    for (uint32_t r = 0; r < s->ranks; r++) {
        const zx_board *b = zx_board_of(s, r);
        const bool failed = b->failed != ZX_OK;
        if (!failed && b->fault.kind == ZX_FAULT_NONE) continue;
        const uint32_t step = failed ? b->failed_step : b->fault.step;
        const zx_plan_step *t = &s->plan->steps[step];
        const zx_node *n = &s->graph->nodes[t->node];
        const uint64_t micro = s->first_micro + (uint64_t)t->micro * s->ranks + r;
        zx_arena mem = {0};
        char text[ZX_FAULT_TEXT];
        const zx_status st = ZX_FAIL(
            err, failed ? (zx_status)b->failed : ZX_E_DATA,
            "%s: %s (micro-batch %" PRIu64 ", rank %u)", zx_exec_node_text(s->graph, n, &mem),
            failed ? b->failure : zx_fault_text(&b->fault, text), micro, r);
        zx_err_in(err, "%s", zx_text_safe(&mem, s->graph->name));
        zx_arena_free(&mem);
        return st;
    }
    return ZX_OK;
}

static bool exchange_end(zx_session *s, double seconds, zx_step_report *out)
{
    zx_end_board *e = s->end_board;
    const zx_lane *c = &s->lane[ZX_S_COMPUTE];
    *e = (zx_end_board){.seconds = seconds,
                        .compute_seconds = c->compute_seconds,
                        .exposed_seconds = c->exposed_seconds,
                        .stop = atomic_load(&s->stop)};
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++)
        if (s->lane[k].peak > e->peak_bytes) e->peak_bytes = s->lane[k].peak;
    if (!s->transport->exchange(s->comm, e, s->end_boards)) return false;
    for (uint32_t r = 0; r < s->ranks; r++) {
        e = (zx_end_board *)(void *)((unsigned char *)s->end_boards + r * s->board_bytes);
        out->stop = out->stop || e->stop != 0;
        if (e->seconds > out->seconds) out->seconds = e->seconds;
        if (e->peak_bytes > out->peak_bytes) out->peak_bytes = e->peak_bytes;
        if (e->compute_seconds > out->compute_seconds) out->compute_seconds = e->compute_seconds;
        if (e->exposed_seconds > out->exposed_seconds) out->exposed_seconds = e->exposed_seconds;
    }
    return true;
}

// Why ranks no longer run together: this rank's own reason is the better sentence.
static zx_status lost(const zx_session *s, zx_err *err)
{
    if (s->fatal.code != ZX_OK) return zx_err_merge(err, &s->fatal);
    return zx_world_why(s->o.world, err);
}

zx_status zx_session_step(zx_session *s, uint64_t step, uint64_t first_micro, double lr,
                          zx_step_report *out, zx_err *err)
{
    *out = (zx_step_report){0};
    if (s->lane[ZX_S_COMPUTE].broken || zx_world_lost(s->o.world)) return lost(s, err);
    s->mode = ZX_RUN_STEP;
    s->step = step;
    s->first_micro = first_micro;
    s->lr = lr;
    const double from = zx_seconds();
    if (!s->backend->run(s) || !exchange_end(s, zx_seconds() - from, out)) return lost(s, err);
    out->loss = s->loss;
    out->grad_norm = s->norm;
    out->applied = s->applied;
    out->loss_scale = s->scale;
    if (out->peak_bytes > s->plan->arena_bytes)
        return ZX_FAIL(err, ZX_E_DEVICE,
                       "the step touched %" PRIu64 " bytes, its plan has %" PRIu64, out->peak_bytes,
                       s->plan->arena_bytes);
    return say_fault(s, err);
}

zx_status zx_session_scale(zx_session *s, double scale, zx_err *err)
{
    if (zx_exec_scale(s, scale)) return ZX_OK;
    if (s->fatal.code != ZX_OK) return zx_err_merge(err, &s->fatal);
    return ZX_FAIL(err, ZX_E_DEVICE, "the graph has no place for a loss scale");
}

bool zx_session_profile(const zx_session *s, const double **start, const double **seconds)
{
    *start = s->start;
    *seconds = s->seconds;
    return s->o.profile;
}

void zx_session_ask_stop(zx_session *s)
{
    atomic_store(&s->stop, 1);
}

void zx_session_loss(const zx_session *s, uint32_t rank, uint32_t micro, double *sum,
                     double *labels)
{
    zx_board *b = zx_board_of(s, rank);
    *sum = b->loss[micro];
    *labels = *zx_board_count(s, b, micro);
}

// ---- reading ------------------------------------------------------------------------------------

// What of a unit is read: the slot that holds it, whole or in shards, and what its elements are.
typedef struct source {
    uint32_t slot;
    bool whole;
    zx_dtype type;
} source;

static source source_of(const zx_session *s, const zx_unit *u, zx_read_kind kind)
{
    if (kind == ZX_READ_GRAD)
        return (source){u->grad_slot, u->grad_whole != 0, zx_unit_type(s, u->grad_bytes)};
    if (kind == ZX_READ_PARAM && u->master_slot != ZX_NONE)
        return (source){u->master_slot, u->state_whole != 0, ZX_F32};
    return (source){u->param_slot, u->param_whole != 0, zx_unit_type(s, u->param_bytes)};
}

#define WIDENED 4096 // elements at a time

// Elements of 16 bits at the end of `out` as float32 from its beginning on, in place.
static void widen_in_place(zx_dtype t, float *out, int64_t n)
{
    uint16_t some[WIDENED];
    const uint16_t *halves = (const uint16_t *)(const void *)out + n;
    for (int64_t at = 0; at < n; at += WIDENED) {
        const int64_t m = n - at < WIDENED ? n - at : WIDENED;
        memcpy(some, halves + at, (size_t)m * sizeof *some);
        zx_cpu_widen(t, some, out + at, m);
    }
}

// Elements [from, from + n) on rank 0: as they are kept, or as float32.
static bool read_unit(zx_session *s, const zx_unit *u, const source *x, bool kept, int64_t from,
                      int64_t n, void *out)
{
    const uint64_t base = s->plan->slots[x->slot].offset, size = zx_dtype_bytes(x->type);
    const bool widens = !kept && x->type != ZX_F32;
    unsigned char *first = out;
    if (widens && s->rank == 0) first += (uint64_t)n * size;
    for (uint32_t r = 0; r < s->ranks; r++) {
        int64_t at;
        const int64_t piece = zx_unit_piece(u, r, &at);
        const int64_t lo = from > at ? from : at;
        const int64_t hi = from + n < at + piece ? from + n : at + piece;
        if (lo >= hi) continue;
        const int64_t place = x->whole ? lo : lo - at;
        void *to = s->rank == 0 ? first + (uint64_t)(lo - from) * size : NULL;
        if (!s->backend->fetch(s, x->whole ? 0 : r, base + (uint64_t)place * size, to,
                               (uint64_t)(hi - lo) * size))
            return false;
    }
    if (widens && s->rank == 0) widen_in_place(x->type, out, n);
    return true;
}

static void unscale(const zx_session *s, float *g, int64_t n)
{
    for (int64_t i = 0; i < n; i++) g[i] = (float)((double)g[i] / s->scale);
}

static bool read_here(zx_session *s, zx_read_kind kind, uint32_t index, int64_t from, int64_t n,
                      void *out)
{
    bool ok = true;
    if (kind == ZX_READ_BUFFER) {
        const zx_type *t = &s->graph->values[s->graph->buffers[index].value].type;
        const uint64_t size = zx_dtype_bytes(t->dtype);
        const uint64_t base = s->plan->slots[s->buffer_slot[index]].offset;
        return s->backend->fetch(s, 0, base + (uint64_t)from * size, out, (uint64_t)n * size);
    }
    if (s->rank == 0 && kind != ZX_READ_KEPT) // the gradient of what isn't trained
        memset(out, 0, (size_t)n * sizeof(float));
    for (uint32_t i = 0; i < s->plan->n_units && ok; i++) {
        const zx_unit *u = &s->plan->units[i];
        if (u->param != index) continue;
        const source x = source_of(s, u, kind);
        if (x.slot != ZX_NONE) ok = read_unit(s, u, &x, kind == ZX_READ_KEPT, from, n, out);
    }
    if (ok && kind == ZX_READ_GRAD && s->scale != 1 && s->rank == 0) unscale(s, out, n);
    if (kind == ZX_READ_GRAD && s->rank == 0 && s->grad_factor != 1)
        for (int64_t i = 0; i < n; i++) ((float *)out)[i] *= (float)s->grad_factor;
    return ok;
}

zx_status zx_session_read(zx_session *s, zx_read_kind kind, uint32_t index, int64_t from, int64_t n,
                          void *out, zx_err *err)
{
    // Nobody is in a step while rank 0 reads the others' memory.
    if (s->transport->barrier(s->comm) && (n == 0 || read_here(s, kind, index, from, n, out)) &&
        s->transport->barrier(s->comm))
        return ZX_OK;
    zx_err why = {0};
    lost(s, &why);
    if (s->fatal.code == ZX_OK) zx_err_in(&why, "reading values back");
    zx_err_merge(err, &why);
    return why.code;
}

// Of a parameter that has no float32 copy, since it isn't trained.
static const void *see_halves(zx_session *s, const void *at, int64_t n)
{
    const void *halves = s->backend->see(s, at, (uint64_t)n * sizeof(uint16_t));
    if (halves == NULL) return NULL;
    float *room = realloc(s->seen, (size_t)n * sizeof *room + 1);
    if (room == NULL) return NULL;
    s->seen = room;
    zx_cpu_widen(s->half, halves, room, n);
    return room;
}

const void *zx_session_see(zx_session *s, zx_held what, int64_t from, int64_t n)
{
    uint32_t slot, whole = 1;
    uint64_t size = sizeof(float);
    int64_t first = 0;
    if (what.kind == ZX_HELD_BUFFER) {
        slot = s->buffer_slot[what.index];
        size = zx_dtype_bytes(s->graph->values[s->graph->buffers[what.index].value].type.dtype);
    } else {
        const zx_unit *u = &s->plan->units[what.index];
        const bool param = what.kind == ZX_HELD_PARAM && u->master_slot == ZX_NONE;
        whole = param ? u->param_whole : u->state_whole;
        slot = param                        ? u->param_slot
               : what.kind == ZX_HELD_PARAM ? u->master_slot
                                            : u->state_slot[what.kind - ZX_HELD_STATE_0];
        if (whole == 0) zx_unit_piece(u, s->rank, &first);
        if (param) size = u->param_bytes;
    }
    const unsigned char *at = zx_slot_at(s, slot);
    at += (uint64_t)(from - first) * size;
    if (what.kind != ZX_HELD_BUFFER && size != sizeof(float)) return see_halves(s, at, n);
    return s->backend->see(s, at, (uint64_t)n * size);
}
