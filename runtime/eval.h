// eval.h - CPU kernels run once, on tensors at hand: how the import folds constants.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_EVAL_H
#define ZX_RUNTIME_EVAL_H

#include "graph/import.h"
#include "kernels/kernel.h"

// What zx_import is handed. Has no state: may be used from several threads. One thread a kernel, so
// that folding starts no thread pool. A fault (an index out of range, a division by zero) is
// E_DATA.
extern const zx_eval zx_cpu_eval;

#define ZX_FAULT_TEXT 128
// "label 12 is outside the 10 classes" into buf; returns buf.
const char *zx_fault_text(const zx_fault *f, char buf[ZX_FAULT_TEXT]);

#endif
