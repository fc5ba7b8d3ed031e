// import_ties.c - one tensor that is read in several places: a tie that the model means, which
// stays one parameter under several names, or equal values that an exporter merged, which are split
// again.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <stdlib.h>
#include <string.h>

typedef struct use { // a node reads a parameter, perhaps through Identity
    zx_inode *n;
    uint32_t slot;
    const char
        *target; // the name that the parameter has in the module that reads it; NULL: unknown
    const char *module;
} use;

typedef struct uses {
    uint32_t n, cap;
    use *at;
} uses;

static bool is_op(const zx_inode *n, const char *op)
{
    return n->domain[0] == '\0' && strcmp(n->op, op) == 0;
}

// What a module calls the parameter that this node reads in this place: norms and biases only.
static const char *leaf_of(const zx_inode *n, uint32_t slot)
{
    const size_t len = strlen(n->op);
    const bool norm = len > 13 && strcmp(n->op + len - 13, "Normalization") == 0;
    if (norm && slot == 1) return "weight";
    if (norm && slot == 2) return "bias";
    if (slot == 2 && (is_op(n, "Conv") || is_op(n, "ConvTranspose") || is_op(n, "Gemm")))
        return "bias";
    if (is_op(n, "Add")) return "bias";
    if (is_op(n, "Mul")) return "weight";
    return NULL;
}

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

// True if a parameter has this name, or is known by it.
static bool is_taken(const zx_imp *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_params; i++) {
        const zx_iparam *p = &c->params[i];
        if (strcmp(p->name, name) == 0) return true;
        for (uint32_t k = 0; k < p->n_aliases; k++)
            if (strcmp(p->aliases[k], name) == 0) return true;
    }
    return false;
}

// The parameter `leaf` that the exporter's signature has in `module`, if it isn't in the file.
static const char *missing_in(const zx_imp *c, const char *module, const char *leaf)
{
    const size_t n = strlen(module);
    for (uint32_t i = 0; i < c->n_signature; i++) {
        const char *s = c->signature[i];
        if (n > 0 && (strncmp(s, module, n) != 0 || s[n] != '.')) continue;
        if (strcmp(n > 0 ? s + n + 1 : s, leaf) == 0 && !is_taken(c, s)) return s;
    }
    return NULL;
}

static bool known_name(const char *s) // not one that an exporter numbered
{
    return strchr(s, '.') != NULL && strstr(s, "::") == NULL;
}

// Who reads what: the places where tensor v is read are at[begin[v]] .. at[begin[v + 1]].
typedef struct readers {
    uint32_t n; // tensors
    uint32_t *begin;
    struct place {
        zx_inode *n;
        uint32_t slot;
    } * at;
} readers;

// Counts (at NULL) or fills in the live reads of a region.
static void read_region(const zx_iregion *r, uint32_t *next, struct place *at)
{
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        zx_inode *n = r->nodes[i];
        for (uint32_t k = 0; k < n->n_attrs; k++)
            if (n->attrs[k].body) read_region(n->attrs[k].body, next, at);
        for (uint32_t k = 0; k < n->n_in && n->live; k++) {
            if (n->in[k] == ZX_NONE || is_op(n, "Shape") || is_op(n, "CastLike")) continue;
            if (at) at[next[n->in[k]]] = (struct place){n, k};
            next[n->in[k]]++;
        }
    }
}

static readers find_readers(zx_imp *c)
{
    readers r = {.n = c->n_vals, .begin = ZX_NEW(&c->tmp, uint32_t, (size_t)c->n_vals + 2)};
    uint32_t *next = ZX_NEW(&c->tmp, uint32_t, (size_t)c->n_vals + 1);
    read_region(c->main, next, NULL);
    for (uint32_t v = 0; v < c->n_vals; v++) {
        r.begin[v + 1] = r.begin[v] + next[v];
        next[v] = r.begin[v];
    }
    r.at = ZX_NEW(&c->tmp, struct place, (size_t)r.begin[c->n_vals] + 1);
    read_region(c->main, next, r.at);
    return r;
}

// Every place where tensor v is read, also under other names.
static void collect(zx_imp *c, const readers *r, uint32_t v, const char *named, uint32_t depth,
                    uses *out)
{
    for (uint32_t i = r->begin[v]; i < r->begin[v + 1]; i++) {
        zx_inode *n = r->at[i].n;
        const uint32_t k = r->at[i].slot;
        if (is_op(n, "Identity") && n->out[0] != ZX_NONE && depth < 8) {
            const char *name = c->vals[n->out[0]].name;
            collect(c, r, n->out[0], known_name(name) ? name : named, depth + 1, out);
            continue;
        }
        use u = {.n = n, .slot = k, .module = zx_inode_module(c, n)};
        const char *leaf = leaf_of(n, k);
        if (named) {
            u.target = named;
            const char *last = last_part(named);
            u.module =
                last > named ? zx_arena_strn(&c->tmp, named, (size_t)(last - named) - 1) : "";
        } else if (leaf && u.module[0]) {
            const char *said = missing_in(c, u.module, leaf);
            u.target = said ? said : zx_arena_printf(&c->tmp, "%s.%s", u.module, leaf);
        }
        ZX_GROW(&c->tmp, out->at, out->n, out->cap);
        out->at[out->n++] = u;
    }
}

static void add_alias(zx_imp *c, zx_iparam *p, const char *name)
{
    if (is_taken(c, name)) return;
    ZX_GROW(&c->tmp, p->aliases, p->n_aliases, p->cap_aliases);
    p->aliases[p->n_aliases++] = name;
    for (uint32_t i = 0; i < c->n_signature; i++)
        if (strcmp(c->signature[i], name) == 0 && i < p->order) p->order = i;
}

// A parameter has the place of its first-named owner, and is known by all their names.
static void find_aliases(zx_imp *c, uint32_t i, const uses *u)
{
    for (uint32_t k = 0; k < u->n; k++) {
        zx_iparam *p = &c->params[i];
        const use *x = &u->at[k];
        const Onnx__TensorProto *t = c->vals[p->ival].init;
        if (x->target && known_name(x->target) && x->n->in[x->slot] != p->ival) {
            add_alias(c, p, x->target); // the output of an Identity
        } else if (t && x->module[0]) {
            const char *said = missing_in(c, x->module, last_part(p->name));
            if (said) add_alias(c, p, said);
        }
    }
}

// True if the uses look like an exporter's merge: norms and biases of several modules.
static bool is_merged(const zx_imp *c, const zx_iparam *p, const uses *u)
{
    if (p->init.kind != ZX_INIT_DATA || p->type.shape.rank != 1 || p->type.shape.dim[0] < 2)
        return false;
    if (!zx_all_equal(p->init.data, p->type.shape.dim[0])) return false;
    bool several = false;
    for (uint32_t i = 0; i < u->n; i++) {
        const char *target = u->at[i].target;
        if (target == NULL || leaf_of(u->at[i].n, u->at[i].slot) == NULL) return false;
        if (strcmp(target, p->name) != 0 && is_taken(c, target)) return false;
        several = several || strcmp(u->at[i].module, u->at[0].module) != 0;
    }
    return several;
}

static void split(zx_imp *c, uint32_t i, const uses *u)
{
    const uint32_t whole = c->params[i].ival;
    const char *first = c->params[i].name; // the name of what stays in place
    bool own = false;
    for (uint32_t k = 0; k < u->n; k++) own = own || strcmp(u->at[k].target, first) == 0;
    if (!own && u->n > 0) { // named after no module, or after one that doesn't read it
        first = u->at[0].target;
        c->params[i].name = first;
    }
    uint32_t made = 1;
    for (uint32_t k = 0; k < u->n; k++) {
        const use *x = &u->at[k];
        uint32_t to = whole;
        if (strcmp(x->target, first) != 0) {
            to = ZX_NONE;
            for (uint32_t j = 0; j < c->n_params; j++)
                if (c->params[j].init.data == c->params[i].init.data &&
                    strcmp(c->params[j].name, x->target) == 0)
                    to = c->params[j].ival;
        }
        if (to == ZX_NONE) {
            to = zx_ival_add(c, x->target, ZX_I_INIT);
            c->vals[to].init = c->vals[whole].init;
            c->vals[to].cls = ZX_I_PARAM;
            c->vals[to].entry = c->n_params;
            zx_iparam p = c->params[i];
            p.ival = to;
            p.name = x->target;
            p.why = "split from equal values that the exporter merged";
            p.n_aliases = p.cap_aliases = 0;
            p.aliases = NULL;
            p.order = c->params[i].order;
            for (uint32_t j = 0; j < c->n_signature; j++)
                if (strcmp(c->signature[j], p.name) == 0) p.order = j;
            ZX_GROW(&c->tmp, c->params, c->n_params, c->cap_params);
            c->params[c->n_params++] = p;
            made++;
        }
        const uint32_t from = x->n->in[x->slot];
        if (from == to) continue;
        c->vals[from].uses--;
        c->vals[to].uses++;
        x->n->in[x->slot] = to;
    }
    zx_note(
        c->notes, c->mem,
        "'%s' stood in %u places with equal values, merged by the exporter: trained as %u separate "
        "parameters, each named after its module (--keep-ties keeps it one)",
        zx_text_safe(c->mem, c->vals[whole].name), u->n, made);
}

// ---- traps: what can't be undone but should be known
// ---------------------------------------------------

#define MOST_TOLD 3

static float at(const zx_iparam *p, int64_t i)
{
    float f;
    memcpy(&f, (const char *)p->init.data + i * 4, 4);
    return f;
}

static bool is_transposed(const zx_iparam *a, const zx_iparam *b)
{
    const int64_t n = a->type.shape.dim[0], m = a->type.shape.dim[1];
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < m; k++)
            if (at(a, i * m + k) != at(b, k * n + i)) return false;
    return true;
}

// True if a product (or, with `rows`, a Gather of its rows) reads tensor v, also moved around.
static bool feeds(const zx_imp *c, const readers *r, uint32_t v, bool rows, uint32_t depth)
{
    if (v >= r->n) return false; // split: then it is no matrix
    for (uint32_t i = r->begin[v]; i < r->begin[v + 1]; i++) {
        const zx_inode *n = r->at[i].n;
        if (rows && is_op(n, "Gather") && r->at[i].slot == 0) return true;
        if (!rows && (is_op(n, "MatMul") || (is_op(n, "Gemm") && r->at[i].slot < 2))) return true;
        const bool moved = is_op(n, "Identity") || is_op(n, "Transpose");
        if (moved && depth < 8 && n->out[0] != ZX_NONE && feeds(c, r, n->out[0], rows, depth + 1))
            return true;
    }
    return false;
}

// An embedding and a head: what models tie.
static bool are_ends(const zx_imp *c, const readers *r, const zx_iparam *a, const zx_iparam *b)
{
    return (feeds(c, r, a->ival, true, 0) && feeds(c, r, b->ival, false, 0)) ||
           (feeds(c, r, b->ival, true, 0) && feeds(c, r, a->ival, false, 0));
}

// True if names are the same but for numbers: layers that were made as copies of one another.
static bool same_but_numbers(const char *a, const char *b)
{
    for (;;) {
        while (*a >= '0' && *a <= '9') a++;
        while (*b >= '0' && *b <= '9') b++;
        if (*a != *b) return false;
        if (*a == '\0') return true;
        a++, b++;
    }
}

static bool hold_the_same(const zx_iparam *a, const zx_iparam *b, bool *turned)
{
    const int64_t count = zx_shape_count(&a->type.shape);
    *turned = false;
    if (b->init.kind != ZX_INIT_DATA || b->type.shape.rank != 2 || b->init.data == a->init.data ||
        zx_shape_count(&b->type.shape) != count || at(a, 0) != at(b, 0) ||
        at(a, count - 1) != at(b, count - 1))
        return false;
    if (zx_shape_equal(&a->type.shape, &b->type.shape) &&
        memcmp(a->init.data, b->init.data, (size_t)count * 4) == 0)
        return true;
    *turned = a->type.shape.dim[0] == b->type.shape.dim[1] &&
              a->type.shape.dim[1] == b->type.shape.dim[0] && is_transposed(a, b);
    return *turned;
}

// Equal values alone say little: layers that a model makes as copies of one another begin equal.
// Told are an embedding and a head, or a pair that is the only one in the file.
static void note_untied(zx_imp *c, const readers *r)
{
    uint32_t n_equal = 0, n_told = 0;
    const zx_iparam *only[2] = {NULL, NULL};
    static const char words[] =
        "'%s' and '%s' hold the same values%s: if the model ties them, the exporter has untied "
        "them (re-export with optimize=False)";
    bool turned, only_turned = false;
    for (uint32_t i = 0; i < c->n_params; i++) {
        const zx_iparam *a = &c->params[i];
        if (a->init.kind != ZX_INIT_DATA || a->type.shape.rank != 2) continue;
        const int64_t count = zx_shape_count(&a->type.shape);
        if (count < 2 || zx_all_equal(a->init.data, count)) continue;
        for (uint32_t k = i + 1; k < c->n_params; k++) {
            const zx_iparam *b = &c->params[k];
            if (!hold_the_same(a, b, &turned)) continue;
            if (n_equal++ == 0) {
                only[0] = a;
                only[1] = b;
                only_turned = turned;
            }
            if (are_ends(c, r, a, b) && n_told++ < MOST_TOLD)
                zx_note(c->notes, c->mem, words, zx_text_safe(c->mem, a->name),
                        zx_text_safe(c->mem, b->name), turned ? ", transposed" : "");
        }
    }
    if (n_told > MOST_TOLD)
        zx_note(c->notes, c->mem, "%u more pairs of an embedding and a head hold the same values",
                n_told - MOST_TOLD);
    if (n_equal == 1 && n_told == 0 && !same_but_numbers(only[0]->name, only[1]->name))
        zx_note(c->notes, c->mem, words, zx_text_safe(c->mem, only[0]->name),
                zx_text_safe(c->mem, only[1]->name), only_turned ? ", transposed" : "");
}

static bool accounted_for(const zx_imp *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_params; i++) {
        const zx_iparam *p = &c->params[i];
        if (strcmp(p->name, name) == 0) return true;
        for (uint32_t k = 0; k < p->n_aliases; k++)
            if (strcmp(p->aliases[k], name) == 0) return true;
        // "the exporter folded it from 'NAME'"
        const char *quoted = strchr(p->why, '\'');
        const size_t n = strlen(name);
        if (quoted && strncmp(quoted + 1, name, n) == 0 && quoted[1 + n] == '\'') return true;
    }
    return false;
}

static void note_vanished(zx_imp *c)
{
    uint32_t n = 0, n_folded = 0;
    const char *first = NULL;
    for (uint32_t i = 0; i < c->n_signature; i++) {
        if (accounted_for(c, c->signature[i])) continue;
        if (n++ == 0) first = c->signature[i];
    }
    if (n > 0)
        zx_note(c->notes, c->mem,
                "the exporter's signature names %u parameter%s that %s not in the file ('%s'%s): "
                "tied to "
                "others, merged with them or folded away (optimize=False keeps the latter two)",
                n, n == 1 ? "" : "s", n == 1 ? "is" : "are", zx_text_safe(c->mem, first),
                n == 1 ? "" : ", ...");
    for (uint32_t i = 0; i < c->n_params; i++) {
        if (strstr(c->params[i].why, "folded it from") == NULL) continue;
        if (n_folded++ == 0) first = c->params[i].name;
    }
    if (n_folded > 0)
        zx_note(c->notes, c->mem,
                "%u parameter%s trained in the form in which the exporter folded %s ('%s'%s): "
                "optimize=False keeps names and layouts",
                n_folded, n_folded == 1 ? " is" : "s are", n_folded == 1 ? "it" : "them",
                zx_text_safe(c->mem, first), n_folded == 1 ? "" : ", ...");
}

// ----
// -------------------------------------------------------------------------------------------------------

static int by_order(const void *a, const void *b)
{
    const zx_iparam *x = a, *y = b;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return x->ival < y->ival ? -1 : x->ival > y->ival;
}

void zx_import_ties(zx_imp *c)
{
    const uint32_t n = c->n_params;
    const readers r = find_readers(c);
    for (uint32_t i = 0; i < n; i++) {
        uses u = {0};
        collect(c, &r, c->params[i].ival, NULL, 0, &u);
        if (is_merged(c, &c->params[i], &u)) {
            if (!c->options->keep_ties) {
                split(c, i, &u);
                continue;
            }
            zx_note(c->notes, c->mem,
                    "'%s' stands in %u places with equal values, perhaps merged by the "
                    "exporter: kept one, as asked",
                    zx_text_safe(c->mem, c->params[i].name), u.n);
        }
        find_aliases(c, i, &u);
    }
    if (c->n_params > 0) qsort(c->params, c->n_params, sizeof *c->params, by_order);
    for (uint32_t i = 0; i < c->n_params; i++) c->vals[c->params[i].ival].entry = i;
    note_untied(c, &r);
    note_vanished(c);
}
