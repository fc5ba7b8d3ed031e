// config.h - the DeepSpeed JSON file of a run: read, judged by the rows of config.def, resolved.
//
// Every key has a value in the end: the file's, the command line's, the model's or the row's
// default; where it came from is kept and written into the resolved config.json, which is itself a
// config that gives the same run.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CONFIG_H
#define ZX_RUNTIME_CONFIG_H

#include "graph/import.h"
#include "graph/precision.h"
#include "proto/json.h"
#include "runtime/loss_scale.h"
#include "runtime/session.h"

typedef enum zx_config_from {
    ZX_FROM_DEFAULT,
    ZX_FROM_FILE,
    ZX_FROM_AUTO,    // the file says "auto"
    ZX_FROM_COMMAND, // the command line
    ZX_FROM_MODEL,   // the graph's fixed batch
    ZX_FROM_OTHERS   // follows from other keys
} zx_config_from;
const char *zx_config_from_text(zx_config_from from); // "default", "file", ...

typedef struct zx_config_value {
    zx_config_from from;
    bool has;   // false: there is no value, not even a default
    bool later; // "auto" that only the run's steps or the model tell; what is here is a default
    bool b;     // which member counts is the row's type
    int64_t i;
    double r;
    const char *text;
    uint32_t n;
    const char *const *texts;
    const double *reals;
    const json_t *json; // owned by the config
    const char *as;     // its name in the file, where that is another one or an old form; NULL
    const char *why;    // of a value that isn't the file's own, in words; NULL
    const char *idle;   // why it has no effect beside the others of its config; NULL: it has one
} zx_config_value;

typedef struct zx_config {
    const char *path;        // NULL: there is no file
    const char *dir;         // where the file is, "." without one; data paths are relative to it
    json_t *root, *added;    // added: an array that holds what zx_config_set_json took over
    zx_config_value *values; // by row of config.def
    const char *whose_ranks; // who says how many ranks there are, for messages; NULL
    uint32_t n_unknown, cap_unknown;
    const char **unknown; // what was said of keys that aren't in config.def
    zx_arena *mem;
} zx_config;

// Reads and judges a file; path NULL: {"zero_optimization": {"stage": 3}}. All that is wrong is
// said at once: unknown keys with the nearest name (a note each with allow_unknown), wrong types,
// values that this version refuses. Keys without effect become notes. E_USAGE.
zx_status zx_config_read(const char *path, bool allow_unknown, zx_arena *mem, zx_config *out,
                         zx_notes *notes, zx_err *err);
// The same from text; `path` is what messages call it.
zx_status zx_config_parse(const char *path, const char *text, size_t n, bool allow_unknown,
                          zx_arena *mem, zx_config *out, zx_notes *notes, zx_err *err);
void zx_config_close(zx_config *c); // accepts a zeroed or half-read config

// A key's value, by its path in config.def (one that isn't there is a bug).
const zx_config_value *zx_config_get(const zx_config *c, const char *path);
void zx_config_set_int(zx_config *c, const char *path, int64_t i, zx_config_from from);
// Of an OBJECT; takes `json` over.
void zx_config_set_json(zx_config *c, const char *path, json_t *json, zx_config_from from);
void zx_config_set_text(zx_config *c, const char *path, const char *text, zx_config_from from);
// After all are resolved: says of each stated value that others leave nothing to do
// (config_idle.c).
void zx_config_idle(zx_config *c, zx_notes *notes);
void zx_config_set_why(zx_config *c, const char *path, const char *why);

// ---- resolved (config_resolve.c) ----------------------------------------------------------------

typedef struct zx_batch {
    int64_t total;      // samples of a step over all ranks
    int64_t micro;      // samples of a micro-batch
    int64_t accumulate; // micro-batches of a rank and step
} zx_batch;

// The batch triad (CONFIG 4.1). graph_batch is the fixed first dimension of the model's inputs, 0
// where it is symbolic. Writes the three keys' values back into the config. E_USAGE with all four
// numbers where they contradict.
zx_status zx_config_batch(zx_config *c, uint32_t ranks, int64_t graph_batch, zx_batch *out,
                          zx_err *err);
zx_status zx_config_optim(zx_config *c, zx_optim *optim, double *clip, zx_err *err);
// optim->schedule, of the optimizer that was resolved (config_schedule.c); what depends on the
// number of steps ("auto") is filled once the run is known, which also writes it into the config.
zx_status zx_config_schedule(zx_config *c, zx_optim *optim, zx_err *err);
zx_status zx_config_schedule_steps(zx_config *c, uint64_t steps, zx_optim *optim, zx_notes *notes,
                                   zx_err *err);
// The precision of a plan, and the bytes of an element of its gradients' accumulators; 0: as the
// parameters'.
zx_status zx_config_precision(const zx_config *c, zx_precision *out, uint32_t *accumulate_bytes,
                              zx_err *err);
// How fp16 scales its loss; a scale that stays 1 for other precisions.
zx_status zx_config_loss_scale(const zx_config *c, zx_loss_scale_rule *out, zx_err *err);
// Fills what the config says about import; the rest of `o` stays.
zx_status zx_config_import(const zx_config *c, zx_import_options *o, zx_err *err);

// "optimizer AdamW, lr 0.001, ...", a line of the batch and one of what nobody chose, for the
// header.
void zx_config_describe(const zx_config *c, zx_text *out);
// The resolved config.json. `run` has further members, already JSON ("\"ranks\": 2, ..."), for
// zerox.run.
void zx_config_write(const zx_config *c, const char *run, zx_text *out);
// Every key with its default and meaning, for the documentation.
void zx_config_keys(zx_text *out);

// ---- shown (config_explain.c, config_schema.c)
// ---------------------------------------------------

// Every value with where it came from; then what was mapped, what has no effect, what is refused.
// Of a config that couldn't be resolved as far as it was; `err` has what was said of it.
void zx_config_explain(const zx_config *c, const zx_err *err, zx_text *out);
void zx_config_explain_json(const zx_config *c, const char *model, uint32_t ranks,
                            const zx_err *err, zx_text *out);
// The keys as a JSON Schema, draft 2020-12.
void zx_config_schema(zx_text *out);

#endif
