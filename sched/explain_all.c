// explain_all.c - a plan with nothing left out: every instruction as text, and all of it as JSON.
// Checked plans only.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>

#include "sched/look.h"

static const char *const slot_words[] = {
    [ZX_SLOT_PARAM] = "param",   [ZX_SLOT_GRAD] = "grad",       [ZX_SLOT_STATE] = "state",
    [ZX_SLOT_BUFFER] = "buffer", [ZX_SLOT_WORKING] = "working", [ZX_SLOT_CONST] = "const",
    [ZX_SLOT_HELD] = "?",        [ZX_SLOT_INPUT] = "input",     [ZX_SLOT_UNIT] = "unit",
    [ZX_SLOT_VALUE] = "value",   [ZX_SLOT_WORK] = "work",       [ZX_SLOT_MASTER] = "master",
    [ZX_SLOT_FLAT] = "flat",     [ZX_SLOT_BUCKET] = "bucket",   [ZX_SLOT_PART] = "part"};

// The name of what a slot is for.
static const char *slot_name(const zx_graph *g, const zx_plan *p, const zx_slot *s)
{
    switch ((zx_slot_kind)s->kind) {
    case ZX_SLOT_PARAM:
    case ZX_SLOT_GRAD:
    case ZX_SLOT_STATE:
    case ZX_SLOT_UNIT:
    case ZX_SLOT_MASTER:
    case ZX_SLOT_PART:
        return g->params[s->what].name;
    case ZX_SLOT_BUFFER:
    case ZX_SLOT_WORKING:
        return g->buffers[s->what].name;
    case ZX_SLOT_CONST:
    case ZX_SLOT_VALUE:
        return g->values[s->what].name;
    case ZX_SLOT_INPUT:
        return g->values[g->inputs[s->what]].name;
    case ZX_SLOT_WORK:
        return g->nodes[p->steps[s->what].node].name;
    case ZX_SLOT_FLAT:
    case ZX_SLOT_BUCKET:
    case ZX_SLOT_HELD:
        break;
    }
    return "";
}

static void put_slot(zx_text *out, const zx_plan *p, uint32_t slot)
{
    if (slot == ZX_NONE)
        zx_text_put(out, " -");
    else
        zx_text_put(out, " s%u@%" PRIu64, slot, p->slots[slot].offset);
}

static void put_launch(zx_text *out, const zx_graph *g, const zx_plan *p, uint32_t launch,
                       zx_arena *mem)
{
    const zx_launch *l = &p->launches[launch];
    zx_text_put(out, " l%u", launch);
    if (l->flat != ZX_NONE) {
        zx_text_put(out, " through");
        put_slot(out, p, l->flat);
    }
    zx_text_put(out, ":");
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        zx_text_put(out, " '%s'", zx_text_safe(mem, g->params[p->members[i].unit].name));
        put_slot(out, p, p->members[i].slot);
        if (p->members[i].part == ZX_NONE) continue;
        zx_text_put(out, " part");
        put_slot(out, p, p->members[i].part);
    }
}

static void put_step(zx_text *out, const zx_graph *g, const zx_plan *p, uint32_t step,
                     zx_arena *mem)
{
    const zx_plan_step *t = &p->steps[step];
    const zx_node *n = &g->nodes[t->node];
    zx_text_put(out, " t%u m%u %s '%s'", step, t->micro, zx_ops[n->op].word,
                zx_text_safe(mem, n->name));
    for (uint32_t i = 0; i < t->n_in; i++) put_slot(out, p, p->args[t->arg + i]);
    zx_text_put(out, " ->");
    for (uint32_t i = 0; i < t->n_out; i++) put_slot(out, p, p->args[t->arg + t->n_in + i]);
    if (t->work == ZX_NONE) return;
    zx_text_put(out, " scratch");
    put_slot(out, p, t->work);
}

static void put_operand(zx_text *out, const zx_graph *g, const zx_plan *p, uint32_t kind,
                        uint32_t x, zx_arena *mem)
{
    switch ((zx_operand)kind) {
    case ZX_OPERAND_NONE:
        break;
    case ZX_OPERAND_SLOT:
        put_slot(out, p, x);
        zx_text_put(out, " (%s '%s')", slot_words[p->slots[x].kind],
                    zx_text_safe(mem, slot_name(g, p, &p->slots[x])));
        break;
    case ZX_OPERAND_MICRO:
        zx_text_put(out, " m%u", x);
        break;
    case ZX_OPERAND_LAUNCH:
        put_launch(out, g, p, x, mem);
        break;
    case ZX_OPERAND_EVENT:
        zx_text_put(out, " e%u", x);
        break;
    case ZX_OPERAND_STEP:
        put_step(out, g, p, x, mem);
        break;
    case ZX_OPERAND_FLAG:
        zx_text_put(out, x ? " add" : " write");
        break;
    case ZX_OPERAND_UNIT:
        zx_text_put(out, " u%u '%s'", x, zx_text_safe(mem, g->params[x].name));
        break;
    case ZX_OPERAND_MEMBER:
        zx_text_put(out, " member %u", x);
        break;
    case ZX_OPERAND_NUMBER:
        zx_text_put(out, " %u", x);
        break;
    case ZX_OPERAND_BUFFER:
        zx_text_put(out, " b%u '%s'", x, zx_text_safe(mem, g->buffers[x].name));
        break;
    }
}

void zx_explain_instructions(const zx_graph *g, const zx_plan *p, zx_text *out)
{
    zx_arena mem = {0};
    zx_text_put(out, "at: place in the plan; ms: when it is predicted to begin, counted from the "
                     "step's begin; by: the pass that asked for it\n");
    zx_text_put(out, "%6s  %10s  %-7s  %-9s  %-9s  %s\n", "at", "ms", "stream", "by", "what",
                "operands (s: slot@address, l: launch, t: step, m: micro-batch, e: event)");
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        const zx_insn_row *row = &zx_insn_rows[in->id];
        zx_text_put(out, "%6u  ", i);
        if (p->start)
            zx_text_put(out, "%10.3f", p->start[i] * 1e3);
        else
            zx_text_put(out, "%10s", "-");
        zx_text_put(out, "  %-7s  %-9s  %-9s ", zx_stream_words[in->stream], zx_pass_names[in->by],
                    row->word);
        const uint32_t x[3] = {in->a, in->b, in->c};
        for (uint32_t k = 0; k < 3; k++) put_operand(out, g, p, row->kind[k], x[k], &mem);
        zx_text_put(out, "\n");
        zx_arena_rewind(&mem, (zx_mark){0});
    }
    zx_arena_free(&mem);
}

// ---- JSON
// -------------------------------------------------------------------------------------------------

static void put_number(zx_text *out, uint32_t x)
{
    if (x == ZX_NONE)
        zx_text_put(out, "null");
    else
        zx_text_put(out, "%u", x);
}
static void put_index(zx_text *out, const char *key, uint32_t x)
{
    zx_text_put(out, ",\"%s\":", key);
    put_number(out, x);
}

static void json_units(const zx_graph *g, const zx_plan *p, zx_text *out)
{
    zx_text_put(out, ",\n\"units\":[");
    for (uint32_t i = 0; i < p->n_units; i++) {
        const zx_unit *u = &p->units[i];
        zx_text_put(out, "%s\n{\"name\":", i ? "," : "");
        zx_text_json(out, g->params[i].name);
        zx_text_put(out, ",\"elements\":%" PRId64 ",\"shard\":%" PRId64, u->numel, u->shard);
        zx_text_put(out, ",\"param_bytes\":%u,\"grad_bytes\":%u", u->param_bytes, u->grad_bytes);
        put_index(out, "param_slot", u->param_slot);
        put_index(out, "grad_slot", u->grad_slot);
        put_index(out, "master_slot", u->master_slot);
        zx_text_put(out, ",\"state_slots\":[");
        for (uint32_t k = 0; k < p->optimizer_states && u->state_slot[k] != ZX_NONE; k++)
            zx_text_put(out, "%s%u", k ? "," : "", u->state_slot[k]);
        zx_text_put(out, "]}");
    }
    zx_text_put(out, "]");
}

static void json_gathers(const zx_graph *g, const zx_plan *p, zx_text *out)
{
    zx_arena mem = {0};
    zx_look look;
    zx_look_make(g, p, &mem, &look);
    zx_text_put(out, ",\n\"gathers\":[");
    bool any = false;
    for (uint32_t i = 0; i < look.n; i++) {
        const zx_gathered *x = &look.gathers[i];
        if (x->first == ZX_NONE) continue;
        zx_text_put(out, "%s\n{\"unit\":", any ? "," : "");
        any = true;
        zx_text_json(out, g->params[x->unit].name);
        zx_text_put(out, ",\"bytes\":%" PRIu64, p->slots[x->slot].bytes);
        put_index(out, "issued", x->issue);
        put_index(out, "first", x->first);
        put_index(out, "last", x->last);
        put_index(out, "freed", x->freed);
        if (p->start)
            zx_text_put(out, ",\"ready_seconds\":%.9g,\"slack_seconds\":%.9g", x->ready,
                        x->used - x->ready);
        if (x->next == ZX_NONE)
            zx_text_put(out, ",\"reuse\":null}");
        else
            zx_text_put(out,
                        ",\"reuse\":{\"steps\":%u,\"elements\":%" PRIu64 ",\"bytes\":%" PRIu64
                        ",\"seconds\":%.9g}}",
                        x->reuse_steps, x->reuse_elements, x->reuse_bytes, x->reuse_seconds);
    }
    zx_text_put(out, "]");
    zx_arena_free(&mem);
}

static void json_slots(const zx_graph *g, const zx_plan *p, zx_text *out)
{
    zx_text_put(out, ",\n\"slots\":[");
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const zx_slot *s = &p->slots[i];
        zx_text_put(out,
                    "%s\n{\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"kind\":\"%s\",\"of\":",
                    i ? "," : "", s->offset, s->bytes, slot_words[s->kind]);
        zx_text_json(out, slot_name(g, p, s));
        zx_text_put(out, "}");
    }
    zx_text_put(out, "],\n\"launches\":[");
    for (uint32_t i = 0; i < p->n_launches; i++) {
        zx_text_put(out, "%s{\"flat\":", i ? ",\n" : "\n");
        put_number(out, p->launches[i].flat);
        zx_text_put(out, ",\"members\":[");
        for (uint32_t k = 0; k < p->launches[i].n_members; k++) {
            const zx_member *m = &p->members[p->launches[i].member + k];
            zx_text_put(out, "%s{\"unit\":%u,\"slot\":%u", k ? "," : "", m->unit, m->slot);
            put_index(out, "part", m->part);
            zx_text_put(out, ",\"at\":%" PRIu64 "}", m->at);
        }
        zx_text_put(out, "]}");
    }
    zx_text_put(out, "]");
}

static void json_steps(const zx_graph *g, const zx_plan *p, zx_text *out)
{
    zx_text_put(out, ",\n\"steps\":[");
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const zx_plan_step *t = &p->steps[i];
        zx_text_put(out, "%s\n{\"node\":", i ? "," : "");
        zx_text_json(out, g->nodes[t->node].name);
        zx_text_put(out, ",\"op\":\"%s\",\"micro_batch\":%u", zx_ops[g->nodes[t->node].op].word,
                    t->micro);
        for (uint32_t k = 0; k < t->n_in + t->n_out; k++) {
            if (k == 0 || k == t->n_in)
                zx_text_put(out, "%s",
                            k == t->n_in ? (k ? "],\"out\":[" : ",\"in\":[],\"out\":[")
                                         : ",\"in\":[");
            if (k != 0 && k != t->n_in) zx_text_put(out, ",");
            put_number(out, p->args[t->arg + k]);
        }
        zx_text_put(out, "]");
        put_index(out, "scratch", t->work);
        zx_text_put(out, "}");
    }
    zx_text_put(out, "]");
}

static void json_insns(const zx_plan *p, zx_text *out)
{
    zx_text_put(out, ",\n\"instructions\":[");
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        zx_text_put(out, "%s\n{\"id\":\"%s\",\"stream\":\"%s\",\"by\":\"%s\"", i ? "," : "",
                    zx_insn_rows[in->id].word, zx_stream_words[in->stream], zx_pass_names[in->by]);
        put_index(out, "step", in->step);
        put_index(out, "a", in->a);
        put_index(out, "b", in->b);
        put_index(out, "c", in->c);
        if (p->start)
            zx_text_put(out, ",\"start\":%.9g,\"seconds\":%.9g", p->start[i], p->seconds[i]);
        zx_text_put(out, "}");
    }
    zx_text_put(out, "]");
}

void zx_explain_json(const zx_graph *g, const zx_plan *p, const char *more, zx_text *out)
{
    zx_text_put(out, "{\"graph\":");
    zx_text_json(out, g->name);
    zx_text_put(out, ",\"policy\":");
    zx_text_json(out, p->policy);
    zx_text_put(out,
                ",\"ranks\":%u,\"stage\":%u,\"micro_batches\":%u,\"optimizer_states\":%u,"
                "\n\"peak_bytes\":%" PRIu64 ",\"held_bytes\":%" PRIu64,
                p->ranks, p->stage, p->micro_batches, p->optimizer_states, p->arena_bytes,
                p->held_bytes);
    if (p->budget == UINT64_MAX)
        zx_text_put(out, ",\"budget_bytes\":null");
    else
        zx_text_put(out, ",\"budget_bytes\":%" PRIu64, p->budget);
    zx_text_put(out,
                ",\"wire_bytes\":%" PRIu64 ",\"hash\":\"%016" PRIx64 "\",\n\"step_seconds\":%.9g,"
                "\"compute_seconds\":%.9g,\"exposed_comm_seconds\":%.9g",
                p->wire_bytes, zx_plan_hash(p), p->step_seconds, p->compute_seconds,
                p->exposed_seconds);
    if (more != NULL) zx_text_put(out, ",\n%s", more);
    json_units(g, p, out);
    json_gathers(g, p, out);
    json_slots(g, p, out);
    json_steps(g, p, out);
    json_insns(p, out);
    zx_text_put(out, "}\n");
}
