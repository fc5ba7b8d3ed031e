// data_source.c - reads what --data says and opens the files it names; converts elements.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/data_source.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/base/text.h"

static const struct {
    const char *word;
    zx_data_kind kind;
} words[] = {{"ones", ZX_SOURCE_ONES},
             {"zeros", ZX_SOURCE_ZEROS},
             {"arange", ZX_SOURCE_ARANGE},
             {"synthetic", ZX_SOURCE_SYNTHETIC}};

static bool cut_suffix(char *s, const char *suffix)
{
    const size_t n = strlen(s), m = strlen(suffix);
    if (n <= m || strcmp(s + n - m, suffix) != 0) return false;
    s[n - m] = '\0';
    return true;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

// What stands behind the last ':' of a name that no file has: where there is a file of what stands
// before it, or it looks like a shift or a type, a suffix was meant.
static zx_status check_suffix(const char *path, const char *text, zx_arena *mem, zx_err *err)
{
    const char *slash = strrchr(path, '/');
    const char *colon = strrchr(slash != NULL ? slash : path, ':');
    if (colon == NULL || colon == path || access(path, F_OK) == 0) return ZX_OK;
    const char *word = colon + 1, *digits = word + strcspn(word, "0123456789");
    const bool looks =
        digits[0] != '\0' && digits[strspn(digits, "0123456789")] == '\0' && digits - word <= 5;
    if (!looks && access(zx_arena_strn(mem, path, (size_t)(colon - path)), F_OK) != 0) return ZX_OK;
    zx_err_hint(err, "FILE:+1 for windows that begin one token on (labels), FILE.bin:u32 for "
                     "uint32 tokens; without :u32 tokens of FILE.bin are uint16");
    return ZX_FAIL(err, ZX_E_USAGE, "'%s': there is no suffix '%s'; known are :+1 and :u32",
                   zx_text_safe(mem, text), zx_text_safe(mem, colon));
}

static zx_status parse_file(const char *text, const char *dir, zx_arena *mem, zx_data_source *out,
                            zx_err *err)
{
    char *name = zx_arena_copy(mem, text, strlen(text) + 1);
    for (bool more = true; more;) { // :u32 and :+1 in either order
        const bool next = !out->next && cut_suffix(name, ":+1");
        const bool wide = !out->wide && cut_suffix(name, ":u32");
        out->next |= next;
        out->wide |= wide;
        more = next || wide;
    }
    const bool relative = name[0] != '/' && strcmp(dir, ".") != 0;
    out->path = relative ? zx_arena_printf(mem, "%s/%s", dir, name) : name;
    ZX_TRY(check_suffix(out->path, text, mem, err));
    out->kind = ends_with(name, ".npy") ? ZX_SOURCE_NPY : ZX_SOURCE_TOKENS;
    if (out->kind == ZX_SOURCE_NPY && (out->next || out->wide))
        return ZX_FAIL(err, ZX_E_USAGE, "'%s': :u32 and :+1 are for token files, not for .npy",
                       zx_text_safe(mem, text));
    if (out->wide && !ends_with(name, ".bin"))
        return ZX_FAIL(err, ZX_E_USAGE,
                       "'%s': :u32 is for .bin files; other files are read as bytes",
                       zx_text_safe(mem, text));
    return ZX_OK;
}

zx_status zx_data_source_parse(const char *text, const char *dir, zx_arena *mem,
                               zx_data_source *out, zx_err *err)
{
    *out = (zx_data_source){.text = text};
    for (size_t i = 0; i < ZX_COUNT(words); i++)
        if (strcmp(text, words[i].word) == 0) {
            out->kind = words[i].kind;
            return ZX_OK;
        }
    if (strncmp(text, "copy:", 5) == 0) {
        out->kind = ZX_SOURCE_COPY;
        out->copy_of = text + 5;
        return ZX_OK;
    }
    if (strncmp(text, "const:", 6) == 0) {
        char *end = NULL;
        out->kind = ZX_SOURCE_CONST;
        out->value = strtod(text + 6, &end);
        if (end != text + 6 && *end == '\0' && isfinite(out->value)) return ZX_OK;
        return ZX_FAIL(err, ZX_E_USAGE, "'%s': const: needs a number", zx_text_safe(mem, text));
    }
    if (text[0] == '\0') return ZX_FAIL(err, ZX_E_USAGE, "an empty source");
    return parse_file(text, dir, mem, out, err);
}

bool zx_data_source_is_file(const zx_data_source *s)
{
    return s->kind == ZX_SOURCE_NPY || s->kind == ZX_SOURCE_TOKENS || s->kind == ZX_SOURCE_LABELS;
}

// ---- token files --------------------------------------------------------------------------------

static int32_t header_word(const unsigned char *p, size_t i)
{
    int32_t v;
    memcpy(&v, p + 4 * i, 4); // llm.c writes little-endian, as all of our hosts are
    return v;
}

// llm.c's header: 256 int32 words, the first three are magic, version and token count.
static const struct {
    int32_t magic, version;
    zx_dtype dtype;
} headers[] = {{20240520, 1, ZX_U16}, {20240801, 7, ZX_U32}};
enum { HEADER_BYTES = 1024 };

static zx_status open_bin(zx_data_source *s, zx_err *err)
{
    s->dtype = s->wide ? ZX_U32 : ZX_U16;
    s->data = s->map.bytes;
    uint64_t bytes = s->map.size;
    const int32_t magic = bytes >= HEADER_BYTES ? header_word(s->data, 0) : 0;
    for (size_t i = 0; i < ZX_COUNT(headers); i++) {
        if (magic != headers[i].magic || header_word(s->data, 1) != headers[i].version) continue;
        const int64_t stated = header_word(s->data, 2);
        const uint32_t width = zx_dtype_bytes(headers[i].dtype);
        if (s->wide && headers[i].dtype != ZX_U32)
            return ZX_FAIL(err, ZX_E_DATA, "%s: :u32 was asked for, its header says uint16",
                           s->path);
        s->dtype = headers[i].dtype;
        s->data += HEADER_BYTES;
        bytes -= HEADER_BYTES;
        if (stated < 0 || (uint64_t)stated * width != bytes) {
            zx_err_hint(err, "write or fetch the file again");
            return ZX_FAIL(err, ZX_E_DATA,
                           "%s: its header promises %lld tokens of %u bytes, but %llu bytes follow",
                           s->path, (long long)stated, width, (unsigned long long)bytes);
        }
    }
    const uint32_t width = zx_dtype_bytes(s->dtype);
    if (bytes % width != 0) {
        zx_err_hint(err, "a name that ends in .txt, where every byte is a token");
        return ZX_FAIL(err, ZX_E_DATA, "%s: %llu bytes are no whole number of %s tokens", s->path,
                       (unsigned long long)bytes, zx_dtypes[s->dtype].word);
    }
    s->n_tokens = bytes / width;
    return ZX_OK;
}

// Files that nobody means as text, whose bytes would make strange tokens.
static zx_status refuse_archives(const zx_data_source *s, zx_err *err)
{
    static const struct {
        const char *end, *hint;
    } rows[] = {
        {".npz", "numpy.save(\"FILE.npy\", numpy.load(\"FILE.npz\")[\"NAME\"])"},
        {".pt", "numpy.save(\"FILE.npy\", torch.load(\"FILE.pt\").numpy())"},
        {".pth", "numpy.save(\"FILE.npy\", torch.load(\"FILE.pth\").numpy())"},
        {".safetensors", "each array saved with numpy.save as a .npy of its own"},
        {".parquet", "each column saved with numpy.save as a .npy of its own"},
        {".h5", "each array saved with numpy.save as a .npy of its own"},
        {".gz", "the file unpacked"},
        {".zip", "the file unpacked"},
    };
    for (size_t i = 0; i < ZX_COUNT(rows); i++) {
        if (!ends_with(s->path, rows[i].end)) continue;
        zx_err_hint(err, "%s", rows[i].hint);
        return ZX_FAIL(err, ZX_E_DATA, "%s: %s isn't read; data are .npy, .bin or text files",
                       s->path, rows[i].end);
    }
    return ZX_OK;
}

zx_status zx_data_source_open(zx_data_source *s, zx_err *err)
{
    if (s->kind == ZX_SOURCE_NPY) {
        ZX_TRY(zx_npy_open(&s->npy, s->path, err));
        s->dtype = s->npy.type.dtype;
        s->data = s->npy.data;
        return ZX_OK;
    }
    if (s->kind != ZX_SOURCE_TOKENS && s->kind != ZX_SOURCE_LABELS) return ZX_OK;
    ZX_TRY(refuse_archives(s, err));
    ZX_TRY(zx_mapfile_open(&s->map, s->path, err));
    if (ends_with(s->path, ".bin")) return open_bin(s, err);
    s->dtype = ZX_U8;
    s->data = s->map.bytes;
    s->n_tokens = s->map.size;
    return ZX_OK;
}

void zx_data_source_close(zx_data_source *s)
{
    zx_npy_close(&s->npy);
    zx_mapfile_close(&s->map);
}

// ---- elements -----------------------------------------------------------------------------------

static bool is_integer(zx_dtype t)
{
    return zx_dtypes[t].kind == ZX_KIND_INT || zx_dtypes[t].kind == ZX_KIND_UINT;
}

bool zx_data_type_fits(zx_dtype from, zx_dtype to)
{
    if (from == to) return true;
    if (from == ZX_F16 && to == ZX_F32) return true;
    if (!is_integer(from) || !is_integer(to)) return false;
    const uint32_t a = zx_dtype_bytes(from), b = zx_dtype_bytes(to);
    if (zx_dtypes[from].kind == zx_dtypes[to].kind) return a <= b;
    return zx_dtypes[from].kind == ZX_KIND_UINT && a < b;
}

int64_t zx_data_load(const unsigned char *data, zx_dtype from, uint64_t i)
{
    const unsigned char *p = data + i * zx_dtype_bytes(from);
#define LOAD(id, T)                                                                                \
    case ZX_##id: {                                                                                \
        T v;                                                                                       \
        memcpy(&v, p, sizeof v);                                                                   \
        return (int64_t)v;                                                                         \
    }
    switch (from) {
        LOAD(I8, int8_t)
        LOAD(I16, int16_t)
        LOAD(I32, int32_t)
        LOAD(I64, int64_t)
        LOAD(U8, uint8_t)
        LOAD(U16, uint16_t)
        LOAD(U32, uint32_t)
        LOAD(U64, uint64_t)
    default:
        break;
    }
#undef LOAD
    return 0;
}

// The largest integer of a type as far as int64 goes; U64's own values above that wrap below 0 when
// loaded, and so count as not fitting anything but U64.
static int64_t largest(zx_dtype t)
{
    const uint32_t bits = 8 * zx_dtype_bytes(t) - (zx_dtypes[t].kind == ZX_KIND_INT ? 1 : 0);
    return bits >= 63 ? INT64_MAX : (int64_t)(UINT64_C(1) << bits) - 1;
}

bool zx_data_values_fit(const unsigned char *data, zx_dtype from, uint64_t n, zx_dtype to,
                        uint64_t *at)
{
    if (zx_data_type_fits(from, to)) return true;
    const int64_t hi = largest(to), lo = zx_dtypes[to].kind == ZX_KIND_INT ? -hi - 1 : 0;
    for (uint64_t i = 0; i < n; i++) {
        const int64_t v = zx_data_load(data, from, i);
        const bool wrapped = from == ZX_U64 && v < 0;
        if (v >= lo && v <= hi && !wrapped) continue;
        *at = i;
        return false;
    }
    return true;
}

static float half_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h >> 15) << 31, e = (h >> 10) & 31, m = h & 1023;
    uint32_t bits = sign | ((e + 112) << 23) | (m << 13);
    if (e == 31) bits = sign | 0x7F800000u | (m << 13);
    float f;
    if (e == 0) { // zero and subnormals: m * 2^-24
        f = (float)m * 0x1p-24f;
        return sign != 0 ? -f : f;
    }
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void store_int(void *data, zx_dtype t, uint64_t i, int64_t v)
{
    unsigned char *p = (unsigned char *)data + i * zx_dtype_bytes(t);
    memcpy(p, &v, zx_dtype_bytes(t)); // little-endian: the low bytes are the narrower integer
}

void zx_data_convert(void *to_data, zx_dtype to, const unsigned char *data, zx_dtype from,
                     uint64_t n)
{
    if (from == to) {
        if (n > 0) memcpy(to_data, data, n * zx_dtype_bytes(to));
        return;
    }
    if (from == ZX_F16) {
        for (uint64_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, data + 2 * i, sizeof h);
            ((float *)to_data)[i] = half_to_float(h);
        }
        return;
    }
    for (uint64_t i = 0; i < n; i++) store_int(to_data, to, i, zx_data_load(data, from, i));
}

void zx_data_store(void *data, zx_dtype t, uint64_t i, double v)
{
    if (t == ZX_F32)
        ((float *)data)[i] = (float)v;
    else if (t == ZX_F64)
        ((double *)data)[i] = v;
    else if (t == ZX_BOOL)
        ((unsigned char *)data)[i] = v != 0;
    else if (is_integer(t))
        store_int(data, t, i, (int64_t)v);
    else
        memset((unsigned char *)data + i * zx_dtype_bytes(t), 0, zx_dtype_bytes(t));
}
