// config_explain.c - a config as it was understood: every value and where it came from, for people
// and for programs. Each key of the file stands in one of the lists.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "runtime/config.h"
#include "runtime/config_row.h"

// Tokens of services aren't shown to anybody.
static bool is_secret(const zx_config_row *row)
{
    const size_t n = strlen(row->path);
    return n > 4 && strcmp(row->path + n - 4, "_key") == 0;
}

static void put_shown(zx_text *out, const zx_config_row *row, const zx_config_value *v)
{
    if (v->later)
        zx_text_put(out, "null");
    else if (is_secret(row) && v->has)
        zx_text_put(out, "\"(hidden)\"");
    else
        zx_config_put_value(out, row, v);
}

// Whether the row is shown in the list of `state`; a value that is silent, where the file has it.
static bool is_shown(const zx_config *c, uint32_t i, zx_config_state state)
{
    const zx_config_value *v = &c->values[i];
    if (zx_config_judge(c, i) != state) return false;
    if (state == ZX_STATE_TAKEN) return v->has || v->from == ZX_FROM_AUTO;
    return v->from == ZX_FROM_FILE || v->from == ZX_FROM_AUTO;
}

static uint32_t count(const zx_config *c, zx_config_state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < zx_config_n_rows; i++) n += is_shown(c, i, state);
    return n;
}

// ---- lists --------------------------------------------------------------------------------------

static const struct {
    zx_config_state state;
    const char *head, *json;
} lists[] = {
    {ZX_STATE_TAKEN, "values", "values"},
    {ZX_STATE_MAPPED, "old forms", "mapped"},
    {ZX_STATE_IDLE, "no effect", "no_effect"},
    {ZX_STATE_OFF, "in a section that is off", "off"},
    {ZX_STATE_SILENT, "as it is anyway", "as_it_is"},
    {ZX_STATE_REFUSED, "refused", "refused"},
};

static const char *why(const zx_config_row *row, const zx_config_value *v, zx_config_state state)
{
    if (v->idle != NULL) return v->idle;
    if (state == ZX_STATE_TAKEN || v->from == ZX_FROM_AUTO) return v->why;
    return state == ZX_STATE_OFF || state == ZX_STATE_SILENT ? NULL : zx_config_reason(row);
}

static void put_origin(zx_text *out, const zx_config *c, uint32_t i, zx_config_state state)
{
    const zx_config_row *row = &zx_config_rows[i];
    const zx_config_value *v = &c->values[i];
    const char *words = why(row, v, state);
    if (state == ZX_STATE_MAPPED) zx_text_put(out, "means ");
    if (state == ZX_STATE_TAKEN || v->from == ZX_FROM_AUTO)
        zx_text_put(out, v->from == ZX_FROM_AUTO ? "\"%s\"" : "%s", zx_config_from_text(v->from));
    if ((state == ZX_STATE_TAKEN || v->from == ZX_FROM_AUTO) && words != NULL)
        zx_text_put(out, ": ");
    if (words != NULL) zx_text_put(out, "%s", words);
    if (v->as != NULL) zx_text_put(out, "%s(as %s)", out->at[out->n - 1] == ' ' ? "" : " ", v->as);
}

static void put_list(zx_text *out, const zx_config *c, zx_config_state state)
{
    int wide = 0, deep = 0;
    for (uint32_t i = 0; i < zx_config_n_rows; i++) {
        if (!is_shown(c, i, state)) continue;
        zx_text value = {0};
        put_shown(&value, &zx_config_rows[i], &c->values[i]);
        if ((int)strlen(zx_config_rows[i].path) > wide) wide = (int)strlen(zx_config_rows[i].path);
        if ((int)value.n > deep && value.n <= 24) deep = (int)value.n;
        zx_text_free(&value);
    }
    for (uint32_t i = 0; i < zx_config_n_rows; i++) {
        if (!is_shown(c, i, state)) continue;
        zx_text value = {0};
        put_shown(&value, &zx_config_rows[i], &c->values[i]);
        const bool none = !c->values[i].has || c->values[i].later; // nothing is what null would say
        zx_text_put(out, "  %-*s  %-*s  ", wide, zx_config_rows[i].path, deep,
                    none ? "-" : zx_text_safe(c->mem, value.at));
        put_origin(out, c, i, state);
        while (out->at[out->n - 1] == ' ') out->at[--out->n] = '\0';
        zx_text_put(out, "\n");
        zx_text_free(&value);
    }
}

void zx_config_explain(const zx_config *c, const zx_err *err, zx_text *out)
{
    for (size_t k = 0; k < ZX_COUNT(lists); k++) {
        if (count(c, lists[k].state) == 0) continue;
        zx_text_put(out, "%s:\n", lists[k].head);
        put_list(out, c, lists[k].state);
    }
    if (c->n_unknown > 0) zx_text_put(out, "unknown:\n");
    for (uint32_t i = 0; i < c->n_unknown; i++) zx_text_put(out, "  %s\n", c->unknown[i]);
    zx_text_put(out, "would be refused: %s\n", err->code == ZX_OK ? "nothing" : "see below");
}

// ---- for programs -------------------------------------------------------------------------------

static void put_json_row(zx_text *out, const zx_config *c, uint32_t i, zx_config_state state)
{
    const zx_config_row *row = &zx_config_rows[i];
    const zx_config_value *v = &c->values[i];
    const char *words = why(row, v, state);
    zx_text_put(out, "\n    \"%s\": {\"value\": ", row->path);
    put_shown(out, row, v);
    zx_text_put(out, ", \"from\": \"%s\"", zx_config_from_text(v->from));
    if (v->as != NULL) {
        zx_text_put(out, ", \"as\": ");
        zx_text_json(out, v->as);
    }
    if (words != NULL) {
        zx_text_put(out, ", \"%s\": ", state == ZX_STATE_MAPPED ? "means" : "why");
        zx_text_json(out, words);
    }
    zx_text_put(out, "}");
}

static void put_sentences(zx_text *out, const char *name, const char *const *list, uint32_t n)
{
    zx_text_put(out, ",\n  \"%s\": [", name);
    for (uint32_t i = 0; i < n; i++) {
        zx_text_put(out, "%s\n    ", i > 0 ? "," : "");
        zx_text_json(out, list[i]);
    }
    zx_text_put(out, "%s]", n > 0 ? "\n  " : "");
}

void zx_config_explain_json(const zx_config *c, const char *model, uint32_t ranks,
                            const zx_err *err, zx_text *out)
{
    const char *causes[ZX_ERR_KEPT];
    const uint32_t n = err->n_causes < ZX_ERR_KEPT ? err->n_causes : ZX_ERR_KEPT;
    for (uint32_t i = 0; i < n; i++) causes[i] = err->cause[i];
    zx_text_put(out, "{\n  \"file\": ");
    zx_text_json(out, c->path);
    zx_text_put(out, ",\n  \"model\": ");
    if (model != NULL)
        zx_text_json(out, model);
    else
        zx_text_put(out, "null");
    zx_text_put(out, ",\n  \"ranks\": %u", ranks);
    for (size_t k = 0; k < ZX_COUNT(lists); k++) {
        const char *comma = "";
        zx_text_put(out, ",\n  \"%s\": {", lists[k].json);
        for (uint32_t i = 0; i < zx_config_n_rows; i++) {
            if (!is_shown(c, i, lists[k].state)) continue;
            zx_text_put(out, "%s", comma);
            put_json_row(out, c, i, lists[k].state);
            comma = ",";
        }
        zx_text_put(out, "%s}", comma[0] != '\0' ? "\n  " : "");
    }
    put_sentences(out, "unknown", c->unknown, c->n_unknown);
    put_sentences(out, "errors", causes, n);
    zx_text_put(out, "\n}\n");
}
