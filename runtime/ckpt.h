// ckpt.h - checkpoints: a run between two steps as files, each rank's shards in one of its own.
//
// FOLDER/step-N/ has a .safetensors file a rank and manifest.json: which tensors there are, how
// they are cut, checksums, and where the run stands. It is made under another name and renamed
// when all of it is on disk; FOLDER/latest names the newest one, written last. So whatever happens
// while one is saved, the one before is there.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CKPT_H
#define ZX_RUNTIME_CKPT_H

#include "graph/graph.h"
#include "runtime/session.h"

#define ZX_CKPT_VERSION 1 // of the manifest; a reader refuses later ones

typedef uint64_t zx_state_U64;
typedef double zx_state_F64;
typedef struct zx_train_state {
#define ZX_TRAIN_STATE(type, name, absent) zx_state_##type name;
#include "runtime/train_state.def"
#undef ZX_TRAIN_STATE
} zx_train_state;

// A tensor is cut like a unit: rank r of n has elements [r*shard, (r+1)*shard), shard =
// ceil(count/ranks), as far as there are any.
typedef struct zx_ckpt_tensor {
    const char *part; // "parameter", "buffer", or an optimizer state: "exp_avg", ...
    const char *name;
    zx_type type;
    uint32_t n_aliases;
    const char *const *aliases; // other names of the same parameter
    zx_held held;               // in the session that it is saved from or read for
    const uint64_t *sums;       // of each rank's piece, XXH64
} zx_ckpt_tensor;

typedef struct zx_ckpt {
    const char *dir;
    uint32_t ranks, stage; // that saved it
    uint32_t n;
    const zx_ckpt_tensor *tensors;
    const char *optimizer;
    const char *model;   // its path then
    uint64_t model_hash; // zx_ckpt_model_hash
    zx_train_state state;
    struct zx_ckpt_file *files; // [ranks], of a checkpoint that is open for reading
    int fd;                     // of the file that was read last; < 0: none
    uint32_t fd_of;
    zx_arena *mem;
} zx_ckpt;

// Elements of a tensor of `count` that rank r of `ranks` has, from *from on.
int64_t zx_ckpt_piece(int64_t count, uint32_t ranks, uint32_t r, int64_t *from);
// What a session with this plan holds, as a checkpoint has it: parameters with their optimizer
// states, then buffers. `out` has names, types and places.
void zx_ckpt_list(const zx_graph *train, const zx_plan *plan, const zx_optim *optim, zx_arena *mem,
                  zx_ckpt *out);
// Of the names, types and operators of a forward graph.
uint64_t zx_ckpt_model_hash(const zx_graph *forward);

// ---- ckpt_manifest.c ----------------------------------------------------------------------------
void zx_ckpt_manifest_write(const zx_ckpt *c, zx_text *out);
// Every number is checked before it is used. E_FORMAT, E_UNSUPPORTED for a later version.
zx_status zx_ckpt_manifest_read(const char *bytes, size_t n, zx_arena *mem, zx_ckpt *out,
                                zx_err *err);
// The name of rank r's file, and that of a tensor in it.
const char *zx_ckpt_file_name(uint32_t r, uint32_t ranks, zx_arena *mem);
const char *zx_ckpt_tensor_name(const zx_ckpt_tensor *t, zx_arena *mem);

// ---- ckpt_save.c --------------------------------------------------------------------------------
typedef struct zx_ckpt_target { // on rank 0; the others take what it says
    const char *folder;         // that has the checkpoints; it is made
    uint64_t keep;              // of older ones so many stay less one; 0: all
    uint64_t before;            // step of the one before it in this run, or that it went on from
} zx_ckpt_target;

// All ranks call between two steps; `c` is zx_ckpt_list's, with state, model and so on. What is
// there of steps after `before` is set aside as step-N.aside. On failure nothing has
// changed. *name: what was written, on rank 0; *bytes: of all files, also of those that weren't.
zx_status zx_ckpt_save(zx_session *s, zx_world *world, const zx_ckpt *c,
                       const zx_ckpt_target *target, zx_arena *mem, const char **name,
                       uint64_t *bytes, zx_err *err);

// The same beside the steps: what a rank holds is copied to `copy` (zx_ckpt_copy_bytes), and a
// thread of its own writes that while the session goes on; copy NULL: it is written before begin
// returns. Once it is written on all ranks, or to wait for it, all call zx_ckpt_end, which
// publishes it and frees it. A rank has one at a time; c and target may go, the graph's names stay.
typedef struct zx_ckpt_saving zx_ckpt_saving;
uint64_t zx_ckpt_copy_bytes(const zx_ckpt *c, uint32_t ranks);
zx_status zx_ckpt_begin(zx_session *s, zx_world *world, const zx_ckpt *c,
                        const zx_ckpt_target *target, void *copy, zx_ckpt_saving **out,
                        zx_err *err);
bool zx_ckpt_written(const zx_ckpt_saving *v); // this rank's part
zx_status zx_ckpt_end(zx_ckpt_saving *v, zx_world *world, zx_arena *mem, const char **name,
                      uint64_t *bytes, zx_err *err);
void zx_ckpt_give_up(zx_ckpt_saving *v); // the run is lost: nothing is published; accepts NULL

// One of no session: `values` (what they don't have is zero) as the files of so many ranks, which
// this process writes one after the other.
zx_status zx_ckpt_make(const zx_values *values, uint32_t ranks, const zx_ckpt *c,
                       const zx_ckpt_target *target, zx_arena *mem, const char **name,
                       uint64_t *bytes, zx_err *err);

// ---- ckpt_open.c --------------------------------------------------------------------------------
// The steps of the checkpoints in a folder that may be gone on from, newest first: that of
// `latest`, then earlier ones. *leftover: something that a save that was cut off left there; NULL.
zx_status zx_ckpt_steps(const char *folder, zx_arena *mem, uint32_t *n, const uint64_t **steps,
                        const char **leftover, zx_err *err);
bool zx_ckpt_is(const char *dir); // whether there is a manifest in it
// Reads the manifest alone.
zx_status zx_ckpt_open(const char *dir, zx_arena *mem, zx_ckpt *out, zx_err *err);
// Reads the files of ranks first, first + each, ... and compares sizes, headers and checksums.
zx_status zx_ckpt_verify(zx_ckpt *c, uint32_t first, uint32_t each, zx_err *err);
// Elements [from, from + n) of tensor i, in its own type; a rank reads no more than it asks for.
zx_status zx_ckpt_read(zx_ckpt *c, uint32_t i, int64_t from, int64_t n, void *to, zx_err *err);
void zx_ckpt_close(zx_ckpt *c); // accepts a zeroed one

// A checkpoint as the first values of a session that holds `want` (zx_ckpt_list): every tensor is
// found by its name. E_DATA with what is missing, left over or of another shape, all of it.
typedef struct zx_ckpt_values {
    zx_ckpt *from;
    uint32_t n_units;
    const uint32_t *tensor; // by place: [ZX_HELD_BUFFER][units], then buffers
} zx_ckpt_values;
zx_status zx_ckpt_match(zx_ckpt *c, const zx_ckpt *want, const zx_plan *plan, zx_arena *mem,
                        zx_ckpt_values *out, zx_err *err);
zx_values zx_ckpt_session_values(const zx_ckpt_values *v); // lives as long as v

#endif
