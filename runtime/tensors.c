// tensors.c - see tensors.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/cpu/common.h"
#include "proto/json.h"

#define INDEX "model.safetensors.index.json"

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool ends(const char *path, const char *with)
{
    const size_t n = strlen(path), m = strlen(with);
    return n >= m && strcmp(path + n - m, with) == 0;
}

// ---- opening ------------------------------------------------------------------------------------

static zx_status open_ckpt(const char *dir, bool verify, zx_tensors *t, zx_err *err)
{
    ZX_TRY(zx_ckpt_open(dir, t->mem, &t->ckpt, err));
    t->is_ckpt = true;
    if (verify) ZX_TRY(zx_ckpt_verify(&t->ckpt, 0, 1, err));
    zx_tensor_entry *at = ZX_NEW(t->mem, zx_tensor_entry, t->ckpt.n);
    for (uint32_t i = 0; i < t->ckpt.n; i++) {
        const zx_ckpt_tensor *c = &t->ckpt.tensors[i];
        at[i] = (zx_tensor_entry){c->part, c->name, c->type, c->n_aliases, c->aliases, NULL};
    }
    t->n = t->ckpt.n;
    t->at = at;
    return ZX_OK;
}

// The newest checkpoint in `folder` that is whole; ZX_NONE-like: t->is_ckpt stays false.
static zx_status open_newest(const char *folder, bool verify, zx_tensors *t, zx_err *err)
{
    uint32_t n;
    const uint64_t *steps;
    const char *left;
    zx_err first = {0};
    ZX_TRY(zx_ckpt_steps(folder, t->mem, &n, &steps, &left, err));
    for (uint32_t i = 0; i < n; i++) {
        const char *dir = zx_arena_printf(t->mem, "%s/step-%" PRIu64, folder, steps[i]);
        zx_err found = {0};
        if (open_ckpt(dir, verify, t, &found) == ZX_OK) {
            t->path = dir;
            return ZX_OK;
        }
        zx_ckpt_close(&t->ckpt);
        t->is_ckpt = false;
        if (i == 0) first = found;
    }
    return n > 0 ? zx_err_merge(err, &first) : ZX_OK;
}

static zx_status add_file(const char *path, zx_tensors *t, zx_err *err)
{
    const zx_status st = zx_safe_open(&t->files[t->n_files], path, t->mem, err);
    if (st != ZX_OK && st != ZX_E_IO)
        zx_err_hint(err,
                    "a .safetensors file, or the index of several; of a .pt or .bin file make one "
                    "with safetensors.torch.save_file, of DeepSpeed's checkpoint with its own "
                    "zero_to_fp32.py --safe_serialization");
    if (st == ZX_OK) t->paths[t->n_files++] = path;
    return st;
}

// A tied tensor is stored once, and its other names are metadata: NAME -> the name it is under.
static void find_aliases(const zx_safe_file *f, zx_tensor_entry *e, zx_arena *mem)
{
    uint32_t cap = 0;
    const char **names = NULL;
    for (uint32_t i = 0; i < f->n_meta; i++) {
        if (strcmp(f->meta[i][1], e->name) != 0 || zx_safe_find(f, f->meta[i][0]) != NULL) continue;
        ZX_GROW(mem, names, e->n_aliases, cap);
        names[e->n_aliases++] = f->meta[i][0];
    }
    e->aliases = names;
}

static zx_status list_files(zx_tensors *t, zx_err *err)
{
    uint64_t n = 0;
    for (uint32_t f = 0; f < t->n_files; f++) n += t->files[f].n;
    if (n >= ZX_NONE) return ZX_FAIL(err, ZX_E_UNSUPPORTED, "it has too many tensors");
    zx_tensor_entry *at = ZX_NEW(t->mem, zx_tensor_entry, n);
    for (uint32_t f = 0; f < t->n_files; f++)
        for (uint32_t i = 0; i < t->files[f].n; i++) {
            const zx_safe_tensor *s = &t->files[f].tensors[i];
            zx_tensor_entry *e = &at[t->n++];
            *e = (zx_tensor_entry){.part = "", .name = s->name, .type = s->type, .data = s->data};
            find_aliases(&t->files[f], e, t->mem);
        }
    t->at = at;
    return ZX_OK;
}

static zx_status open_single(const char *path, zx_tensors *t, zx_err *err)
{
    t->files = ZX_NEW(t->mem, zx_safe_file, 1);
    t->paths = ZX_NEW(t->mem, const char *, 1);
    ZX_TRY(add_file(path, t, err));
    return list_files(t, err);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// The distinct files of an index, sorted; each lies beside it.
static zx_status index_files(const json_t *map, zx_arena *mem, uint32_t *n, const char ***out,
                             zx_err *err)
{
    const char *key;
    json_t *value;
    const char **names = ZX_NEW(mem, const char *, json_object_size(map));
    size_t all = 0;
    if (!json_is_object(map) || json_object_size(map) == 0)
        return ZX_FAIL(err, ZX_E_FORMAT, "it has no weight_map");
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        const char *name = json_string_value(value);
        if (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL || strcmp(name, "..") == 0)
            return ZX_FAIL(err, ZX_E_FORMAT, "tensor '%s' is in no file beside it",
                           zx_text_safe(mem, key));
        names[all++] = zx_arena_str(mem, name);
    }
    qsort(names, all, sizeof *names, by_text);
    *n = 0;
    for (size_t i = 0; i < all; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0) names[(*n)++] = names[i];
    *out = names;
    return ZX_OK;
}

// What the index says of each tensor is so, and there is no other one.
static zx_status check_index(const json_t *map, const char *const *names, zx_tensors *t,
                             zx_err *err)
{
    size_t n = 0;
    for (uint32_t f = 0; f < t->n_files; f++)
        for (uint32_t i = 0; i < t->files[f].n; i++, n++) {
            const char *name = t->files[f].tensors[i].name;
            const char *in = json_string_value(json_object_get(map, name));
            if (in == NULL || strcmp(in, names[f]) != 0)
                return ZX_FAIL(err, ZX_E_FORMAT,
                               "%s has a tensor '%s', which isn't there by the index",
                               zx_text_safe(t->mem, names[f]), zx_text_safe(t->mem, name));
        }
    if (n == json_object_size(map)) return ZX_OK;
    return ZX_FAIL(err, ZX_E_FORMAT, "it names %zu tensors, its files have %zu of them",
                   json_object_size(map), n);
}

static zx_status read_index(const char *path, const json_t *root, zx_tensors *t, zx_err *err)
{
    uint32_t n = 0;
    const char **names = NULL;
    const json_t *map = json_object_get(root, "weight_map");
    ZX_TRY(index_files(map, t->mem, &n, &names, err));
    t->files = ZX_NEW(t->mem, zx_safe_file, n);
    t->paths = ZX_NEW(t->mem, const char *, n);
    const char *slash = strrchr(path, '/');
    const int dir = slash != NULL ? (int)(slash - path) + 1 : 0;
    for (uint32_t i = 0; i < n; i++)
        ZX_TRY(add_file(zx_arena_printf(t->mem, "%.*s%s", dir, path, names[i]), t, err));
    ZX_TRY(check_index(map, names, t, err));
    return list_files(t, err);
}

static zx_status open_index(const char *path, zx_tensors *t, zx_err *err)
{
    json_t *root;
    zx_status st = zx_json_read(path, &root, err);
    if (st == ZX_E_USAGE) err->code = st = ZX_E_FORMAT; // it is no configuration
    if (st != ZX_OK) return st;
    st = read_index(path, root, t, err);
    json_decref(root);
    if (st != ZX_OK) zx_err_in(err, "%s", zx_text_safe(t->mem, path));
    return st;
}

static zx_status open_folder(const char *path, bool verify, zx_tensors *t, zx_err *err)
{
    if (zx_ckpt_is(path)) return open_ckpt(path, verify, t, err);
    const char *runs = zx_arena_printf(t->mem, "%s/checkpoints", path),
               *index = zx_arena_printf(t->mem, "%s/" INDEX, path),
               *single = zx_arena_printf(t->mem, "%s/model.safetensors", path);
    ZX_TRY(open_newest(runs, verify, t, err));
    if (!t->is_ckpt) ZX_TRY(open_newest(path, verify, t, err)); // checkpoints/ itself
    if (t->is_ckpt) return ZX_OK;
    t->path = access(index, F_OK) == 0 ? index : single;
    if (t->path == index) return open_index(index, t, err);
    if (access(single, F_OK) == 0) return open_single(single, t, err);
    zx_err_hint(err, "a checkpoint, a run's folder, or one with model.safetensors or " INDEX);
    return ZX_FAIL(err, ZX_E_IO, "%s has no tensors", zx_text_safe(t->mem, path));
}

zx_status zx_tensors_open(const char *path, bool verify, zx_arena *mem, zx_tensors *out,
                          zx_err *err)
{
    *out = (zx_tensors){.path = path, .mem = mem, .ckpt = {.fd = -1}};
    zx_status st;
    if (is_folder(path))
        st = open_folder(path, verify, out, err);
    else
        st = ends(path, ".json") ? open_index(path, out, err) : open_single(path, out, err);
    if (st != ZX_OK) zx_tensors_close(out);
    return st;
}

void zx_tensors_close(zx_tensors *t)
{
    for (uint32_t f = 0; f < t->n_files; f++) zx_safe_close(&t->files[f]);
    if (t->mem != NULL) zx_ckpt_close(&t->ckpt);
    *t = (zx_tensors){0};
}

// ---- reading ------------------------------------------------------------------------------------

zx_status zx_tensors_read(zx_tensors *t, uint32_t i, int64_t from, int64_t n, void *to, zx_err *err)
{
    if (n == 0) return ZX_OK;
    if (t->is_ckpt) return zx_ckpt_read(&t->ckpt, i, from, n, to, err);
    const uint64_t width = zx_dtype_bytes(t->at[i].type.dtype);
    memcpy(to, t->at[i].data + (uint64_t)from * width, (size_t)((uint64_t)n * width));
    return ZX_OK;
}

static void widen(zx_dtype from, const unsigned char *at, int64_t n, float *to)
{
    const uint32_t width = zx_dtype_bytes(from);
    for (int64_t k = 0; k < n; k++, at += width) {
        uint16_t half;
        double x;
        if (from == ZX_F64) {
            memcpy(&x, at, sizeof x);
            to[k] = (float)x;
        } else {
            memcpy(&half, at, sizeof half);
            to[k] = from == ZX_F16 ? zx_f16_to_f32(half) : zx_bf16_to_f32(half);
        }
    }
}

zx_status zx_tensors_read_f32(zx_tensors *t, uint32_t i, int64_t from, int64_t n, float *to,
                              zx_err *err)
{
    unsigned char some[8192];
    const zx_dtype type = t->at[i].type.dtype;
    if (type == ZX_F32) return zx_tensors_read(t, i, from, n, to, err);
    if (!zx_dtype_is_float(type))
        return ZX_FAIL(err, ZX_E_DATA, "tensor '%s' is %s, not of a float type",
                       zx_text_safe(t->mem, t->at[i].name), zx_dtypes[type].word);
    const int64_t room = (int64_t)(sizeof some / zx_dtype_bytes(type));
    for (int64_t done = 0; done < n; done += room) {
        const int64_t part = n - done < room ? n - done : room;
        ZX_TRY(zx_tensors_read(t, i, from + done, part, some, err));
        widen(type, some, part, to + done);
    }
    return ZX_OK;
}

static bool one_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool zx_tensors_reads(const zx_tensors *t, const char *path)
{
    if (one_file(t->path, path)) return true;
    for (uint32_t f = 0; f < t->n_files; f++)
        if (one_file(t->paths[f], path)) return true;
    if (!t->is_ckpt) return false;
    const char *dir = t->ckpt.dir;
    bool reads = one_file(zx_arena_printf(t->mem, "%s/manifest.json", dir), path);
    for (uint32_t r = 0; r < t->ckpt.ranks && !reads; r++) {
        const char *name = zx_ckpt_file_name(r, t->ckpt.ranks, t->mem);
        reads = one_file(zx_arena_printf(t->mem, "%s/%s", dir, name), path);
    }
    return reads;
}

bool zx_tensor_is_state(const zx_tensor_entry *e)
{
    return e->part[0] != '\0' && strcmp(e->part, "parameter") != 0 &&
           strcmp(e->part, "buffer") != 0;
}

uint32_t zx_tensors_find(const zx_tensors *t, const char *name)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (strcmp(t->at[i].name, name) == 0 && !zx_tensor_is_state(&t->at[i])) return i;
    for (uint32_t i = 0; i < t->n; i++)
        for (uint32_t k = 0; k < t->at[i].n_aliases; k++)
            if (strcmp(t->at[i].aliases[k], name) == 0 && !zx_tensor_is_state(&t->at[i])) return i;
    return ZX_NONE;
}
