// err.h - how a function says that it failed, and why.
//
// A failure is a status and at least one cause, a sentence that a user can act on. Causes gather
// context on their way up, from the inside out: "MatMul inner sizes 3 and 4" becomes
// "model.onnx: node 'fc1' (h.3): MatMul inner sizes 3 and 4".
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_BASE_ERR_H
#define ZX_BASE_ERR_H

#include "graph/base/zx.h"

ZX_BEGIN_C

//    name           exit code, what
#define ZX_STATUS_MAP(X)                                                                           \
    X(OK, 0, "ok")                                                                                 \
    X(E_IO, 1, "file or socket failed")                                                            \
    X(E_USAGE, 2, "bad command line or configuration")                                             \
    X(E_FORMAT, 3, "malformed input")                                                              \
    X(E_UNSUPPORTED, 3, "well formed, not supported")                                              \
    X(E_SHAPE, 3, "shapes or types do not fit")                                                    \
    X(E_DATA, 3, "data does not fit the model")                                                    \
    X(E_BUDGET, 4, "does not fit the memory budget")                                               \
    X(E_DIVERGED, 5, "loss or gradient is not finite")                                             \
    X(E_COMM, 6, "a peer or a collective failed")                                                  \
    X(E_DEVICE, 1, "device or library call failed")

typedef enum zx_status {
#define X(name, exit_code, text) ZX_##name,
    ZX_STATUS_MAP(X)
#undef X
        ZX_STATUS_COUNT
} zx_status;

#define ZX_ERR_KEPT 20 // causes that are kept with their text; further ones are counted
#define ZX_ERR_TEXT 600

// Zeroed is "no error yet". About 13 KiB: one per command, on the stack or in a session.
typedef struct zx_err {
    zx_status code; // that of the first cause
    const char *file;
    int line;
    uint32_t n_causes; // may exceed ZX_ERR_KEPT
    char cause[ZX_ERR_KEPT][ZX_ERR_TEXT];
    char hint[ZX_ERR_TEXT]; // what to try, without "try: "; "" where there is nothing to say
} zx_err;

const char *zx_status_text(zx_status code);
int zx_status_exit(zx_status code); // the process's exit code, FORMATS 6.4

// Adds a cause and returns `code`: return ZX_FAIL(err, ZX_E_SHAPE, "rank %d", r);
// `err` may be NULL: then only the code is returned.
#define ZX_FAIL(err, code, ...) zx_err_set((err), (code), __FILE__, __LINE__, __VA_ARGS__)
zx_status zx_err_set(zx_err *err, zx_status code, const char *file, int line, const char *fmt, ...)
    ZX_PRINTF(5, 6);

// Says where we were: puts "PREFIX: " before every cause kept so far.
void zx_err_in(zx_err *err, const char *fmt, ...) ZX_PRINTF(2, 3);

// What to try; the first one given stays.
void zx_err_hint(zx_err *err, const char *fmt, ...) ZX_PRINTF(2, 3);

// Appends the causes of `more` (with its hint, if `err` has none) and returns err's code.
zx_status zx_err_merge(zx_err *err, const zx_err *more);

#define ZX_TRY(call)                                                                               \
    do {                                                                                           \
        const zx_status try_ = (call);                                                             \
        if (try_ != ZX_OK) return try_;                                                            \
    } while (0)

ZX_END_C

#endif
