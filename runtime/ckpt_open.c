// ckpt_open.c - finding and reading checkpoints; see ckpt.h. Files may be anything: what a manifest
// or a header says is compared with what there is before it is used.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/base/hash.h"
#include "proto/mapfile.h"
#include "proto/safetensors.h"
#include "runtime/ckpt_folder.h"

enum { CHUNK = 1 << 22 }; // bytes that are read at a time

struct zx_ckpt_file {
    const uint64_t *at; // [tensors]: where each piece begins in the file; NULL: not looked at yet
};

// ---- which there are ----------------------------------------------------------------------------

static int newest_first(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

// What `latest` names; UINT64_MAX where it can't be read.
static uint64_t latest_step(const char *folder, zx_arena *mem)
{
    char line[64];
    uint64_t step;
    const int fd = open(zx_arena_printf(mem, "%s/latest", folder), O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
    if (fd >= 0) close(fd);
    if (n <= 0) return UINT64_MAX;
    line[n] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    return zx_ckpt_folder_step(line, &step) ? step : UINT64_MAX;
}

zx_status zx_ckpt_steps(const char *folder, zx_arena *mem, uint32_t *n, const uint64_t **steps,
                        const char **leftover, zx_err *err)
{
    uint32_t cap = 0;
    uint64_t *found = NULL;
    DIR *d = opendir(folder);
    *n = 0;
    *steps = NULL;
    *leftover = NULL;
    if (d == NULL && errno == ENOENT) return ZX_OK;
    if (d == NULL) return ZX_FAIL(err, ZX_E_IO, "cannot read %s: %s", folder, strerror(errno));
    const uint64_t latest = latest_step(folder, mem);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        uint64_t step;
        const size_t len = strlen(e->d_name);
        if (len > 4 && strcmp(e->d_name + len - 4, ".tmp") == 0)
            *leftover = zx_arena_printf(mem, "%s/%s", folder, e->d_name);
        if (!zx_ckpt_folder_step(e->d_name, &step) || step > latest) continue;
        ZX_GROW(mem, found, *n, cap);
        found[(*n)++] = step;
    }
    closedir(d);
    if (*n > 1) qsort(found, *n, sizeof *found, newest_first);
    *steps = found;
    return ZX_OK;
}

bool zx_ckpt_is(const char *dir)
{
    zx_arena mem = {0};
    const bool is = access(zx_arena_printf(&mem, "%s/manifest.json", dir), F_OK) == 0;
    zx_arena_free(&mem);
    return is;
}

// ---- opening ------------------------------------------------------------------------------------

zx_status zx_ckpt_open(const char *dir, zx_arena *mem, zx_ckpt *out, zx_err *err)
{
    zx_mapfile m;
    const char *path = zx_arena_printf(mem, "%s/manifest.json", dir);
    *out = (zx_ckpt){.fd = -1};
    ZX_TRY(zx_mapfile_open(&m, path, err));
    const zx_status st =
        zx_ckpt_manifest_read((const char *)m.bytes, (size_t)m.size, mem, out, err);
    zx_mapfile_close(&m);
    if (st != ZX_OK) zx_err_in(err, "%s", zx_text_safe(mem, path));
    out->dir = zx_arena_str(mem, dir);
    out->files = ZX_NEW(mem, struct zx_ckpt_file, st == ZX_OK ? out->ranks : 0);
    return st;
}

void zx_ckpt_close(zx_ckpt *c)
{
    if (c->mem != NULL && c->fd >= 0) close(c->fd);
    *c = (zx_ckpt){.fd = -1};
}

static const char *file_path(const zx_ckpt *c, uint32_t r)
{
    return zx_arena_printf(c->mem, "%s/%s", c->dir, zx_ckpt_file_name(r, c->ranks, c->mem));
}

// The header has exactly the manifest's tensors in its order, each as long as this rank's piece.
static zx_status match_header(const zx_ckpt *c, uint32_t r, const zx_safe_file *f, uint64_t *at,
                              zx_arena *mem, zx_err *err)
{
    int64_t from;
    if (f->n != c->n)
        return ZX_FAIL(err, ZX_E_FORMAT, "it has %u tensors, the manifest has %u", f->n, c->n);
    for (uint32_t i = 0; i < c->n; i++) {
        const zx_ckpt_tensor *t = &c->tensors[i];
        const zx_safe_tensor *has = &f->tensors[i];
        const int64_t n = zx_ckpt_piece(zx_shape_count(&t->type.shape), c->ranks, r, &from);
        const char *name = zx_ckpt_tensor_name(t, mem);
        if (strcmp(has->name, name) != 0 || has->type.dtype != t->type.dtype ||
            has->type.shape.rank != 1 || has->type.shape.dim[0] != n)
            return ZX_FAIL(err, ZX_E_FORMAT,
                           "tensor %u isn't '%s' with %" PRId64 " elements, as the manifest says",
                           i, zx_text_safe(mem, name), n);
        at[i] = (uint64_t)(has->data - f->file.bytes);
    }
    return ZX_OK;
}

static zx_status look_at(zx_ckpt *c, uint32_t r, zx_err *err)
{
    zx_safe_file f;
    if (c->files[r].at != NULL) return ZX_OK;
    const char *path = file_path(c, r);
    zx_arena own = {0};
    uint64_t *at = ZX_NEW(c->mem, uint64_t, (size_t)c->n + 1);
    zx_status st = zx_safe_open(&f, path, &own, err);
    if (st == ZX_OK) {
        st = match_header(c, r, &f, at, &own, err);
        if (st != ZX_OK) zx_err_in(err, "%s", zx_text_safe(c->mem, path));
        zx_safe_close(&f);
    }
    zx_arena_free(&own);
    if (st == ZX_OK) c->files[r].at = at;
    return st;
}

// File r, which was looked at, is the one that c->fd has.
static zx_status use_file(zx_ckpt *c, uint32_t r, zx_err *err)
{
    if (c->fd >= 0 && c->fd_of == r) return ZX_OK;
    ZX_TRY(look_at(c, r, err));
    if (c->fd >= 0) close(c->fd);
    c->fd = open(file_path(c, r), O_RDONLY | O_CLOEXEC);
    c->fd_of = r;
    if (c->fd >= 0) return ZX_OK;
    return ZX_FAIL(err, ZX_E_IO, "cannot open %s: %s", zx_text_safe(c->mem, file_path(c, r)),
                   strerror(errno));
}

static zx_status read_bytes(zx_ckpt *c, uint64_t at, uint64_t n, unsigned char *to, zx_err *err)
{
    while (n > 0) {
        const ssize_t got = pread(c->fd, to, (size_t)(n < (1u << 30) ? n : 1u << 30), (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return ZX_FAIL(err, ZX_E_IO, "cannot read %s: %s",
                           zx_text_safe(c->mem, file_path(c, c->fd_of)),
                           got == 0 ? "it has become shorter" : strerror(errno));
        to += got;
        at += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return ZX_OK;
}

zx_status zx_ckpt_read(zx_ckpt *c, uint32_t i, int64_t from, int64_t n, void *to, zx_err *err)
{
    const zx_ckpt_tensor *t = &c->tensors[i];
    const uint64_t width = zx_dtype_bytes(t->type.dtype);
    const int64_t count = zx_shape_count(&t->type.shape);
    int64_t at, shard = zx_ckpt_piece(count, c->ranks, 0, &at);
    for (int64_t done = 0; done < n;) {
        const uint32_t r = (uint32_t)((from + done) / shard);
        const int64_t has = zx_ckpt_piece(count, c->ranks, r, &at);
        const int64_t skip = from + done - at;
        const int64_t part = has - skip < n - done ? has - skip : n - done;
        ZX_TRY(use_file(c, r, err));
        ZX_TRY(read_bytes(c, c->files[r].at[i] + (uint64_t)skip * width, (uint64_t)part * width,
                          (unsigned char *)to + (uint64_t)done * width, err));
        done += part;
    }
    return ZX_OK;
}

// ---- verifying ----------------------------------------------------------------------------------

static zx_status verify_piece(zx_ckpt *c, uint32_t i, uint32_t r, unsigned char *chunk, zx_err *err)
{
    zx_hash h;
    int64_t from;
    const zx_ckpt_tensor *t = &c->tensors[i];
    const int64_t n = zx_ckpt_piece(zx_shape_count(&t->type.shape), c->ranks, r, &from);
    const uint64_t bytes = (uint64_t)n * zx_dtype_bytes(t->type.dtype);
    zx_hash_start(&h);
    for (uint64_t done = 0; done < bytes; done += CHUNK) {
        const uint64_t part = bytes - done < CHUNK ? bytes - done : CHUNK;
        ZX_TRY(read_bytes(c, c->files[r].at[i] + done, part, chunk, err));
        zx_hash_bytes(&h, chunk, (size_t)part);
    }
    if (zx_hash_end(&h) == t->sums[r]) return ZX_OK;
    return ZX_FAIL(err, ZX_E_FORMAT,
                   "%s is damaged: %s '%s' doesn't have the checksum that it was saved with",
                   zx_text_safe(c->mem, file_path(c, r)), t->part, zx_text_safe(c->mem, t->name));
}

zx_status zx_ckpt_verify(zx_ckpt *c, uint32_t first, uint32_t each, zx_err *err)
{
    zx_status st = ZX_OK;
    unsigned char *chunk = malloc(CHUNK);
    if (chunk == NULL) return ZX_FAIL(err, ZX_E_IO, "out of memory while reading a checkpoint");
    for (uint32_t r = first; r < c->ranks && st == ZX_OK; r += each) {
        st = use_file(c, r, err);
        for (uint32_t i = 0; i < c->n && st == ZX_OK; i++) st = verify_piece(c, i, r, chunk, err);
    }
    free(chunk);
    return st;
}

// ---- as first values ----------------------------------------------------------------------------

typedef struct key { // of a tensor, in the order of names
    const zx_ckpt_tensor *t;
    uint32_t at;
} key;

static int by_name(const void *a, const void *b)
{
    const key *x = a, *y = b;
    const int c = strcmp(x->t->part, y->t->part);
    return c != 0 ? c : strcmp(x->t->name, y->t->name);
}

static key *sorted(const zx_ckpt *c, zx_arena *mem)
{
    key *keys = ZX_NEW(mem, key, c->n);
    for (uint32_t i = 0; i < c->n; i++) keys[i] = (key){&c->tensors[i], i};
    if (c->n > 1) qsort(keys, c->n, sizeof *keys, by_name);
    return keys;
}

static const char *nearest(const zx_ckpt *c, const zx_ckpt_tensor *t, zx_arena *mem)
{
    uint32_t n = 0;
    const char **names = ZX_NEW(mem, const char *, c->n);
    for (uint32_t i = 0; i < c->n; i++)
        if (strcmp(c->tensors[i].part, t->part) == 0) names[n++] = c->tensors[i].name;
    const char *near = zx_text_nearest(t->name, names, n);
    return near != NULL ? zx_arena_printf(mem, "; the nearest is '%s'", zx_text_safe(mem, near))
                        : "";
}

static zx_status check_pair(const zx_ckpt *c, const zx_ckpt_tensor *want, const key *found,
                            zx_arena *mem, zx_err *err)
{
    char a[ZX_SHAPE_TEXT], b[ZX_SHAPE_TEXT];
    const char *name = zx_text_safe(mem, want->name);
    if (found == NULL)
        return ZX_FAIL(err, ZX_E_DATA, "it has no %s '%s'%s", want->part, name,
                       nearest(c, want, mem));
    const zx_type *has = &found->t->type, *is = &want->type;
    if (has->dtype == is->dtype && zx_shape_equal(&has->shape, &is->shape)) return ZX_OK;
    return ZX_FAIL(err, ZX_E_DATA, "%s '%s' is %s %s there, the model's is %s %s", want->part, name,
                   zx_dtypes[has->dtype].word, zx_shape_text(&has->shape, a),
                   zx_dtypes[is->dtype].word, zx_shape_text(&is->shape, b));
}

// Place of a held tensor in zx_ckpt_values.tensor.
static size_t place(uint32_t n_units, zx_held held)
{
    if (held.kind == ZX_HELD_BUFFER) return (size_t)ZX_HELD_BUFFER * n_units + held.index;
    return (size_t)held.kind * n_units + held.index;
}

zx_status zx_ckpt_match(zx_ckpt *c, const zx_ckpt *want, const zx_plan *plan, zx_arena *mem,
                        zx_ckpt_values *out, zx_err *err)
{
    const key *keys = sorted(c, mem);
    bool *used = ZX_NEW(mem, bool, c->n);
    uint32_t n_buffers = 0;
    for (uint32_t i = 0; i < want->n; i++)
        n_buffers += want->tensors[i].held.kind == ZX_HELD_BUFFER;
    uint32_t *tensor =
        ZX_NEW(mem, uint32_t, (size_t)ZX_HELD_BUFFER * plan->n_units + n_buffers + 1);
    for (uint32_t i = 0; i < want->n; i++) {
        const key probe = {&want->tensors[i], 0};
        const key *found = c->n > 0 ? bsearch(&probe, keys, c->n, sizeof *keys, by_name) : NULL;
        if (found != NULL) used[found->at] = true;
        if (check_pair(c, &want->tensors[i], found, mem, err) != ZX_OK || found == NULL) continue;
        tensor[place(plan->n_units, want->tensors[i].held)] = found->at;
    }
    for (uint32_t i = 0; i < c->n; i++)
        if (!used[i])
            ZX_FAIL(err, ZX_E_DATA, "it has a %s '%s', which the run doesn't have",
                    c->tensors[i].part, zx_text_safe(mem, c->tensors[i].name));
    *out = (zx_ckpt_values){c, plan->n_units, tensor};
    if (err->code == ZX_OK) return ZX_OK;
    zx_err_in(err, "%s", zx_text_safe(mem, c->dir));
    return err->code;
}

static zx_status read_value(const void *self, zx_held what, int64_t from, int64_t n, void *to,
                            zx_err *err)
{
    const zx_ckpt_values *v = self;
    return zx_ckpt_read(v->from, v->tensor[place(v->n_units, what)], from, n, to, err);
}

zx_values zx_ckpt_session_values(const zx_ckpt_values *v)
{
    return (zx_values){.read = read_value, .self = v};
}
