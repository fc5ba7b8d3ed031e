// onnx_tensor.c - the elements of a TensorProto, wherever the file keeps them.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <string.h>

#include "graph/base/text.h"
#include "proto/onnx_inner.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw data is used where it is mapped");

// The fields that hold elements, by their numbers in TensorProto.
enum {
    RAW_DATA = 9,
    FLOAT_DATA = 4,
    INT32_DATA = 5,
    INT64_DATA = 7,
    DOUBLE_DATA = 10,
    UINT64_DATA = 11
};

static const struct { // where the standard keeps each type if it isn't raw, and what may stand
                      // there
    uint32_t field;
    int64_t least, most; // of an integer field; 0, 0: all that fits the type
} typed[ZX_DTYPE_COUNT] = {
    [ZX_F32] = {FLOAT_DATA, 0, 0},           [ZX_F64] = {DOUBLE_DATA, 0, 0},
    [ZX_F16] = {INT32_DATA, -32768, 65535},  [ZX_BF16] = {INT32_DATA, -32768, 65535},
    [ZX_I8] = {INT32_DATA, -128, 127},       [ZX_I16] = {INT32_DATA, -32768, 32767},
    [ZX_I32] = {INT32_DATA, 0, 0},           [ZX_I64] = {INT64_DATA, 0, 0},
    [ZX_U8] = {INT32_DATA, 0, 255},          [ZX_U16] = {INT32_DATA, 0, 65535},
    [ZX_U32] = {UINT64_DATA, 0, UINT32_MAX}, [ZX_U64] = {UINT64_DATA, 0, 0},
    [ZX_BOOL] = {INT32_DATA, 0, 1},
};

typedef struct elements { // what one field of the message holds
    const char *name;
    uint32_t number;
    bool varints;     // `bytes` are varints, to be decoded
    uint64_t n_bytes; // as stored
    const void *bytes;
} elements;

static uint32_t find_elements(const zx_onnx_file *f, const Onnx__TensorProto *t, elements out[12])
{
    const elements all[] = {
        {"raw_data", RAW_DATA, false, t->raw_data.len, t->raw_data.data},
        {"float_data", FLOAT_DATA, false, t->n_float_data * sizeof(float), t->float_data},
        {"int32_data", INT32_DATA, false, t->n_int32_data * sizeof(int32_t), t->int32_data},
        {"int64_data", INT64_DATA, false, t->n_int64_data * sizeof(int64_t), t->int64_data},
        {"double_data", DOUBLE_DATA, false, t->n_double_data * sizeof(double), t->double_data},
        {"uint64_data", UINT64_DATA, false, t->n_uint64_data * sizeof(uint64_t), t->uint64_data},
    };
    uint32_t n = 0;
    for (uint32_t i = 0; i < ZX_COUNT(all); i++) {
        const zx_wire_payload *p = f->inner ? zx_wire_find(&t->base, all[i].number,
                                                           f->inner->payloads, f->inner->n_payloads)
                                            : NULL;
        if (all[i].n_bytes > 0) out[n++] = all[i];
        if (p == NULL || p->n == 0) continue;
        const bool varints = all[i].number == INT32_DATA || all[i].number == INT64_DATA ||
                             all[i].number == UINT64_DATA;
        out[n++] = (elements){all[i].name, all[i].number, varints, p->n, p->bytes};
    }
    return n;
}

// Varints as the array that protobuf-c would have made of them.
static zx_status decode_varints(elements *e, uint64_t count, zx_arena *mem, zx_err *err)
{
    const bool narrow = e->number == INT32_DATA;
    const unsigned char *at = e->bytes, *end = at + e->n_bytes;
    unsigned char *to = zx_arena_alloc(mem, (size_t)count, narrow ? 4 : 8, ZX_ALIGN);
    uint64_t n = 0;
    for (uint64_t v; n < count && zx_wire_varint(&at, end, &v); n++) {
        const uint32_t low = (uint32_t)v;
        if (narrow)
            memcpy(to + n * 4, &low, 4);
        else
            memcpy(to + n * 8, &v, 8);
    }
    if (n < count || at < end)
        return ZX_FAIL(err, ZX_E_FORMAT, "%s doesn't have the %" PRIu64 " elements of its shape",
                       e->name, count);
    *e = (elements){e->name, e->number, false, count * (narrow ? 4 : 8), to};
    return ZX_OK;
}

// Integers of 4 or 8 bytes as the narrower elements that they stand for.
static zx_status narrow_elements(const elements *e, zx_dtype dtype, uint64_t count, zx_arena *mem,
                                 const void **data, zx_err *err)
{
    const uint32_t from = e->number == INT32_DATA ? 4 : 8, to = zx_dtype_bytes(dtype);
    unsigned char *out = zx_arena_alloc(mem, (size_t)count, to, ZX_ALIGN);
    for (uint64_t i = 0; i < count; i++) {
        int64_t v = 0;
        int32_t v32;
        if (from == 4) {
            memcpy(&v32, (const unsigned char *)e->bytes + i * 4, 4);
            v = v32;
        } else {
            memcpy(&v, (const unsigned char *)e->bytes + i * 8, 8);
        }
        if (v < typed[dtype].least || v > typed[dtype].most)
            return ZX_FAIL(err, ZX_E_FORMAT, "element %" PRIu64 " in %s is no %s (%" PRId64 ")", i,
                           e->name, zx_dtypes[dtype].word, v);
        memcpy(out + i * to, &v, to);
    }
    *data = out;
    return ZX_OK;
}

static zx_status typed_elements(elements *e, zx_dtype dtype, uint64_t count, zx_arena *mem,
                                const void **data, zx_err *err)
{
    if (e->number != typed[dtype].field)
        return ZX_FAIL(err, ZX_E_FORMAT, "its elements are %s, but it has %s",
                       zx_dtypes[dtype].word, e->name);
    if (e->varints) {
        // Each varint takes a byte at least: no allocation is larger than 8 times the file.
        if (count > e->n_bytes)
            return ZX_FAIL(err, ZX_E_FORMAT,
                           "%s doesn't have the %" PRIu64 " elements of its shape", e->name, count);
        ZX_TRY(decode_varints(e, count, mem, err));
    }
    const uint32_t each = e->number == INT32_DATA || e->number == FLOAT_DATA ? 4 : 8;
    if (e->n_bytes != count * each)
        return ZX_FAIL(err, ZX_E_FORMAT, "%s has %" PRIu64 " elements, its shape wants %" PRIu64,
                       e->name, e->n_bytes / each, count);
    if (each == zx_dtype_bytes(dtype)) {
        *data = e->bytes;
        return ZX_OK;
    }
    return narrow_elements(e, dtype, count, mem, data, err);
}

static zx_status inline_elements(const zx_onnx_file *f, const Onnx__TensorProto *t,
                                 const zx_type *type, zx_arena *mem, const void **data, zx_err *err)
{
    elements found[12];
    const uint64_t count = (uint64_t)zx_shape_count(&type->shape), bytes = zx_type_bytes(type);
    const uint32_t n = find_elements(f, t, found);
    char text[ZX_SHAPE_TEXT];
    if (n > 1)
        return ZX_FAIL(err, ZX_E_FORMAT, "it has both %s and %s", found[0].name, found[1].name);
    if (n == 0 && bytes > 0)
        return ZX_FAIL(err, ZX_E_FORMAT, "it has no data, but shape %s",
                       zx_shape_text(&type->shape, text));
    if (n == 0) return ZX_OK;
    if (found[0].number != RAW_DATA)
        return typed_elements(&found[0], type->dtype, count, mem, data, err);
    if (found[0].n_bytes != bytes)
        return ZX_FAIL(err, ZX_E_FORMAT, "%s %s takes %" PRIu64 " bytes, raw_data has %" PRIu64,
                       zx_dtypes[type->dtype].word, zx_shape_text(&type->shape, text), bytes,
                       found[0].n_bytes);
    *data = found[0].bytes;
    return ZX_OK;
}

static bool parse_size(const char *text, uint64_t *out)
{
    *out = 0;
    if (text[0] == '\0') return false;
    for (; *text != '\0'; text++)
        if (*text < '0' || *text > '9' || !zx_mul_u64(*out, 10, out) ||
            !zx_add_u64(*out, (uint64_t)(*text - '0'), out))
            return false;
    return true;
}

static zx_status external_elements(const zx_onnx_file *f, const Onnx__TensorProto *t,
                                   const zx_type *type, const void **data, zx_err *err)
{
    const zx_mapfile *file;
    uint64_t offset = 0, length, end;
    const uint64_t bytes = zx_type_bytes(type);
    const char *location = zx_onnx_meta(t->external_data, t->n_external_data, "location");
    const char *offset_text = zx_onnx_meta(t->external_data, t->n_external_data, "offset");
    const char *length_text = zx_onnx_meta(t->external_data, t->n_external_data, "length");
    elements found[12];
    if (find_elements(f, t, found) > 0)
        return ZX_FAIL(err, ZX_E_FORMAT, "it has %s beside external data", found[0].name);
    if (offset_text != NULL && !parse_size(offset_text, &offset))
        return ZX_FAIL(err, ZX_E_FORMAT, "the offset of its external data is no size");
    if (length_text != NULL && !parse_size(length_text, &length))
        return ZX_FAIL(err, ZX_E_FORMAT, "the length of its external data is no size");
    if (length_text != NULL && length != bytes)
        return ZX_FAIL(err, ZX_E_FORMAT,
                       "it takes %" PRIu64 " bytes, its external data has %" PRIu64, bytes, length);
    if (location == NULL || location[0] == '\0')
        return ZX_FAIL(err, ZX_E_FORMAT, "its external data has no location");
    if (f->inner == NULL) return ZX_FAIL(err, ZX_E_FORMAT, "external data needs a model in a file");
    ZX_TRY(zx_onnx_side_open(f->inner, location, &file, err));
    if (!zx_add_u64(offset, bytes, &end) || end > file->size)
        return ZX_FAIL(err, ZX_E_FORMAT,
                       "bytes %" PRIu64 " and %" PRIu64
                       " on of its external data, which has %" PRIu64,
                       offset, bytes, file->size);
    if (bytes > 0) *data = file->bytes + offset;
    return ZX_OK;
}

static zx_status read_type(const Onnx__TensorProto *t, zx_type *type, zx_err *err)
{
    *type = (zx_type){.dtype = ZX_DTYPE_COUNT};
    if (!t->has_data_type || t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__UNDEFINED)
        return ZX_FAIL(err, ZX_E_FORMAT, "it has no element type");
    type->dtype = zx_dtype_of_onnx(t->data_type);
    if (type->dtype == ZX_DTYPE_COUNT) {
        const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(
            &onnx__tensor_proto__data_type__descriptor, t->data_type);
        return ZX_FAIL(err, v ? ZX_E_UNSUPPORTED : ZX_E_FORMAT, "element type %s (%d) is not %s",
                       v ? v->name : "number", t->data_type, v ? "supported" : "known");
    }
    if (t->segment != NULL) return ZX_FAIL(err, ZX_E_UNSUPPORTED, "it is in segments");
    if (t->n_dims > ZX_MAX_RANK)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "it has %zu dimensions, %d are the most", t->n_dims,
                       ZX_MAX_RANK);
    type->shape.rank = (uint32_t)t->n_dims;
    for (uint32_t i = 0; i < type->shape.rank; i++) type->shape.dim[i] = t->dims[i];
    return zx_shape_check(&type->shape, err);
}

static zx_status read_elements(const zx_onnx_file *f, const Onnx__TensorProto *t, zx_arena *mem,
                               zx_type *type, const void **data, zx_err *err)
{
    ZX_TRY(read_type(t, type, err));
    if (t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        ZX_TRY(external_elements(f, t, type, data, err));
    else
        ZX_TRY(inline_elements(f, t, type, mem, data, err));
    if (type->dtype != ZX_BOOL) return ZX_OK;
    const uint64_t n = zx_type_bytes(type);
    for (uint64_t i = 0; i < n; i++)
        if (((const unsigned char *)*data)[i] > 1)
            return ZX_FAIL(err, ZX_E_FORMAT, "element %" PRIu64 " is neither true nor false", i);
    return ZX_OK;
}

zx_status zx_onnx_tensor(const zx_onnx_file *f, const Onnx__TensorProto *t, zx_arena *mem,
                         zx_type *type, const void **data, zx_err *err)
{
    *data = ""; // what an empty tensor points to
    zx_err why = {0};
    const zx_status st = read_elements(f, t, mem, type, data, &why);
    if (st == ZX_OK) return ZX_OK;
    if (t->name != NULL && t->name[0] != '\0')
        zx_err_in(&why, "tensor '%.200s'", zx_text_safe(mem, t->name));
    if (err != NULL) zx_err_merge(err, &why);
    return st;
}
