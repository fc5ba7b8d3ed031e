// test_import_ops.c - how ONNX operators are lowered: each row is a model of constants that the
// import evaluates by itself, with what must come out, or with the words in which it must be
// refused.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "graph/import.h"
#include "runtime/eval.h"
#include "tests/graph/onnx_text.h"

// `y` is the output. Two more scalar outputs keep the import from taking one for a loss.
#define SCALARS ";const s1 f32 0;const s2 f32 0;out y;out s1;out s2"

static const struct row {
    const char *name, *model, *want; // want "!words": refused with these words
} rows[] = {
#define ROW(name, model, want) {name, model, want},
#include "tests/graph/import_ops.def"
#undef ROW
};

static bool same(double got, double want)
{
    return fabs(got - want) <= 1e-6 + 1e-6 * fabs(want) || (isnan(got) && isnan(want));
}

static double element(const zx_value *v, int64_t i)
{
    const char *at = (const char *)v->data + (uint64_t)i * zx_dtype_bytes(v->type.dtype);
    float f;
    int64_t k = 0;
    memcpy(&f, at, sizeof f);
    memcpy(&k, at, zx_dtype_bytes(v->type.dtype));
    if (v->type.dtype == ZX_F32) return (double)f;
    if (v->type.dtype == ZX_I32) return (double)(int32_t)k;
    return (double)k;
}

static const zx_value *find(const zx_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        if (strcmp(g->values[i].name, name) == 0) return &g->values[i];
    return NULL;
}

// The output: by its name, or, where it is another tensor under a second name, by its type.
static const zx_value *output(const zx_graph *g, const zx_type *t)
{
    const zx_value *v = find(g, "y");
    for (uint32_t i = 0; v == NULL && i < g->n_values; i++)
        if (g->values[i].type.dtype == t->dtype &&
            zx_shape_equal(&g->values[i].type.shape, &t->shape))
            v = &g->values[i];
    return v;
}

static void test_row(void **state)
{
    const struct row *r = *state;
    zx_arena mem = {0};
    zx_onnx_file f = {0};
    zx_graph g;
    zx_err err = {0};
    const zx_import_options o = {.eval = &zx_cpu_eval, .forward_only = true};
    const char *model = zx_arena_printf(&mem, "%s" SCALARS, r->model);
    assert_zx_ok(ot_open(&mem, model, NULL, 0, &f, &err), &err);
    const zx_status st = zx_import(&f, &o, &mem, &g, NULL, &err);
    if (r->want[0] == '!') {
        assert_int_not_equal(st, ZX_OK);
        if (strstr(err.cause[0], r->want + 1) == NULL) fail_msg("it says: %s", err.cause[0]);
        assert_ptr_equal(strstr(err.cause[0], "model.onnx: "), err.cause[0]);
    } else {
        assert_zx_ok(st, &err);
        ot b = {.mem = &mem};
        const char *text = r->want;
        const Onnx__TensorProto *want = ot_tensor(&b, &text, NULL);
        zx_value w = {.type.dtype = zx_dtype_of_onnx(want->data_type), .data = want->raw_data.data};
        w.type.shape.rank = (uint32_t)want->n_dims;
        for (size_t i = 0; i < want->n_dims; i++) w.type.shape.dim[i] = want->dims[i];
        const zx_value *y = output(&g, &w.type);
        assert_non_null(y);
        if (y->role != ZX_R_CONST) fail_msg("it wasn't evaluated");
        char a[ZX_SHAPE_TEXT], c[ZX_SHAPE_TEXT];
        assert_string_equal(zx_shape_text(&y->type.shape, a), zx_shape_text(&w.type.shape, c));
        assert_string_equal(zx_dtypes[y->type.dtype].word, zx_dtypes[w.type.dtype].word);
        for (int64_t i = 0; i < zx_shape_count(&w.type.shape); i++)
            if (!same(element(y, i), element(&w, i)))
                fail_msg("element %d is %.9g, not %.9g", (int)i, element(y, i), element(&w, i));
    }
    zx_onnx_close(&f);
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, test_row, &rows[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
