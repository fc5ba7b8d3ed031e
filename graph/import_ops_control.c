// import_ops_control.c - control flow that is decided while importing: the branch of a constant
// condition, and loops of a small constant count.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <string.h>

#define MAX_TRIPS 256
#define MAX_UNROLLED 100000 // nodes

// The value of a body's output; ZX_NONE where a node in it was refused (that was said already).
static bool take(zx_imp *c, uint32_t i, zx_ival *out)
{
    zx_ival_load(c, i);
    *out = c->vals[i];
    return out->know == ZX_I_VALUE || out->know == ZX_I_SEQUENCE;
}

static void poison(zx_imp *c)
{
    for (uint32_t i = 0; i < c->node->n_out; i++)
        if (c->node->out[i] != ZX_NONE) c->vals[c->node->out[i]].know = ZX_I_FAILED;
}

static const zx_iregion *body_of(zx_imp *c, const char *name)
{
    const zx_iattr *a = zx_inode_attr(c->node, name);
    if (a == NULL || a->body == NULL) {
        zx_fail(c, ZX_E_FORMAT, "the attribute '%s' is missing or no graph", name);
        return NULL;
    }
    for (uint32_t i = 0; i < a->body->n_out; i++)
        if (a->body->out[i] == ZX_NONE)
            zx_fail(c, ZX_E_FORMAT, "a body has an output that nothing makes");
    return zx_ok(c) ? a->body : NULL;
}

void zx_lower_if(zx_imp *c)
{
    const uint32_t cond = zx_in(c, 0);
    if (!zx_ok(c)) return;
    if (!zx_is_const(c, cond)) {
        zx_fail(c, ZX_E_UNSUPPORTED,
                "the condition of If depends on data: only constant ones are supported");
        return;
    }
    const bool yes = zx_const_float(c, cond, "the condition") != 0;
    const zx_iregion *r = body_of(c, yes ? "then_branch" : "else_branch");
    if (r == NULL) return;
    if (r->n_out < c->node->n_out) {
        zx_fail(c, ZX_E_FORMAT, "the branch has %u outputs, If %u", r->n_out, c->node->n_out);
        return;
    }
    zx_import_walk(c, r);
    for (uint32_t i = 0; i < c->node->n_out && zx_ok(c); i++) {
        if (c->node->out[i] == ZX_NONE) continue;
        zx_ival v;
        if (!take(c, r->out[i], &v)) {
            if (zx_ok(c)) poison(c);
            return;
        }
        if (v.know == ZX_I_SEQUENCE)
            zx_out_seq(c, i, v.seq.n, v.seq.v);
        else
            zx_out(c, i, v.v);
    }
}

static void bind(zx_imp *c, uint32_t i, const zx_ival *to)
{
    zx_ival *v = &c->vals[i];
    if (to->know == ZX_I_VALUE) zx_hold(c, to->v);
    if (v->know == ZX_I_VALUE) zx_drop(c, v->v);
    v->know = to->know;
    v->v = to->v;
    v->seq = to->seq;
}

// A scan output: the values of all iterations, stacked along a new first axis.
static uint32_t stack(zx_imp *c, const uint32_t *v, uint32_t n)
{
    uint32_t *one = ZX_NEW(&c->tmp, uint32_t, n);
    for (uint32_t i = 0; i < n && zx_ok(c); i++) {
        int64_t dim[ZX_MAX_RANK + 1] = {1};
        const uint32_t rank = zx_rank(c, v[i]);
        for (uint32_t d = 0; d < rank; d++) dim[d + 1] = zx_dim(c, v[i], d);
        one[i] = zx_reshape_to(c, v[i], rank + 1, dim);
    }
    return zx_concat(c, one, n, 0);
}

void zx_lower_loop(zx_imp *c)
{
    const zx_iregion *r = body_of(c, "body");
    const uint32_t count = zx_in(c, 0), first = zx_in(c, 1);
    if (!zx_ok(c)) return;
    const uint32_t n_carried = c->node->n_in > 2 ? c->node->n_in - 2 : 0;
    if ((count != ZX_NONE && !zx_is_const(c, count)) ||
        (first != ZX_NONE && !zx_is_const(c, first))) {
        zx_fail(c, ZX_E_UNSUPPORTED,
                "how often Loop runs depends on data: only constant counts are supported");
        return;
    }
    if (r->n_in != n_carried + 2 || r->n_out < n_carried + 1 || c->node->n_out > r->n_out - 1) {
        zx_fail(c, ZX_E_FORMAT, "Loop's body has %u inputs and %u outputs", r->n_in, r->n_out);
        return;
    }
    const int64_t trips =
        count == ZX_NONE ? INT64_MAX : zx_const_int(c, count, "the count of Loop");
    bool go = first == ZX_NONE || zx_const_float(c, first, "the condition") != 0;
    const uint32_t n_scan = r->n_out - 1 - n_carried;
    zx_ival *carried = ZX_NEW(&c->tmp, zx_ival, n_carried + 1);
    uint32_t *scan = ZX_NEW(&c->tmp, uint32_t, (size_t)(n_scan + 1) * (MAX_TRIPS + 1));
    for (uint32_t i = 0; i < n_carried; i++) {
        if (!zx_given(c, i + 2)) {
            zx_fail(c, ZX_E_FORMAT, "its input %u is left out", i + 2);
            return;
        }
        carried[i] = c->vals[c->node->in[i + 2]];
    }
    const uint32_t outer = c->unroll;
    uint32_t n = 0;
    for (; go && n < trips && zx_ok(c); n++) {
        if (n == MAX_TRIPS || (uint64_t)(n + 1) * r->n_nodes > MAX_UNROLLED) {
            zx_fail(c, ZX_E_UNSUPPORTED, "Loop runs more than %u times", n);
            break;
        }
        c->unroll = outer * MAX_TRIPS + n + 1;
        const zx_ival at = {.know = ZX_I_VALUE, .v = zx_k_int(c, n)},
                      cond = {.know = ZX_I_VALUE, .v = zx_k(c, ZX_BOOL, 1)};
        bind(c, r->in[0], &at);
        bind(c, r->in[1], &cond);
        for (uint32_t i = 0; i < n_carried; i++) bind(c, r->in[i + 2], &carried[i]);
        zx_import_walk(c, r);
        zx_ival v;
        for (uint32_t i = 0; i < r->n_out; i++) {
            if (!take(c, r->out[i], &v)) {
                if (zx_ok(c)) poison(c);
                c->unroll = outer;
                return;
            }
            if (i > 0 && i <= n_carried) {
                if (v.know == ZX_I_VALUE) zx_hold(c, v.v); // outlives the next iteration
                carried[i - 1] = v;
            } else if (i > n_carried) {
                zx_hold(c, v.v);
                scan[(i - 1 - n_carried) * (MAX_TRIPS + 1) + n] = v.v;
            } else if (v.know != ZX_I_VALUE || !zx_is_const(c, v.v)) {
                zx_fail(c, ZX_E_UNSUPPORTED, "the condition of Loop depends on data");
            } else {
                go = zx_const_float(c, v.v, "the condition") != 0;
            }
        }
    }
    c->unroll = outer;
    for (uint32_t i = 0; i < c->node->n_out && zx_ok(c); i++) {
        if (i < n_carried) {
            if (carried[i].know == ZX_I_SEQUENCE)
                zx_out_seq(c, i, carried[i].seq.n, carried[i].seq.v);
            else
                zx_out(c, i, carried[i].v);
        } else if (n == 0) {
            zx_fail(c, ZX_E_UNSUPPORTED, "Loop never runs, its output %u would be empty", i);
        } else {
            zx_out(c, i, stack(c, scan + (i - n_carried) * (MAX_TRIPS + 1), n));
        }
    }
}

void zx_lower_refused_control(zx_imp *c)
{
    zx_fail(c, ZX_E_UNSUPPORTED, "%s isn't supported: zerox plans graphs whose steps are fixed",
            c->node->op);
}
