// cmd.h - the commands, and the way from a command line to a train graph that train, plan and check
// share. Only the cmd_*.c files and main.c print.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CMD_H
#define ZX_RUNTIME_CMD_H

#include "graph/count_loss.h"
#include "graph/preset.h"
#include "proto/onnx_file.h"
#include "runtime/backend.h"
#include "runtime/config.h"
#include "runtime/data.h"
#include "runtime/job_params.h"
#include "runtime/job_recompute.h"
#include "runtime/memory.h"
#include "runtime/options.h"

// Each runs a command and returns the process's exit code; what went wrong is in err, unprinted.
int zx_cmd_train(const zx_options *o, zx_err *err);
int zx_cmd_plan(const zx_options *o, zx_err *err);
int zx_cmd_compare(const zx_options *o, zx_err *err);
int zx_cmd_simulate(const zx_options *o, zx_err *err);
int zx_cmd_check(const zx_options *o, zx_err *err);
int zx_cmd_config(const zx_options *o, zx_err *err);
int zx_cmd_ops(const zx_options *o, zx_err *err);
int zx_cmd_new(const zx_options *o, zx_err *err);
int zx_cmd_diff(const zx_options *o, zx_err *err);
int zx_cmd_show(const zx_options *o, zx_err *err);
int zx_cmd_convert(const zx_options *o, zx_err *err);
int zx_cmd_report(const zx_options *o, zx_err *err);
int zx_cmd_machine(const zx_options *o, zx_err *err);

void zx_cmd_say(const char *fmt, ...) ZX_PRINTF(1, 2); // a line on stderr
void zx_cmd_note(const char *sentence);                // "note: SENTENCE" on stderr
void zx_cmd_wrote(const char *path, zx_arena *mem);    // "written: PATH"
#define ZX_MOST_RANKS 4096                             // of what is planned or run
// E_USAGE where --ranks is more than `most`.
zx_status zx_cmd_check_ranks(uint64_t ranks, uint64_t most, zx_err *err);
void zx_cmd_put(const zx_text *out);                     // text on stdout
void zx_cmd_fail(const zx_err *err, zx_command command); // the causes and what to try, on stderr

// A command line on its way to a plan. Every rank has its own, all the same.
typedef struct zx_job {
    zx_arena mem;
    const zx_options *o;
    const char *model;
    zx_site site; // opened before the job is, and closed with it
    uint32_t ranks, threads;
    uint64_t seed;
    zx_config config;
    zx_onnx_file file;
    uint32_t n_inputs;
    zx_input_decl *inputs; // as declared
    zx_data *data;
    zx_err data_err;     // of check: why data don't fit, told after what the model is
    int64_t fixed_batch; // the model's own; 0: it has none
    zx_batch batch;
    zx_optim optim;
    uint32_t n_groups;          // of zerox.param_groups
    zx_param_group *groups;     // all there is of it until the import
    uint32_t *group_of;         // by parameter: its group; ZX_NONE
    const zx_param_rate *rates; // by parameter; NULL: all as optim says
    double clip;
    zx_budget budget;
    zx_notes notes;      // what the user should know; n_said of them were printed
    zx_notes hook_notes; // the same, of who asks for hooks (job_policy.h)
    uint32_t n_said;
    bool tf32; // products of float32 may be TF32's, where a device has them
    zx_precision precision;
    zx_loss_scale_rule loss_scale;
    uint32_t accumulate_bytes;   // of an element of a gradient's accumulator; 0: as the parameter's
    zx_recompute_kind recompute; // of train
    bool recompute_auto;         // decided when it is planned; until then train has none
    uint32_t n_again;            // patterns of the layers that are recomputed
    const char *const *again;
    uint32_t again_first;    // or: so many layers, the first ones; 0: not asked for
    zx_machine machine;      // that is planned for: of zx_job_plan_options
    zx_plan_options planned; // what zx_job_plan made its plan from
    const char *preset;      // its name, where the model is one; NULL: a file
    zx_text preset_bytes;    // and the file that it stands for
    zx_graph forward, train; // train: as it is planned
    zx_graph plain;          // in float32, and nothing is recomputed
    zx_counted counted;      // zerox.loss_average: how train's loss is counted
    zx_variant variant;      // of it, that train is
    uint64_t n_elements;     // of all parameters
} zx_job;

// Reads config and model file, finds the data, resolves the batch. ranks: of the run. Data may be
// missing where `optional`.
zx_status zx_job_open(zx_job *job, const zx_options *o, uint32_t ranks, bool optional, zx_err *err);
// The same of a preset, which has no data; in bfloat16 unless the config says otherwise.
zx_status zx_job_open_preset(zx_job *job, const zx_options *o, uint32_t ranks,
                             zx_preset_sizes *sizes, zx_preset_info *info, zx_err *err);
// Only the config (--explain), and where a model is given what its inputs say of the batch.
zx_status zx_job_open_config(zx_job *job, const zx_options *o, uint32_t ranks, zx_err *err);
// Imports; forward_only stops there (check), else also data is bound and the train graph made.
zx_status zx_job_import(zx_job *job, bool forward_only, zx_err *err);
// The model in inference form, fused: nothing is dropped, batches are normalised by the running
// statistics. After zx_job_import.
zx_status zx_job_import_inference(zx_job *job, zx_graph *out, zx_err *err);
// job->plain of job->forward, and ->train as job->recompute says.
zx_status zx_job_train_graph(zx_job *job, zx_err *err);
// What a planner is told; finds the machine, and with it the budget.
zx_status zx_job_plan_options(zx_job *job, zx_arena *mem, zx_plan_options *out, zx_err *err);
// After a plan couldn't be made: true where no budget was asked for, so that it may be made without
// one: then po says so, `found` is no error any more, and a note tells. Else mends found's hint.
bool zx_job_unlimited(zx_job *job, zx_plan_options *po, zx_err *found);
// Says that the budget of a plan is the default; NULL: it was asked for.
const char *zx_job_whose_budget(const zx_job *job, const zx_plan *plan);
// Of an element of a gradient's accumulator; 0: as it is made, also where it is the only one:
// adding nothing to it in more bits would give the same numbers.
uint32_t zx_job_accumulate_bytes(const zx_job *job);
// Scratch of this host's kernels by node of job->train, into mem; none of another machine's.
zx_status zx_job_work_bytes(zx_job *job, zx_arena *mem, const uint64_t **out, zx_err *err);
// Makes the plan (on rank 0 of a run). Prints nothing.
zx_status zx_job_plan(zx_job *job, zx_arena *mem, zx_plan *plan, zx_err *err);
// What in a config would give a model without a loss one, with its own names, as JSON.
const char *zx_job_loss_example(zx_job *job);
// For sessions: the labels that the gradient is averaged over; 0: they aren't counted.
static inline double zx_job_labels(const zx_job *job)
{
    const uint64_t micros = (uint64_t)job->ranks * (uint64_t)job->batch.accumulate;
    return job->counted.counts ? (double)(job->counted.labels * micros) : 0;
}
void zx_job_say_notes(zx_job *job); // those that weren't said yet
void zx_job_close(zx_job *job);     // accepts a zeroed or half-open one

#endif
