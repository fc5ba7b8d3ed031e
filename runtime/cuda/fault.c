// fault.c - why a run on a GPU is lost: the libraries' own words, where it happened and what to
// try.
//
// What a call returns belongs to its instruction. An error of the device itself comes late: then
// the instructions are told that were queued and aren't known to be done, stream by stream.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <string.h>

#include "runtime/cuda/gpu.h"
#include "sched/check.h"

// ---- where --------------------------------------------------------------------------------------

#define MOST 120 // bytes of one place: the libraries' words come behind several of them

static const char *const words[ZX_INSN_COUNT] = {
#define ZX_INSN(id, word, ...) word,
#include "sched/insns.def"
#undef ZX_INSN
};

static const char *param_of(const zx_session *s, uint32_t unit)
{
    return s->graph->params[s->plan->units[unit].param].name;
}

// What an instruction works on, by name; NULL: nothing that has one.
static const char *subject(const zx_session *s, const zx_insn *i, uint32_t *more)
{
    const zx_plan *p = s->plan;
    *more = 0;
    switch ((zx_insn_id)i->id) {
    case ZX_I_GATHER:
    case ZX_I_PACK:
    case ZX_I_UNPACK:
    case ZX_I_REDUCE:
    case ZX_I_ALLREDUCE:
        if (p->launches[i->a].n_members == 0) return NULL;
        *more = p->launches[i->a].n_members - 1;
        return param_of(s, p->members[p->launches[i->a].member].unit);
    case ZX_I_BUCKET:
        return param_of(s, p->members[p->launches[i->a].member + i->b].unit);
    case ZX_I_UPDATE:
        return param_of(s, i->a);
    case ZX_I_COMMIT:
        return s->graph->buffers[i->a].name;
    case ZX_I_FEED:
        return s->graph->values[s->graph->inputs[p->slots[i->a].what]].name;
    default:
        return NULL;
    }
}

static const char *insn_text(const zx_session *s, uint32_t at, zx_arena *mem)
{
    const zx_insn *i = &s->plan->insns[at];
    const char *text;
    uint32_t more;
    if (i->id == ZX_I_EXEC) {
        const zx_node *n = &s->graph->nodes[s->plan->steps[i->a].node];
        text = zx_arena_printf(mem, "instruction %u, %s", at, zx_exec_node_text(s->graph, n, mem));
    } else {
        const char *name = subject(s, i, &more);
        text = zx_arena_printf(mem, "instruction %u, %s", at, words[i->id]);
        if (name != NULL) text = zx_arena_printf(mem, "%s of '%s'", text, zx_text_safe(mem, name));
        if (name != NULL && more > 0) text = zx_arena_printf(mem, "%s and %u more", text, more);
    }
    return strlen(text) <= MOST ? text : zx_arena_printf(mem, "%.*s...", MOST - 3, text);
}

// Whether it gives the device something to do: what doesn't is never to blame.
static bool does_something(const zx_session *s, const zx_insn *i)
{
    if (i->id == ZX_I_FREE) return s->o.poison;
    return i->id != ZX_I_WAIT && i->id != ZX_I_MARK && i->id != ZX_I_HOOK;
}

// "between instruction 12, node 'a': Mul, and instruction 19, ... (compute)" for each stream that
// had something to do; NULL: none.
static const char *queued_text(const zx_session *s, zx_arena *mem)
{
    const zx_gpu *g = s->gpu;
    const char *text = NULL;
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        const uint32_t *insns = s->lane[k].insns;
        uint32_t from = g->reached[k], to = g->queued[k];
        while (from < to && !does_something(s, &s->plan->insns[insns[from]])) from++;
        while (from < to && !does_something(s, &s->plan->insns[insns[to - 1]])) to--;
        if (from == to) continue;
        const char *here = insn_text(s, insns[from], mem);
        if (to - from > 1)
            here =
                zx_arena_printf(mem, "between %s and %s", here, insn_text(s, insns[to - 1], mem));
        here = zx_arena_printf(mem, "%s (%s stream)", here, zx_stream_words[k]);
        text = text == NULL ? here : zx_arena_printf(mem, "%s, or %s", text, here);
    }
    return text;
}

// Where all that is known of was done; NULL: not within a run.
static const char *between_text(const zx_session *s, zx_arena *mem)
{
    const uint32_t at = s->gpu->last_at;
    if (!s->gpu->running || s->plan->n_insns == 0) return NULL;
    return at == ZX_NONE ? zx_arena_printf(mem, "before %s", insn_text(s, 0, mem))
                         : zx_arena_printf(mem, "after %s", insn_text(s, at, mem));
}

// ---- why ----------------------------------------------------------------------------------------

static void say_where(const zx_session *s, const char *where, zx_err *err)
{
    const zx_gpu *g = s->gpu;
    if (where != NULL) zx_err_in(err, "%s", where);
    if (g->running)
        zx_err_in(err, "step %" PRIu64, s->step + 1);
    else
        zx_err_in(err, "%s",
                  g->open      ? "reading values back"
                  : g->opening ? "opening the session"
                               : "first values");
}

static bool fail(zx_session *s, const char *where, const zx_err *why)
{
    const zx_gpu *g = s->gpu;
    if (s->fatal.code != ZX_OK) return false;
    s->fatal = *why;
    say_where(s, where, &s->fatal);
    // While a session is opened the ranks agree, and say whose it was.
    if (g->open && s->ranks > 1) zx_err_in(&s->fatal, "rank %u", s->rank);
    if (g->open) zx_world_abort(s->o.world); // out of step: no peer may wait for this rank
    return false;
}

// A device that fails says so to whoever asks next: its call needn't be the one to blame.
static bool is_stuck(const zx_gpu *g)
{
    const cudaError_t e = cudaStreamQuery(g->at->stream);
    return e != cudaSuccess && e != cudaErrorNotReady;
}

bool zx_gpu_fail(zx_session *s, uint32_t at, const zx_err *why)
{
    zx_arena mem = {0};
    const char *before = is_stuck(s->gpu) ? queued_text(s, &mem) : NULL, *where = NULL;
    if (at != ZX_NONE) where = insn_text(s, at, &mem);
    if (before != NULL)
        where = where == NULL ? before : zx_arena_printf(&mem, "%s, or %s", before, where);
    fail(s, where != NULL ? where : between_text(s, &mem), why);
    zx_arena_free(&mem);
    return false;
}

bool zx_gpu_checked(zx_session *s, uint32_t at, cudaError_t e, const char *call)
{
    if (e == cudaSuccess) return true;
    zx_err why = {0};
    zx_cuda_check(e, call, &why);
    return zx_gpu_fail(s, at, &why);
}

bool zx_gpu_fail_late(zx_session *s, const zx_err *why)
{
    zx_arena mem = {0};
    const char *where = queued_text(s, &mem);
    fail(s, where != NULL ? where : between_text(s, &mem), why);
    zx_arena_free(&mem);
    return false;
}

bool zx_gpu_fail_peer(zx_session *s, uint32_t at)
{
    zx_err why = {0};
    zx_world_why(s->o.world, &why);
    return at != ZX_NONE ? zx_gpu_fail(s, at, &why) : zx_gpu_fail_late(s, &why);
}

void zx_gpu_where(const void *session, zx_err *err)
{
    const zx_session *s = session;
    const zx_gpu *g = s->gpu;
    zx_arena mem = {0};
    const bool known = g->running && g->last_at != ZX_NONE;
    say_where(s, known ? insn_text(s, g->last_at, &mem) : NULL, err);
    if (s->ranks > 1) zx_err_in(err, "rank %u", s->rank);
    zx_arena_free(&mem);
}

bool zx_gpu_well(zx_session *s)
{
    const zx_gpu *g = s->gpu;
    zx_err why = {0};
    if (zx_world_lost(s->o.world)) return zx_gpu_fail_peer(s, ZX_NONE);
    if (g->comm->check(g->link, &why) != ZX_OK) return zx_gpu_fail_late(s, &why);
    const double most = s->o.timeout_seconds;
    if (!(most > 0) || zx_seconds() - g->moved < most) return true;
    zx_err_hint(&why, "a longer --timeout, if this takes so long; `dmesg | grep Xid` has what the "
                      "driver saw of a device that hangs");
    ZX_FAIL(&why, ZX_E_DEVICE, "nothing has happened on the device for %g s (--timeout)", most);
    return zx_gpu_fail_late(s, &why);
}
