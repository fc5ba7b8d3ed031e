// job_idle.c - see job_idle.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_idle.h"

#include <string.h>
#include <unistd.h>

enum { // bits of the commands' column
#define X(id, word, operand, help, example) id = 1 << ZX_CMD_##id,
    ZX_COMMAND_MAP(X)
#undef X
};

// ---- noted --------------------------------------------------------------------------------------

static bool only_predicts(const zx_job *job)
{
    return !zx_given(job->o, ZX_OPT_EXECUTE);
}

static bool writes_nothing(const zx_job *job)
{
    return !zx_given(job->o, ZX_OPT_OUTPUT) && !zx_given(job->o, ZX_OPT_REPORT);
}

static bool no_config(const zx_job *job)
{
    return !zx_given(job->o, ZX_OPT_CONFIG);
}

static bool alone(const zx_job *job)
{
    return job->ranks == 1;
}

// A file may be of a host.
static bool elsewhere(const zx_job *job)
{
    return zx_options_name_machine(job->o) &&
           access(zx_given_text(job->o, ZX_OPT_MACHINE), F_OK) != 0;
}

void zx_job_note_options(zx_job *job)
{
    static const struct {
        zx_option_id id;
        unsigned commands;
        bool (*when)(const zx_job *job);
        const char *why;
    } rules[] = {
        {ZX_OPT_SEED, PLAN | COMPARE, only_predicts, "plans are the same for every seed"},
        {ZX_OPT_FORCE, PLAN | COMPARE | SIMULATE, writes_nothing, "no file is written"},
        {ZX_OPT_ALLOW_UNKNOWN, TRAIN | PLAN | CHECK | COMPARE | SIMULATE, no_config,
         "there is no --config"},
        {ZX_OPT_THREADS, PLAN | COMPARE, elsewhere, "it is of this host, --machine names another"},
        {ZX_OPT_NO_OVERLAP, TRAIN, alone, "one rank waits for no other"},
    };
    for (size_t i = 0; i < ZX_COUNT(rules); i++)
        if ((rules[i].commands >> job->o->command & 1) != 0 && zx_given(job->o, rules[i].id) &&
            rules[i].when(job))
            zx_note(&job->notes, &job->mem, "%s has no effect: %s",
                    zx_option_word(rules[i].id, &job->mem), rules[i].why);
}

// Who lets NCCL add gradients is told where it won't.
void zx_job_note_order(zx_job *job)
{
    const char *comm = zx_given_text(job->o, ZX_OPT_COMM);
    const bool cores = zx_site_backend(&job->site) == &zx_backend_cpu;
    const char *who = cores                                      ? "on cores they"
                      : comm != NULL && strcmp(comm, "shm") == 0 ? "by --comm shm they"
                      : job->precision != ZX_PREC_F32            ? "those of 16 bits"
                                                                 : NULL;
    if (job->o->command != ZX_CMD_TRAIN || who == NULL) return;
    if (!zx_config_get(&job->config, "zerox.deterministic")->b)
        zx_note(&job->notes, &job->mem,
                "zerox.deterministic changes no gradients here: %s are added in rank order", who);
}

static bool has_batch_norm(size_t n, Onnx__NodeProto *const *nodes)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(nodes[i]->op_type, "BatchNormalization") == 0) return true;
    return false;
}

// Dropout, and tensors that the model has made at its start.
static bool has_random(size_t n, Onnx__NodeProto *const *nodes)
{
    for (size_t i = 0; i < n; i++) {
        const char *op = nodes[i]->op_type;
        if (strstr(op, "Random") != NULL || strstr(op, "Dropout") != NULL ||
            strcmp(op, "Bernoulli") == 0 || strcmp(op, "Multinomial") == 0)
            return true;
        for (size_t k = 0; k < nodes[i]->n_attribute; k++) {
            const Onnx__GraphProto *body = nodes[i]->attribute[k]->g;
            if (body != NULL && has_random(body->n_node, body->node)) return true;
        }
    }
    return false;
}

static bool is_made_up(const zx_data *data)
{
    zx_text text = {0};
    if (data != NULL) zx_data_describe(data, &text);
    const bool made_up = text.n > 0 && strstr(text.at, "synthetic") != NULL;
    zx_text_free(&text);
    return made_up;
}

// Of a training run: nobody draws a number. Where that isn't sure nothing is said.
static void note_seed(zx_job *job)
{
    const Onnx__ModelProto *m = job->file.model;
    const zx_options *o = job->o;
    bool random = has_random(m->graph->n_node, m->graph->node) || is_made_up(job->data) ||
                  zx_given(o, ZX_OPT_SHUFFLE);
    for (size_t i = 0; i < m->n_functions; i++)
        random |= has_random(m->functions[i]->n_node, m->functions[i]->node);
    for (uint32_t i = 0; i < o->value[ZX_OPT_EVAL_DATA].n; i++)
        random |= strstr(o->value[ZX_OPT_EVAL_DATA].text[i], "synthetic") != NULL;
    if (random || zx_config_get(&job->config, "zerox.eval.data")->has) return;
    if (o->command == ZX_CMD_TRAIN && zx_given(o, ZX_OPT_SEED) && !zx_given(o, ZX_OPT_RESUME))
        zx_note(&job->notes, &job->mem,
                "--seed has no effect: the model drops nothing out, nor are samples shuffled or "
                "made up");
}

void zx_job_note_model(zx_job *job)
{
    const Onnx__ModelProto *m = job->file.model;
    const bool normal =
        strcmp(zx_config_get(&job->config, "zerox.batch_norm")->text, "training") == 0;
    bool has = has_batch_norm(m->graph->n_node, m->graph->node);
    for (size_t i = 0; i < m->n_functions; i++)
        has |= has_batch_norm(m->functions[i]->n_node, m->functions[i]->node);
    if (!has && !normal)
        zx_note(&job->notes, &job->mem,
                "zerox.batch_norm has no effect: the model has no BatchNormalization");
    note_seed(job);
}

void zx_job_note_data(zx_job *job)
{
    if (job->data != NULL && zx_given(job->o, ZX_OPT_SHUFFLE) && zx_data_epoch(job->data) == 0)
        zx_note(&job->notes, &job->mem,
                "--shuffle has no effect: every input is generated, there are no samples to put "
                "in another order");
}
