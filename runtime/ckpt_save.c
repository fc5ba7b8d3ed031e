// ckpt_save.c - writing a checkpoint; see ckpt.h. Nothing is large: a rank's shards go to its file
// some MiB at a time, out of the session, or out of a copy while the session goes on.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/ckpt.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/base/hash.h"
#include "proto/safetensors.h"
#include "runtime/ckpt_folder.h"
#include "runtime/outfile.h"

enum { CHUNK = 1 << 20 }; // elements that are looked at and written at a time

// ---- what there is ------------------------------------------------------------------------------

// What an optimizer calls its states.
static const char *state_part(const zx_optim *o, uint32_t k)
{
    if (o->kind == ZX_OPTIM_ADAM) return k == 0 ? "exp_avg" : "exp_avg_sq";
    return o->kind == ZX_OPTIM_LION ? "exp_avg" : "momentum";
}

void zx_ckpt_list(const zx_graph *train, const zx_plan *plan, const zx_optim *optim, zx_arena *mem,
                  zx_ckpt *out)
{
    zx_ckpt_tensor *t = ZX_NEW(mem, zx_ckpt_tensor, 3 * (size_t)plan->n_units + train->n_buffers);
    out->n = 0;
    out->tensors = t;
    for (uint32_t i = 0; i < plan->n_units; i++) {
        const zx_unit *u = &plan->units[i];
        const zx_param *p = &train->params[u->param];
        zx_type type = train->values[p->value].type;
        type.dtype = ZX_F32; // the copy that is updated, whatever steps read
        t[out->n++] = (zx_ckpt_tensor){.part = "parameter",
                                       .name = p->name,
                                       .type = type,
                                       .n_aliases = p->n_aliases,
                                       .aliases = p->aliases,
                                       .held = {ZX_HELD_PARAM, i}};
        for (uint32_t k = 0; k < 2; k++)
            if (u->state_slot[k] != ZX_NONE)
                t[out->n++] = (zx_ckpt_tensor){.part = state_part(optim, k),
                                               .name = p->name,
                                               .type = type,
                                               .held = {ZX_HELD_STATE_0 + k, i}};
    }
    for (uint32_t i = 0; i < train->n_buffers; i++)
        t[out->n++] = (zx_ckpt_tensor){.part = "buffer",
                                       .name = train->buffers[i].name,
                                       .type = train->values[train->buffers[i].value].type,
                                       .held = {ZX_HELD_BUFFER, i}};
}

// ---- a rank's file ------------------------------------------------------------------------------

struct zx_ckpt_saving {
    zx_arena mem; // of all that is below
    zx_ckpt c;
    zx_ckpt_target target;
    uint32_t rank, ranks;
    const char *dir;
    zx_session *s;       // NULL: `copy` or `values` are what is written
    unsigned char *copy; // its pieces one after the other
    zx_values values;    // of no session
    unsigned char *some; // CHUNK elements of them
    uint64_t *sums;      // of its pieces, and then its file's bytes
    zx_status st;        // of its file
    zx_err err;
    pthread_t thread;
    bool started;
    _Atomic bool written; // or failed
};

static int64_t piece_of(const zx_ckpt_saving *v, uint32_t i, int64_t *from)
{
    return zx_ckpt_piece(zx_shape_count(&v->c.tensors[i].type.shape), v->ranks, v->rank, from);
}

typedef struct sink { // small pieces are gathered before they are written
    zx_outfile file;
    unsigned char *buffer;
    size_t n;
    uint64_t total;
} sink;

static zx_status flush(sink *k, zx_err *err)
{
    const size_t n = k->n;
    k->n = 0;
    return n > 0 ? zx_outfile_write(&k->file, k->buffer, n, err) : ZX_OK;
}

static zx_status put(sink *k, const void *bytes, size_t n, zx_err *err)
{
    k->total += n;
    if (k->n + n > CHUNK) ZX_TRY(flush(k, err));
    if (n > CHUNK) return zx_outfile_write(&k->file, bytes, n, err);
    if (n > 0) memcpy(k->buffer + k->n, bytes, n);
    k->n += n;
    return ZX_OK;
}

// Elements [done, done + part) of its piece of tensor i, which begins at *copy of the copy.
static zx_status bytes_of(zx_ckpt_saving *v, uint32_t i, const unsigned char *copy, int64_t done,
                          int64_t part, const void **out)
{
    int64_t from;
    const zx_held what = v->c.tensors[i].held;
    const size_t width = zx_dtype_bytes(v->c.tensors[i].type.dtype);
    piece_of(v, i, &from);
    if (v->values.read != NULL) {
        *out = v->some;
        if (v->values.has == NULL || v->values.has(v->values.self, what))
            return v->values.read(v->values.self, what, from + done, part, v->some, &v->err);
        memset(v->some, 0, (size_t)part * width);
        return ZX_OK;
    }
    *out =
        v->s == NULL ? copy + (size_t)done * width : zx_session_see(v->s, what, from + done, part);
    if (*out != NULL) return ZX_OK;
    return ZX_FAIL(&v->err, ZX_E_DEVICE, "the device doesn't give its values");
}

// One tensor's piece, with the checksum; *copy moves on behind it.
static zx_status put_piece(zx_ckpt_saving *v, uint32_t i, const unsigned char **copy, sink *k)
{
    zx_hash h;
    int64_t from;
    const uint32_t width = zx_dtype_bytes(v->c.tensors[i].type.dtype);
    const int64_t n = piece_of(v, i, &from);
    zx_hash_start(&h);
    for (int64_t done = 0; done < n; done += CHUNK) {
        const int64_t part = n - done < CHUNK ? n - done : CHUNK;
        const void *at;
        ZX_TRY(bytes_of(v, i, *copy, done, part, &at));
        zx_hash_bytes(&h, at, (size_t)part * width);
        ZX_TRY(put(k, at, (size_t)part * width, &v->err));
    }
    v->sums[i] = zx_hash_end(&h);
    if (*copy != NULL) *copy += (uint64_t)n * width;
    return ZX_OK;
}

static zx_status put_file(zx_ckpt_saving *v, sink *k)
{
    const uint32_t n = v->c.n;
    zx_safe_tensor *pieces = ZX_NEW(&v->mem, zx_safe_tensor, n);
    uint64_t *offsets = ZX_NEW(&v->mem, uint64_t, n), header_bytes = 0, total = 0;
    const void *header = NULL;
    const unsigned char *copy = v->copy;
    int64_t from;
    for (uint32_t i = 0; i < n; i++)
        pieces[i] = (zx_safe_tensor){
            .name = zx_ckpt_tensor_name(&v->c.tensors[i], &v->mem),
            .type = {v->c.tensors[i].type.dtype, {.rank = 1, .dim = {piece_of(v, i, &from)}}}};
    ZX_TRY(zx_safe_header(n, pieces, 0, NULL, &v->mem, &header, &header_bytes, offsets, &total,
                          &v->err));
    ZX_TRY(put(k, header, (size_t)header_bytes, &v->err));
    for (uint32_t i = 0; i < n; i++) ZX_TRY(put_piece(v, i, &copy, k));
    return flush(k, &v->err);
}

static void write_file(zx_ckpt_saving *v)
{
    sink k = {.buffer = malloc(CHUNK)};
    const char *path =
        zx_arena_printf(&v->mem, "%s/%s", v->dir, zx_ckpt_file_name(v->rank, v->ranks, &v->mem));
    v->st = k.buffer != NULL ? zx_outfile_open(&k.file, path, &v->mem, &v->err)
                             : ZX_FAIL(&v->err, ZX_E_IO, "out of memory while saving");
    if (v->st == ZX_OK) v->st = put_file(v, &k);
    if (v->st == ZX_OK) v->st = zx_outfile_commit(&k.file, &v->err);
    zx_outfile_drop(&k.file);
    v->sums[v->c.n] = k.total;
    free(k.buffer);
    atomic_store(&v->written, true);
}

// ---- beside the steps ---------------------------------------------------------------------------

uint64_t zx_ckpt_copy_bytes(const zx_ckpt *c, uint32_t ranks)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        int64_t from;
        const zx_type *t = &c->tensors[i].type;
        bytes += (uint64_t)zx_ckpt_piece(zx_shape_count(&t->shape), ranks, 0, &from) *
                 zx_dtype_bytes(t->dtype);
    }
    return bytes;
}

static zx_status copy_all(zx_ckpt_saving *v)
{
    unsigned char *to = v->copy;
    for (uint32_t i = 0; i < v->c.n; i++) {
        int64_t from;
        const uint32_t width = zx_dtype_bytes(v->c.tensors[i].type.dtype);
        const int64_t n = piece_of(v, i, &from);
        for (int64_t done = 0; done < n; done += CHUNK) {
            const int64_t part = n - done < CHUNK ? n - done : CHUNK;
            const void *at;
            ZX_TRY(bytes_of(v, i, NULL, done, part, &at));
            memcpy(to, at, (size_t)part * width);
            to += (uint64_t)part * width;
        }
    }
    v->s = NULL; // from here on it may go on
    return ZX_OK;
}

static void *writer_main(void *arg)
{
    write_file(arg);
    return NULL;
}

// A copy, and a thread that writes it; where there is no thread to be had, this one does.
static void write_beside(zx_ckpt_saving *v)
{
    sigset_t all, before; // signals are the main thread's
    v->st = copy_all(v);
    if (v->st != ZX_OK) {
        atomic_store(&v->written, true);
        return;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    v->started = pthread_create(&v->thread, NULL, writer_main, v) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!v->started) write_file(v);
}

// ---- all of it ----------------------------------------------------------------------------------

// Checksums by tensor and the bytes of all files, from a row a rank.
static void take_sums(zx_ckpt_saving *v, const uint64_t *all, uint64_t *bytes)
{
    zx_ckpt *c = &v->c;
    const size_t row = (size_t)c->n + 1, ranks = v->ranks;
    uint64_t *sums = ZX_NEW(&v->mem, uint64_t, row * ranks);
    zx_ckpt_tensor *tensors = ZX_NEW(&v->mem, zx_ckpt_tensor, c->n);
    *bytes = 0;
    for (size_t r = 0; r < ranks; r++) *bytes += all[r * row + c->n];
    for (uint32_t i = 0; i < c->n; i++) {
        tensors[i] = c->tensors[i];
        tensors[i].sums = sums + i * ranks;
        for (size_t r = 0; r < ranks; r++) sums[i * ranks + r] = all[r * row + i];
    }
    c->ranks = v->ranks;
    c->tensors = tensors;
}

static zx_status gather_sums(zx_ckpt_saving *v, zx_world *world, uint64_t *bytes, zx_err *err)
{
    const size_t row = (size_t)v->c.n + 1;
    uint64_t *all = ZX_NEW(&v->mem, uint64_t, row * v->ranks);
    ZX_TRY(zx_world_exchange(world, v->sums, row * sizeof *all, all, err));
    take_sums(v, all, bytes);
    return ZX_OK;
}

static zx_status write_manifest(zx_ckpt_saving *v, zx_err *err)
{
    zx_text text = {0};
    zx_ckpt_manifest_write(&v->c, &text);
    const zx_status st = zx_outfile_put(zx_arena_printf(&v->mem, "%s/manifest.json", v->dir),
                                        text.at, text.n, &v->mem, err);
    zx_text_free(&text);
    return st;
}

// What is saved outlives what `c` lies in; names are the graph's.
static zx_ckpt_saving *make(zx_session *s, uint32_t rank, uint32_t ranks, const zx_ckpt *c,
                            const zx_ckpt_target *target, void *copy)
{
    zx_ckpt_saving *v = calloc(1, sizeof *v);
    ZX_ASSERT(v != NULL);
    v->c = *c;
    v->c.model = zx_arena_str(&v->mem, c->model);
    v->c.tensors = zx_arena_copy(&v->mem, c->tensors, c->n * sizeof *c->tensors);
    v->target = *target;
    if (target->folder != NULL) v->target.folder = zx_arena_str(&v->mem, target->folder);
    v->rank = rank;
    v->ranks = ranks;
    v->s = s;
    v->copy = copy;
    v->sums = ZX_NEW(&v->mem, uint64_t, (size_t)c->n + 1);
    return v;
}

static void release(zx_ckpt_saving *v)
{
    if (v->started) pthread_join(v->thread, NULL);
    zx_arena_free(&v->mem);
    free(v->some);
    free(v);
}

zx_status zx_ckpt_begin(zx_session *s, zx_world *world, const zx_ckpt *c,
                        const zx_ckpt_target *target, void *copy, zx_ckpt_saving **out, zx_err *err)
{
    zx_ckpt_saving *v = make(s, zx_world_rank(world), zx_world_size(world), c, target, copy);
    zx_status st = ZX_OK;
    *out = NULL;
    if (v->rank == 0)
        st = zx_ckpt_folder_begin(v->target.folder, c->state.steps, &v->mem, &v->dir, err);
    st = zx_world_agree(world, st, err);
    size_t n = v->dir != NULL ? strlen(v->dir) + 1 : 0;
    void *dir = (void *)(uintptr_t)v->dir;
    if (st == ZX_OK) st = zx_world_send(world, &dir, &n, err);
    if (st == ZX_OK && v->rank != 0) {
        v->dir = zx_arena_str(&v->mem, dir);
        free(dir);
    }
    if (st != ZX_OK) {
        if (v->dir != NULL) zx_ckpt_folder_drop(v->dir, &v->mem);
        release(v);
        return st;
    }
    if (copy != NULL)
        write_beside(v);
    else
        write_file(v);
    *out = v;
    return ZX_OK;
}

bool zx_ckpt_written(const zx_ckpt_saving *v)
{
    return atomic_load(&v->written);
}

zx_status zx_ckpt_end(zx_ckpt_saving *v, zx_world *world, zx_arena *mem, const char **name,
                      uint64_t *bytes, zx_err *err)
{
    const bool first = v->rank == 0;
    if (v->started) pthread_join(v->thread, NULL);
    v->started = false;
    *bytes = 0; // what it takes, about
    for (uint32_t i = 0; i < v->c.n; i++) *bytes += zx_type_bytes(&v->c.tensors[i].type);
    if (v->st != ZX_OK) zx_err_merge(err, &v->err);
    zx_status st = zx_world_agree(world, v->st, err);
    if (st == ZX_OK) st = gather_sums(v, world, bytes, err);
    if (st == ZX_OK && first) st = write_manifest(v, err);
    if (st == ZX_OK && first)
        st = zx_ckpt_folder_publish(v->target.folder, v->c.state.steps, v->target.before,
                                    v->target.keep, mem, name, err);
    if (st != ZX_E_COMM) st = zx_world_agree(world, st, err);
    if (st != ZX_OK && first) zx_ckpt_folder_drop(v->dir, &v->mem);
    release(v);
    return st;
}

void zx_ckpt_give_up(zx_ckpt_saving *v)
{
    if (v != NULL) release(v);
}

zx_status zx_ckpt_save(zx_session *s, zx_world *world, const zx_ckpt *c,
                       const zx_ckpt_target *target, zx_arena *mem, const char **name,
                       uint64_t *bytes, zx_err *err)
{
    zx_ckpt_saving *v;
    *bytes = 0;
    ZX_TRY(zx_ckpt_begin(s, world, c, target, NULL, &v, err));
    return zx_ckpt_end(v, world, mem, name, bytes, err);
}

static zx_status write_all_files(zx_ckpt_saving *v, uint64_t *bytes, zx_err *err)
{
    const size_t row = (size_t)v->c.n + 1;
    uint64_t *all = ZX_NEW(&v->mem, uint64_t, row * v->ranks);
    for (v->rank = 0; v->rank < v->ranks; v->rank++) {
        write_file(v);
        if (v->st != ZX_OK) return zx_err_merge(err, &v->err);
        memcpy(all + v->rank * row, v->sums, row * sizeof *all);
    }
    take_sums(v, all, bytes);
    return ZX_OK;
}

zx_status zx_ckpt_make(const zx_values *values, uint32_t ranks, const zx_ckpt *c,
                       const zx_ckpt_target *target, zx_arena *mem, const char **name,
                       uint64_t *bytes, zx_err *err)
{
    zx_ckpt_saving *v = make(NULL, 0, ranks, c, target, NULL);
    v->values = *values;
    v->some = malloc((size_t)CHUNK * 8);
    *bytes = 0;
    zx_status st = v->some != NULL ? ZX_OK : ZX_FAIL(err, ZX_E_IO, "out of memory while saving");
    if (st == ZX_OK)
        st = zx_ckpt_folder_begin(v->target.folder, c->state.steps, &v->mem, &v->dir, err);
    if (st == ZX_OK) st = write_all_files(v, bytes, err);
    if (st == ZX_OK) st = write_manifest(v, err);
    if (st == ZX_OK)
        st = zx_ckpt_folder_publish(v->target.folder, c->state.steps, v->target.before,
                                    v->target.keep, mem, name, err);
    if (st != ZX_OK && v->dir != NULL) zx_ckpt_folder_drop(v->dir, &v->mem);
    release(v);
    return st;
}
