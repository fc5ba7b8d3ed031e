// config_row.h - the rows of config.def as the files that read and resolve a config see them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CONFIG_ROW_H
#define ZX_RUNTIME_CONFIG_ROW_H

#include "runtime/config.h"

typedef enum zx_key_type {
    ZX_KEY_BOOL,
    ZX_KEY_INT,
    ZX_KEY_SIGNED,
    ZX_KEY_REAL,
    ZX_KEY_TEXT,
    ZX_KEY_TEXTS,
    ZX_KEY_REALS,
    ZX_KEY_DTYPE,
    ZX_KEY_CHOICE,
    ZX_KEY_WORDS,
    ZX_KEY_OBJECT,
    ZX_KEY_SWITCH,
    ZX_KEY_ANY
} zx_key_type;

typedef enum zx_verdict {
    ZX_VERDICT_HONOUR,
    ZX_VERDICT_REFUSE,
    ZX_VERDICT_REFUSE_OVER_1,
    ZX_VERDICT_NOTHING,
    ZX_VERDICT_STEERS,
    ZX_VERDICT_SILENT,
    ZX_VERDICT_OLD
} zx_verdict;

typedef struct zx_config_row {
    const char *path, *other;
    zx_key_type type;
    const char *value; // the default as text, "" for none
    zx_verdict verdict;
    const char *words;
} zx_config_row;

extern const zx_config_row zx_config_rows[];
extern const uint32_t zx_config_n_rows;

// What becomes of a key. One that isn't in the file is TAKEN where it is honoured, else SILENT.
typedef enum zx_config_state {
    ZX_STATE_SILENT, // the value that there is anyway, or one without a word
    ZX_STATE_TAKEN,
    ZX_STATE_OFF, // its section is off
    ZX_STATE_IDLE,
    ZX_STATE_REFUSED,
    ZX_STATE_MAPPED // an old form: another key has its value
} zx_config_state;
zx_config_state zx_config_judge(const zx_config *c, uint32_t row);
// Whether a value is what holds where the file says nothing.
bool zx_config_is_default(const zx_config *c, uint32_t row);
extern const uint32_t zx_config_n_idle; // rules of zx_config_idle
// Notes the sections that have keys but neither "enabled" nor "device" (config_idle.c).
void zx_config_unswitched(const zx_config *c, const char *name, zx_notes *notes);
// Why a key has no effect or is refused; of an old form: what it means.
const char *zx_config_reason(const zx_config_row *row);
// "honoured", "refused otherwise", ...: a verdict as the documentation has it.
const char *zx_config_verdict_text(zx_verdict verdict);

void zx_config_default(const zx_config_row *row, zx_arena *mem, zx_config_value *out);
// Where the file says "auto" (config_auto.c).
void zx_config_auto(const zx_config_row *row, zx_arena *mem, zx_config_value *out);
// A value as JSON; null where there is none.
void zx_config_put_value(zx_text *out, const zx_config_row *row, const zx_config_value *v);

#endif
