// data_source.h - one source of samples: what --data's right-hand side says, opened.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_DATA_SOURCE_H
#define ZX_RUNTIME_DATA_SOURCE_H

#include "graph/base/arena.h"
#include "graph/base/tensor.h"
#include "proto/mapfile.h"
#include "proto/npy.h"

typedef enum zx_data_kind {
    ZX_SOURCE_NONE,
    ZX_SOURCE_NPY,    // axis 0 = samples
    ZX_SOURCE_TOKENS, // .bin or text, cut into windows
    ZX_SOURCE_COPY,   // of another input
    ZX_SOURCE_ONES,
    ZX_SOURCE_ZEROS,
    ZX_SOURCE_ARANGE, // the index along the last axis
    ZX_SOURCE_CONST,
    ZX_SOURCE_SYNTHETIC,
    ZX_SOURCE_LABELS, // of the bare `--data FILE`: copy of the tokens or one token on, by the graph
} zx_data_kind;

typedef struct zx_data_source {
    zx_data_kind kind;
    const char *text; // as written, for messages
    const char *path; // NPY, TOKENS
    bool next;        // windows begin one token on
    bool wide;        // :u32
    const char *copy_of;
    double value; // CONST
    zx_npy npy;
    zx_mapfile map;
    zx_dtype dtype; // NPY, TOKENS: of the file
    const unsigned char *data;
    uint64_t n_tokens;
} zx_data_source;

// Reads SOURCE; a relative file is relative to `dir` ("." for the command line). Nothing is opened.
zx_status zx_data_source_parse(const char *text, const char *dir, zx_arena *mem,
                               zx_data_source *out, zx_err *err);
zx_status zx_data_source_open(zx_data_source *s, zx_err *err);
void zx_data_source_close(zx_data_source *s);
bool zx_data_source_is_file(const zx_data_source *s);

// ---- elements -----------------------------------------------------------------------------------
// Whether every value of `from` is one of `to`, by their types alone.
bool zx_data_type_fits(zx_dtype from, zx_dtype to);
// Whether the n integers at `data` (any alignment) all fit in `to`; *at: the first that doesn't.
bool zx_data_values_fit(const unsigned char *data, zx_dtype from, uint64_t n, zx_dtype to,
                        uint64_t *at);
int64_t zx_data_load(const unsigned char *data, zx_dtype from, uint64_t i);
// n elements of `from` at any alignment to `to`: the same type, integers to integers, F16 to F32.
void zx_data_convert(void *to_data, zx_dtype to, const unsigned char *data, zx_dtype from,
                     uint64_t n);
// v stored as element i of an array of type t.
void zx_data_store(void *data, zx_dtype t, uint64_t i, double v);

#endif
