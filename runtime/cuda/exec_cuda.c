// exec_cuda.c - the loop over a plan's instructions on a GPU.
//
// One host thread queues them in plan order, each on its stream, and events hold streams back as
// the plan says; it waits for the device twice a step: at NORM, which decides whether weights may
// change, and at the end. The order is the same on every rank, so collectives are queued alike.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "graph/count_loss.h"
#include "runtime/cuda/gpu.h"

typedef bool insn_fn(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q);

// ---- how far streams have come ------------------------------------------------------------------

static cudaError_t look(zx_session *s)
{
    zx_gpu *g = s->gpu;
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++)
        while (g->reached[k] < g->queued[k]) {
            const cudaEvent_t done = g->done[s->lane[k].insns[g->reached[k]]];
            const cudaError_t e = done == NULL ? cudaSuccess : cudaEventQuery(done);
            if (e == cudaErrorNotReady) break;
            if (e != cudaSuccess) return e;
            g->reached[k]++;
            g->moved = zx_seconds();
        }
    return cudaSuccess;
}

static bool fail_late(zx_session *s, cudaError_t e)
{
    zx_err why = {0};
    zx_cuda_check(e, "CUDA", &why);
    return zx_gpu_fail_late(s, &why);
}

bool zx_gpu_settle(zx_session *s, cudaStream_t q)
{
    s->gpu->moved = zx_seconds();
    for (uint32_t turn = 0;; turn++) {
        zx_gpu_enter(s);
        const cudaError_t queued = cudaStreamQuery(q);
        const cudaError_t e = queued == cudaErrorNotReady ? look(s) : queued;
        if (e != cudaSuccess) return fail_late(s, e);
        if (queued == cudaSuccess) return true;
        if (turn < 100) continue;
        if (!zx_gpu_well(s)) return false;
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

// ---- streams ------------------------------------------------------------------------------------

static bool run_wait(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q)
{
    return zx_gpu_check(s, at, cudaStreamWaitEvent(q, s->gpu->event[i->a], 0));
}

static bool run_mark(zx_session *s ZX_UNUSED, uint32_t at ZX_UNUSED, const zx_insn *i ZX_UNUSED,
                     cudaStream_t q ZX_UNUSED)
{
    return true; // its event is recorded, as every instruction's is
}

static bool run_free(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q)
{
    if (!s->o.poison) return true;
    return zx_gpu_check(
        s, at, cudaMemsetAsync(zx_slot_at(s, i->a), 0xff, (size_t)s->plan->slots[i->a].bytes, q));
}

static bool run_hook(zx_session *s ZX_UNUSED, uint32_t at ZX_UNUSED, const zx_insn *i ZX_UNUSED,
                     cudaStream_t q ZX_UNUSED)
{
    return true;
}

// ---- copies -------------------------------------------------------------------------------------

static bool copy(zx_session *s, uint32_t at, unsigned char *to, const unsigned char *from,
                 uint64_t bytes, cudaStream_t q)
{
    if (bytes == 0) return true;
    return zx_gpu_check(s, at,
                        cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, q));
}

static bool copy_padded(zx_session *s, uint32_t at, unsigned char *to, const unsigned char *from,
                        uint64_t bytes, uint64_t room, cudaStream_t q)
{
    if (!copy(s, at, to, from, bytes, q) || room <= bytes) return s->fatal.code == ZX_OK;
    return zx_gpu_check(s, at, cudaMemsetAsync(to + bytes, 0, (size_t)(room - bytes), q));
}

// As exec_copy.c: a flat slot is a row a rank, a row is a shard of each member.
static bool pack_piece(zx_session *s, uint32_t at, const zx_launch *l, const zx_member *m,
                       uint32_t r, const unsigned char *from, int64_t n, cudaStream_t q)
{
    const zx_unit *u = &s->plan->units[m->unit];
    const uint32_t size = u->param_bytes;
    const uint64_t row = zx_launch_row(s->plan, l);
    return copy_padded(s, at, zx_gpu_element(s, l->flat, (int64_t)(r * row + m->at), size), from,
                       (uint64_t)n * size, (uint64_t)u->shard * size, q);
}

static bool pack_member(zx_session *s, uint32_t at, const zx_launch *l, const zx_member *m,
                        bool gathers, cudaStream_t q)
{
    const zx_unit *u = &s->plan->units[m->unit];
    const uint32_t size = u->param_bytes, made = m->part != ZX_NONE ? m->part : m->slot;
    int64_t from;
    if (gathers) {
        const int64_t n = zx_unit_piece(u, s->rank, &from);
        return pack_piece(s, at, l, m, s->rank,
                          zx_gpu_element(s, u->param_slot, u->param_whole ? from : 0, size), n, q);
    }
    bool ok = true;
    for (uint32_t r = 0; r < s->ranks && ok; r++) {
        const int64_t n = zx_unit_piece(u, r, &from);
        ok = pack_piece(s, at, l, m, r, zx_gpu_element(s, made, from, size), n, q);
    }
    return ok;
}

static bool run_pack(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q)
{
    const zx_plan *p = s->plan;
    const zx_launch *l = &p->launches[i->a];
    const bool gathers = zx_launch_gathers(p, l);
    bool ok = true;
    for (uint32_t k = l->member; k < l->member + l->n_members && ok; k++)
        ok = pack_member(s, at, l, &p->members[k], gathers, q);
    return ok;
}

static bool run_unpack(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q)
{
    const zx_plan *p = s->plan;
    const zx_launch *l = &p->launches[i->a];
    const uint64_t row = zx_launch_row(p, l);
    bool ok = true;
    for (uint32_t k = l->member; k < l->member + l->n_members; k++) {
        const zx_member *m = &p->members[k];
        const uint32_t size = p->units[m->unit].param_bytes;
        const uint64_t shard = (uint64_t)p->units[m->unit].shard * size; // with its pad, which is 0
        unsigned char *to = zx_slot_at(s, m->slot);
        for (uint32_t r = 0; r < s->ranks && ok; r++)
            ok = copy(s, at, to + r * shard,
                      zx_gpu_element(s, l->flat, (int64_t)(r * row + m->at), size), shard, q);
    }
    return ok;
}

static bool run_bucket(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q)
{
    const zx_member *m = &s->plan->members[s->plan->launches[i->a].member + i->b];
    const zx_unit *u = &s->plan->units[m->unit];
    return copy(s, at, zx_slot_at(s, m->part), zx_slot_at(s, m->slot),
                (uint64_t)u->numel * u->param_bytes, q);
}

// ---- collectives --------------------------------------------------------------------------------

static bool run_gather(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q)
{
    return s->gpu->comm->gather(s, at, &s->plan->launches[i->a], q);
}
static bool run_reduce(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q)
{
    return s->gpu->comm->reduce(s, at, &s->plan->launches[i->a], i->b != 0, false, q);
}
static bool run_allreduce(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q)
{
    return s->gpu->comm->reduce(s, at, &s->plan->launches[i->a], i->b != 0, true, q);
}

// ---- kernels ------------------------------------------------------------------------------------

static uint64_t input_bytes(const zx_session *s, const zx_insn *i)
{
    const uint32_t value = s->graph->inputs[s->plan->slots[i->a].what];
    return zx_type_bytes(&s->graph->values[value].type);
}

static bool run_feed(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q)
{
    unsigned char *here = s->gpu->fed + s->gpu->fed_at[at];
    const uint64_t micro = s->first_micro + (uint64_t)i->b * s->ranks + s->rank;
    zx_gpu_leave(s); // data may take its time
    s->o.feed.fill(s->o.feed.self, s->plan->slots[i->a].what, micro, here);
    zx_gpu_enter(s);
    return zx_gpu_check(s, at,
                        cudaMemcpyAsync(zx_slot_at(s, i->a), here, (size_t)input_bytes(s, i),
                                        cudaMemcpyHostToDevice, q));
}

static bool run_exec(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q ZX_UNUSED)
{
    static const zx_fault none = {0};
    zx_err *err = &s->kernel_err;
    if (s->mode == ZX_RUN_LOOK) zx_look_before(s, i->a);
    const zx_status st = s->kernel[i->a]->run(&s->calls[i->a], err);
    if (st == ZX_E_DEVICE) return zx_gpu_fail(s, at, err);
    if (st != ZX_OK) zx_exec_note(s, i->a, st, err, &none);
    if (s->mode == ZX_RUN_LOOK) zx_look_after(s, i->a);
    return s->fatal.code == ZX_OK;
}

static bool run_loss(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q)
{
    return zx_gpu_check(s, at,
                        cudaMemcpyAsync(&s->gpu->loss[2 * i->b], zx_slot_at(s, i->a),
                                        (zx_loss_is_counted(s->graph) ? 2 : 1) * sizeof(float),
                                        cudaMemcpyDeviceToHost, q));
}

// ---- the end of a step --------------------------------------------------------------------------

static bool sum_squares(zx_session *s, uint32_t at, cudaStream_t q)
{
    zx_gpu *g = s->gpu;
    zx_err *err = &s->kernel_err;
    const uint32_t n_units = s->plan->n_units;
    if (n_units == 0) return true;
    if (!zx_gpu_check(s, at, cudaMemsetAsync(g->sums, 0, n_units * sizeof *g->sums, q)))
        return false;
    for (uint32_t u = 0; u < n_units; u++) {
        const zx_unit *unit = &s->plan->units[u];
        int64_t from;
        const int64_t n = zx_unit_piece(unit, s->rank, &from);
        if (unit->grad_slot == ZX_NONE || n <= 0) continue;
        const uint32_t size = unit->grad_bytes;
        const void *x = zx_gpu_element(s, unit->grad_slot, unit->grad_whole ? from : 0, size);
        if (zx_cuda_square_sum_of(zx_unit_type(s, size), x, n, g->work, &g->sums[u], g->at, err) !=
            ZX_OK)
            return zx_gpu_fail(s, at, err);
    }
    return zx_gpu_check(
        s, at,
        cudaMemcpyAsync(g->squares, g->sums, n_units * sizeof *g->sums, cudaMemcpyDeviceToHost, q));
}

static bool run_norm(zx_session *s, uint32_t at, const zx_insn *i ZX_UNUSED, cudaStream_t q)
{
    const zx_gpu *g = s->gpu;
    const zx_plan *p = s->plan;
    if (!sum_squares(s, at, q) || !zx_gpu_settle(s, q)) return false;
    zx_gpu_leave(s); // other ranks may take theirs
    const bool counted = zx_loss_is_counted(s->graph);
    for (uint32_t k = 0; k < p->micro_batches; k++) {
        s->board->loss[k] = (double)g->loss[2 * k];
        *zx_board_count(s, s->board, k) = counted ? (double)g->loss[2 * k + 1] : 1;
    }
    for (uint32_t u = 0; u < p->n_units; u++) s->board->loss[p->micro_batches + u] = g->squares[u];
    for (uint32_t k = 0; k < p->n_steps; k++)
        if (g->faults[k].kind != ZX_FAULT_NONE) zx_exec_note(s, k, ZX_OK, NULL, &g->faults[k]);
    if (!s->transport->exchange(s->comm, s->board, s->boards)) return false;
    zx_exec_decide(s);
    return true;
}

static bool run_update(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q ZX_UNUSED)
{
    const zx_unit *u = &s->plan->units[i->a];
    zx_err *err = &s->kernel_err;
    int64_t from = 0, n = u->numel;
    if (!s->applied || u->grad_slot == ZX_NONE) return true;
    if (!u->state_whole) n = zx_unit_piece(u, s->rank, &from);
    if (n <= 0) return true;
    void *param = zx_gpu_element(s, u->param_slot, u->param_whole ? from : 0, u->param_bytes);
    const bool mixed = u->master_slot != ZX_NONE;
    const zx_mixed x = {
        .low_type = mixed ? zx_unit_type(s, u->param_bytes) : ZX_F32,
        .g_type = zx_unit_type(s, u->grad_bytes),
        .low = mixed ? param : NULL,
        .g = zx_gpu_element(s, u->grad_slot, u->grad_whole ? from : 0, u->grad_bytes)};
    float *p = mixed ? zx_slot_at(s, u->master_slot) : param;
    float *state[2];
    for (uint32_t k = 0; k < 2; k++)
        state[k] = u->state_slot[k] == ZX_NONE ? NULL : zx_slot_at(s, u->state_slot[k]);
    const zx_adam_args adam = zx_exec_adam(s, u);
    const zx_lion_args lion = zx_exec_lion(s, u);
    const zx_sgd_args sgd = zx_exec_sgd(s, u);
    const zx_optim_kind kind = s->o.optim.kind;
    const zx_status st =
        kind == ZX_OPTIM_ADAM
            ? zx_cuda_adam_mixed(p, &x, state[0], state[1], n, &adam, s->gpu->at, err)
        : kind == ZX_OPTIM_LION ? zx_cuda_lion_mixed(p, &x, state[0], n, &lion, s->gpu->at, err)
                                : zx_cuda_sgd_mixed(p, &x, state[0], n, &sgd, s->gpu->at, err);
    return st == ZX_OK || zx_gpu_fail(s, at, err);
}

static bool reset_working(zx_session *s, uint32_t at, cudaStream_t q)
{
    bool ok = true;
    for (uint32_t b = 0; b < s->graph->n_buffers && ok; b++) {
        const uint32_t from = s->buffer_slot[b], to = s->working_slot[b];
        if (from == ZX_NONE || to == ZX_NONE) continue;
        const zx_type *t = &s->graph->values[s->graph->buffers[b].value].type;
        ok = zx_gpu_check(s, at,
                          cudaMemcpyAsync(zx_slot_at(s, to), zx_slot_at(s, from),
                                          (size_t)zx_type_bytes(t), cudaMemcpyDeviceToDevice, q));
    }
    return ok;
}

void zx_gpu_reset_working(zx_session *s)
{
    const cudaStream_t q = s->gpu->at->stream;
    zx_gpu_enter(s);
    if (reset_working(s, ZX_NONE, q)) zx_gpu_settle(s, q);
    zx_gpu_leave(s);
}

static bool run_commit(zx_session *s, uint32_t at, const zx_insn *i, cudaStream_t q)
{
    if (s->applied) {
        const zx_type *t = &s->graph->values[s->graph->buffers[i->a].value].type;
        const uint32_t from = s->working_slot[i->a], to = s->buffer_slot[i->a];
        if (!s->gpu->comm->mean(s, at, from, to, t, q)) return false;
    }
    return at != s->last_commit || reset_working(s, at, q);
}

// ---- the loop -----------------------------------------------------------------------------------

static insn_fn *const handlers[ZX_INSN_COUNT] = {
#define ZX_INSN(id, word, a, b, c, handler, what) [ZX_I_##id] = run_##handler,
#include "sched/insns.def"
#undef ZX_INSN
};

static bool record(zx_session *s, uint32_t at, cudaEvent_t e, cudaStream_t q)
{
    return e == NULL || zx_gpu_check(s, at, cudaEventRecord(e, q));
}

static bool queue(zx_session *s, uint32_t at)
{
    zx_gpu *g = s->gpu;
    const zx_insn *i = &s->plan->insns[at];
    const cudaStream_t q = g->stream[i->stream];
    zx_lane *l = &s->lane[i->stream];
    const bool sets = i->id != ZX_I_UPDATE && i->id != ZX_I_COMMIT && i->c < s->plan->n_events;
    g->last_at = at;
    zx_gpu_enter(s);
    if (s->touch[at] > l->peak) l->peak = s->touch[at];
    if (!record(s, at, g->begun[at], q) || !handlers[i->id](s, at, i, q)) return false;
    if (!record(s, at, g->done[at], q)) return false;
    if (sets && !record(s, at, g->event[i->c], q)) return false;
    g->queued[i->stream]++;
    if (g->serial && !zx_gpu_settle(s, q)) return false;
    const cudaError_t e = look(s);
    return e == cudaSuccess || fail_late(s, e);
}

// Milliseconds as CUDA measures them, in seconds; 0 where they can't be told.
static double between(cudaEvent_t from, cudaEvent_t to)
{
    float ms = 0;
    return cudaEventElapsedTime(&ms, from, to) == cudaSuccess ? 1e-3 * (double)ms : 0;
}

static void take_times(zx_session *s)
{
    const zx_gpu *g = s->gpu;
    zx_lane *c = &s->lane[ZX_S_COMPUTE];
    for (uint32_t at = 0; at < s->plan->n_insns; at++) {
        const zx_insn *i = &s->plan->insns[at];
        if (g->begun[at] == NULL) continue;
        const double seconds = between(g->begun[at], g->done[at]);
        if (i->id == ZX_I_WAIT && i->stream == ZX_S_COMPUTE && s->foreign[i->a])
            c->exposed_seconds += seconds;
        if (!s->o.profile) continue;
        s->start[at] = between(g->first, g->begun[at]);
        s->seconds[at] = seconds;
    }
    c->compute_seconds = between(g->first, g->last) - c->exposed_seconds;
}

static bool run_plan(zx_session *s)
{
    zx_gpu *g = s->gpu;
    bool ok = record(s, ZX_NONE, g->first, g->at->stream);
    for (uint32_t at = 0; at < s->plan->n_insns && ok; at++)
        ok = (queue(s, at) && (at % 64 != 0 || !zx_world_lost(s->o.world))) ||
             zx_gpu_fail_peer(s, at); // unless there is a better reason
    ok = ok && record(s, ZX_NONE, g->last, g->at->stream);
    for (uint32_t k = 0; k < ZX_STREAM_COUNT && ok; k++)
        if (g->stream[k] != NULL) ok = zx_gpu_settle(s, g->stream[k]);
    return ok;
}

bool zx_gpu_run(zx_session *s)
{
    zx_gpu *g = s->gpu;
    zx_exec_begin(s);
    memset(g->faults, 0, s->plan->n_steps * sizeof *g->faults);
    memset(g->queued, 0, sizeof g->queued);
    memset(g->reached, 0, sizeof g->reached);
    g->running = g->open = true;
    g->last_at = ZX_NONE;
    zx_gpu_enter(s);
    const bool ok = run_plan(s);
    if (ok) take_times(s);
    zx_gpu_leave(s);
    g->running = false;
    if (ok) {
        memcpy(g->reached, g->queued, sizeof g->reached);
        return true;
    }
    s->lane[ZX_S_COMPUTE].broken = true;
    return false;
}

// ---- opening ------------------------------------------------------------------------------------

static zx_status make_event(cudaEvent_t *e, bool timed, zx_err *err)
{
    const unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
    return zx_cuda_check(cudaEventCreateWithFlags(e, flags), "cudaEventCreateWithFlags", err);
}

// Which instructions queue something that takes a while, or are a wait whose length is told.
static bool has_event(const zx_session *s, const zx_insn *i, bool *timed)
{
    const bool waits = i->id == ZX_I_WAIT && i->stream == ZX_S_COMPUTE && s->foreign[i->a];
    *timed = waits || s->o.profile;
    switch ((zx_insn_id)i->id) {
    case ZX_I_HOOK:
    case ZX_I_MARK:
    case ZX_I_FREE:
        return s->o.profile;
    case ZX_I_WAIT:
        return *timed;
    default:
        return true;
    }
}

static zx_status make_events(zx_session *s, zx_err *err)
{
    zx_gpu *g = s->gpu;
    const zx_plan *p = s->plan;
    g->event = ZX_NEW(&s->mem, cudaEvent_t, p->n_events + 1);
    g->done = ZX_NEW(&s->mem, cudaEvent_t, p->n_insns + 1);
    g->begun = ZX_NEW(&s->mem, cudaEvent_t, p->n_insns + 1);
    for (uint32_t k = 0; k < p->n_events; k++) ZX_TRY(make_event(&g->event[k], false, err));
    for (uint32_t k = 0; k < p->n_insns; k++) {
        bool timed;
        if (!has_event(s, &p->insns[k], &timed)) continue;
        ZX_TRY(make_event(&g->done[k], timed, err));
        if (timed) ZX_TRY(make_event(&g->begun[k], true, err));
    }
    ZX_TRY(make_event(&g->first, true, err));
    return make_event(&g->last, true, err);
}

static zx_status make_streams(zx_session *s, zx_err *err)
{
    zx_gpu *g = s->gpu;
    int least = 0, greatest = 0;
    ZX_TRY(zx_cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities", err));
    g->stream[ZX_S_COMPUTE] = g->at->stream;
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) // what compute waits for goes first
        if (k != ZX_S_COMPUTE && s->lane[k].n_insns > 0)
            ZX_TRY(zx_cuda_check(
                cudaStreamCreateWithPriority(&g->stream[k], cudaStreamNonBlocking, greatest),
                "cudaStreamCreateWithPriority", err));
    return ZX_OK;
}

// Faults, losses, sums and one place for each input of the step, in one block.
static zx_status make_pinned(zx_session *s, zx_err *err)
{
    zx_gpu *g = s->gpu;
    const zx_plan *p = s->plan;
    uint64_t at = 0, faults, loss, squares;
    void *block = NULL;
    g->fed_at = ZX_NEW(&s->mem, uint64_t, p->n_insns + 1);
    for (uint32_t k = 0; k < p->n_insns; k++) {
        if (p->insns[k].id != ZX_I_FEED) continue;
        g->fed_at[k] = at;
        at = zx_align_up(at + input_bytes(s, &p->insns[k]), ZX_ALIGN);
    }
    faults = at;
    loss = zx_align_up(faults + p->n_steps * sizeof *g->faults, ZX_ALIGN);
    squares = zx_align_up(loss + 2 * p->micro_batches * sizeof *g->loss, ZX_ALIGN);
    at = squares + p->n_units * sizeof *g->squares;
    ZX_TRY(zx_cuda_check(cudaHostAlloc(&block, (size_t)at + 1, cudaHostAllocPortable),
                         "cudaHostAlloc", err));
    memset(block, 0, (size_t)at);
    g->pinned = g->fed = block;
    g->faults = (zx_fault *)(void *)(g->pinned + faults);
    g->loss = (float *)(void *)(g->pinned + loss);
    g->squares = (double *)(void *)(g->pinned + squares);
    return ZX_OK;
}

// A wait for an event that nobody has recorded yet is none, on a GPU.
static zx_status check_order(const zx_session *s, zx_err *err)
{
    const zx_plan *p = s->plan;
    zx_arena mem = {0};
    bool *happens = ZX_NEW(&mem, bool, p->n_events + 1), fine = true;
    uint32_t at = 0;
    for (; at < p->n_insns && fine; at++) {
        const zx_insn *i = &p->insns[at];
        if (i->id == ZX_I_WAIT)
            fine = happens[i->a];
        else if (i->id != ZX_I_UPDATE && i->id != ZX_I_COMMIT && i->c < p->n_events)
            happens[i->c] = true;
        fine = fine && (i->id != ZX_I_EXEC || i->stream == ZX_S_COMPUTE);
    }
    zx_arena_free(&mem);
    if (fine) return ZX_OK;
    return ZX_FAIL(
        err, ZX_E_UNSUPPORTED,
        "instruction %u of the plan waits for a later one, or computes beside the compute "
        "stream: a GPU's queues can't do it",
        at - 1);
}

zx_status zx_gpu_start(zx_session *s, zx_err *err)
{
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    ZX_TRY(check_order(s, err));
    s->gpu->opening = true;
    zx_gpu_enter(s);
    zx_status st = make_streams(s, err);
    if (st == ZX_OK) st = make_events(s, err);
    if (st == ZX_OK) st = make_pinned(s, err);
    zx_gpu_leave(s);
    s->gpu->opening = false;
    if (st != ZX_OK) zx_err_in(err, "opening the session");
    if (st != ZX_OK) return st;
    // Who asks CUDA to wait for each launch looks for the one that fails.
    s->gpu->serial = s->o.serial || (blocking != NULL && strcmp(blocking, "1") == 0);
    for (uint32_t k = 0; k < s->plan->n_steps; k++) s->calls[k].fault = &s->gpu->faults[k];
    return ZX_OK;
}

static void drop(cudaEvent_t *list, uint32_t n)
{
    for (uint32_t k = 0; list != NULL && k < n; k++)
        if (list[k] != NULL) cudaEventDestroy(list[k]);
}

// After a failure what is queued may never end: nothing is waited for then, and the process's end
// gives everything back.
void zx_gpu_end(zx_session *s)
{
    zx_gpu *g = s->gpu;
    if (g == NULL || s->fatal.code != ZX_OK || s->lane[ZX_S_COMPUTE].broken) return;
    zx_gpu_enter(s);
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++)
        if (k != ZX_S_COMPUTE && g->stream[k] != NULL) cudaStreamDestroy(g->stream[k]);
    drop(g->event, s->plan->n_events);
    drop(g->done, s->plan->n_insns);
    drop(g->begun, s->plan->n_insns);
    drop(&g->first, 1);
    drop(&g->last, 1);
    if (g->pinned != NULL) cudaFreeHost(g->pinned);
    zx_gpu_leave(s);
}
