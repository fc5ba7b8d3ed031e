// explain.c - a plan for people: a line a gather with repeated blocks folded, when each parameter
// is where, and a summary. Checked plans only.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <string.h>

#include "sched/look.h"

#define MOST_LINES 31  // of gathers in the folded table; with its head and the summary below 40
#define MOST_NUMBERS 4 // in a name that are told apart

// ---- names that differ in numbers only
// ------------------------------------------------------------------

// How much of a name is folded away: nothing, its numbers, also its last part, all after the first
// number.
typedef enum fold { FOLD_NONE, FOLD_NUMBERS, FOLD_LEAF, FOLD_BLOCK, FOLD_COUNT } fold;

typedef struct folded { // gathers that share a line
    const char *key;    // the name with what is folded away as '#'
    uint32_t nth, n;    // of its unit in the micro-batch; how many gathers
    uint32_t phase;     // zx_phase of the first use
    uint32_t n_numbers;
    uint64_t lowest[MOST_NUMBERS], highest[MOST_NUMBERS];
    uint64_t bytes; // of one gather, on average
    // Least and most. Steps: the first use; from the issue to it; from it to the last use; from
    // there to the free.
    uint32_t first[2], ahead[2], last[2], freed[2], steps[2];
    uint64_t elements[2], reuse_bytes[2];
    double ready[2], seconds[2], slack;
    bool reused, stays; // stays: some gather is never freed
} folded;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// The key of a name, and the numbers that it leaves out.
static const char *fold_name(zx_arena *mem, const char *name, fold level, uint64_t *numbers,
                             uint32_t *n_numbers)
{
    const size_t n = strlen(name);
    char *key = ZX_NEW(mem, char, n + 3);
    size_t end = n, at = 0;
    *n_numbers = 0;
    if (level >= FOLD_LEAF) {
        const char *dot = strrchr(name, '.');
        const char *slash = strrchr(name, '/');
        if (slash > dot) dot = slash;
        if (dot) end = (size_t)(dot - name);
    }
    for (size_t i = 0; i < end;) {
        const bool number = is_digit(name[i]) && (i == 0 || name[i - 1] == '.' ||
                                                  name[i - 1] == '/' || name[i - 1] == '_');
        if (level == FOLD_NONE || !number || *n_numbers == MOST_NUMBERS) {
            key[at++] = name[i++];
            continue;
        }
        uint64_t x = 0;
        for (; i < end && is_digit(name[i]); i++)
            if (x < UINT64_MAX / 20) x = 10 * x + (uint64_t)(name[i] - '0');
        numbers[(*n_numbers)++] = x;
        key[at++] = '#';
        if (level == FOLD_BLOCK) break;
    }
    if (level >= FOLD_LEAF && (end < n || level == FOLD_BLOCK)) memcpy(key + at, ".*", 2);
    return key;
}

// The name with the ranges of its numbers, without its first `skip` bytes; how many gathers it
// stands for where the ranges don't say so.
static const char *unfold_name(zx_arena *mem, const folded *f, size_t skip)
{
    zx_text t = {0};
    uint32_t k = 0;
    uint64_t n = 1;
    for (const char *c = f->key; *c; c++) {
        if (*c != '#' || k == f->n_numbers)
            zx_text_bytes(&t, c, 1);
        else if (f->lowest[k] == f->highest[k])
            zx_text_put(&t, "%" PRIu64, f->lowest[k++]);
        else {
            zx_text_put(&t, "{%" PRIu64 "..%" PRIu64 "}", f->lowest[k], f->highest[k]);
            if (n < UINT32_MAX) n *= f->highest[k] - f->lowest[k] + 1;
            k++;
        }
    }
    if (n != f->n) zx_text_put(&t, " x%u", f->n);
    const char *name = zx_text_safe(
        mem, zx_arena_strn(mem, t.n > skip ? t.at + skip : "", t.n > skip ? t.n - skip : 0));
    zx_text_free(&t);
    return name;
}

// ---- the table
// --------------------------------------------------------------------------------------------

static void widen32(uint32_t range[2], uint32_t x, bool first)
{
    if (first || x < range[0]) range[0] = x;
    if (first || x > range[1]) range[1] = x;
}
static void widen64(uint64_t range[2], uint64_t x, bool first)
{
    if (first || x < range[0]) range[0] = x;
    if (first || x > range[1]) range[1] = x;
}
static void widen_seconds(double range[2], double x, bool first)
{
    if (first || x < range[0]) range[0] = x;
    if (first || x > range[1]) range[1] = x;
}

static void add_to(folded *f, const zx_plan *p, const zx_gathered *x, const uint64_t *numbers)
{
    const bool one = f->n == 0;
    f->bytes += p->slots[x->slot].bytes;
    f->n++;
    for (uint32_t k = 0; k < f->n_numbers; k++) {
        if (one || numbers[k] < f->lowest[k]) f->lowest[k] = numbers[k];
        if (one || numbers[k] > f->highest[k]) f->highest[k] = numbers[k];
    }
    widen32(f->first, x->first, one);
    widen32(f->ahead, x->first - x->issue, one);
    widen32(f->last, x->last - x->first, one);
    widen32(f->freed, x->freed == ZX_NONE ? 0 : x->freed - x->last, one);
    f->stays = f->stays || x->freed == ZX_NONE;
    widen_seconds(f->ready, x->ready, one);
    const double slack = x->used - x->ready;
    if (one || slack < f->slack) f->slack = slack;
    if (x->next == ZX_NONE) return;
    widen32(f->steps, x->reuse_steps, !f->reused);
    widen64(f->elements, x->reuse_elements, !f->reused);
    widen64(f->reuse_bytes, x->reuse_bytes, !f->reused);
    widen_seconds(f->seconds, x->reuse_seconds, !f->reused);
    f->reused = true;
}

// The gathers that the glob lets through, folded; returns how many lines they make, `most` + 1 for
// more than that. *n_left counts the gathers that found no line.
static uint32_t make_lines(const zx_graph *g, const zx_plan *p, const zx_look *look,
                           const char *glob, fold level, uint32_t most, zx_arena *mem,
                           folded *lines, uint32_t *n_left)
{
    uint32_t n = 0;
    *n_left = 0;
    for (uint32_t i = 0; i < look->n; i++) {
        const zx_gathered *x = &look->gathers[i];
        const char *name = g->params[x->unit].name;
        if (x->first == ZX_NONE || (glob && !zx_text_match(glob, name))) continue;
        uint64_t numbers[MOST_NUMBERS];
        uint32_t n_numbers, k = 0;
        const uint32_t phase = g->nodes[p->steps[x->first].node].phase;
        const char *key = fold_name(mem, name, level, numbers, &n_numbers);
        while (k < n && (level == FOLD_NONE || lines[k].nth != x->nth || lines[k].phase != phase ||
                         strcmp(lines[k].key, key) != 0))
            k++;
        if (k == most) {
            (*n_left)++;
            continue;
        }
        if (k == n)
            lines[n++] =
                (folded){.key = key, .nth = x->nth, .phase = phase, .n_numbers = n_numbers};
        add_to(&lines[k], p, x, numbers);
    }
    return n;
}

#define COLUMNS 12
typedef struct row {
    const char *cell[COLUMNS];
} row;
// Where the columns of reuse begin and end.
#define REUSE_FROM 7
#define REUSE_TO 10

static const char *range_text(zx_arena *mem, const char *before, const uint32_t r[2])
{
    if (r[0] == r[1]) return zx_arena_printf(mem, "%s%u", before, r[0]);
    return zx_arena_printf(mem, "%s%u-%u", before, r[0], r[1]);
}

// A range of what has units, both ends in the unit of the larger: a number, three digits of it.
static const char *number_text(zx_arena *mem, double x, double most)
{
    return zx_arena_printf(mem, "%.*f", x == 0 || most >= 99.95 ? 0 : most >= 9.995 ? 1 : 2, x);
}
static const char *scaled_text(zx_arena *mem, double least, double most, double base,
                               const char *const *units, size_t n_units)
{
    size_t u = 0;
    while (most >= 999.5 && u + 1 < n_units) {
        least /= base;
        most /= base;
        u++;
    }
    const char *a = number_text(mem, least, u == 0 && base != 1 ? 100 : most),
               *b = number_text(mem, most, u == 0 && base != 1 ? 100 : most);
    if (strcmp(a, b) == 0) return zx_arena_printf(mem, "%s%s", b, units[u]);
    return zx_arena_printf(mem, "%s-%s%s", a, b, units[u]);
}
static const char *count_text(zx_arena *mem, const uint64_t r[2])
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    return scaled_text(mem, (double)r[0], (double)r[1], 1000, units, ZX_COUNT(units));
}
static const char *bytes_text(zx_arena *mem, uint64_t least, uint64_t most)
{
    static const char *const units[] = {"B", "K", "M", "G", "T"};
    return scaled_text(mem, (double)least, (double)most, 1024, units, ZX_COUNT(units));
}
static const char *ms_text(zx_arena *mem, const double r[2])
{
    static const char *const units[] = {""};
    return scaled_text(mem, r[0] * 1e3, r[1] * 1e3, 1, units, 1);
}

static row make_row(zx_arena *mem, const folded *f, size_t skip, bool timed)
{
    row r = {{unfold_name(mem, f, skip)}};
    r.cell[1] = bytes_text(mem, f->bytes / f->n, f->bytes / f->n);
    r.cell[2] = range_text(mem, "", f->ahead);
    r.cell[3] = timed ? ms_text(mem, f->ready) : "-";
    r.cell[4] = range_text(mem, f->phase == ZX_FORWARD ? "F " : "B ", f->first);
    r.cell[5] = range_text(mem, "+", f->last);
    r.cell[6] = f->stays ? "never" : range_text(mem, "+", f->freed);
    for (uint32_t k = REUSE_FROM; k <= REUSE_TO; k++) r.cell[k] = "-";
    if (f->reused) {
        r.cell[7] = range_text(mem, "", f->steps);
        r.cell[8] = count_text(mem, f->elements);
        r.cell[9] = bytes_text(mem, f->reuse_bytes[0], f->reuse_bytes[1]);
        r.cell[10] = timed ? ms_text(mem, f->seconds) : "-";
    }
    const double slack[2] = {f->slack, f->slack};
    r.cell[11] = timed ? ms_text(mem, slack) : "-";
    return r;
}

// The bytes that all names begin with, up to the end of a module.
static size_t common_prefix(const folded *lines, uint32_t n)
{
    size_t skip = n > 1 ? strlen(lines[0].key) : 0;
    for (uint32_t i = 1; i < n; i++) {
        size_t k = 0;
        while (k < skip && lines[i].key[k] == lines[0].key[k]) k++;
        skip = k;
    }
    for (size_t k = 0; k < skip; k++)
        if (lines[0].key[k] == '#') skip = k;
    while (skip > 0 && lines[0].key[skip - 1] != '.' && lines[0].key[skip - 1] != '/') skip--;
    return skip;
}

static void put_table(zx_text *out, zx_arena *mem, const char *corner, const row *rows, uint32_t n)
{
    static const char title[] = " until the next use ";
    size_t width[COLUMNS] = {0}, before = 0, reuse = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < COLUMNS; k++) {
            const size_t w = strlen(rows[i].cell[k]);
            if (w > width[k]) width[k] = w;
        }
    for (uint32_t k = 0; k <= REUSE_TO; k++) *(k < REUSE_FROM ? &before : &reuse) += width[k] + 1;
    // Over the columns of reuse a line with their title in it: at least 21 wide with their heads.
    char *line = ZX_NEW(mem, char, reuse + 1);
    memset(line, '-', reuse);
    memcpy(line + (reuse - sizeof title) / 2 + 1, title, sizeof title - 1);
    line[0] = line[reuse - 1] = '|';
    zx_text_put(out, "%-*s%s\n", (int)before, corner, line);
    for (uint32_t i = 0; i < n; i++) {
        zx_text_put(out, "%-*s", (int)width[0], rows[i].cell[0]);
        for (uint32_t k = 1; k < COLUMNS; k++)
            zx_text_put(out, " %*s", (int)width[k], rows[i].cell[k]);
        zx_text_put(out, "\n");
    }
}

void zx_explain_gathers(const zx_graph *g, const zx_plan *p, const char *glob, zx_text *out)
{
    zx_arena mem = {0};
    zx_look look;
    zx_look_make(g, p, &mem, &look);
    uint32_t n_used = 0, n_lines = 0, n_left = 0;
    for (uint32_t i = 0; i < look.n; i++) n_used += look.gathers[i].first != ZX_NONE;
    if (n_used == 0) {
        zx_text_put(
            out,
            "no gathers before a use: every rank holds whole parameters (stage %u, %u rank%s)\n",
            p->stage, p->ranks, p->ranks == 1 ? "" : "s");
        if (look.n > 0) zx_text_put(out, "%u units are gathered after their update\n", look.n);
        zx_arena_free(&mem);
        return;
    }
    // A pattern asks for all lines; else the finest folding that is short enough.
    const uint32_t most = glob ? n_used : MOST_LINES;
    folded *lines = ZX_NEW(&mem, folded, most + 1);
    for (fold level = FOLD_NONE; level < FOLD_COUNT; level++) {
        n_lines = make_lines(g, p, &look, glob, level, most, &mem, lines, &n_left);
        if (n_left == 0 || level + 1 == FOLD_COUNT) break;
        memset(lines, 0, (most + 1) * sizeof *lines);
    }
    row *rows = ZX_NEW(&mem, row, n_lines + 1);
    rows[0] = (row){{"unit", "bytes", "ahead", "ready", "first", "last", "freed", "steps",
                     "elements", "bytes", "ms", "slack"}};
    const size_t skip = common_prefix(lines, n_lines);
    for (uint32_t i = 0; i < n_lines; i++)
        rows[i + 1] = make_row(&mem, &lines[i], skip, p->start != NULL);
    zx_text_put(
        out, "first: step of the first use, F forward, B backward; ahead: steps from the issue "
             "to it;\n"
             "last: steps from it to the last use; freed: from there; ready, slack in ms; K M G: "
             "2^10 2^20 2^30 bytes\n");
    const char *prefix = zx_text_safe(&mem, zx_arena_strn(&mem, lines[0].key, skip));
    put_table(out, &mem, skip > 0 ? zx_arena_printf(&mem, "in '%s':", prefix) : "", rows,
              n_lines + 1);
    if (n_left > 0) zx_text_put(out, "and %u gathers more\n", n_left);
    zx_arena_free(&mem);
}

// ---- states
// -----------------------------------------------------------------------------------------------

static void put_state(zx_text *out, const char *state, uint32_t from, uint32_t to, const double *at)
{
    zx_text_put(out, "  %-13s  steps %u..%u", state, from, to);
    if (at) zx_text_put(out, "  %.3f..%.3f ms", at[0] * 1e3, at[1] * 1e3);
    zx_text_put(out, "\n");
}

// The step that runs at a time.
static uint32_t step_at(const zx_look *look, uint32_t n_steps, double seconds)
{
    uint32_t a = 0, b = n_steps;
    while (a < b) {
        const uint32_t mid = a + (b - a) / 2;
        if (look->begins[mid + 1] > seconds)
            b = mid;
        else
            a = mid + 1;
    }
    return a;
}

void zx_explain_states(const zx_graph *g, const zx_plan *p, const char *glob, zx_text *out)
{
    zx_arena mem = {0};
    zx_look look;
    zx_look_make(g, p, &mem, &look);
    // Gathers by unit: a chain each.
    uint32_t *head = ZX_NEW(&mem, uint32_t, p->n_units), *next = ZX_NEW(&mem, uint32_t, look.n);
    for (uint32_t i = look.n; i-- > 0;) {
        next[i] = head[look.gathers[i].unit];
        head[look.gathers[i].unit] = i + 1;
    }
    for (uint32_t u = 0; u < p->n_units; u++) {
        const char *name = g->params[u].name;
        if (glob && !zx_text_match(glob, name)) continue;
        zx_text_put(out, "%s\n", zx_text_safe(&mem, name));
        double at[2] = {0, p->step_seconds};
        const double *times = p->start ? at : NULL;
        if (p->units[u].param_whole) {
            put_state(out, "AVAILABLE", 0, p->n_steps, times);
            continue;
        }
        uint32_t free_since = 0;
        double gone = 0;
        for (uint32_t i = head[u]; i > 0; i = next[i - 1]) {
            const zx_gathered *x = &look.gathers[i - 1];
            if (x->first == ZX_NONE) continue;
            const uint32_t ready = p->start ? step_at(&look, p->n_steps, x->ready) : x->first;
            at[0] = gone, at[1] = x->issued;
            if (x->issue > free_since) put_state(out, "NOT_AVAILABLE", free_since, x->issue, times);
            at[0] = x->issued, at[1] = x->ready;
            put_state(out, "INFLIGHT", x->issue, ready < x->first ? ready : x->first, times);
            at[0] = x->ready, at[1] = gone = x->gone;
            put_state(out, "AVAILABLE", ready < x->first ? ready : x->first, x->freed, times);
            free_since = x->freed;
        }
        at[0] = gone, at[1] = p->step_seconds;
        if (free_since < p->n_steps) put_state(out, "NOT_AVAILABLE", free_since, p->n_steps, times);
    }
    zx_arena_free(&mem);
}

// ---- summary
// ----------------------------------------------------------------------------------------------

// Two units where one would need long numbers: "1.40 s", "26.9 ms", "5 h 16 min".
static const char *seconds_text(zx_arena *mem, double x)
{
    static const struct {
        double below, unit; // seconds
        const char *word;
    } small[] = {{1e-3, 1e-6, "us"}, {1, 1e-3, "ms"}, {60, 1, "s"}};
    static const struct {
        uint64_t below, unit, small;
        const char *word, *small_word;
    } large[] = {{3600, 60, 1, "min", "s"},
                 {86400, 3600, 60, "h", "min"},
                 {UINT64_MAX, 86400, 3600, "d", "h"}};
    if (!(x > 0)) return "0 ms";
    for (size_t i = 0; i < ZX_COUNT(small); i++) {
        const double y = x / small[i].unit;
        if (x >= small[i].below * 0.9995) continue;
        return zx_arena_printf(mem, "%.*f %s",
                               y >= 99.95   ? 0
                               : y >= 9.995 ? 1
                                            : 2,
                               y, small[i].word);
    }
    if (x > 1e12) return "longer than 30000 years";
    size_t i = 0;
    uint64_t whole = (uint64_t)(x + 0.5); // of the small unit, as it is printed
    while (whole >= large[i].below) {
        i++;
        whole = ((uint64_t)(x + 0.5) + large[i].small / 2) / large[i].small * large[i].small;
    }
    return zx_arena_printf(mem, "%" PRIu64 " %s %" PRIu64 " %s", whole / large[i].unit,
                           large[i].word, whole % large[i].unit / large[i].small,
                           large[i].small_word);
}

// The most bytes of gathered units at once, as enqueued.
static uint64_t most_whole(const zx_plan *p)
{
    uint64_t live = 0, most = 0;
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        if (in->id == ZX_I_FREE && p->slots[in->a].kind == ZX_SLOT_UNIT)
            live -= p->slots[in->a].bytes;
        const bool in_place = in->id == ZX_I_GATHER && p->launches[in->a].flat == ZX_NONE;
        if (!in_place && in->id != ZX_I_UNPACK) continue;
        const zx_launch *l = &p->launches[in->a];
        for (uint32_t k = l->member; k < l->member + l->n_members; k++)
            if (p->slots[p->members[k].slot].kind == ZX_SLOT_UNIT)
                live += p->slots[p->members[k].slot].bytes;
        if (live > most) most = live;
    }
    return most;
}

static void put_wire(const zx_plan *p, uint64_t gathers, uint64_t reduces, zx_text *out)
{
    char a[ZX_BYTES_TEXT];
    zx_text_put(out, "\n");
    if (gathers + reduces == 0) {
        zx_text_put(out, "nothing on the wire\n");
        return;
    }
    zx_text_put(out, "%s on the wire each way a rank and step, in ",
                zx_text_size(p->wire_bytes, a));
    const uint64_t whole = most_whole(p); // none where parameters are whole all the time
    if (gathers > 0) zx_text_put(out, "%" PRIu64 " gather%s", gathers, gathers == 1 ? "" : "s");
    if (whole > 0) zx_text_put(out, " (at most %s whole at once)", zx_text_size(whole, a));
    if (gathers > 0) zx_text_put(out, " and ");
    zx_text_put(out, "%" PRIu64 " reduce%s\n", reduces, reduces == 1 ? "" : "s");
}

void zx_explain_summary(const zx_plan *p, const char *whose, zx_text *out)
{
    static const struct {
        const char *word;
        uint32_t kind, also;
    } parts[] = {{"parameters", ZX_SLOT_PARAM, ZX_SLOT_PARAM},
                 {"gradients", ZX_SLOT_GRAD, ZX_SLOT_GRAD},
                 {"f32 copies", ZX_SLOT_MASTER, ZX_SLOT_MASTER},
                 {"optimizer states", ZX_SLOT_STATE, ZX_SLOT_STATE},
                 {"buffers", ZX_SLOT_BUFFER, ZX_SLOT_WORKING},
                 {"constants", ZX_SLOT_CONST, ZX_SLOT_CONST}};
    char a[ZX_BYTES_TEXT];
    zx_arena mem = {0};
    if (strcmp(p->policy, "zerox") != 0)
        zx_text_put(out, "policy: %s\n", zx_text_safe(&mem, p->policy));
    zx_text_put(out, "peak %s a rank (%" PRIu64 " bytes)", zx_text_size(p->arena_bytes, a),
                p->arena_bytes);
    if (p->budget != UINT64_MAX) {
        zx_text_put(out, ", budget %s", zx_text_size(p->budget, a));
        if (whose != NULL) zx_text_put(out, " (%s)", whose);
    }
    zx_text_put(out, "\nheld %s", zx_text_size(p->held_bytes, a));
    const char *comma = " (";
    for (uint32_t k = 0; k < ZX_COUNT(parts); k++) {
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < p->n_slots; i++)
            if (p->slots[i].kind == parts[k].kind || p->slots[i].kind == parts[k].also)
                bytes += p->slots[i].bytes;
        if (bytes == 0) continue;
        zx_text_put(out, "%s%s %s", comma, parts[k].word, zx_text_size(bytes, a));
        comma = ", ";
    }
    if (comma[0] == ',') zx_text_put(out, ")");
    uint64_t count[ZX_INSN_COUNT] = {0};
    for (uint32_t i = 0; i < p->n_insns; i++) count[p->insns[i].id]++;
    put_wire(p, count[ZX_I_GATHER], count[ZX_I_REDUCE] + count[ZX_I_ALLREDUCE], out);
    const uint64_t copies = count[ZX_I_PACK] + count[ZX_I_UNPACK] + count[ZX_I_BUCKET];
    if (copies > 0)
        zx_text_put(out, "%" PRIu64 " copies into and out of flat buffers and the bucket\n",
                    copies);
    zx_text_put(out, "predicted step %s: compute %s, exposed communication %s (%.1f %%)\n",
                seconds_text(&mem, p->step_seconds), seconds_text(&mem, p->compute_seconds),
                seconds_text(&mem, p->exposed_seconds),
                p->step_seconds > 0 ? 100 * p->exposed_seconds / p->step_seconds : 0);
    zx_arena_free(&mem);
}
