// config_row.h - the rows of config.def as the files that read and resolve a config see them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CONFIG_ROW_H
#define ZX_RUNTIME_CONFIG_ROW_H

#include <stdint.h>

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
    ZX_VERDICT_SILENT
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

#endif
