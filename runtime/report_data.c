// report_data.c - what a report's pictures are drawn from, as JSON.
//
// 27,000 steps must fit into a file that opens at once, so numbers are columns: differences of
// neighbours, zigzag, seven bits a byte, base64. Times are whole ticks, bytes whole grains.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <string.h>

#include "graph/blocks.h"
#include "runtime/report_priv.h"
#include "sched/lives.h"
#include "sched/look.h"

#define TICKS 0x1p25      // of the longer of the timelines
#define GRAINS 16384      // of the reservation
#define MOST_ITEMS 60000  // more of them, and only some micro-batches are shown in full
#define MOST_POINTS 40000 // of memory
#define NAME_BYTES 120    // longer names lose their middle

typedef struct column {
    zx_text bytes;
    int64_t last;
} column;

static void add(column *c, int64_t x)
{
    const uint64_t d = (uint64_t)x - (uint64_t)c->last;
    uint64_t z = (d << 1) ^ (d >> 63 ? UINT64_MAX : 0);
    c->last = x;
    do {
        const unsigned char b = (unsigned char)((z & 127) | (z > 127 ? 128 : 0));
        zx_text_bytes(&c->bytes, &b, 1);
        z >>= 7;
    } while (z > 0);
}

static void put_column(zx_text *out, const char *key, column *c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *s = (const unsigned char *)c->bytes.at;
    zx_text_put(out, "\"%s\":\"", key);
    for (size_t i = 0; i < c->bytes.n; i += 3) {
        const size_t n = c->bytes.n - i < 3 ? c->bytes.n - i : 3;
        const uint32_t x = (uint32_t)s[i] << 16 | (n > 1 ? (uint32_t)s[i + 1] << 8 : 0) |
                           (n > 2 ? (uint32_t)s[i + 2] : 0);
        const char four[4] = {digits[x >> 18], digits[x >> 12 & 63],
                              n > 1 ? digits[x >> 6 & 63] : '=', n > 2 ? digits[x & 63] : '='};
        zx_text_bytes(out, four, 4);
    }
    zx_text_put(out, "\"");
    zx_text_free(&c->bytes);
    *c = (column){0};
}

typedef struct maker {
    const zx_report *r;
    const zx_graph *g;
    const zx_plan *p;
    zx_arena *mem;
    zx_text *out;
    double tick, zero;
    uint64_t grain;
    uint32_t n_items;
    uint32_t *item;        // by instruction: its place among the items; ZX_NONE
    const uint32_t *event; // by event: the instruction that makes it happen
    uint32_t n_execs;      // of steps shown
    bool *shown;           // by micro-batch: in full
} maker;

// ---- names
// ------------------------------------------------------------------------------------------

// Cut where a letter begins, so that what is left is UTF-8 if the name was.
static bool begins_letter(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

static void put_name(maker *m, const char *name)
{
    const size_t n = strlen(name);
    if (n <= NAME_BYTES) {
        zx_text_json(m->out, name);
        return;
    }
    size_t head = NAME_BYTES / 2, tail = n - NAME_BYTES / 2;
    while (head > 0 && !begins_letter(name[head])) head--;
    while (tail < n && !begins_letter(name[tail])) tail++;
    const char *a = zx_arena_strn(m->mem, name, head);
    zx_text_json(m->out, zx_arena_printf(m->mem, "%s...%s", a, name + tail));
}

static void put_names(maker *m)
{
    column op = {0}, phase = {0}, bytes = {0}, block = {0};
    zx_text_put(m->out, ",\"ops\":[");
    for (uint32_t i = 0; i < ZX_OP_COUNT; i++)
        zx_text_put(m->out, "%s\"%s\"", i ? "," : "", zx_ops[i].word);
    zx_text_put(m->out, "],\n\"nodes\":[");
    for (uint32_t i = 0; i < m->g->n_nodes; i++) {
        zx_text_put(m->out, i ? "," : "");
        put_name(m, m->g->nodes[i].name);
        add(&op, m->g->nodes[i].op);
        add(&phase, m->g->nodes[i].phase);
    }
    zx_text_put(m->out, "],\n");
    put_column(m->out, "node_op", &op);
    zx_text_put(m->out, ",");
    put_column(m->out, "node_phase", &phase);
    zx_text_put(m->out, ",\n\"units\":[");
    zx_blocks blocks;
    zx_blocks_make(m->g, m->mem, &blocks);
    for (uint32_t i = 0; i < m->p->n_units; i++) {
        const zx_unit *u = &m->p->units[i];
        zx_text_put(m->out, i ? "," : "");
        put_name(m, m->g->params[u->param].name);
        add(&bytes, (int64_t)(zx_unit_room(m->p, u, 1) * u->param_bytes));
        add(&block, blocks.n > 0 && blocks.of_param[u->param] != ZX_NONE
                        ? (int64_t)blocks.of_param[u->param]
                        : -1);
    }
    zx_text_put(m->out, "],\n");
    put_column(m->out, "unit_bytes", &bytes);
    zx_text_put(m->out, ",");
    put_column(m->out, "unit_block", &block);
    zx_text_put(m->out, ",\"blocks\":[");
    for (uint32_t i = 0; i < blocks.n; i++) {
        zx_text_put(m->out, i ? "," : "");
        put_name(m, blocks.names[i]);
    }
    zx_text_put(m->out, "]");
}

// ---- what is shown
// ------------------------------------------------------------------------------------

static uint32_t micro_of(const maker *m, uint32_t insn)
{
    const uint32_t step = m->p->insns[insn].step;
    return step == ZX_NONE || step >= m->p->n_steps ? ZX_NONE : m->p->steps[step].micro;
}

static bool is_item(const maker *m, uint32_t insn)
{
    const zx_insn *in = &m->p->insns[insn];
    if (in->id == ZX_I_FREE || in->id == ZX_I_MARK || in->id == ZX_I_LOSS) return false;
    const uint32_t micro = micro_of(m, insn);
    if (micro != ZX_NONE && !m->shown[micro]) return false;
    if (in->id != ZX_I_WAIT && in->id != ZX_I_HOOK) return true;
    const double *also = m->r->measured_seconds;
    return in->stream == ZX_S_COMPUTE &&
           (m->p->seconds[insn] > 0 || (also != NULL && also[insn] > 0));
}

static uint32_t steady_micro(const maker *m)
{
    const uint32_t n = m->p->micro_batches;
    return n >= 3 ? n / 2 : n - 1;
}

// All micro-batches where they are few; else the first, those around the steady one and the last.
static void choose_items(maker *m)
{
    const uint32_t n = m->p->micro_batches, steady = n > 0 ? steady_micro(m) : 0;
    const bool all = m->p->n_insns <= MOST_ITEMS * 2;
    m->shown = ZX_NEW(m->mem, bool, n);
    for (uint32_t k = 0; k < n; k++)
        m->shown[k] = all || k < 1 || k + 1 >= n || (k + 1 >= steady && k <= steady + 1);
    m->item = ZX_NEW(m->mem, uint32_t, m->p->n_insns);
    for (uint32_t i = 0; i < m->p->n_insns; i++)
        m->item[i] = is_item(m, i) ? m->n_items++ : ZX_NONE;
}

static int64_t subject_of(const maker *m, const zx_insn *in)
{
    switch ((zx_insn_id)in->id) {
    case ZX_I_EXEC:
        return m->p->steps[in->a].node;
    case ZX_I_BUCKET:
        return m->p->members[m->p->launches[in->a].member + in->b].unit;
    case ZX_I_GATHER:
    case ZX_I_REDUCE:
    case ZX_I_ALLREDUCE:
    case ZX_I_PACK:
    case ZX_I_UNPACK:
    case ZX_I_UPDATE:
        return in->a;
    case ZX_I_WAIT: {
        const uint32_t by = m->event[in->a];
        return by == ZX_NONE || m->item[by] == ZX_NONE ? -1 : (int64_t)m->item[by];
    }
    default:
        return -1;
    }
}

static void put_items(maker *m)
{
    column id = {0}, stream = {0}, by = {0}, what = {0}, micro = {0}, n = {0}, unit = {0};
    for (uint32_t i = 0; i < m->p->n_insns; i++) {
        const zx_insn *in = &m->p->insns[i];
        if (m->item[i] == ZX_NONE) continue;
        const uint32_t k = micro_of(m, i);
        add(&id, in->id);
        add(&stream, in->stream);
        add(&by, in->by);
        add(&what, subject_of(m, in));
        add(&micro, k == ZX_NONE ? -1 : (int64_t)k);
    }
    zx_text_put(m->out, ",\n\"items\":{\"n\":%u,", m->n_items);
    put_column(m->out, "id", &id);
    zx_text_put(m->out, ",");
    put_column(m->out, "stream", &stream);
    zx_text_put(m->out, ",");
    put_column(m->out, "by", &by);
    zx_text_put(m->out, ",");
    put_column(m->out, "what", &what);
    zx_text_put(m->out, ",");
    put_column(m->out, "micro", &micro);
    for (uint32_t l = 0; l < m->p->n_launches; l++) {
        add(&n, m->p->launches[l].n_members);
        for (uint32_t k = 0; k < m->p->launches[l].n_members; k++)
            add(&unit, m->p->members[m->p->launches[l].member + k].unit);
    }
    zx_text_put(m->out, "},\n\"launches\":{");
    put_column(m->out, "n", &n);
    zx_text_put(m->out, ",");
    put_column(m->out, "unit", &unit);
    zx_text_put(m->out, "}");
}

// ---- timelines
// ----------------------------------------------------------------------------------------

static int64_t ticks(const maker *m, double at)
{
    return zx_int_of((at - m->zero) / m->tick + 0.5);
}

static bool is_gather_shown(const maker *m, const zx_gathered *x)
{
    return m->item[x->insn] != ZX_NONE;
}

static void put_gathers(maker *m, const zx_look *look)
{
    column unit = {0}, item = {0}, first = {0}, last = {0}, ahead = {0}, steps = {0}, bytes = {0};
    for (uint32_t i = 0; i < look->n; i++) {
        const zx_gathered *x = &look->gathers[i];
        if (!is_gather_shown(m, x)) continue;
        const uint32_t from = x->first == ZX_NONE ? ZX_NONE : m->item[look->exec[x->first]],
                       to = x->last == ZX_NONE ? ZX_NONE : m->item[look->exec[x->last]];
        add(&unit, x->unit);
        add(&item, m->item[x->insn]);
        add(&first, from == ZX_NONE ? -1 : (int64_t)from);
        add(&last, to == ZX_NONE ? -1 : (int64_t)to);
        add(&ahead, x->first == ZX_NONE ? -1 : (int64_t)x->first - x->issue);
        add(&steps, x->next == ZX_NONE ? -1 : (int64_t)x->reuse_steps);
        add(&bytes, (int64_t)x->reuse_bytes);
    }
    zx_text_put(m->out, ",\n\"gathers\":{");
    const char *const keys[] = {"unit", "item", "first", "last", "ahead", "steps", "bytes"};
    column *const columns[] = {&unit, &item, &first, &last, &ahead, &steps, &bytes};
    for (size_t k = 0; k < ZX_COUNT(keys); k++) {
        zx_text_put(m->out, k ? "," : "");
        put_column(m->out, keys[k], columns[k]);
    }
    zx_text_put(m->out, "}");
}

// Points of memory; where there are too many, the highest total of each stretch of time.
static void put_memory(maker *m, const zx_lives *lives, double step)
{
    column at = {0}, kind[ZX_USE_COUNT] = {{{0}, 0}};
    const double stretch = lives->n > MOST_POINTS ? step / (MOST_POINTS / 2) : 0;
    uint64_t best = 0;
    uint32_t which = 0;
    for (uint32_t i = 0; i < lives->n; i++) {
        uint64_t all = 0;
        for (uint32_t k = 0; k < ZX_USE_COUNT; k++) all += lives->points[i].bytes[k];
        if (all >= best) {
            best = all;
            which = i;
        }
        const bool more = i + 1 < lives->n && stretch > 0 &&
                          (uint64_t)(lives->points[i + 1].at / stretch) ==
                              (uint64_t)(lives->points[i].at / stretch);
        if (more) continue;
        add(&at, ticks(m, lives->points[which].at));
        for (uint32_t k = 0; k < ZX_USE_COUNT; k++)
            add(&kind[k], (int64_t)(lives->points[which].bytes[k] / m->grain));
        best = 0;
    }
    zx_text_put(m->out, ",\n\"memory\":{");
    put_column(m->out, "at", &at);
    for (uint32_t k = 0; k < ZX_USE_COUNT; k++) {
        zx_text_put(m->out, ",");
        put_column(m->out, zx_use_words[k], &kind[k]);
    }
    zx_text_put(m->out, "}");
}

// What is shown at first: from the steady micro-batch's first kernel to the next one's.
static void put_window(maker *m, const zx_plan *p, const zx_look *look)
{
    double from = 0, to = p->step_seconds;
    const uint32_t steady = p->micro_batches > 1 ? steady_micro(m) : 0;
    for (uint32_t t = p->n_steps; p->micro_batches > 1 && t-- > 0;) {
        if (p->steps[t].micro == steady) from = look->begins[t];
        if (p->steps[t].micro == steady + 1) to = look->begins[t];
        if (p->steps[t].micro == steady && t + 1 == p->n_steps) to = look->begins[t + 1];
    }
    zx_text_put(m->out, ",\"window\":[%" PRId64 ",%" PRId64 "],\"steady\":%u", ticks(m, from),
                ticks(m, to), steady);
}

static void put_timeline(maker *m, const zx_plan *p, const char *word)
{
    zx_look look;
    zx_lives lives;
    zx_look_make(m->g, p, m->mem, &look);
    zx_lives_make(m->g, p, m->mem, &lives);
    column start = {0}, takes = {0}, gone = {0}, reuse = {0};
    for (uint32_t i = 0; i < p->n_insns; i++) {
        if (m->item[i] == ZX_NONE) continue;
        const int64_t from = ticks(m, p->start[i]);
        add(&start, from);
        add(&takes, ticks(m, p->start[i] + p->seconds[i]) - from);
    }
    for (uint32_t i = 0; i < look.n; i++) {
        const zx_gathered *x = &look.gathers[i];
        if (!is_gather_shown(m, x)) continue;
        add(&gone, x->freed == ZX_NONE ? -1 : ticks(m, x->gone));
        add(&reuse, x->next == ZX_NONE ? -1 : zx_int_of(x->reuse_seconds / m->tick));
    }
    zx_text_put(m->out, "{\"word\":\"%s\",\"step\":%" PRId64 ",\"held\":%" PRIu64, word,
                ticks(m, p->step_seconds), lives.held);
    put_window(m, p, &look);
    zx_text_put(m->out, ",\n");
    put_column(m->out, "start", &start);
    zx_text_put(m->out, ",\n");
    put_column(m->out, "takes", &takes);
    zx_text_put(m->out, ",\n");
    put_column(m->out, "gone", &gone);
    zx_text_put(m->out, ",\n");
    put_column(m->out, "reuse", &reuse);
    put_memory(m, &lives, p->step_seconds);
    zx_text_put(m->out, "}");
}

static double earliest(const double *start, uint32_t n)
{
    double least = 0;
    for (uint32_t i = 0; start != NULL && i < n; i++)
        if (start[i] < least) least = start[i];
    return least;
}

static void put_tables(maker *m)
{
    static const struct {
        const char *name, *what;
    } passes[] = {
#define ZX_PASS(name, what) {#name, what},
#include "sched/passes.def"
#undef ZX_PASS
    };
    zx_text_put(m->out, ",\n\"words\":[");
    for (uint32_t i = 0; i < ZX_INSN_COUNT; i++)
        zx_text_put(m->out, "%s\"%s\"", i ? "," : "", zx_insn_rows[i].word);
    zx_text_put(m->out, "],\"streams\":[");
    for (uint32_t i = 0; i < ZX_STREAM_COUNT; i++)
        zx_text_put(m->out, "%s\"%s\"", i ? "," : "", zx_stream_words[i]);
    zx_text_put(m->out, "],\n\"passes\":[");
    for (size_t i = 0; i < ZX_COUNT(passes); i++) {
        zx_text_put(m->out, "%s[\"%s\",", i ? "," : "", passes[i].name);
        zx_text_json(m->out, passes[i].what);
        zx_text_put(m->out, "]");
    }
    zx_text_put(m->out, "]");
}

static void put_head(maker *m)
{
    zx_text_put(m->out, "{\"tick\":%.9g,\"grain\":%" PRIu64 ",\"peak\":%" PRIu64, m->tick, m->grain,
                m->p->arena_bytes);
    if (m->p->budget == UINT64_MAX)
        zx_text_put(m->out, ",\"budget\":null");
    else
        zx_text_put(m->out, ",\"budget\":%" PRIu64, m->p->budget);
    // The curve's points are all of one kind, this plan's too. Budgets are only ever simulated.
    const bool measured = m->r->n_points == 0 && zx_report_by_measured(m->r);
    double seconds = m->p->step_seconds;
    for (uint32_t i = 0; i < m->r->n_policies && measured; i++)
        if (m->r->policies[i].here) seconds = m->r->policies[i].measured_seconds;
    zx_text_put(m->out, ",\"seconds\":%.9g,\"kind\":\"%s\",\"policy\":", seconds,
                measured ? "measured, the median" : "predicted");
    zx_text_json(m->out, m->p->policy[0] ? m->p->policy : "zerox");
    zx_text_put(m->out, ",\"bound\":%.9g,\"points\":[", m->r->bound ? m->r->bound->seconds : 0.0);
    for (uint32_t i = 0; i < m->r->n_points; i++) {
        const zx_report_point *x = &m->r->points[i];
        zx_text_put(m->out, "%s{\"bytes\":%" PRIu64 ",\"seconds\":%.9g,\"policy\":", i ? "," : "",
                    x->budget_bytes, x->seconds);
        zx_text_json(m->out, x->policy);
        zx_text_put(m->out, "}");
    }
    zx_text_put(m->out, "],\"peaks\":[");
    for (uint32_t i = 0; i < m->r->n_policies; i++) {
        const zx_report_policy *x = &m->r->policies[i];
        zx_text_put(m->out, "%s{\"bytes\":%" PRIu64 ",\"seconds\":%.9g,\"here\":%s,\"policy\":",
                    i ? "," : "", x->peak_bytes,
                    measured ? x->measured_seconds : x->predicted_seconds,
                    x->here ? "true" : "false");
        zx_text_json(m->out, x->form != NULL && x->form[0] != '\0'
                                 ? zx_arena_printf(m->mem, "%s, %s", x->policy, x->form)
                                 : x->policy);
        zx_text_put(m->out, "}");
    }
    zx_text_put(m->out, "]");
}

void zx_report_data(const zx_report *r, zx_arena *mem, zx_text *out)
{
    const zx_plan *p = r->plan;
    zx_text json = {0};
    maker m = {.r = r, .g = r->train, .p = p, .mem = mem, .out = &json};
    const zx_plan measured = zx_report_measured(r);
    const double longest =
        p->step_seconds > measured.step_seconds ? p->step_seconds : measured.step_seconds;
    const double before = earliest(p->start, p->n_insns),
                 also = earliest(r->measured_start, p->n_insns);
    m.zero = before < also ? before : also;
    m.tick = longest > 0 ? longest / TICKS : 1;
    m.grain = p->arena_bytes / GRAINS + 1;
    uint32_t *event = ZX_NEW(mem, uint32_t, p->n_events);
    for (uint32_t i = 0; i < p->n_events; i++) event[i] = ZX_NONE;
    for (uint32_t i = 0; i < p->n_insns; i++)
        if (p->insns[i].c != ZX_NONE) event[p->insns[i].c] = i;
    m.event = event;
    choose_items(&m);
    put_head(&m);
    put_tables(&m);
    put_names(&m);
    put_items(&m);
    zx_look look;
    zx_look_make(m.g, p, mem, &look);
    put_gathers(&m, &look);
    zx_text_put(&json, ",\n\"times\":[");
    if (r->measured_seconds != NULL) {
        put_timeline(&m, &measured, "measured");
        zx_text_put(&json, ",\n");
    }
    put_timeline(&m, p, "simulated");
    zx_text_put(&json, "]}\n");
    zx_report_json_safe(out, json.at);
    zx_text_free(&json);
}
