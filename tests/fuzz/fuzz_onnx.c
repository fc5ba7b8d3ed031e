// fuzz_onnx.c - any bytes as an ONNX model, all of its tensors read.
// With libFuzzer: clang -fsanitize=fuzzer,address,undefined. Without (ZX_FUZZ_FILES) it runs over
// the files that are named.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "proto/mapfile.h"
#include "proto/onnx_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void read_graph(const zx_onnx_file *f, const Onnx__GraphProto *g, zx_arena *mem)
{
    zx_type type;
    const void *data;
    zx_err err = {0};
    for (size_t i = 0; i < g->n_initializer; i++)
        zx_onnx_tensor(f, g->initializer[i], mem, &type, &data, &err);
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_attribute; k++) {
            const Onnx__AttributeProto *a = g->node[i]->attribute[k];
            if (a->t != NULL) zx_onnx_tensor(f, a->t, mem, &type, &data, &err);
            if (a->g != NULL) read_graph(f, a->g, mem);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_onnx_file f;
    if (zx_onnx_open_bytes(&f, "fuzz.onnx", bytes, n, &mem, &err) == ZX_OK)
        read_graph(&f, f.model->graph, &mem);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    return 0;
}

#ifdef ZX_FUZZ_FILES
int main(int n, char **paths)
{
    for (int i = 1; i < n; i++) {
        zx_mapfile m;
        zx_err err = {0};
        if (zx_mapfile_open(&m, paths[i], &err) != ZX_OK) {
            fprintf(stderr, "%s\n", err.cause[0]);
            return 1;
        }
        LLVMFuzzerTestOneInput(m.bytes, (size_t)m.size);
        zx_mapfile_close(&m);
    }
    return 0;
}
#endif
