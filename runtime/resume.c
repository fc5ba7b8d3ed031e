// resume.c - see resume.h. What the config has is taken from config.json as a whole; options beside
// it are recorded by name.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/resume.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/json.h"
#include "runtime/ckpt.h"
#include "runtime/outfile.h"
#include "runtime/rundir.h"

// Options that a run goes on with unless others are given. FILE: its place stays the same wherever
// the run is gone on from.
static const struct carried {
    zx_option_id id;
    bool file;
    zx_option_id instead; // another one that says the same, or the opposite; COUNT: none
} carried[] = {
    {ZX_OPT_SHUFFLE, false, ZX_OPT_COUNT},     {ZX_OPT_KEEP_TIES, false, ZX_OPT_COUNT},
    {ZX_OPT_NO_FUSE, false, ZX_OPT_COUNT},     {ZX_OPT_RECOMPUTE, false, ZX_OPT_COUNT},
    {ZX_OPT_NO_OVERLAP, false, ZX_OPT_COUNT},  {ZX_OPT_PIN, false, ZX_OPT_COUNT},
    {ZX_OPT_OBJECTIVE, false, ZX_OPT_COUNT},   {ZX_OPT_BACKEND, false, ZX_OPT_COUNT},
    {ZX_OPT_COMM, false, ZX_OPT_COUNT},        {ZX_OPT_TIMEOUT, false, ZX_OPT_COUNT},
    {ZX_OPT_SAVE_EVERY, false, ZX_OPT_COUNT},  {ZX_OPT_SAVE_ASYNC, false, ZX_OPT_COUNT},
    {ZX_OPT_KEEP, false, ZX_OPT_COUNT},        {ZX_OPT_LOG, true, ZX_OPT_COUNT},
    {ZX_OPT_SAVE, true, ZX_OPT_NO_SAVE},       {ZX_OPT_NO_SAVE, false, ZX_OPT_SAVE},
    {ZX_OPT_WIRE_DELAY, false, ZX_OPT_COUNT},  {ZX_OPT_WATCH, false, ZX_OPT_COUNT},
    {ZX_OPT_WATCH_EVERY, false, ZX_OPT_COUNT},
};

// Numbers of zerox.run that are options.
enum { RANKS, THREADS, STEPS };
static const struct {
    const char *key;
    zx_option_id id, instead;
} numbers[] = {
    [RANKS] = {"ranks", ZX_OPT_RANKS, ZX_OPT_COUNT},
    [THREADS] = {"threads", ZX_OPT_THREADS, ZX_OPT_RANKS}, // of others: as many as have room
    [STEPS] = {"steps", ZX_OPT_STEPS, ZX_OPT_EPOCHS},
};

// Options that stand in the place of something in config.json.
static const struct {
    zx_option_id id;
    const char *section, *key, *inner; // inner: of the object that the key holds; NULL: all of it
} in_config[] = {
    {ZX_OPT_STAGE, "zero_optimization", "stage", NULL},
    {ZX_OPT_SEED, "zerox", "seed", NULL},
    {ZX_OPT_BUDGET, "zerox", "budget", NULL},
    {ZX_OPT_DATA, "zerox", "data", NULL},
    {ZX_OPT_DIM, "zerox", "dims", NULL},
    {ZX_OPT_EVAL_DATA, "zerox", "eval", "data"},
    {ZX_OPT_EVAL_EVERY, "zerox", "eval", "every"},
};

static const struct {
    zx_option_id id;
    const char *why;
} refused[] = {
    {ZX_OPT_OUT, "a run goes on in its own folder"},
    {ZX_OPT_DUMP_GRADS, "it is of a run's first step"},
    {ZX_OPT_INIT, "a run goes on with its own weights"},
    {ZX_OPT_INIT_PARTIAL, "a run goes on with its own weights"},
};

// ---- recorded -----------------------------------------------------------------------------------

void zx_resume_record(const zx_options *o, zx_text *out)
{
    zx_arena mem = {0};
    char here[PATH_MAX];
    const char *comma = "";
    zx_text_put(out, "\"options\": {");
    for (size_t i = 0; i < ZX_COUNT(carried); i++) {
        const zx_option_value *v = &o->value[carried[i].id];
        if (v->n == 0) continue;
        zx_text_put(out, "%s\"%s\": [", comma, zx_option_word(carried[i].id, &mem));
        for (uint32_t k = 0; zx_option_has_argument(carried[i].id) && k < v->n; k++) {
            const char *text = v->text[k];
            if (carried[i].file && text[0] != '/' && getcwd(here, sizeof here) != NULL)
                text = zx_arena_printf(&mem, "%s/%s", here, text);
            if (k > 0) zx_text_put(out, ", ");
            zx_text_json(out, text);
        }
        zx_text_put(out, "]");
        comma = ", ";
    }
    zx_text_put(out, "}");
    zx_arena_free(&mem);
}

// ---- the folder ---------------------------------------------------------------------------------

static zx_status find_run(const char *given, zx_arena *mem, zx_resume *out, const char **only,
                          zx_err *err)
{
    struct stat info;
    const char *path = given != NULL ? given : "runs/latest", *safe = zx_text_safe(mem, path);
    char full[PATH_MAX];
    *only = NULL;
    if (realpath(path, full) == NULL || stat(full, &info) != 0) {
        zx_err_hint(err, given != NULL ? "the folder of a run that was saved with --save-every"
                                       : "--resume RUN, or run it where runs/ is");
        return ZX_FAIL(err, ZX_E_USAGE, "--resume: there is no %s", safe);
    }
    if (!S_ISDIR(info.st_mode)) {
        zx_err_hint(err, "a run's folder; weights alone are what --init starts from");
        return ZX_FAIL(err, ZX_E_USAGE, "--resume: %s is a file, not the folder of a run", safe);
    }
    if (zx_ckpt_is(full)) { // RUN/checkpoints/step-N
        *only = zx_rundir_fixed(path, mem);
        for (int up = 0; up < 2; up++) {
            char *slash = strrchr(full, '/');
            if (slash != NULL && slash != full) *slash = '\0';
        }
    }
    // runs/latest may lead elsewhere soon; a checkpoint's run has no other name.
    out->dir = *only != NULL ? zx_arena_str(mem, full) : zx_rundir_fixed(path, mem);
    if (access(zx_arena_printf(mem, "%s/config.json", out->dir), F_OK) == 0) return ZX_OK;
    if (access(zx_arena_printf(mem, "%s/checkpoints/latest", out->dir), F_OK) == 0)
        zx_err_hint(err, "zerox train MODEL.onnx --init %s, with what the run is to have",
                    zx_text_safe(mem, out->dir));
    else
        zx_err_hint(err, "the folder of a run: it has config.json and checkpoints/");
    return ZX_FAIL(err, ZX_E_USAGE,
                   "--resume: %s is not the folder of a run, nor a checkpoint in one", safe);
}

static zx_status find_checkpoints(const char *only, zx_arena *mem, zx_resume *out, zx_err *err)
{
    const uint64_t *steps = NULL;
    out->folder = zx_arena_printf(mem, "%s/checkpoints", out->dir);
    ZX_TRY(zx_ckpt_steps(out->folder, mem, &out->n, &steps, &out->leftover, err));
    out->exact = only != NULL;
    if (only != NULL) out->n = 1;
    const char **at = ZX_NEW(mem, const char *, out->n);
    for (uint32_t i = 0; i < out->n; i++)
        at[i] =
            only != NULL ? only : zx_arena_printf(mem, "%s/step-%" PRIu64, out->folder, steps[i]);
    out->at = at;
    if (out->n > 0) return ZX_OK;
    zx_err_hint(err,
                "the run again with --save-every N, or --init %s/model.safetensors if it is "
                "there: weights without the rest",
                zx_text_safe(mem, out->dir));
    return ZX_FAIL(err, ZX_E_USAGE, "--resume: %s has no checkpoint", zx_text_safe(mem, out->dir));
}

// ---- options ------------------------------------------------------------------------------------

typedef struct reading {
    zx_resume *to;
    zx_arena *mem;
    const json_t *root, *run; // config.json, and zerox.run of it
    uint32_t cap;
    const char **said;
} reading;

static void say(reading *r, const char *sentence)
{
    ZX_GROW(r->mem, r->said, r->to->n_said, r->cap);
    r->said[r->to->n_said++] = sentence;
    r->to->said = r->said;
}

static const char *given_as_text(const zx_options *o, zx_option_id id, zx_arena *mem)
{
    const char *text = zx_option_word(id, mem);
    const zx_option_value *v = &o->value[id];
    for (uint32_t k = 0; zx_option_has_argument(id) && k < v->n; k++)
        text = zx_arena_printf(mem, "%s %s", text, zx_text_safe(mem, v->text[k]));
    return text;
}

// "--ranks 3 in place of the run's 2"
static void say_instead(reading *r, zx_option_id id, const json_t *was)
{
    char *text = was != NULL ? json_dumps(was, JSON_ENCODE_ANY) : NULL;
    const char *given = given_as_text(&r->to->options, id, r->mem);
    if (text != NULL)
        say(r,
            zx_arena_printf(r->mem, "%s, where the run had %s", given, zx_text_safe(r->mem, text)));
    else
        say(r, zx_arena_printf(r->mem, "%s, which the run didn't have", given));
    free(text);
}

// Another file than the run's own is written over with --force only.
static zx_status spare(const reading *r, zx_option_id id, const json_t *was, zx_err *err)
{
    const zx_options *o = &r->to->options;
    const char *path = zx_given_text(o, id), *own = json_string_value(json_array_get(was, 0));
    char full[PATH_MAX];
    if (own != NULL && realpath(path, full) != NULL && strcmp(full, own) == 0) return ZX_OK;
    if (id == ZX_OPT_SAVE) path = zx_arena_printf(r->mem, "%s/model.safetensors", path);
    return zx_outfile_spare(path, zx_given(o, ZX_OPT_FORCE), err);
}

static zx_status take_options(reading *r, zx_err *err)
{
    zx_options *o = &r->to->options;
    const json_t *options = json_object_get(r->run, "options");
    for (size_t i = 0; i < ZX_COUNT(carried); i++) {
        const zx_option_id id = carried[i].id, instead = carried[i].instead;
        const json_t *args = json_object_get(options, zx_option_word(id, r->mem));
        if (zx_given(o, id)) {
            say_instead(r, id, args);
            if (carried[i].file) ZX_TRY(spare(r, id, args, err));
            continue;
        }
        if (!json_is_array(args) || (instead != ZX_OPT_COUNT && zx_given(o, instead))) continue;
        if (!zx_option_has_argument(id)) ZX_TRY(zx_options_add(o, id, NULL, r->mem, err));
        for (size_t k = 0; k < json_array_size(args) && zx_option_has_argument(id); k++) {
            const char *text = json_string_value(json_array_get(args, k));
            if (text == NULL)
                return ZX_FAIL(err, ZX_E_USAGE, "zerox.run.options isn't as zerox writes it");
            ZX_TRY(zx_options_add(o, id, zx_arena_str(r->mem, text), r->mem, err));
        }
    }
    return ZX_OK;
}

static zx_status take_numbers(reading *r, zx_err *err)
{
    zx_options *o = &r->to->options;
    bool fresh[ZX_COUNT(numbers)]; // given on this command line, not taken by a row before
    for (size_t i = 0; i < ZX_COUNT(numbers); i++)
        fresh[i] = numbers[i].instead != ZX_OPT_COUNT && zx_given(o, numbers[i].instead);
    const json_int_t ranks = json_integer_value(json_object_get(r->run, "ranks"));
    if (zx_given_number(o, ZX_OPT_RANKS, 0) == (uint64_t)ranks) fresh[THREADS] = false;
    for (size_t i = 0; i < ZX_COUNT(numbers); i++) {
        const json_t *v = json_object_get(r->run, numbers[i].key);
        if (v == NULL && i != RANKS) continue; // convert has made it: no step was run
        if (!json_is_integer(v) || json_integer_value(v) < 1)
            return ZX_FAIL(err, ZX_E_USAGE, "zerox.run.%s is no number of at least 1",
                           numbers[i].key);
        if (zx_given(o, numbers[i].id)) {
            if (zx_given_number(o, numbers[i].id, 0) != (uint64_t)json_integer_value(v))
                say_instead(r, numbers[i].id, v);
            continue;
        }
        if (fresh[i]) continue;
        ZX_TRY(zx_options_add(o, numbers[i].id,
                              zx_arena_printf(r->mem, "%lld", (long long)json_integer_value(v)),
                              r->mem, err));
    }
    return ZX_OK;
}

// A run keeps its batch: on other ranks it accumulates more or fewer micro-batches.
static zx_status take_batch(reading *r, zx_err *err)
{
    const json_int_t total = json_integer_value(json_object_get(r->root, "train_batch_size")),
                     micro = json_integer_value(
                         json_object_get(r->root, "train_micro_batch_size_per_gpu"));
    const uint64_t ranks = zx_given_number(&r->to->options, ZX_OPT_RANKS, 1);
    const uint64_t was =
        (uint64_t)json_integer_value(json_object_get(r->run, "ranks"));       // checked before
    if (ranks == was || total < 1 || micro < 1 || ranks > 4096) return ZX_OK; // said later on
    const uint64_t each = (uint64_t)micro * ranks; // below 2^63 * 2^12: may wrap
    if ((uint64_t)micro > UINT32_MAX || (uint64_t)total % each != 0) {
        zx_err_hint(err, "a number of --ranks that divides %lld micro-batches",
                    (long long)(total / micro));
        return ZX_FAIL(err, ZX_E_USAGE,
                       "--ranks %" PRIu64
                       ": the run's batch of %lld is %lld micro-batches of %lld, "
                       "which can't be shared evenly",
                       ranks, (long long)total, (long long)(total / micro), (long long)micro);
    }
    return zx_options_add(&r->to->options, ZX_OPT_ACCUMULATE,
                          zx_arena_printf(r->mem, "%" PRIu64, (uint64_t)total / each), r->mem, err);
}

static zx_status take_config(reading *r, const char *path, zx_err *err)
{
    zx_options *o = &r->to->options;
    const json_t *model = json_object_get(r->run, "model");
    if (!json_is_string(model))
        return ZX_FAIL(err, ZX_E_USAGE, "it has no zerox.run.model: no run of zerox wrote it");
    if (o->operand == NULL)
        o->operand = zx_arena_str(r->mem, json_string_value(model));
    else
        say(r, zx_arena_printf(r->mem, "model %s, where the run had %s",
                               zx_text_safe(r->mem, o->operand),
                               zx_text_safe(r->mem, json_string_value(model))));
    for (size_t i = 0; i < ZX_COUNT(in_config); i++) {
        const json_t *was =
            json_object_get(json_object_get(r->root, in_config[i].section), in_config[i].key);
        if (in_config[i].inner != NULL) was = json_object_get(was, in_config[i].inner);
        if (zx_given(o, in_config[i].id)) say_instead(r, in_config[i].id, was);
    }
    const char *world = getenv("WORLD_SIZE"); // another launcher's ranks
    uint64_t size;
    if (!zx_given(o, ZX_OPT_RANKS) && world != NULL && zx_parse_u64(world, &size) && size > 0)
        ZX_TRY(zx_options_add(o, ZX_OPT_RANKS, world, r->mem, err));
    ZX_TRY(take_numbers(r, err));
    ZX_TRY(take_options(r, err));
    if (zx_given(o, ZX_OPT_CONFIG)) {
        say(r, zx_arena_printf(r->mem, "%s in place of the run's config.json",
                               given_as_text(o, ZX_OPT_CONFIG, r->mem)));
        return ZX_OK;
    }
    ZX_TRY(take_batch(r, err));
    return zx_options_add(o, ZX_OPT_CONFIG, path, r->mem, err);
}

zx_status zx_resume_open(const zx_options *o, zx_arena *mem, zx_resume *out, zx_err *err)
{
    const char *only;
    json_t *root;
    *out = (zx_resume){.options = *o};
    for (size_t i = 0; i < ZX_COUNT(refused); i++)
        if (zx_given(o, refused[i].id))
            return ZX_FAIL(err, ZX_E_USAGE, "%s makes no sense with --resume: %s",
                           zx_option_word(refused[i].id, mem), refused[i].why);
    ZX_TRY(find_run(zx_given_text(o, ZX_OPT_RESUME), mem, out, &only, err));
    ZX_TRY(find_checkpoints(only, mem, out, err));
    const char *path = zx_arena_printf(mem, "%s/config.json", out->dir);
    ZX_TRY(zx_json_read(path, &root, err));
    reading r = {.to = out, .mem = mem, .root = root};
    r.run = json_object_get(json_object_get(root, "zerox"), "run");
    const zx_status st = take_config(&r, path, err);
    if (st != ZX_OK && err->hint[0] == '\0')
        zx_err_hint(err, "config.json of the run's folder as zerox has written it");
    if (st != ZX_OK) zx_err_in(err, "--resume: %s", zx_text_safe(mem, path));
    json_decref(root);
    return st;
}
