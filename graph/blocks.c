// blocks.c - see blocks.h.
// SPDX-License-Identifier: Apache-2.0
#include "graph/blocks.h"

#include <stdlib.h>
#include <string.h>

#define NO_STACK "_empty_nn_module_stack_from_metadata_hook" // what torch writes for "unknown"

const char *zx_scope_path(const char *scope, zx_arena *mem)
{
    if (strchr(scope, '@') == NULL) return scope;
    char *path = ZX_NEW(mem, char, strlen(scope) + 1);
    size_t n = 0;
    for (const char *s = scope; *s != '\0';) {
        const size_t digits = *s == '@' ? strspn(s + 1, "0123456789") : 0;
        if (digits > 0 && (s[1 + digits] == '.' || s[1 + digits] == '\0'))
            s += 1 + digits;
        else
            path[n++] = *s++;
    }
    return path;
}

bool zx_source_has_module(const zx_source *s)
{
    for (uint32_t i = 0; i < s->n_scopes; i++)
        if (strcmp(s->scopes[i], NO_STACK) == 0) return false;
    return s->n_scopes > 0;
}

// ---- modules that have an index -----------------------------------------------------------------

typedef struct member { // "model.layers.3" of the list "model.layers"
    const char *list, *path;
    bool alone; // has no sibling
    uint32_t block;
} member;

typedef struct maker {
    const zx_graph *g;
    zx_arena *mem, tmp;
    const char **paths; // by node; NULL: not known
    member *members;    // sorted, each once
    uint32_t n_members, cap_members;
    const char **names; // of blocks
    uint32_t n;
} maker;

static int by_list(const void *a, const void *b)
{
    const member *x = a, *y = b;
    const int lists = strcmp(x->list, y->list);
    return lists != 0 ? lists : strcmp(x->path, y->path);
}

// "/layers.0/gelu" as "layers.0.gelu".
static const char *path_of_name(const char *name, zx_arena *mem)
{
    char *path = (char *)(uintptr_t)zx_arena_str(mem, name + (name[0] == '/'));
    for (char *p = path; *p != '\0'; p++)
        if (*p == '/') *p = '.';
    return path;
}

static void find_paths(maker *k)
{
    const zx_graph *g = k->g;
    const char **of_source = ZX_NEW(&k->tmp, const char *, g->n_sources + 1);
    for (uint32_t i = 0; i < g->n_sources; i++) {
        const zx_source *s = &g->sources[i];
        if (zx_source_has_module(s))
            of_source[i] = zx_scope_path(s->scopes[s->n_scopes - 1], &k->tmp);
    }
    k->paths = ZX_NEW(&k->tmp, const char *, g->n_nodes + 1);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        k->paths[i] = n->source == ZX_NONE ? path_of_name(n->name, &k->tmp) : of_source[n->source];
    }
}

// The next module on a path that ends in an index, from *at on; false: there is none.
static bool next_member(const char *path, const char **at, zx_arena *mem, member *out)
{
    while (*at != NULL) {
        const char *part = *at, *dot = strchr(part, '.');
        const size_t n = dot != NULL ? (size_t)(dot - part) : strlen(part);
        *at = dot != NULL ? dot + 1 : NULL;
        if (n == 0 || strspn(part, "0123456789") < n) continue;
        const size_t before = part == path ? 0 : (size_t)(part - path) - 1;
        *out = (member){.list = zx_arena_strn(mem, path, before),
                        .path = zx_arena_strn(mem, path, (size_t)(part - path) + n),
                        .block = ZX_NONE};
        return true;
    }
    return false;
}

static void find_members(maker *k)
{
    const char *last = NULL;
    member m;
    for (uint32_t i = 0; i < k->g->n_nodes; i++) {
        const char *path = k->paths[i];
        if (path == NULL || (last != NULL && strcmp(path, last) == 0)) continue;
        last = path;
        for (const char *at = path; next_member(path, &at, &k->tmp, &m);) {
            ZX_GROW(&k->tmp, k->members, k->n_members, k->cap_members);
            k->members[k->n_members++] = m;
        }
    }
    if (k->n_members == 0) return;
    qsort(k->members, k->n_members, sizeof *k->members, by_list);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < k->n_members; i++)
        if (by_list(&k->members[i], &k->members[kept - 1]) != 0) k->members[kept++] = k->members[i];
    k->n_members = kept;
    for (uint32_t i = 0; i < kept; i++) {
        const bool follows = i > 0 && strcmp(k->members[i].list, k->members[i - 1].list) == 0;
        const bool leads = i + 1 < kept && strcmp(k->members[i].list, k->members[i + 1].list) == 0;
        k->members[i].alone = !follows && !leads;
    }
}

// The block of a path; the outermost list wins, so the experts within a layer are no blocks.
static uint32_t block_of(maker *k, const char *path)
{
    member key;
    for (const char *at = path; next_member(path, &at, &k->tmp, &key);) {
        member *m = bsearch(&key, k->members, k->n_members, sizeof key, by_list);
        if (m->alone) continue;
        if (m->block == ZX_NONE) {
            m->block = k->n;
            k->names[k->n++] = zx_text_safe(k->mem, zx_arena_str(k->mem, m->path));
        }
        return m->block;
    }
    return ZX_NONE;
}

// ---- nodes and parameters -----------------------------------------------------------------------

// The block of all nodes that make a node's inputs; ZX_NONE if they don't agree.
static uint32_t block_of_producers(const zx_graph *g, const zx_node *n, const uint32_t *of_node)
{
    uint32_t block = ZX_NONE;
    bool any = false;
    for (uint32_t a = 0; a < n->n_in; a++) {
        const uint32_t v = zx_node_in(g, n, a);
        if (v == ZX_NONE || g->values[v].role != ZX_R_MADE) continue;
        const uint32_t from = of_node[g->values[v].by];
        if (any && from != block) return ZX_NONE;
        block = from;
        any = true;
    }
    return block;
}

static const uint32_t *find_nodes(maker *k)
{
    const zx_graph *g = k->g;
    uint32_t *of_node = ZX_NEW(k->mem, uint32_t, g->n_nodes + 1);
    uint32_t *of_source = ZX_NEW(&k->tmp, uint32_t, g->n_sources + 1); // of nodes without a path
    for (uint32_t i = 0; i < g->n_sources; i++) of_source[i] = ZX_NONE;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        if (k->paths[i] != NULL) {
            const bool again = i > 0 && k->paths[i] == k->paths[i - 1];
            of_node[i] = again ? of_node[i - 1] : block_of(k, k->paths[i]);
            continue;
        }
        if (n->phase == ZX_FORWARD) {
            of_node[i] = block_of_producers(g, n, of_node);
            if (of_source[n->source] == ZX_NONE) of_source[n->source] = of_node[i];
        } else {
            of_node[i] = of_source[n->source];
        }
    }
    return of_node;
}

static const uint32_t *find_params(maker *k, const uint32_t *of_node)
{
    const zx_graph *g = k->g;
    uint32_t *of_param = ZX_NEW(k->mem, uint32_t, g->n_params + 1);
    bool *seen = ZX_NEW(&k->tmp, bool, g->n_params + 1);
    for (uint32_t p = 0; p < g->n_params; p++) of_param[p] = ZX_NONE;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        for (uint32_t a = 0; a < n->n_in; a++) {
            const uint32_t v = zx_node_in(g, n, a);
            if (v == ZX_NONE || g->values[v].role != ZX_R_PARAM) continue;
            const uint32_t p = g->values[v].index;
            if (!seen[p]) of_param[p] = of_node[i];
            if (of_param[p] != of_node[i]) of_param[p] = ZX_NONE;
            seen[p] = true;
        }
    }
    return of_param;
}

void zx_blocks_make(const zx_graph *g, zx_arena *mem, zx_blocks *out)
{
    maker k = {.g = g, .mem = mem};
    find_paths(&k);
    find_members(&k);
    k.names = ZX_NEW(mem, const char *, k.n_members + 1);
    const uint32_t *of_node = find_nodes(&k), *of_param = find_params(&k, of_node);
    *out = (zx_blocks){.n = k.n, .names = k.names, .of_node = of_node, .of_param = of_param};
    zx_arena_free(&k.tmp);
}
