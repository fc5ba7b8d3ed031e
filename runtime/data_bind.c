// data_bind.c - data against the imported graph: types, shapes, sample counts, what synthetic
// labels may be; and the feeding of micro-batches, which then can't fail.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/data.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data_priv.h"

// ---- numbers that depend on their counters alone ------------------------------------------------

// SplitMix64's finalizer: every bit of x reaches every bit of the result.
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

// A Feistel network over the least 2^(2k) >= n permutes; values outside [0, n) walk on.
uint64_t zx_data_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i)
{
    unsigned half = 1;
    while (half < 31 && (UINT64_C(1) << (2 * half)) < n) half++;
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    const uint64_t key = mix(mix(seed) ^ epoch);
    do {
        uint64_t a = i >> half, b = i & mask;
        for (uint64_t round = 0; round < 6; round++) {
            const uint64_t next = a ^ (mix(key ^ (round << 56) ^ b) & mask);
            a = b;
            b = next;
        }
        i = a << half | b;
    } while (i >= n);
    return i;
}

// ---- binding ------------------------------------------------------------------------------------

static bool is_integer(zx_dtype t)
{
    return zx_dtypes[t].kind == ZX_KIND_INT || zx_dtypes[t].kind == ZX_KIND_UINT;
}

static const char *type_text(const zx_type *t, zx_arena *mem)
{
    char buf[ZX_SHAPE_TEXT];
    return zx_arena_printf(mem, "%s %s", zx_dtypes[t->dtype].word, zx_shape_text(&t->shape, buf));
}

// `--data FILE`: labels are the tokens where the graph shifts them itself, else one token on.
static zx_status choose_labels(zx_data *d, const zx_graph *g, zx_err *err)
{
    for (uint32_t i = 0; i < d->n; i++) {
        zx_data_input *in = &d->inputs[i];
        if (in->source.kind != ZX_SOURCE_LABELS) continue;
        bool found = false;
        const bool shifts = zx_import_shifts_labels(g, &found);
        const zx_data_input *tokens = NULL;
        for (uint32_t k = 0; k < d->n; k++)
            if (&d->inputs[k] != in && d->inputs[k].source.path == in->source.path)
                tokens = &d->inputs[k];
        ZX_ASSERT(tokens != NULL);
        if (shifts) {
            in->source.kind = ZX_SOURCE_COPY;
            in->source.copy_of = tokens->name;
            in->source.text = zx_arena_printf(d->mem, "copy:%s", tokens->name);
            in->why = "the graph shifts its labels itself";
        } else if (tokens->source.kind == ZX_SOURCE_NPY) {
            zx_err_hint(err, "--data %s=FILE.npy with the labels", in->name);
            return ZX_FAIL(err, ZX_E_DATA, "labels one token on need a token file, not %s",
                           in->source.path);
        } else {
            in->source.kind = ZX_SOURCE_TOKENS;
            in->source.next = true;
            in->source.text = zx_arena_printf(d->mem, "%s:+1", tokens->source.text);
            in->why = "the graph doesn't shift its labels";
        }
    }
    return ZX_OK;
}

static zx_status follow_copies(zx_data *d, zx_data_input *in, zx_err *err)
{
    in->from = in;
    for (uint32_t hops = 0; in->from->source.kind == ZX_SOURCE_COPY; hops++) {
        zx_data_input *next = zx_data_find(d, in->from->source.copy_of);
        if (next == NULL || next->source.kind == ZX_SOURCE_NONE)
            return ZX_FAIL(err, ZX_E_USAGE, "input '%s': copy:%s: there is no such input with data",
                           in->name, zx_text_safe(d->mem, in->from->source.copy_of));
        if (hops >= d->n)
            return ZX_FAIL(err, ZX_E_USAGE, "input '%s' is a copy of itself", in->name);
        in->from = next;
    }
    return ZX_OK;
}

static bool is_generated(const zx_data_input *in)
{
    return in->from->samples == 0;
}

// The types and shapes of one input and its source.
static zx_status check_fit(zx_data *d, zx_data_input *in, zx_err *err)
{
    zx_data_source *s = &in->from->source;
    const zx_shape *shape = &in->type.shape;
    const char *name = zx_text_safe(d->mem, in->name);
    in->rows = shape->rank > 0 ? (uint64_t)shape->dim[0] : 1;
    in->n_each = shape->rank > 0 ? (uint64_t)zx_shape_span(shape, 1, shape->rank) : 1;
    if (in->rows * in->n_each == 0)
        return ZX_FAIL(err, ZX_E_DATA, "input '%s' is %s: it holds nothing", name,
                       type_text(&in->type, d->mem));
    if (s->kind != ZX_SOURCE_NPY && s->kind != ZX_SOURCE_TOKENS) {
        const zx_dtype made = in->from->type.dtype;
        if (s->kind != ZX_SOURCE_CONST && is_integer(in->type.dtype) && !is_integer(made))
            return ZX_FAIL(err, ZX_E_DATA, "input '%s' is %s: copy:%s gives %s", name,
                           zx_dtypes[in->type.dtype].word, zx_text_safe(d->mem, in->from->name),
                           zx_dtypes[made].word);
        if (s->kind == ZX_SOURCE_CONST && is_integer(in->type.dtype)) {
            double whole;
            if (modf(s->value, &whole) != 0 || fabs(whole) > 9e18 ||
                !zx_data_values_fit((const unsigned char *)&(int64_t){(int64_t)whole}, ZX_I64, 1,
                                    in->type.dtype, &(uint64_t){0}))
                return ZX_FAIL(err, ZX_E_DATA, "input '%s' is %s: const:%g doesn't fit", name,
                               zx_dtypes[in->type.dtype].word, s->value);
        }
        return ZX_OK;
    }
    const bool tokens = s->kind == ZX_SOURCE_TOKENS;
    if (tokens && (shape->rank != 2 || !is_integer(in->type.dtype))) {
        const char *ext = strrchr(s->path, '.');
        if (ext != NULL && strcmp(ext, ".csv") == 0)
            zx_err_hint(err,
                        "--data %s=FILE.npy, which numpy.save(\"FILE.npy\", numpy.loadtxt(\"%s\", "
                        "delimiter=\",\").astype(numpy.%s)) writes",
                        name, s->path, zx_dtypes[in->type.dtype].word);
        else
            zx_err_hint(err, "--data %s=FILE.npy, which numpy.save(\"FILE.npy\", array) writes",
                        name);
        return ZX_FAIL(err, ZX_E_DATA, "input '%s' is %s; %s holds %s tokens for [batch, sequence]",
                       name, type_text(&in->type, d->mem), s->path, zx_dtypes[s->dtype].word);
    }
    bool fits = tokens || (s->npy.type.shape.rank == shape->rank && shape->rank > 0);
    for (uint32_t i = 1; !tokens && fits && i < shape->rank; i++)
        fits = s->npy.type.shape.dim[i] == shape->dim[i];
    fits = fits && (zx_data_type_fits(s->dtype, in->type.dtype) ||
                    (is_integer(s->dtype) && is_integer(in->type.dtype)));
    if (!fits) {
        if (!tokens && s->dtype != in->type.dtype)
            zx_err_hint(err, "numpy.save(\"%s\", %s.astype(numpy.%s))", s->path, name,
                        zx_dtypes[in->type.dtype].word);
        return ZX_FAIL(err, ZX_E_DATA, "input '%s' is %s; %s holds %s (samples along axis 0)", name,
                       type_text(&in->type, d->mem), s->path,
                       tokens ? zx_dtypes[s->dtype].word : type_text(&s->npy.type, d->mem));
    }
    if (in->rows != d->micro)
        return ZX_FAIL(err, ZX_E_DATA, "input '%s' is %s, but a micro-batch has %llu samples", name,
                       type_text(&in->type, d->mem), (unsigned long long)d->micro);
    uint64_t at = 0;
    const uint64_t n = tokens ? s->n_tokens : (uint64_t)zx_shape_count(&s->npy.type.shape);
    if (!zx_data_values_fit(s->data, s->dtype, n, in->type.dtype, &at))
        return ZX_FAIL(err, ZX_E_DATA,
                       "input '%s' is %s; element %llu of %s is %lld, which doesn't fit", name,
                       zx_dtypes[in->type.dtype].word, (unsigned long long)at, s->path,
                       (long long)zx_data_load(s->data, s->dtype, at));
    return ZX_OK;
}

static void count_samples(zx_data_input *in)
{
    const zx_data_source *s = &in->from->source;
    in->samples = 0;
    if (s->kind == ZX_SOURCE_NPY) in->samples = (uint64_t)s->npy.type.shape.dim[0];
    if (s->kind == ZX_SOURCE_TOKENS) {
        const uint64_t n = s->n_tokens > 0 && s->next ? s->n_tokens - 1 : s->n_tokens;
        in->samples = n / in->n_each;
    }
}

// All files have the same number of samples; windows over the same file, one token apart, are cut
// to the shorter.
static zx_status agree_on_samples(zx_data *d, zx_err *err)
{
    const zx_data_input *first = NULL;
    d->samples = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        const zx_data_input *in = &d->inputs[i];
        if (in->from == NULL || !zx_data_source_is_file(&in->from->source)) continue;
        const char *name = zx_text_safe(d->mem, in->name);
        if (in->samples == 0) {
            zx_err_hint(err, "a longer file");
            return ZX_FAIL(
                err, ZX_E_DATA, "input '%s': %s has no samples%s", name, in->from->source.path,
                in->from->source.kind == ZX_SOURCE_TOKENS
                    ? zx_arena_printf(d->mem, " (a window is %llu token%s)",
                                      (unsigned long long)in->n_each, in->n_each == 1 ? "" : "s")
                    : "");
        }
        if (first == NULL) {
            first = in;
            d->samples = in->samples;
            continue;
        }
        const zx_data_source *a = &first->from->source, *b = &in->from->source;
        const bool shifted = a->kind == ZX_SOURCE_TOKENS && b->kind == ZX_SOURCE_TOKENS &&
                             strcmp(a->path, b->path) == 0 && first->n_each == in->n_each;
        if (in->samples != first->samples && !shifted) {
            zx_err_hint(err, "files of the same samples, in the same order");
            return ZX_FAIL(err, ZX_E_DATA, "'%s' has %llu sample%s (%s), '%s' has %llu (%s)",
                           zx_text_safe(d->mem, first->name), (unsigned long long)first->samples,
                           first->samples == 1 ? "" : "s", first->from->source.path, name,
                           (unsigned long long)in->samples, in->from->source.path);
        }
        if (in->samples < d->samples) d->samples = in->samples;
    }
    return ZX_OK;
}

// ---- what a synthetic integer may be ------------------------------------------------------------

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

// What the values of an input are used for, as sizes; 0: not that.
typedef struct uses {
    int64_t index; // the smallest table or class count that they index
    int64_t table; // likewise, of tables that all of the values index, whatever they are
    int64_t label; // class count of the loss
} uses;

// Ops among passes_on whose output holds all values of their input and nothing else.
static bool passes_all(uint8_t op)
{
    return op == ZX_OP_RESHAPE || op == ZX_OP_CAST || op == ZX_OP_TRANSPOSE || op == ZX_OP_EXPAND;
}

static void take_least(int64_t *least, int64_t size)
{
    if (size > 0 && (*least == 0 || size < *least)) *least = size;
}

// Nodes stand in an order that runs: one pass is enough.
static uses find_uses(const zx_graph *g, uint32_t input, zx_arena *mem)
{
    uses u = {0};
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
            if (n->op == ZX_OP_CROSS_ENTROPY || n->op == ZX_OP_NLL_LOSS ||
                n->op == ZX_OP_LINEAR_CROSS_ENTROPY)
                take_least(&u.label, size);
            else if ((holds[v] & WHOLE) != 0 && n->op == ZX_OP_GATHER)
                take_least(&u.table, size);
            if (passes_on(n->op))
                holds[zx_node_out(g, n, 0)] |= passes_all(n->op) ? holds[v] : SOME;
        }
    }
    zx_arena_rewind(mem, mark);
    return u;
}

static void prepare_synthetic(zx_data *d, const zx_graph *g)
{
    for (uint32_t i = 0; i < d->n; i++) {
        zx_data_input *in = &d->inputs[i];
        in->below = 2;
        in->key = d->seed;
        for (const char *c = in->name; *c != '\0'; c++) in->key = mix(in->key ^ (unsigned char)*c);
    }
    for (uint32_t pass = 0; pass < 2;
         pass++) // first everybody's own bound, then the least of copies
        for (uint32_t k = 0; k < d->n_graph; k++) {
            zx_data_input *in = d->by_graph[k];
            if (in == NULL || in->from == NULL || in->from->source.kind != ZX_SOURCE_SYNTHETIC)
                continue;
            if (pass == 0) {
                const int64_t size = find_uses(g, g->inputs[k], d->mem).index;
                in->below = size > 0 ? (uint64_t)size : 2; // 2: a mask gets zeros and ones
            }
            if (pass == 1 && in->below < in->from->below) in->from->below = in->below;
        }
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

static zx_status check_uses(zx_data *d, const zx_graph *g, zx_notes *notes, zx_err *err)
{
    const zx_data_input *labels = NULL, *tokens = NULL;
    for (uint32_t k = 0; k < d->n_graph; k++) {
        const zx_data_input *in = d->by_graph[k];
        if (in->from == NULL || !is_integer(in->type.dtype)) continue;
        const uses u = find_uses(g, g->inputs[k], d->mem);
        if (u.label > 0) labels = in;
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

// ---- bind ---------------------------------------------------------------------------------------

static zx_status count_steps(zx_data *d, zx_notes *notes, zx_err *err)
{
    d->epoch_steps = 0;
    if (d->samples == 0) return ZX_OK;
    const uint64_t step = d->micro * d->per_step;
    d->epoch_steps = d->samples / step;
    if (d->epoch_steps == 0 && !d->optional) {
        zx_err_hint(err, "a smaller batch, or more data");
        return ZX_FAIL(
            err, ZX_E_DATA,
            "%llu sample%s less than one step, which takes %llu (%llu micro-batch%s of %llu)",
            (unsigned long long)d->samples, d->samples == 1 ? " is" : "s are",
            (unsigned long long)step, (unsigned long long)d->per_step, d->per_step == 1 ? "" : "es",
            (unsigned long long)d->micro);
    }
    const uint64_t rest = d->samples - d->epoch_steps * step;
    if (rest > 0 && !d->optional)
        zx_note(notes, d->mem,
                "data: %llu of %llu samples %s left out of every epoch: %s fill a step of %llu",
                (unsigned long long)rest, (unsigned long long)d->samples, rest == 1 ? "is" : "are",
                rest == 1 ? "it doesn't" : "they don't", (unsigned long long)step);
    return ZX_OK;
}

zx_status zx_data_bind(zx_data *d, const zx_graph *g, int64_t micro, uint32_t per_step,
                       zx_notes *notes, zx_err *err)
{
    d->micro = (uint64_t)micro;
    d->per_step = per_step;
    d->n_graph = g->n_inputs;
    d->by_graph = ZX_NEW(d->mem, zx_data_input *, g->n_inputs);
    ZX_TRY(choose_labels(d, g, err));
    for (uint32_t k = 0; k < g->n_inputs; k++) {
        const zx_value *v = &g->values[g->inputs[k]];
        zx_data_input *in = zx_data_find(d, v->name);
        ZX_ASSERT(in != NULL);
        in->in_graph = true;
        in->type = v->type;
        d->by_graph[k] = in;
    }
    zx_err found = {0};
    for (uint32_t i = 0; i < d->n; i++) {
        zx_data_input *in = &d->inputs[i];
        if (in->source.kind == ZX_SOURCE_NONE || !in->in_graph) continue;
        ZX_TRY(follow_copies(d, in, err));
        zx_err misfit = {0};
        if (check_fit(d, in, &misfit) == ZX_OK)
            count_samples(in);
        else if (in->beside && d->optional)
            zx_data_leave_out(d, in, &misfit, notes);
        else
            zx_err_merge(&found, &misfit);
    }
    if (found.code != ZX_OK) return zx_err_merge(err, &found);
    ZX_TRY(agree_on_samples(d, err));
    ZX_TRY(check_uses(d, g, notes, err));
    prepare_synthetic(d, g);
    return count_steps(d, notes, err);
}

// ---- feeding ------------------------------------------------------------------------------------

// The sample that is number j of a micro-batch.
static uint64_t sample_of(const zx_data *d, uint64_t micro, uint64_t j)
{
    if (d->samples == 0) return micro * d->micro + j;
    const uint64_t per_epoch = d->epoch_steps * d->per_step;
    const uint64_t i = micro % per_epoch * d->micro + j;
    return d->shuffle ? zx_data_permute(d->seed, micro / per_epoch, d->samples, i) : i;
}

static double synthetic(const zx_data_input *in, zx_dtype t, uint64_t sample, uint64_t k)
{
    const uint64_t h = mix(mix(in->key ^ sample) ^ k);
    if (!zx_dtype_is_float(t)) return (double)(h % in->below);
    const double a = ((double)(h >> 40) + 0.5) * 0x1p-24, b = (double)(h & 0xFFFFFF) * 0x1p-24;
    return sqrt(-2 * log(a)) * cos(6.283185307179586 * b); // standard normal (Box and Muller)
}

static double generated(const zx_data_input *in, const zx_type *type, uint64_t sample, uint64_t k)
{
    const zx_shape *s = &type->shape;
    switch (in->source.kind) {
    case ZX_SOURCE_ONES:
        return 1;
    case ZX_SOURCE_CONST:
        return in->source.value;
    case ZX_SOURCE_ARANGE:
        return s->rank > 0 ? (double)(k % (uint64_t)s->dim[s->rank - 1]) : 0;
    case ZX_SOURCE_SYNTHETIC:
        return synthetic(in, type->dtype, sample, k);
    default:
        return 0;
    }
}

static void fill(const void *self, uint32_t input, uint64_t micro, void *to)
{
    const zx_data *d = self;
    const zx_data_input *in = d->by_graph[input], *from = in->from;
    const zx_data_source *s = &from->source;
    const uint32_t width = zx_dtype_bytes(in->type.dtype);
    if (is_generated(in) && s->kind != ZX_SOURCE_SYNTHETIC) {
        for (uint64_t k = 0; k < in->rows * in->n_each; k++)
            zx_data_store(to, in->type.dtype, k, generated(from, &in->type, 0, k));
        return;
    }
    for (uint64_t j = 0; j < in->rows; j++) {
        const uint64_t sample = sample_of(d, micro, j);
        unsigned char *row = (unsigned char *)to + j * in->n_each * width;
        if (s->kind == ZX_SOURCE_SYNTHETIC) {
            for (uint64_t k = 0; k < in->n_each; k++)
                zx_data_store(row, in->type.dtype, k, generated(from, &in->type, sample, k));
            continue;
        }
        const uint64_t first = sample * in->n_each + (s->next ? 1 : 0);
        zx_data_convert(row, in->type.dtype, s->data + first * zx_dtype_bytes(s->dtype), s->dtype,
                        in->n_each);
    }
}

zx_feed zx_data_feed(const zx_data *d)
{
    return (zx_feed){fill, d};
}

uint64_t zx_data_samples(const zx_data *d)
{
    return d->samples;
}

uint64_t zx_data_epoch(const zx_data *d)
{
    return d->epoch_steps;
}

int64_t zx_data_tokens(const zx_data *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        const zx_data_input *in = &d->inputs[i];
        if (in->in_graph && in->type.shape.rank == 2 && is_integer(in->type.dtype))
            return in->type.shape.dim[1];
    }
    return 0;
}

void zx_data_explain(const zx_data *d, zx_err *err)
{
    const char *cause = err->n_causes > 0 ? err->cause[0] : "";
    const zx_data_input *in = strstr(cause, "label ") != NULL   ? d->labels
                              : strstr(cause, "index ") != NULL ? d->tokens
                                                                : NULL;
    if (in == NULL || in->from == NULL) return;
    const zx_data_source *s = &in->from->source;
    zx_err_hint(err, "look at %s, which feeds '%s'",
                zx_text_safe(d->mem, s->path != NULL ? s->path : s->text),
                zx_text_safe(d->mem, in->name));
}

void zx_data_describe(const zx_data *d, zx_text *out)
{
    for (uint32_t i = 0; i < d->n; i++) {
        const zx_data_input *in = &d->inputs[i];
        zx_text_put(out, "%s%s: %s", i > 0 ? ", " : "", zx_text_safe(d->mem, in->name),
                    in->source.kind == ZX_SOURCE_NONE ? "no data"
                                                      : zx_text_safe(d->mem, in->source.text));
        if (in->why != NULL) zx_text_put(out, " (%s)", in->why);
    }
    if (d->samples > 0)
        zx_text_put(out, "; %llu sample%s%s, %llu step%s an epoch", (unsigned long long)d->samples,
                    d->samples == 1 ? "" : "s", d->shuffle ? " shuffled by the seed" : "",
                    (unsigned long long)d->epoch_steps, d->epoch_steps == 1 ? "" : "s");
}

static const char *full_source(const zx_data_source *s, zx_arena *mem)
{
    char full[PATH_MAX];
    if (!zx_data_source_is_file(s) || realpath(s->path, full) == NULL) return s->text;
    return zx_arena_printf(mem, "%s%s%s", full, s->wide ? ":u32" : "", s->next ? ":+1" : "");
}

void zx_data_json(const zx_data *d, zx_text *out)
{
    const char *comma = "";
    zx_text_put(out, "{");
    for (uint32_t i = 0; i < d->n; i++) {
        const zx_data_input *in = &d->inputs[i];
        if (in->source.kind == ZX_SOURCE_NONE) continue;
        zx_text_put(out, "%s", comma);
        zx_text_json(out, in->name);
        zx_text_put(out, ": ");
        zx_text_json(out, full_source(&in->source, d->mem));
        comma = ", ";
    }
    zx_text_put(out, "}");
}
