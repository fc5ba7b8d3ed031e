// tensors.h - tensors that lie in files: a checkpoint, a .safetensors file, or several of them that
// an index in Hugging Face's form names. What show, convert and --init read.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_TENSORS_H
#define ZX_RUNTIME_TENSORS_H

#include "proto/safetensors.h"
#include "runtime/ckpt.h"

typedef struct zx_tensor_entry {
    const char *part; // "parameter", ...; of files that know no parts ""
    const char *name;
    zx_type type;
    uint32_t n_aliases; // that the file says
    const char *const *aliases;
    const unsigned char *data; // in a mapped file; NULL: in the checkpoint
} zx_tensor_entry;

typedef struct zx_tensors {
    const char *path; // what was opened: a checkpoint's folder, or a file
    uint32_t n;
    const zx_tensor_entry *at; // in the files' order
    bool is_ckpt;
    zx_ckpt ckpt;
    uint32_t n_files;
    zx_safe_file *files;
    const char **paths; // of them
    zx_arena *mem;
} zx_tensors;

// `path`: FILE.safetensors, an index (FILE.json), a folder with either, a checkpoint, or the folder
// of a run, whose newest whole checkpoint is taken, else its model.safetensors. A checkpoint's
// files are compared with their checksums where `verify`. E_FORMAT with a hint for files of
// PyTorch's.
zx_status zx_tensors_open(const char *path, bool verify, zx_arena *mem, zx_tensors *out,
                          zx_err *err);
void zx_tensors_close(zx_tensors *t); // accepts a zeroed one

// Elements [from, from + n) of tensor i as they are stored, or as float32 (of a float type).
zx_status zx_tensors_read(zx_tensors *t, uint32_t i, int64_t from, int64_t n, void *to,
                          zx_err *err);
zx_status zx_tensors_read_f32(zx_tensors *t, uint32_t i, int64_t from, int64_t n, float *to,
                              zx_err *err);
// The first one of that name, else alias, that is no optimizer state; ZX_NONE.
uint32_t zx_tensors_find(const zx_tensors *t, const char *name);
// Whether `path` is one of the files that are read, an index or a manifest included.
bool zx_tensors_reads(const zx_tensors *t, const char *path);
// Whether it is an optimizer's state.
bool zx_tensor_is_state(const zx_tensor_entry *e);

#endif
