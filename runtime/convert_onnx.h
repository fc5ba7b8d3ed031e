// convert_onnx.h - a model with other weights: a copy of an ONNX file in which the bytes of its
// initializers are those of given tensors.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CONVERT_ONNX_H
#define ZX_RUNTIME_CONVERT_ONNX_H

#include "runtime/tensors.h"

// Writes `model` to `to`, some MiB at a time. Every tensor of `from` that is no optimizer state has
// to be an initializer of that name (or alias), type and shape, or what a node makes anew: E_DATA
// with each that isn't. *n: how many were written; *beside: where one isn't in the file itself all
// values are in `to`.data, which `force` writes over.
zx_status zx_convert_onnx(zx_tensors *from, const char *model, const char *to, bool force,
                          zx_arena *mem, uint32_t *n, bool *beside, zx_err *err);

#endif
