// trace_json.c - see trace_json.h.
//
// Times are written in whole nanoseconds, since viewers refuse events of one track that overlap.
// SPDX-License-Identifier: Apache-2.0
#include "sched/trace_json.h"

#include <inttypes.h>

#include "sched/lives.h"
#include "sched/look.h"

typedef struct tracer {
    const zx_graph *g;
    const zx_plan *p;
    zx_text *out;
    zx_arena mem;          // of one event
    double zero;           // seconds: what is written as 0
    const uint32_t *event; // by event: the instruction that makes it happen
    int64_t *begin;        // by instruction: nanoseconds as written; -1: not written
} tracer;

static const char *const pass_what[] = {
#define ZX_PASS(name, what) what,
#include "sched/passes.def"
#undef ZX_PASS
};

static int64_t nanoseconds(const tracer *t, double at)
{
    return zx_int_of((at - t->zero) * 1e9 + 0.5);
}

static void put_micro(zx_text *out, int64_t ns)
{
    zx_text_put(out, "%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
}

static void put_meta(tracer *t, const char *what, uint32_t tid, const char *key)
{
    zx_text_put(t->out,
                ",\n{\"ph\":\"M\",\"pid\":0,\"tid\":%u,\"name\":\"%s\",\"args\":{\"%s\":", tid,
                what, key);
}

// What an event is called, into t->mem.
static const char *name_of(tracer *t, uint32_t insn)
{
    const zx_insn *in = &t->p->insns[insn];
    const char *word = zx_insn_rows[in->id].word, *of = "";
    switch (zx_insn_rows[in->id].kind[0]) {
    case ZX_OPERAND_LAUNCH:
        of = zx_launch_name(t->g, t->p, in->a, &t->mem);
        if (in->id == ZX_I_BUCKET) {
            const uint32_t member = t->p->launches[in->a].member + in->b;
            of = t->g->params[t->p->units[t->p->members[member].unit].param].name;
        }
        break;
    case ZX_OPERAND_STEP:
        return t->g->nodes[t->p->steps[in->a].node].name;
    case ZX_OPERAND_UNIT:
        of = t->g->params[t->p->units[in->a].param].name;
        break;
    case ZX_OPERAND_BUFFER:
        of = t->g->buffers[in->a].name;
        break;
    case ZX_OPERAND_EVENT:
        if (t->event[in->a] != ZX_NONE && t->p->insns[t->event[in->a]].id != ZX_I_WAIT)
            of = name_of(t, t->event[in->a]);
        break;
    default:
        break;
    }
    return of[0] == '\0' ? word : zx_arena_printf(&t->mem, "%s %s", word, of);
}

static void put_args(tracer *t, uint32_t insn, const zx_gathered *x)
{
    const zx_insn *in = &t->p->insns[insn];
    zx_text_put(t->out, ",\"args\":{\"instruction\":%u,\"by\":\"%s\",\"why\":", insn,
                zx_pass_names[in->by]);
    zx_text_json(t->out, pass_what[in->by]);
    if (zx_insn_rows[in->id].kind[0] == ZX_OPERAND_LAUNCH && in->id != ZX_I_BUCKET)
        zx_text_put(t->out, ",\"bytes\":%" PRIu64 ",\"units\":%u", zx_launch_bytes(t->p, in->a),
                    t->p->launches[in->a].n_members);
    if (in->id == ZX_I_EXEC)
        zx_text_put(t->out, ",\"op\":\"%s\",\"step\":%u,\"micro_batch\":%u",
                    zx_ops[t->g->nodes[t->p->steps[in->a].node].op].word, in->a,
                    t->p->steps[in->a].micro);
    if (x != NULL && x->first != ZX_NONE)
        zx_text_put(t->out, ",\"steps_ahead\":%u", x->first - x->issue);
    if (x != NULL && x->next != ZX_NONE)
        zx_text_put(t->out,
                    ",\"reuse_steps\":%u,\"reuse_bytes\":%" PRIu64 ",\"reuse_seconds\":%.9g",
                    x->reuse_steps, x->reuse_bytes, x->reuse_seconds);
    zx_text_put(t->out, "}");
}

// What takes no time is left out, and what other streams than compute wait for: a gap says it.
static bool is_shown(const zx_plan *p, uint32_t insn)
{
    const zx_insn *in = &p->insns[insn];
    if (in->id == ZX_I_FREE || in->id == ZX_I_MARK) return false;
    if (in->id == ZX_I_WAIT && in->stream != ZX_S_COMPUTE) return false;
    return in->id == ZX_I_EXEC || in->id == ZX_I_GATHER || p->seconds[insn] > 0;
}

static void put_events(tracer *t, const zx_look *look)
{
    int64_t done[ZX_STREAM_COUNT] = {0};
    uint32_t at = 0; // in the gathers, which are in order of their instructions
    for (uint32_t i = 0; i < t->p->n_insns; i++) {
        const zx_insn *in = &t->p->insns[i];
        while (at < look->n && look->gathers[at].insn < i) at++;
        t->begin[i] = -1;
        if (!is_shown(t->p, i)) continue;
        int64_t from = nanoseconds(t, t->p->start[i]);
        int64_t to = nanoseconds(t, t->p->start[i] + t->p->seconds[i]);
        if (from < done[in->stream]) from = done[in->stream];
        if (to < from) to = from;
        done[in->stream] = to;
        t->begin[i] = from;
        zx_text_put(t->out,
                    ",\n{\"ph\":\"X\",\"pid\":0,\"tid\":%u,\"cat\":\"%s\",\"ts\":", in->stream,
                    zx_insn_rows[in->id].word);
        put_micro(t->out, from);
        zx_text_put(t->out, ",\"dur\":");
        put_micro(t->out, to - from);
        zx_text_put(t->out, ",\"name\":");
        zx_text_json(t->out, name_of(t, i));
        const bool gathers = at < look->n && look->gathers[at].insn == i;
        put_args(t, i, gathers ? &look->gathers[at] : NULL);
        zx_text_put(t->out, "}");
        zx_arena_rewind(&t->mem, (zx_mark){0});
    }
}

static void put_flows(tracer *t, const zx_look *look)
{
    for (uint32_t i = 0; i < look->n; i++) {
        const zx_gathered *x = &look->gathers[i];
        if (x->first == ZX_NONE || t->begin[x->insn] < 0) continue;
        const uint32_t use = look->exec[x->first];
        if (t->begin[use] < t->begin[x->insn]) continue;
        const struct {
            const char *ph;
            uint32_t insn;
        } ends[] = {{"\"s\"", x->insn}, {"\"f\",\"bp\":\"e\"", use}};
        for (size_t k = 0; k < ZX_COUNT(ends); k++) {
            zx_text_put(t->out, ",\n{\"ph\":%s,\"id\":%u,\"pid\":0,\"tid\":%u,\"ts\":", ends[k].ph,
                        i, t->p->insns[ends[k].insn].stream);
            put_micro(t->out, t->begin[ends[k].insn]);
            zx_text_put(t->out, ",\"cat\":\"use\",\"name\":");
            zx_text_json(t->out, t->g->params[t->p->units[x->unit].param].name);
            zx_text_put(t->out, "}");
        }
    }
}

static void put_memory(tracer *t)
{
    zx_arena mem = {0};
    zx_lives lives;
    zx_lives_make(t->g, t->p, &mem, &lives);
    for (uint32_t i = 0; i < lives.n; i++) {
        const zx_use_point *x = &lives.points[i];
        uint64_t total = lives.held;
        zx_text_put(t->out, ",\n{\"ph\":\"C\",\"pid\":0,\"name\":\"memory\",\"ts\":");
        put_micro(t->out, nanoseconds(t, x->at));
        zx_text_put(t->out, ",\"args\":{\"held\":%" PRIu64, lives.held);
        for (uint32_t k = 0; k < ZX_USE_COUNT; k++) {
            zx_text_put(t->out, ",\"%s\":%" PRIu64, zx_use_words[k], x->bytes[k]);
            total += x->bytes[k];
        }
        zx_text_put(t->out, "}},\n{\"ph\":\"C\",\"pid\":0,\"name\":\"memory, total\",\"ts\":");
        put_micro(t->out, nanoseconds(t, x->at));
        zx_text_put(t->out, ",\"args\":{\"bytes\":%" PRIu64 "}}", total);
    }
    zx_arena_free(&mem);
}

void zx_trace_json(const zx_graph *train, const zx_plan *p, const char *title, bool measured,
                   zx_text *out)
{
    ZX_ASSERT(p->start != NULL && p->seconds != NULL);
    zx_arena mem = {0};
    zx_look look;
    zx_look_make(train, p, &mem, &look);
    uint32_t *event = ZX_NEW(&mem, uint32_t, p->n_events);
    for (uint32_t i = 0; i < p->n_events; i++) event[i] = ZX_NONE;
    tracer t = {.g = train, .p = p, .out = out, .event = event};
    t.begin = ZX_NEW(&mem, int64_t, p->n_insns);
    bool used[ZX_STREAM_COUNT] = {false};
    for (uint32_t i = 0; i < p->n_insns; i++) {
        if (p->insns[i].c != ZX_NONE) event[p->insns[i].c] = i;
        used[p->insns[i].stream] = true;
        if (p->start[i] < t.zero) t.zero = p->start[i];
    }
    const char *process =
        zx_arena_printf(&mem, measured ? "%s, measured on rank 0" : "SIMULATED: %s", title);
    zx_text_put(out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"simulated\":%s,\"policy\":",
                measured ? "false" : "true");
    zx_text_json(out, p->policy);
    zx_text_put(out, ",\"ranks\":%u,\"peak_bytes\":%" PRIu64 "},\n\"traceEvents\":[", p->ranks,
                p->arena_bytes);
    zx_text_put(out, "\n{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{\"name\":");
    zx_text_json(out, process);
    zx_text_put(out, "}}");
    for (uint32_t s = 0; s < ZX_STREAM_COUNT; s++) {
        if (!used[s]) continue;
        put_meta(&t, "thread_name", s, "name");
        zx_text_put(out, "\"%s\"}}", zx_stream_words[s]);
        put_meta(&t, "thread_sort_index", s, "sort_index");
        zx_text_put(out, "%u}}", s);
    }
    put_events(&t, &look);
    put_flows(&t, &look);
    put_memory(&t);
    zx_text_put(out, "\n]}\n");
    zx_arena_free(&t.mem);
    zx_arena_free(&mem);
}
