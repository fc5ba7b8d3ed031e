// holds.h - what tests of the program's promises share: runs of it in a folder of their own, what
// they leave behind, and small models and data written on the spot.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_HOLDS_H
#define ZX_TESTS_HOLDS_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/onnx_write.h"
#include "proto/safetensors.h"
#include "tests/test.h"

// ---- runs --------------------------------------------------------------------------------------

// A group's setup and teardown: a temporary folder, entered and removed.
int holds_setup(void **state);
int holds_teardown(void **state);

// `zerox ARGS`, stdout and stderr in NAME.out and NAME.err. The exit code; 1000 + n: signal n.
int holds_zerox(const char *name, const char *fmt, ...) ZX_PRINTF(2, 3);
// `zerox train ARGS --out NAME`, which has to end well.
void holds_train(const char *name, const char *fmt, ...) ZX_PRINTF(2, 3);
// The same, started the way launchers do: `ranks` processes with RANK, WORLD_SIZE and so on.
void holds_launched(const char *name, uint32_t ranks, const char *fmt, ...) ZX_PRINTF(3, 4);
// `zerox plan ARGS --format json`, read. The caller's to json_decref.
json_t *holds_plan(const char *fmt, ...) ZX_PRINTF(1, 2);

char *holds_read(const char *path, size_t *n); // malloc'ed, a 0 behind it; fails the test if absent
void holds_write(const char *path, const void *bytes, size_t n);
bool holds_says(const char *path, const char *what); // the file has this text in it
bool holds_ran(const char *name);                    // there is such a run

// ---- what a run left ---------------------------------------------------------------------------

typedef struct holds_row { // of log.jsonl
    double loss, grad_norm, step_seconds, compute_seconds, exposed_seconds;
    uint64_t peak_bytes, resident_bytes;
} holds_row;
#define HOLDS_ROWS 64
// Rows of NAME/log.jsonl; returns how many.
uint32_t holds_log(const char *name, holds_row *rows);
// A number that NAME/config.json has under zerox.run, e.g. "planned_peak_bytes".
uint64_t holds_decided(const char *name, const char *key);

// Fails the test unless both runs logged the same losses and norms and saved the same bytes.
void holds_expect_same(const char *a, const char *b);

typedef struct holds_tensors { // a .safetensors file, open
    zx_arena mem;
    zx_safe_file file;
} holds_tensors;
void holds_open(holds_tensors *t, const char *fmt, ...) ZX_PRINTF(2, 3);
void holds_close(holds_tensors *t);
// The n floats of a tensor, copied to `to`; fails the test if it isn't there or of another size.
void holds_floats(const holds_tensors *t, const char *name, uint32_t n, float *to);

// ---- models and data ---------------------------------------------------------------------------

typedef struct holds_net { // an ONNX model under way
    zx_arena mem;
    zx_onnx_out out;
    uint32_t nodes;
} holds_net;
void holds_net_begin(holds_net *n);
void holds_net_input(holds_net *n, const char *name, zx_dtype t, uint32_t rank,
                     const int64_t *dims);
// A float initialiser. `kind` "PARAMETER" or "BUFFER": the exporter says so; NULL: it says nothing.
void holds_net_floats(holds_net *n, const char *name, const char *kind, uint32_t rank,
                      const int64_t *dims, const float *data);
void holds_net_ints(holds_net *n, const char *name, uint32_t count, const int64_t *data); // [count]
// A node with one output of the given name; inputs end with NULL.
Onnx__NodeProto *holds_net_node(holds_net *n, const char *op, const char *out, const char *a,
                                const char *b, const char *c);
// Writes the file, its only output the scalar `loss`; ends the net.
void holds_net_done(holds_net *n, const char *loss, const char *path);

// Of float32, int64 or uint8.
void holds_npy(const char *path, zx_dtype t, uint32_t rank, const int64_t *dims, const void *data);

#endif
