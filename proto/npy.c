// npy.c - see npy.h. The header is a Python dict literal, e.g.
// {'descr': '<f4', 'fortran_order': False, 'shape': (1797, 64), }
// SPDX-License-Identifier: Apache-2.0
#include "proto/npy.h"

#include <inttypes.h>
#include <string.h>

#include "graph/base/text.h"

#define MAGIC "\x93NUMPY"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are used where they are mapped");

static const struct {
    const char *descr; // without the byte order
    zx_dtype dtype;
} descrs[] = {
    {"f4", ZX_F32}, {"f8", ZX_F64}, {"f2", ZX_F16}, {"i1", ZX_I8},  {"i2", ZX_I16}, {"i4", ZX_I32},
    {"i8", ZX_I64}, {"u1", ZX_U8},  {"u2", ZX_U16}, {"u4", ZX_U32}, {"u8", ZX_U64}, {"b1", ZX_BOOL},
};

typedef struct reader {
    const char *at, *end;
} reader;

static void skip_blanks(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t')) r->at++;
}

static bool take(reader *r, const char *word)
{
    skip_blanks(r);
    const size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static bool take_string(reader *r, char *to, size_t room)
{
    skip_blanks(r);
    if (r->at >= r->end || (*r->at != '\'' && *r->at != '"')) return false;
    const char quote = *r->at++;
    size_t n = 0;
    while (r->at < r->end && *r->at != quote) {
        if (n + 1 >= room || *r->at == '\\') return false;
        to[n++] = *r->at++;
    }
    to[n] = '\0';
    return take(r, (const char[]){quote, '\0'});
}

static bool take_size(reader *r, int64_t *size)
{
    skip_blanks(r);
    const char *first = r->at;
    uint64_t n = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (!zx_mul_u64(n, 10, &n) || !zx_add_u64(n, (uint64_t)(*r->at - '0'), &n)) return false;
    if (r->at == first || n > INT64_MAX) return false;
    if (r->at < r->end && *r->at == 'L') r->at++; // Python 2 wrote long integers so
    *size = (int64_t)n;
    return true;
}

static zx_status take_descr(reader *r, zx_dtype *dtype, zx_err *err)
{
    char descr[16];
    if (!take_string(r, descr, sizeof descr))
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "its elements aren't plain numbers");
    for (uint32_t i = 0; descr[0] != '\0' && i < ZX_COUNT(descrs); i++) {
        if (strcmp(descr + 1, descrs[i].descr) != 0) continue;
        if (descr[0] == '>' && zx_dtype_bytes(descrs[i].dtype) > 1) {
            zx_err_hint(err, "save it in this host's order: numpy.save(path, array.astype('<%s'))",
                        descr + 1);
            return ZX_FAIL(err, ZX_E_UNSUPPORTED, "its elements ('%s') are big-endian", descr);
        }
        if (strchr("<|=>", descr[0]) == NULL) break;
        *dtype = descrs[i].dtype;
        return ZX_OK;
    }
    zx_arena mem = {0};
    ZX_FAIL(err, ZX_E_UNSUPPORTED, "element type '%s' is not supported", zx_text_safe(&mem, descr));
    zx_arena_free(&mem);
    return ZX_E_UNSUPPORTED;
}

static zx_status take_shape(reader *r, zx_shape *shape, zx_err *err)
{
    *shape = (zx_shape){0};
    if (!take(r, "(")) return ZX_FAIL(err, ZX_E_FORMAT, "its header has no shape");
    while (!take(r, ")")) {
        if (shape->rank == ZX_MAX_RANK)
            return ZX_FAIL(err, ZX_E_UNSUPPORTED, "it has more than %d dimensions", ZX_MAX_RANK);
        if (!take_size(r, &shape->dim[shape->rank]))
            return ZX_FAIL(err, ZX_E_FORMAT, "dimension %u in its header is no size", shape->rank);
        shape->rank++;
        if (!take(r, ",") && (r->at >= r->end || *r->at != ')'))
            return ZX_FAIL(err, ZX_E_FORMAT, "its header's shape does not end");
    }
    return zx_shape_check(shape, err);
}

static zx_status parse_header(reader r, zx_type *type, zx_err *err)
{
    bool have_descr = false, have_order = false, have_shape = false, fortran = false;
    if (!take(&r, "{")) return ZX_FAIL(err, ZX_E_FORMAT, "its header is no dictionary");
    while (!take(&r, "}")) {
        char key[20];
        if (!take_string(&r, key, sizeof key) || !take(&r, ":"))
            return ZX_FAIL(err, ZX_E_FORMAT, "its header is no dictionary of short names");
        if (strcmp(key, "descr") == 0 && !have_descr) {
            ZX_TRY(take_descr(&r, &type->dtype, err));
            have_descr = true;
        } else if (strcmp(key, "fortran_order") == 0 && !have_order) {
            fortran = take(&r, "True");
            if (!fortran && !take(&r, "False"))
                return ZX_FAIL(err, ZX_E_FORMAT, "fortran_order is neither True nor False");
            have_order = true;
        } else if (strcmp(key, "shape") == 0 && !have_shape) {
            ZX_TRY(take_shape(&r, &type->shape, err));
            have_shape = true;
        } else {
            return ZX_FAIL(err, ZX_E_FORMAT, "its header has an unknown or doubled key");
        }
        if (!take(&r, ",") && (r.at >= r.end || *r.at != '}'))
            return ZX_FAIL(err, ZX_E_FORMAT, "its header does not end");
    }
    if (!have_descr || !have_order || !have_shape)
        return ZX_FAIL(err, ZX_E_FORMAT, "its header lacks descr, fortran_order or shape");
    if (fortran && type->shape.rank > 1) {
        zx_err_hint(err, "save it in C order: numpy.save(path, numpy.ascontiguousarray(array))");
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "it is in Fortran order");
    }
    return ZX_OK;
}

static zx_status open_mapped(zx_npy *n, zx_err *err)
{
    const unsigned char *at = n->file.bytes;
    if (n->file.size >= 4 && memcmp(at, "PK\3\4", 4) == 0) {
        zx_err_hint(err, "save one array a file with numpy.save");
        return ZX_FAIL(err, ZX_E_FORMAT, "this is a zip archive (.npz?), not a .npy file");
    }
    if (n->file.size < 10 || memcmp(at, MAGIC, 6) != 0)
        return ZX_FAIL(err, ZX_E_FORMAT, "not a .npy file");
    if (at[6] < 1 || at[6] > 3)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, ".npy version %d.%d is not known", at[6], at[7]);
    const uint64_t begin = at[6] == 1 ? 10 : 12;
    if (n->file.size < begin) return ZX_FAIL(err, ZX_E_FORMAT, "cut off inside its header");
    uint64_t header_bytes = at[8] | (uint64_t)at[9] << 8;
    if (begin == 12) header_bytes |= (uint64_t)at[10] << 16 | (uint64_t)at[11] << 24;
    if (header_bytes > n->file.size - begin)
        return ZX_FAIL(err, ZX_E_FORMAT, "cut off inside its header");
    const char *header = (const char *)at + begin;
    ZX_TRY(parse_header((reader){header, header + header_bytes}, &n->type, err));

    const uint64_t have = n->file.size - begin - header_bytes, want = zx_type_bytes(&n->type);
    char shape[ZX_SHAPE_TEXT];
    if (want != have)
        return ZX_FAIL(err, ZX_E_FORMAT,
                       "%s %s takes %" PRIu64 " bytes, the file has %" PRIu64 " after its header",
                       zx_dtypes[n->type.dtype].word, zx_shape_text(&n->type.shape, shape), want,
                       have);
    n->data = at + begin + header_bytes;
    return ZX_OK;
}

zx_status zx_npy_open(zx_npy *n, const char *path, zx_err *err)
{
    *n = (zx_npy){0};
    ZX_TRY(zx_mapfile_open(&n->file, path, err));
    const zx_status st = open_mapped(n, err);
    if (st != ZX_OK) {
        zx_err_in(err, "%s", path);
        zx_npy_close(n);
    }
    return st;
}

void zx_npy_close(zx_npy *n)
{
    zx_mapfile_close(&n->file);
    *n = (zx_npy){0};
}
