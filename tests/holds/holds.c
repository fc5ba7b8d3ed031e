// holds.c - see holds.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/npy.h"

#define COMMAND 8192

static char folder[64];

int holds_setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/zerox-holds-XXXXXX");
    if (mkdtemp(folder) == NULL || chdir(folder) != 0) return 1;
    static const char *const names[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK",
                                        "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"};
    for (size_t i = 0; i < ZX_COUNT(names); i++) unsetenv(names[i]);
    return 0;
}

int holds_teardown(void **state)
{
    (void)state;
    char command[80];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : 1;
}

// ---- runs --------------------------------------------------------------------------------------

static int shell(const char *command)
{
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int zerox(const char *name, const char *args)
{
    char command[COMMAND];
    const int n = snprintf(command, sizeof command, "exec %s %s >%s.out 2>%s.err </dev/null",
                           ZX_PROGRAM, args, name, name);
    assert_true(n > 0 && n < COMMAND);
    return shell(command);
}

static void expect_well(const char *name, const char *args, int code)
{
    if (code == 0) return;
    char path[128];
    size_t n;
    snprintf(path, sizeof path, "%s.err", name);
    char *said = holds_read(path, &n);
    fail_msg("zerox %s: exit code %d: %s", args, code, said + (n > 1500 ? n - 1500 : 0));
}

#define ARGS_OF(fmt)                                                                               \
    char args[COMMAND - 512];                                                                      \
    va_list list;                                                                                  \
    va_start(list, fmt);                                                                           \
    const int length = vsnprintf(args, sizeof args, fmt, list);                                    \
    va_end(list);                                                                                  \
    assert_true(length >= 0 && length < (int)sizeof args)

int holds_zerox(const char *name, const char *fmt, ...)
{
    ARGS_OF(fmt);
    return zerox(name, args);
}

void holds_train(const char *name, const char *fmt, ...)
{
    ARGS_OF(fmt);
    char command[COMMAND - 256];
    snprintf(command, sizeof command, "train %s --out %s", args, name);
    expect_well(name, command, zerox(name, command));
}

void holds_launched(const char *name, uint32_t ranks, const char *fmt, ...)
{
    ARGS_OF(fmt);
    // Its own port, so that two tests that run at the same time don't meet.
    char command[COMMAND] = "", wait[256] = "";
    size_t n = 0, w = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        n += (size_t)snprintf(command + n, sizeof command - n,
                              "RANK=%u LOCAL_RANK=%u WORLD_SIZE=%u MASTER_ADDR=127.0.0.1 "
                              "MASTER_PORT=%d %s train %s --out %s >%s.out 2>>%s.err </dev/null & "
                              "p%u=$!; ",
                              r, r, ranks, 1024 + (int)getpid() % 60000, ZX_PROGRAM, args, name,
                              name, name, r);
        w += (size_t)snprintf(wait + w, sizeof wait - w, "%swait $p%u", r ? " && " : "", r);
        assert_true(n < sizeof command && w < sizeof wait);
    }
    n += (size_t)snprintf(command + n, sizeof command - n, "%s", wait);
    assert_true(n < sizeof command);
    expect_well(name, command, shell(command));
}

json_t *holds_plan(const char *fmt, ...)
{
    ARGS_OF(fmt);
    char command[COMMAND - 256];
    snprintf(command, sizeof command, "plan %s --format json", args);
    expect_well("plan", command, zerox("plan", command));
    json_error_t e;
    json_t *plan = json_load_file("plan.out", 0, &e);
    if (plan == NULL) fail_msg("zerox %s: line %d: %s", command, e.line, e.text);
    return plan;
}

char *holds_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_msg("there is no %s", path);
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    rewind(f);
    assert_true(size >= 0);
    char *bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    *n = fread(bytes, 1, (size_t)size, f);
    bytes[*n] = '\0';
    fclose(f);
    return bytes;
}

void holds_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

bool holds_says(const char *path, const char *what)
{
    size_t n;
    char *text = holds_read(path, &n);
    const bool found = strstr(text, what) != NULL;
    free(text);
    return found;
}

bool holds_ran(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/log.jsonl", name);
    return access(path, F_OK) == 0;
}

// ---- what a run left ---------------------------------------------------------------------------

uint32_t holds_log(const char *name, holds_row *rows)
{
    char path[128];
    snprintf(path, sizeof path, "%s/log.jsonl", name);
    FILE *f = fopen(path, "r");
    if (f == NULL) fail_msg("there is no %s", path);
    uint32_t n = 0;
    for (json_t *j; (j = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)) != NULL; json_decref(j)) {
        assert_true(n < HOLDS_ROWS);
        json_int_t peak, resident;
        holds_row *r = &rows[n++];
        if (json_unpack(j, "{s:F, s:F, s:F, s:F, s:F, s:I, s:I}", "loss", &r->loss, "grad_norm",
                        &r->grad_norm, "step_seconds", &r->step_seconds, "compute_seconds",
                        &r->compute_seconds, "exposed_comm_seconds", &r->exposed_seconds,
                        "peak_bytes", &peak, "resident_bytes", &resident) != 0)
            fail_msg("%s: row %u isn't a whole row", path, n);
        r->peak_bytes = (uint64_t)peak;
        r->resident_bytes = (uint64_t)resident;
    }
    fclose(f);
    assert_true(n > 0);
    return n;
}

uint64_t holds_decided(const char *name, const char *key)
{
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", name);
    json_error_t e;
    json_t *config = json_load_file(path, 0, &e);
    if (config == NULL) fail_msg("%s: %s", path, e.text);
    const json_t *run = json_object_get(json_object_get(config, "zerox"), "run");
    const json_t *value = json_object_get(run, key);
    if (!json_is_integer(value)) fail_msg("%s: no zerox.run.%s", path, key);
    const uint64_t x = (uint64_t)json_integer_value(value);
    json_decref(config);
    return x;
}

void holds_expect_same(const char *a, const char *b)
{
    static holds_row x[HOLDS_ROWS], y[HOLDS_ROWS];
    const uint32_t n = holds_log(a, x);
    assert_int_equal(holds_log(b, y), n);
    for (uint32_t i = 0; i < n; i++)
        if (x[i].loss != y[i].loss || x[i].grad_norm != y[i].grad_norm)
            fail_msg("step %u: loss %.9g, norm %.9g in %s; %.9g, %.9g in %s", i + 1, x[i].loss,
                     x[i].grad_norm, a, y[i].loss, y[i].grad_norm, b);
    char path[2][128];
    size_t size[2];
    snprintf(path[0], sizeof path[0], "%s/model.safetensors", a);
    snprintf(path[1], sizeof path[1], "%s/model.safetensors", b);
    char *p = holds_read(path[0], &size[0]), *q = holds_read(path[1], &size[1]);
    if (size[0] != size[1] || memcmp(p, q, size[0]) != 0)
        fail_msg("%s and %s differ", path[0], path[1]);
    free(p);
    free(q);
}

void holds_open(holds_tensors *t, const char *fmt, ...)
{
    ARGS_OF(fmt);
    zx_err err = {0};
    *t = (holds_tensors){0};
    assert_zx_ok(zx_safe_open(&t->file, args, &t->mem, &err), &err);
}

void holds_close(holds_tensors *t)
{
    zx_safe_close(&t->file);
    zx_arena_free(&t->mem);
}

void holds_floats(const holds_tensors *t, const char *name, uint32_t n, float *to)
{
    const zx_safe_tensor *x = zx_safe_find(&t->file, name);
    if (x == NULL) fail_msg("tensor '%s' wasn't saved", name);
    assert_int_equal(x->type.dtype, ZX_F32);
    assert_int_equal(zx_shape_count(&x->type.shape), n);
    memcpy(to, x->data, n * sizeof *to);
}

// ---- models and data ---------------------------------------------------------------------------

void holds_net_begin(holds_net *n)
{
    *n = (holds_net){0};
    zx_onnx_begin(&n->out, &n->mem, "holds");
}

void holds_net_input(holds_net *n, const char *name, zx_dtype t, uint32_t rank, const int64_t *dims)
{
    static const char *const symbols[ZX_MAX_RANK] = {"batch", "", "", "", "", "", "", ""};
    zx_onnx_input(&n->out, name, t, rank, dims, symbols);
}

static char *text_of(holds_net *n, const char *text)
{
    return (char *)(uintptr_t)zx_arena_str(&n->mem, text);
}

// What PyTorch's exporter writes beside a tensor's type.
static void put_kind(holds_net *n, const char *name, const char *kind)
{
    Onnx__GraphProto *g = n->out.model->graph;
    Onnx__ValueInfoProto *info = ZX_NEW(&n->mem, Onnx__ValueInfoProto, 1);
    Onnx__StringStringEntryProto *meta = ZX_NEW(&n->mem, Onnx__StringStringEntryProto, 1);
    onnx__value_info_proto__init(info);
    onnx__string_string_entry_proto__init(meta);
    meta->key = text_of(n, "pkg.torch.export.graph_signature.InputSpec.kind");
    meta->value = text_of(n, kind);
    info->name = text_of(n, name);
    info->n_metadata_props = 1;
    info->metadata_props = ZX_NEW(&n->mem, Onnx__StringStringEntryProto *, 1);
    info->metadata_props[0] = meta;
    Onnx__ValueInfoProto **all = ZX_NEW(&n->mem, Onnx__ValueInfoProto *, g->n_value_info + 1);
    for (size_t i = 0; i < g->n_value_info; i++) all[i] = g->value_info[i];
    all[g->n_value_info++] = info;
    g->value_info = all;
}

void holds_net_floats(holds_net *n, const char *name, const char *kind, uint32_t rank,
                      const int64_t *dims, const float *data)
{
    zx_type type = {.dtype = ZX_F32, .shape = {.rank = rank}};
    for (uint32_t i = 0; i < rank; i++) type.shape.dim[i] = dims[i];
    zx_onnx_initializer(&n->out, name, &type, data);
    if (kind != NULL) put_kind(n, name, kind);
}

void holds_net_ints(holds_net *n, const char *name, uint32_t count, const int64_t *data)
{
    const zx_type type = {.dtype = ZX_I64, .shape = {.rank = 1, .dim = {count}}};
    zx_onnx_initializer(&n->out, name, &type, data);
}

Onnx__NodeProto *holds_net_node(holds_net *n, const char *op, const char *out, const char *a,
                                const char *b, const char *c)
{
    const char *const in[] = {a, b, c};
    return zx_onnx_node(&n->out, op, zx_arena_printf(&n->mem, "node_%u", n->nodes++), 3, in, 1,
                        &out);
}

void holds_net_done(holds_net *n, const char *loss, const char *path)
{
    zx_text bytes = {0};
    zx_err err = {0};
    zx_onnx_output(&n->out, loss, ZX_F32, 0, NULL, NULL);
    assert_zx_ok(zx_onnx_pack(&n->out, &bytes, &err), &err);
    holds_write(path, bytes.at, bytes.n);
    zx_text_free(&bytes);
    zx_arena_free(&n->mem);
}

void holds_npy(const char *path, zx_dtype t, uint32_t rank, const int64_t *dims, const void *data)
{
    char shape[128] = "", text[256];
    size_t n = 0, count = 1;
    for (uint32_t i = 0; i < rank; i++) {
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%lld,", (long long)dims[i]);
        count *= (size_t)dims[i];
    }
    snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
             t == ZX_F32  ? "<f4"
             : t == ZX_U8 ? "|u1"
                          : "<i8",
             shape);
    const size_t head = strlen(text), padded = (10 + head + 1 + 63) / 64 * 64;
    const size_t bytes = count * (t == ZX_F32 ? 4 : t == ZX_U8 ? 1 : 8);
    char *file = malloc(padded + bytes);
    assert_non_null(file);
    memset(file, ' ', padded);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = (char)((padded - 10) & 0xff);
    file[9] = (char)((padded - 10) >> 8);
    memcpy(file + 10, text, head);
    file[padded - 1] = '\n';
    memcpy(file + padded, data, bytes);
    holds_write(path, file, padded + bytes);
    free(file);
}
