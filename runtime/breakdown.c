// breakdown.c - see breakdown.h.
//
// A parameter belongs to the module whose path its name begins with, else to that of the first
// operator that reads it. An operator belongs to the modules of the weights that it reads or makes
// gradients of, by their sizes: so what does the work of several products is shared by their
// modules. One without weights belongs to the module that the exporter names for it, the last of
// several. What carries no module is the whole model's alone.
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
    uint32_t *of_source;  // by source: its innermost module
    const uint32_t *root; // by value: the one that has its bytes
    uint32_t *grad_of;    // by value: the parameter whose gradient it is; ZX_NONE
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

// ---- whose it is --------------------------------------------------------------------------------

// The innermost module whose path `name` lies below; ZX_NONE.
static uint32_t module_by_name(const tree *t, const char *name)
{
    uint32_t best = ZX_NONE;
    size_t most = 0;
    for (uint32_t m = 1; m < t->n; m++) {
        const size_t n = strlen(t->at[m].path);
        if (n <= most || strncmp(name, t->at[m].path, n) != 0 || name[n] != '.') continue;
        best = m;
        most = n;
    }
    return best;
}

// The last operator of the file up to the last of which a node does the work, that reads a
// parameter: itself, or what turns the weight around for it.
static uint32_t reader_of(const zx_graph *g, const zx_node *n, uint32_t param)
{
    if (n->source == ZX_NONE || g->tensor_params == NULL) return ZX_NONE;
    for (uint32_t i = n->source + 1; i-- > 0;) {
        const zx_source *s = &g->sources[i];
        for (uint32_t k = 0; k < s->n_in && s->in_ids != NULL; k++)
            if (s->in_ids[k] != ZX_NONE && g->tensor_params[s->in_ids[k]] == param) return i;
    }
    return ZX_NONE;
}

static bool lies_in(const tree *t, uint32_t m, uint32_t outer)
{
    while (m != ZX_NONE && m != outer) m = t->at[m].parent;
    return m != ZX_NONE;
}

// Where a node reads a parameter: in the module of the parameter's name (or of another name of a
// tied one), unless the file reads it in another module.
static uint32_t module_of_param(const tree *t, const zx_node *n, uint32_t param)
{
    const zx_param *p = &t->g->params[param];
    const uint32_t reader = reader_of(t->g, n, param);
    const uint32_t by = reader != ZX_NONE ? t->of_source[reader] : module_of(t, n);
    uint32_t below = ZX_NONE;
    for (uint32_t k = 0; k <= p->n_aliases; k++) {
        const uint32_t m = module_by_name(t, k == 0 ? p->name : p->aliases[k - 1]);
        if (m == ZX_NONE) continue;
        if (lies_in(t, by, m)) return m;
        if (below == ZX_NONE && (reader == ZX_NONE || lies_in(t, m, by))) below = m;
    }
    return below != ZX_NONE ? below : by;
}

typedef struct share {
    uint32_t module;
    double part;
} share;

static void add_weight(const tree *t, const zx_node *n, uint32_t param, bool *seen, share *to,
                       uint32_t *count)
{
    const zx_shape *shape = &t->g->values[t->g->params[param].value].type.shape;
    if (shape->rank < 2 || seen[param]) return;
    seen[param] = true;
    to[(*count)++] = (share){module_of_param(t, n, param), (double)zx_shape_count(shape)};
}

// Parts add up to 1.
static uint32_t shares_of(const tree *t, const zx_node *n, share *to)
{
    const zx_graph *g = t->g;
    bool *seen = ZX_NEW(t->mem, bool, g->n_params + 1);
    uint32_t count = 0;
    double sum = 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const uint32_t v = zx_node_in(g, n, i);
        if (v != ZX_NONE && g->values[t->root[v]].role == ZX_R_PARAM)
            add_weight(t, n, g->values[t->root[v]].index, seen, to, &count);
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        const uint32_t v = zx_node_out(g, n, i);
        if (v != ZX_NONE && t->grad_of[t->root[v]] != ZX_NONE)
            add_weight(t, n, t->grad_of[t->root[v]], seen, to, &count);
    }
    for (uint32_t i = 0; i < count; i++) sum += to[i].part;
    for (uint32_t i = 0; i < count; i++) to[i].part /= sum;
    if (count == 0) to[count++] = (share){module_of(t, n), 1};
    return count;
}

static void find_values(tree *t)
{
    const zx_graph *g = t->g;
    t->root = zx_graph_roots(g, t->mem);
    t->grad_of = ZX_NEW(t->mem, uint32_t, g->n_values + 1);
    for (uint32_t v = 0; v < g->n_values; v++) t->grad_of[v] = ZX_NONE;
    for (uint32_t i = 0; i < g->n_params; i++)
        if (g->params[i].grad != ZX_NONE) t->grad_of[t->root[g->params[i].grad]] = i;
}

static void count_steps(tree *t, const zx_plan *p, const double *seconds)
{
    const zx_graph *g = t->g;
    const zx_mark mark = zx_arena_mark(t->mem);
    for (uint32_t i = 0; i < p->n_insns; i++, zx_arena_rewind(t->mem, mark)) {
        if (p->insns[i].id != ZX_I_EXEC) continue;
        const zx_node *n = &g->nodes[p->steps[p->insns[i].a].node];
        share *to = ZX_NEW(t->mem, share, n->n_in + n->n_out + 1);
        const double flops = flops_of(g, n);
        const uint32_t count = shares_of(t, n, to);
        for (uint32_t k = 0; k < count; k++)
            for (uint32_t m = to[k].module; m != ZX_NONE; m = t->at[m].parent) {
                t->at[m].flops[n->phase] += flops * to[k].part;
                t->at[m].seconds[n->phase] += seconds[i] * to[k].part;
            }
    }
}

static void count_param(tree *t, uint32_t param, uint32_t owner)
{
    const zx_graph *g = t->g;
    const double n = (double)zx_shape_count(&g->values[g->params[param].value].type.shape);
    for (uint32_t m = owner; m != ZX_NONE; m = t->at[m].parent) t->at[m].params += n;
}

static void count_params(tree *t)
{
    const zx_graph *g = t->g;
    bool *seen = ZX_NEW(t->mem, bool, g->n_params + 1);
    for (uint32_t i = 0; i < g->n_params; i++) {
        const uint32_t m = module_by_name(t, g->params[i].name);
        if (m == ZX_NONE) continue;
        seen[i] = true;
        count_param(t, i, m);
    }
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            const uint32_t v = zx_node_in(g, &g->nodes[i], k);
            if (v == ZX_NONE || g->values[t->root[v]].role != ZX_R_PARAM) continue;
            const uint32_t param = g->values[t->root[v]].index;
            if (!seen[param]) count_param(t, param, module_of(t, &g->nodes[i]));
            seen[param] = true;
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
        "kernels as measured, without communication; an operator that does the work of several is "
        "shared by the modules of its weights, and the last layer runs with its loss, where "
        "gradients begin.\n",
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
    find_values(&t);
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
