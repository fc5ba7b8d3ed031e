// convert_onnx.h - a model with other weights: a copy of an ONNX file in which the bytes of its
// initializers are those of given tensors.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CONVERT_ONNX_H
#define ZX_RUNTIME_CONVERT_ONNX_H

#include "runtime/tensors.h"

// Writes `model` to `to`, some MiB at a time. Every tensor of `from` that is no optimizer state has
// to be an initializer of that name (or alias), type and shape whose bytes are in the file itself:
// E_DATA with each that isn't. *n: how many were written.
zx_status zx_convert_onnx(zx_tensors *from, const char *model, const char *to, zx_arena *mem,
                          uint32_t *n, zx_err *err);

#endif
