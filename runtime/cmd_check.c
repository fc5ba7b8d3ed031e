// cmd_check.c - zerox check: what zerox makes of a model, before anybody trains it.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "graph/autodiff.h"
#include "runtime/cmd.h"
#include "runtime/data_priv.h"
#include "runtime/job_fuse.h"

static const char *shape_text(const zx_graph *g, uint32_t value, zx_arena *mem)
{
    char buf[ZX_SHAPE_TEXT];
    return zx_arena_str(mem, zx_shape_text(&g->values[value].type.shape, buf));
}

// As declared, and with the sizes that the import gave where these differ.
static void put_inputs(zx_job *job, zx_text *out)
{
    const zx_graph *g = &job->forward;
    zx_arena *mem = &job->mem;
    zx_text_put(out, "inputs:\n");
    for (uint32_t k = 0; k < job->n_inputs; k++) {
        const zx_input_decl *in = &job->inputs[k];
        const char *declared = zx_data_decl_text(in, mem);
        zx_text_put(out, "  %s %s", zx_text_safe(mem, in->name), declared);
        for (uint32_t i = 0; i < g->n_inputs; i++) {
            const zx_value *v = &g->values[g->inputs[i]];
            if (strcmp(v->name, in->name) != 0) continue;
            const char *shape = shape_text(g, g->inputs[i], mem);
            if (strcmp(strchr(declared, ' ') + 1, shape) != 0)
                zx_text_put(out, ", taken as %s", shape);
        }
        zx_text_put(out, "\n");
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) { // the labels that zerox.loss adds
        const zx_value *v = &g->values[g->inputs[i]];
        bool known = false;
        for (uint32_t k = 0; k < job->n_inputs; k++)
            known |= strcmp(job->inputs[k].name, v->name) == 0;
        if (!known)
            zx_text_put(out, "  %s %s %s (of zerox.loss)\n", zx_text_safe(mem, v->name),
                        zx_dtypes[v->type.dtype].word, shape_text(g, g->inputs[i], mem));
    }
}

static void put_dims(zx_job *job, zx_text *out)
{
    const zx_graph *g = &job->forward;
    zx_arena *mem = &job->mem;
    zx_text seen = {0};
    zx_text_put(&seen, "\n");
    zx_text_put(out, "dimensions:\n");
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
    zx_text_put(out, "%s", seen.n > 1 ? seen.at + 1 : "  all are fixed\n");
    zx_text_free(&seen);
}

static const char *reason(const char *why)
{
    return why != NULL ? why : "no reason is known";
}

// Tensors under why they are what they are; the reasons in the order in which they first occur.
static void put_params(zx_job *job, zx_text *out)
{
    const zx_graph *g = &job->forward;
    zx_arena *mem = &job->mem;
    bool *done = ZX_NEW(mem, bool, g->n_params);
    for (uint32_t i = 0; i < g->n_params; i++) {
        const char *why = reason(g->params[i].why);
        uint32_t n = 0;
        if (done[i]) continue;
        for (uint32_t k = i; k < g->n_params; k++) n += strcmp(why, reason(g->params[k].why)) == 0;
        zx_text_put(out, "  %u: %s\n", n, zx_text_safe(mem, why));
        for (uint32_t k = i; k < g->n_params; k++) {
            if (strcmp(why, reason(g->params[k].why)) != 0) continue;
            done[k] = true;
            zx_text_put(out, "    %s %s%s", zx_text_safe(mem, g->params[k].name),
                        shape_text(g, g->params[k].value, mem),
                        g->params[k].frozen ? ", frozen" : "");
            if (job->group_of != NULL && job->group_of[k] != ZX_NONE)
                zx_text_put(out, ", group %u", job->group_of[k]);
            zx_text_put(out, "\n");
        }
    }
}

static void put_tensors(zx_job *job, zx_text *out)
{
    const zx_graph *g = &job->forward;
    zx_arena *mem = &job->mem;
    char count[ZX_BYTES_TEXT];
    uint32_t ties = 0;
    for (uint32_t i = 0; i < g->n_params; i++) ties += g->params[i].n_aliases > 0;
    zx_text_put(out, "parameters: %s in %u tensor%s\n",
                zx_text_count((double)job->n_elements, count), g->n_params,
                g->n_params == 1 ? "" : "s");
    put_params(job, out);
    zx_job_params_text(job, out);
    if (ties > 0) zx_text_put(out, "ties: %u\n", ties);
    for (uint32_t i = 0; i < g->n_params; i++)
        for (uint32_t k = 0; k < g->params[i].n_aliases; k++)
            zx_text_put(out, "  %s is %s\n", zx_text_safe(mem, g->params[i].aliases[k]),
                        zx_text_safe(mem, g->params[i].name));
    if (g->n_buffers > 0) zx_text_put(out, "buffers: %u\n", g->n_buffers);
    for (uint32_t i = 0; i < g->n_buffers; i++) {
        const zx_buffer *b = &g->buffers[i];
        zx_text_put(out, "  %s %s: %s%s\n", zx_text_safe(mem, b->name),
                    shape_text(g, b->value, mem), zx_text_safe(mem, reason(b->why)),
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
    zx_text_put(out, "operators: %u node%s, %u after folding\n ", g->n_sources,
                g->n_sources == 1 ? "" : "s", g->n_nodes);
    for (uint32_t i = 0, n = 1; i < g->n_sources; i += n, n = 1) {
        while (i + n < g->n_sources && strcmp(names[i], names[i + n]) == 0) n++;
        zx_text_put(out, "%s %s %u", i > 0 ? "," : "", zx_text_safe(&job->mem, names[i]), n);
    }
    zx_text_put(out, "\n");
}

static void put_loss(zx_job *job, zx_text *out)
{
    const zx_graph *g = &job->forward;
    if (g->loss == ZX_NONE) {
        zx_text_put(
            out,
            "loss: none\n  --config FILE with %s gives it one;\n  a model exported with its "
            "loss inside needs none\n",
            zx_job_loss_example(job));
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

// Data that were asked for have to fit. Files beside the model may be another one's, and what
// doesn't fit of them is good to know.
static void put_data(zx_job *job, zx_text *out, zx_err *err)
{
    const bool asked =
        job->o->value[ZX_OPT_DATA].n > 0 || zx_config_get(&job->config, "zerox.data")->has;
    const zx_data *d = job->data;
    zx_err found = {0};
    if (job->data_err.code != ZX_OK)
        zx_err_merge(&found, &job->data_err);
    else
        zx_data_bind(job->data, &job->forward, job->batch.micro, (uint32_t)job->batch.accumulate,
                     &job->notes, &found);
    if (found.code == ZX_OK) {
        zx_text_put(out, "data: ");
        zx_data_describe(d, out);
        zx_text_put(out, "\n");
    } else if (asked) {
        zx_err_merge(err, &found);
    } else {
        zx_note(&job->notes, &job->mem, "data beside the model: %s", found.cause[0]);
    }
}

// What training would refuse, as errors; traps are the notes of the import.
static void put_refusals(zx_job *job, zx_text *out, zx_err *err)
{
    const zx_graph *g = &job->forward;
    zx_graph train;
    zx_err found = {0};
    if (g->loss == ZX_NONE) {
        ZX_FAIL(&found, ZX_E_UNSUPPORTED, "there is no loss");
        zx_err_hint(&found, "--config with %s, or export the model with its loss inside",
                    zx_job_loss_example(job));
    }
    if (g->n_params == 0) {
        ZX_FAIL(&found, ZX_E_UNSUPPORTED, "there is no parameter to train");
        zx_err_hint(&found, "zerox.parameters in the config names initialisers that are some");
    }
    if (found.code == ZX_OK) zx_autodiff(g, 1, &job->mem, &train, &found);
    zx_text_put(out, "would be refused: %s\n", found.code == ZX_OK ? "nothing" : "see below");
    if (found.code != ZX_OK) zx_err_merge(err, &found);
}

// What of it becomes fewer operators.
static zx_status put_fusions(zx_job *job, zx_text *out, zx_err *err)
{
    uint32_t counts[ZX_FUSE_COUNT], n = 0;
    zx_graph fused;
    ZX_TRY(zx_job_fuse(job, counts, &fused, err));
    zx_text_put(out, "fused:");
    for (uint32_t i = 0; i < ZX_FUSE_COUNT; i++)
        if (counts[i] > 0)
            zx_text_put(out, "%s %u %s", n++ > 0 ? "," : "", counts[i], zx_fuses[i].word);
    if (n > 0)
        zx_text_put(out, ": %u nodes in place of %u\n", fused.n_nodes, job->forward.n_nodes);
    else
        zx_text_put(out, " nothing\n");
    return ZX_OK;
}

static zx_status check(zx_job *job, zx_text *out, zx_err *err)
{
    zx_text_put(out, "%s\n", zx_text_safe(&job->mem, job->model));
    const zx_status st = zx_job_import(job, true, err);
    const zx_graph *g = &job->forward;
    if (st != ZX_OK) job->forward = (zx_graph){0};
    put_inputs(job, out);
    if (st != ZX_OK) return st;
    for (uint32_t i = 0; i < g->n_params; i++)
        job->n_elements += (uint64_t)zx_shape_count(&g->values[g->params[i].value].type.shape);
    put_dims(job, out);
    put_loss(job, out);
    put_tensors(job, out);
    put_ops(job, out);
    ZX_TRY(put_fusions(job, out, err));
    put_data(job, out, err);
    put_refusals(job, out, err);
    if (job->notes.n > 0) zx_text_put(out, "to know:\n");
    for (uint32_t i = 0; i < job->notes.n; i++)
        zx_text_put(out, "  %s\n", zx_text_safe(&job->mem, job->notes.text[i]));
    return err->code;
}

// The usual advice sends to this very command.
static void mend_hint(zx_err *err)
{
    static const char *const hints[ZX_STATUS_COUNT] = {
        [ZX_E_UNSUPPORTED] = "zerox ops lists the operators; export the model without others",
        [ZX_E_SHAPE] = "export the model again",
        [ZX_E_DATA] = "another file for --data, or none: a check needs no data",
    };
    const char *own = strstr(err->hint, "zerox check") != NULL
                          ? "zerox.parameters in the config, or another export of the model"
                          : hints[err->code];
    if (err->hint[0] != '\0' && strstr(err->hint, "zerox check") == NULL) return;
    err->hint[0] = '\0';
    if (own != NULL) zx_err_hint(err, "%s", own);
}

int zx_cmd_check(const zx_options *o, zx_err *err)
{
    zx_job job = {0};
    zx_text out = {0};
    zx_status st = zx_job_open(&job, o, 1, true, err);
    if (st == ZX_OK) st = check(&job, &out, err);
    if (st != ZX_OK) mend_hint(err);
    zx_cmd_put(&out);
    zx_text_free(&out);
    zx_job_close(&job);
    return zx_status_exit(st);
}
