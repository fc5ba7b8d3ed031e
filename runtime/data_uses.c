// data_uses.c - what a graph does with the values of its inputs, and values of files that it can't
// take, found before the first step where that is quick.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "runtime/data_priv.h"

static bool is_integer(zx_dtype t)
{
    return zx_dtypes[t].kind == ZX_KIND_INT || zx_dtypes[t].kind == ZX_KIND_UINT;
}

// ---- what the values of an input are used for --------------------------------------------------

// What node n makes of its input k as an index: the size of what it indexes; 0: it isn't an index
// there.
static int64_t indexed_size(const zx_graph *g, const zx_node *n, uint32_t k)
{
    const bool wide = n->op == ZX_OP_LINEAR_CROSS_ENTROPY || n->op == ZX_OP_ROTARY_EMBEDDING;
    const uint32_t table = zx_node_in(g, n, wide ? 1 : 0);
    if (k != (n->op == ZX_OP_LINEAR_CROSS_ENTROPY ? 2 : wide ? 3 : 1) || table == ZX_NONE) return 0;
    const zx_shape *s = &g->values[table].type.shape;
    switch (n->op) {
    case ZX_OP_LINEAR_CROSS_ENTROPY: // its weight
        return s->dim[zx_attr_int(&n->attrs, ZX_A_TRANS_B, 1) != 0 ? 0 : 1];
    case ZX_OP_ROTARY_EMBEDDING: // its cache
        return s->dim[0];
    case ZX_OP_GATHER:
    case ZX_OP_GATHER_ELEMENTS:
        return s->dim[zx_attr_int(&n->attrs, ZX_A_AXIS, 0)];
    case ZX_OP_GATHER_ND:
        return s->dim[zx_attr_int(&n->attrs, ZX_A_BATCH_DIMS, 0)];
    case ZX_OP_CROSS_ENTROPY:
    case ZX_OP_NLL_LOSS:
        return s->dim[1];
    default:
        return 0;
    }
}

// Ops whose output holds the values of their input.
static bool passes_on(uint8_t op)
{
    static const uint8_t ops[] = {ZX_OP_RESHAPE, ZX_OP_CAST,   ZX_OP_TRANSPOSE, ZX_OP_EXPAND,
                                  ZX_OP_SLICE,   ZX_OP_CONCAT, ZX_OP_PAD,       ZX_OP_WHERE};
    for (size_t i = 0; i < ZX_COUNT(ops); i++)
        if (ops[i] == op) return true;
    return false;
}

// Ops among passes_on whose output holds all values of their input and nothing else.
static bool passes_all(uint8_t op)
{
    return op == ZX_OP_RESHAPE || op == ZX_OP_CAST || op == ZX_OP_TRANSPOSE || op == ZX_OP_EXPAND;
}

static void take_least(int64_t *least, int64_t size)
{
    if (size > 0 && (*least == 0 || size < *least)) *least = size;
}

static bool is_loss(uint8_t op)
{
    return op == ZX_OP_CROSS_ENTROPY || op == ZX_OP_NLL_LOSS || op == ZX_OP_LINEAR_CROSS_ENTROPY;
}

// Two losses may ignore different labels: then it is left to them what they take.
static void take_label(zx_data_uses *u, const zx_node *n, int64_t size, bool whole)
{
    const zx_attr *ignore = zx_attr_find(&n->attrs, ZX_A_IGNORE_INDEX);
    u->classes = u->label == 0 && whole ? size : 0;
    u->ignores = ignore != NULL;
    u->ignored = ignore != NULL ? ignore->i[0] : 0;
    take_least(&u->label, size);
}

// Nodes stand in an order that runs: one pass is enough.
zx_data_uses zx_data_find_uses(const zx_graph *g, uint32_t input, zx_arena *mem)
{
    zx_data_uses u = {0};
    enum { SOME = 1, WHOLE = 2 };
    const zx_mark mark = zx_arena_mark(mem);
    uint8_t *holds = ZX_NEW(mem, uint8_t, g->n_values);
    holds[input] = SOME | WHOLE;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->n_in; k++) {
            const uint32_t v = zx_node_in(g, n, k);
            if (v == ZX_NONE || holds[v] == 0) continue;
            if (n->op == ZX_OP_ONE_HOT && k == 0) u.index = zx_attr_int(&n->attrs, ZX_A_DEPTH, 0);
            const int64_t size = indexed_size(g, n, k);
            take_least(&u.index, size);
            if (size > 0 && is_loss(n->op))
                take_label(&u, n, size, (holds[v] & WHOLE) != 0);
            else if ((holds[v] & WHOLE) != 0 && n->op == ZX_OP_GATHER)
                take_least(&u.table, size);
            if (passes_on(n->op))
                holds[zx_node_out(g, n, 0)] |= passes_all(n->op) ? holds[v] : SOME;
        }
    }
    zx_arena_rewind(mem, mark);
    return u;
}

// ---- what tokens may be -------------------------------------------------------------------------

// Tokens that an embedding has no row for would end the run at the step that meets them; in a file
// that is quickly read through they are found now.
#define SCANNED_BYTES (UINT64_C(64) << 20)

static zx_status check_tokens(zx_data *d, const zx_data_input *in, uint64_t table, zx_notes *notes,
                              zx_err *err)
{
    const zx_data_source *s = &in->from->source;
    const uint32_t width = zx_dtype_bytes(s->dtype);
    const uint64_t end = in->n_each * in->samples + (s->next ? 1 : 0);
    if (s->dtype == ZX_U8 && table > 256)
        zx_note(notes, d->mem, "data: %s is read as bytes (0..255); the model knows %llu tokens",
                zx_text_safe(d->mem, s->path), (unsigned long long)table);
    if (table >> (8 * width) > 0) return ZX_OK; // every value has its row
    for (uint64_t i = s->next ? 1 : 0; i < end && i < SCANNED_BYTES / width; i++) {
        const int64_t v = zx_data_load(s->data, s->dtype, i);
        if ((uint64_t)v < table) continue;
        zx_err_hint(err, "tokens of this model's tokenizer%s",
                    s->dtype == ZX_U16   ? ", or FILE.bin:u32 if they are uint32"
                    : s->dtype == ZX_U32 ? ", or without :u32 if they are uint16"
                                         : "; a file of uint16 tokens is named FILE.bin");
        return ZX_FAIL(err, ZX_E_DATA,
                       "input '%s': token %lld at position %llu of %s; the model has %llu tokens",
                       zx_text_safe(d->mem, in->name), (long long)v, (unsigned long long)i,
                       zx_text_safe(d->mem, s->path), (unsigned long long)table);
    }
    return ZX_OK;
}

// Likewise labels that the loss has no class for; who reads them through other operators than
// those that keep all values meets them in the step.
static zx_status check_labels(zx_data *d, const zx_data_input *in, const zx_data_uses *u,
                              zx_err *err)
{
    const zx_data_source *s = &in->from->source;
    if (s->kind != ZX_SOURCE_NPY && s->kind != ZX_SOURCE_TOKENS) return ZX_OK;
    if (in->beside && d->optional) return ZX_OK; // another model's, perhaps
    const uint64_t n = in->n_each * in->samples, from = s->next ? 1 : 0;
    const uint64_t most = SCANNED_BYTES / zx_dtype_bytes(s->dtype);
    for (uint64_t i = 0; i < n && i < most; i++) {
        const int64_t v = zx_data_load(s->data, s->dtype, i + from);
        if ((v >= 0 && v < u->classes) || (u->ignores && v == u->ignored)) continue;
        const char *place = in->n_each > 1 ? zx_arena_printf(d->mem, ", element %llu",
                                                             (unsigned long long)(i % in->n_each))
                                           : "";
        if (u->ignores)
            zx_err_hint(err, "labels from 0 to %lld, or %lld for what has none",
                        (long long)u->classes - 1, (long long)u->ignored);
        else
            zx_err_hint(err, "labels from 0 to %lld", (long long)u->classes - 1);
        return ZX_FAIL(err, ZX_E_DATA,
                       "input '%s': sample %llu of %s%s is label %lld; the model has %lld classes",
                       zx_text_safe(d->mem, in->name), (unsigned long long)(i / in->n_each),
                       zx_text_safe(d->mem, s->path), place, (long long)v, (long long)u->classes);
    }
    return ZX_OK;
}

static bool same_values(const zx_data_input *a, const zx_data_input *b)
{
    const zx_data_source *x = &a->from->source, *y = &b->from->source;
    if (a->from == b->from) return true;
    return x->path != NULL && y->path != NULL && x->kind == y->kind && x->next == y->next &&
           strcmp(x->path, y->path) == 0;
}

// A language model whose labels are its tokens learns to repeat them, and its loss falls well.
static void warn_of_labels(zx_data *d, const zx_graph *g, const zx_data_input *labels,
                           const zx_data_input *tokens, zx_notes *notes)
{
    bool found = false;
    const bool shifts = zx_import_shifts_labels(g, &found);
    const zx_data_source *s = &tokens->from->source;
    const char *name = zx_text_safe(d->mem, labels->name);
    if (!found || s->path == NULL || labels->n_each != tokens->n_each) return;
    const char *path = zx_text_safe(d->mem, s->path);
    if (!shifts && same_values(labels, tokens))
        zx_note(notes, d->mem,
                "data: '%s' are the tokens of '%s' themselves, and the graph doesn't shift them: "
                "the model learns to repeat its input; %s",
                name, zx_text_safe(d->mem, tokens->name),
                s->kind == ZX_SOURCE_TOKENS
                    ? zx_arena_printf(d->mem, "--data %s=%s%s:+1 gives the next ones", name, path,
                                      s->wide ? ":u32" : "")
                    : "labels of a language model are the tokens moved on by one");
    const zx_data_source *l = &labels->from->source;
    if (shifts && l->path != NULL && strcmp(l->path, s->path) == 0 && l->next && !s->next)
        zx_note(notes, d->mem,
                "data: '%s' are moved on by one, and the graph shifts them once more; --data "
                "%s=copy:%s gives the next token",
                name, name, zx_text_safe(d->mem, tokens->name));
}

zx_status zx_data_check_uses(zx_data *d, const zx_graph *g, zx_notes *notes, zx_err *err)
{
    const zx_data_input *labels = NULL, *tokens = NULL;
    for (uint32_t k = 0; k < d->n_graph; k++) {
        const zx_data_input *in = d->by_graph[k];
        if (in->from == NULL || !is_integer(in->type.dtype)) continue;
        const zx_data_uses u = zx_data_find_uses(g, g->inputs[k], d->mem);
        if (u.label > 0) labels = in;
        if (u.classes > 0) ZX_TRY(check_labels(d, in, &u, err));
        if (u.table > 0 && in->type.shape.rank == 2 &&
            (tokens == NULL || zx_data_source_is_file(&in->from->source)))
            tokens = in;
        if (u.table > 0 && in->from->source.kind == ZX_SOURCE_TOKENS)
            ZX_TRY(check_tokens(d, in, (uint64_t)u.table, notes, err));
    }
    d->labels = labels;
    d->tokens = tokens;
    if (labels != NULL && tokens != NULL && labels != tokens)
        warn_of_labels(d, g, labels, tokens, notes);
    return ZX_OK;
}

// ---- what a step has met ------------------------------------------------------------------------

// The first sample of a micro-batch that holds a value, in its file.
static const char *find_sample(const zx_data *d, const zx_data_input *in, uint64_t micro,
                               int64_t value)
{
    const zx_data_source *s = &in->from->source;
    for (uint64_t j = 0; zx_data_source_is_file(s) && j < in->rows; j++) {
        const uint64_t sample = zx_data_sample_of(d, micro, j);
        for (uint64_t k = 0; k < in->n_each; k++)
            if (zx_data_load(s->data, s->dtype, sample * in->n_each + (s->next ? 1 : 0) + k) ==
                value)
                return zx_arena_printf(d->mem, ": %lld is in its sample %llu", (long long)value,
                                       (unsigned long long)sample);
    }
    return "";
}

void zx_data_explain(const zx_data *d, zx_err *err)
{
    const char *cause = err->n_causes > 0 ? err->cause[0] : "";
    const char *label = strstr(cause, "label "), *index = strstr(cause, "index "),
               *micro = strstr(cause, "(micro-batch ");
    const zx_data_input *in = label != NULL ? d->labels : index != NULL ? d->tokens : NULL;
    if (in == NULL || in->from == NULL) return;
    const zx_data_source *s = &in->from->source;
    const char *where = "";
    if (micro != NULL)
        where = find_sample(d, in, strtoull(micro + strlen("(micro-batch "), NULL, 10),
                            strtoll((label != NULL ? label : index) + strlen("label "), NULL, 10));
    zx_err_hint(err, "look at %s, which feeds '%s'%s",
                zx_text_safe(d->mem, s->path != NULL ? s->path : s->text),
                zx_text_safe(d->mem, in->name), where);
}
