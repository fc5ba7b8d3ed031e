// import.c - an ONNX file becomes a forward graph: the steps in order, and the walk over the nodes.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_WALKED 500000

void zx_note(zx_notes *notes, zx_arena *mem, const char *fmt, ...)
{
    if (notes == NULL) return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ZX_GROW(mem, notes->text, notes->n, notes->cap);
    notes->text[notes->n++] = zx_arena_str(mem, text);
}

// "node 'attn/Softmax' (h.3)"
static void say_where(zx_imp *c, const zx_inode *n, zx_err *err)
{
    const char *module = zx_inode_module(c, n);
    if (module[0])
        zx_err_in(err, "node '%s' (%s)", zx_text_safe(&c->tmp, n->name),
                  zx_text_safe(&c->tmp, module));
    else
        zx_err_in(err, "node '%s'", zx_text_safe(&c->tmp, n->name));
}

zx_status zx_import_fail(zx_imp *c, const zx_inode *n, zx_status code, const char *fmt, ...)
{
    zx_err one = {0};
    char text[ZX_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ZX_FAIL(&one, code, "%s", text);
    if (n) say_where(c, n, &one);
    return zx_err_merge(c->err, &one);
}

// ---- the walk
// -------------------------------------------------------------------------------------------

// A tensor that no node makes gets its value when it is first read.
void zx_ival_load(zx_imp *c, uint32_t i)
{
    zx_ival *v = &c->vals[i];
    if (v->know != ZX_I_UNKNOWN || v->kind != ZX_I_INIT) return;
    if (v->cls == ZX_I_PARAM) {
        v->v = c->params[v->entry].v;
    } else if (v->cls == ZX_I_BUFFER && c->buffers[v->entry].changes) {
        v->v = c->buffers[v->entry].v;
    } else {
        v->v = zx_k_file(c, v->init, v->name);
        if (v->v == ZX_NONE) {
            c->vals[i].know = ZX_I_FAILED;
            return;
        }
    }
    zx_hold(c, c->vals[i].v);
    c->vals[i].know = ZX_I_VALUE;
}

// True if the node can't be lowered because something it reads couldn't.
static bool poisoned(const zx_imp *c, const zx_inode *n)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] != ZX_NONE && c->vals[n->in[i]].know == ZX_I_FAILED) return true;
    return false;
}

static void check_node(zx_imp *c, const zx_inode *n)
{
    const zx_onnx_op *row = n->row;
    if (row == NULL) {
        const char *near = n->domain[0] ? NULL : zx_onnx_op_nearest(n->op);
        char hint[128] = "";
        const bool alike = near && strlen(n->op) > 3 && (near[0] | 32) == (n->op[0] | 32);
        if (alike && strcmp(near, n->op) != 0)
            snprintf(hint, sizeof hint, " (the nearest is %s)", near);
        zx_fail(c, ZX_E_UNSUPPORTED, "the operator %s%s%s isn't supported%s",
                zx_text_safe(&c->tmp, n->domain), n->domain[0] ? "." : "",
                zx_text_safe(&c->tmp, n->op), hint);
        if (n->domain[0])
            zx_err_hint(&c->one, "re-export the model from the framework, not from a file that a "
                                 "runtime has optimised");
        else
            zx_err_hint(&c->one, "`zerox ops` lists what is supported; re-export the model with "
                                 "other operators (opset 20 is a good choice)");
        return;
    }
    if (n->opset == 0) {
        zx_fail(c, ZX_E_FORMAT,
                "the file doesn't say which version of the operator set '%s' it uses",
                n->domain[0] ? zx_text_safe(&c->tmp, n->domain) : "ai.onnx");
        return;
    }
    if (n->opset < row->first || n->opset > row->last) {
        zx_fail(c, ZX_E_UNSUPPORTED, "%s of opset %" PRId64 " isn't supported, only %d to %d",
                row->name, n->opset, row->first, row->last);
        zx_err_hint(&c->one, "re-export the model with opset_version=20");
        return;
    }
    for (uint32_t i = 0; i < (uint32_t)row->min_in; i++)
        if (!zx_given(c, i)) {
            zx_fail(c, ZX_E_FORMAT, "%s without its input %u", row->name, i);
            return;
        }
    if (row->max_in >= 0 && n->n_in > (uint32_t)row->max_in)
        zx_fail(c, ZX_E_FORMAT, "%s with %u inputs, it takes at most %d", row->name, n->n_in,
                row->max_in);
    else if (n->n_out == 0 || (row->max_out >= 0 && n->n_out > (uint32_t)row->max_out))
        zx_fail(c, ZX_E_FORMAT, "%s with %u outputs", row->name, n->n_out);
}

static void lower(zx_imp *c, const zx_inode *n)
{
    for (uint32_t i = 0; i < n->n_in && zx_ok(c); i++)
        if (n->in[i] != ZX_NONE) zx_ival_load(c, n->in[i]);
    if (zx_ok(c)) check_node(c, n);
    if (zx_ok(c)) n->row->lower(c);
    for (uint32_t i = 0; i < n->n_out && zx_ok(c); i++)
        if (zx_wanted(c, i) && c->vals[n->out[i]].know == ZX_I_UNKNOWN)
            zx_fail(c, ZX_E_UNSUPPORTED, "the output %u ('%s') of %s isn't supported", i,
                    zx_text_safe(&c->tmp, c->vals[n->out[i]].name), n->op);
}

static void give_up(zx_imp *c, const zx_inode *n)
{
    for (uint32_t i = 0; i < n->n_out; i++)
        if (n->out[i] != ZX_NONE) c->vals[n->out[i]].know = ZX_I_FAILED;
}

// Loops inside each other multiply: a file of a kilobyte could ask for 256^8 nodes.
static bool too_many(zx_imp *c, const zx_inode *n)
{
    if (c->n_walked < MAX_WALKED) {
        c->n_walked++;
        return false;
    }
    if (c->n_walked == MAX_WALKED) // said once
        zx_import_fail(c, n, ZX_E_UNSUPPORTED, "more than %d nodes once loops are unrolled",
                       MAX_WALKED);
    c->n_walked = MAX_WALKED + 1;
    give_up(c, n);
    return true;
}

static void walk_node(zx_imp *c, const zx_inode *n)
{
    if (too_many(c, n)) return;
    const zx_inode *const outer = c->node;
    const uint32_t outer_first = c->first_value, outer_source = c->b.at_source;
    const char *const outer_name = c->b.at_name;
    c->node = n;
    c->first_value = c->b.g.n_values;
    c->b.at_name = n->name;
    c->b.at_source = n->source;
    c->st = ZX_OK;
    c->one = (zx_err){0};
    const bool silent = n->row != NULL && poisoned(c, n); // unknown operators are all listed
    if (n->row == NULL)
        check_node(c, n);
    else if (!silent)
        lower(c, n);
    if (silent || !zx_ok(c)) {
        give_up(c, n);
        if (!silent) {
            say_where(c, n, &c->one);
            zx_err_merge(c->err, &c->one);
        }
    }
    // What is read here for the last time need not be kept.
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (n->in[i] == ZX_NONE) continue;
        zx_ival *v = &c->vals[n->in[i]];
        if (v->pinned || v->uses == 0 || --v->uses > 0 || v->kind != ZX_I_NODE) continue;
        if (v->know == ZX_I_VALUE) zx_drop(c, v->v);
        if (v->know == ZX_I_SEQUENCE)
            for (uint32_t k = 0; k < v->seq.n; k++) zx_drop(c, v->seq.v[k]);
        if (v->know != ZX_I_FAILED) v->know = ZX_I_UNKNOWN;
    }
    zx_release(c);
    c->st = ZX_OK;
    c->node = outer;
    c->first_value = outer_first;
    c->b.at_name = outer_name;
    c->b.at_source = outer_source;
}

void zx_import_walk(zx_imp *c, const zx_iregion *r)
{
    for (uint32_t i = 0; i < r->n_nodes; i++)
        if (r->nodes[i]->live) walk_node(c, r->nodes[i]);
}

// The file's own outputs and initialisers may be read without a node between.
static void load_roots(zx_imp *c)
{
    c->st = ZX_OK;
    c->one = (zx_err){0};
    c->first_value = c->b.g.n_values;
    for (uint32_t i = 0; i < c->n_roots; i++) zx_ival_load(c, c->roots[i]);
    if (!zx_ok(c)) zx_err_merge(c->err, &c->one);
}

// ---- the steps
// ----------------------------------------------------------------------------------------------

static void build_params(zx_imp *c)
{
    for (uint32_t i = 0; i < c->n_params; i++) {
        zx_iparam *p = &c->params[i];
        const zx_param row = {.name = p->name,
                              .init = p->init,
                              .n_aliases = p->n_aliases,
                              .aliases = p->aliases,
                              .why = p->why};
        p->v = zx_build_param(&c->b, &p->type, &row);
        zx_hold(c, p->v);
        zx_train(c, p->v);
    }
    for (uint32_t i = 0; i < c->n_buffers; i++) {
        zx_iparam *p = &c->buffers[i];
        const zx_buffer row = {.name = p->name, .init = p->init, .why = p->why};
        p->v = p->now = zx_build_buffer(&c->b, &p->type, &row);
        zx_hold(c, p->v);
    }
}

static zx_status steps(zx_imp *c)
{
    if (c->file->model->n_training_info > 0)
        zx_note(c->notes, c->mem, "the file's own training graphs (training_info) are left out");
    ZX_TRY(zx_import_flatten(c));
    ZX_TRY(zx_import_roots(c));
    zx_import_live(c);
    ZX_TRY(zx_import_classify(c));
    zx_import_ties(c);
    ZX_TRY(zx_import_bind(c));
    build_params(c);
    zx_import_walk(c, c->main);
    load_roots(c);
    if (c->err->n_causes > 0) return c->err->code;
    return zx_import_loss(c);
}

zx_status zx_import(const zx_onnx_file *file, const zx_import_options *options, zx_arena *mem,
                    zx_graph *out, zx_notes *notes, zx_err *err)
{
    *out = (zx_graph){.loss = ZX_NONE, .seed = ZX_NONE};
    zx_err mine = {0};
    zx_imp *c = ZX_NEW(mem, zx_imp, 1);
    *c = (zx_imp){.file = file,
                  .options = options,
                  .mem = mem,
                  .notes = notes,
                  .err = &mine,
                  .loss_ival = ZX_NONE,
                  .prediction = ZX_NONE};
    const char *slash = strrchr(file->path, '/');
    const char *name = slash ? slash + 1 : file->path;
    zx_builder_start(&c->b, &c->tmp, name);
    zx_status st = steps(c);
    if (mine.n_causes > 0) st = mine.code;
    if (st == ZX_OK) {
        zx_import_finish(c, out);
    } else {
        zx_err_in(&mine, "%s", zx_text_safe(mem, name));
        st = zx_err_merge(err, &mine);
    }
    zx_blocks_free(c);
    zx_arena_free(&c->tmp);
    return st;
}
