// config_resolve.c - what follows from a config that was read: batches, optimizer, import options,
// and the resolved file.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/config_row.h"

// ---- batches ------------------------------------------------------------------------------------

static const char T_KEY[] = "train_batch_size", M_KEY[] = "train_micro_batch_size_per_gpu",
                  G_KEY[] = "gradient_accumulation_steps";

// The three numbers as far as they are given; what is missing follows by CONFIG 4.1's table.
static void complete_batch(bool t, bool m, bool g, int64_t ranks, int64_t graph_batch, zx_batch *b)
{
    const int64_t fallback = graph_batch > 0 ? graph_batch : 1;
    if (t && !m && !g) {
        b->micro = graph_batch > 0 ? graph_batch : b->total / ranks;
        b->accumulate = graph_batch > 0 ? b->total / (graph_batch * ranks) : 1;
        return;
    }
    if (t && m && !g) b->accumulate = b->micro > 0 ? b->total / b->micro / ranks : 0;
    if (t && g && !m) b->micro = b->accumulate > 0 ? b->total / ranks / b->accumulate : 0;
    if (!t && !m) b->micro = fallback;
    if (!t && !g) b->accumulate = 1;
    if (!t) {
        int64_t step;
        if (__builtin_mul_overflow(b->micro, b->accumulate, &step) ||
            __builtin_mul_overflow(step, ranks, &b->total))
            b->total = -1;
    }
}

// "auto" stays what the file says where nothing else decides.
static void set_batch(zx_config *c, const char *key, int64_t n, zx_config_from from,
                      const char *why)
{
    const zx_config_value had = *zx_config_get(c, key);
    const bool kept = had.from == ZX_FROM_AUTO && from == ZX_FROM_DEFAULT;
    zx_config_set_int(c, key, n, kept ? ZX_FROM_AUTO : from);
    zx_config_set_why(c, key, kept ? had.why : why);
}

zx_status zx_config_batch(zx_config *c, uint32_t ranks, int64_t graph_batch, zx_batch *out,
                          zx_err *err)
{
    const zx_config_value *t = zx_config_get(c, T_KEY), *m = zx_config_get(c, M_KEY),
                          *g = zx_config_get(c, G_KEY);
    const char *name = c->path != NULL ? c->path : "config";
    *out = (zx_batch){.total = t->i, .micro = m->i, .accumulate = g->i};
    const struct {
        const char *key;
        const zx_config_value *v;
    } given[] = {{T_KEY, t}, {M_KEY, m}, {G_KEY, g}};
    for (size_t i = 0; i < ZX_COUNT(given); i++)
        if (given[i].v->has && given[i].v->i <= 0) {
            zx_err_hint(err, "a whole number of at least 1, or leave it out");
            return ZX_FAIL(err, ZX_E_USAGE, "%s: %s has to be greater than 0", name, given[i].key);
        }
    complete_batch(t->has, m->has, g->has, ranks, graph_batch, out);
    int64_t product = -1;
    const bool fits = !__builtin_mul_overflow(out->micro, out->accumulate, &product) &&
                      !__builtin_mul_overflow(product, (int64_t)ranks, &product) &&
                      product == out->total && product > 0;
    if (!fits) {
        const bool whole = m->has || (graph_batch > 0 && !g->has);
        const int64_t each = whole ? out->micro : g->has ? out->accumulate : 1;
        const bool fixed = whole && !m->has; // by the model, which the file doesn't say
        if (fixed)
            zx_err_hint(err,
                        "a %s that is a multiple of %lld x %u ranks, or a model that was exported "
                        "with another batch than %lld",
                        T_KEY, (long long)each, ranks, (long long)graph_batch);
        else if (t->has && !(m->has && g->has))
            zx_err_hint(err, "a %s that is a multiple of %lld x %u ranks", T_KEY, (long long)each,
                        ranks);
        zx_err_hint(err, "give two of the three keys; the third one follows");
        const char *of_ranks = c->whose_ranks != NULL ? c->whose_ranks : "";
        if (t->has && whole != g->has && out->micro * out->accumulate == 0)
            return ZX_FAIL(
                err, ZX_E_USAGE,
                "%s: check the batch keys: %s %lld is no multiple of %s %lld x ranks %u%s", name,
                T_KEY, (long long)out->total, whole ? M_KEY : G_KEY, (long long)each, ranks,
                of_ranks);
        return ZX_FAIL(err, ZX_E_USAGE,
                       "%s: check the batch keys: %s %lld is not %s %lld x %s %lld x ranks %u%s",
                       name, T_KEY, (long long)out->total, M_KEY, (long long)out->micro, G_KEY,
                       (long long)out->accumulate, ranks, of_ranks);
    }
    if (graph_batch > 0 && out->micro != graph_batch) {
        zx_err_hint(err, "set %s to %lld, or export the model with a symbolic batch", M_KEY,
                    (long long)graph_batch);
        return ZX_FAIL(err, ZX_E_USAGE, "%s: %s is %lld, but the model has a fixed batch of %lld",
                       name, M_KEY, (long long)out->micro, (long long)graph_batch);
    }
    const bool fixed = graph_batch > 0 && !m->has;
    if (!m->has)
        set_batch(c, M_KEY, out->micro,
                  fixed    ? ZX_FROM_MODEL
                  : t->has ? ZX_FROM_OTHERS
                           : ZX_FROM_DEFAULT,
                  fixed    ? "its inputs' fixed batch"
                  : t->has ? "train_batch_size / accumulation / ranks"
                           : NULL);
    if (!g->has)
        set_batch(c, G_KEY, out->accumulate, t->has ? ZX_FROM_OTHERS : ZX_FROM_DEFAULT,
                  t->has ? "train_batch_size / micro-batch / ranks" : NULL);
    if (!t->has)
        set_batch(c, T_KEY, out->total, ZX_FROM_OTHERS,
                  zx_arena_printf(c->mem, "%lld x %lld x %u ranks", (long long)out->micro,
                                  (long long)out->accumulate, ranks));
    return ZX_OK;
}

// ---- optimizer ----------------------------------------------------------------------------------

enum { ADAM = 1, ADAMW = 2, SGD = 4, LION = 8 };
static const struct {
    const char *name;
    unsigned bit;
} optimizers[] = {{"Adam", ADAM}, {"AdamW", ADAMW}, {"FusedAdam", ADAM}, {"CPUAdam", ADAM},
                  {"SGD", SGD},   {"Lion", LION},   {"FusedLion", LION}, {"CPULion", LION}};

// Which parameters belong to which optimizers, and the range of their values.
static const struct {
    const char *key;
    unsigned of;
    double below; // values v: 0 <= v < below
} params[] = {
    {"lr", ADAM | ADAMW | SGD | LION, INFINITY},
    {"betas", ADAM | ADAMW | LION, 1},
    {"eps", ADAM | ADAMW, INFINITY},
    {"weight_decay", ADAM | ADAMW | SGD | LION, INFINITY},
    {"bias_correction", ADAM | ADAMW, INFINITY},
    {"adam_w_mode", ADAM | ADAMW, INFINITY},
    {"torch_adam", ADAM | ADAMW, INFINITY},
    {"momentum", SGD, INFINITY},
    {"dampening", SGD, INFINITY},
    {"nesterov", SGD, INFINITY},
};

static const zx_config_value *param(const zx_config *c, const char *key)
{
    char path[64] = "optimizer.params.";
    ZX_ASSERT(strlen(key) < sizeof path - strlen(path));
    strncat(path, key, sizeof path - strlen(path) - 1);
    return zx_config_get(c, path);
}

static void check_params(const zx_config *c, unsigned kind, zx_err *found)
{
    const char *type = zx_config_get(c, "optimizer.type")->text;
    for (size_t i = 0; i < ZX_COUNT(params); i++) {
        const zx_config_value *v = param(c, params[i].key);
        if (v->from == ZX_FROM_FILE && (params[i].of & kind) == 0)
            ZX_FAIL(found, ZX_E_USAGE, "optimizer.params.%s is no parameter of %s", params[i].key,
                    type);
        const double *list = v->reals != NULL ? v->reals : &v->r;
        for (uint32_t k = 0; k < (v->reals != NULL ? v->n : 1); k++)
            if (!(list[k] >= 0 && list[k] < params[i].below))
                ZX_FAIL(found, ZX_E_USAGE, "optimizer.params.%s must be 0 or more%s, not %g",
                        params[i].key, params[i].below == 1 ? " and below 1" : "", list[k]);
    }
    if (param(c, "betas")->n != 2)
        ZX_FAIL(found, ZX_E_USAGE, "optimizer.params.betas must be two numbers, not %u",
                param(c, "betas")->n);
    if (param(c, "nesterov")->b && (param(c, "momentum")->r <= 0 || param(c, "dampening")->r != 0))
        ZX_FAIL(found, ZX_E_USAGE,
                "optimizer.params.nesterov needs a momentum above 0 and a dampening of 0");
    if (!(zx_config_get(c, "gradient_clipping")->r >= 0))
        ZX_FAIL(found, ZX_E_USAGE, "gradient_clipping must be 0 (none) or more");
}

zx_status zx_config_optim(zx_config *c, zx_optim *optim, double *clip, zx_err *err)
{
    const char *type = zx_config_get(c, "optimizer.type")->text;
    unsigned kind = 0;
    for (size_t i = 0; i < ZX_COUNT(optimizers); i++)
        if (strcasecmp(optimizers[i].name, type) == 0) kind = optimizers[i].bit;
    zx_err found = {0};
    if (kind == 0)
        ZX_FAIL(
            &found, ZX_E_USAGE,
            "optimizer.type = \"%s\" is not supported: this version has Adam, AdamW, Lion and SGD",
            zx_text_safe(c->mem, type));
    else
        check_params(c, kind, &found);
    if (found.code != ZX_OK) {
        if (c->path != NULL) zx_err_in(&found, "%s", c->path);
        return zx_err_merge(err, &found);
    }
    // "Adam" is AdamW unless adam_w_mode says otherwise; "AdamW" always is (CONFIG 2.6).
    const bool decoupled = kind == ADAMW || (kind == ADAM && param(c, "adam_w_mode")->b);
    zx_config_value *decay = (zx_config_value *)(uintptr_t)param(c, "weight_decay");
    if (param(c, "torch_adam")->b && decoupled && decay->from == ZX_FROM_DEFAULT) {
        decay->r = 0.01;
        decay->from = ZX_FROM_OTHERS;
    }
    for (size_t i = 0; i < ZX_COUNT(params); i++) // what doesn't apply isn't shown either
        if ((params[i].of & kind) == 0)
            ((zx_config_value *)(uintptr_t)param(c, params[i].key))->has = false;
    *optim = (zx_optim){
        .kind = kind == SGD    ? ZX_OPTIM_SGD
                : kind == LION ? ZX_OPTIM_LION
                               : ZX_OPTIM_ADAM,
        .lr = param(c, "lr")->r,
        .beta1 = param(c, "betas")->reals[0],
        .beta2 = param(c, "betas")->reals[1],
        .eps = param(c, "eps")->r,
        .weight_decay = decay->r,
        .decoupled = decoupled,
        .bias_correction = param(c, "bias_correction")->b,
        .momentum = param(c, "momentum")->r,
        .dampening = param(c, "dampening")->r,
        .nesterov = param(c, "nesterov")->b,
    };
    *clip = zx_config_get(c, "gradient_clipping")->r;
    return ZX_OK;
}

// ---- precision ----------------------------------------------------------------------------------

zx_status zx_config_precision(const zx_config *c, zx_precision *out, uint32_t *accumulate_bytes,
                              zx_err *err)
{
    static const char *const words[] = {"fp32", "bf16", "fp16"};
    const bool bf16 = zx_config_get(c, "bf16.enabled")->b,
               fp16 = zx_config_get(c, "fp16.enabled")->b;
    const zx_config_value *param = zx_config_get(c, "data_types.param_dtype"),
                          *wire = zx_config_get(c, "communication_data_type"),
                          *sum = zx_config_get(c, "data_types.grad_accum_dtype");
    *out = bf16 ? ZX_PREC_BF16 : fp16 ? ZX_PREC_F16 : ZX_PREC_F32;
    *accumulate_bytes = *out == ZX_PREC_F32 ? 0 : 4;
    if (sum->has) *accumulate_bytes = strcmp(sum->text, words[ZX_PREC_F32]) == 0 ? 4 : 2;
    const char *mode = words[*out];
    zx_err found = {0};
    if (bf16 && fp16)
        ZX_FAIL(&found, ZX_E_USAGE,
                "bf16.enabled and fp16.enabled are both true; keep one of them");
    if (param->has && strcmp(param->text, mode) != 0)
        ZX_FAIL(&found, ZX_E_USAGE,
                "data_types.param_dtype = \"%s\" is not supported: parameters are %s here, by "
                "fp16.enabled and bf16.enabled; remove it",
                param->text, mode);
    if (wire->has && strcmp(wire->text, mode) != 0 && strcmp(wire->text, words[ZX_PREC_F32]) != 0)
        ZX_FAIL(&found, ZX_E_USAGE,
                "communication_data_type = \"%s\" is not supported: gradients travel as they are "
                "made, in %s here; remove it",
                wire->text, mode);
    if (sum->has && *accumulate_bytes == 2 && strcmp(sum->text, mode) != 0)
        ZX_FAIL(&found, ZX_E_USAGE,
                "data_types.grad_accum_dtype = \"%s\" is not supported: gradients are made in %s "
                "here, and added up in it or in fp32",
                sum->text, mode);
    if (found.code == ZX_OK) return ZX_OK;
    if (c->path != NULL) zx_err_in(&found, "%s", c->path);
    return zx_err_merge(err, &found);
}

static zx_status out_of_range(const zx_config *c, const char *key, const char *range, zx_err *err)
{
    return ZX_FAIL(err, ZX_E_USAGE, "%s: %s must be %s", c->path, key, range);
}

zx_status zx_config_loss_scale(const zx_config *c, zx_loss_scale_rule *out, zx_err *err)
{
    const double fixed = zx_config_get(c, "fp16.loss_scale")->r;
    const int64_t power = zx_config_get(c, "fp16.initial_scale_power")->i,
                  window = zx_config_get(c, "fp16.loss_scale_window")->i,
                  hysteresis = zx_config_get(c, "fp16.hysteresis")->i,
                  least = zx_config_get(c, "fp16.min_loss_scale")->i;
    *out = (zx_loss_scale_rule){.fixed = 1};
    if (!zx_config_get(c, "fp16.enabled")->b) return ZX_OK;
    if (!(fixed >= 0 && fixed <= 0x1p64))
        return out_of_range(c, "fp16.loss_scale", "0 or more, and no more than 2^64", err);
    if (power > 64) return out_of_range(c, "fp16.initial_scale_power", "64 or less", err);
    if (window < 1 || window > UINT32_MAX)
        return out_of_range(c, "fp16.loss_scale_window", "a number of steps, 1 or more", err);
    if (hysteresis < 1 || hysteresis > UINT32_MAX)
        return out_of_range(c, "fp16.hysteresis", "1 or more", err);
    if (least < 1) return out_of_range(c, "fp16.min_loss_scale", "1 or more", err);
    // DeepSpeed would raise the scale at the first overflow.
    if (fixed == 0 && (double)least > ldexp(1, (int)power))
        return ZX_FAIL(err, ZX_E_USAGE,
                       "%s: fp16.min_loss_scale, %lld, is above the first loss scale, 2^%lld by "
                       "fp16.initial_scale_power; make one of them fit the other",
                       c->path, (long long)least, (long long)power);
    *out = (zx_loss_scale_rule){.fixed = fixed,
                                .first = ldexp(1, (int)power),
                                .least = (double)least,
                                .window = (uint32_t)window,
                                .hysteresis = (uint32_t)hysteresis,
                                .consecutive = zx_config_get(c, "fp16.consecutive_hysteresis")->b};
    return ZX_OK;
}

// ---- import -------------------------------------------------------------------------------------

static zx_status read_dims(const zx_config *c, zx_import_options *o, zx_err *err)
{
    const zx_config_value *v = zx_config_get(c, "zerox.dims");
    if (!v->has) return ZX_OK;
    const uint32_t n = (uint32_t)json_object_size(v->json);
    zx_bind *dims = ZX_NEW(c->mem, zx_bind, n + o->n_dims);
    uint32_t at = 0;
    const char *key;
    json_t *j;
    json_object_foreach((json_t *)(uintptr_t)v->json, key, j)
    {
        if (!json_is_integer(j) || json_integer_value(j) < 1)
            return ZX_FAIL(err, ZX_E_USAGE,
                           "%s: zerox.dims.%s must be a whole number of at least 1", c->path,
                           zx_text_safe(c->mem, key));
        bool given = false; // the command line comes before the file
        for (uint32_t i = 0; i < o->n_dims; i++) given |= strcmp(o->dims[i].name, key) == 0;
        if (!given) dims[at++] = (zx_bind){key, json_integer_value(j)};
    }
    if (o->n_dims > 0) memcpy(dims + at, o->dims, o->n_dims * sizeof *dims);
    o->dims = dims;
    o->n_dims += at;
    return ZX_OK;
}

// Without a kind the graph's own loss is taken as it is, and nothing can be wanted of it.
static zx_status check_loss(const zx_config *c, const zx_import_options *o, zx_err *err)
{
    const char *key = o->loss_prediction != NULL             ? "prediction"
                      : o->loss_ignore_index != -100         ? "ignore_index"
                      : o->loss_smoothing != 0               ? "label_smoothing"
                      : strcmp(o->loss_label, "labels") != 0 ? "label"
                                                             : NULL;
    const char *entropy = o->loss_ignore_index != -100 ? "ignore_index"
                          : o->loss_smoothing != 0     ? "label_smoothing"
                                                       : NULL;
    if (o->loss == ZX_LOSS_MSE && entropy != NULL)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "%s: zerox.loss.%s is of the kind cross_entropy, not of mse; remove it",
                       c->path, entropy);
    if (o->loss != ZX_LOSS_GRAPH || key == NULL) return ZX_OK;
    zx_err_hint(err, "\"kind\": \"cross_entropy\" or \"mse\" for a loss that zerox adds, "
                     "or no \"loss\" for the graph's own");
    return ZX_FAIL(err, ZX_E_USAGE, "%s: zerox.loss.%s needs zerox.loss.kind", c->path, key);
}

zx_status zx_config_import(const zx_config *c, zx_import_options *o, zx_err *err)
{
    const zx_config_value *v = zx_config_get(c, "zerox.parameters");
    o->n_parameters = v->n;
    o->parameters = v->texts;
    v = zx_config_get(c, "zerox.buffers");
    o->n_buffers = v->n;
    o->buffers = v->texts;
    o->batch_norm_as_exported =
        strcmp(zx_config_get(c, "zerox.batch_norm")->text, "as_exported") == 0;
    v = zx_config_get(c, "zerox.loss.kind");
    o->loss = !v->has                       ? ZX_LOSS_GRAPH
              : strcmp(v->text, "mse") == 0 ? ZX_LOSS_MSE
                                            : ZX_LOSS_CROSS_ENTROPY;
    v = zx_config_get(c, "zerox.loss.prediction");
    o->loss_prediction = v->has ? v->text : NULL;
    o->loss_label = zx_config_get(c, "zerox.loss.label")->text;
    o->loss_ignore_index = zx_config_get(c, "zerox.loss.ignore_index")->i;
    o->loss_smoothing = zx_config_get(c, "zerox.loss.label_smoothing")->r;
    if (!(o->loss_smoothing >= 0 && o->loss_smoothing <= 1))
        return ZX_FAIL(err, ZX_E_USAGE, "%s: zerox.loss.label_smoothing must lie between 0 and 1",
                       c->path);
    ZX_TRY(check_loss(c, o, err));
    return read_dims(c, o, err);
}

// ---- written ------------------------------------------------------------------------------------

// The shortest of three precisions that reads back as the same number, with a mark of being a real.
static void put_real(zx_text *out, double v)
{
    char buf[40];
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(buf, sizeof buf, "%.*g", precision, v);
        if (strtod(buf, NULL) == v) break;
    }
    zx_text_put(out, "%s", buf);
}

void zx_config_put_value(zx_text *out, const zx_config_row *row, const zx_config_value *v)
{
    if (!v->has) {
        zx_text_put(out, "null");
        return;
    }
    switch (row->type) {
    case ZX_KEY_BOOL:
    case ZX_KEY_SWITCH:
        zx_text_put(out, "%s", v->b ? "true" : "false");
        return;
    case ZX_KEY_INT:
    case ZX_KEY_SIGNED:
        zx_text_put(out, "%lld", (long long)v->i);
        return;
    case ZX_KEY_REAL:
        put_real(out, v->r);
        return;
    case ZX_KEY_TEXT:
    case ZX_KEY_DTYPE:
    case ZX_KEY_CHOICE:
        zx_text_json(out, v->text);
        return;
    case ZX_KEY_WORDS:
    case ZX_KEY_TEXTS:
    case ZX_KEY_REALS:
        if (row->type == ZX_KEY_WORDS && v->n == 0 && v->text != NULL) {
            zx_text_json(out, v->text);
            return;
        }
        zx_text_put(out, "[");
        for (uint32_t i = 0; i < v->n; i++) {
            if (i > 0) zx_text_put(out, ", ");
            if (row->type == ZX_KEY_REALS) put_real(out, v->reals[i]);
            if (row->type != ZX_KEY_REALS) zx_text_json(out, v->texts[i]);
        }
        zx_text_put(out, "]");
        return;
    default:
        break;
    }
    char *s = v->json != NULL ? json_dumps(v->json, JSON_ENCODE_ANY) : NULL;
    zx_text_put(out, "%s", s != NULL ? s : "null");
    free(s);
}

// Whether config.json has the row: what only the steps of a run tell stays "auto" until there is
// one.
static bool is_written(const zx_config *c, uint32_t i)
{
    return zx_config_rows[i].verdict == ZX_VERDICT_HONOUR &&
           (c->values[i].has || c->values[i].later);
}

// Writes the rows that count, from *at on, whose path begins with `prefix`, as one JSON object.
// Rows of a section stand together in config.def.
static void put_section(const zx_config *c, uint32_t *at, const char *prefix, int depth,
                        const char *run, zx_text *out)
{
    const size_t n = strlen(prefix);
    bool first = true;
    zx_text_put(out, "{");
    while (*at < zx_config_n_rows && strncmp(zx_config_rows[*at].path, prefix, n) == 0) {
        const zx_config_row *row = &zx_config_rows[*at];
        if (!is_written(c, *at)) {
            ++*at;
            continue;
        }
        const char *name = row->path + n;
        const int len = (int)strcspn(name, ".");
        zx_text_put(out, "%s\n%*s\"%.*s\": ", first ? "" : ",", 2 * depth + 2, "", len, name);
        first = false;
        if (name[len] == '\0') {
            if (c->values[*at].later)
                zx_text_put(out, "\"auto\"");
            else
                zx_config_put_value(out, row, &c->values[*at]);
            ++*at;
        } else {
            const char *inner = zx_arena_strn(c->mem, row->path, n + (size_t)len + 1);
            put_section(c, at, inner, depth + 1, run, out);
        }
    }
    if (strcmp(prefix, "zerox.") == 0) {
        zx_text_put(out, "%s\n%*s\"run\": {%s},\n%*s\"origins\": {", first ? "" : ",",
                    2 * depth + 2, "", run, 2 * depth + 2, "");
        const char *comma = "";
        for (uint32_t i = 0; i < zx_config_n_rows; i++) {
            if (!is_written(c, i)) continue;
            zx_text_put(out, "%s\n%*s\"%s\": \"%s\"", comma, 2 * depth + 4, "",
                        zx_config_rows[i].path, zx_config_from_text(c->values[i].from));
            comma = ",";
        }
        zx_text_put(out, "\n%*s}", 2 * depth + 2, "");
    }
    zx_text_put(out, "\n%*s}", 2 * depth, "");
}

void zx_config_write(const zx_config *c, const char *run, zx_text *out)
{
    uint32_t at = 0;
    put_section(c, &at, "", 0, run, out);
    zx_text_put(out, "\n");
}

typedef struct unchosen { // names of values that nobody chose
    zx_text defaults, autos;
} unchosen;

// ", NAME VALUE"; what nobody chose is named apart too.
static void describe(const zx_config *c, const char *path, const char *name, zx_text *out,
                     unchosen *u)
{
    for (uint32_t i = 0; i < zx_config_n_rows; i++) {
        if (strcmp(zx_config_rows[i].path, path) != 0 || !c->values[i].has) continue;
        const zx_config_from from = c->values[i].from;
        const bool starts = out->n == 0 || out->at[out->n - 1] == '\n';
        zx_text_put(out, "%s%s ", starts ? "" : ", ", name);
        if (zx_config_rows[i].type == ZX_KEY_CHOICE || zx_config_rows[i].type == ZX_KEY_TEXT)
            zx_text_put(out, "%s", zx_text_safe(c->mem, c->values[i].text));
        else
            zx_config_put_value(out, &zx_config_rows[i], &c->values[i]);
        if (from == ZX_FROM_MODEL) zx_text_put(out, " (fixed by the model)");
        zx_text *names = from == ZX_FROM_DEFAULT ? &u->defaults
                         : from == ZX_FROM_AUTO  ? &u->autos
                                                 : NULL;
        if (names != NULL) zx_text_put(names, "%s%s", names->n > 0 ? ", " : "", name);
    }
}

void zx_config_describe(const zx_config *c, zx_text *out)
{
    const bool sgd = strcasecmp(zx_config_get(c, "optimizer.type")->text, "SGD") == 0;
    unchosen u = {0};
    describe(c, "optimizer.type", "optimizer", out, &u);
    describe(c, "optimizer.params.lr", "lr", out, &u);
    describe(c, sgd ? "optimizer.params.momentum" : "optimizer.params.betas",
             sgd ? "momentum" : "betas", out, &u);
    if (!sgd) describe(c, "optimizer.params.eps", "eps", out, &u);
    describe(c, "optimizer.params.weight_decay", "weight_decay", out, &u);
    describe(c, "gradient_clipping", "clipping", out, &u);
    zx_text_put(out, "\n");
    describe(c, M_KEY, "micro-batch", out, &u);
    describe(c, G_KEY, "accumulation", out, &u);
    describe(c, T_KEY, "batch", out, &u);
    if (u.defaults.n > 0) zx_text_put(out, "\ndefaults: %s", u.defaults.at);
    if (u.autos.n > 0) zx_text_put(out, "\n\"auto\", as Hugging Face fills it: %s", u.autos.at);
    zx_text_free(&u.defaults);
    zx_text_free(&u.autos);
}

const char *zx_config_verdict_text(zx_verdict verdict)
{
    static const char *const words[] = {"honoured",   "refused otherwise", "refused above 1",
                                        "no effect",  "no effect",         "no effect",
                                        "old form of"};
    return words[verdict];
}

void zx_config_keys(zx_text *out)
{
    zx_text_put(out, "| key | default | verdict | |\n|---|---|---|---|\n");
    for (uint32_t i = 0; i < zx_config_n_rows; i++) {
        const zx_config_row *row = &zx_config_rows[i];
        zx_text_put(out, "| `%s` | %s | %s | ", row->path, row->value[0] != '\0' ? row->value : "-",
                    zx_config_verdict_text(row->verdict));
        for (const char *c = row->words; *c != '\0'; c++) // a table's cell ends at a bar
            zx_text_put(out, "%s%c", *c == '|' ? "\\" : "", *c);
        zx_text_put(out, "%s|\n", row->words[0] != '\0' ? " " : "");
    }
}
