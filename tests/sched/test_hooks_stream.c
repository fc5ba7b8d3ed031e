// test_hooks_stream.c - the hook events of small models: which, in what order, and where.
// SPDX-License-Identifier: Apache-2.0
#include "sched/hooks.h"
#include "runtime/eval.h"
#include "tests/graph/onnx_text.h"

typedef struct fixture {
    zx_arena mem;
    zx_onnx_file file;
    zx_graph g;
    zx_hooks h;
    zx_notes notes;
    zx_err err;
} fixture;

static void import(fixture *f)
{
    const zx_import_options o = {.eval = &zx_cpu_eval, .forward_only = true};
    assert_zx_ok(zx_import(&f->file, &o, &f->mem, &f->g, &f->notes, &f->err), &f->err);
}

static void close_model(fixture *f)
{
    zx_onnx_close(&f->file);
    zx_arena_free(&f->mem);
}

// ---- the event stream ---------------------------------------------------------------------------

#define LOSS ";l = ReduceMean(y) keepdims=0 @;out l f32"
#define XW "in x f32[2];init w f32[2] 1 2;init v f32[2] 3 4;"

static const char *const checkpointed[] = {"m"};
static const char *const leaf_a[] = {"a"}, *const leaf_gone[] = {"nope"};
static const char *const with_c[] = {"a", "a.c", "b"}, *const without_b[] = {"a", "a.c"},
                         *const in_a_row[] = {"m", "m.a", "m", "m.a"},
                         *const with_more[] = {"d", "a", "a.c", "a.c.e", "b", "f"};

// "+a": a fetch; "-a": a release; "w": a gradient; "/": the root. Backward after the "|". "!words":
// it is refused; "?words": a note.
static const struct stream_row {
    const char *name, *model, *want;
    zx_hooks_options o;
} streams[] = {
    {"modules without parameters count",
     XW "a = Mul(x, w) @a;b = Relu(a) @b;y = Mul(b, v) @c" LOSS,
     "+/ +a -a +b -b +c -c -/ | +/ +c v -c +b -b +a w",
     {0}},
    {"a call is a run of its scope",
     XW "a = Mul(x, w) @m.a;b = Relu(a) @m;y = Mul(b, v) @m.c" LOSS,
     "+/ +m +m.a -m.a +m.c -m.c -m -/ | +/ +m +m.c v -m.c +m.a w",
     {0}},
    {"two outputs are two fetches",
     XW "a = Mul(x, w) @m;b = Relu(a) @m;y = Add(a, b) @" LOSS,
     "+/ +m -m -/ | +/ +m +m w",
     {0}},
    {"an output that two read is one",
     XW "a = Mul(x, w) @m;b = Relu(a) @;y = Add(a, b) @" LOSS,
     "+/ +m -m -/ | +/ +m w",
     {0}},
    {"an output that reaches no loss is none",
     XW "a = Mul(x, w) @m;b = Relu(a) @m;c = Neg(b) @n;y = Neg(a) @" LOSS,
     "+/ +m -m +n -n -/ | +/ +m w",
     {0}},
    {"an output is given by a child and its parent",
     XW "a = Mul(x, w) @m.a;y = Neg(a) @" LOSS,
     "+/ +m +m.a -m.a -m -/ | +/ +m +m.a w",
     {0}},
    {"integers take no gradient",
     XW "a = Mul(x, w) @m;b = Cast(a) to=7 @m;c = Cast(b) to=1 @;y = Add(a, c) @" LOSS,
     "+/ +m -m -/ | +/ +m w",
     {0}},
    {"what is detached takes none",
     XW "a = Mul(x, w) @m;b = Identity(a) @m:detach_1;y = Add(a, b) @" LOSS,
     "+/ +m -m -/ | +/ +m w",
     {0}},
    {"the loss inside a module",
     XW "y = Mul(x, w) @m;l = ReduceMean(y) keepdims=0 @m;out l f32",
     "+/ +m -m -/ | +/ +m w",
     {0}},
    {"two inputs, one release",
     XW "a = Mul(x, w) @a;b = Mul(x, v) @b;y = Mul(a, b) @c" LOSS,
     "+/ +a -a +b -b +c -c -/ | +/ +c -c +b v +a w",
     {0}},
    {"an input of which only the shape is read holds the release back",
     XW "a = Mul(x, w) @a;b = Mul(x, v) @b;s = Shape(a) @c;y = Reshape(b, s) @c;z = Add(y, a) @;l "
        "= ReduceMean(z) keepdims=0 @;out l f32",
     "+/ +a -a +b -b +c -c -/ | +/ +c +b v +a w",
     {0}},
    {"a module called twice is released once",
     XW "a = Mul(x, v) @b;c = Mul(a, w) @a;d = Relu(c) @;y = Mul(d, w) @a" LOSS,
     "+/ +b -b +a -a +a -a -/ | +/ +a -a +a w +b v",
     {0}},
    {"a tied parameter has one gradient",
     XW "a = Mul(x, w) @a;b = Mul(a, v) @b;y = Mul(b, w) @c" LOSS,
     "+/ +a -a +b -b +c -c -/ | +/ +c -c +b v -b +a w",
     {0}},
    {"one operator gives its gradients in the order of ids",
     XW "a = Mul(x, w) @a:lin;y = Add(a, v) @a:lin" LOSS,
     "+/ +a -a -/ | +/ +a w v",
     {0}},
    {"two operators in reverse",
     XW "a = Mul(x, w) @a:mul;y = Add(a, v) @a:add" LOSS,
     "+/ +a -a -/ | +/ +a v w",
     {0}},
    {"nodes that say nothing belong to the open call",
     XW "a = Mul(x, w) @m.a;b = Neg(a);c = Relu(b) @_empty_nn_module_stack_from_metadata_hook;y = "
        "Mul(c, v) @m.a" LOSS,
     "+/ +m +m.a -m.a -m -/ | +/ +m +m.a v w",
     {0}},
    {"Identity is another name of a parameter",
     XW "u = Identity(w) @m;a = Mul(x, v) @a;y = Mul(a, u) @b" LOSS,
     "+/ +m -m +a -a +b -b -/ | +/ +b w -b +a v",
     {0}},
    {"a parameter that no gradient reaches",
     XW "a = Mul(x, w) @a;b = Mul(a, v) @b;y = Neg(a) @" LOSS,
     "+/ +a -a +b -b -/ | +/ +a w",
     {0}},
    {"a leaf's gradients come together",
     XW "a = Mul(x, w) @a.p;b = Relu(a) @a.q;y = Mul(b, v) @a.r" LOSS,
     "+/ +a -a -/ | +/ +a w v",
     {.n_names = 1, .names = leaf_a}},
    {"a leaf by name only",
     XW "a = Mul(x, w) @ab.p;y = Mul(a, v) @a" LOSS,
     "+/ +ab +ab.p -ab.p -ab +a -a -/ | +/ +a v -a +ab +ab.p w",
     {.n_names = 1, .names = leaf_a}},
    {"a leaf that isn't there",
     XW "a = Mul(x, w) @ab;y = Mul(a, v) @a" LOSS,
     "?no node of the file stands in a module 'nope'",
     {.n_names = 1, .names = leaf_gone}},
    {"calls of one's own",
     XW "a = Mul(x, w) @a;y = Mul(a, v) @b" LOSS,
     "+/ +a +a.c -a.c -a +b -b -/ | +/ +b v -b +a +a.c -a.c w",
     {.n_calls = 3, .calls = with_c}},
    {"a call that takes no gradient",
     XW "a = Mul(x, w) @a;y = Mul(a, v) @b" LOSS,
     "+/ +d -d +a +a.c +a.c.e -a.c.e -a.c -a +b -b +f -f -/ | +/ +f -f +b v -b +a +a.c +a.c.e "
     "-a.c.e -a.c w",
     {.n_calls = 6, .calls = with_more}},
    {"a list that lacks a call",
     XW "a = Mul(x, w) @a;y = Mul(a, v) @b" LOSS,
     "!the call of 'b' that the file shows isn't in the list",
     {.n_calls = 2, .calls = without_b}},
    {"a parameter that a node makes",
     "in x f32[2];w = RandomNormal() shape=[2];a = Mul(x, w) @a;b = Exp(a) @b;y = Mul(b, b) "
     "@c" LOSS,
     "+/ +a -a +b -b +c -c -/ | +/ +c -c +b -b +a w",
     {0}},
    {"a checkpointed call runs again as far as what saved last",
     XW "a = Mul(x, w) @m.a;b = Exp(a) @m.b;c = Mul(b, v) @m.c;y = Add(c, x) @m" LOSS,
     "+/ +m +m.a -m.a +m.b -m.b +m.c -m.c -m -/ | +/ +m +m.c +m +m.a -m.a +m.b -m.b +m.c v -m.c "
     "+m.b -m.b +m.a w",
     {.n_again = 1, .again = checkpointed}},
    {"one that saved nothing doesn't",
     XW "a = Mul(x, w) @a;b = Add(a, v) @m;y = Neg(b) @m" LOSS,
     "+/ +a -a +m -m -/ | +/ +m v -m +a w",
     {.n_again = 1, .again = checkpointed}},
    {"calls in a row are one",
     XW "a = Mul(x, w) @m.a;b = Relu(a) @m;c = Mul(b, v) @m.a;y = Relu(c) @m" LOSS,
     "+/ +m +m.a -m.a +m.a -m.a -m -/ | +/ +m +m.a v -m.a +m.a w",
     {0}},
    {"unless the caller tells them apart",
     XW "a = Mul(x, w) @m.a;b = Relu(a) @m;c = Mul(b, v) @m.a;y = Relu(c) @m" LOSS,
     "+/ +m +m.a -m.a -m +m +m.a -m.a -m -/ | +/ +m +m.a v -m.a -m +m +m.a w",
     {.n_calls = 4, .calls = in_a_row}},
    {"a file without modules",
     XW "a = Mul(x, w);y = Mul(a, v);l = ReduceMean(y) keepdims=0;out l f32",
     "!no node says in which module it stands",
     {0}},
    {"what is assumed is said",
     XW "a = Mul(x, w) @a;y = Mul(a, v) @b" LOSS,
     "?--modules FILE",
     {0}},
};

static void put_events(const zx_hooks *h, zx_text *t, bool places_too)
{
    for (uint32_t i = 0; i < h->n_events; i++) {
        const zx_hook *e = &h->events[i];
        if (i == h->n_forward) zx_text_put(t, " |");
        const char *path = e->kind == ZX_HOOK_GRAD ? h->params[e->id] : h->modules[e->id].path;
        zx_text_put(t, "%s%s%s", i > 0 ? " " : "",
                    e->kind == ZX_HOOK_FETCH     ? "+"
                    : e->kind == ZX_HOOK_RELEASE ? "-"
                                                 : "",
                    path[0] ? path : "/");
        if (places_too) zx_text_put(t, "%u", e->at);
        if (places_too && e->again != ZX_NONE) zx_text_put(t, "'%u", e->again);
    }
}

static void test_stream(void **state)
{
    const struct stream_row *r = *state;
    fixture f = {0};
    zx_text t = {0};
    assert_zx_ok(ot_open(&f.mem, r->model, NULL, 0, &f.file, &f.err), &f.err);
    import(&f);
    const zx_status st = zx_hooks_make(&f.g, &r->o, &f.mem, &f.h, &f.notes, &f.err);
    if (r->want[0] == '!') {
        assert_int_not_equal(st, ZX_OK);
        if (strstr(f.err.cause[0], r->want + 1) == NULL) fail_msg("it says: %s", f.err.cause[0]);
    } else if (r->want[0] == '?') {
        assert_zx_ok(st, &f.err);
        bool said = false;
        for (uint32_t i = 0; i < f.notes.n; i++)
            said = said || strstr(f.notes.text[i], r->want + 1) != NULL;
        if (!said) fail_msg("no note says so");
    } else {
        assert_zx_ok(st, &f.err);
        put_events(&f.h, &t, false);
        assert_string_equal(t.at, r->want);
    }
    zx_text_free(&t);
    close_model(&f);
}

// Where the events happen: "+a1": before source 1; "+a1'4": run again, of a call that ends at 4.
static const struct at_row {
    const char *name, *model, *want;
    zx_hooks_options o;
} places[] = {
    {"from where to where a module runs",
     XW "a = Mul(x, w) @m.a;b = Relu(a) @m;y = Mul(b, v) @m.c" LOSS,
     "+/0 +m0 +m.a0 -m.a1 +m.c2 -m.c3 -m3 -/4 | +/4 +m3 +m.c3 v2 -m.c2 +m.a1 w0",
     {0}},
    {"an operator's gradients are whole after all of it",
     XW "u = Neg(w) @a:lin;a = Mul(x, u) @a:lin;y = Add(a, v) @a:lin" LOSS,
     "+/0 +a0 -a3 -/4 | +/4 +a3 w0 v0",
     {0}},
    {"a leaf's at its beginning",
     XW "b = Mul(x, w) @ab;a = Mul(b, w) @a.p;y = Mul(a, v) @a.r" LOSS,
     "+/0 +ab0 -ab1 +a1 -a3 -/4 | +/4 +a3 w1 v1 -a1 +ab1",
     {.n_names = 1, .names = leaf_a}},
    {"a call that left no node",
     XW "a = Mul(x, w) @a;y = Mul(a, v) @b" LOSS,
     "+/0 +a0 +a.c1 -a.c1 -a1 +b1 -b2 -/3 | +/3 +b2 v1 -b1 +a1 +a.c1 -a.c1 w0",
     {.n_calls = 3, .calls = with_c}},
    {"run again",
     XW "a = Mul(x, w) @m.a;b = Exp(a) @m.b;c = Mul(b, v) @m.c;y = Add(c, x) @m" LOSS,
     "+/0 +m0 +m.a0 -m.a1 +m.b1 -m.b2 +m.c2 -m.c3 -m4 -/5 | +/5 +m4 +m.c3 +m0'4 +m.a0'4 -m.a1'4 "
     "+m.b1'4 -m.b2'4 +m.c2'4 v2 -m.c2 +m.b2 -m.b1 +m.a1 w0",
     {.n_again = 1, .again = checkpointed}},
};

static void test_place(void **state)
{
    const struct at_row *r = *state;
    fixture f = {0};
    zx_text t = {0};
    assert_zx_ok(ot_open(&f.mem, r->model, NULL, 0, &f.file, &f.err), &f.err);
    import(&f);
    assert_zx_ok(zx_hooks_make(&f.g, &r->o, &f.mem, &f.h, &f.notes, &f.err), &f.err);
    put_events(&f.h, &t, true);
    assert_string_equal(t.at, r->want);
    zx_text_free(&t);
    close_model(&f);
}

#define ROWS(table, run)                                                                           \
    for (size_t i = 0; i < ZX_COUNT(table); i++) tests[n++] = zx_case(table[i].name, run, &table[i])

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(streams) + ZX_COUNT(places)];
    size_t n = 0;
    ROWS(streams, test_stream);
    ROWS(places, test_place);
    return _cmocka_run_group_tests("hooks stream", tests, n, NULL, NULL);
}
