// onnx_write.h - an ONNX model put together node by node, and its bytes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_PROTO_ONNX_WRITE_H
#define ZX_PROTO_ONNX_WRITE_H

#include "graph/base/arena.h"
#include "graph/base/tensor.h"
#include "graph/base/text.h"
#include "onnx.pb-c.h" // made from proto/onnx.proto by protoc --c_out at build time

// The model under way. Everything lives in `mem`; texts that are passed in are copied.
typedef struct zx_onnx_out {
    zx_arena *mem;
    Onnx__ModelProto *model;
    uint32_t cap_nodes, cap_initializers, cap_inputs, cap_outputs, cap_opsets;
} zx_onnx_out;

// IR version 10 and operator set 20: what PyTorch's exporter writes, and most tools read.
void zx_onnx_begin(zx_onnx_out *o, zx_arena *mem, const char *graph_name);
// The version of a domain's operator set, another one than before or a further one.
void zx_onnx_opset(zx_onnx_out *o, const char *domain, int64_t version);

// A node at the end of the graph. NULL or "" among `in`: an optional input that is left out.
Onnx__NodeProto *zx_onnx_node(zx_onnx_out *o, const char *op, const char *name, uint32_t n_in,
                              const char *const *in, uint32_t n_out, const char *const *out);
void zx_onnx_node_int(zx_onnx_out *o, Onnx__NodeProto *node, const char *name, int64_t v);
void zx_onnx_node_ints(zx_onnx_out *o, Onnx__NodeProto *node, const char *name, uint32_t n,
                       const int64_t *v);
void zx_onnx_node_float(zx_onnx_out *o, Onnx__NodeProto *node, const char *name, float v);
void zx_onnx_node_text(zx_onnx_out *o, Onnx__NodeProto *node, const char *name, const char *v);
// A tensor as an attribute, its bytes copied.
void zx_onnx_node_tensor(zx_onnx_out *o, Onnx__NodeProto *node, const char *name,
                         const zx_type *type, const void *data);
// Whose operator it is, where it isn't the standard's. The model then imports that version of it.
void zx_onnx_node_domain(zx_onnx_out *o, Onnx__NodeProto *node, const char *domain,
                         int64_t version);
void zx_onnx_node_meta(zx_onnx_out *o, Onnx__NodeProto *node, const char *key, const char *value);

// An initialiser, its bytes copied. Returns the name as the model keeps it. A name that is there
// already is returned and nothing added: constants of one name must be equal.
const char *zx_onnx_initializer(zx_onnx_out *o, const char *name, const zx_type *type,
                                const void *data);

// An input or output of the graph: dims[i] where it is >= 0, else the symbol symbols[i].
void zx_onnx_input(zx_onnx_out *o, const char *name, zx_dtype dtype, uint32_t rank,
                   const int64_t *dims, const char *const *symbols);
void zx_onnx_output(zx_onnx_out *o, const char *name, zx_dtype dtype, uint32_t rank,
                    const int64_t *dims, const char *const *symbols);

// The file's bytes, appended to *out. E_UNSUPPORTED above 2 GiB.
zx_status zx_onnx_pack(const zx_onnx_out *o, zx_text *out, zx_err *err);

#endif
