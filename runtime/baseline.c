// baseline.c - see baseline.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/baseline.h"

#include <stdlib.h>
#include <string.h>

#include "proto/mapfile.h"

// ---- limits -------------------------------------------------------------------------------------

zx_status zx_baseline_defaults(const zx_options *o, zx_baseline *out, zx_err *err)
{
    const char *word = zx_given_text(o, ZX_OPT_BASELINE_DEFAULTS);
    *out = ZX_BASELINE_RAW;
    if (word == NULL || strcmp(word, "raw") == 0) return ZX_OK;
    *out = ZX_BASELINE_HF;
    if (strcmp(word, "hf") == 0) return ZX_OK;
    zx_arena mem = {0};
    zx_err_hint(err, "--baseline-defaults raw, or hf");
    const zx_status st =
        ZX_FAIL(err, ZX_E_USAGE,
                "--baseline-defaults is raw (DeepSpeed's own) or hf (Hugging Face's \"auto\"), not "
                "'%s'",
                zx_text_safe(&mem, word));
    zx_arena_free(&mem);
    return st;
}

// What the file says, else `absent`; where it says "auto" and the hidden size is known, `filled`.
static int64_t elements_or(const zx_config *c, const char *key, int64_t absent, int64_t filled)
{
    const zx_config_value *v = zx_config_get(c, key);
    if (v->from == ZX_FROM_AUTO && filled > 0) return filled;
    return v->from == ZX_FROM_FILE ? v->i : absent;
}

static int64_t elements(const zx_config *c, const char *key, int64_t absent)
{
    return elements_or(c, key, absent, 0);
}

static const char PREFETCH[] = "zero_optimization.stage3_prefetch_bucket_size",
                  PERSISTENCE[] = "zero_optimization.stage3_param_persistence_threshold",
                  BUCKET[] = "zero_optimization.reduce_bucket_size";

static bool says_auto(const zx_config *c)
{
    return zx_config_get(c, PREFETCH)->from == ZX_FROM_AUTO ||
           zx_config_get(c, PERSISTENCE)->from == ZX_FROM_AUTO ||
           zx_config_get(c, BUCKET)->from == ZX_FROM_AUTO;
}

void zx_baseline_limits(const zx_config *c, zx_baseline defaults, int64_t hidden,
                        uint32_t accumulate, zx_hook_limits *out)
{
    const bool hf = hidden > 0 && hidden < INT32_MAX, silent = hf && defaults == ZX_BASELINE_HF;
    const int64_t bucket = hf ? hidden * hidden : 0, prefetch = (int64_t)(0.9 * (double)bucket),
                  persistence = hf ? 10 * hidden : 0;
    *out = (zx_hook_limits){
        .prefetch_bucket = elements_or(c, PREFETCH, silent ? prefetch : 50000000, prefetch),
        .max_live = elements(c, "zero_optimization.stage3_max_live_parameters", 1000000000),
        .max_reuse = elements(c, "zero_optimization.stage3_max_reuse_distance", 1000000000),
        .param_persistence =
            elements_or(c, PERSISTENCE, silent ? persistence : 100000, persistence),
        .model_persistence =
            elements(c, "zero_optimization.stage3_model_persistence_threshold", INT64_MAX),
        .reduce_bucket = elements_or(c, BUCKET, silent ? bucket : 500000000, bucket),
        .accumulate = accumulate,
    };
}

static int by_size(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

// The most frequent of them, the largest of those; 0 of none.
static int64_t most_frequent(int64_t *list, uint32_t n)
{
    int64_t best = 0;
    uint32_t most = 0;
    if (n > 0) qsort(list, n, sizeof *list, by_size);
    for (uint32_t i = 0, run; i < n; i += run) {
        for (run = 1; i + run < n && list[i + run] == list[i];) run++;
        if (run >= most) best = list[i];
        if (run > most) most = run;
    }
    return best;
}

int64_t zx_baseline_hidden(const zx_graph *g)
{
    zx_arena mem = {0};
    int64_t *list = ZX_NEW(&mem, int64_t, g->n_nodes + g->n_params + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *x = &g->nodes[i];
        if (x->op != ZX_OP_LAYER_NORM && x->op != ZX_OP_RMS_NORM) continue;
        const uint32_t weight = zx_node_in(g, x, 1);
        if (weight != ZX_NONE) list[n++] = zx_shape_count(&g->values[weight].type.shape);
    }
    const bool norms = n > 0;
    for (uint32_t i = 0; i < g->n_params && !norms; i++) {
        const zx_shape *s = &g->values[g->params[i].value].type.shape;
        if (s->rank == 1) list[n++] = s->dim[0];
    }
    const int64_t hidden = most_frequent(list, n);
    zx_arena_free(&mem);
    return hidden;
}

// ---- modules ------------------------------------------------------------------------------------

// One path a line, in the order of the calls; the root's own line may be there or not.
static zx_status read_calls(zx_job *job, zx_hooks_options *ho, zx_err *err)
{
    const char *path = zx_given_text(job->o, ZX_OPT_MODULES);
    if (path == NULL) return ZX_OK;
    zx_mapfile file;
    ZX_TRY(zx_mapfile_open(&file, path, err));
    const char **calls = NULL;
    uint32_t n = 0, cap = 0;
    for (uint64_t at = 0, len; at < file.size; at += len + 1) {
        const char *line = (const char *)file.bytes + at;
        const char *end = memchr(line, '\n', (size_t)(file.size - at));
        len = end != NULL ? (uint64_t)(end - line) : file.size - at;
        size_t keep = (size_t)len;
        while (keep > 0 && strchr(" \t\r", line[keep - 1]) != NULL && line[keep - 1] != '\0')
            keep--;
        if (keep == 0 || (keep == 6 && memcmp(line, "<root>", 6) == 0)) continue;
        ZX_GROW(&job->mem, calls, n, cap);
        calls[n++] = zx_arena_strn(&job->mem, line, keep);
    }
    zx_mapfile_close(&file);
    if (n == 0) return ZX_FAIL(err, ZX_E_USAGE, "--modules: %s lists no calls of modules", path);
    ho->calls = calls;
    ho->n_calls = n;
    return ZX_OK;
}

static void find_leaves(zx_job *job, zx_hooks_options *ho)
{
    static const char *const usual[] = {
        "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
        "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
        "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock"};
    const zx_config *c = &job->config;
    const zx_config_value *names = zx_config_get(c, "zero_optimization.leaf_module.names"),
                          *ends = zx_config_get(c, "zero_optimization.leaf_module.name_suffixes"),
                          *classes = zx_config_get(c, "zero_optimization.leaf_module.classes");
    ho->names = names->texts;
    ho->n_names = names->has ? names->n : 0;
    ho->suffixes = ends->texts;
    ho->n_suffixes = ends->has ? ends->n : 0;
    ho->default_classes = classes->from != ZX_FROM_FILE;
    ho->classes = ho->default_classes ? usual : classes->texts;
    ho->n_classes = ho->default_classes ? (uint32_t)ZX_COUNT(usual) : classes->n;
    ho->granularity = elements(c, "zero_optimization.stage3_module_granularity_threshold", 0);
}

zx_status zx_baseline_make(zx_job *job, const zx_blocks *again, zx_hooks *hooks,
                           zx_hook_limits *limits, zx_err *err)
{
    zx_hooks_options ho = {0};
    zx_baseline defaults;
    if (again != NULL) {
        ho.n_again = again->n;
        ho.again = again->names;
    }
    ZX_TRY(zx_baseline_defaults(job->o, &defaults, err));
    ZX_TRY(read_calls(job, &ho, err));
    find_leaves(job, &ho);
    const bool fills = defaults == ZX_BASELINE_HF || says_auto(&job->config);
    const int64_t hidden = fills ? zx_baseline_hidden(&job->forward) : 0;
    zx_baseline_limits(&job->config, defaults, hidden, (uint32_t)job->batch.accumulate, limits);
    if (defaults == ZX_BASELINE_HF && hidden == 0)
        zx_note(&job->notes, &job->mem,
                "--baseline-defaults hf: the model has no norms and no vectors to tell a hidden "
                "size by: DeepSpeed's own defaults are taken");
    else if (defaults == ZX_BASELINE_HF)
        zx_note(&job->notes, &job->mem,
                "--baseline-defaults hf: where the config is silent, by the hidden size %lld: "
                "reduce bucket %lld, prefetch %lld, persistence %lld",
                (long long)hidden, (long long)limits->reduce_bucket,
                (long long)limits->prefetch_bucket, (long long)limits->param_persistence);
    else if (hidden > 0)
        zx_note(&job->notes, &job->mem,
                "hooks: \"auto\" by the hidden size %lld, as Hugging Face fills it: reduce bucket "
                "%lld, prefetch %lld, persistence %lld",
                (long long)hidden, (long long)limits->reduce_bucket,
                (long long)limits->prefetch_bucket, (long long)limits->param_persistence);
    return zx_hooks_make(&job->forward, &ho, &job->mem, hooks, &job->notes, err);
}
