// ckpt_save.c - writing a checkpoint; see ckpt.h. Nothing is large: a rank's shards go to its file
// some MiB at a time.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/ckpt.h"

#include <errno.h>
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
    return "momentum";
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

// Its piece of one tensor, with the checksum.
static zx_status put_piece(zx_session *s, const zx_ckpt_tensor *t, uint32_t rank, uint32_t ranks,
                           sink *k, uint64_t *sum, zx_err *err)
{
    zx_hash h;
    int64_t from;
    const uint32_t width = zx_dtype_bytes(t->type.dtype);
    const int64_t n = zx_ckpt_piece(zx_shape_count(&t->type.shape), ranks, rank, &from);
    zx_hash_start(&h);
    for (int64_t done = 0; done < n; done += CHUNK) {
        const int64_t part = n - done < CHUNK ? n - done : CHUNK;
        const void *at = zx_session_see(s, t->held, from + done, part);
        if (at == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "the device doesn't give its values");
        zx_hash_bytes(&h, at, (size_t)part * width);
        ZX_TRY(put(k, at, (size_t)part * width, err));
    }
    *sum = zx_hash_end(&h);
    return ZX_OK;
}

static zx_status put_file(zx_session *s, const zx_ckpt *c, uint32_t rank, uint32_t ranks, sink *k,
                          uint64_t *sums, zx_arena *mem, zx_err *err)
{
    zx_safe_tensor *pieces = ZX_NEW(mem, zx_safe_tensor, c->n);
    uint64_t *offsets = ZX_NEW(mem, uint64_t, c->n), header_bytes = 0, total = 0;
    const void *header = NULL;
    int64_t from;
    for (uint32_t i = 0; i < c->n; i++) {
        const zx_ckpt_tensor *t = &c->tensors[i];
        const int64_t n = zx_ckpt_piece(zx_shape_count(&t->type.shape), ranks, rank, &from);
        pieces[i] = (zx_safe_tensor){.name = zx_ckpt_tensor_name(t, mem),
                                     .type = {t->type.dtype, {.rank = 1, .dim = {n}}}};
    }
    ZX_TRY(
        zx_safe_header(c->n, pieces, 0, NULL, mem, &header, &header_bytes, offsets, &total, err));
    ZX_TRY(put(k, header, (size_t)header_bytes, err));
    for (uint32_t i = 0; i < c->n; i++)
        ZX_TRY(put_piece(s, &c->tensors[i], rank, ranks, k, &sums[i], err));
    return flush(k, err);
}

static zx_status write_file(zx_session *s, const zx_ckpt *c, const char *dir, uint32_t rank,
                            uint32_t ranks, uint64_t *sums, uint64_t *bytes, zx_arena *mem,
                            zx_err *err)
{
    sink k = {.buffer = malloc(CHUNK)};
    const char *path = zx_arena_printf(mem, "%s/%s", dir, zx_ckpt_file_name(rank, ranks, mem));
    if (k.buffer == NULL) return ZX_FAIL(err, ZX_E_IO, "out of memory while saving");
    zx_status st = zx_outfile_open(&k.file, path, mem, err);
    if (st == ZX_OK) st = put_file(s, c, rank, ranks, &k, sums, mem, err);
    if (st == ZX_OK) st = zx_outfile_commit(&k.file, err);
    zx_outfile_drop(&k.file);
    *bytes = k.total;
    free(k.buffer);
    return st;
}

// ---- all of it ----------------------------------------------------------------------------------

// All ranks' checksums by tensor, and the bytes of their files.
static zx_status gather_sums(zx_world *world, const zx_ckpt *c, uint32_t ranks,
                             const uint64_t *mine, zx_ckpt_tensor *tensors, uint64_t *bytes,
                             zx_arena *mem, zx_err *err)
{
    const size_t row = (size_t)c->n + 1;
    uint64_t *all = ZX_NEW(mem, uint64_t, row * ranks), *sums = ZX_NEW(mem, uint64_t, row * ranks);
    ZX_TRY(zx_world_exchange(world, mine, row * sizeof *mine, all, err));
    *bytes = 0;
    for (uint32_t r = 0; r < ranks; r++) *bytes += all[r * row + c->n];
    for (uint32_t i = 0; i < c->n; i++) {
        tensors[i] = c->tensors[i];
        tensors[i].sums = sums + (size_t)i * ranks;
        for (uint32_t r = 0; r < ranks; r++) sums[(size_t)i * ranks + r] = all[r * row + i];
    }
    return ZX_OK;
}

static zx_status write_manifest(const zx_ckpt *c, const char *dir, zx_arena *mem, zx_err *err)
{
    zx_text text = {0};
    zx_ckpt_manifest_write(c, &text);
    const zx_status st =
        zx_outfile_put(zx_arena_printf(mem, "%s/manifest.json", dir), text.at, text.n, mem, err);
    zx_text_free(&text);
    return st;
}

// Rank 0 has made the folder `dir`; all write.
static zx_status write_all(zx_session *s, zx_world *world, const zx_ckpt *c, const char *dir,
                           zx_arena *mem, uint64_t *bytes, zx_err *err)
{
    const uint32_t rank = zx_world_rank(world), ranks = zx_world_size(world);
    uint64_t *mine = ZX_NEW(mem, uint64_t, (size_t)c->n + 1);
    zx_ckpt_tensor *tensors = ZX_NEW(mem, zx_ckpt_tensor, c->n);
    const zx_status st = write_file(s, c, dir, rank, ranks, mine, &mine[c->n], mem, err);
    ZX_TRY(zx_world_agree(world, st, err));
    ZX_TRY(gather_sums(world, c, ranks, mine, tensors, bytes, mem, err));
    if (rank != 0) return ZX_OK;
    zx_ckpt whole = *c;
    whole.ranks = ranks;
    whole.tensors = tensors;
    return write_manifest(&whole, dir, mem, err);
}

zx_status zx_ckpt_save(zx_session *s, zx_world *world, const zx_ckpt *c,
                       const zx_ckpt_target *target, zx_arena *mem, const char **name,
                       uint64_t *bytes, zx_err *err)
{
    const bool first = zx_world_rank(world) == 0;
    const char *made = NULL;
    zx_arena own = {0};
    zx_status st = ZX_OK;
    *bytes = 0; // what it takes, about
    for (uint32_t i = 0; i < c->n; i++) *bytes += zx_type_bytes(&c->tensors[i].type);
    if (first) st = zx_ckpt_folder_begin(target->folder, c->state.steps, mem, &made, err);
    st = zx_world_agree(world, st, err);
    size_t n = made != NULL ? strlen(made) + 1 : 0;
    void *dir = (void *)(uintptr_t)made;
    if (st == ZX_OK) st = zx_world_send(world, &dir, &n, err);
    if (st == ZX_OK) st = write_all(s, world, c, dir, &own, bytes, err);
    if (st == ZX_OK && first)
        st = zx_ckpt_folder_publish(target->folder, c->state.steps, target->before, target->keep,
                                    mem, name, err);
    if (st != ZX_E_COMM) st = zx_world_agree(world, st, err);
    if (st != ZX_OK && made != NULL) zx_ckpt_folder_drop(made, &own);
    if (!first) free(dir);
    zx_arena_free(&own);
    return st;
}
