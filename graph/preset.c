// preset.c - the table of presets, their parameters counted, and their files.
// SPDX-License-Identifier: Apache-2.0
#include "graph/preset.h"

#include <inttypes.h>
#include <string.h>

#include "graph/preset_net.h"

#define OPSET 23
#define IR_VERSION 11 // the one that came with it
#define MOST_BATCH (1 << 16)

// Llama 3 and 3.1: the model cards; Mixtral: Jiang et al. 2024; GPT-3: Brown et al. 2020, table
// 2.1; 1T: Narayanan et al. 2021, table 1. Heads of 128, 96 and 160 numbers follow.
static const zx_preset presets[] = {
#define LLAMA(name, layers, width, heads, kv, hidden, vocab, context, theta, experts, chosen)      \
    {                                                                                              \
        name, zx_preset_llama, experts, chosen,                                                    \
        {                                                                                          \
            layers, width, heads, kv, hidden, vocab, context, 0, 0, 0, theta, 1e-5, false          \
        }                                                                                          \
    }
    LLAMA("llama3-8b", 32, 4096, 32, 8, 14336, 128256, 131072, 5e5, 0, 0),
    LLAMA("llama3-70b", 80, 8192, 64, 8, 28672, 128256, 131072, 5e5, 0, 0),
    LLAMA("llama3-405b", 126, 16384, 128, 8, 53248, 128256, 131072, 5e5, 0, 0),
    LLAMA("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 32768, 1e6, 8, 2),
#define GPT(name, layers, width, heads, vocab, context)                                            \
    {                                                                                              \
        name, zx_preset_gpt, 0, 0,                                                                 \
        {                                                                                          \
            layers, width, heads, heads, 4 * (width), vocab, context, 0, 0, 0, 0, 1e-5, true       \
        }                                                                                          \
    }
    GPT("gpt3-175b", 96, 12288, 96, 50257, 2048),
    GPT("gpt-1t", 128, 25600, 160, 51200, 2048),
};

static zx_status find_preset(const char *name, const zx_preset **out, zx_err *err)
{
    const char *names[ZX_COUNT(presets)];
    for (uint32_t i = 0; i < ZX_COUNT(presets); i++) {
        names[i] = presets[i].name;
        *out = &presets[i];
        if (strcmp(name, names[i]) == 0) return ZX_OK;
    }
    const char *near = zx_text_nearest(name, names, ZX_COUNT(names));
    zx_text all = {0};
    for (uint32_t i = 0; i < ZX_COUNT(names); i++)
        zx_text_put(&all, "%s%s", i > 0 ? ", " : "", names[i]);
    zx_err_hint(err, near ? "did you mean %s?" : "there are %s", near ? near : all.at);
    zx_text_free(&all);
    return ZX_FAIL(err, ZX_E_USAGE, "there is no preset '%.100s'", name);
}

zx_status zx_preset_known(const char *name, zx_err *err)
{
    const zx_preset *found;
    return find_preset(name, &found, err);
}

// Llama: 2 C² + 2 C K (attention; K numbers of a key), 3 C F (each expert, with C of the router)
// and 2 C (norms) a layer; GPT: 4 C² + 2 C F and their biases and norms 9 C + F.
void zx_preset_count(const zx_preset *p, zx_preset_info *info)
{
    const zx_new_sizes *s = &p->s;
    const uint64_t c = (uint64_t)s->width, f = (uint64_t)s->hidden, l = (uint64_t)s->layers;
    const uint64_t e = (uint64_t)p->experts, idle = e - (uint64_t)p->chosen;
    const uint64_t kv = c / (uint64_t)s->heads * (uint64_t)s->kv_heads;
    const uint64_t table = (uint64_t)s->vocab * c;
    *info = (zx_preset_info){.name = p->name, .embedding_params = s->tied ? 0 : table};
    info->params = (s->tied ? 1 : 2) * table;
    if (p->build == zx_preset_gpt)
        info->params += (uint64_t)s->context * c + l * (4 * c * c + 2 * c * f + 9 * c + f) + 2 * c;
    else
        info->params +=
            l * (2 * c * c + 2 * c * kv + (e > 0 ? e : 1) * 3 * c * f + e * c + 2 * c) + c;
    info->active_params = info->params - l * idle * 3 * c * f;
}

static zx_status check_sizes(const zx_preset *p, zx_err *err)
{
    const zx_new_sizes *s = &p->s;
    if (s->batch < 1 || s->batch > MOST_BATCH)
        return ZX_FAIL(err, ZX_E_USAGE, "a batch is 1 to %d sequences, not %" PRId64, MOST_BATCH,
                       s->batch);
    if (s->sequence < 1 || s->sequence > s->context)
        return ZX_FAIL(err, ZX_E_USAGE, "a sequence of %s is 1 to %" PRId64 " tokens, not %" PRId64,
                       p->name, s->context, s->sequence);
    if (p->experts > 0 && s->batch * s->sequence * p->chosen % p->experts != 0)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "%s has %" PRId64 " experts, which share the tokens equally: batch times "
                       "sequence must be a multiple of %" PRId64 ", not %" PRId64,
                       p->name, p->experts, p->experts / p->chosen, s->batch * s->sequence);
    return ZX_OK;
}

zx_status zx_preset_write(const zx_preset *p, uint64_t seed, zx_text *onnx_bytes, zx_err *err)
{
    zx_arena mem = {0};
    zx_net net;
    ZX_TRY(check_sizes(p, err));
    zx_net_open(&net, &mem, p->name, seed);
    zx_onnx_opset(&net.out, "", OPSET);
    net.out.model->ir_version = IR_VERSION;
    p->build(&net, p);
    const zx_status st = zx_onnx_pack(&net.out, onnx_bytes, err);
    zx_arena_free(&mem);
    return st;
}

zx_status zx_preset_make(const char *name, const zx_preset_sizes *s, zx_text *onnx_bytes,
                         zx_preset_info *info, zx_err *err)
{
    const zx_preset *found = presets;
    ZX_TRY(find_preset(name, &found, err));
    zx_preset p = *found;
    p.s.sequence = s->sequence;
    p.s.batch = s->batch;
    zx_preset_count(&p, info);
    return zx_preset_write(&p, 0, onnx_bytes, err);
}

void zx_preset_list(zx_text *out)
{
    char count[ZX_BYTES_TEXT];
    for (uint32_t i = 0; i < ZX_COUNT(presets); i++) {
        const zx_preset *p = &presets[i];
        const zx_new_sizes *s = &p->s;
        zx_preset_info info;
        zx_preset_count(p, &info);
        zx_text_put(out,
                    "%-12s %5s parameters  %3" PRId64 " x %-5" PRId64 "  %3" PRId64
                    " heads, vocabulary %" PRId64,
                    p->name, zx_text_count((double)info.params, count), s->layers, s->width,
                    s->heads, s->vocab);
        if (p->experts > 0)
            zx_text_put(out, ", %" PRId64 " of %" PRId64 " experts a token: %s active", p->chosen,
                        p->experts, zx_text_count((double)info.active_params, count));
        zx_text_put(out, "\n");
    }
}
