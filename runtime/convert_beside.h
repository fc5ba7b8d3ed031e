// convert_beside.h - a model with other weights whose values lie in a file of their own beside it,
// as ONNX's external data. For convert_onnx.c alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CONVERT_BESIDE_H
#define ZX_RUNTIME_CONVERT_BESIDE_H

#include "proto/onnx_file.h"
#include "proto/onnx_places.h"
#include "runtime/outfile.h"
#include "runtime/tensors.h"

// The place of tensor `e` under one of its names; NULL: none.
const zx_onnx_place *zx_convert_place(const zx_onnx_place *places, uint32_t n,
                                      const zx_tensor_entry *e);
// E_DATA: `e` is not of that place's type and shape.
zx_status zx_convert_check(const zx_tensor_entry *e, const zx_type *there, zx_arena *mem,
                           zx_err *err);
// Elements of tensor i in its own type, some MiB at a time; chunk: ZX_CONVERT_CHUNK bytes.
#define ZX_CONVERT_CHUNK ((size_t)1 << 22)
zx_status zx_convert_put(zx_tensors *from, uint32_t i, unsigned char *chunk, zx_outfile *f,
                         zx_err *err);

// Writes `to` and `to`.data: the model that is open in `file` (its decoded message is changed),
// with all weights of `from` and all that lay in other files in the latter. A weight may be an
// initializer, or what a RandomNormal, RandomUniform or ConstantOfShape node makes: the node goes
// then. E_DATA with each weight that the model has not; E_USAGE for a `to`.data that is there,
// unless `force`, or that the model itself reads.
zx_status zx_convert_beside(zx_tensors *from, const zx_onnx_file *file, const zx_onnx_place *places,
                            uint32_t n_places, const char *to, bool force, zx_arena *mem,
                            uint32_t *n, zx_err *err);

#endif
