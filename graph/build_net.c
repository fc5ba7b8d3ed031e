// build_net.c - see build_net.h.
// SPDX-License-Identifier: Apache-2.0
#include "graph/build_net.h"

#include <inttypes.h>
#include <string.h>

#define SCOPES "pkg.torch.onnx.name_scopes" // the key under which exporters keep the module tree
#define IGNORED_LABEL (-100)

void zx_net_open(zx_net *n, zx_arena *mem, const char *name, uint64_t seed)
{
    *n = (zx_net){.mem = mem, .seed = seed, .depth = 1, .path = {""}};
    zx_onnx_begin(&n->out, mem, name);
}

void zx_net_enter(zx_net *n, const char *module)
{
    ZX_ASSERT(n->depth < ZX_NET_DEPTH);
    const char *above = n->path[n->depth - 1];
    n->path[n->depth++] = zx_arena_printf(n->mem, "%s%s%s", above, above[0] ? "." : "", module);
}

void zx_net_leave(zx_net *n)
{
    ZX_ASSERT(n->depth > 1);
    n->depth--;
}

static const char *name_of(zx_net *n, const char *separator, const char *what)
{
    const char *path = n->path[n->depth - 1];
    return zx_arena_printf(n->mem, "%s%s%s", path, path[0] ? separator : "", what);
}

// The list of open modules and, last, the operation.
static void put_scopes(zx_net *n, const char *role)
{
    zx_text t = {0};
    zx_text_put(&t, "[");
    for (uint32_t i = 0; i < n->depth; i++) zx_text_put(&t, "'%s', ", n->path[i]);
    zx_text_put(&t, "'%s']", role);
    zx_onnx_node_meta(&n->out, n->node, SCOPES, t.at);
    zx_text_free(&t);
}

void zx_net_named(zx_net *n, const char *op, const char *role, uint32_t n_in, const char *const *in,
                  uint32_t n_out, const char *const *out)
{
    n->node = zx_onnx_node(&n->out, op, name_of(n, "/", role), n_in, in, n_out, out);
    put_scopes(n, role);
}

void zx_net_node(zx_net *n, const char *op, const char *role, uint32_t n_in, const char *const *in,
                 uint32_t n_out, const char **out)
{
    for (uint32_t i = 0; i < n_out; i++) out[i] = name_of(n, "/", out[i]);
    zx_net_named(n, op, role, n_in, in, n_out, out);
}

const char *zx_net_op(zx_net *n, const char *op, const char *role, const char *a, const char *b,
                      const char *c)
{
    const char *y = role;
    zx_net_node(n, op, role, 3, (const char *const[]){a, b, c}, 1, &y);
    return y;
}

const char *zx_net_op_int(zx_net *n, const char *op, const char *role, const char *a, const char *b,
                          const char *attribute, int64_t v)
{
    const char *y = zx_net_op(n, op, role, a, b, NULL);
    zx_onnx_node_int(&n->out, n->node, attribute, v);
    return y;
}

void zx_net_split(zx_net *n, const char *const *roles, const char *x, uint32_t parts,
                  const int64_t *sizes, const char **out)
{
    const char *const in[] = {x, zx_net_ints(n, parts, sizes)};
    for (uint32_t i = 0; i < parts; i++) out[i] = roles[i];
    zx_net_node(n, "Split", zx_arena_printf(n->mem, "split_%s", roles[0]), 2, in, parts, out);
    zx_onnx_node_int(&n->out, n->node, "axis", -1);
}

const char *zx_net_reshape(zx_net *n, const char *role, const char *x, uint32_t rank,
                           const int64_t *shape)
{
    return zx_net_op(n, "Reshape", role, x, zx_net_ints(n, rank, shape), NULL);
}

const char *zx_net_transpose(zx_net *n, const char *role, const char *x, uint32_t rank,
                             const int64_t *perm)
{
    const char *y = zx_net_op(n, "Transpose", role, x, NULL, NULL);
    zx_onnx_node_ints(&n->out, n->node, "perm", rank, perm);
    return y;
}

const char *zx_net_ints(zx_net *n, uint32_t count, const int64_t *v)
{
    zx_text name = {0};
    const zx_type type = {ZX_I64, {1, {count}}};
    zx_text_put(&name, "ints");
    for (uint32_t i = 0; i < count; i++)
        zx_text_put(&name, "_%s%" PRId64, v[i] < 0 ? "m" : "", v[i] < 0 ? -v[i] : v[i]);
    const char *kept = zx_onnx_initializer(&n->out, name.at, &type, v);
    zx_text_free(&name);
    return kept;
}

const char *zx_net_int(zx_net *n, int64_t v)
{
    const zx_type type = {ZX_I64, {0, {0}}};
    return zx_onnx_initializer(&n->out, zx_arena_printf(n->mem, "int_%" PRId64, v), &type, &v);
}

const char *zx_net_float(zx_net *n, float v)
{
    const zx_type type = {ZX_F32, {0, {0}}};
    const char *name = zx_arena_printf(n->mem, "float_%.9g", (double)v);
    return zx_onnx_initializer(&n->out, name, &type, &v);
}

// Weights of one seed, but different names, must not be the same numbers for other tools either,
// and the standard's seed is a float: a hash of both (FNV-1a) in the 24 bits that a float has.
static float seed_of(const zx_net *n, const char *name)
{
    uint64_t h = 1469598103934665603u ^ n->seed;
    for (; *name != '\0'; name++) h = (h ^ (unsigned char)*name) * 1099511628211u;
    return (float)((h ^ h >> 32) & 0xFFFFFF);
}

const char *zx_net_normal(zx_net *n, const char *name, uint32_t rank, const int64_t *dims,
                          double deviation)
{
    const char *weight = name_of(n, ".", name);
    n->node = zx_onnx_node(&n->out, "RandomNormal", zx_arena_printf(n->mem, "%s/init", weight), 0,
                           NULL, 1, &weight);
    zx_onnx_node_ints(&n->out, n->node, "shape", rank, dims);
    zx_onnx_node_float(&n->out, n->node, "mean", 0.0f);
    zx_onnx_node_float(&n->out, n->node, "scale", (float)deviation);
    if (n->seed != 0) zx_onnx_node_float(&n->out, n->node, "seed", seed_of(n, weight));
    return weight;
}

const char *zx_net_filled(zx_net *n, const char *name, int64_t size, float value)
{
    const zx_type one = {ZX_F32, {1, {1}}};
    const char *weight = name_of(n, ".", name), *shape = zx_net_ints(n, 1, &size);
    n->node = zx_onnx_node(&n->out, "ConstantOfShape", zx_arena_printf(n->mem, "%s/init", weight),
                           1, &shape, 1, &weight);
    zx_onnx_node_tensor(&n->out, n->node, "value", &one, &value);
    return weight;
}

const char *zx_net_linear(zx_net *n, const char *x, const char *weight)
{
    const char *t = zx_net_transpose(n, "weight_t", weight, 2, (const int64_t[]){1, 0});
    return zx_net_op(n, "MatMul", "matmul", x, t, NULL);
}

const char *zx_net_attention(zx_net *n, const char *role, const char *q, const char *k,
                             const char *v, const zx_new_sizes *s)
{
    const char *y = zx_net_op(n, "Attention", role, q, k, v);
    zx_onnx_node_int(&n->out, n->node, "q_num_heads", s->heads);
    zx_onnx_node_int(&n->out, n->node, "kv_num_heads", s->kv_heads);
    zx_onnx_node_int(&n->out, n->node, "is_causal", 1);
    return y;
}

const char *zx_net_positions(zx_net *n)
{
    const char *length = zx_net_op(n, "Shape", "length", "input_ids", NULL, NULL);
    zx_onnx_node_int(&n->out, n->node, "start", 1);
    zx_onnx_node_int(&n->out, n->node, "end", 2);
    length = zx_net_op(n, "Squeeze", "length_scalar", length, NULL, NULL);
    return zx_net_op(n, "Range", "positions", zx_net_int(n, 0), length, zx_net_int(n, 1));
}

const char *zx_net_causal_mask(zx_net *n, const char *positions)
{
    const int64_t first = 0, last = 1;
    const char *rows =
        zx_net_op(n, "Unsqueeze", "mask_rows", positions, zx_net_ints(n, 1, &last), NULL);
    const char *columns =
        zx_net_op(n, "Unsqueeze", "mask_columns", positions, zx_net_ints(n, 1, &first), NULL);
    const char *keep = zx_net_op(n, "GreaterOrEqual", "mask_keep", rows, columns, NULL);
    return zx_net_op(n, "Where", "mask", keep, zx_net_float(n, 0.0f),
                     zx_net_float(n, -3.40282347e38f)); // the most negative float
}

void zx_net_token_inputs(zx_net *n, const zx_new_sizes *s)
{
    const int64_t dims[] = {s->batch > 0 ? s->batch : -1, s->sequence > 0 ? s->sequence : -1};
    const char *const symbols[] = {"batch", "sequence"};
    zx_onnx_input(&n->out, "input_ids", ZX_I64, 2, dims, symbols);
    zx_onnx_input(&n->out, "labels", ZX_I64, 2, dims, symbols);
}

static void put_loss(zx_net *n, const char *op, uint32_t n_in, const char *const *in)
{
    const char *loss = "loss";
    zx_net_named(n, op, "cross_entropy", n_in, in, 1, &loss);
    zx_onnx_node_text(&n->out, n->node, "reduction", "mean");
    zx_onnx_node_int(&n->out, n->node, "ignore_index", IGNORED_LABEL);
    zx_onnx_output(&n->out, loss, ZX_F32, 0, NULL, NULL);
}

void zx_net_loss(zx_net *n, const char *logits, int64_t classes)
{
    const char *x = zx_net_reshape(n, "logits_2d", logits, 2, (const int64_t[]){-1, classes});
    const char *labels = zx_net_reshape(n, "labels_1d", "labels", 1, (const int64_t[]){-1});
    put_loss(n, "SoftmaxCrossEntropyLoss", 2, (const char *const[]){x, labels});
}

void zx_net_linear_loss(zx_net *n, const char *x, const char *weight)
{
    put_loss(n, "LinearCrossEntropy", 3, (const char *const[]){x, weight, "labels"});
    zx_onnx_node_domain(&n->out, n->node, "zerox", 1);
}
