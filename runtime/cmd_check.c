// cmd_check.c - zerox check: what zerox makes of a model, before anybody trains it.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "graph/autodiff.h"
#include "runtime/cmd.h"
#include "runtime/data_priv.h"

static const char *shape_text(const zx_graph *g, uint32_t value, zx_arena *mem)
{
    char buf[ZX_SHAPE_TEXT];
    return zx_arena_str(mem, zx_shape_text(&g->values[value].type.shape, buf));
}

static void put_inputs(zx_job *job, zx_text *out)
{
    const zx_graph *g = &job->forward;
    zx_arena *mem = &job->mem;
    zx_text_put(out, "inputs\n");
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const zx_value *v = &g->values[g->inputs[i]];
        const zx_input_decl *decl = NULL;
        for (uint32_t k = 0; k < job->n_inputs; k++)
            if (strcmp(job->inputs[k].name, v->name) == 0) decl = &job->inputs[k];
        zx_text_put(out, "  %s %s %s", zx_text_safe(mem, v->name), zx_dtypes[v->type.dtype].word,
                    shape_text(g, g->inputs[i], mem));
        if (decl != NULL) zx_text_put(out, " (declared %s)", zx_data_decl_text(decl, mem));
        zx_text_put(out, "\n");
    }
}

static void put_dims(zx_job *job, zx_text *out)
{
    const zx_graph *g = &job->forward;
    zx_arena *mem = &job->mem;
    zx_text seen = {0};
    zx_text_put(&seen, "\n");
    zx_text_put(out, "dims\n");
    for (uint32_t i = 0; i < job->n_inputs; i++) {
        const zx_input_decl *in = &job->inputs[i];
        const zx_value *v = NULL;
        for (uint32_t k = 0; k < g->n_inputs; k++)
            if (strcmp(g->values[g->inputs[k]].name, in->name) == 0) v = &g->values[g->inputs[k]];
        for (uint32_t d = 0; v != NULL && d < in->rank && d < v->type.shape.rank; d++) {
            if (in->symbol[d] == NULL || in->symbol[d][0] == '\0') continue;
            const char *line =
                zx_arena_printf(mem, "\n  %s = %lld\n", zx_text_safe(mem, in->symbol[d]),
                                (long long)v->type.shape.dim[d]);
            if (strstr(seen.at, line) != NULL) continue;
            zx_text_put(&seen, "%s", line + 1);
        }
    }
    zx_text_put(out, "%s", seen.n > 1 ? seen.at + 1 : "  all fixed\n");
    zx_text_free(&seen);
}

static void put_tensors(zx_job *job, zx_text *out)
{
    const zx_graph *g = &job->forward;
    zx_arena *mem = &job->mem;
    char count[ZX_BYTES_TEXT];
    uint32_t ties = 0;
    zx_text_put(out, "parameters: %s in %u tensors\n",
                zx_text_count((double)job->n_elements, count), g->n_params);
    for (uint32_t i = 0; i < g->n_params; i++) {
        const zx_param *p = &g->params[i];
        zx_text_put(out, "  %s %s: %s\n", zx_text_safe(mem, p->name), shape_text(g, p->value, mem),
                    p->why != NULL ? zx_text_safe(mem, p->why) : "-");
        ties += p->n_aliases > 0;
    }
    zx_text_put(out, "ties: %u\n", ties);
    for (uint32_t i = 0; i < g->n_params; i++)
        for (uint32_t k = 0; k < g->params[i].n_aliases; k++)
            zx_text_put(out, "  %s is %s\n", zx_text_safe(mem, g->params[i].aliases[k]),
                        zx_text_safe(mem, g->params[i].name));
    zx_text_put(out, "buffers: %u\n", g->n_buffers);
    for (uint32_t i = 0; i < g->n_buffers; i++) {
        const zx_buffer *b = &g->buffers[i];
        zx_text_put(out, "  %s %s: %s%s\n", zx_text_safe(mem, b->name),
                    shape_text(g, b->value, mem), b->why != NULL ? zx_text_safe(mem, b->why) : "-",
                    b->next == ZX_NONE ? "; never changes" : "");
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// "MatMul 12, Relu 3": how often each operator of the file occurs.
static void put_ops(zx_job *job, zx_text *out)
{
    const zx_graph *g = &job->forward;
    const char **names = ZX_NEW(&job->mem, const char *, g->n_sources);
    for (uint32_t i = 0; i < g->n_sources; i++) names[i] = g->sources[i].op;
    qsort(names, g->n_sources, sizeof *names, by_name);
    zx_text_put(out, "ops in the file: %u nodes\n ", g->n_sources);
    for (uint32_t i = 0, n = 1; i < g->n_sources; i += n, n = 1) {
        while (i + n < g->n_sources && strcmp(names[i], names[i + n]) == 0) n++;
        zx_text_put(out, " %s %u", zx_text_safe(&job->mem, names[i]), n);
    }
    zx_text_put(out, "\nafter folding: %u nodes\n", g->n_nodes);
}

static void put_loss(zx_job *job, zx_text *out)
{
    const zx_graph *g = &job->forward;
    if (g->loss == ZX_NONE) {
        zx_text_put(out, "loss: none; zerox.loss in the config names one\n");
        return;
    }
    bool found = false;
    const bool shifts = zx_import_shifts_labels(g, &found);
    zx_text_put(out, "loss: %s\n", zx_text_safe(&job->mem, g->values[g->loss].name));
    bool sequence = false; // a classifier's labels have nothing to be shifted along
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const zx_type *t = &g->values[g->inputs[i]].type;
        sequence |= t->shape.rank == 2 && !zx_dtype_is_float(t->dtype);
    }
    if (found && sequence)
        zx_text_put(
            out, "labels: the graph %s\n",
            shifts
                ? "shifts them itself: labels are the tokens"
                : "doesn't shift them: labels of a language model are the tokens moved on by one");
}

// What training would refuse, as errors; traps are the notes of the import.
static zx_status put_refusals(zx_job *job, zx_text *out, zx_err *err)
{
    const zx_graph *g = &job->forward;
    zx_graph train;
    zx_err found = {0};
    if (g->loss == ZX_NONE) ZX_FAIL(&found, ZX_E_UNSUPPORTED, "there is no loss");
    if (g->n_params == 0) ZX_FAIL(&found, ZX_E_UNSUPPORTED, "there is no parameter to train");
    if (found.code == ZX_OK) zx_autodiff(g, 1, &job->mem, &train, &found);
    zx_text_put(out, "would be refused: %s\n", found.code == ZX_OK ? "nothing" : "see below");
    zx_text_put(out, "to know: %s\n", job->notes.n == 0 ? "nothing" : "");
    for (uint32_t i = 0; i < job->notes.n; i++)
        zx_text_put(out, "  %s\n", zx_text_safe(&job->mem, job->notes.text[i]));
    return found.code == ZX_OK ? ZX_OK : zx_err_merge(err, &found);
}

static zx_status check(zx_job *job, zx_text *out, zx_err *err)
{
    ZX_TRY(zx_job_import(job, true, err));
    const zx_graph *g = &job->forward;
    for (uint32_t i = 0; i < g->n_params; i++)
        job->n_elements += (uint64_t)zx_shape_count(&g->values[g->params[i].value].type.shape);
    zx_text_put(out, "%s\n", zx_text_safe(&job->mem, job->model));
    put_inputs(job, out);
    put_dims(job, out);
    put_loss(job, out);
    put_tensors(job, out);
    put_ops(job, out);
    return put_refusals(job, out, err);
}

int zx_cmd_check(const zx_options *o, zx_err *err)
{
    zx_job job = {0};
    zx_text out = {0};
    zx_status st = zx_job_open(&job, o, 1, true, err);
    if (st == ZX_OK) st = check(&job, &out, err);
    zx_cmd_put(&out);
    zx_text_free(&out);
    zx_job_close(&job);
    return zx_status_exit(st);
}
