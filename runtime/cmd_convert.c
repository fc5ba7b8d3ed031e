// cmd_convert.c - zerox convert: weights from one kind of file into another, some MiB at a time.
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/json.h"
#include "runtime/cmd.h"
#include "runtime/convert_ckpt.h"
#include "runtime/convert_onnx.h"
#include "runtime/outfile.h"
#include "runtime/tensors.h"

enum { CHUNK_BYTES = 1 << 22 };

typedef struct part { // one file that is written: tensors [first, first + n) of what is converted
    uint32_t first, n;
    const char *path, *name;
} part;

typedef struct conversion {
    zx_tensors from;
    zx_arena *mem;
    uint32_t n;         // tensors that are weights or buffers
    const uint32_t *at; // of from
    uint32_t n_parts;
    part *parts;
    uint64_t bytes; // of all tensors
    unsigned char *chunk;
} conversion;

static int by_key(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void choose(conversion *c)
{
    uint32_t *at = ZX_NEW(c->mem, uint32_t, c->from.n);
    for (uint32_t i = 0; i < c->from.n; i++) {
        if (zx_tensor_is_state(&c->from.at[i])) continue;
        at[c->n++] = i;
        c->bytes += zx_type_bytes(&c->from.at[i].type); // all of them fit into files
    }
    c->at = at;
}

// As many tensors a file as fit into `most` bytes, one at least.
static void cut(conversion *c, uint64_t most)
{
    c->parts = ZX_NEW(c->mem, part, c->n + 1);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const uint64_t size = zx_type_bytes(&c->from.at[c->at[i]].type);
        part *p = c->n_parts > 0 ? &c->parts[c->n_parts - 1] : NULL;
        if (p == NULL || (p->n > 0 && (size > most || bytes > most - size))) {
            c->parts[c->n_parts++] = (part){.first = i};
            p = &c->parts[c->n_parts - 1];
            bytes = 0;
        }
        p->n++;
        bytes += size;
    }
    if (c->n_parts == 0) c->n_parts = 1; // a file without tensors
}

// ---- writing ------------------------------------------------------------------------------------

static zx_status put_tensor(conversion *c, uint32_t i, zx_outfile *to, zx_err *err)
{
    const zx_type *t = &c->from.at[i].type;
    const int64_t width = zx_dtype_bytes(t->dtype), n = zx_shape_count(&t->shape);
    const int64_t most = CHUNK_BYTES / width;
    for (int64_t done = 0; done < n; done += most) {
        const int64_t k = n - done < most ? n - done : most;
        ZX_TRY(zx_tensors_read(&c->from, i, done, k, c->chunk, err));
        ZX_TRY(zx_outfile_write(to, c->chunk, (size_t)(k * width), err));
    }
    return ZX_OK;
}

static zx_status make_header(conversion *c, const part *p, const void **header, uint64_t *bytes,
                             zx_err *err)
{
    uint32_t n_meta = 1, aliases = 1;
    uint64_t total;
    zx_safe_tensor *tensors = ZX_NEW(c->mem, zx_safe_tensor, p->n);
    uint64_t *offsets = ZX_NEW(c->mem, uint64_t, p->n);
    for (uint32_t k = 0; k < p->n; k++) aliases += c->from.at[c->at[p->first + k]].n_aliases;
    const char *(*meta)[2] = zx_arena_alloc(c->mem, aliases, sizeof *meta, _Alignof(const char *));
    meta[0][0] = "format";
    meta[0][1] = "pt";
    for (uint32_t k = 0; k < p->n; k++) {
        const zx_tensor_entry *e = &c->from.at[c->at[p->first + k]];
        tensors[k] = (zx_safe_tensor){.name = e->name, .type = e->type};
        for (uint32_t a = 0; a < e->n_aliases; a++) {
            if (strcmp(e->aliases[a], "format") == 0) continue;
            meta[n_meta][0] = e->aliases[a];
            meta[n_meta++][1] = e->name;
        }
    }
    qsort(meta, n_meta, sizeof *meta, by_key);
    const zx_status st = zx_safe_header(p->n, tensors, n_meta, (const char *const(*)[2])meta,
                                        c->mem, header, bytes, offsets, &total, err);
    if (st == ZX_E_UNSUPPORTED) zx_err_hint(err, "--shard-size 5GB, or smaller");
    return st;
}

static zx_status write_part(conversion *c, const part *p, zx_err *err)
{
    zx_outfile file = {0};
    const void *header = NULL;
    uint64_t header_bytes = 0;
    ZX_TRY(make_header(c, p, &header, &header_bytes, err));
    zx_status st = zx_outfile_open(&file, p->path, c->mem, err);
    if (st == ZX_OK) st = zx_outfile_write(&file, header, (size_t)header_bytes, err);
    for (uint32_t k = 0; k < p->n && st == ZX_OK; k++)
        st = put_tensor(c, c->at[p->first + k], &file, err);
    if (st == ZX_OK) st = zx_outfile_commit(&file, err);
    zx_outfile_drop(&file);
    return st;
}

static zx_status write_index(conversion *c, const char *path, zx_err *err)
{
    zx_text out = {0};
    zx_text_put(&out,
                "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
                c->bytes);
    const char *comma = "";
    for (uint32_t f = 0; f < c->n_parts; f++)
        for (uint32_t k = 0; k < c->parts[f].n; k++, comma = ",") {
            zx_text_put(&out, "%s\n    ", comma);
            zx_text_json(&out, c->from.at[c->at[c->parts[f].first + k]].name);
            zx_text_put(&out, ": \"%s\"", c->parts[f].name);
        }
    zx_text_put(&out, "\n  }\n}\n");
    const zx_status st = zx_outfile_put(path, out.at, out.n, c->mem, err);
    zx_text_free(&out);
    return st;
}

// ---- where to -----------------------------------------------------------------------------------

static bool ends(const char *path, const char *with)
{
    const size_t n = strlen(path), m = strlen(with);
    return n > m && strcmp(path + n - m, with) == 0;
}

// Nothing that is read may be written to, with --force or without.
static zx_status check_apart(const conversion *c, const char *path, zx_err *err)
{
    if (zx_tensors_reads(&c->from, path))
        return ZX_FAIL(err, ZX_E_USAGE, "%s is what is converted", path);
    return ZX_OK;
}

static zx_status one_file(conversion *c, const char *to, bool force, zx_err *err)
{
    cut(c, UINT64_MAX);
    c->parts[0].path = to;
    ZX_TRY(check_apart(c, to, err));
    ZX_TRY(zx_outfile_spare(to, force, err));
    return write_part(c, &c->parts[0], err);
}

static zx_status sharded(conversion *c, const char *to, uint64_t most, bool force, zx_err *err)
{
    cut(c, most);
    const char *index = zx_arena_printf(c->mem, "%s/model.safetensors.index.json", to);
    if (mkdir(to, 0777) != 0 && errno != EEXIST)
        return ZX_FAIL(err, ZX_E_IO, "cannot make the folder %s: %s", to, strerror(errno));
    for (uint32_t f = 0; f < c->n_parts; f++) {
        part *p = &c->parts[f];
        p->name = zx_arena_printf(c->mem, "model-%05u-of-%05u.safetensors", f + 1, c->n_parts);
        p->path = zx_arena_printf(c->mem, "%s/%s", to, p->name);
        ZX_TRY(check_apart(c, p->path, err));
        ZX_TRY(zx_outfile_spare(p->path, force, err));
    }
    ZX_TRY(check_apart(c, index, err));
    ZX_TRY(zx_outfile_spare(index, force, err));
    for (uint32_t f = 0; f < c->n_parts; f++) ZX_TRY(write_part(c, &c->parts[f], err));
    return write_index(c, index, err); // last: what it names is there
}

// What the folder of a run says of its model; NULL.
static const char *model_of_run(const char *dir, zx_arena *mem)
{
    zx_err none = {0};
    json_t *root = NULL;
    const char *model = NULL, *path = zx_arena_printf(mem, "%s/config.json", dir);
    if (access(path, F_OK) != 0 || zx_json_read(path, &root, &none) != ZX_OK) return NULL;
    const json_t *run = json_object_get(json_object_get(root, "zerox"), "run");
    const char *says = json_string_value(json_object_get(run, "model"));
    if (says != NULL) model = zx_arena_str(mem, says);
    json_decref(root);
    return model;
}

// TO.onnx: a copy of the model with these weights.
static zx_status into_model(conversion *c, const zx_options *o, zx_err *err)
{
    const char *to = o->second, *model = zx_given_text(o, ZX_OPT_MODEL);
    struct stat a, b;
    uint32_t n = 0;
    bool beside = false;
    ZX_TRY(zx_tensors_open(o->operand, true, c->mem, &c->from, err));
    if (model == NULL && c->from.is_ckpt) model = c->from.ckpt.model;
    if (model == NULL) model = model_of_run(o->operand, c->mem);
    if (model == NULL) {
        zx_err_hint(err, "--model MODEL.onnx");
        return ZX_FAIL(err, ZX_E_USAGE, "%s doesn't say which model it is of",
                       zx_text_safe(c->mem, o->operand));
    }
    if (stat(to, &a) == 0 && stat(model, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return ZX_FAIL(err, ZX_E_USAGE, "%s is the model itself", to);
    ZX_TRY(check_apart(c, to, err));
    ZX_TRY(zx_outfile_spare(to, zx_given(o, ZX_OPT_FORCE), err));
    ZX_TRY(
        zx_convert_onnx(&c->from, model, to, zx_given(o, ZX_OPT_FORCE), c->mem, &n, &beside, err));
    zx_cmd_say("written: %s%s: %s with %u tensors of %s", zx_text_safe(c->mem, to),
               beside ? " and its values in .data beside it" : "", zx_text_safe(c->mem, model), n,
               zx_text_safe(c->mem, c->from.path));
    return ZX_OK;
}

// What is for one kind of TO alone.
static zx_status check_options(const zx_options *o, bool model, bool checkpoint, zx_arena *mem,
                               zx_err *err)
{
    static const zx_option_id for_checkpoints[] = {ZX_OPT_CONFIG, ZX_OPT_RANKS, ZX_OPT_DIM,
                                                   ZX_OPT_DATA, ZX_OPT_ALLOW_UNKNOWN};
    if (zx_given(o, ZX_OPT_MODEL) && !model && !checkpoint)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "--model is for TO.onnx or the folder of a checkpoint, not for %s",
                       o->second);
    for (size_t i = 0; i < ZX_COUNT(for_checkpoints) && !checkpoint; i++)
        if (zx_given(o, for_checkpoints[i])) {
            zx_err_hint(err, "--model MODEL.onnx, and a folder as TO");
            return ZX_FAIL(err, ZX_E_USAGE, "%s is for a checkpoint, not for %s",
                           zx_option_word(for_checkpoints[i], mem), o->second);
        }
    return ZX_OK;
}

static zx_status convert(conversion *c, const zx_options *o, zx_err *err)
{
    const char *to = o->second, *size = zx_given_text(o, ZX_OPT_SHARD_SIZE);
    const bool force = zx_given(o, ZX_OPT_FORCE), file = ends(to, ".safetensors");
    uint64_t most = 0;
    char total[ZX_BYTES_TEXT];
    if (size != NULL && (!zx_text_parse_size(size, &most) || most == 0))
        return ZX_FAIL(err, ZX_E_USAGE, "--shard-size needs a size like 5GB, not '%s'",
                       zx_text_safe(c->mem, size));
    const bool onnx = ends(to, ".onnx") && size == NULL;
    const bool checkpoint = !file && !onnx && size == NULL && zx_given(o, ZX_OPT_MODEL);
    ZX_TRY(check_options(o, onnx, checkpoint, c->mem, err));
    if (onnx) return into_model(c, o, err);
    if (checkpoint) return zx_convert_checkpoint(o, err);
    if ((file || ends(to, ".onnx")) && size != NULL)
        return ZX_FAIL(err, ZX_E_USAGE, "--shard-size makes several files: %s has to be a folder",
                       to);
    if (!file && size == NULL) {
        zx_err_hint(err,
                    "FILE.safetensors, FILE.onnx, or a folder: with --shard-size 5GB for several "
                    "files, with --model MODEL.onnx for a checkpoint");
        return ZX_FAIL(err, ZX_E_USAGE, "%s is no .safetensors file", zx_text_safe(c->mem, to));
    }
    ZX_TRY(zx_tensors_open(o->operand, true, c->mem, &c->from, err));
    choose(c);
    ZX_TRY(file ? one_file(c, to, force, err) : sharded(c, to, most, force, err));
    zx_cmd_say("written: %s: %u tensor%s, %s, in %u file%s", zx_text_safe(c->mem, to), c->n,
               c->n == 1 ? "" : "s", zx_text_size(c->bytes, total), c->n_parts,
               c->n_parts == 1 ? "" : "s");
    return ZX_OK;
}

int zx_cmd_convert(const zx_options *o, zx_err *err)
{
    zx_arena mem = {0};
    conversion c = {.mem = &mem, .chunk = malloc(CHUNK_BYTES)};
    zx_status st = c.chunk != NULL ? ZX_OK : ZX_FAIL(err, ZX_E_IO, "out of memory");
    if (st == ZX_OK) st = convert(&c, o, err);
    zx_tensors_close(&c.from);
    free(c.chunk);
    zx_arena_free(&mem);
    return zx_status_exit(st);
}
