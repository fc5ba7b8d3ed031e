// look.c - see look.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/look.h"

#include <string.h>

#include "sched/sums.h"

typedef struct looker {
    const zx_plan *p;
    zx_arena *mem;
    zx_gathered *gathers;
    uint32_t n, cap;
    uint32_t *open;           // by slot: the gather that is there; ZX_NONE
    uint32_t *sent, *sent_at; // by launch: its last gather, and how many steps came before it
    uint32_t *last_use;       // by gather: place in the uses below
    uint32_t cap_last;
    uint32_t *use_unit, *use_step; // every read of a unit, in order
    uint32_t n_uses, cap_unit, cap_step;
    uint32_t *seen; // by unit: the last step that reads it, plus one
} looker;

static double begin_of(const zx_plan *p, uint32_t insn)
{
    return p->start ? p->start[insn] : 0;
}
static double end_of(const zx_plan *p, uint32_t insn)
{
    return p->start ? p->start[insn] + p->seconds[insn] : 0;
}

// Units land at instruction `insn`: their gather, or what unpacks it.
static void open_gathers(looker *k, uint32_t insn)
{
    const uint32_t launch = k->p->insns[insn].a;
    const zx_launch *l = &k->p->launches[launch];
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        const zx_member *m = &k->p->members[i];
        ZX_GROW(k->mem, k->gathers, k->n, k->cap);
        k->gathers[k->n] = (zx_gathered){.unit = m->unit,
                                         .slot = m->slot,
                                         .insn = k->sent[launch],
                                         .issue = k->sent_at[launch],
                                         .first = ZX_NONE,
                                         .last = ZX_NONE,
                                         .freed = ZX_NONE,
                                         .next = ZX_NONE,
                                         .issued = begin_of(k->p, k->sent[launch]),
                                         .ready = end_of(k->p, insn)};
        ZX_GROW(k->mem, k->last_use, k->n, k->cap_last);
        k->last_use[k->n] = ZX_NONE;
        k->open[m->slot] = k->n++;
    }
}

static void send_gather(looker *k, uint32_t insn, uint32_t executed)
{
    const uint32_t launch = k->p->insns[insn].a;
    k->sent[launch] = insn;
    k->sent_at[launch] = executed;
    if (k->p->launches[launch].flat == ZX_NONE) open_gathers(k, insn);
}

static void note_uses(looker *k, uint32_t insn, uint32_t step)
{
    const zx_plan_step *t = &k->p->steps[k->p->insns[insn].a];
    for (uint32_t i = 0; i < t->n_in; i++) {
        const uint32_t slot = k->p->args[t->arg + i];
        if (slot == ZX_NONE) continue;
        const zx_slot *s = &k->p->slots[slot];
        if (s->kind != ZX_SLOT_UNIT && s->kind != ZX_SLOT_PARAM) continue;
        if (k->seen[s->what] == step + 1) continue;
        k->seen[s->what] = step + 1;
        ZX_GROW(k->mem, k->use_unit, k->n_uses, k->cap_unit);
        ZX_GROW(k->mem, k->use_step, k->n_uses, k->cap_step);
        k->use_unit[k->n_uses] = s->what;
        k->use_step[k->n_uses] = step;
        const uint32_t which = k->open[slot];
        if (s->kind == ZX_SLOT_UNIT && which != ZX_NONE) {
            zx_gathered *x = &k->gathers[which];
            if (x->first == ZX_NONE) {
                x->first = step;
                x->micro = t->micro;
                x->used = begin_of(k->p, insn);
            }
            x->last = step;
            k->last_use[which] = k->n_uses;
        }
        k->n_uses++;
    }
}

// Reuse distances of every gather's last use.
static void measure(looker *k, const double *begins)
{
    const uint32_t n = k->n_uses;
    uint32_t *gather_at =
        ZX_NEW(k->mem, uint32_t, n); // by use: the gather whose last one it is, plus 1
    for (uint32_t i = 0; i < k->n; i++)
        if (k->last_use[i] != ZX_NONE) gather_at[k->last_use[i]] = i + 1;
    uint64_t *sums = ZX_NEW(k->mem, uint64_t, n + 1), *elements = ZX_NEW(k->mem, uint64_t, n + 1);
    uint32_t *was = ZX_NEW(k->mem, uint32_t, k->p->n_units); // place of the last use, plus one
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t u = k->use_unit[i];
        const uint64_t numel = (uint64_t)k->p->units[u].numel,
                       bytes = numel * k->p->units[u].param_bytes;
        elements[i + 1] = elements[i] + numel;
        if (was[u] > 0) {
            const uint32_t from = was[u] - 1;
            if (gather_at[from] > 0) {
                zx_gathered *x = &k->gathers[gather_at[from] - 1];
                x->next = k->use_step[i];
                x->reuse_steps = x->next - x->last - 1;
                x->reuse_bytes = zx_sums_before(sums, i) - zx_sums_before(sums, from + 1);
                x->reuse_elements = elements[i] - elements[from + 1];
                x->reuse_seconds = begins[x->next] - begins[x->last + 1];
            }
            zx_sums_add(sums, n, from, 0 - bytes);
        }
        was[u] = i + 1;
        zx_sums_add(sums, n, i, bytes);
    }
}

// The last gather of a unit in a micro-batch has the highest number; where fewer are needed (the
// unit is still there) numbers are left out, so equal numbers are alike in all micro-batches.
static void number(looker *k)
{
    uint32_t *count = ZX_NEW(k->mem, uint32_t, k->p->n_units);
    uint32_t *micro = ZX_NEW(k->mem, uint32_t, k->p->n_units);
    memset(micro, 0xff, k->p->n_units * sizeof *micro);
    for (uint32_t i = k->n; i-- > 0;) {
        zx_gathered *x = &k->gathers[i];
        if (micro[x->unit] != x->micro) count[x->unit] = 0;
        micro[x->unit] = x->micro;
        x->nth = count[x->unit]++;
    }
}

void zx_look_make(const zx_graph *g ZX_UNUSED, const zx_plan *p, zx_arena *mem, zx_look *out)
{
    looker k = {.p = p, .mem = mem};
    k.open = ZX_NEW(mem, uint32_t, p->n_slots);
    for (uint32_t i = 0; i < p->n_slots; i++) k.open[i] = ZX_NONE;
    k.seen = ZX_NEW(mem, uint32_t, p->n_units);
    k.sent = ZX_NEW(mem, uint32_t, p->n_launches);
    k.sent_at = ZX_NEW(mem, uint32_t, p->n_launches);
    uint32_t *exec = ZX_NEW(mem, uint32_t, p->n_steps);
    double *begins = ZX_NEW(mem, double, p->n_steps + 1);
    uint32_t executed = 0;
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        if (in->id == ZX_I_GATHER) send_gather(&k, i, executed);
        if (in->id == ZX_I_UNPACK) open_gathers(&k, i);
        if (in->id == ZX_I_FREE && k.open[in->a] != ZX_NONE) {
            k.gathers[k.open[in->a]].freed = executed;
            k.gathers[k.open[in->a]].gone = begin_of(p, i);
            k.open[in->a] = ZX_NONE;
        }
        if (in->id != ZX_I_EXEC) continue;
        note_uses(&k, i, executed);
        exec[executed] = i;
        begins[executed++] = begin_of(p, i);
        begins[executed] = end_of(p, i);
    }
    measure(&k, begins);
    number(&k);
    *out = (zx_look){k.n, k.gathers, exec, begins};
}
