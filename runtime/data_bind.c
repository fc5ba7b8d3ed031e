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

// ---- synthetic integers
// ---------------------------------------------------------------------------

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
                const int64_t size = zx_data_find_uses(g, g->inputs[k], d->mem).index;
                in->below = size > 0 ? (uint64_t)size : 2; // 2: a mask gets zeros and ones
            }
            if (pass == 1 && in->below < in->from->below) in->from->below = in->below;
        }
}

// ---- bind ---------------------------------------------------------------------------------------

// Whether an input of that type can have that value.
static bool has_value(zx_dtype t, int64_t v)
{
    const uint32_t bits = 8 * zx_dtype_bytes(t);
    const bool no_sign = zx_dtypes[t].kind == ZX_KIND_UINT;
    if (no_sign && v < 0) return false;
    if (bits == 64) return true;
    const int64_t end = INT64_C(1) << (no_sign ? bits : bits - 1);
    return v < end && (no_sign || v >= -end);
}

static zx_status count_evaluated(zx_data *d, zx_err *err)
{
    const uint64_t rest = d->samples % d->micro;
    if (d->samples == 0)
        return ZX_FAIL(err, ZX_E_DATA,
                       "data for evaluation have to come from files: there is no end otherwise");
    d->epoch_steps = (d->samples + d->micro - 1) / d->micro;
    const bool of_files = d->labels != NULL && zx_data_source_is_file(&d->labels->from->source);
    const bool told = of_files && has_value(d->labels->type.dtype, d->ignored);
    if (rest == 0 || (d->pads && told)) return ZX_OK;
    if (d->pads && of_files)
        return ZX_FAIL(err, ZX_E_DATA,
                       "%llu samples for evaluation don't fill micro-batches of %llu, and the "
                       "labels '%s' (%s) can't be %lld, which doesn't count",
                       (unsigned long long)d->samples, (unsigned long long)d->micro,
                       zx_text_safe(d->mem, d->labels->name), zx_dtypes[d->labels->type.dtype].word,
                       (long long)d->ignored);
    zx_err_hint(err, "%llu samples less, or a micro-batch that %llu is a multiple of",
                (unsigned long long)rest, (unsigned long long)d->samples);
    return ZX_FAIL(
        err, ZX_E_DATA,
        "%llu samples for evaluation don't fill micro-batches of %llu, and the loss is no "
        "mean over labels, so that samples could be left out of it",
        (unsigned long long)d->samples, (unsigned long long)d->micro);
}

static zx_status count_steps(zx_data *d, zx_notes *notes, zx_err *err)
{
    d->epoch_steps = 0;
    if (d->eval) return count_evaluated(d, err);
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
    if (rest > 0 && d->keep_all && !d->optional) {
        zx_err_hint(err,
                    "without dataloader_drop_last they are left out of every epoch; or a "
                    "train_batch_size that %llu is a multiple of",
                    (unsigned long long)d->samples);
        return ZX_FAIL(err, ZX_E_DATA,
                       "dataloader_drop_last is false, and %llu of %llu samples don't fill a step "
                       "of %llu: steps of fewer aren't made",
                       (unsigned long long)rest, (unsigned long long)d->samples,
                       (unsigned long long)step);
    }
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
    ZX_TRY(zx_data_check_uses(d, g, notes, err));
    prepare_synthetic(d, g);
    return count_steps(d, notes, err);
}

zx_status zx_data_bind_eval(zx_data *d, const zx_graph *forward, int64_t micro, bool pads,
                            int64_t ignored, zx_notes *notes, zx_err *err)
{
    ZX_ASSERT(d->eval);
    d->pads = pads;
    d->ignored = ignored;
    return zx_data_bind(d, forward, micro, 1, notes, err);
}

uint64_t zx_data_micro_batches(const zx_data *d)
{
    return d->epoch_steps;
}

// ---- feeding ------------------------------------------------------------------------------------

uint64_t zx_data_sample_of(const zx_data *d, uint64_t micro, uint64_t j)
{
    const uint64_t at = micro * d->micro + j;
    if (d->samples == 0) return at;
    if (d->eval) return at < d->samples ? at : d->samples - 1;
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
        const uint64_t sample = zx_data_sample_of(d, micro, j);
        const bool beyond = d->eval && micro * d->micro + j >= d->samples;
        unsigned char *row = (unsigned char *)to + j * in->n_each * width;
        if (s->kind == ZX_SOURCE_SYNTHETIC) {
            for (uint64_t k = 0; k < in->n_each; k++)
                zx_data_store(row, in->type.dtype, k, generated(from, &in->type, sample, k));
            continue;
        }
        if (beyond && in == d->labels) {
            for (uint64_t k = 0; k < in->n_each; k++)
                zx_data_store(row, in->type.dtype, k, (double)d->ignored);
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

void zx_data_describe(const zx_data *d, zx_text *out)
{
    for (uint32_t i = 0; i < d->n; i++) {
        const zx_data_input *in = &d->inputs[i];
        zx_text_put(out, "%s%s: %s", i > 0 ? ", " : "", zx_text_safe(d->mem, in->name),
                    in->source.kind == ZX_SOURCE_NONE ? "no data"
                                                      : zx_text_safe(d->mem, in->source.text));
        if (in->why != NULL) zx_text_put(out, " (%s)", in->why);
    }
    if (d->eval)
        zx_text_put(out, "; %llu sample%s", (unsigned long long)d->samples,
                    d->samples == 1 ? "" : "s");
    else if (d->samples > 0)
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
