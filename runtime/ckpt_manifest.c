// ckpt_manifest.c - manifest.json of a checkpoint, written and read; see ckpt.h.
//
// Its last member is the checksum of all bytes before it, so that a manifest that was cut off or
// spoilt is told from one that says something else.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/ckpt.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/hash.h"
#include "runtime/version.h"

#define FORMAT "zerox checkpoint"
#define SUM_KEY "  \"checksum\": \""
#define SUM_BYTES 16
#define END "\"\n}\n"

// Parts of which there may be tensors.
static const char *const parts[] = {"parameter", "buffer", "exp_avg", "exp_avg_sq", "momentum"};

int64_t zx_ckpt_piece(int64_t count, uint32_t ranks, uint32_t r, int64_t *from)
{
    const int64_t shard = count / ranks + (count % ranks != 0);
    const int64_t lo = shard > 0 && r > count / shard ? count : shard * r;
    *from = lo < count ? lo : count;
    return count - *from < shard ? count - *from : shard;
}

const char *zx_ckpt_file_name(uint32_t r, uint32_t ranks, zx_arena *mem)
{
    return zx_arena_printf(mem, "rank-%05u-of-%05u.safetensors", r, ranks);
}

const char *zx_ckpt_tensor_name(const zx_ckpt_tensor *t, zx_arena *mem)
{
    return zx_arena_printf(mem, "%s/%s", t->part, t->name);
}

uint64_t zx_ckpt_model_hash(const zx_graph *forward)
{
    zx_text text = {0};
    for (uint32_t i = 0; i < forward->n_nodes; i++)
        zx_text_put(&text, "%s ", zx_ops[forward->nodes[i].op].word);
    for (uint32_t i = 0; i < forward->n_params; i++) {
        const zx_type *t = &forward->values[forward->params[i].value].type;
        char shape[ZX_SHAPE_TEXT];
        zx_text_put(&text, "%s %s ", forward->params[i].name, zx_shape_text(&t->shape, shape));
    }
    const uint64_t hash = zx_hash_of(text.at, text.n);
    zx_text_free(&text);
    return hash;
}

// ---- writing ------------------------------------------------------------------------------------

static void put_U64(zx_text *out, uint64_t x)
{
    zx_text_put(out, "%" PRIu64, x);
}

ZX_UNUSED static void put_F64(zx_text *out, double x) // read back to the bit
{
    zx_text_put(out, "%.17g%s", x, fabs(x) < 1e15 && x == floor(x) ? ".0" : "");
}

static void put_tensor(const zx_ckpt *c, const zx_ckpt_tensor *t, zx_text *out)
{
    int64_t from;
    zx_text_put(out, "    {\"part\": \"%s\", \"name\": ", t->part);
    zx_text_json(out, t->name);
    zx_text_put(out, ", \"dtype\": \"%s\", \"shape\": [", zx_dtypes[t->type.dtype].safe);
    for (uint32_t i = 0; i < t->type.shape.rank; i++)
        zx_text_put(out, "%s%" PRId64, i > 0 ? ", " : "", t->type.shape.dim[i]);
    if (t->n_aliases > 0) {
        zx_text_put(out, "], \"aliases\": [");
        for (uint32_t i = 0; i < t->n_aliases; i++) {
            if (i > 0) zx_text_put(out, ", ");
            zx_text_json(out, t->aliases[i]);
        }
    }
    zx_text_put(out, "], \"shard\": %" PRId64 ", \"checksums\": [",
                zx_ckpt_piece(zx_shape_count(&t->type.shape), c->ranks, 0, &from));
    for (uint32_t r = 0; r < c->ranks; r++)
        zx_text_put(out, "%s\"%016" PRIx64 "\"", r > 0 ? ", " : "", t->sums[r]);
    zx_text_put(out, "]}");
}

void zx_ckpt_manifest_write(const zx_ckpt *c, zx_text *out)
{
    zx_text_put(out,
                "{\n  \"format\": \"" FORMAT "\",\n  \"format_version\": %d,\n"
                "  \"zerox\": \"%s\",\n  \"ranks\": %u,\n  \"stage\": %u,\n  \"optimizer\": ",
                ZX_CKPT_VERSION, ZX_VERSION, c->ranks, c->stage);
    zx_text_json(out, c->optimizer);
    zx_text_put(out, ",\n  \"model\": ");
    zx_text_json(out, c->model);
    zx_text_put(out, ",\n  \"model_hash\": \"%016" PRIx64 "\",\n  \"train_state\": {",
                c->model_hash);
    const char *comma = "";
#define ZX_TRAIN_STATE(type, name, absent)                                                         \
    zx_text_put(out, "%s\n    \"" #name "\": ", comma);                                            \
    put_##type(out, c->state.name);                                                                \
    comma = ",";
#include "runtime/train_state.def"
#undef ZX_TRAIN_STATE
    zx_text_put(out, "\n  },\n  \"tensors\": [\n");
    for (uint32_t i = 0; i < c->n; i++) {
        put_tensor(c, &c->tensors[i], out);
        zx_text_put(out, "%s\n", i + 1 < c->n ? "," : "");
    }
    zx_text_put(out, "  ],\n");
    const uint64_t sum = zx_hash_of(out->at, out->n);
    zx_text_put(out, SUM_KEY "%016" PRIx64 END, sum);
}

// ---- reading ------------------------------------------------------------------------------------

static bool get_U64(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

ZX_UNUSED static bool get_F64(const json_t *v, double *out)
{
    *out = json_number_value(v);
    return json_is_number(v) && isfinite(*out);
}

static bool get_hex(const json_t *v, uint64_t *out)
{
    const char *text = json_string_value(v);
    if (text == NULL || strlen(text) != SUM_BYTES) return false;
    if (text[strspn(text, "0123456789abcdef")] != '\0') return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

static bool get_u32(const json_t *root, const char *key, uint32_t least, uint32_t most,
                    uint32_t *out)
{
    uint64_t x = 0;
    if (!get_U64(json_object_get(root, key), &x) || x < least || x > most) return false;
    *out = (uint32_t)x;
    return true;
}

static const char *get_text(const json_t *root, const char *key, zx_arena *mem)
{
    const char *text = json_string_value(json_object_get(root, key));
    return text != NULL ? zx_arena_str(mem, text) : NULL;
}

static zx_status read_state(const json_t *state, zx_train_state *out, zx_err *err)
{
    const json_t *v;
    if (!json_is_object(state)) return ZX_FAIL(err, ZX_E_FORMAT, "there is no train_state");
#define ZX_TRAIN_STATE(type, name, absent)                                                         \
    out->name = absent;                                                                            \
    v = json_object_get(state, #name);                                                             \
    if (v != NULL && !get_##type(v, &out->name))                                                   \
        return ZX_FAIL(err, ZX_E_FORMAT, "train_state." #name " is no number as it should be");
#include "runtime/train_state.def"
#undef ZX_TRAIN_STATE
    return ZX_OK;
}

static zx_status read_shape(const json_t *dims, zx_shape *shape, zx_err *err)
{
    if (!json_is_array(dims) || json_array_size(dims) > ZX_MAX_RANK)
        return ZX_FAIL(err, ZX_E_FORMAT, "has no shape of at most %d dimensions", ZX_MAX_RANK);
    *shape = (zx_shape){.rank = (uint32_t)json_array_size(dims)};
    for (uint32_t i = 0; i < shape->rank; i++) {
        uint64_t dim = 0;
        if (!get_U64(json_array_get(dims, i), &dim))
            return ZX_FAIL(err, ZX_E_FORMAT, "dimension %u is no size", i);
        shape->dim[i] = (int64_t)dim;
    }
    return zx_shape_check(shape, err);
}

static zx_status read_sums(const json_t *sums, uint32_t ranks, zx_arena *mem, const uint64_t **out,
                           zx_err *err)
{
    if (json_array_size(sums) != ranks)
        return ZX_FAIL(err, ZX_E_FORMAT, "has %zu checksums for %u ranks", json_array_size(sums),
                       ranks);
    uint64_t *to = ZX_NEW(mem, uint64_t, ranks);
    for (uint32_t r = 0; r < ranks; r++)
        if (!get_hex(json_array_get(sums, r), &to[r]))
            return ZX_FAIL(err, ZX_E_FORMAT, "checksum %u is no 16 hexadecimal digits", r);
    *out = to;
    return ZX_OK;
}

static zx_status read_aliases(const json_t *list, zx_arena *mem, zx_ckpt_tensor *t, zx_err *err)
{
    const size_t n = json_array_size(list);
    if (list == NULL) return ZX_OK;
    const char **names = ZX_NEW(mem, const char *, n);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name == NULL) return ZX_FAIL(err, ZX_E_FORMAT, "alias %zu is no name", i);
        names[i] = zx_arena_str(mem, name);
    }
    t->n_aliases = (uint32_t)n;
    t->aliases = names;
    return ZX_OK;
}

static zx_status read_tensor(const json_t *v, uint32_t ranks, zx_arena *mem, zx_ckpt_tensor *t,
                             zx_err *err)
{
    int64_t from;
    uint64_t shard = 0;
    const char *part = json_string_value(json_object_get(v, "part")),
               *dtype = json_string_value(json_object_get(v, "dtype"));
    t->name = get_text(v, "name", mem);
    if (t->name == NULL || part == NULL || dtype == NULL)
        return ZX_FAIL(err, ZX_E_FORMAT, "has no part, name or dtype");
    for (size_t i = 0; i < ZX_COUNT(parts); i++)
        if (strcmp(parts[i], part) == 0) t->part = parts[i];
    if (t->part == NULL) return ZX_FAIL(err, ZX_E_UNSUPPORTED, "part '%.32s' is unknown", part);
    t->type.dtype = zx_dtype_of_safe(dtype);
    if (t->type.dtype == ZX_DTYPE_COUNT)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "element type %.16s is not supported", dtype);
    ZX_TRY(read_shape(json_object_get(v, "shape"), &t->type.shape, err));
    ZX_TRY(read_aliases(json_object_get(v, "aliases"), mem, t, err));
    const int64_t want = zx_ckpt_piece(zx_shape_count(&t->type.shape), ranks, 0, &from);
    if (!get_U64(json_object_get(v, "shard"), &shard) || shard != (uint64_t)want)
        return ZX_FAIL(err, ZX_E_FORMAT, "has no shard of %" PRId64 " elements", want);
    return read_sums(json_object_get(v, "checksums"), ranks, mem, &t->sums, err);
}

static zx_status read_tensors(const json_t *list, zx_arena *mem, zx_ckpt *out, zx_err *err)
{
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n >= UINT32_MAX)
        return ZX_FAIL(err, ZX_E_FORMAT, "there is no list of tensors");
    zx_ckpt_tensor *tensors = ZX_NEW(mem, zx_ckpt_tensor, n);
    for (size_t i = 0; i < n; i++) {
        const zx_status st =
            read_tensor(json_array_get(list, i), out->ranks, mem, &tensors[i], err);
        if (st == ZX_OK) continue;
        zx_err_in(err, "tensor '%s'",
                  tensors[i].name != NULL ? zx_text_safe(mem, tensors[i].name) : "?");
        return st;
    }
    out->n = (uint32_t)n;
    out->tensors = tensors;
    return ZX_OK;
}

// The text has the checksum of what stands before it, at its very end.
static zx_status check_sum(const char *bytes, size_t n, zx_err *err)
{
    const size_t tail = strlen(SUM_KEY) + SUM_BYTES + strlen(END);
    if (n < tail || memcmp(bytes + n - tail, SUM_KEY, strlen(SUM_KEY)) != 0 ||
        memcmp(bytes + n - strlen(END), END, strlen(END)) != 0)
        return ZX_FAIL(err, ZX_E_FORMAT, "it doesn't end as a manifest does: cut off");
    char want[SUM_BYTES + 1];
    snprintf(want, sizeof want, "%016" PRIx64, zx_hash_of(bytes, n - tail));
    if (memcmp(want, bytes + n - strlen(END) - SUM_BYTES, SUM_BYTES) == 0) return ZX_OK;
    return ZX_FAIL(err, ZX_E_FORMAT, "its bytes don't have the checksum that it says");
}

static zx_status read_root(const json_t *root, zx_arena *mem, zx_ckpt *out, zx_err *err)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    uint32_t version = 0;
    if (format == NULL || strcmp(format, FORMAT) != 0)
        return ZX_FAIL(err, ZX_E_FORMAT, "it is no " FORMAT);
    if (!get_u32(root, "format_version", 1, UINT32_MAX, &version))
        return ZX_FAIL(err, ZX_E_FORMAT, "it has no format_version");
    if (version > ZX_CKPT_VERSION)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                       "a later zerox has written it: its version is %u, this one reads up to %d",
                       version, ZX_CKPT_VERSION);
    if (!get_u32(root, "ranks", 1, 65536, &out->ranks) ||
        !get_u32(root, "stage", 0, 3, &out->stage))
        return ZX_FAIL(err, ZX_E_FORMAT, "it has no ranks or no stage");
    out->optimizer = get_text(root, "optimizer", mem);
    out->model = get_text(root, "model", mem);
    if (out->optimizer == NULL || out->model == NULL ||
        !get_hex(json_object_get(root, "model_hash"), &out->model_hash))
        return ZX_FAIL(err, ZX_E_FORMAT, "it has no optimizer, model or model_hash");
    ZX_TRY(read_state(json_object_get(root, "train_state"), &out->state, err));
    return read_tensors(json_object_get(root, "tensors"), mem, out, err);
}

zx_status zx_ckpt_manifest_read(const char *bytes, size_t n, zx_arena *mem, zx_ckpt *out,
                                zx_err *err)
{
    json_error_t why;
    *out = (zx_ckpt){.fd = -1, .mem = mem};
    ZX_TRY(check_sum(bytes, n, err));
    json_t *root = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL)
        return ZX_FAIL(err, ZX_E_FORMAT, "line %d: %s", why.line, zx_text_safe(mem, why.text));
    const zx_status st = read_root(root, mem, out, err);
    json_decref(root);
    return st;
}
