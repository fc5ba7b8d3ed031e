// machine_json.c - machines as JSON and back: one row a field, so that both know the same keys.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json.h"
#include "sched/machine.h"

typedef enum field_kind {
    RATE,  // a number above 0, needed
    MAY,   // a number from 0 on
    WHOLE, // uint32_t
    SIZE,  // uint64_t
    FLAG,
    NAME,
    CURVE, // [[bytes, seconds], ...]
    RATES  // {"Gelu": a second, ...}: of kinds.def, those above 0
} field_kind;

static const struct field {
    const char *key;
    field_kind kind;
    size_t at;
} fields[] = {
#define X(kind, field)                                                                             \
    {                                                                                              \
#field, kind, offsetof(zx_machine, field)                                                  \
    }
    X(NAME, name),
    X(FLAG, host),
    X(WHOLE, ranks),
    X(SIZE, device_bytes),
    X(RATE, flops),
    X(MAY, flops_16),
    X(RATE, memory),
    X(MAY, op_seconds),
    X(MAY, host_seconds),
    X(MAY, hook_seconds),
    X(RATE, copy),
    X(RATE, sum),
    X(RATE, update),
    X(MAY, interference),
    X(MAY, cores),
    X(WHOLE, threads),
    X(MAY, wire),
    X(MAY, latency),
    X(CURVE, gather),
    X(CURVE, reduce),
    X(MAY, peak),
    X(MAY, peak_16),
    X(MAY, peak_tf32),
    X(MAY, cache),
    X(MAY, near),
    X(RATES, rates),
    X(MAY, norm),
#undef X
#define X(kind, type, field)                                                                       \
    {                                                                                              \
#type "_" #field, kind, offsetof(zx_machine, type.field)                                   \
    }
#define OF(type)                                                                                   \
    X(MAY, type, flops), X(MAY, type, flops_nt), X(MAY, type, flops_tn), X(MAY, type, memory),     \
        X(MAY, type, near), X(MAY, type, sum), X(MAY, type, update), X(MAY, type, norm),           \
        X(RATES, type, rates)
    OF(bf16),
    OF(fp16),
#undef OF
#undef X
};

// Beside the tables `gather` and `reduce`: the ranks that they are of, so that they aren't taken
// for those of others once somebody changes `ranks`.
static const char tables_key[] = "tables_ranks";

// The shortest decimal that is read back as the same number.
static void put_number(zx_text *out, double x)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    zx_text_put(out, "%s", text);
}

static void put_curve(zx_text *out, const zx_curve *c)
{
    zx_text_put(out, "[");
    for (uint32_t i = 0; i < c->n; i++) {
        zx_text_put(out, "%s[", i == 0 ? "" : i % 4 == 0 ? ",\n    " : ", ");
        put_number(out, c->bytes[i]);
        zx_text_put(out, ", ");
        put_number(out, c->seconds[i]);
        zx_text_put(out, "]");
    }
    zx_text_put(out, "]");
}

static void put_rates(zx_text *out, const double *rates)
{
    uint32_t n = 0;
    zx_text_put(out, "{");
    for (uint32_t k = 0; k < ZX_KIND_COUNT; k++) {
        if (rates[k] <= 0) continue;
        zx_text_put(out, "%s\"%s\": ",
                    n == 0       ? ""
                    : n % 4 == 0 ? ",\n    "
                                 : ", ",
                    zx_kinds[k].word);
        put_number(out, rates[k]);
        n++;
    }
    zx_text_put(out, "}");
}

void zx_machine_put(const zx_machine *m, zx_text *out)
{
    zx_text_put(out, "{\n");
    for (size_t i = 0; i < ZX_COUNT(fields); i++) {
        const unsigned char *at = (const unsigned char *)m + fields[i].at;
        double number = 0;
        uint32_t whole = 0;
        uint64_t size = 0;
        bool flag = false;
        if (fields[i].at == offsetof(zx_machine, gather) && m->gather.n > 0)
            zx_text_put(out, "  \"%s\": %" PRIu32 ",\n", tables_key, m->ranks);
        zx_text_put(out, "  \"%s\": ", fields[i].key);
        switch (fields[i].kind) {
        case RATE:
        case MAY:
            memcpy(&number, at, sizeof number);
            put_number(out, number);
            break;
        case WHOLE:
            memcpy(&whole, at, sizeof whole);
            zx_text_put(out, "%" PRIu32, whole);
            break;
        case SIZE:
            memcpy(&size, at, sizeof size);
            zx_text_put(out, "%" PRIu64, size);
            break;
        case FLAG:
            memcpy(&flag, at, sizeof flag);
            zx_text_put(out, "%s", flag ? "true" : "false");
            break;
        case NAME:
            zx_text_json(out, (const char *)at);
            break;
        case CURVE:
            put_curve(out, (const zx_curve *)(const void *)at);
            break;
        case RATES:
            put_rates(out, (const double *)(const void *)at);
            break;
        }
        zx_text_put(out, "%s\n", i + 1 < ZX_COUNT(fields) ? "," : "");
    }
    zx_text_put(out, "}\n");
}

static zx_status refuse(const char *key, const char *needs, zx_err *err)
{
    return ZX_FAIL(err, ZX_E_FORMAT, "key '%s' needs %s", key, needs);
}

static zx_status read_curve(const char *key, const json_t *v, zx_curve *c, zx_err *err)
{
    char needs[96];
    snprintf(needs, sizeof needs, "a list of at most %d [bytes, seconds], both above 0 and rising",
             ZX_CURVE_POINTS);
    *c = (zx_curve){0};
    if (!json_is_array(v) || json_array_size(v) > ZX_CURVE_POINTS) return refuse(key, needs, err);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *point = json_array_get(v, i);
        const json_t *bytes = json_array_get(point, 0), *seconds = json_array_get(point, 1);
        if (json_array_size(point) != 2 || !json_is_number(bytes) || !json_is_number(seconds))
            return refuse(key, needs, err);
        const double x = json_number_value(bytes), y = json_number_value(seconds);
        const bool rises = c->n == 0 || (x > c->bytes[c->n - 1] && y >= c->seconds[c->n - 1]);
        if (!(x > 0 && y > 0 && x < 1e18 && y < 1e9 && rises)) return refuse(key, needs, err);
        c->bytes[c->n] = x;
        c->seconds[c->n++] = y;
    }
    return ZX_OK;
}

static zx_status read_whole(const char *key, const json_t *v, uint64_t most, uint64_t *out,
                            zx_err *err)
{
    char needs[64];
    snprintf(needs, sizeof needs, "a whole number from 0 to %" PRIu64, most);
    const double real = json_number_value(v); // 24e9 is whole, too; most is a power of 2
    if (!json_is_number(v) || !(real >= 0 && real <= (double)most) || real != floor(real))
        return refuse(key, needs, err);
    *out = json_is_integer(v) ? (uint64_t)json_integer_value(v) : (uint64_t)real;
    return *out <= most ? ZX_OK : refuse(key, needs, err);
}

// Of any unit; beyond it times of steps would be no numbers.
static bool sensible(double x)
{
    return x >= 1e-12 && x <= 1e24;
}

static zx_status unknown_key(const char *key, const char *const *keys, size_t n, zx_err *err)
{
    zx_arena mem = {0};
    const char *near = zx_text_nearest(key, keys, n);
    const zx_status st = ZX_FAIL(err, ZX_E_FORMAT, "key '%s' is unknown%s%s%s",
                                 zx_text_safe(&mem, key), near != NULL ? "; the nearest is '" : "",
                                 near != NULL ? near : "", near != NULL ? "'" : "");
    zx_arena_free(&mem);
    return st;
}

// A kind that isn't named keeps 0.
static zx_status read_rates(const char *key, json_t *v, double *rates, zx_err *err)
{
    const char *word, *words[ZX_KIND_COUNT];
    json_t *rate;
    for (uint32_t k = 0; k < ZX_KIND_COUNT; k++) words[k] = zx_kinds[k].word;
    if (!json_is_object(v)) return refuse(key, "an object of numbers", err);
    json_object_foreach(v, word, rate)
    {
        uint32_t k = 0;
        while (k < ZX_KIND_COUNT && strcmp(words[k], word) != 0) k++;
        if (k == ZX_KIND_COUNT) return unknown_key(word, words, ZX_KIND_COUNT, err);
        if (!json_is_number(rate) || !sensible(json_number_value(rate)))
            return refuse(words[k], "a number from 1e-12 to 1e24", err);
        rates[k] = json_number_value(rate);
    }
    return ZX_OK;
}

static zx_status read_field(const struct field *f, json_t *v, zx_machine *m, zx_err *err)
{
    unsigned char *at = (unsigned char *)m + f->at;
    const double number = json_number_value(v);
    uint64_t whole = 0;
    switch (f->kind) {
    case RATE:
        if (!json_is_number(v) || !(number > 0)) return refuse(f->key, "a number above 0", err);
        if (!sensible(number)) return refuse(f->key, "a number from 1e-12 to 1e24", err);
        memcpy(at, &number, sizeof number);
        return ZX_OK;
    case MAY:
        if (!json_is_number(v) || !(number >= 0)) return refuse(f->key, "a number from 0 on", err);
        if (number > 0 && !sensible(number))
            return refuse(f->key, "0, or a number from 1e-12 to 1e24", err);
        memcpy(at, &number, sizeof number);
        return ZX_OK;
    case WHOLE:
        ZX_TRY(read_whole(f->key, v, 1 << 20, &whole, err));
        memcpy(at, &(uint32_t){(uint32_t)whole}, sizeof(uint32_t));
        return ZX_OK;
    case SIZE:
        ZX_TRY(read_whole(f->key, v, UINT64_C(1) << 60, &whole, err));
        memcpy(at, &whole, sizeof whole);
        return ZX_OK;
    case FLAG:
        if (!json_is_boolean(v)) return refuse(f->key, "true or false", err);
        memcpy(at, &(bool){json_is_true(v)}, sizeof(bool));
        return ZX_OK;
    case NAME:
        if (!json_is_string(v) || json_string_length(v) == 0 ||
            json_string_length(v) >= sizeof m->name)
            return refuse(f->key, "a text of 1 to 47 bytes", err);
        memcpy(at, json_string_value(v), json_string_length(v) + 1);
        return ZX_OK;
    case CURVE:
        return read_curve(f->key, v, (zx_curve *)(void *)at, err);
    case RATES:
        return read_rates(f->key, v, (double *)(void *)at, err);
    }
    return ZX_OK;
}

// Fields that only make sense together.
static zx_status check_whole(const zx_machine *m, zx_err *err)
{
    if (m->ranks != 1 && m->wire <= 0 && (m->gather.n == 0 || m->reduce.n == 0))
        return refuse(m->gather.n == 0 ? "gather" : "reduce", "points, or 'wire' a rate", err);
    if (m->cores > 0 && m->threads == 0)
        return refuse("threads", "to be at least 1 where 'cores' is given", err);
    return ZX_OK;
}

// Tables are of so many ranks as they were measured or made for.
static zx_status check_tables(const zx_machine *m, uint64_t ranks, zx_err *err)
{
    if (ranks == 0 || ranks == m->ranks || m->wire > 0 || m->gather.n == 0) return ZX_OK;
    zx_err_hint(err, "zerox machine --format json for that many ranks, or \"wire\" and "
                     "\"latency\" with [] for both tables");
    return ZX_FAIL(err, ZX_E_FORMAT,
                   "key 'ranks' is %" PRIu32
                   ", but the tables 'gather' and 'reduce' are of %" PRIu64 " ranks",
                   m->ranks, ranks);
}

static zx_status read_fields(json_t *root, zx_machine *m, zx_err *err)
{
    const char *key, *keys[ZX_COUNT(fields)];
    json_t *v;
    uint64_t tables = 0;
    for (size_t i = 0; i < ZX_COUNT(fields); i++) keys[i] = fields[i].key;
    if (!json_is_object(root)) return ZX_FAIL(err, ZX_E_FORMAT, "a machine is a JSON object");
    json_object_foreach(root, key, v)
    {
        size_t i = 0;
        if (strcmp(key, tables_key) == 0) {
            ZX_TRY(read_whole(key, v, 1 << 20, &tables, err));
            continue;
        }
        while (i < ZX_COUNT(fields) && strcmp(fields[i].key, key) != 0) i++;
        if (i == ZX_COUNT(fields)) return unknown_key(key, keys, ZX_COUNT(keys), err);
        ZX_TRY(read_field(&fields[i], v, m, err));
    }
    for (size_t i = 0; i < ZX_COUNT(fields); i++)
        if ((fields[i].kind == RATE || fields[i].kind == NAME) &&
            json_object_get(root, fields[i].key) == NULL)
            return ZX_FAIL(err, ZX_E_FORMAT, "key '%s' is missing", fields[i].key);
    if (m->flops_16 <= 0) m->flops_16 = m->flops;
    ZX_TRY(check_whole(m, err));
    return check_tables(m, tables, err);
}

zx_status zx_machine_read(const char *path, zx_machine *out, zx_err *err)
{
    json_t *root = NULL;
    zx_arena mem = {0};
    *out = (zx_machine){0};
    zx_status st = zx_json_read(path, &root, err);
    if (st == ZX_OK) {
        st = read_fields(root, out, err);
        if (st != ZX_OK) zx_err_in(err, "%s", zx_text_safe(&mem, path));
    }
    json_decref(root);
    zx_arena_free(&mem);
    return st;
}
