// models.h - small ONNX models from a line of text each, for tables of what must be refused.
//
//   "s:i64[2]=-1,3; h=Reshape(logits,s){allowzero=0}"
//
// Statements make initialisers (the last value is repeated to fill the shape; `~` fills it with
// numbers between -0.5 and 0.5 that look like none in particular) or nodes; a node is named
// after its first output unless {name=...} says otherwise. Attributes: 3 is an integer, 1. a float,
// [1 2] integers, anything else text. Around them: x [2,4] · w [4,3] + b -> logits before, and the
// cross entropy of `h` (of logits where no statement makes h) with labels [2] -> loss after.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_BAD_MODELS_H
#define ZX_TESTS_BAD_MODELS_H

#include "proto/onnx_write.h"

typedef void model_break(zx_onnx_out *o); // changes what was put together

void model_text(zx_onnx_out *o, const char *text); // adds the statements
Onnx__NodeProto *model_node(zx_onnx_out *o, const char *name);
Onnx__TensorProto *model_tensor(zx_onnx_out *o, const char *name);
Onnx__TensorProto *model_external(zx_onnx_out *o, const char *tensor, const char *location,
                                  const char *offset, const char *length);
char *model_string(zx_onnx_out *o, const char *text);

// The model's bytes; the caller frees them with zx_text_free.
void model_make(const char *text, model_break *change, zx_text *bytes);
void model_write(const char *file, const char *text, model_break *change); // into bad_in
// x.npy and labels.npy of 12 samples for such models, into bad_in.
void model_data(void);

#endif
