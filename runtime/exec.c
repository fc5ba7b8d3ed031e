// exec.c - the loop over a plan's instructions. It decides nothing and allocates nothing.
//
// Each stream runs its instructions in plan order on a thread of its own (compute: the caller's)
// and is held back by events alone. An event is a word that holds the number of the last run in
// which it happened, so nothing has to be cleared between runs.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "graph/count_loss.h"

typedef bool insn_fn(zx_session *s, zx_lane *l, uint32_t at, const zx_insn *i); // false: lost

// Other instructions of a stream take no time beside: of a transfer, until it was on the wire.
static void tick(zx_lane *l)
{
    if (l->session->timed) l->clock = zx_seconds();
}

static void happened(zx_session *s, const zx_lane *l, uint32_t event)
{
    if (event == ZX_NONE) return;
    if (s->timed) s->event_at[event] = l->clock;
    zx_word_set(&s->events[event], s->run);
}

// ---- streams ------------------------------------------------------------------------------------

static bool await(zx_session *s, zx_lane *l, uint32_t event)
{
    zx_word *w = &s->events[event];
    if (zx_word_reached(w, s->run)) return true;
    if (l->id != ZX_S_COMPUTE) return zx_word_wait(w, s->run, &s->patience, ZX_NO_PEER);
    const double from = zx_seconds();
    const bool ok = zx_word_wait(w, s->run, &s->patience, ZX_NO_PEER);
    if (s->foreign[event]) l->exposed_seconds += zx_seconds() - from;
    return ok;
}

static bool run_wait(zx_session *s, zx_lane *l, uint32_t at ZX_UNUSED, const zx_insn *i)
{
    if (!await(s, l, i->a)) return false;
    if (s->timed && s->event_at[i->a] > l->clock) l->clock = s->event_at[i->a];
    return true;
}

static bool run_mark(zx_session *s, zx_lane *l, uint32_t at ZX_UNUSED, const zx_insn *i)
{
    if (l->id == ZX_S_COMPUTE) tick(l);
    happened(s, l, i->c);
    return true;
}

static bool run_free(zx_session *s, zx_lane *l, uint32_t at, const zx_insn *i)
{
    if (s->o.poison) memset(zx_slot_at(s, i->a), 0xff, (size_t)s->plan->slots[i->a].bytes); // NaN
    return run_mark(s, l, at, i);
}

static bool run_hook(zx_session *s ZX_UNUSED, zx_lane *l ZX_UNUSED, uint32_t at ZX_UNUSED,
                     const zx_insn *i ZX_UNUSED)
{
    return true; // the time of hooks is simulated only
}

// ---- collectives --------------------------------------------------------------------------------

// What a collective says of itself before it leaves, and what came of it.
static zx_sent *leaving(zx_session *s, zx_lane *l, uint32_t at)
{
    l->sent = (zx_sent){.position = at, .timed = s->timed, .issued = l->clock};
    return &l->sent;
}

static bool arrived(zx_session *s, zx_lane *l, const zx_insn *i)
{
    if (s->timed) l->clock = l->sent.until;
    happened(s, l, i->c);
    return true;
}

static bool run_gather(zx_session *s, zx_lane *l, uint32_t at, const zx_insn *i)
{
    zx_sent *t = leaving(s, l, at);
    const zx_launch *launch = &s->plan->launches[i->a];
    return s->transport->gather(s->comm, l->id, launch, t) && arrived(s, l, i);
}

static bool run_reduce(zx_session *s, zx_lane *l, uint32_t at, const zx_insn *i)
{
    zx_sent *t = leaving(s, l, at);
    const zx_launch *launch = &s->plan->launches[i->a];
    return s->transport->reduce(s->comm, l->id, launch, i->b != 0, t) && arrived(s, l, i);
}

static bool run_allreduce(zx_session *s, zx_lane *l, uint32_t at, const zx_insn *i)
{
    zx_sent *t = leaving(s, l, at);
    const zx_launch *launch = &s->plan->launches[i->a];
    return s->transport->allreduce(s->comm, l->id, launch, i->b != 0, t) && arrived(s, l, i);
}

static bool run_pack(zx_session *s, zx_lane *l, uint32_t at ZX_UNUSED, const zx_insn *i)
{
    zx_exec_pack(s, &s->plan->launches[i->a]);
    tick(l);
    happened(s, l, i->c);
    return true;
}

static bool run_unpack(zx_session *s, zx_lane *l, uint32_t at ZX_UNUSED, const zx_insn *i)
{
    zx_exec_unpack(s, &s->plan->launches[i->a]);
    tick(l);
    happened(s, l, i->c);
    return true;
}

static bool run_bucket(zx_session *s, zx_lane *l, uint32_t at ZX_UNUSED, const zx_insn *i)
{
    zx_exec_bucket(s, &s->plan->members[s->plan->launches[i->a].member + i->b]);
    tick(l);
    happened(s, l, i->c);
    return true;
}

// ---- kernels ------------------------------------------------------------------------------------

static bool run_feed(zx_session *s, zx_lane *l ZX_UNUSED, uint32_t at ZX_UNUSED, const zx_insn *i)
{
    const uint64_t micro = s->first_micro + (uint64_t)i->b * s->ranks + s->rank;
    s->o.feed.fill(s->o.feed.self, s->plan->slots[i->a].what, micro, zx_slot_at(s, i->a));
    return true;
}

// Keeps what went wrong first; the step goes on, so that no peer waits in vain.
void zx_exec_note(zx_session *s, uint32_t step, zx_status st, const zx_err *err,
                  const zx_fault *fault)
{
    if (st != ZX_OK && s->board->failed == ZX_OK) {
        s->board->failed = (uint32_t)st;
        s->board->failed_step = step;
        snprintf(s->board->failure, ZX_FAILURE_TEXT, "%.*s", ZX_FAILURE_TEXT - 1, err->cause[0]);
    }
    if (fault->kind != ZX_FAULT_NONE && s->board->fault.kind == ZX_FAULT_NONE) {
        s->board->fault = *fault;
        s->board->fault.step = step;
    }
}

static bool run_exec(zx_session *s, zx_lane *l, uint32_t at ZX_UNUSED, const zx_insn *i)
{
    if (s->mode == ZX_RUN_LOOK) zx_look_before(s, i->a);
    const double from = zx_seconds();
    zx_err *err = &s->kernel_err;
    const zx_status st = s->kernel[i->a]->run(&s->calls[i->a], err);
    l->compute_seconds += zx_seconds() - from;
    if (st != ZX_OK || s->fault.kind != ZX_FAULT_NONE) zx_exec_note(s, i->a, st, err, &s->fault);
    if (s->mode == ZX_RUN_LOOK) zx_look_after(s, i->a);
    return true;
}

static bool run_loss(zx_session *s, zx_lane *l ZX_UNUSED, uint32_t at ZX_UNUSED, const zx_insn *i)
{
    float loss[2] = {0, 1};
    const bool counted = zx_loss_is_counted(s->graph);
    memcpy(loss, zx_slot_at(s, i->a), (counted ? 2 : 1) * sizeof *loss);
    s->board->loss[i->b] = (double)loss[0];
    *zx_board_count(s, s->board, i->b) = (double)loss[1];
    return true;
}

// ---- the end of a step --------------------------------------------------------------------------

static void sum_squares(zx_session *s)
{
    double *squares = s->board->loss + s->plan->micro_batches;
    for (uint32_t u = 0; u < s->plan->n_units; u++)
        squares[u] = zx_exec_square_sum(s, &s->plan->units[u]);
}

// The same on every rank, from the same boards.
void zx_exec_decide(zx_session *s)
{
    const uint32_t micros = s->plan->micro_batches;
    double loss = 0, count = 0, total = 0;
    bool sound = true;
    for (uint32_t i = 0; i < micros; i++)
        for (uint32_t r = 0; r < s->ranks; r++) {
            loss += zx_board_of(s, r)->loss[i];
            count += *zx_board_count(s, zx_board_of(s, r), i);
        }
    for (uint32_t u = 0; u < s->plan->n_units; u++)
        for (uint32_t r = 0; r < s->ranks; r++) total += zx_board_of(s, r)->loss[micros + u];
    for (uint32_t r = 0; r < s->ranks; r++) {
        const zx_board *b = zx_board_of(s, r);
        sound = sound && b->fault.kind == ZX_FAULT_NONE && b->failed == ZX_OK;
    }
    s->loss = loss / count;
    s->grad_factor = s->o.labels > 0 ? s->o.labels / count : 1;
    s->norm = sqrt(total) * s->grad_factor / s->scale;
    s->applied = sound && isfinite(s->loss) && isfinite(s->norm) && s->mode == ZX_RUN_STEP;
    // CONFIG 2.4: clip = max(1, (norm + 1e-6) / clipping), the gradient is divided by it.
    double clip = s->o.clip > 0 ? (s->norm + 1e-6) / s->o.clip : 1;
    if (!(clip > 1)) clip = 1;
    s->grad_scale = (float)(s->grad_factor / (clip * s->scale));
}

static bool run_norm(zx_session *s, zx_lane *l, uint32_t at ZX_UNUSED, const zx_insn *i ZX_UNUSED)
{
    const double from = zx_seconds();
    sum_squares(s);
    s->sum_seconds = zx_seconds() - from;
    l->compute_seconds += s->sum_seconds;
    if (!s->transport->exchange(s->comm, s->board, s->boards)) return false;
    zx_exec_decide(s);
    return true;
}

static zx_param_rate rate_of(const zx_session *s, const zx_unit *u)
{
    if (s->o.rates != NULL) return s->o.rates[u->param];
    return (zx_param_rate){1, s->o.optim.weight_decay};
}

zx_adam_args zx_exec_adam(const zx_session *s, const zx_unit *u)
{
    const zx_optim *o = &s->o.optim;
    const zx_param_rate own = rate_of(s, u);
    const double t = (double)s->step + 1;
    double beta1 = o->beta1, beta2 = o->beta2;
    zx_lr_betas_at(&o->schedule, s->step, &beta1, &beta2);
    return (zx_adam_args){.lr = (float)(s->lr * own.lr_factor),
                          .beta1 = beta1,
                          .beta2 = beta2,
                          .eps = (float)o->eps,
                          .weight_decay = (float)own.weight_decay,
                          .correction1 = o->bias_correction ? (float)(1 - pow(beta1, t)) : 1,
                          .correction2 = o->bias_correction ? (float)(1 - pow(beta2, t)) : 1,
                          .decoupled = o->decoupled,
                          .grad_scale = s->grad_scale};
}

zx_sgd_args zx_exec_sgd(const zx_session *s, const zx_unit *u)
{
    const zx_optim *o = &s->o.optim;
    const zx_param_rate own = rate_of(s, u);
    return (zx_sgd_args){.lr = (float)(s->lr * own.lr_factor),
                         .momentum = (float)o->momentum,
                         .dampening = (float)o->dampening,
                         .weight_decay = (float)own.weight_decay,
                         .nesterov = o->nesterov,
                         .first = s->step == 0,
                         .grad_scale = s->grad_scale};
}

zx_lion_args zx_exec_lion(const zx_session *s, const zx_unit *u)
{
    const zx_param_rate own = rate_of(s, u);
    double beta1 = s->o.optim.beta1, beta2 = s->o.optim.beta2;
    zx_lr_betas_at(&s->o.optim.schedule, s->step, &beta1, &beta2);
    return (zx_lion_args){.beta1 = beta1,
                          .beta2 = beta2,
                          .lr = (float)(s->lr * own.lr_factor),
                          .weight_decay = (float)own.weight_decay,
                          .grad_scale = s->grad_scale};
}

static bool run_update(zx_session *s, zx_lane *l, uint32_t at ZX_UNUSED, const zx_insn *i)
{
    if (!s->applied || s->plan->units[i->a].grad_slot == ZX_NONE) return true;
    const double from = zx_seconds();
    zx_exec_update(s, &s->plan->units[i->a]);
    l->compute_seconds += zx_seconds() - from;
    return true;
}

// NORM has made all working copies final. They are reset together after the last buffer: one
// barrier says that nobody reads them any more.
static bool run_commit(zx_session *s, zx_lane *l ZX_UNUSED, uint32_t at, const zx_insn *i)
{
    if (s->applied) {
        const zx_type *t = &s->graph->values[s->graph->buffers[i->a].value].type;
        s->transport->mean(s->comm, s->working_slot[i->a], s->buffer_slot[i->a], t);
    }
    if (at != s->last_commit) return true;
    if (s->applied && !s->transport->barrier(s->comm)) return false;
    s->backend->reset_working(s);
    return true;
}

// ---- the loop -----------------------------------------------------------------------------------

static insn_fn *const handlers[ZX_INSN_COUNT] = {
#define ZX_INSN(id, word, a, b, c, handler, what) [ZX_I_##id] = run_##handler,
#include "sched/insns.def"
#undef ZX_INSN
};

static bool run_one(zx_session *s, zx_lane *l, uint32_t at, const zx_insn *i)
{
    return handlers[i->id](s, l, at, i);
}

// Of a transfer, without what it waited for; of what takes no time itself, by the stream's clock.
static bool run_recorded(zx_session *s, zx_lane *l, uint32_t at, const zx_insn *i)
{
    const bool still = i->id == ZX_I_WAIT || i->id == ZX_I_MARK || i->id == ZX_I_FREE;
    const bool by_clock = still && l->id != ZX_S_COMPUTE;
    double from = by_clock ? l->clock : zx_seconds();
    l->sent.position = ZX_NONE;
    if (!run_one(s, l, at, i)) return false;
    double until = by_clock ? l->clock : zx_seconds();
    if (l->sent.position == at) {
        from = l->sent.from;
        until = l->sent.until;
    }
    s->start[at] = from - s->begin;
    s->seconds[at] = until - from;
    return true;
}

static void run_insn(zx_session *s, zx_lane *l, uint32_t at)
{
    const zx_insn *i = &s->plan->insns[at];
    if (s->touch[at] > l->peak) l->peak = s->touch[at];
    if (!(s->o.profile ? run_recorded : run_one)(s, l, at, i)) l->broken = true;
}

static void run_lane(zx_lane *l)
{
    zx_session *s = l->session;
    l->clock = s->begin;
    for (uint32_t k = 0; k < l->n_insns && !l->broken; k++) run_insn(s, l, l->insns[k]);
}

// All streams on this thread: zx_exec_start has seen that no instruction waits for a later one.
static void run_serial(zx_session *s)
{
    zx_lane *compute = &s->lane[ZX_S_COMPUTE];
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) s->lane[k].clock = s->begin;
    for (uint32_t at = 0; at < s->plan->n_insns && !compute->broken; at++) {
        zx_lane *l = &s->lane[s->plan->insns[at].stream];
        run_insn(s, l, at);
        if (l->broken) compute->broken = true;
    }
}

// Threads beside compute sleep most of the time and are wanted at once when they wake, as a
// device's engine would be there. An emulated link wakes its sender at a time: the kernel's usual
// slack of 50 us would be a latency of its own on every collective. And where compute has all
// cores, a thread that wakes may stand behind it for as long as its slice lasts, some ms; the one
// with the shorter slice goes first. Kernels before 6.12 take no notice of that.
static void be_prompt(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period; // runtime: ns of a slice
    } a = {.size = sizeof a, .policy = SCHED_OTHER, .runtime = 100000};
    prctl(PR_SET_TIMERSLACK, 1000UL);
    a.nice = getpriority(PRIO_PROCESS, 0);
    syscall(SYS_sched_setattr, 0, &a, 0); // what it says is as good as nothing to us
}

// A stream's thread: runs its instructions each time it is told to go.
static void *lane_main(void *arg)
{
    zx_lane *l = arg;
    be_prompt();
    for (uint32_t run = 1;; run++) {
        zx_word_wait(&l->go, run, &l->session->own, ZX_NO_PEER);
        if (atomic_load(&l->session->closing) != 0) return NULL;
        run_lane(l);
        zx_word_set(&l->done, run);
    }
}

static zx_status check_serial(const zx_session *s, zx_err *err)
{
    const zx_plan *p = s->plan;
    zx_arena mem = {0};
    bool *happens = ZX_NEW(&mem, bool, p->n_events + 1), fine = true;
    for (uint32_t i = 0; i < p->n_insns && fine; i++) {
        const zx_insn *in = &p->insns[i];
        if (in->id == ZX_I_WAIT)
            fine = happens[in->a];
        else if (in->c != ZX_NONE)
            happens[in->c] = true;
    }
    zx_arena_free(&mem);
    if (fine) return ZX_OK;
    return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                   "an instruction of the plan waits for a later one: it can't run serially");
}

zx_status zx_exec_start(zx_session *s, zx_err *err)
{
    sigset_t all, before; // signals are the main thread's
    if (s->o.serial) return check_serial(s, err);
    sigfillset(&all);
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        zx_lane *l = &s->lane[k];
        if (k == ZX_S_COMPUTE || l->n_insns == 0) continue;
        pthread_sigmask(SIG_SETMASK, &all, &before);
        const int e = pthread_create(&l->thread, NULL, lane_main, l);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (e != 0) return ZX_FAIL(err, ZX_E_DEVICE, "cannot start a thread: %s", strerror(e));
        l->started = true;
    }
    return ZX_OK;
}

void zx_exec_stop(zx_session *s)
{
    atomic_store(&s->closing, 1);
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        if (!s->lane[k].started) continue;
        zx_word_set(&s->lane[k].go, s->run + 1);
        pthread_join(s->lane[k].thread, NULL);
    }
}

void zx_exec_begin(zx_session *s)
{
    zx_lane *compute = &s->lane[ZX_S_COMPUTE];
    s->run++;
    s->begin = zx_seconds();
    compute->compute_seconds = compute->exposed_seconds = 0;
    s->fault = (zx_fault){0};
    s->board->fault = (zx_fault){0};
    s->board->failed = ZX_OK;
    s->board->failure[0] = '\0';
    s->kernel_err.code = ZX_OK;
    s->kernel_err.n_causes = 0;
    for (uint32_t i = 0; i < s->plan->micro_batches; i++)
        s->rng[i] = (zx_rng){.seed = s->o.seed,
                             .step = s->step,
                             .micro = s->first_micro + (uint64_t)i * s->ranks + s->rank};
}

bool zx_exec_run(zx_session *s)
{
    zx_lane *compute = &s->lane[ZX_S_COMPUTE];
    zx_exec_begin(s);
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++)
        if (s->lane[k].started) zx_word_set(&s->lane[k].go, s->run);
    if (s->o.serial)
        run_serial(s);
    else
        run_lane(compute);
    bool ok = !compute->broken;
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        zx_lane *l = &s->lane[k];
        if (!l->started) continue;
        // After a loss the others stop by themselves: their every wait looks for it.
        zx_word_wait(&l->done, s->run, &s->own, ZX_NO_PEER);
        ok = ok && !l->broken;
    }
    if (!ok) {
        compute->broken = true;
        zx_world_abort(s->o.world); // out of step: no peer may wait for this rank
    }
    return ok;
}
