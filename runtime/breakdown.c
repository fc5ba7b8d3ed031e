// breakdown.c - see breakdown.h.
//
// Operators belong to the modules that the exporter names for them, whose paths it lists outermost
// first; a parameter belongs to the modules of the first operator that reads it. What carries no
// module is the whole model's alone.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/breakdown.h"

#include <string.h>

void zx_breakdown_make(const zx_graph *train, const zx_plan *p, const double *seconds,
                       zx_breakdown *out)
{
    *out = (zx_breakdown){0};
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        if (in->id == ZX_I_NORM || in->id == ZX_I_UPDATE || in->id == ZX_I_COMMIT)
            out->update += seconds[i];
        if (in->id != ZX_I_EXEC) continue;
        const zx_phase phase = (zx_phase)train->nodes[p->steps[in->a].node].phase;
        *(phase == ZX_FORWARD ? &out->forward : &out->backward) += seconds[i];
    }
}

// ---- modules ------------------------------------------------------------------------------------

typedef struct module {
    const char *path;
    uint32_t parent, depth;      // in modules; ZX_NONE and 0: the model itself
    double params;               // elements
    double flops[2], seconds[2]; // by phase, of all micro-batches
    uint32_t first_child, next;  // in order of appearance; ZX_NONE
} module;

typedef struct tree {
    const zx_graph *g;
    zx_arena *mem;
    uint32_t n, cap;
    module *at;
    uint32_t *of_source; // by source: its innermost module
} tree;

static uint32_t add_module(tree *t, uint32_t parent, const char *path)
{
    const uint32_t me = t->n;
    ZX_GROW(t->mem, t->at, t->n, t->cap);
    t->at[t->n++] = (module){.path = path,
                             .parent = parent,
                             .depth = parent == ZX_NONE ? 0 : t->at[parent].depth + 1,
                             .first_child = ZX_NONE,
                             .next = ZX_NONE};
    if (parent == ZX_NONE) return me;
    uint32_t *end = &t->at[parent].first_child;
    while (*end != ZX_NONE) end = &t->at[*end].next;
    *end = me;
    return me;
}

static uint32_t child(tree *t, uint32_t parent, const char *path)
{
    for (uint32_t c = t->at[parent].first_child; c != ZX_NONE; c = t->at[c].next)
        if (strcmp(t->at[c].path, path) == 0) return c;
    return add_module(t, parent, path);
}

static void make_modules(tree *t)
{
    add_module(t, ZX_NONE, "");
    t->of_source = ZX_NEW(t->mem, uint32_t, t->g->n_sources + 1);
    for (uint32_t i = 0; i < t->g->n_sources; i++) {
        const zx_source *s = &t->g->sources[i];
        uint32_t at = 0;
        for (uint32_t k = 0; k < s->n_scopes; k++)
            if (s->scopes[k][0] != '\0') at = child(t, at, s->scopes[k]);
        t->of_source[i] = at;
    }
}

static uint32_t module_of(const tree *t, const zx_node *n)
{
    return n->source == ZX_NONE ? 0 : t->of_source[n->source];
}

static double flops_of(const zx_graph *g, const zx_node *n)
{
    zx_arena mem = {0};
    const zx_type **in = ZX_NEW(&mem, const zx_type *, n->n_in + 1);
    zx_type *out = ZX_NEW(&mem, zx_type, n->n_out + 1);
    for (uint32_t i = 0; i < n->n_in; i++) {
        const uint32_t v = zx_node_in(g, n, i);
        in[i] = v == ZX_NONE ? NULL : &g->values[v].type;
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        const uint32_t v = zx_node_out(g, n, i);
        if (v != ZX_NONE) out[i] = g->values[v].type;
    }
    const zx_op_args args = {(zx_op_id)n->op, &n->attrs, n->n_in, n->n_out, in, out};
    const double flops = zx_ops[n->op].cost(&args).flops;
    zx_arena_free(&mem);
    return flops;
}

static void count_steps(tree *t, const zx_plan *p, const double *seconds)
{
    for (uint32_t i = 0; i < p->n_insns; i++) {
        if (p->insns[i].id != ZX_I_EXEC) continue;
        const zx_node *n = &t->g->nodes[p->steps[p->insns[i].a].node];
        const double flops = flops_of(t->g, n);
        for (uint32_t m = module_of(t, n); m != ZX_NONE; m = t->at[m].parent) {
            t->at[m].flops[n->phase] += flops;
            t->at[m].seconds[n->phase] += seconds[i];
        }
    }
}

static void count_params(tree *t)
{
    const zx_graph *g = t->g;
    const uint32_t *root = zx_graph_roots(g, t->mem);
    bool *seen = ZX_NEW(t->mem, bool, g->n_params + 1);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            const uint32_t v = zx_node_in(g, &g->nodes[i], k);
            if (v == ZX_NONE || g->values[root[v]].role != ZX_R_PARAM) continue;
            const uint32_t param = g->values[root[v]].index;
            if (seen[param]) continue;
            seen[param] = true;
            const double n = (double)zx_shape_count(&g->values[root[v]].type.shape);
            for (uint32_t m = module_of(t, &g->nodes[i]); m != ZX_NONE; m = t->at[m].parent)
                t->at[m].params += n;
        }
}

// ---- words --------------------------------------------------------------------------------------

static const char *ms(double seconds, zx_arena *mem)
{
    return zx_arena_printf(mem, "%.3f", 1e3 * seconds);
}

static void put_row(const tree *t, const module *m, uint32_t width, zx_text *out)
{
    char params[ZX_BYTES_TEXT], fwd[ZX_BYTES_TEXT], bwd[ZX_BYTES_TEXT];
    const module *all = &t->at[0];
    const double whole = all->seconds[0] + all->seconds[1];
    const char *parent = m->parent == ZX_NONE ? "" : t->at[m->parent].path, *name = m->path;
    const size_t n = strlen(parent);
    if (n > 0 && strncmp(name, parent, n) == 0 && name[n] == '.') name += n + 1;
    if (m->parent == ZX_NONE) name = "(the model)";
    zx_text_put(
        out, "%*s%-*s %9s %9s %9s %10s %10s %6.1f %%\n", (int)(2 * m->depth), "",
        (int)(width - 2 * m->depth), zx_text_safe(t->mem, name), zx_text_count(m->params, params),
        zx_text_count(m->flops[0], fwd), zx_text_count(m->flops[1], bwd), ms(m->seconds[0], t->mem),
        ms(m->seconds[1], t->mem), whole > 0 ? 100 * (m->seconds[0] + m->seconds[1]) / whole : 0);
}

static void put_tree(const tree *t, uint32_t at, int64_t most_depth, uint32_t width, zx_text *out)
{
    put_row(t, &t->at[at], width, out);
    if (most_depth >= 0 && (int64_t)t->at[at].depth >= most_depth) return;
    for (uint32_t c = t->at[at].first_child; c != ZX_NONE; c = t->at[c].next)
        put_tree(t, c, most_depth, width, out);
}

static double measure(const module *m, uint32_t by)
{
    return by == 0 ? m->params : by == 1 ? m->flops[0] : m->seconds[0];
}

// The k-th largest module of a level, of equals the first; ZX_NONE: there are fewer.
static uint32_t largest(const tree *t, uint32_t depth, uint32_t by, const bool *taken)
{
    uint32_t best = ZX_NONE;
    for (uint32_t m = 0; m < t->n; m++)
        if (t->at[m].depth == depth && !taken[m] &&
            (best == ZX_NONE || measure(&t->at[m], by) > measure(&t->at[best], by)))
            best = m;
    return best;
}

static void put_largest(const tree *t, uint32_t depth, int64_t top, zx_text *out)
{
    static const char *const words[] = {"params", "fwd flops", "fwd latency"};
    char buf[ZX_BYTES_TEXT];
    zx_text_put(out, "depth %u:\n", depth);
    for (uint32_t by = 0; by < ZX_COUNT(words); by++) {
        bool *taken = ZX_NEW(t->mem, bool, t->n);
        zx_text_put(out, "    %-11s - {", words[by]);
        for (int64_t k = 0; k < top; k++) {
            const uint32_t m = largest(t, depth, by, taken);
            if (m == ZX_NONE) break;
            taken[m] = true;
            const char *path = m == 0 ? "(the model)" : zx_text_safe(t->mem, t->at[m].path);
            const double v = measure(&t->at[m], by);
            zx_text_put(out, "%s'%s': '%s%s'", k > 0 ? ", " : "", path,
                        by == 2 ? ms(v, t->mem) : zx_text_count(v, buf), by == 2 ? " ms" : "");
        }
        zx_text_put(out, "}\n");
    }
}

static void divide(tree *t, double by)
{
    for (uint32_t m = 0; m < t->n; m++)
        for (uint32_t k = 0; k < 2; k++) {
            t->at[m].flops[k] /= by;
            t->at[m].seconds[k] /= by;
        }
}

static void put_summary(const zx_profiler *o, const tree *t, const zx_plan *p, zx_text *out)
{
    char a[ZX_BYTES_TEXT], b[ZX_BYTES_TEXT], c[ZX_BYTES_TEXT], d[ZX_BYTES_TEXT];
    const module *all = &t->at[0];
    const double fwd = all->seconds[0] > 0 ? all->flops[0] / all->seconds[0] : 0;
    const double both = all->seconds[0] + all->seconds[1];
    const double flops = all->flops[0] + all->flops[1];
    zx_text_put(out, ZX_PROFILER_HEAD);
    zx_text_put(out, "Profile Summary at step %llu of %s:\n", (unsigned long long)o->step,
                zx_text_safe(t->mem, o->title));
    zx_text_put(
        out,
        "Figures are of a micro-batch on rank 0, the mean of the step's %u; times are of "
        "kernels as measured, without communication; operators that were fused are their last "
        "module's.\n",
        p->micro_batches);
    zx_text_put(out, "ranks: %u, params: %s, fwd flops: %s, bwd flops: %s\n", p->ranks,
                zx_text_count(all->params, a), zx_text_count(all->flops[0], b),
                zx_text_count(all->flops[1], c));
    zx_text_put(out, "fwd latency: %s ms, bwd latency: %s ms, step: %s ms\n",
                ms(all->seconds[0], t->mem), ms(all->seconds[1], t->mem),
                ms(o->step_seconds, t->mem));
    zx_text_put(out, "fwd FLOPS: %s/s, fwd + bwd FLOPS: %s/s\n\n", zx_text_count(fwd, d),
                zx_text_count(both > 0 ? flops / both : 0, a));
}

void zx_profiler_text(const zx_profiler *o, const zx_graph *train, const zx_plan *p,
                      const double *seconds, zx_text *out)
{
    zx_arena mem = {0};
    tree t = {.g = train, .mem = &mem};
    uint32_t deepest = 0, width = 24;
    make_modules(&t);
    count_steps(&t, p, seconds);
    count_params(&t);
    divide(&t, p->micro_batches);
    put_summary(o, &t, p, out);
    for (uint32_t m = 0; m < t.n; m++) {
        const uint32_t wide = 2 * t.at[m].depth + (uint32_t)strlen(t.at[m].path);
        if (t.at[m].depth > deepest) deepest = t.at[m].depth;
        if (wide > width && wide < 60) width = wide;
    }
    zx_text_put(out, "Top modules by params, fwd flops and fwd latency at each depth:\n");
    for (uint32_t d = 0; d <= deepest; d++)
        if (o->module_depth < 0 || d <= o->module_depth) put_largest(&t, d, o->top_modules, out);
    if (o->detailed) {
        zx_text_put(out, "\n%-*s %9s %9s %9s %10s %10s %8s\n", (int)width, "module", "params",
                    "fwd flops", "bwd flops", "fwd ms", "bwd ms", "of time");
        put_tree(&t, 0, o->module_depth, width, out);
    }
    zx_text_put(out, "--------------------------------------------------------------------\n");
    zx_arena_free(&mem);
}
