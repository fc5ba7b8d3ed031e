// build_model.c - families and presets, and what options may change about them.
// SPDX-License-Identifier: Apache-2.0
#include "graph/build_model.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "graph/build_net.h"

typedef struct preset {
    const char *family, *name;
    zx_new_sizes s;
} preset;

// Sizes of published models where the name is theirs: Radford et al. 2019 table 2 (with 12, 16, 20
// and 25 heads of 64 numbers), Touvron et al. 2023, Llama 3.1 and 3.2 model cards.
static const preset presets[] = {
#define GPT2(name, layers, width, heads, vocab, context)                                           \
    {                                                                                              \
        "gpt2", name,                                                                              \
        {                                                                                          \
            layers, width, heads, heads, 4 * (width), vocab, context, context, 0, 0, 0, 1e-5, true \
        }                                                                                          \
    }
    GPT2("tiny", 2, 64, 4, 256, 64),
    GPT2("small", 4, 128, 4, 256, 128),
    GPT2("medium", 6, 384, 6, 256, 256),
    GPT2("124m", 12, 768, 12, 50257, 1024),
    GPT2("350m", 24, 1024, 16, 50257, 1024),
    GPT2("774m", 36, 1280, 20, 50257, 1024),
    GPT2("1.5b", 48, 1600, 25, 50257, 1024),
#define LLAMA(name, layers, width, heads, kv, hidden, vocab, context, theta, epsilon, tied)        \
    {                                                                                              \
        "llama", name,                                                                             \
        {                                                                                          \
            layers, width, heads, kv, hidden, vocab, context, context, 0, 0, theta, epsilon, tied  \
        }                                                                                          \
    }
    LLAMA("tiny", 2, 64, 4, 2, 176, 256, 64, 1e4, 1e-5, false),
    LLAMA("small", 4, 128, 4, 2, 352, 256, 128, 1e4, 1e-5, false),
    LLAMA("medium", 6, 384, 6, 2, 1024, 256, 256, 1e4, 1e-5, false),
    LLAMA("1b", 16, 2048, 32, 8, 8192, 128256, 2048, 5e5, 1e-5, true),
    LLAMA("3b", 28, 3072, 24, 8, 8192, 128256, 2048, 5e5, 1e-5, true),
    LLAMA("7b", 32, 4096, 32, 32, 11008, 32000, 4096, 1e4, 1e-5, false),
    LLAMA("8b", 32, 4096, 32, 8, 14336, 128256, 8192, 5e5, 1e-5, false),
    LLAMA("13b", 40, 5120, 40, 40, 13824, 32000, 4096, 1e4, 1e-5, false),
    LLAMA("70b", 80, 8192, 64, 8, 28672, 32000, 4096, 1e4, 1e-5, false),
#define MLP(name, inputs, layers, width, classes)                                                  \
    {                                                                                              \
        "mlp", name,                                                                               \
        {                                                                                          \
            layers, width, 0, 0, 0, classes, 0, 0, inputs, 0, 0, 0, false                          \
        }                                                                                          \
    }
    MLP("digits", 64, 2, 128, 10),
    MLP("mnist", 784, 2, 512, 10),
};

// The models are written as PyTorch exports them, with attention's mask whole: sequence x sequence
// numbers that are made at import, 4 GiB at this length.
#define MOST_SEQUENCE 32768

// Who has which sizes, and how large they may be.
enum { IN_GPT2 = 1, IN_LLAMA = 2, IN_MLP = 4 };
static const struct size_row {
    const char *name;
    size_t option, size; // where it is kept in zx_new_options, in zx_new_sizes
    int64_t most;
    unsigned families;
    const char *what;
} size_rows[] = {
#define ROW(name, field, most, families, what)                                                     \
    {                                                                                              \
        name, offsetof(zx_new_options, field), offsetof(zx_new_sizes, field), most, families, what \
    }
    ROW("layers", layers, 1000, IN_GPT2 | IN_LLAMA | IN_MLP, "blocks; mlp: hidden layers"),
    ROW("width", width, 1 << 20, IN_GPT2 | IN_LLAMA | IN_MLP, "numbers a token; mlp: a layer"),
    ROW("heads", heads, 1 << 16, IN_GPT2 | IN_LLAMA, "attention heads"),
    ROW("kv_heads", kv_heads, 1 << 16, IN_LLAMA, "heads of keys and values"),
    ROW("hidden", hidden, 1 << 24, IN_GPT2 | IN_LLAMA, "width inside the feed-forward part"),
    ROW("vocab", vocab, 1 << 28, IN_GPT2 | IN_LLAMA | IN_MLP, "tokens; mlp: classes"),
    ROW("context", context, 1 << 24, IN_GPT2 | IN_LLAMA, "positions that the model knows"),
    ROW("sequence", sequence, 1 << 24, IN_GPT2 | IN_LLAMA, "tokens of a sample; 0: left open"),
    ROW("inputs", inputs, 1 << 28, IN_MLP, "numbers of a sample"),
    ROW("batch", batch, 1 << 24, IN_GPT2 | IN_LLAMA | IN_MLP, "samples; 0, the default: left open"),
};

static const struct family {
    const char *name;
    unsigned bit;
    zx_new_build_fn *build;
} families[] = {
    {"gpt2", IN_GPT2, zx_new_gpt2},
    {"llama", IN_LLAMA, zx_new_llama},
    {"mlp", IN_MLP, zx_new_mlp},
};

static int64_t get(const void *sizes, size_t at)
{
    int64_t v;
    memcpy(&v, (const char *)sizes + at, sizeof v);
    return v;
}

static void set(void *sizes, size_t at, int64_t v)
{
    memcpy((char *)sizes + at, &v, sizeof v);
}

static zx_status find_family(const char *name, const struct family **out, zx_err *err)
{
    const char *names[ZX_COUNT(families)];
    for (uint32_t i = 0; i < ZX_COUNT(families); i++) {
        names[i] = families[i].name;
        *out = &families[i];
        if (strcmp(name, names[i]) == 0) return ZX_OK;
    }
    const char *near = zx_text_nearest(name, names, ZX_COUNT(names));
    zx_err_hint(err, near ? "zerox new %s" : "zerox new --list shows the families", near);
    return ZX_FAIL(err, ZX_E_USAGE, "there is no family '%.100s'", name);
}

static zx_status find_preset(const char *family, const char *name, const preset **out, zx_err *err)
{
    const char *names[ZX_COUNT(presets)];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ZX_COUNT(presets); i++) {
        if (strcmp(presets[i].family, family) != 0) continue;
        names[n++] = presets[i].name;
        *out = &presets[i];
        if (name == NULL || strcmp(name, presets[i].name) == 0) return ZX_OK;
    }
    const char *near = zx_text_nearest(name, names, n);
    zx_err_hint(err, near ? "--preset %s" : "zerox new --list shows the presets", near);
    return ZX_FAIL(err, ZX_E_USAGE, "%s has no preset '%.100s'", family, name);
}

// Sizes that weren't given and follow from ones that were.
static void follow(zx_new_sizes *s, const zx_new_sizes *p, const zx_new_options *o, unsigned family)
{
    if (o->kv_heads == 0 && o->heads != 0) {
        // As many queries a head of keys as in the preset, if that divides.
        const int64_t times = family == IN_LLAMA ? p->heads / p->kv_heads : 1;
        s->kv_heads = times > 0 && s->heads % times == 0 ? s->heads / times : s->heads;
    }
    if (o->hidden == 0 && o->width != 0 && p->width > 0)
        s->hidden =
            family == IN_GPT2 ? 4 * s->width : (s->width * p->hidden / p->width + 7) / 8 * 8;
    if (o->sequence == 0 && o->context != 0) s->sequence = s->context;
    if (o->context == 0 && s->sequence > s->context) s->context = s->sequence;
}

static zx_status resolve(const struct family *f, const preset *p, const zx_new_options *o,
                         zx_new_sizes *s, zx_err *err)
{
    *s = p->s;
    for (uint32_t i = 0; i < ZX_COUNT(size_rows); i++) {
        const struct size_row *row = &size_rows[i];
        const int64_t v = get(o, row->option);
        if (v == 0) continue;
        if ((row->families & f->bit) == 0)
            return ZX_FAIL(err, ZX_E_USAGE, "%s has no %s", f->name, row->name);
        if (v < (row->option == offsetof(zx_new_options, sequence) ? ZX_NEW_SYMBOLIC : 1) ||
            v > row->most)
            return ZX_FAIL(err, ZX_E_USAGE, "%s is 1 to %" PRId64 ", not %" PRId64, row->name,
                           row->most, v);
        set(s, row->size, v);
    }
    follow(s, &p->s, o, f->bit);
    if (f->bit == IN_MLP) return ZX_OK;
    if (s->width % s->heads != 0)
        return ZX_FAIL(err, ZX_E_USAGE, "width %" PRId64 " isn't a multiple of %" PRId64 " heads",
                       s->width, s->heads);
    if (s->heads % s->kv_heads != 0)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "%" PRId64 " heads aren't a multiple of %" PRId64 " kv_heads", s->heads,
                       s->kv_heads);
    if (f->bit == IN_LLAMA && s->width / s->heads % 2 != 0)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "a head of %" PRId64 " numbers can't be rotated: it must be even",
                       s->width / s->heads);
    if (s->sequence > MOST_SEQUENCE)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "a sequence of %" PRId64 ": attention's mask would be %" PRId64 " x %" PRId64
                       " numbers, a sequence of %d is the most",
                       s->sequence, s->sequence, s->sequence, MOST_SEQUENCE);
    if (s->sequence > s->context)
        return ZX_FAIL(err, ZX_E_USAGE, "a sequence of %" PRId64 " exceeds the context of %" PRId64,
                       s->sequence, s->context);
    return ZX_OK;
}

zx_status zx_new_model(const char *family, const char *preset_name, const zx_new_options *o,
                       zx_text *onnx_bytes, zx_err *err)
{
    const struct family *f = families;
    const preset *p = presets;
    zx_new_sizes s;
    zx_arena mem = {0};
    zx_net net;
    ZX_TRY(find_family(family, &f, err));
    ZX_TRY(find_preset(f->name, preset_name, &p, err));
    ZX_TRY(resolve(f, p, o, &s, err));
    zx_net_open(&net, &mem, f->name, o->seed);
    f->build(&net, &s);
    const zx_status st = zx_onnx_pack(&net.out, onnx_bytes, err);
    zx_arena_free(&mem);
    return st;
}

zx_status zx_new_set(zx_new_options *o, const char *name, int64_t value, zx_err *err)
{
    const char *names[ZX_COUNT(size_rows)];
    for (uint32_t i = 0; i < ZX_COUNT(size_rows); i++) {
        const struct size_row *row = &size_rows[i];
        names[i] = row->name;
        if (strcmp(name, row->name) != 0) continue;
        const bool open = row->option == offsetof(zx_new_options, sequence) ||
                          row->option == offsetof(zx_new_options, batch);
        if (value < (open ? 0 : 1) || value > row->most)
            return ZX_FAIL(err, ZX_E_USAGE, "%s is %d to %" PRId64 ", not %" PRId64, name,
                           open ? 0 : 1, row->most, value);
        if (value == 0 && row->option == offsetof(zx_new_options, sequence))
            value = ZX_NEW_SYMBOLIC;
        set(o, row->option, value);
        return ZX_OK;
    }
    const char *near = zx_text_nearest(name, names, ZX_COUNT(names));
    zx_err_hint(err, near ? "%s=%" PRId64 : "zerox new --list shows the names of sizes", near,
                value);
    return ZX_FAIL(err, ZX_E_USAGE, "models have no size called '%.100s'", name);
}

// Weights of a model, for the list.
static double parameters(const preset *p)
{
    const zx_new_sizes *s = &p->s;
    const double c = (double)s->width, l = (double)s->layers, v = (double)s->vocab;
    const double h = (double)s->hidden,
                 kv = s->heads > 0 ? c / (double)s->heads * (double)s->kv_heads : 0;
    if (strcmp(p->family, "gpt2") == 0)
        return (v + (double)s->context) * c + l * (4 * c * c + 2 * c * h + 9 * c + h) + 2 * c;
    if (strcmp(p->family, "llama") == 0)
        return (s->tied ? 1 : 2) * v * c + l * (2 * c * c + 2 * c * kv + 3 * c * h + 2 * c) + c;
    return ((double)s->inputs + 1) * c + (l - 1) * (c + 1) * c + (c + 1) * v;
}

zx_status zx_new_describe(const char *family, const char *preset_name, const zx_new_options *o,
                          zx_text *out, zx_err *err)
{
    const struct family *f = families;
    const preset *p = presets;
    char count[ZX_BYTES_TEXT];
    ZX_TRY(find_family(family, &f, err));
    ZX_TRY(find_preset(f->name, preset_name, &p, err));
    preset made = *p;
    ZX_TRY(resolve(f, p, o, &made.s, err));
    zx_text_put(out, "%s %s%s, %s parameters", f->name, p->name,
                memcmp(&made.s, &p->s, sizeof made.s) != 0 ? " with sizes of its own" : "",
                zx_text_count(parameters(&made), count));
    return ZX_OK;
}

void zx_new_list(zx_text *out)
{
    char count[ZX_BYTES_TEXT];
    zx_text_put(out, "%-6s %-7s %7s             layers x width\n", "family", "preset", "size");
    for (uint32_t i = 0; i < ZX_COUNT(presets); i++) {
        const preset *p = &presets[i];
        const zx_new_sizes *s = &p->s;
        zx_text_put(out, "%-6s %-7s %7s parameters  %2" PRId64 " x %-4" PRId64, p->family, p->name,
                    zx_text_count(parameters(p), count), s->layers, s->width);
        if (s->inputs > 0)
            zx_text_put(out, "  %" PRId64 " inputs, %" PRId64 " classes\n", s->inputs, s->vocab);
        else
            zx_text_put(out, "  %" PRId64 " heads, vocabulary %" PRId64 ", sequence %" PRId64 "\n",
                        s->heads, s->vocab, s->sequence);
    }
    zx_text_put(out, "\nsizes that can be set:\n");
    for (uint32_t i = 0; i < ZX_COUNT(size_rows); i++)
        zx_text_put(out, "  %-9s %s\n", size_rows[i].name, size_rows[i].what);
}
