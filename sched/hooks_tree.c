// hooks_tree.c - the modules of a model as its file shows them: every path that a node's scopes
// name, the parameters that nodes there read, and which modules are leaves.
// SPDX-License-Identifier: Apache-2.0
#include "sched/hooks_tree.h"

#include <stdlib.h>
#include <string.h>

#include "graph/blocks.h"

#define MOST_ELEMENTS 1000000000 // a module of more is never made a leaf by its granularity

bool zx_module_below(const char *path, const char *above)
{
    const size_t n = strlen(above);
    if (n == 0) return path[0] != '\0';
    return strncmp(path, above, n) == 0 && path[n] == '.';
}

// ---- paths --------------------------------------------------------------------------------------

static int by_path(const void *a, const void *b)
{
    const zx_module *x = a, *y = b;
    return strcmp(x->path, y->path);
}

uint32_t zx_module_find(const zx_module_tree *t, const char *path)
{
    const zx_module key = {.path = path};
    const zx_module *m = bsearch(&key, t->modules, t->n_modules, sizeof key, by_path);
    return m == NULL ? ZX_NONE : (uint32_t)(m - t->modules);
}

static bool same_scopes(const zx_source *a, const zx_source *b)
{
    if (a->n_scopes != b->n_scopes) return false;
    for (uint32_t i = a->n_scopes; i-- > 0;)
        if (strcmp(a->scopes[i], b->scopes[i]) != 0) return false;
    return true;
}

// Every module that a node stands in, or that the caller's list names. "" sorts first: the root.
static zx_status find_modules(const zx_graph *g, const zx_hooks_options *o, zx_arena *mem,
                              zx_module_tree *t, zx_err *err)
{
    zx_module *list = NULL;
    uint32_t n = 0, cap = 0;
    bool any = false;
    ZX_GROW(mem, list, n, cap);
    list[n++].path = "";
    for (uint32_t i = 0; i < g->n_sources; i++) {
        const zx_source *s = &g->sources[i];
        if (!zx_source_has_module(s)) continue;
        any = true;
        if (i > 0 && same_scopes(s, s - 1)) continue;
        for (uint32_t k = 0; k < s->n_scopes; k++) {
            ZX_GROW(mem, list, n, cap);
            list[n++] = (zx_module){.path = zx_scope_path(s->scopes[k], mem)};
        }
    }
    if (!any) {
        zx_err_hint(err, "export the model with torch.onnx.export(..., dynamo=True)");
        return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                       "no node says in which module it stands (pkg.torch.onnx.name_scopes): hooks "
                       "can't be followed");
    }
    for (uint32_t i = 0; i < o->n_calls; i++) {
        ZX_GROW(mem, list, n, cap);
        list[n++] = (zx_module){.path = o->calls[i]};
    }
    qsort(list, n, sizeof *list, by_path);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < n; i++)
        if (strcmp(list[i].path, list[kept - 1].path) != 0) list[kept++] = list[i];
    for (uint32_t i = 0; i < kept; i++) list[i].type = "";
    t->modules = list;
    t->n_modules = kept;
    return ZX_OK;
}

// "": class/a: class/a.b: class/..: of each path the first class that a node states.
static void find_types(const zx_graph *g, zx_arena *mem, zx_module_tree *t)
{
    for (uint32_t i = 0; i < g->n_sources; i++) {
        const char *s = g->sources[i].types;
        if (i > 0 && strcmp(s, g->sources[i - 1].types) == 0) continue;
        while (*s != '\0') {
            const size_t n = strcspn(s, "/");
            const char *one = zx_arena_strn(mem, s, n), *colon = strstr(one, ": ");
            s += n + (s[n] == '/');
            if (colon == NULL) continue;
            const char *path = zx_arena_strn(mem, one, (size_t)(colon - one));
            const uint32_t m = zx_module_find(t, zx_scope_path(path, mem));
            if (m != ZX_NONE && t->modules[m].type[0] == '\0') t->modules[m].type = colon + 2;
        }
    }
}

static void find_scopes(const zx_graph *g, zx_arena *mem, zx_module_tree *t)
{
    t->scopes = ZX_NEW(mem, zx_scopes, g->n_sources + 1);
    for (uint32_t i = 0; i < g->n_sources; i++) {
        const zx_source *s = &g->sources[i];
        zx_scopes *to = &t->scopes[i];
        if (!zx_source_has_module(s)) continue;
        if (i > 0 && same_scopes(s, s - 1)) {
            *to = t->scopes[i - 1];
            continue;
        }
        zx_scope *at = ZX_NEW(mem, zx_scope, s->n_scopes);
        for (uint32_t k = 0; k < s->n_scopes; k++) {
            const uint32_t m = zx_module_find(t, zx_scope_path(s->scopes[k], mem));
            if (m != 0) at[to->n++] = (zx_scope){s->scopes[k], m};
        }
        to->at = at;
        to->stated = true;
    }
}

// ---- parameters ---------------------------------------------------------------------------------

typedef struct read {
    uint32_t module, param;
} read;
typedef struct reads {
    uint32_t n, cap;
    read *at;
} reads;

static int by_module(const void *a, const void *b)
{
    const read *x = a, *y = b;
    if (x->module != y->module) return x->module < y->module ? -1 : 1;
    return x->param < y->param ? -1 : x->param > y->param;
}

static void sort_reads(reads *r)
{
    if (r->n > 0) qsort(r->at, r->n, sizeof *r->at, by_module);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->n; i++)
        if (kept == 0 || by_module(&r->at[i], &r->at[kept - 1]) != 0) r->at[kept++] = r->at[i];
    r->n = kept;
}

static void add_read(zx_arena *mem, reads *r, uint32_t module, uint32_t param)
{
    ZX_GROW(mem, r->at, r->n, r->cap);
    r->at[r->n++] = (read){module, param};
}

// A parameter read in a module is read below all the modules that hold it.
static void add_above(zx_arena *mem, const zx_module_tree *t, reads *r, uint32_t module,
                      uint32_t param)
{
    const char *path = t->modules[module].path;
    add_read(mem, r, module, param);
    if (module != 0) add_read(mem, r, 0, param);
    for (const char *dot = strchr(path, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        const uint32_t m = zx_module_find(t, zx_arena_strn(mem, path, (size_t)(dot - path)));
        if (m != ZX_NONE && m != 0) add_read(mem, r, m, param);
    }
}

static void give_sets(zx_arena *mem, zx_module_tree *t, reads *r, bool below)
{
    sort_reads(r);
    uint32_t *list = ZX_NEW(mem, uint32_t, r->n + 1);
    for (uint32_t i = 0; i < r->n; i++) list[i] = r->at[i].param;
    for (uint32_t i = 0, n; i < r->n; i += n) {
        for (n = 1; i + n < r->n && r->at[i + n].module == r->at[i].module;) n++;
        zx_module *m = &t->modules[r->at[i].module];
        *(below ? &m->all : &m->own) = list + i;
        *(below ? &m->n_all : &m->n_own) = n;
    }
}

static void find_params(const zx_graph *g, zx_arena *mem, zx_module_tree *t)
{
    reads own = {0}, all = {0};
    uint32_t open = 0; // the module of the last node that stated one
    t->params = ZX_NEW(mem, uint32_t, g->n_tensors + 1);
    for (uint32_t i = 0; i < g->n_tensors; i++) t->params[i] = g->tensor_params[i];
    for (uint32_t i = 0; i < g->n_sources; i++) {
        const zx_source *s = &g->sources[i];
        const zx_scopes *at = &t->scopes[i];
        if (at->stated) open = at->n > 0 ? at->at[at->n - 1].module : 0;
        for (uint32_t k = 0; k < s->n_in; k++) {
            const uint32_t p = s->in_ids[k] == ZX_NONE ? ZX_NONE : t->params[s->in_ids[k]];
            if (p == ZX_NONE) continue;
            if (strcmp(s->op, "Identity") == 0 && s->n_out == 1 && s->out_ids[0] != ZX_NONE)
                t->params[s->out_ids[0]] = p; // another name of it, read where that is read
            else
                add_read(mem, &own, open, p);
        }
    }
    sort_reads(&own);
    for (uint32_t i = 0; i < own.n; i++) add_above(mem, t, &all, own.at[i].module, own.at[i].param);
    give_sets(mem, t, &own, false);
    give_sets(mem, t, &all, true);
}

// ---- other modules' parameters ------------------------------------------------------------------

// The module that the name says it belongs to: the module itself (or, of a leaf, one below it), a
// further one that is known, or neither.
typedef enum owner { NOBODY, ANOTHER, ITSELF } owner;

static const char *owner_of(const char *param, zx_arena *mem)
{
    const char *dot = strrchr(param, '.');
    return dot == NULL ? "" : zx_arena_strn(mem, param, (size_t)(dot - param));
}

static owner owner_by(const zx_module_tree *t, uint32_t module, const char *name, zx_arena *mem)
{
    const char *path = owner_of(name, mem);
    const zx_module *m = &t->modules[module];
    const bool below = zx_module_below(path, m->path);
    if (strcmp(path, m->path) == 0 || (m->leaf && below)) return ITSELF;
    const bool around =
        path[0] == '\0' || zx_module_below(m->path, path); // handed down, as an input
    return !around && (below || zx_module_find(t, path) != ZX_NONE) ? ANOTHER : NOBODY;
}

// A parameter that another module owns, under all of its names.
static bool is_others(const zx_graph *g, const zx_module_tree *t, uint32_t module, uint32_t param,
                      zx_arena *mem)
{
    const zx_param *p = &g->params[param];
    owner most = owner_by(t, module, p->name, mem);
    for (uint32_t i = 0; i < p->n_aliases && most != ITSELF; i++) {
        const owner o = owner_by(t, module, p->aliases[i], mem);
        if (o > most) most = o;
    }
    return most == ANOTHER;
}

static void find_others(const zx_graph *g, zx_arena *mem, zx_module_tree *t)
{
    for (uint32_t i = 0; i < t->n_modules; i++) {
        zx_module *m = &t->modules[i];
        if (!m->hooked) continue;
        const uint32_t n = m->leaf ? m->n_all : m->n_own, *set = m->leaf ? m->all : m->own;
        uint32_t *first = ZX_NEW(mem, uint32_t, n + 1), kept = 0;
        for (uint32_t k = 0; k < n; k++)
            if (!is_others(g, t, i, set[k], mem)) first[kept++] = set[k];
        if (kept == n) continue;
        m->first = first;
        m->n_first = kept;
    }
}

// ---- leaves -------------------------------------------------------------------------------------

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static void mark_named(const zx_hooks_options *o, zx_arena *mem, zx_module_tree *t, zx_notes *notes)
{
    for (uint32_t i = 0; i < o->n_names; i++) {
        const uint32_t m = zx_module_find(t, o->names[i]);
        if (m != ZX_NONE) t->modules[m].leaf = true;
        if (m == ZX_NONE)
            zx_note(notes, mem, "leaf_module.names: no node of the file stands in a module '%s'",
                    zx_text_safe(mem, o->names[i]));
    }
    for (uint32_t i = 0; i < o->n_suffixes; i++) {
        bool found = false;
        for (uint32_t m = 0; m < t->n_modules; m++) {
            if (!ends_with(t->modules[m].path, o->suffixes[i])) continue;
            t->modules[m].leaf = found = true;
        }
        if (!found)
            zx_note(notes, mem,
                    "leaf_module.name_suffixes: no node of the file stands in a module '*%s'",
                    zx_text_safe(mem, o->suffixes[i]));
    }
}

// The class, with its Python module or without.
static bool is_of(const char *type, const char *class)
{
    const char *dot = strrchr(type, '.');
    return strcmp(type, class) == 0 || (dot != NULL && strcmp(dot + 1, class) == 0);
}

static void mark_classes(const zx_hooks_options *o, zx_arena *mem, zx_module_tree *t,
                         zx_notes *notes)
{
    for (uint32_t i = 0; i < o->n_classes; i++) {
        bool found = o->default_classes;
        for (uint32_t m = 0; m < t->n_modules; m++) {
            if (!is_of(t->modules[m].type, o->classes[i])) continue;
            t->modules[m].leaf = found = true;
        }
        if (!found)
            zx_note(notes, mem, "leaf_module.classes: no module of the file is a '%s'",
                    zx_text_safe(mem, o->classes[i]));
    }
}

static bool is_container(const zx_module *m)
{
    return strncmp(m->type, "torch.nn.modules.container.", 27) == 0;
}

// Elements a layer of a module: all its parameters over the modules in it that hold any, those
// included that nobody calls. A tied one counts for each of its names. INT64_MAX: never a leaf by
// this. Containers are no layers.
static int64_t granularity(const zx_graph *g, const zx_module_tree *t, uint32_t module,
                           zx_arena *mem)
{
    const zx_module *m = &t->modules[module];
    const char *last = m->path;
    int64_t elements = 0, layers = 0;
    bool inner = false;
    for (uint32_t i = 0; i < m->n_all; i++) {
        const zx_param *p = &g->params[m->all[i]];
        int64_t names = 0;
        for (uint32_t k = 0; k <= p->n_aliases; k++) {
            const char *path = owner_of(k == 0 ? p->name : p->aliases[k - 1], mem);
            if (strcmp(path, m->path) != 0 && !zx_module_below(path, m->path)) continue;
            names++;
            if (strcmp(path, last) == 0 || zx_module_find(t, path) != ZX_NONE) continue;
            last = path;
            layers++;
            inner = true;
        }
        elements += (names > 0 ? names : 1) * zx_shape_count(&g->values[p->value].type.shape);
    }
    for (uint32_t i = 0; i < t->n_modules; i++) {
        const bool below = zx_module_below(t->modules[i].path, m->path);
        inner = inner || below;
        layers +=
            (below || i == module) && t->modules[i].n_all > 0 && !is_container(&t->modules[i]);
    }
    const bool never = !inner || layers == 0 || elements > MOST_ELEMENTS || is_container(m);
    return never ? INT64_MAX : elements / layers;
}

static void mark_granular(const zx_graph *g, int64_t most, zx_arena *mem, zx_module_tree *t,
                          zx_notes *notes)
{
    bool any = false;
    for (uint32_t i = 0; i < t->n_modules; i++) { // in order of paths: what holds comes first
        bool within = false;
        for (uint32_t k = 0; k < i && !within; k++)
            within = t->modules[k].leaf && zx_module_below(t->modules[i].path, t->modules[k].path);
        if (within || granularity(g, t, i, mem) > most) continue;
        t->modules[i].leaf = any = true;
    }
    if (!any)
        zx_note(notes, mem,
                "stage3_module_granularity_threshold %lld is below every module's granularity: no "
                "module becomes a leaf by it",
                (long long)most);
}

zx_status zx_module_tree_make(const zx_graph *g, const zx_hooks_options *o, zx_arena *mem,
                              zx_module_tree *out, zx_notes *notes, zx_err *err)
{
    *out = (zx_module_tree){0};
    ZX_TRY(find_modules(g, o, mem, out, err));
    find_scopes(g, mem, out);
    find_params(g, mem, out);
    find_types(g, mem, out);
    mark_classes(o, mem, out, notes);
    mark_named(o, mem, out, notes);
    if (o->granularity > 0) mark_granular(g, o->granularity, mem, out, notes);
    for (uint32_t i = 0; i < out->n_modules; i++) {
        const char *path = out->modules[i].path;
        bool within = i > 0 && out->modules[0].leaf;
        for (const char *dot = strchr(path, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
            const uint32_t m = zx_module_find(out, zx_arena_strn(mem, path, (size_t)(dot - path)));
            within = within || (m != ZX_NONE && out->modules[m].leaf);
        }
        out->modules[i].hooked = !within;
    }
    find_others(g, mem, out);
    return ZX_OK;
}
