// onnx_file.c - an ONNX file becomes a decoded ModelProto whose weights are still in the file.
// SPDX-License-Identifier: Apache-2.0
#include "proto/onnx_file.h"

#include <inttypes.h>
#include <string.h>

#include "proto/onnx_inner.h"

#define IR_FIRST 3 // the first with operator sets as they are today

static const struct { // what people hand over in place of an ONNX file
    uint32_t at, n;
    const char *bytes, *what, *hint;
} lookalikes[] = {
    {0, 4, "PK\3\4", "a zip archive, as PyTorch's .pt and .pth files are",
     "export the model with torch.onnx.export; a .pt file has weights, but no graph"},
    {0, 2, "\x80\2", "a Python pickle, as old PyTorch files are",
     "export the model with torch.onnx.export; zerox runs no code from files"},
    {0, 2, "\x80\4", "a Python pickle",
     "export the model with torch.onnx.export; zerox runs no code from files"},
    {0, 4, "GGUF", "a GGUF file", "a GGUF file has weights, but no graph: export an ONNX file"},
    {0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes", "convert it with tf2onnx"},
    {4, 4, "TFL3", "a TensorFlow Lite file", "convert it with tf2onnx"},
    {4, 4, "ORTM", "an ONNX Runtime file (.ort)", "use the .onnx file that it was made from"},
    {8, 1, "{", "a .safetensors file",
     "a .safetensors file has weights, but no graph: export an ONNX file"},
    {0, 6, "\x93NUMPY", "a .npy array", "the model comes first, arrays by --data INPUT=FILE.npy"},
    {0, 19, "version https://git-", "a Git LFS pointer, not the file itself",
     "fetch the file: git lfs pull"},
    {0, 11, "ir_version:", "an ONNX model as text",
     "convert it to the binary form: onnx.save(onnx.load(path, format=\"textproto\"), out)"},
    {0, 1, "{", "JSON text", "the model comes first, the configuration by --config"},
};

static zx_status not_onnx(const unsigned char *bytes, uint64_t n, zx_err *err)
{
    for (uint32_t i = 0; i < ZX_COUNT(lookalikes); i++) {
        if (n < lookalikes[i].at + lookalikes[i].n ||
            memcmp(bytes + lookalikes[i].at, lookalikes[i].bytes, lookalikes[i].n) != 0)
            continue;
        zx_err_hint(err, "%s", lookalikes[i].hint);
        return ZX_FAIL(err, ZX_E_FORMAT, "not an ONNX model: this is %s", lookalikes[i].what);
    }
    zx_err_hint(err, "is this the .onnx file, and whole? export or download it again");
    return ZX_E_FORMAT;
}

static void *arena_alloc(void *mem, size_t size)
{
    return zx_arena_alloc(mem, size, 1, 16);
}

static void arena_free(void *mem ZX_UNUSED, void *bytes ZX_UNUSED)
{
}

static zx_status check_model(const Onnx__ModelProto *m, zx_err *err)
{
    if (m->graph == NULL) return ZX_FAIL(err, ZX_E_FORMAT, "not an ONNX model: it has no graph");
    if (!m->has_ir_version)
        return ZX_FAIL(err, ZX_E_FORMAT, "not an ONNX model: it has no ir_version");
    if (m->ir_version < IR_FIRST) {
        zx_err_hint(err, "convert it with onnx.version_converter, or export it again");
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "IR version %" PRId64 " is too old, %d is the oldest",
                       m->ir_version, IR_FIRST);
    }
    if (m->n_opset_import == 0)
        return ZX_FAIL(err, ZX_E_FORMAT, "it names no operator set: the file was cut off?");
    return ZX_OK;
}

static zx_status decode(zx_onnx_file *f, const unsigned char *bytes, uint64_t n, zx_err *err)
{
    zx_wire wire;
    struct zx_onnx_inner *inner = f->inner;
    if (n == 0) {
        zx_err_hint(err, "is this the .onnx file, and whole? export or download it again");
        return ZX_FAIL(err, ZX_E_FORMAT, "the file is empty");
    }
    zx_status st = zx_wire_cut(&onnx__model_proto__descriptor, &onnx__tensor_proto__descriptor,
                               bytes, n, inner->mem, &wire, err);
    if (st == ZX_OK) {
        ProtobufCAllocator allocator = {arena_alloc, arena_free, inner->mem};
        f->model = onnx__model_proto__unpack(&allocator, wire.n, wire.bytes);
        inner->n_payloads = wire.n_payloads;
        inner->payloads = wire.payloads;
        st = f->model != NULL ? check_model(f->model, err)
                              : ZX_FAIL(err, ZX_E_FORMAT, "not an ONNX model: it can't be decoded");
    }
    zx_wire_free(&wire);
    if (st != ZX_E_FORMAT) return st;
    zx_err why = {0};
    not_onnx(bytes, n, &why); // a familiar stranger is a better message than what was found in it
    if (why.n_causes > 0) *err = (zx_err){0};
    zx_err_merge(err, &why);
    zx_err_hint(err, "%s", why.hint);
    return st;
}

static void make(zx_onnx_file *f, const char *path, zx_arena *mem)
{
    const char *slash = strrchr(path, '/');
    *f = (zx_onnx_file){.path = zx_arena_str(mem, path),
                        .inner = ZX_NEW(mem, struct zx_onnx_inner, 1)};
    f->inner->mem = mem;
    if (slash == NULL)
        f->inner->folder = ".";
    else
        f->inner->folder = slash == path ? "/" : zx_arena_strn(mem, path, (size_t)(slash - path));
}

zx_status zx_onnx_open(zx_onnx_file *f, const char *path, zx_arena *mem, zx_err *err)
{
    make(f, path, mem);
    ZX_TRY(zx_mapfile_open(&f->inner->file, path, err));
    const zx_status st = decode(f, f->inner->file.bytes, f->inner->file.size, err);
    if (st != ZX_OK) zx_err_in(err, "%s", path);
    return st;
}

zx_status zx_onnx_open_bytes(zx_onnx_file *f, const char *path, const void *bytes, uint64_t n,
                             zx_arena *mem, zx_err *err)
{
    make(f, path, mem);
    f->inner->folder = NULL;
    const zx_status st = decode(f, bytes, n, err);
    if (st != ZX_OK) zx_err_in(err, "%s", path);
    return st;
}

void zx_onnx_close(zx_onnx_file *f)
{
    if (f->inner) {
        for (uint32_t i = 0; i < f->inner->n_sides; i++) zx_mapfile_close(&f->inner->sides[i].file);
        zx_mapfile_close(&f->inner->file);
    }
    *f = (zx_onnx_file){0};
}

const char *zx_onnx_meta(Onnx__StringStringEntryProto *const *list, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (list[i]->key != NULL && strcmp(list[i]->key, key) == 0)
            return list[i]->value != NULL ? list[i]->value : "";
    return NULL;
}
