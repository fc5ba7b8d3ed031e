// diff.c - see diff.h. Needs no graph: a plan file says what its units are called.
// SPDX-License-Identifier: Apache-2.0
#include "sched/diff.h"

#include <inttypes.h>
#include <string.h>

#include "sched/look.h"

#define MOST_UNITS 40 // lines

typedef struct sides {
    const zx_diff_side *a, *b;
    zx_arena *mem;
    zx_text *out;
    int column; // width of A's
} sides;

static bool same_bytes(const void *a, uint64_t n, const void *b, uint64_t m, size_t size)
{
    return n == m && (n == 0 || memcmp(a, b, (size_t)n * size) == 0);
}

// ---- what they are
// --------------------------------------------------------------------------------

static void put_row(const sides *s, const char *what, const char *a, const char *b)
{
    zx_text_put(s->out, "%c %-13s  %-*s  %s\n", strcmp(a, b) == 0 ? ' ' : '*', what, s->column, a,
                b);
}

static void put_count(const sides *s, const char *what, uint64_t a, uint64_t b)
{
    put_row(s, what, zx_arena_printf(s->mem, "%" PRIu64, a),
            zx_arena_printf(s->mem, "%" PRIu64, b));
}

static const char *bytes_text(const sides *s, uint64_t bytes)
{
    char size[ZX_BYTES_TEXT];
    if (bytes == UINT64_MAX) return "none";
    return zx_arena_printf(s->mem, "%s (%" PRIu64 ")", zx_text_size(bytes, size), bytes);
}

static const char *ms_text(const sides *s, double seconds)
{
    return zx_arena_printf(s->mem, "%.3f ms", seconds * 1e3);
}

static uint64_t count_of(const zx_plan *p, uint32_t kinds)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_insns; i++) n += kinds >> p->insns[i].id & 1;
    return n;
}

#define KIND(id) (1u << ZX_I_##id)
static void put_head(const sides *s)
{
    const zx_plan *p = s->a->plan, *q = s->b->plan;
    const uint32_t reduces = KIND(REDUCE) | KIND(ALLREDUCE),
                   copies = KIND(PACK) | KIND(UNPACK) | KIND(BUCKET);
    zx_text_put(s->out, "  %-13s  %-*s  %s\n", "", s->column, s->a->name, s->b->name);
    put_row(s, "policy", zx_text_safe(s->mem, p->policy), zx_text_safe(s->mem, q->policy));
    put_row(s, "train graph", zx_arena_printf(s->mem, "%016" PRIx64, p->graph_hash),
            zx_arena_printf(s->mem, "%016" PRIx64, q->graph_hash));
    put_count(s, "ranks", p->ranks, q->ranks);
    put_count(s, "ZeRO stage", p->stage, q->stage);
    put_count(s, "micro-batches", p->micro_batches, q->micro_batches);
    put_row(s, "budget", bytes_text(s, p->budget), bytes_text(s, q->budget));
    put_row(s, "peak", bytes_text(s, p->arena_bytes), bytes_text(s, q->arena_bytes));
    put_row(s, "step", ms_text(s, p->step_seconds), ms_text(s, q->step_seconds));
    put_row(s, "exposed", ms_text(s, p->exposed_seconds), ms_text(s, q->exposed_seconds));
    put_row(s, "on the wire", bytes_text(s, p->wire_bytes), bytes_text(s, q->wire_bytes));
    put_count(s, "gathers", count_of(p, KIND(GATHER)), count_of(q, KIND(GATHER)));
    put_count(s, "reduces", count_of(p, reduces), count_of(q, reduces));
    put_count(s, "copies", count_of(p, copies), count_of(q, copies));
    put_count(s, "instructions", p->n_insns, q->n_insns);
}

// ---- what their units do
// -----------------------------------------------------------------------------------

typedef struct unit_sum { // of the gathers before a use
    uint32_t n;
    uint64_t ahead; // steps from the issue to the first use
} unit_sum;

static const unit_sum *sum_units(const sides *s, const zx_plan *p)
{
    zx_look look;
    zx_look_make(NULL, p, s->mem, &look);
    unit_sum *sums = ZX_NEW(s->mem, unit_sum, p->n_units);
    for (uint32_t i = 0; i < look.n; i++) {
        const zx_gathered *x = &look.gathers[i];
        if (x->first == ZX_NONE) continue;
        sums[x->unit].n++;
        sums[x->unit].ahead += x->first - x->issue;
    }
    return sums;
}

static const char *per_text(const sides *s, uint64_t sum, uint64_t of)
{
    if (of == 0) return "-";
    if (sum % of == 0) return zx_arena_printf(s->mem, "%" PRIu64, sum / of);
    return zx_arena_printf(s->mem, "%.2f", (double)sum / (double)of);
}

static void put_units(const sides *s)
{
    const zx_plan *p = s->a->plan, *q = s->b->plan;
    for (uint32_t u = 0; u < p->n_units && u < q->n_units; u++)
        if (strcmp(s->a->units[u], s->b->units[u]) != 0) {
            zx_text_put(s->out, "\nof two models: parameter %u is '%s' and '%s'\n", u,
                        zx_text_safe(s->mem, s->a->units[u]), zx_text_safe(s->mem, s->b->units[u]));
            return;
        }
    if (p->n_units != q->n_units) {
        zx_text_put(s->out, "\nof two models: %u and %u parameters\n", p->n_units, q->n_units);
        return;
    }
    const unit_sum *of_a = sum_units(s, p), *of_b = sum_units(s, q);
    uint32_t n = 0;
    for (uint32_t u = 0; u < p->n_units; u++) {
        const char *cell[4] = {
            per_text(s, of_a[u].n, p->micro_batches), per_text(s, of_b[u].n, q->micro_batches),
            per_text(s, of_a[u].ahead, of_a[u].n), per_text(s, of_b[u].ahead, of_b[u].n)};
        if (strcmp(cell[0], cell[1]) == 0 && strcmp(cell[2], cell[3]) == 0) continue;
        if (n++ == 0)
            zx_text_put(s->out,
                        "\ngathers a micro-batch (left, right), steps from issue to use (left, "
                        "right)\n");
        if (n <= MOST_UNITS)
            zx_text_put(s->out, "  %6s %6s  %7s %7s  %s\n", cell[0], cell[1], cell[2], cell[3],
                        zx_text_safe(s->mem, s->a->units[u]));
    }
    if (n > MOST_UNITS) zx_text_put(s->out, "  and %u parameters more\n", n - MOST_UNITS);
}

// ---- where they part
// ---------------------------------------------------------------------------------------

static void put_insn(const sides *s, const zx_diff_side *of, uint32_t i)
{
    const zx_plan *p = of->plan;
    zx_text_put(s->out, "  %s: ", of->name);
    if (i >= p->n_insns) {
        zx_text_put(s->out, "ends\n");
        return;
    }
    const zx_insn *in = &p->insns[i];
    const zx_insn_row *row = &zx_insn_rows[in->id];
    const uint32_t x[3] = {in->a, in->b, in->c};
    zx_text_put(s->out, "%s: %s", zx_stream_words[in->stream], row->word);
    for (uint32_t k = 0; k < 3; k++) {
        const zx_launch *l = &p->launches[row->kind[k] == ZX_OPERAND_LAUNCH ? x[k] : 0];
        switch ((zx_operand)row->kind[k]) {
        case ZX_OPERAND_NONE:
            break;
        case ZX_OPERAND_EVENT:
            if (x[k] != ZX_NONE) zx_text_put(s->out, " e%u", x[k]);
            break;
        case ZX_OPERAND_LAUNCH:
            zx_text_put(s->out, " '%s'",
                        zx_text_safe(s->mem, of->units[p->members[l->member].unit]));
            if (l->n_members > 1) zx_text_put(s->out, " and %u more", l->n_members - 1);
            break;
        case ZX_OPERAND_STEP:
            zx_text_put(s->out, " step %u of micro-batch %u", x[k], p->steps[x[k]].micro);
            break;
        case ZX_OPERAND_UNIT:
            zx_text_put(s->out, " '%s'", zx_text_safe(s->mem, of->units[x[k]]));
            break;
        case ZX_OPERAND_SLOT:
            zx_text_put(s->out, " slot %u at %" PRIu64, x[k], p->slots[x[k]].offset);
            break;
        case ZX_OPERAND_FLAG:
            zx_text_put(s->out, x[k] ? " add" : " write");
            break;
        case ZX_OPERAND_MICRO:
        case ZX_OPERAND_BUFFER:
        case ZX_OPERAND_MEMBER:
        case ZX_OPERAND_NUMBER:
            zx_text_put(s->out, " %u", x[k]);
        }
    }
    zx_text_put(s->out, "\n");
}

static void put_slots(const sides *s)
{
    const zx_plan *p = s->a->plan, *q = s->b->plan;
    uint32_t n = 0, first = ZX_NONE;
    const uint32_t both = p->n_slots < q->n_slots ? p->n_slots : q->n_slots;
    for (uint32_t i = 0; i < both; i++)
        if (memcmp(&p->slots[i], &q->slots[i], sizeof p->slots[i]) != 0 && n++ == 0) first = i;
    n += p->n_slots + q->n_slots - 2 * both;
    if (n == 0) return;
    zx_text_put(s->out, "\n%u slots differ", n);
    if (first != ZX_NONE)
        zx_text_put(s->out,
                    "; the first is slot %u: %" PRIu64 " bytes at %" PRIu64 ", %" PRIu64
                    " bytes at %" PRIu64,
                    first, p->slots[first].bytes, p->slots[first].offset, q->slots[first].bytes,
                    q->slots[first].offset);
    zx_text_put(s->out, "\n");
}

// Instructions are compared as they are: they may also part because a launch or a slot has another
// number.
static void put_parting(const sides *s)
{
    const zx_plan *p = s->a->plan, *q = s->b->plan;
    uint32_t i = 0;
    while (i < p->n_insns && i < q->n_insns &&
           memcmp(&p->insns[i], &q->insns[i], sizeof p->insns[i]) == 0)
        i++;
    if (i < p->n_insns || i < q->n_insns) {
        zx_text_put(s->out, "\nthe first instruction that differs is %u\n", i);
        const size_t first = s->out->n + 2 + strlen(s->a->name);
        put_insn(s, s->a, i);
        const size_t second = s->out->n + 2 + strlen(s->b->name);
        const size_t n = s->out->n - first;
        put_insn(s, s->b, i);
        if (s->out->n - second == n && memcmp(s->out->at + first, s->out->at + second, n) == 0)
            zx_text_put(s->out, "(the same in words: slots or launches have other numbers)\n");
    } else
        zx_text_put(s->out, "\nthe instructions are the same\n");
    put_slots(s);
    if (!same_bytes(p->launches, p->n_launches, q->launches, q->n_launches, sizeof *p->launches) ||
        !same_bytes(p->members, p->n_members, q->members, q->n_members, sizeof *p->members))
        zx_text_put(s->out, "\nlaunches differ: %u with %u members, %u with %u\n", p->n_launches,
                    p->n_members, q->n_launches, q->n_members);
    if (!same_bytes(p->steps, p->n_steps, q->steps, q->n_steps, sizeof *p->steps) ||
        !same_bytes(p->args, p->n_args, q->args, q->n_args, sizeof *p->args))
        zx_text_put(s->out, "\nsteps or their operands differ: %u and %u steps\n", p->n_steps,
                    q->n_steps);
}

bool zx_plan_diff(const zx_diff_side *a, const zx_diff_side *b, zx_text *out)
{
    const zx_plan *p = a->plan, *q = b->plan;
    if (zx_plan_hash(p) == zx_plan_hash(q) && strcmp(p->policy, q->policy) == 0 &&
        p->wire_bytes == q->wire_bytes && p->step_seconds == q->step_seconds &&
        p->compute_seconds == q->compute_seconds && p->exposed_seconds == q->exposed_seconds)
        return false;
    zx_arena mem = {0};
    const size_t n = strlen(a->name);
    const sides s = {a, b, &mem, out, n < 24 ? 24 : (int)(n < 60 ? n : 60)};
    put_head(&s);
    put_units(&s);
    put_parting(&s);
    zx_arena_free(&mem);
    return true;
}
