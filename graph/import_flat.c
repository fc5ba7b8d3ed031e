// import_flat.c - the file as a flat program: names become indices, local functions are inlined,
// and every region's nodes are put in an order that runs.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <string.h>

#define MAX_DEPTH 100    // of function calls and branches within each other
#define MAX_NODES 500000 // after inlining: functions that call others twice grow exponentially

// ---- names
// ------------------------------------------------------------------------------------------

typedef struct names { // open addressing; zeroed is empty
    uint32_t n, cap;
    struct name {
        const char *key;
        uint32_t to;
    } * at;
} names;

static uint64_t hash(const char *s)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001B3u;
    return h ^ (h >> 32);
}

static struct name *slot(const names *t, const char *key)
{
    if (t->cap == 0) return NULL;
    for (uint64_t i = hash(key);; i++) {
        struct name *s = &t->at[i & (t->cap - 1)];
        if (s->key == NULL || strcmp(s->key, key) == 0) return s;
    }
}

static uint32_t names_find(const names *t, const char *key)
{
    const struct name *s = slot(t, key);
    return s && s->key ? s->to : ZX_NONE;
}

static void names_add(zx_arena *mem, names *t, const char *key, uint32_t to)
{
    if (t->n * 2 >= t->cap) {
        const names old = *t;
        t->cap = old.cap ? old.cap * 2 : 64;
        t->at = ZX_NEW(mem, struct name, t->cap);
        for (uint32_t i = 0; i < old.cap; i++)
            if (old.at[i].key) *slot(t, old.at[i].key) = old.at[i];
    }
    *slot(t, key) = (struct name){key, to};
    t->n++;
}

// ---- where names and operators mean what
// ------------------------------------------------------------

typedef struct call { // a function being inlined; the graph itself has none
    const struct call *outer;
    const Onnx__FunctionProto *function;
    const zx_inode *node;
    const char *prefix;
} call;

typedef struct scope {
    names names;
    const struct scope *outer; // names of the enclosing region
    zx_iregion *region;
    const call *call;
    uint32_t depth;
    uint32_t cap_nodes;
} scope;

typedef struct flat {
    zx_imp *c;
    names functions;
} flat;

static const char *text(const char *s)
{
    return s ? s : "";
}

static const char *domain_of(const char *s)
{
    return s == NULL || strcmp(s, "ai.onnx") == 0 ? "" : s;
}

uint32_t zx_ival_add(zx_imp *c, const char *name, zx_ikind kind)
{
    ZX_GROW(&c->tmp, c->vals, c->n_vals, c->cap_vals);
    c->vals[c->n_vals] = (zx_ival){.name = name, .kind = kind, .v = ZX_NONE, .entry = ZX_NONE};
    return c->n_vals++;
}

// Declares a name that something makes.
static uint32_t declare(flat *f, scope *s, const char *name, zx_ikind kind)
{
    zx_imp *c = f->c;
    if (names_find(&s->names, name) != ZX_NONE) {
        zx_import_fail(c, NULL, ZX_E_FORMAT, "the name '%s' is made twice",
                       zx_text_safe(&c->tmp, name));
        return names_find(&s->names, name);
    }
    const char *full = s->call ? zx_arena_printf(&c->tmp, "%s/%s", s->call->prefix, name) : name;
    const uint32_t v = zx_ival_add(c, full, kind);
    names_add(&c->tmp, &s->names, name, v);
    return v;
}

static void capture(zx_imp *c, zx_iregion *r, uint32_t v)
{
    for (uint32_t i = 0; i < r->n_captured; i++)
        if (r->captured[i] == v) return;
    ZX_GROW(&c->tmp, r->captured, r->n_captured, r->cap_captured);
    r->captured[r->n_captured++] = v;
}

static uint32_t lookup(zx_imp *c, const scope *s, const char *name)
{
    const scope *at = s;
    uint32_t v = ZX_NONE;
    for (; at; at = at->outer)
        if ((v = names_find(&at->names, name)) != ZX_NONE) break;
    if (v == ZX_NONE) return ZX_NONE;
    for (const scope *k = s; k != at; k = k->outer)
        if (k->region != at->region) capture(c, k->region, v);
    return v;
}

// ---- sources: the nodes as the exporter wrote them
// ----------------------------------------------------

// Reads a Python list of strings, as name_scopes is written; the entries, or 0 if it is none.
static uint32_t parse_list(zx_arena *mem, const char *s, const char ***out)
{
    uint32_t n = 0, cap = 0;
    *out = NULL;
    while (*s && *s != '[') s++;
    while (*s) {
        while (*s && *s != '\'' && *s != '"') s++;
        if (*s == '\0') break;
        const char quote = *s++;
        char *copy = ZX_NEW(mem, char, strlen(s) + 1);
        size_t len = 0;
        for (; *s && *s != quote; s++) {
            if (*s == '\\' && s[1]) s++;
            copy[len++] = *s;
        }
        if (*s) s++;
        ZX_GROW(mem, *out, n, cap);
        (*out)[n++] = copy;
    }
    return n;
}

// "/h.0/attn/MatMul" becomes "", "h.0", "h.0.attn": how older exporters state the module.
static uint32_t scopes_of_name(zx_arena *mem, const char *name, const char ***out)
{
    uint32_t n = 0, cap = 0;
    *out = NULL;
    if (name[0] != '/') return 0;
    ZX_GROW(mem, *out, n, cap);
    (*out)[n++] = "";
    for (const char *s = strchr(name + 1, '/'); s; s = strchr(s + 1, '/')) {
        char *path = (char *)(uintptr_t)zx_arena_strn(mem, name + 1, (size_t)(s - name - 1));
        for (char *p = path; *p; p++)
            if (*p == '/') *p = '.';
        ZX_GROW(mem, *out, n, cap);
        (*out)[n++] = path;
    }
    return n;
}

static const char *const *names_of(zx_imp *c, const uint32_t *v, uint32_t n)
{
    const char **out = ZX_NEW(&c->tmp, const char *, n + 1);
    for (uint32_t i = 0; i < n; i++) out[i] = v[i] == ZX_NONE ? "" : c->vals[v[i]].name;
    return out;
}

static uint32_t add_source(zx_imp *c, const scope *s, const Onnx__NodeProto *p, const zx_inode *n)
{
    zx_builder *b = &c->b;
    zx_source src = {.name = n->name,
                     .op = n->op,
                     .n_in = n->n_in,
                     .n_out = n->n_out,
                     .in = names_of(c, n->in, n->n_in),
                     .out = names_of(c, n->out, n->n_out),
                     .part = "",
                     .types = "",
                     .in_ids = n->in, // as the nodes themselves: ties may still redirect them
                     .out_ids = n->out,
                     .diff = UINT32_MAX};
    const char **scopes = NULL;
    const char *list =
        zx_onnx_meta(p->metadata_props, p->n_metadata_props, "pkg.torch.onnx.name_scopes");
    if (list) {
        const char *types = zx_onnx_meta(p->metadata_props, p->n_metadata_props, "namespace");
        if (types != NULL) src.types = types;
        src.n_scopes = parse_list(&c->tmp, list, &scopes);
        if (src.n_scopes > 0) src.part = scopes[--src.n_scopes]; // the last is the operator itself
    } else if (s->call && s->call->node->source != ZX_NONE) {
        const zx_source *of = &b->sources[s->call->node->source];
        src.n_scopes = of->n_scopes;
        scopes = (const char **)(uintptr_t)of->scopes;
        src.part = of->part;
        src.types = of->types;
    } else {
        src.n_scopes = scopes_of_name(&c->tmp, text(p->name), &scopes);
    }
    src.scopes = scopes;
    ZX_GROW(&c->tmp, b->sources, b->g.n_sources, b->cap_sources);
    b->sources[b->g.n_sources++] = src;
    b->g.sources = b->sources;
    return b->g.n_sources - 1;
}

// ---- nodes
// ------------------------------------------------------------------------------------------------

static int64_t opset_of(const zx_imp *c, const scope *s, const char *domain)
{
    Onnx__OperatorSetIdProto *const *list = c->file->model->opset_import;
    size_t n = c->file->model->n_opset_import;
    if (s->call) {
        list = s->call->function->opset_import;
        n = s->call->function->n_opset_import;
    }
    int64_t version = 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(domain_of(list[i]->domain), domain) == 0 && list[i]->version > version)
            version = list[i]->version;
    return version;
}

static void add_node(flat *f, scope *s, zx_inode *n)
{
    zx_iregion *r = s->region;
    // Regions are shared by the scopes of functions inlined into them, so the room is the region's:
    // it doubles at every power of two.
    if ((r->n_nodes & (r->n_nodes - 1)) == 0) {
        zx_inode **more = ZX_NEW(&f->c->tmp, zx_inode *, r->n_nodes ? (size_t)r->n_nodes * 2 : 1);
        if (r->n_nodes > 0) memcpy(more, r->nodes, r->n_nodes * sizeof *more);
        r->nodes = more;
    }
    r->nodes[r->n_nodes++] = n;
    n->region = r;
    for (uint32_t i = 0; i < n->n_out; i++)
        if (n->out[i] != ZX_NONE) f->c->vals[n->out[i]].by = n;
    f->c->n_flat++;
}

static zx_iregion *flatten_graph(flat *f, const scope *outer, const Onnx__GraphProto *g);
static void flatten_nodes(flat *f, scope *s, Onnx__NodeProto *const *nodes, size_t n);

static void read_attributes(flat *f, scope *s, const Onnx__NodeProto *p, zx_inode *n)
{
    zx_imp *c = f->c;
    zx_iattr *list = ZX_NEW(&c->tmp, zx_iattr, p->n_attribute + 1);
    for (size_t i = 0; i < p->n_attribute; i++) {
        const Onnx__AttributeProto *a = p->attribute[i];
        zx_iattr x = {.name = text(a->name), .a = a};
        if (zx_inode_attr(&(zx_inode){.n_attrs = n->n_attrs, .attrs = list}, x.name)) {
            zx_import_fail(c, n, ZX_E_FORMAT, "the attribute '%s' is given twice",
                           zx_text_safe(&c->tmp, x.name));
            continue;
        }
        if (a->ref_attr_name && a->ref_attr_name[0]) {
            const zx_iattr *given = s->call ? zx_inode_attr(s->call->node, a->ref_attr_name) : NULL;
            x.a = given ? given->a : NULL;
            x.body = given ? given->body : NULL;
            for (size_t k = 0; s->call && x.a == NULL && k < s->call->function->n_attribute_proto;
                 k++)
                if (strcmp(text(s->call->function->attribute_proto[k]->name), a->ref_attr_name) ==
                    0)
                    x.a = s->call->function->attribute_proto[k];
            if (s->call == NULL)
                zx_import_fail(c, n, ZX_E_FORMAT, "the attribute '%s' refers to a function's",
                               zx_text_safe(&c->tmp, x.name));
            if (x.a == NULL) continue; // the caller left it out: so does the node
        }
        if (x.a->g && x.body == NULL) x.body = flatten_graph(f, s, x.a->g);
        list[n->n_attrs++] = x;
    }
    n->attrs = list;
}

static const char *function_key(zx_arena *mem, const char *domain, const char *name,
                                const char *overload)
{
    return zx_arena_printf(mem, "%s\n%s\n%s", domain_of(domain), text(name), text(overload));
}

// Puts the body of the function that `n` calls in its place.
static void inline_call(flat *f, scope *s, const Onnx__FunctionProto *fn, zx_inode *n)
{
    zx_imp *c = f->c;
    for (const call *k = s->call; k; k = k->outer)
        if (k->function == fn) {
            zx_import_fail(c, n, ZX_E_FORMAT, "the function '%s' calls itself",
                           zx_text_safe(&c->tmp, text(fn->name)));
            return;
        }
    if (n->n_in > fn->n_input || n->n_out > fn->n_output) {
        zx_import_fail(c, n, ZX_E_FORMAT,
                       "%u inputs and %u outputs for the function '%s', which has %zu and %zu",
                       n->n_in, n->n_out, zx_text_safe(&c->tmp, text(fn->name)), fn->n_input,
                       fn->n_output);
        return;
    }
    const call here = {.outer = s->call, .function = fn, .node = n, .prefix = n->name};
    scope inner = {.region = s->region, .call = &here, .depth = s->depth + 1};
    uint32_t absent = ZX_NONE;
    for (size_t i = 0; i < fn->n_input; i++) {
        uint32_t v = i < n->n_in ? n->in[i] : ZX_NONE;
        if (v == ZX_NONE) { // reads of an argument that is left out are reads of nothing
            if (absent == ZX_NONE) absent = zx_ival_add(c, "", ZX_I_UNSET);
            v = absent;
        }
        if (names_find(&inner.names, fn->input[i]) == ZX_NONE)
            names_add(&c->tmp, &inner.names, fn->input[i], v);
    }
    flatten_nodes(f, &inner, fn->node, fn->n_node);
    for (uint32_t i = 0; i < n->n_out; i++) {
        if (n->out[i] == ZX_NONE) continue;
        const uint32_t from = names_find(&inner.names, fn->output[i]);
        if (from == ZX_NONE) {
            zx_import_fail(c, n, ZX_E_FORMAT, "the function '%s' never makes its output '%s'",
                           zx_text_safe(&c->tmp, text(fn->name)),
                           zx_text_safe(&c->tmp, fn->output[i]));
            continue;
        }
        zx_inode *id = ZX_NEW(&c->tmp, zx_inode, 1);
        *id = (zx_inode){.name = n->name,
                         .domain = "",
                         .op = "Identity",
                         .row = zx_onnx_op_find("", "Identity"),
                         .opset = 13,
                         .source = n->source,
                         .n_in = 1,
                         .n_out = 1,
                         .in = ZX_NEW(&c->tmp, uint32_t, 1),
                         .out = ZX_NEW(&c->tmp, uint32_t, 1)};
        id->in[0] = from;
        id->out[0] = n->out[i];
        add_node(f, s, id);
    }
}

// The inputs that a gradient comes back to; none through a cast to integers.
static uint32_t gradient_inputs(const zx_inode *n)
{
    const zx_iattr *to = strcmp(n->op, "Cast") == 0 ? zx_inode_attr(n, "to") : NULL;
    const zx_dtype t = to != NULL ? zx_dtype_of_onnx(to->a->i) : ZX_DTYPE_COUNT;
    return t != ZX_DTYPE_COUNT && !zx_dtype_is_float(t) ? 0 : n->row->diff;
}

static void flatten_node(flat *f, scope *s, const Onnx__NodeProto *p)
{
    zx_imp *c = f->c;
    zx_inode *n = ZX_NEW(&c->tmp, zx_inode, 1);
    const char *out0 = p->n_output > 0 ? text(p->output[0]) : "";
    n->op = text(p->op_type);
    n->domain = domain_of(p->domain);
    n->name = text(p->name)[0] ? p->name : zx_arena_printf(&c->tmp, "%s:%s", n->op, out0);
    if (s->call) n->name = zx_arena_printf(&c->tmp, "%s/%s", s->call->prefix, n->name);
    n->source = ZX_NONE;
    n->n_in = (uint32_t)p->n_input;
    n->n_out = (uint32_t)p->n_output;
    n->in = ZX_NEW(&c->tmp, uint32_t, p->n_input + 1);
    n->out = ZX_NEW(&c->tmp, uint32_t, p->n_output + 1);
    for (size_t i = 0; i < p->n_output; i++)
        n->out[i] = text(p->output[i])[0] ? names_find(&s->names, p->output[i]) : ZX_NONE;
    for (size_t i = 0; i < p->n_input; i++) {
        n->in[i] = ZX_NONE;
        if (text(p->input[i])[0] == '\0') continue;
        n->in[i] = lookup(c, s, p->input[i]);
        if (n->in[i] == ZX_NONE)
            zx_import_fail(c, n, ZX_E_FORMAT,
                           "its input '%s' is neither an input, an initialiser nor made by a node",
                           zx_text_safe(&c->tmp, p->input[i]));
        else if (c->vals[n->in[i]].kind == ZX_I_UNSET)
            n->in[i] = ZX_NONE;
    }
    while (n->n_in > 0 && n->in[n->n_in - 1] == ZX_NONE) n->n_in--;
    n->source = add_source(c, s, p, n);
    read_attributes(f, s, p, n);
    n->opset = opset_of(c, s, n->domain);

    const uint32_t fn =
        names_find(&f->functions, function_key(&c->tmp, p->domain, p->op_type, p->overload));
    if (fn != ZX_NONE) {
        inline_call(f, s, c->file->model->functions[fn], n);
        return;
    }
    n->row = zx_onnx_op_find(n->domain, n->op);
    if (n->row != NULL) c->b.sources[n->source].diff = gradient_inputs(n);
    add_node(f, s, n);
}

static void flatten_nodes(flat *f, scope *s, Onnx__NodeProto *const *nodes, size_t n)
{
    zx_imp *c = f->c;
    if (s->depth > MAX_DEPTH || c->n_flat + n > MAX_NODES) {
        zx_import_fail(c, NULL, ZX_E_FORMAT,
                       s->depth > MAX_DEPTH ? "functions or branches are nested more than %d deep"
                                            : "more than %d nodes once functions are inlined",
                       s->depth > MAX_DEPTH ? MAX_DEPTH : MAX_NODES);
        return;
    }
    // All names first: nodes may stand in any order, and branches read what comes later, too.
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < nodes[i]->n_output; k++)
            if (text(nodes[i]->output[k])[0]) declare(f, s, nodes[i]->output[k], ZX_I_NODE);
    for (size_t i = 0; i < n && c->err->n_causes < ZX_ERR_KEPT; i++) flatten_node(f, s, nodes[i]);
}

// ---- an order that runs
// --------------------------------------------------------------------------------

// The tensors that a node waits for: inputs, then what its bodies capture.
static uint32_t waits_for(const zx_inode *n, uint32_t i)
{
    if (i < n->n_in) return n->in[i];
    i -= n->n_in;
    for (uint32_t k = 0; k < n->n_attrs; k++) {
        const zx_iregion *r = n->attrs[k].body;
        if (r == NULL) continue;
        if (i < r->n_captured) return r->captured[i];
        i -= r->n_captured;
    }
    return ZX_NONE - 1; // no more
}

// Depth first in the file's order: a file that is in order stays as it is.
static void order(zx_imp *c, zx_iregion *r)
{
    struct frame {
        zx_inode *n;
        uint32_t next;
    } *stack = ZX_NEW(&c->tmp, struct frame, r->n_nodes + 1);
    zx_inode **sorted = ZX_NEW(&c->tmp, zx_inode *, r->n_nodes + 1);
    uint32_t n_sorted = 0;
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        uint32_t depth = 0;
        if (r->nodes[i]->mark == 0) stack[depth++] = (struct frame){r->nodes[i], 0};
        while (depth > 0) {
            struct frame *at = &stack[depth - 1];
            at->n->mark = 1;
            const uint32_t v = waits_for(at->n, at->next++);
            if (v == ZX_NONE - 1) {
                at->n->mark = 2;
                sorted[n_sorted++] = at->n;
                depth--;
                continue;
            }
            zx_inode *by = v == ZX_NONE ? NULL : c->vals[v].by;
            if (by == NULL || by->region != r || by->mark == 2) continue;
            if (by->mark == 1) {
                zx_import_fail(c, by, ZX_E_FORMAT,
                               "it waits for its own output: a cycle through '%s'",
                               zx_text_safe(&c->tmp, c->vals[v].name));
                return;
            }
            stack[depth++] = (struct frame){by, 0};
        }
    }
    r->nodes = sorted;
}

// ---- graphs
// -------------------------------------------------------------------------------------------------

static const Onnx__ValueInfoProto *better(const Onnx__ValueInfoProto *a,
                                          const Onnx__ValueInfoProto *b)
{
    return a == NULL || (b && a->n_metadata_props == 0 && b->n_metadata_props > 0) ? b : a;
}

static zx_iregion *flatten_graph(flat *f, const scope *outer, const Onnx__GraphProto *g)
{
    zx_imp *c = f->c;
    zx_iregion *r = ZX_NEW(&c->tmp, zx_iregion, 1);
    scope s = {.outer = outer,
               .region = r,
               .call = outer ? outer->call : NULL,
               .depth = outer ? outer->depth + 1 : 0};
    for (size_t i = 0; i < g->n_initializer; i++) {
        const Onnx__TensorProto *t = g->initializer[i];
        if (text(t->name)[0] == '\0') continue;
        const uint32_t v = declare(f, &s, t->name, ZX_I_INIT);
        c->vals[v].init = t;
    }
    if (g->n_sparse_initializer > 0)
        zx_import_fail(c, NULL, ZX_E_UNSUPPORTED, "sparse initialisers aren't supported");
    r->in = ZX_NEW(&c->tmp, uint32_t, g->n_input + 1);
    for (size_t i = 0; i < g->n_input; i++) {
        const char *name = text(g->input[i]->name);
        uint32_t v = names_find(&s.names, name);
        if (v == ZX_NONE || c->vals[v].kind != ZX_I_INIT) {
            v = declare(f, &s, name, ZX_I_INPUT);
            r->in[r->n_in++] = v;
        } else if (outer) {
            r->in[r->n_in++] = v;
        }
        c->vals[v].info = g->input[i];
    }
    flatten_nodes(f, &s, g->node, g->n_node);
    for (size_t i = 0; i < g->n_value_info; i++) {
        const uint32_t v = names_find(&s.names, text(g->value_info[i]->name));
        if (v != ZX_NONE) c->vals[v].info = better(c->vals[v].info, g->value_info[i]);
    }
    r->out = ZX_NEW(&c->tmp, uint32_t, g->n_output + 1);
    r->n_out = (uint32_t)g->n_output;
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = text(g->output[i]->name);
        r->out[i] = lookup(c, &s, name);
        if (r->out[i] == ZX_NONE)
            zx_import_fail(c, NULL, ZX_E_FORMAT, "the output '%s' is made by no node",
                           zx_text_safe(&c->tmp, name));
        else if (outer == NULL)
            c->vals[r->out[i]].info = better(g->output[i], c->vals[r->out[i]].info);
    }
    order(c, r);
    return r;
}

zx_status zx_import_flatten(zx_imp *c)
{
    const Onnx__ModelProto *m = c->file->model;
    flat f = {.c = c};
    for (size_t i = 0; i < m->n_functions; i++) {
        const Onnx__FunctionProto *fn = m->functions[i];
        const char *key = function_key(&c->tmp, fn->domain, fn->name, fn->overload);
        if (names_find(&f.functions, key) == ZX_NONE)
            names_add(&c->tmp, &f.functions, key, (uint32_t)i);
        else
            zx_import_fail(c, NULL, ZX_E_FORMAT, "the function '%s' is there twice",
                           zx_text_safe(&c->tmp, fn->name ? fn->name : ""));
    }
    c->main = flatten_graph(&f, NULL, m->graph);
    return c->err->n_causes > 0 ? c->err->code : ZX_OK;
}

// ---- what is needed
// -------------------------------------------------------------------------------------------

static void mark_live(zx_imp *c, const zx_iregion *r, bool *needed)
{
    for (uint32_t i = r->n_nodes; i-- > 0;) {
        zx_inode *n = r->nodes[i];
        for (uint32_t k = 0; k < n->n_out; k++)
            n->live = n->live || (n->out[k] != ZX_NONE && needed[n->out[k]]);
        if (!n->live) continue;
        for (uint32_t k = 0; k < n->n_in; k++) {
            if (n->in[k] == ZX_NONE) continue;
            needed[n->in[k]] = true;
            c->vals[n->in[k]].uses++;
        }
        for (uint32_t k = 0; k < n->n_attrs; k++) {
            const zx_iregion *body = n->attrs[k].body;
            if (body == NULL) continue;
            for (uint32_t j = 0; j < body->n_captured; j++) {
                needed[body->captured[j]] = true;
                c->vals[body->captured[j]].pinned = true;
            }
            for (uint32_t j = 0; j < body->n_out; j++)
                if (body->out[j] != ZX_NONE) {
                    needed[body->out[j]] = true;
                    c->vals[body->out[j]].pinned = true;
                }
            mark_live(c, body, needed);
        }
        if (r == c->main) continue;
        // A loop's body is walked more than once: nothing in it may be dropped early.
        for (uint32_t k = 0; k < n->n_in; k++)
            if (n->in[k] != ZX_NONE) c->vals[n->in[k]].pinned = true;
    }
}

void zx_import_live(zx_imp *c)
{
    bool *needed = ZX_NEW(&c->tmp, bool, c->n_vals + 1);
    for (uint32_t i = 0; i < c->n_roots; i++) {
        needed[c->roots[i]] = true;
        c->vals[c->roots[i]].pinned = true;
    }
    mark_live(c, c->main, needed);
}

// ---- small questions
// ----------------------------------------------------------------------------------------

const zx_iattr *zx_inode_attr(const zx_inode *n, const char *name)
{
    for (uint32_t i = 0; i < n->n_attrs; i++)
        if (strcmp(n->attrs[i].name, name) == 0) return &n->attrs[i];
    return NULL;
}

const char *zx_ival_meta(const zx_imp *c, const zx_ival *v, const char *key)
{
    (void)c;
    const char *said = NULL;
    if (v->info) said = zx_onnx_meta(v->info->metadata_props, v->info->n_metadata_props, key);
    if (said == NULL && v->init)
        said = zx_onnx_meta(v->init->metadata_props, v->init->n_metadata_props, key);
    return said;
}

const Onnx__TensorProto *zx_ival_tensor(const zx_imp *c, const zx_ival *v)
{
    (void)c;
    if (v->kind == ZX_I_INIT) return v->init;
    if (v->kind != ZX_I_NODE || v->by == NULL || strcmp(v->by->op, "Constant") != 0 ||
        v->by->domain[0])
        return NULL;
    const zx_iattr *a = zx_inode_attr(v->by, "value");
    return a ? a->a->t : NULL;
}

const char *zx_inode_module(const zx_imp *c, const zx_inode *n)
{
    if (n->source == ZX_NONE) return "";
    const zx_source *s = &c->b.sources[n->source];
    return s->n_scopes > 0 ? s->scopes[s->n_scopes - 1] : "";
}
