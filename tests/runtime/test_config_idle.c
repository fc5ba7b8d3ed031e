// test_config_idle.c - a key that does nothing is told of: keys without effect, keys that are
// refused, keys that others of the same file leave nothing to do, and sections that nobody switched
// on.
// SPDX-License-Identifier: Apache-2.0
#include <jansson.h>
#include <string.h>

#include "runtime/config_row.h"
#include "tests/test.h"

// ---- a config as zerox reads it -----------------------------------------------------------------

typedef struct reading {
    zx_arena mem;
    zx_config c;
    zx_notes notes;
    zx_err err;
} reading;

// Read and resolved as far as it goes; close_reading frees it.
static void read_config(const char *json, reading *r)
{
    zx_precision precision;
    uint32_t bytes;
    zx_optim optim;
    double clip;
    *r = (reading){0};
    if (zx_config_parse("z", json, strlen(json), false, &r->mem, &r->c, &r->notes, &r->err) !=
        ZX_OK)
        return;
    if (zx_config_precision(&r->c, &precision, &bytes, &r->err) == ZX_OK &&
        zx_config_optim(&r->c, &optim, &clip, &r->err) == ZX_OK &&
        zx_config_schedule(&r->c, &optim, &r->err) == ZX_OK)
        zx_config_idle(&r->c, &r->notes);
}

static void close_reading(reading *r)
{
    zx_config_close(&r->c);
    zx_arena_free(&r->mem);
}

static const char *find_note(const reading *r, const char *a, const char *b)
{
    for (uint32_t i = 0; i < r->notes.n; i++)
        if (strstr(r->notes.text[i], a) != NULL && strstr(r->notes.text[i], b) != NULL)
            return r->notes.text[i];
    return NULL;
}

// ---- beside others ------------------------------------------------------------------------------

#define SGD(params) "{\"optimizer\": {\"type\": \"SGD\", \"params\": {" params "}}}"
#define ADAM(params) "{\"optimizer\": {\"type\": \"Adam\", \"params\": {" params "}}}"
#define ADAMW(params) "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {" params "}}}"
#define STATIC(key) "{\"fp16\": {\"enabled\": true, \"loss_scale\": 128, " key "}}"
#define CYCLE_PARAMS(more)                                                                         \
    "\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0.01, "                \
    "\"cycle_max_lr\": 0.1" more "}}"
#define CYCLE(more) "{" CYCLE_PARAMS(more) "}"
#define REST ", \"cycle_momentum\": false"
#define CYCLE_SGD(more) "{\"optimizer\": {\"type\": \"SGD\"}, " CYCLE_PARAMS(more) "}"
#define MAX_LIVE "\"stage3_max_live_parameters\": 1000"
#define GATHER "\"stage3_gather_16bit_weights_on_model_save\": true"

static const struct row {
    const char *key, *with,
        *without; // idle in one config, not in the other, whose value is the same
    const char *why;
} rows[] = {
    {"fp16.initial_scale_power", STATIC("\"initial_scale_power\": 8"),
     "{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 8}}", "loss_scale stays"},
    {"fp16.loss_scale_window", STATIC("\"loss_scale_window\": 8"),
     "{\"fp16\": {\"enabled\": true, \"loss_scale_window\": 8}}", "loss_scale stays"},
    {"fp16.hysteresis", STATIC("\"hysteresis\": 3"),
     "{\"fp16\": {\"enabled\": true, \"hysteresis\": 3}}", "loss_scale stays"},
    {"fp16.consecutive_hysteresis", STATIC("\"consecutive_hysteresis\": true"),
     "{\"fp16\": {\"enabled\": true, \"consecutive_hysteresis\": true}}", "loss_scale stays"},
    {"fp16.min_loss_scale", STATIC("\"min_loss_scale\": 2"),
     "{\"fp16\": {\"enabled\": true, \"min_loss_scale\": 2}}", "loss_scale stays"},
    {"zerox.on_nan", "{\"fp16\": {\"enabled\": true}, \"zerox\": {\"on_nan\": \"skip\"}}",
     "{\"bf16\": {\"enabled\": true}, \"zerox\": {\"on_nan\": \"skip\"}}", "fp16 skips"},
    {"communication_data_type",
     "{\"bf16\": {\"enabled\": true}, \"communication_data_type\": \"fp32\"}",
     "{\"communication_data_type\": \"fp32\"}", "gradients travel in the 16 bits"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save",
     "{\"zero_optimization\": {" GATHER "}}",
     "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {" GATHER "}}", "are float32"},
    {"zero_optimization.stage3_max_live_parameters",
     "{\"zero_optimization\": {\"stage\": 2, " MAX_LIVE "}}",
     "{\"zero_optimization\": {\"stage\": 3, " MAX_LIVE "}}", "stage 3 alone"},
    {"optimizer.params.adam_w_mode", ADAMW("\"adam_w_mode\": false"),
     ADAM("\"adam_w_mode\": false"), "Adam has both"},
    {"optimizer.params.torch_adam", ADAMW("\"torch_adam\": true, \"weight_decay\": 0.1"),
     ADAMW("\"torch_adam\": true"), "where the file doesn't"},
    {"optimizer.params.torch_adam", ADAM("\"torch_adam\": true, \"adam_w_mode\": false"),
     ADAM("\"torch_adam\": true"), "weight_decay of AdamW"},
    {"optimizer.params.dampening", SGD("\"dampening\": 0.5"),
     SGD("\"dampening\": 0.5, \"momentum\": 0.9"), "momentum is 0"},
    {"optimizer.params.betas",
     "{\"optimizer\": {\"params\": {\"betas\": [0.8, 0.9]}}, " CYCLE_PARAMS("") "}",
     "{\"optimizer\": {\"params\": {\"betas\": [0.8, 0.9]}}, " CYCLE_PARAMS(REST) "}",
     "OneCycle moves beta1"},
    {"optimizer.params.lr", "{\"optimizer\": {\"params\": {\"lr\": 0.3}}, " CYCLE_PARAMS("") "}",
     "{\"optimizer\": {\"params\": {\"lr\": 0.3}}, \"scheduler\": {\"type\": \"WarmupLR\"}}",
     "rates of its own"},
    {"scheduler.params.cycle_min_mom", CYCLE(REST ", \"cycle_min_mom\": 0.7"),
     CYCLE(", \"cycle_min_mom\": 0.7"), "cycle_momentum is false"},
    {"scheduler.params.cycle_max_mom", CYCLE(REST ", \"cycle_max_mom\": 0.99"),
     CYCLE(", \"cycle_max_mom\": 0.99"), "cycle_momentum is false"},
    {"scheduler.params.decay_mom_rate",
     CYCLE(REST ", \"decay_mom_rate\": 0.1, \"decay_step_size\": 1"),
     CYCLE(", \"decay_mom_rate\": 0.1, \"decay_step_size\": 1"), "cycle_momentum is false"},
    {"scheduler.params.cycle_min_mom", CYCLE_SGD(", \"cycle_min_mom\": 0.7"),
     CYCLE(", \"cycle_min_mom\": 0.7"), "SGD has no beta1"},
    {"scheduler.params.cycle_max_mom", CYCLE_SGD(", \"cycle_max_mom\": 0.99"),
     CYCLE(", \"cycle_max_mom\": 0.99"), "SGD has no beta1"},
    {"scheduler.params.decay_mom_rate",
     CYCLE_SGD(", \"decay_mom_rate\": 0.1, \"decay_step_size\": 1"),
     CYCLE(", \"decay_mom_rate\": 0.1, \"decay_step_size\": 1"), "SGD has no beta1"},
    {"scheduler.params.decay_lr_rate", CYCLE(", \"decay_lr_rate\": 0.1"),
     CYCLE(", \"decay_lr_rate\": 0.1, \"decay_step_size\": 1"), "decay_step_size is 0"},
    {"scheduler.params.decay_mom_rate", CYCLE(", \"decay_mom_rate\": 0.1"),
     CYCLE(", \"decay_mom_rate\": 0.1, \"decay_step_size\": 1"), "decay_step_size is 0"},
    {"scheduler.params.decay_step_size", CYCLE(", \"decay_step_size\": 5"),
     CYCLE(", \"decay_lr_rate\": 0.1, \"decay_step_size\": 5"), "nothing decays"},
};

static const char *explained(const reading *r, const char *key)
{
    static char list[24];
    zx_text out = {0};
    zx_config_explain_json(&r->c, NULL, 2, &r->err, &out);
    json_t *all = json_loads(out.at, 0, NULL), *of;
    const char *name;
    list[0] = '\0';
    json_object_foreach(all, name, of)
    {
        if (json_object_get(of, key) != NULL) snprintf(list, sizeof list, "%s", name);
    }
    json_decref(all);
    zx_text_free(&out);
    return list;
}

static void test_row(void **state)
{
    const struct row *row = *state;
    reading r;
    read_config(row->with, &r);
    assert_zx_ok(r.err.code, &r.err);
    if (find_note(&r, row->key, row->why) == NULL)
        fail_msg("%s: nothing is said of %s", row->with, row->key);
    assert_string_equal(explained(&r, row->key), "no_effect");
    close_reading(&r);
    read_config(row->without, &r);
    assert_zx_ok(r.err.code, &r.err);
    const char *said = find_note(&r, row->key, " has no effect: ");
    if (said != NULL) fail_msg("%s: %s", row->without, said);
    assert_string_equal(explained(&r, row->key), "values");
    close_reading(&r);
}

static void every_rule_has_a_row(void **state)
{
    (void)state;
    assert_int_equal(ZX_COUNT(rows), zx_config_n_idle);
}

// ---- verdicts -----------------------------------------------------------------------------------

// {"a": {"b": VALUE}} for a.b, each section around it switched on. The caller's to free.
static char *alone(const char *path, const char *value)
{
    json_t *root = json_object(), *at = root;
    json_t *leaf = json_loads(value, JSON_DECODE_ANY, NULL);
    const char *rest = path;
    assert_non_null(leaf);
    for (const char *dot; (dot = strchr(rest, '.')) != NULL; rest = dot + 1) {
        char name[80], gate[200];
        snprintf(name, sizeof name, "%.*s", (int)(dot - rest), rest);
        json_object_set_new(at, name, json_object());
        at = json_object_get(at, name);
        snprintf(gate, sizeof gate, "%.*senabled", (int)(dot + 1 - path), path);
        for (uint32_t i = 0; i < zx_config_n_rows; i++)
            if (strcmp(zx_config_rows[i].path, gate) == 0)
                json_object_set_new(at, "enabled", json_true());
        snprintf(gate, sizeof gate, "%.*sdevice", (int)(dot + 1 - path), path);
        for (uint32_t i = 0; i < zx_config_n_rows; i++)
            if (strcmp(zx_config_rows[i].path, gate) == 0)
                json_object_set_new(at, "device", json_string("cpu"));
    }
    json_object_set_new(at, rest, leaf);
    char *text = json_dumps(root, 0);
    json_decref(root);
    return text;
}

// Another value than the default of a key, as JSON.
static const char *other_value(const zx_config_row *row)
{
    static char word[80];
    const bool on = strcmp(row->value, "true") == 0;
    switch (row->type) {
    case ZX_KEY_BOOL:
        return on ? "false" : "true";
    case ZX_KEY_INT:
    case ZX_KEY_SIGNED:
        return strcmp(row->value, "7") == 0 ? "8" : "7";
    case ZX_KEY_REAL:
        return "0.375";
    case ZX_KEY_TEXT:
    case ZX_KEY_TEXTS:
        return "\"other\"";
    case ZX_KEY_REALS:
        return "[0.5, 0.25]";
    case ZX_KEY_DTYPE:
        return strcmp(row->value, "fp16") == 0 ? "\"bf16\"" : "\"fp16\"";
    case ZX_KEY_CHOICE: { // the second word
        const char *bar = strchr(row->words, '|');
        snprintf(word, sizeof word, "\"%.*s\"", (int)strcspn(bar + 1, "|:"), bar + 1);
        return word;
    }
    case ZX_KEY_OBJECT:
    case ZX_KEY_SWITCH:
        return "{\"enabled\": true}";
    default:
        return "1";
    }
}

static bool is_refused(const reading *r, const char *key)
{
    for (uint32_t i = 0; i < r->err.n_causes && i < ZX_ERR_KEPT; i++) {
        const char *at = strstr(r->err.cause[i], key);
        if (at != NULL && strstr(at, " is not supported: ") != NULL) return true;
    }
    return false;
}

// What the table calls refused or without effect is said to be, wherever another value is given.
static void verdicts_are_said(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (uint32_t i = 0; i < zx_config_n_rows; i++) {
        const zx_config_row *row = &zx_config_rows[i];
        if (row->verdict == ZX_VERDICT_HONOUR || row->verdict == ZX_VERDICT_SILENT ||
            row->verdict == ZX_VERDICT_OLD)
            continue;
        reading r;
        char *json = alone(row->path, other_value(row));
        read_config(json, &r);
        const bool refuses =
            row->verdict == ZX_VERDICT_REFUSE || row->verdict == ZX_VERDICT_REFUSE_OVER_1;
        if (refuses && !is_refused(&r, row->path)) fail_msg("taken: %s", json);
        if (!refuses && find_note(&r, ": no effect: ", row->path) == NULL)
            fail_msg("nothing is said of %s", json);
        free(json);
        close_reading(&r);
        n++;
    }
    assert_true(n > 100);
}

// ---- sections -----------------------------------------------------------------------------------

static const struct section_row {
    const char *name, *json;
    const char *says; // NULL: nothing
} sections[] = {
    {"fp16 without enabled", "{\"fp16\": {\"loss_scale\": 128}}",
     "z: fp16 has no effect: it doesn't say \"enabled\""},
    {"fp16 that is off", "{\"fp16\": {\"enabled\": false, \"loss_scale\": 128}}", NULL},
    {"fp16 left to Hugging Face", "{\"fp16\": {\"enabled\": \"auto\", \"loss_scale\": 128}}", NULL},
    {"fp16 that is on", "{\"fp16\": {\"enabled\": true, \"loss_scale\": 128}}", NULL},
    {"an empty one", "{\"fp16\": {}}", NULL},
    {"by its other name", "{\"bfloat16\": {\"check_grad_overflow\": false}}",
     "z: bf16 has no effect"},
    {"a monitor's", "{\"tensorboard\": {\"output_path\": \"logs\"}}",
     "z: tensorboard has no effect: it doesn't say \"enabled\""},
    {"one that would be refused", "{\"elasticity\": {\"min_gpus\": 2}}",
     "z: elasticity has no effect"},
    {"offload of nothing", "{\"zero_optimization\": {\"offload_param\": {\"buffer_count\": 3}}}",
     "z: zero_optimization.offload_param has no effect: it doesn't say \"device\""},
};

static void test_section(void **state)
{
    const struct section_row *row = *state;
    reading r;
    read_config(row->json, &r);
    const char *said = find_note(&r, " has no effect: it doesn't say ", "");
    assert_zx_ok(r.err.code, &r.err);
    if (row->says == NULL && said != NULL) fail_msg("said: %s", said);
    if (row->says != NULL && (said == NULL || strncmp(said, row->says, strlen(row->says)) != 0))
        fail_msg("said: %s", said != NULL ? said : "nothing");
    close_reading(&r);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + ZX_COUNT(sections) + 2];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].key, test_row, &rows[i]);
    for (size_t i = 0; i < ZX_COUNT(sections); i++)
        tests[n++] = zx_case(sections[i].name, test_section, &sections[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_rule_has_a_row);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(verdicts_are_said);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
