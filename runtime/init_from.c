// init_from.c - see init_from.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/init_from.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 };

typedef struct finding {
    const zx_graph *train;
    const zx_plan *plan;
    zx_init_how how;
    const char *word; // that a line of the report begins with
    zx_arena *mem;
    zx_init_from *to;
    bool *used;   // [tensors]
    uint32_t *at; // of to
    uint32_t n_missing, n_left, n_widened;
    zx_err *err;
} finding;

static const char *nearest_unused(const finding *f, const char *name)
{
    const zx_tensors *t = &f->to->files;
    const char **names = ZX_NEW(f->mem, const char *, t->n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n; i++)
        if (!f->used[i] && !zx_tensor_is_state(&t->at[i])) names[n++] = t->at[i].name;
    const char *near = zx_text_nearest(name, names, n);
    if (near == NULL) return "";
    return zx_arena_printf(f->mem, "; the nearest that is left over is '%s'",
                           zx_text_safe(f->mem, near));
}

static void missing(finding *f, const char *what, const char *name)
{
    const char *safe = zx_text_safe(f->mem, name);
    f->n_missing++;
    if (f->how.partial)
        zx_text_put(&f->to->report, "%s: %s '%s' isn't there: its own first values%s\n", f->word,
                    what, safe, nearest_unused(f, name));
    else
        ZX_FAIL(f->err, ZX_E_DATA, "it has no %s '%s'%s", what, safe, nearest_unused(f, name));
}

static void check_type(finding *f, uint32_t i, const char *name, const zx_type *want)
{
    const zx_type *has = &f->to->files.at[i].type;
    char a[ZX_SHAPE_TEXT], b[ZX_SHAPE_TEXT];
    const bool floats = want->dtype == ZX_F32 && zx_dtype_is_float(has->dtype);
    if (has->dtype != want->dtype && floats) f->n_widened++;
    if ((has->dtype == want->dtype || floats) && zx_shape_equal(&has->shape, &want->shape)) return;
    ZX_FAIL(f->err, ZX_E_DATA, "'%s' is %s %s there, the model's is %s %s",
            zx_text_safe(f->mem, name), zx_dtypes[has->dtype].word, zx_shape_text(&has->shape, a),
            zx_dtypes[want->dtype].word, zx_shape_text(&want->shape, b));
}

// One tensor under two names.
static void check_tied(finding *f, uint32_t i, uint32_t k)
{
    zx_tensors *t = &f->to->files;
    const zx_type *a = &t->at[i].type, *b = &t->at[k].type;
    const uint32_t width = zx_dtype_bytes(a->dtype);
    bool same = a->dtype == b->dtype && zx_shape_equal(&a->shape, &b->shape);
    unsigned char *x = malloc((size_t)CHUNK * 8), *y = malloc((size_t)CHUNK * 8);
    const int64_t n =
        same && f->how.thorough && x != NULL && y != NULL ? zx_shape_count(&a->shape) : 0;
    for (int64_t done = 0; done < n && same; done += CHUNK) {
        const int64_t part = n - done < CHUNK ? n - done : CHUNK;
        same = zx_tensors_read(t, i, done, part, x, f->err) == ZX_OK &&
               zx_tensors_read(t, k, done, part, y, f->err) == ZX_OK &&
               memcmp(x, y, (size_t)part * width) == 0;
    }
    free(x);
    free(y);
    if (!same)
        ZX_FAIL(f->err, ZX_E_DATA, "'%s' and '%s' differ, in the model they are one tensor",
                zx_text_safe(f->mem, t->at[i].name), zx_text_safe(f->mem, t->at[k].name));
}

static uint32_t find(finding *f, const char *name, const char *const *aliases, uint32_t n_aliases)
{
    uint32_t found = ZX_NONE;
    for (uint32_t k = 0; k <= n_aliases; k++) {
        const uint32_t i = zx_tensors_find(&f->to->files, k == 0 ? name : aliases[k - 1]);
        if (i == ZX_NONE || f->used[i]) continue;
        f->used[i] = true;
        if (found == ZX_NONE)
            found = i;
        else
            check_tied(f, found, i);
    }
    return found;
}

static void find_all(finding *f)
{
    for (uint32_t u = 0; u < f->plan->n_units; u++) {
        const zx_param *p = &f->train->params[f->plan->units[u].param];
        zx_type want = f->train->values[p->value].type;
        want.dtype = ZX_F32;
        f->at[u] = find(f, p->name, p->aliases, p->n_aliases);
        if (f->at[u] != ZX_NONE) check_type(f, f->at[u], p->name, &want);
    }
    for (uint32_t i = 0; i < f->train->n_buffers; i++) {
        const zx_buffer *b = &f->train->buffers[i];
        const uint32_t at = f->plan->n_units + i;
        f->at[at] = find(f, b->name, NULL, 0);
        if (f->at[at] != ZX_NONE)
            check_type(f, f->at[at], b->name, &f->train->values[b->value].type);
    }
}

// After all were looked for: a nearest name is one that nobody else has.
static void tell_missing(finding *f)
{
    for (uint32_t u = 0; u < f->plan->n_units; u++)
        if (f->at[u] == ZX_NONE)
            missing(f, "parameter", f->train->params[f->plan->units[u].param].name);
    for (uint32_t i = 0; i < f->train->n_buffers; i++)
        if (f->at[f->plan->n_units + i] == ZX_NONE) missing(f, "buffer", f->train->buffers[i].name);
    const zx_tensors *t = &f->to->files;
    for (uint32_t i = 0; i < t->n; i++) {
        if (f->used[i] || zx_tensor_is_state(&t->at[i])) continue;
        const char *safe = zx_text_safe(f->mem, t->at[i].name);
        f->n_left++;
        if (f->how.partial)
            zx_text_put(&f->to->report, "%s: '%s' is none of the model's: left out\n", f->word,
                        safe);
        else
            ZX_FAIL(f->err, ZX_E_DATA, "it has '%s', which the model doesn't have", safe);
    }
}

zx_status zx_init_open(const char *path, const zx_graph *train, const zx_plan *plan,
                       zx_init_how how, zx_arena *mem, zx_init_from *out, zx_err *err)
{
    *out = (zx_init_from){.n_units = plan->n_units};
    ZX_TRY(zx_tensors_open(path, how.thorough, mem, &out->files, err));
    const uint32_t n = plan->n_units + train->n_buffers;
    zx_err found = {0};
    finding f = {.train = train,
                 .plan = plan,
                 .how = how,
                 .word = how.convert ? "weights" : "init",
                 .mem = mem,
                 .to = out,
                 .used = ZX_NEW(mem, bool, out->files.n),
                 .at = ZX_NEW(mem, uint32_t, n),
                 .err = &found};
    out->at = f.at;
    find_all(&f);
    tell_missing(&f);
    if (found.code == ZX_OK && f.n_missing == n)
        ZX_FAIL(&found, ZX_E_DATA, "none of its tensors is one of the model's");
    zx_text_put(&out->report, "%s: %s: %u of the model's %u tensors", f.word,
                zx_text_safe(mem, out->files.path), n - f.n_missing, n);
    if (f.n_left > 0) zx_text_put(&out->report, ", %u others left out", f.n_left);
    if (f.n_widened > 0) zx_text_put(&out->report, ", %u of them turned into float32", f.n_widened);
    zx_text_put(&out->report, "\n");
    if (found.code == ZX_OK) return ZX_OK;
    if (f.n_missing + f.n_left > 0 && !how.partial)
        zx_err_hint(&found, "weights under the model's names (zerox check MODEL lists them)%s",
                    how.convert ? "" : ", or --init-partial to take those that there are");
    zx_err_in(&found, "%s%s", how.convert ? "" : "--init ", zx_text_safe(mem, out->files.path));
    return zx_err_merge(err, &found);
}

void zx_init_close(zx_init_from *f)
{
    if (f->files.mem != NULL) zx_tensors_close(&f->files);
    zx_text_free(&f->report);
    *f = (zx_init_from){0};
}

// ---- as first values ----------------------------------------------------------------------------

static uint32_t place(const zx_init_from *f, zx_held what)
{
    if (what.kind == ZX_HELD_PARAM) return f->at[what.index];
    if (what.kind == ZX_HELD_BUFFER) return f->at[f->n_units + what.index];
    return ZX_NONE; // an optimizer begins anew
}

static bool has(const void *self, zx_held what)
{
    return place(self, what) != ZX_NONE;
}

static zx_status read_value(const void *self, zx_held what, int64_t from, int64_t n, void *to,
                            zx_err *err)
{
    const zx_init_from *f = self;
    zx_tensors *t = (zx_tensors *)(uintptr_t)&f->files; // which file is open is nobody's business
    const uint32_t i = place(f, what);
    if (zx_dtype_is_float(t->at[i].type.dtype)) return zx_tensors_read_f32(t, i, from, n, to, err);
    return zx_tensors_read(t, i, from, n, to, err);
}

zx_values zx_init_values(const zx_init_from *f)
{
    return (zx_values){has, read_value, f};
}
