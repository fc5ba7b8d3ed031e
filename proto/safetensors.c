// safetensors.c - see safetensors.h. The rules that a file must keep are those of the format's
// reference implementation: the header's tensors tile the data exactly, without holes or overlap.
// SPDX-License-Identifier: Apache-2.0
#include "proto/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/text.h"

#define HEADER_MOST ((uint64_t)100000000) // the reference reader refuses longer ones
#define METADATA "__metadata__"

typedef struct place { // of a tensor, for the check that the tensors tile the data
    uint64_t begin, end;
    const char *name;
} place;

static int by_begin(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end; // empty ones first
}

static zx_status check_tiling(place *places, uint32_t n, uint64_t data_bytes, zx_err *err)
{
    uint64_t at = 0;
    if (n > 1) qsort(places, n, sizeof *places, by_begin);
    for (uint32_t i = 0; i < n; at = places[i].end, i++)
        if (places[i].begin != at)
            return ZX_FAIL(err, ZX_E_FORMAT,
                           "tensor '%s' begins at %" PRIu64 " where the one before ends at %" PRIu64
                           ": tensors must neither overlap nor leave holes",
                           places[i].name, places[i].begin, at);
    if (at != data_bytes)
        return ZX_FAIL(err, ZX_E_FORMAT,
                       "its tensors take %" PRIu64 " bytes, the file has %" PRIu64
                       " after its header",
                       at, data_bytes);
    return ZX_OK;
}

static bool size_of(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static zx_status read_type(const json_t *entry, zx_type *type, zx_err *err)
{
    const char *word = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    if (word == NULL || !json_is_array(shape))
        return ZX_FAIL(err, ZX_E_FORMAT, "has no dtype or no shape");
    type->dtype = zx_dtype_of_safe(word);
    if (type->dtype == ZX_DTYPE_COUNT)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "element type %.16s is not supported", word);
    if (json_array_size(shape) > ZX_MAX_RANK)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "has %zu dimensions, %d are the most",
                       json_array_size(shape), ZX_MAX_RANK);
    type->shape = (zx_shape){.rank = (uint32_t)json_array_size(shape)};
    for (uint32_t i = 0; i < type->shape.rank; i++) {
        uint64_t dim;
        if (!size_of(json_array_get(shape, i), &dim))
            return ZX_FAIL(err, ZX_E_FORMAT, "dimension %u is no size", i);
        type->shape.dim[i] = (int64_t)dim;
    }
    return zx_shape_check(&type->shape, err);
}

static zx_status read_tensor(const json_t *entry, uint64_t data_bytes, zx_safe_tensor *t, place *p,
                             zx_err *err)
{
    ZX_TRY(read_type(entry, &t->type, err));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (json_array_size(offsets) != 2 || !size_of(json_array_get(offsets, 0), &p->begin) ||
        !size_of(json_array_get(offsets, 1), &p->end) || p->begin > p->end)
        return ZX_FAIL(err, ZX_E_FORMAT, "has no pair of data_offsets");
    if (p->end > data_bytes)
        return ZX_FAIL(err, ZX_E_FORMAT,
                       "ends at byte %" PRIu64 " of the data, but the file has only %" PRIu64,
                       p->end, data_bytes);
    char text[ZX_SHAPE_TEXT];
    if (p->end - p->begin != zx_type_bytes(&t->type))
        return ZX_FAIL(err, ZX_E_FORMAT, "%s %s takes %" PRIu64 " bytes, but has %" PRIu64,
                       zx_dtypes[t->type.dtype].word, zx_shape_text(&t->type.shape, text),
                       zx_type_bytes(&t->type), p->end - p->begin);
    return ZX_OK;
}

static zx_status read_metadata(const json_t *object, zx_safe_file *f, zx_arena *mem, zx_err *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object)) return ZX_FAIL(err, ZX_E_FORMAT, METADATA " is no object");
    f->meta = zx_arena_alloc(mem, json_object_size(object), sizeof *f->meta, _Alignof(char *));
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (!json_is_string(value))
            return ZX_FAIL(err, ZX_E_FORMAT, METADATA " has a value that is no text");
        f->meta[f->n_meta][0] = zx_arena_str(mem, key);
        f->meta[f->n_meta++][1] = zx_arena_str(mem, json_string_value(value));
    }
    return ZX_OK;
}

static zx_status read_header(json_t *header, uint64_t begin, zx_safe_file *f, zx_arena *mem,
                             zx_err *err)
{
    const char *key;
    json_t *value;
    const size_t n = json_object_size(header);
    const uint64_t data_bytes = f->file.size - begin;
    if (!json_is_object(header)) return ZX_FAIL(err, ZX_E_FORMAT, "its header is no JSON object");
    f->tensors = ZX_NEW(mem, zx_safe_tensor, n);
    place *places = ZX_NEW(mem, place, n);
    json_object_foreach(header, key, value)
    {
        if (strcmp(key, METADATA) == 0) {
            ZX_TRY(read_metadata(value, f, mem, err));
            continue;
        }
        zx_safe_tensor *t = &f->tensors[f->n];
        place *p = &places[f->n];
        t->name = zx_arena_str(mem, key);
        p->name = zx_text_safe(mem, t->name);
        const zx_status st = read_tensor(value, data_bytes, t, p, err);
        if (st != ZX_OK) {
            zx_err_in(err, "tensor '%s'", p->name);
            return st;
        }
        t->data = f->file.bytes + begin + p->begin;
        f->n++;
    }
    return check_tiling(places, f->n, data_bytes, err);
}

static json_t *parse_header(const void *json, size_t n, zx_arena *mem, zx_err *err)
{
    json_error_t why;
    json_t *header = json_loadb(json, n, JSON_REJECT_DUPLICATES, &why);
    if (header == NULL)
        ZX_FAIL(err, ZX_E_FORMAT, "its header is not valid JSON: column %d: %s", why.column,
                zx_text_safe(mem, why.text));
    return header;
}

static zx_status open_mapped(zx_safe_file *f, zx_arena *mem, zx_err *err)
{
    uint64_t n;
    if (f->file.size < 10) return ZX_FAIL(err, ZX_E_FORMAT, "too short for a .safetensors file");
    memcpy(&n, f->file.bytes, sizeof n);
    if (f->file.bytes[8] != '{') return ZX_FAIL(err, ZX_E_FORMAT, "not a .safetensors file");
    if (n > HEADER_MOST)
        return ZX_FAIL(err, ZX_E_FORMAT,
                       "its header of %" PRIu64
                       " bytes is longer than the format's limit of %" PRIu64,
                       n, HEADER_MOST);
    if (n > f->file.size - 8)
        return ZX_FAIL(err, ZX_E_FORMAT,
                       "cut off: its header takes %" PRIu64 " bytes, the file has %" PRIu64, n,
                       f->file.size - 8);
    json_t *header = parse_header(f->file.bytes + 8, (size_t)n, mem, err);
    if (header == NULL) return ZX_E_FORMAT;
    const zx_status st = read_header(header, 8 + n, f, mem, err);
    json_decref(header);
    return st;
}

zx_status zx_safe_open(zx_safe_file *f, const char *path, zx_arena *mem, zx_err *err)
{
    *f = (zx_safe_file){0};
    ZX_TRY(zx_mapfile_open(&f->file, path, err));
    const zx_status st = open_mapped(f, mem, err);
    if (st != ZX_OK) {
        zx_err_in(err, "%s", path);
        zx_safe_close(f);
    }
    return st;
}

void zx_safe_close(zx_safe_file *f)
{
    zx_mapfile_close(&f->file);
    *f = (zx_safe_file){0};
}

const zx_safe_tensor *zx_safe_find(const zx_safe_file *f, const char *name)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (strcmp(f->tensors[i].name, name) == 0) return &f->tensors[i];
    return NULL;
}

static void put_entry(zx_text *t, const zx_safe_tensor *tensor, uint64_t begin, uint64_t end)
{
    zx_text_json(t, tensor->name);
    zx_text_put(t, ":{\"dtype\":\"%s\",\"shape\":[", zx_dtypes[tensor->type.dtype].safe);
    for (uint32_t i = 0; i < tensor->type.shape.rank; i++)
        zx_text_put(t, "%s%" PRId64, i ? "," : "", tensor->type.shape.dim[i]);
    zx_text_put(t, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
}

zx_status zx_safe_header(uint32_t n, const zx_safe_tensor *tensors, uint32_t n_meta,
                         const char *const (*meta)[2], zx_arena *mem, const void **header,
                         uint64_t *header_bytes, uint64_t *offsets, uint64_t *total, zx_err *err)
{
    zx_status st = ZX_OK;
    zx_text t = {0};
    uint64_t at = 0, length = 0;
    zx_text_bytes(&t, &length, sizeof length); // filled in below
    zx_text_bytes(&t, "{", 1);
    if (n_meta > 0) zx_text_put(&t, "\"" METADATA "\":{");
    for (uint32_t i = 0; i < n_meta; i++) {
        if (i > 0) zx_text_bytes(&t, ",", 1);
        zx_text_json(&t, meta[i][0]);
        zx_text_bytes(&t, ":", 1);
        zx_text_json(&t, meta[i][1]);
    }
    if (n_meta > 0) zx_text_bytes(&t, "}", 1);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 || n_meta > 0) zx_text_bytes(&t, ",", 1);
        offsets[i] = at;
        if (!zx_add_u64(at, zx_type_bytes(&tensors[i].type), &at) || at > INT64_MAX / 2) {
            st = ZX_FAIL(err, ZX_E_UNSUPPORTED, "these tensors are too large for one file");
            goto done;
        }
        put_entry(&t, &tensors[i], offsets[i], at);
    }
    zx_text_bytes(&t, "}", 1);
    while (t.n % ZX_ALIGN != 0) zx_text_bytes(&t, " ", 1);
    length = t.n - 8;
    if (length > HEADER_MOST) {
        st = ZX_FAIL(err, ZX_E_UNSUPPORTED, "%u tensors are too many for one .safetensors file", n);
        goto done;
    }
    memcpy(t.at, &length, sizeof length);
    // What we would not read we do not write: two tensors of one name, or one called __metadata__.
    json_t *again = parse_header(t.at + 8, (size_t)length, mem, err);
    if (again == NULL) {
        st = ZX_E_FORMAT;
        zx_err_in(err, "cannot write these tensors as .safetensors");
        goto done;
    }
    json_decref(again);
    for (uint32_t i = 0; i < n; i++) offsets[i] += t.n;
    *total = at + t.n;
    *header_bytes = t.n;
    *header = zx_arena_copy(mem, t.at, t.n);
done:
    zx_text_free(&t);
    return st;
}
