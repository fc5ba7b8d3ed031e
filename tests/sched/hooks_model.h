// hooks_model.h - a model of tests/data/hooks, imported as far as the hooks need it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_HOOKS_MODEL_H
#define ZX_TESTS_HOOKS_MODEL_H

#include "runtime/eval.h"
#include "sched/hooks.h"
#include "tests/graph/onnx_text.h"

#define LOTS 1000000000

typedef struct fixture {
    zx_arena mem;
    zx_onnx_file file;
    zx_graph g;
    zx_hooks h;
    zx_notes notes;
    zx_err err;
} fixture;

static inline void import(fixture *f)
{
    const zx_import_options o = {.eval = &zx_cpu_eval, .forward_only = true};
    assert_zx_ok(zx_import(&f->file, &o, &f->mem, &f->g, &f->notes, &f->err), &f->err);
}

static inline void open_model(fixture *f, const char *name, const zx_hooks_options *o)
{
    *f = (fixture){0};
    const char *path = zx_arena_printf(&f->mem, "%s/hooks/%s.onnx", ZX_TEST_DATA, name);
    assert_zx_ok(zx_onnx_open(&f->file, path, &f->mem, &f->err), &f->err);
    import(f);
    assert_zx_ok(zx_hooks_make(&f->g, o, &f->mem, &f->h, &f->notes, &f->err), &f->err);
}

static inline void close_model(fixture *f)
{
    zx_onnx_close(&f->file);
    zx_arena_free(&f->mem);
}

#endif
