// cmd_job.c - from a command line to a train graph and its plan; see cmd.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd.h"
#include "runtime/cmd_machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/autodiff.h"
#include "runtime/data_priv.h"
#include "runtime/eval.h"
#include "runtime/job_certificate.h"
#include "runtime/job_fuse.h"
#include "runtime/job_idle.h"
#include "runtime/job_targets.h"
#include "runtime/ways_out.h"

#define MOST_THREADS 1024 // of a rank

// In one piece: ranks and their launcher write to the same place, and may die at any time.
void zx_cmd_say(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    const int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) return;
    text[n] = '\n';
    fwrite(text, 1, (size_t)n + 1, stderr);
    free(text);
}

void zx_cmd_note(const char *sentence)
{
    zx_cmd_say("note: %s", sentence);
}

void zx_cmd_wrote(const char *path, zx_arena *mem)
{
    zx_cmd_say("written: %s", zx_text_safe(mem, path));
}

zx_status zx_cmd_check_ranks(uint64_t ranks, uint64_t most, zx_err *err)
{
    if (ranks <= most) return ZX_OK;
    return ZX_FAIL(err, ZX_E_USAGE, "--ranks %llu is too many", (unsigned long long)ranks);
}

void zx_cmd_put(const zx_text *out)
{
    if (out->n > 0) fwrite(out->at, 1, out->n, stdout);
    fflush(stdout); // before what is said on stderr
}

// Where nothing better was said.
static const char *usual_hint(zx_status code)
{
    static const char *const hints[ZX_STATUS_COUNT] = {
        [ZX_E_IO] = "look at the path, its permissions and the free space",
        [ZX_E_USAGE] = "", // the command's --help
        [ZX_E_FORMAT] = "mend the file, or export or fetch it again",
        [ZX_E_UNSUPPORTED] =
            "zerox check MODEL says what can be trained; zerox ops has the operators",
        [ZX_E_SHAPE] = "zerox check MODEL shows inputs and dimensions; export the model again",
        [ZX_E_DATA] = "zerox check MODEL shows what each input takes",
        [ZX_E_BUDGET] = "--budget min, or more ranks",
        [ZX_E_DIVERGED] = "a smaller learning rate, or other data",
        [ZX_E_COMM] = "start the run again; the system's log may say why a rank ended",
        [ZX_E_DEVICE] = "a smaller --budget, or fewer --ranks and --threads",
    };
    return hints[code];
}

void zx_cmd_fail(const zx_err *err, zx_command command)
{
    const uint32_t kept = err->n_causes < ZX_ERR_KEPT ? err->n_causes : ZX_ERR_KEPT;
    zx_arena mem = {0};
    for (uint32_t i = 0; i < kept; i++) zx_cmd_say("zerox: %s", zx_text_safe(&mem, err->cause[i]));
    if (err->n_causes > kept) zx_cmd_say("zerox: and %u more", err->n_causes - kept);
    // A hint that is a command to read help with is put in the usual words.
    const char *hint = err->hint[0] != '\0' ? err->hint : usual_hint(err->code);
    if (hint != NULL && hint[0] == '\0')
        hint = zx_arena_printf(&mem, "zerox %s --help", zx_command_word(command));
    if (hint != NULL)
        zx_cmd_say("%s %s", hint[0] == '\'' ? "Try" : "try:", zx_text_safe(&mem, hint));
    zx_arena_free(&mem);
}

// ---- open ---------------------------------------------------------------------------------------

static zx_status bind_dims(zx_job *job, zx_import_options *io, zx_err *err)
{
    const zx_option_value *given = &job->o->value[ZX_OPT_DIM];
    zx_bind *dims = ZX_NEW(&job->mem, zx_bind, given->n);
    for (uint32_t i = 0; i < given->n; i++) {
        size_t n;
        uint64_t size;
        if (!zx_parse_name_count(given->text[i], &n, &size))
            return ZX_FAIL(err, ZX_E_USAGE, "--dim needs NAME=N with N of at least 1, not '%s'",
                           zx_text_safe(&job->mem, given->text[i]));
        dims[i] = (zx_bind){zx_arena_strn(&job->mem, given->text[i], n), (int64_t)size};
    }
    io->dims = dims;
    io->n_dims = given->n;
    return zx_config_import(&job->config, io, err);
}

// Every dimension that --dim or zerox.dims names has to be one of the model's.
static zx_status check_dims(const zx_job *job, const zx_import_options *io, zx_err *err)
{
    zx_arena *mem = (zx_arena *)(uintptr_t)&job->mem;
    for (uint32_t i = 0; i < io->n_dims; i++) {
        zx_text known = {0};
        bool found = false;
        for (uint32_t k = 0; k < job->n_inputs; k++)
            for (uint32_t d = 0; d < job->inputs[k].rank; d++) {
                const char *symbol = job->inputs[k].symbol[d];
                if (symbol == NULL || symbol[0] == '\0') continue;
                found |= strcmp(symbol, io->dims[i].name) == 0;
                const char *safe = zx_arena_printf(mem, ", %s,", zx_text_safe(mem, symbol));
                const char *have = known.n > 0 ? zx_arena_printf(mem, ", %s,", known.at) : "";
                if (strstr(have, safe) != NULL) continue;
                zx_text_put(&known, "%s%s", known.n > 0 ? ", " : "", zx_text_safe(mem, symbol));
            }
        const char *list = known.n > 0 ? zx_arena_str(mem, known.at) : "none";
        zx_text_free(&known);
        if (!found)
            return ZX_FAIL(err, ZX_E_USAGE,
                           "%s: no input has a dimension '%s'; symbolic ones are: %s", job->model,
                           zx_text_safe(mem, io->dims[i].name), list);
    }
    return ZX_OK;
}

// The first dimension of the inputs where it is fixed, in the file or by --dim; 0: symbolic.
static int64_t fixed_batch(const zx_job *job, const zx_import_options *io)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < job->n_inputs; i++) {
        const zx_input_decl *in = &job->inputs[i];
        if (in->rank == 0) continue;
        int64_t size = in->dim[0];
        for (uint32_t k = 0; size < 0 && k < io->n_dims; k++)
            if (in->symbol[0] != NULL && strcmp(in->symbol[0], io->dims[k].name) == 0)
                size = io->dims[k].size;
        if (size < 0) return 0;
        if (size > most) most = size; // an input [1, sequence] beside [batch, ...] is no batch
    }
    return most;
}

// What a user did wrong is to be seen at once.
static zx_status resolve_config(zx_job *job, zx_err *err)
{
    zx_config_precision(&job->config, &job->precision, &job->accumulate_bytes, err);
    zx_config_loss_scale(&job->config, &job->loss_scale, err);
    if (zx_given(job->o, ZX_OPT_EXECUTE) && !(job->loss_scale.fixed > 0))
        ZX_FAIL(err, ZX_E_USAGE,
                "--execute compares fp16 with a loss scale that stays: fp16.loss_scale, e.g. 128");
    if (zx_config_optim(&job->config, &job->optim, &job->clip, err) == ZX_OK)
        zx_config_schedule(&job->config, &job->optim, err);
    if (err->code == ZX_OK) zx_job_param_groups(job, err);
    if (err->code == ZX_E_USAGE && err->hint[0] == '\0')
        zx_err_hint(err, "docs/CONFIG.md has the keys of a config");
    return err->code;
}

// What torch.set_float32_matmul_precision says: "high" is TF32, where there is such a thing.
static void allow_tf32(zx_job *job)
{
    const zx_backend *b = zx_site_backend(&job->site);
    const bool runs = job->o->command == ZX_CMD_TRAIN || !zx_given(job->o, ZX_OPT_MACHINE);
    job->tf32 = strcmp(zx_config_get(&job->config, "zerox.matmul_precision")->text, "high") == 0;
    if (job->tf32 && b->allow_tf32 != NULL && job->site.gpu != NULL) b->allow_tf32(job->site.gpu);
    if (job->tf32 && runs && b->allow_tf32 == NULL)
        zx_note(&job->notes, &job->mem,
                "zerox.matmul_precision has no effect here: this host's cores multiply float32");
}

static zx_status read_config(zx_job *job, zx_err *err)
{
    const zx_options *o = job->o;
    const bool explains = o->command == ZX_CMD_CONFIG;
    const char *path = zx_given_text(o, explains ? ZX_OPT_EXPLAIN : ZX_OPT_CONFIG);
    if (path == NULL && o->command != ZX_CMD_CHECK && o->command != ZX_CMD_SIMULATE)
        zx_note(&job->notes, &job->mem,
                "no --config: as if it were {\"zero_optimization\": {\"stage\": 3}}");
    const zx_status st = zx_config_read(path, zx_given(o, ZX_OPT_ALLOW_UNKNOWN), &job->mem,
                                        &job->config, &job->notes, err);
    if (st != ZX_OK && job->config.root == NULL) return st;
    job->config.whose_ranks = zx_given(o, ZX_OPT_RANKS)      ? " (--ranks)"
                              : getenv("WORLD_SIZE") != NULL ? " (the launcher's WORLD_SIZE)"
                                                             : " (--ranks says how many)";
    const uint64_t stage = zx_given_number(o, ZX_OPT_STAGE, 0);
    if (stage > 3) return ZX_FAIL(err, ZX_E_USAGE, "--stage must be 0, 1, 2 or 3");
    if (zx_given(o, ZX_OPT_STAGE))
        zx_config_set_int(&job->config, "zero_optimization.stage", (int64_t)stage, ZX_FROM_COMMAND);
    if (zx_given(o, ZX_OPT_SEED))
        zx_config_set_int(&job->config, "zerox.seed",
                          (int64_t)(zx_given_number(o, ZX_OPT_SEED, 0) & INT64_MAX),
                          ZX_FROM_COMMAND);
    if (zx_given(o, ZX_OPT_BATCH))
        zx_config_set_int(&job->config, "train_micro_batch_size_per_gpu",
                          (int64_t)(zx_given_number(o, ZX_OPT_BATCH, 1) & INT64_MAX),
                          ZX_FROM_COMMAND);
    if (zx_given(o, ZX_OPT_ACCUMULATE))
        zx_config_set_int(&job->config, "gradient_accumulation_steps",
                          (int64_t)(zx_given_number(o, ZX_OPT_ACCUMULATE, 1) & INT64_MAX),
                          ZX_FROM_COMMAND);
    if (zx_given(o, ZX_OPT_BUDGET))
        zx_config_set_text(&job->config, "zerox.budget", zx_given_text(o, ZX_OPT_BUDGET),
                           ZX_FROM_COMMAND);
    ZX_TRY(zx_job_recompute(job, err));
    job->seed = (uint64_t)zx_config_get(&job->config, "zerox.seed")->i;
    ZX_TRY(resolve_config(job, err));
    allow_tf32(job);
    zx_job_note_order(job);
    zx_job_note_options(job);
    zx_config_idle(&job->config, &job->notes);
    const zx_config_value *budget = zx_config_get(&job->config, "zerox.budget");
    const uint64_t usable = zx_site_usable(&job->site, job->ranks);
    return zx_budget_parse(budget->has ? budget->text : NULL, usable, job->ranks, &job->budget,
                           err);
}

static zx_status choose_threads(zx_job *job, zx_err *err)
{
    const uint32_t cores = zx_memory_cores() / job->ranks;
    const uint64_t threads = zx_given_number(job->o, ZX_OPT_THREADS, cores > 0 ? cores : 1);
    if (getenv("OMP_NUM_THREADS") != NULL)
        zx_note(&job->notes, &job->mem, "OMP_NUM_THREADS is ignored; --threads says how many");
    if (threads > MOST_THREADS)
        return ZX_FAIL(err, ZX_E_USAGE, "--threads %llu is too many, %d are the most",
                       (unsigned long long)threads, MOST_THREADS);
    job->threads = (uint32_t)threads;
    return ZX_OK;
}

// ---- import and open ----------------------------------------------------------------------------

static zx_status count_elements(zx_job *job, zx_err *err)
{
    const zx_graph *g = &job->forward;
    job->n_elements = 0;
    for (uint32_t i = 0; i < g->n_params; i++)
        job->n_elements += (uint64_t)zx_shape_count(&g->values[g->params[i].value].type.shape);
    if (g->n_params > 0) return ZX_OK;
    zx_err_hint(err, "zerox check %s, or zerox.parameters in the config", job->model);
    return ZX_FAIL(err, ZX_E_UNSUPPORTED, "%s: there is no parameter to train", job->model);
}

static zx_status import_options(zx_job *job, bool forward_only, zx_import_options *io, zx_err *err)
{
    const uint32_t processes = job->o->command == ZX_CMD_TRAIN ? job->ranks : 1;
    *io = (zx_import_options){.eval = &zx_cpu_eval,
                              .micro_batch = job->batch.micro,
                              .keep_ties = zx_given(job->o, ZX_OPT_KEEP_TIES),
                              .forward_only = forward_only,
                              // every rank folds its own; half of what there is, shared, is plenty
                              .fold_bytes = zx_memory_usable() / 2 / processes,
                              .seed = job->seed};
    ZX_TRY(bind_dims(job, io, err));
    if (job->data != NULL) io->n_shapes = zx_data_shapes(job->data, &io->shapes);
    return ZX_OK;
}

// The shape of a value as the file declares it; NULL where it doesn't or it isn't float32.
static const Onnx__TensorShapeProto *float_shape(const Onnx__ValueInfoProto *info)
{
    const Onnx__TypeProto *t = info->type;
    if (t == NULL || t->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) return NULL;
    if (t->tensor_type == NULL || t->tensor_type->elem_type != 1) return NULL;
    return t->tensor_type->shape;
}

const char *zx_job_loss_example(zx_job *job)
{
    const Onnx__GraphProto *g = job->file.model->graph;
    const char *prediction = g->n_output > 0 ? g->output[0]->name : "logits";
    const Onnx__TensorShapeProto *shape = NULL;
    for (size_t i = 0; i < g->n_output && shape == NULL; i++) {
        shape = float_shape(g->output[i]);
        if (shape != NULL) prediction = g->output[i]->name;
    }
    const Onnx__TensorShapeProto__Dimension *last =
        shape != NULL && shape->n_dim > 0 ? shape->dim[shape->n_dim - 1] : NULL;
    const bool one = last != NULL &&
                     last->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
                     last->dim_value == 1; // one number a sample is no choice of a class
    const bool mse = shape != NULL && (shape->n_dim < 2 || one);
    const zx_data_input *labels = job->data != NULL ? zx_data_labels(job->data) : NULL;
    zx_text t = {0};
    zx_text_put(&t,
                "{\"zero_optimization\": {\"stage\": 3}, "
                "\"zerox\": {\"loss\": {\"kind\": \"%s\", \"prediction\": ",
                mse ? "mse" : "cross_entropy");
    zx_text_json(&t, prediction);
    zx_text_put(&t, ", \"label\": ");
    zx_text_json(&t, labels != NULL ? labels->name : "labels");
    zx_text_put(&t, "}}}");
    const char *text = zx_arena_str(&job->mem, t.at);
    zx_text_free(&t);
    return text;
}

// The import's advice on losses with the names of this model.
static void name_loss(zx_job *job, zx_err *err)
{
    if (strstr(err->hint, "\"loss\"") == NULL) return;
    err->hint[0] = '\0';
    zx_err_hint(err, "--config with %s, or export the model with its loss inside",
                zx_job_loss_example(job));
}

// zerox.loss_average: job->forward with a loss that tells its labels.
static zx_status count_labels(zx_job *job, zx_err *err)
{
    const char *over = zx_config_get(&job->config, "zerox.loss_average")->text;
    zx_graph counted;
    if (strcmp(over, "tokens") != 0) return ZX_OK;
    ZX_TRY(zx_loss_count(&job->forward, false, &job->mem, &counted, &job->counted, err));
    job->forward = counted;
    if (!job->counted.counts)
        zx_note(&job->notes, &job->mem,
                "zerox.loss_average: the loss is no mean over labels that count alike; "
                "micro-batches are averaged");
    return ZX_OK;
}

zx_status zx_job_import(zx_job *job, bool forward_only, zx_err *err)
{
    zx_import_options io;
    ZX_TRY(import_options(job, forward_only, &io, err));
    const uint32_t n_notes = job->notes.n;
    zx_err found = {0};
    zx_status st = zx_import(&job->file, &io, &job->mem, &job->forward, &job->notes, &found);
    const bool runs = job->o->command == ZX_CMD_TRAIN || zx_given(job->o, ZX_OPT_EXECUTE);
    if (st == ZX_E_SHAPE && !runs && job->data != NULL &&
        zx_data_leave_out_beside(job->data)) { // of another model, perhaps
        job->notes.n = n_notes;
        zx_note(&job->notes, &job->mem, "data beside the model don't fit: %s", found.cause[0]);
        found = (zx_err){0};
        io.n_shapes = zx_data_shapes(job->data, &io.shapes);
        st = zx_import(&job->file, &io, &job->mem, &job->forward, &job->notes, &found);
    }
    if (st != ZX_OK) name_loss(job, &found);
    if (st != ZX_OK) return zx_err_merge(err, &found);
    zx_job_note_model(job);
    if (forward_only) return zx_job_params(job, err);
    ZX_TRY(zx_job_fuse(job, NULL, &job->forward, err));
    ZX_TRY(count_elements(job, err));
    ZX_TRY(zx_job_params(job, err));
    const uint32_t per_step = job->ranks * (uint32_t)job->batch.accumulate;
    if (job->data != NULL)
        ZX_TRY(
            zx_data_bind(job->data, &job->forward, job->batch.micro, per_step, &job->notes, err));
    zx_job_note_data(job);
    ZX_TRY(count_labels(job, err));
    return zx_job_train_graph(job, err);
}

zx_status zx_job_import_inference(zx_job *job, zx_graph *out, zx_err *err)
{
    zx_import_options io;
    zx_notes said = {0}; // when the model was imported for training
    zx_graph plain;
    ZX_TRY(import_options(job, false, &io, err));
    io.inference = true;
    ZX_TRY(zx_import(&job->file, &io, &job->mem, &plain, &said, err));
    return zx_job_fuse_of(job, &plain, NULL, out, err);
}

zx_status zx_job_train_graph(zx_job *job, zx_err *err)
{
    const uint64_t micros = job->ranks * (uint64_t)job->batch.accumulate;
    const uint64_t per_step = micros * (job->counted.counts ? job->counted.labels : 1);
    zx_graph full;
    zx_variant v;
    ZX_TRY(zx_autodiff(&job->forward, 1.0 / (double)per_step, &job->mem, &full, err));
    zx_simplify(&full, &job->mem, &job->plain);
    ZX_TRY(zx_job_epilogues(job, err));
    const bool *again = job->variant.again;
    if (job->recompute == ZX_RECOMPUTE_BLOCKS && again == NULL)
        ZX_TRY(zx_job_recompute_named(job, &again, err));
    ZX_TRY(zx_variant_make(job, job->recompute, again, &job->mem, &v, err));
    zx_job_take(job, &v);
    if (job->recompute == ZX_RECOMPUTE_FULL && v.n == 0)
        zx_note(&job->notes, &job->mem,
                "--recompute full: nothing that is kept for backward can be made again");
    if (job->recompute == ZX_RECOMPUTE_BLOCKS && v.n > 0 && v.train.n_nodes == job->plain.n_nodes)
        zx_note(&job->notes, &job->mem,
                "zerox.recompute: nothing that these layers keep for backward can be made again");
    return ZX_OK;
}

// Where data are missing or don't fit: what is wrong with the model comes first, since no data
// would help that. What can't be told without data is none of it.
static zx_status look_at_model(zx_job *job, zx_err *err)
{
    zx_err found = {0};
    zx_graph g;
    zx_import_options io = {0};
    if (import_options(job, false, &io, &found) != ZX_OK) return ZX_OK;
    zx_notes notes = {0};
    zx_import(&job->file, &io, &job->mem, &g, &notes, &found);
    if (found.code != ZX_E_UNSUPPORTED && found.code != ZX_E_FORMAT) return ZX_OK;
    name_loss(job, &found);
    return zx_err_merge(err, &found);
}

// Dimensions and batches of a file that is open.
static zx_status open_inputs(zx_job *job, zx_err *err)
{
    zx_import_options io = {0};
    ZX_TRY(zx_import_inputs(&job->file, &job->mem, &job->n_inputs, &job->inputs, err));
    ZX_TRY(bind_dims(job, &io, err));
    ZX_TRY(check_dims(job, &io, err));
    job->fixed_batch = fixed_batch(job, &io);
    ZX_TRY(zx_config_batch(&job->config, job->ranks, job->fixed_batch, &job->batch, err));
    if (job->batch.accumulate > UINT32_MAX / job->ranks)
        return ZX_FAIL(err, ZX_E_USAGE, "gradient_accumulation_steps %lld is too large",
                       (long long)job->batch.accumulate);
    return ZX_OK;
}

zx_status zx_job_open_preset(zx_job *job, const zx_options *o, uint32_t ranks,
                             zx_preset_sizes *sizes, zx_preset_info *info, zx_err *err)
{
    *job = (zx_job){.o = o, .model = o->operand, .ranks = ranks, .preset = o->operand};
    ZX_TRY(zx_job_check_targets(o, &job->mem, err));
    ZX_TRY(read_config(job, err));
    ZX_TRY(choose_threads(job, err));
    // A preset has the batch that is asked for, and no other one.
    const zx_config_value *micro = zx_config_get(&job->config, "train_micro_batch_size_per_gpu");
    if (!zx_given(o, ZX_OPT_BATCH) && micro->has && micro->i > 0) sizes->batch = micro->i;
    ZX_TRY(zx_preset_make(job->preset, sizes, &job->preset_bytes, info, err));
    ZX_TRY(zx_onnx_open_bytes(&job->file, job->preset, job->preset_bytes.at, job->preset_bytes.n,
                              &job->mem, err));
    // As they are trained: in bfloat16, unless the config says something else.
    const zx_config_from from = zx_config_get(&job->config, "bf16.enabled")->from;
    if (job->precision == ZX_PREC_F32 && from != ZX_FROM_FILE) {
        job->precision = ZX_PREC_BF16;
        if (!zx_config_get(&job->config, "data_types.grad_accum_dtype")->has)
            job->accumulate_bytes = sizeof(float);
    }
    zx_err found = {0};
    if (open_inputs(job, &found) == ZX_OK) return ZX_OK;
    if (strstr(found.hint, "symbolic batch") != NULL) {
        found.hint[0] = '\0'; // there is no file to export again
        zx_err_hint(&found, "--batch %lld", (long long)job->batch.micro);
    }
    return zx_err_merge(err, &found);
}

zx_status zx_job_open(zx_job *job, const zx_options *o, uint32_t ranks, bool optional, zx_err *err)
{
    *job = (zx_job){.o = o, .model = o->operand, .ranks = ranks, .site = job->site};
    ZX_TRY(zx_job_check_targets(o, &job->mem, err));
    ZX_TRY(read_config(job, err));
    ZX_TRY(choose_threads(job, err));
    ZX_TRY(zx_onnx_open(&job->file, job->model, &job->mem, err));
    ZX_TRY(open_inputs(job, err));
    const bool goes_on = zx_given(o, ZX_OPT_RESUME);
    const char *named = goes_on ? zx_given_text(o, ZX_OPT_RESUME) : job->model;
    const zx_data_request request = {
        .model = job->model,
        .command = zx_arena_printf(&job->mem, "zerox train%s%s%s", goes_on ? " --resume" : "",
                                   named != NULL ? " " : "",
                                   named != NULL ? zx_text_safe(&job->mem, named) : ""),
        .n_inputs = job->n_inputs,
        .inputs = job->inputs,
        .n_given = o->value[ZX_OPT_DATA].n,
        .given = o->value[ZX_OPT_DATA].text,
        .config = &job->config,
        .seed = job->seed,
        .shuffle = zx_given(o, ZX_OPT_SHUFFLE),
        .optional = optional,
    };
    zx_err *found = &job->data_err;
    if (zx_data_open(&request, &job->mem, &job->data, &job->notes, found) == ZX_OK)
        return zx_job_spare_data(o, job->data, &job->mem, err);
    if (o->command == ZX_CMD_CHECK && found->code != ZX_E_USAGE) return ZX_OK;
    if (o->command == ZX_CMD_TRAIN && found->code != ZX_E_USAGE) ZX_TRY(look_at_model(job, err));
    return zx_err_merge(err, found);
}

// Of a config that is refused too: what follows from its values is told all the same.
zx_status zx_job_open_config(zx_job *job, const zx_options *o, uint32_t ranks, zx_err *err)
{
    *job = (zx_job){.o = o, .model = o->operand, .ranks = ranks};
    zx_import_options io = {0};
    zx_err found = {0};
    const zx_status read = read_config(job, err);
    if (job->config.root == NULL) return read;
    zx_status st = bind_dims(job, &io, &found);
    if (st == ZX_OK && o->operand != NULL)
        st = zx_onnx_open(&job->file, job->model, &job->mem, &found);
    if (st == ZX_OK)
        st = o->operand != NULL ? open_inputs(job, &found)
                                : zx_config_batch(&job->config, ranks, 0, &job->batch, &found);
    return read != ZX_OK || st == ZX_OK ? read : zx_err_merge(err, &found);
}

// ---- plan ---------------------------------------------------------------------------------------

// A smaller micro-batch is no way out where there is none.
static void mend_hint(const zx_job *job, zx_err *err)
{
    if (err->code == ZX_E_BUDGET && job->o->command == ZX_CMD_SIMULATE) {
        const bool held = strstr(err->hint, "held alone") != NULL; // recomputing wouldn't help
        err->hint[0] = '\0';
        zx_err_hint(err, "more ranks%s, or a larger --budget",
                    held                                  ? " (a larger --machine)"
                    : job->recompute == ZX_RECOMPUTE_NONE ? ", --recompute full"
                                                          : "");
        return;
    }
    if (strstr(err->hint, "train_micro_batch_size_per_gpu") == NULL) return;
    if (job->fixed_batch == 0 && job->batch.micro > 1) return;
    err->hint[0] = '\0';
    if (job->fixed_batch > 1)
        zx_err_hint(err, "a larger --budget, or the model exported with a batch smaller than %lld",
                    (long long)job->fixed_batch);
    else
        zx_err_hint(err, "a larger --budget, or the model exported with shorter or smaller inputs");
}

uint32_t zx_job_accumulate_bytes(const zx_job *job)
{
    return job->ranks == 1 && job->batch.accumulate == 1 ? 0 : job->accumulate_bytes;
}

zx_status zx_job_work_bytes(zx_job *job, zx_arena *mem, const uint64_t **out, zx_err *err)
{
    uint64_t *work = ZX_NEW(mem, uint64_t, job->train.n_nodes + 1);
    *out = work;
    if (job->machine.host && job->preset == NULL)
        return zx_session_work_bytes_at(&job->site, &job->train, job->threads, work, err);
    return ZX_OK;
}

// Another machine's memory is not this one's.
static zx_status machine_budget(zx_job *job, zx_err *err)
{
    const zx_config_value *asked = zx_config_get(&job->config, "zerox.budget");
    const uint64_t device = job->machine.device_bytes;
    if (job->machine.host) return ZX_OK;
    if (asked->has) return zx_budget_parse(asked->text, device, 1, &job->budget, err);
    job->budget = (zx_budget){.bytes = UINT64_MAX};
    if (device == 0) return ZX_OK;
    char size[ZX_BYTES_TEXT];
    job->budget.bytes = (uint64_t)(0.9 * (double)device);
    zx_note(&job->notes, &job->mem, "the budget is 0.9 of the memory of %s: %s a rank",
            job->machine.name, zx_text_size(job->budget.bytes, size));
    return ZX_OK;
}

const char *zx_job_whose_budget(const zx_job *job, const zx_plan *plan)
{
    const bool own = zx_config_get(&job->config, "zerox.budget")->has;
    if (zx_given(job->o, ZX_OPT_PLAN_FILE)) return NULL;
    if (zx_job_spares_memory(job) && strcmp(plan->policy, "zerox") == 0)
        return own ? "no more of it is taken than pays"
                   : "the default; no more of it is taken than pays";
    return own ? NULL : "the default";
}

// Of what a rank may take, --save-async wants a copy of what it holds.
static uint64_t budget_of_plan(zx_job *job)
{
    const zx_graph *g = &job->train;
    const uint64_t all = job->budget.bytes;
    uint64_t copy = 0;
    char size[ZX_BYTES_TEXT];
    if (!zx_given(job->o, ZX_OPT_SAVE_ASYNC)) return all;
    for (uint32_t i = 0; i < g->n_params; i++) {
        const uint64_t n = (uint64_t)zx_shape_count(&g->values[g->params[i].value].type.shape);
        copy +=
            (n + job->ranks - 1) / job->ranks * sizeof(float) * (1 + zx_optim_states(&job->optim));
    }
    for (uint32_t i = 0; i < g->n_buffers; i++)
        copy += zx_type_bytes(&g->values[g->buffers[i].value].type) / job->ranks + 8;
    zx_note(&job->notes, &job->mem,
            "--save-async: %s of a rank's memory are for the copy that is saved",
            zx_text_size(copy, size));
    if (all == UINT64_MAX) return all;
    return all > copy ? all - copy : 0;
}

zx_status zx_job_plan_options(zx_job *job, zx_arena *mem, zx_plan_options *out, zx_err *err)
{
    const zx_config *c = &job->config;
    const zx_config_value *overlap = zx_config_get(c, "zero_optimization.overlap_comm"),
                          *live = zx_config_get(c, "zero_optimization.stage3_max_live_parameters"),
                          *bucket = zx_config_get(c, "zero_optimization.reduce_bucket_size");
    const uint64_t *work = NULL;
    const bool *pinned = NULL;
    double delay = 0;
    const char *wire = zx_given_text(job->o, ZX_OPT_WIRE_DELAY);
    if (wire != NULL && !zx_parse_seconds(wire, &delay))
        return ZX_FAIL(err, ZX_E_USAGE, "--wire-delay needs a time like 5ms, not '%s'", wire);
    ZX_TRY(zx_cmd_machine_at(&job->site, job->o, job->ranks, job->threads, &job->mem, &job->notes,
                             &job->machine, err));
    if (job->tf32) zx_machine_tf32(&job->machine);
    job->machine.latency += delay;
    ZX_TRY(machine_budget(job, err));
    ZX_TRY(zx_job_work_bytes(job, mem, &work, err));
    ZX_TRY(zx_job_check_objective(job, err));
    ZX_TRY(zx_job_pins(job, mem, &pinned, err));
    *out = (zx_plan_options){
        .ranks = job->ranks,
        .stage = (uint32_t)zx_config_get(c, "zero_optimization.stage")->i,
        .micro_batches = (uint32_t)job->batch.accumulate,
        .optimizer_states = zx_optim_states(&job->optim),
        .work_bytes = work,
        .accumulate_bytes = zx_job_accumulate_bytes(job),
        .machine = job->machine,
        .budget = budget_of_plan(job),
        .least = job->budget.least,
        .roomy = zx_job_spares_memory(job),
        .pinned = pinned,
        .no_overlap = zx_given(job->o, ZX_OPT_NO_OVERLAP) || (overlap->has && !overlap->b),
        .max_live_elements = !live->has     ? 0
                             : live->i == 0 ? ZX_LIVE_LEAST
                                            : (uint64_t)live->i,
        .reduce_bucket_elements = !bucket->has     ? 0
                                  : bucket->i == 0 ? 1
                                                   : (uint64_t)bucket->i,
    };
    return ZX_OK;
}

bool zx_job_unlimited(zx_job *job, zx_plan_options *po, zx_err *found)
{
    const bool unasked = !zx_config_get(&job->config, "zerox.budget")->has;
    const zx_command c = job->o->command;
    if (found->code != ZX_E_BUDGET || !unasked || c == ZX_CMD_TRAIN || c == ZX_CMD_SIMULATE) {
        mend_hint(job, found);
        return false;
    }
    char had[ZX_BYTES_TEXT];
    zx_note(&job->notes, &job->mem,
            "%u %s fit on %s (%s a rank): planned without a limit; --budget sets one", job->ranks,
            job->ranks == 1 ? "rank doesn't" : "ranks don't",
            job->machine.host ? "this host" : job->machine.name, zx_text_size(po->budget, had));
    po->budget = job->budget.bytes = UINT64_MAX;
    *found = (zx_err){0};
    return true;
}

static zx_status plan_once(zx_job *job, zx_plan_options *po, zx_arena *mem, zx_plan *plan,
                           zx_err *err)
{
    if (job->recompute_auto) return zx_job_choose_own(job, po, mem, plan, err);
    return zx_plan_make(&job->train, po, mem, plan, err);
}

zx_status zx_job_plan(zx_job *job, zx_arena *mem, zx_plan *plan, zx_err *err)
{
    zx_plan_options po;
    ZX_TRY(zx_job_plan_options(job, mem, &po, err));
    zx_err found = {0};
    zx_status st = plan_once(job, &po, mem, plan, &found);
    if (st != ZX_OK && zx_job_unlimited(job, &po, &found))
        st = plan_once(job, &po, mem, plan, &found);
    job->planned = po;
    if (st != ZX_OK) zx_job_ways_out(job, &po, &found);
    return st == ZX_OK ? ZX_OK : zx_err_merge(err, &found);
}

void zx_job_say_notes(zx_job *job)
{
    for (; job->n_said < job->notes.n; job->n_said++)
        zx_cmd_say("note: %s", zx_text_safe(&job->mem, job->notes.text[job->n_said]));
}

void zx_job_close(zx_job *job)
{
    zx_data_close(job->data);
    zx_onnx_close(&job->file);
    zx_text_free(&job->preset_bytes);
    zx_config_close(&job->config);
    zx_arena_free(&job->mem);
    zx_site_close(&job->site);
    *job = (zx_job){0};
}
