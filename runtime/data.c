// data.c - finds a source for every input of a model and opens it.
//
// In this order: --data, zerox.data, INPUT.npy or INPUT.bin beside the model, ones for an
// attention_mask, arange for position_ids. Nothing else is guessed.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/data.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/data_priv.h"

zx_data_input *zx_data_find(const zx_data *d, const char *name)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (strcmp(d->inputs[i].name, name) == 0) return &d->inputs[i];
    return NULL;
}

const char *zx_data_decl_text(const zx_input_decl *decl, zx_arena *mem)
{
    zx_text t = {0};
    zx_text_put(&t, "%s [", zx_dtypes[decl->dtype].word);
    for (uint32_t i = 0; i < decl->rank; i++) {
        zx_text_put(&t, "%s", i > 0 ? ", " : "");
        if (decl->dim[i] >= 0)
            zx_text_put(&t, "%lld", (long long)decl->dim[i]);
        else if (decl->symbol[i] != NULL && decl->symbol[i][0] != '\0')
            zx_text_put(&t, "%s", zx_text_safe(mem, decl->symbol[i]));
        else
            zx_text_put(&t, "?");
    }
    zx_text_put(&t, "]");
    const char *text = zx_arena_str(mem, t.at);
    zx_text_free(&t);
    return text;
}

static const char *all_inputs(const zx_data *d)
{
    zx_text t = {0};
    for (uint32_t i = 0; i < d->n; i++)
        zx_text_put(&t, "%s%s %s", i > 0 ? "; " : "", zx_text_safe(d->mem, d->inputs[i].name),
                    d->inputs[i].decl != NULL ? zx_data_decl_text(d->inputs[i].decl, d->mem)
                                              : "(labels of zerox.loss)");
    const char *text = t.n > 0 ? zx_arena_str(d->mem, t.at) : "none";
    zx_text_free(&t);
    return text;
}

// ---- the bare `--data FILE` ---------------------------------------------------------------------

static bool is_one_of(const char *name, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(name, words[i]) == 0) return true;
    return false;
}

zx_data_input *zx_data_labels(const zx_data *d)
{
    static const char *const words[] = {"labels", "label", "targets", "target", "y"};
    for (size_t w = 0; w < ZX_COUNT(words); w++)
        for (uint32_t i = 0; i < d->n; i++)
            if (strcasecmp(d->inputs[i].name, words[w]) == 0) return &d->inputs[i];
    for (uint32_t i = 0; i < d->n; i++)
        if (d->inputs[i].decl == NULL) return &d->inputs[i];
    return NULL;
}

bool zx_data_takes_tokens(const zx_input_decl *decl)
{
    if (decl == NULL || decl->rank != 2) return false;
    const zx_dtype_kind kind = zx_dtypes[decl->dtype].kind;
    return kind == ZX_KIND_INT || kind == ZX_KIND_UINT;
}

// The input that tokens go to: input_ids, or the only whole-number input of rank 2 that is left.
static zx_data_input *find_tokens(const zx_data *d, const zx_data_input *labels)
{
    static const char *const others[] = {"attention_mask", "position_ids", "token_type_ids"};
    zx_data_input *found = zx_data_find(d, "input_ids");
    if (found != NULL) return found;
    for (uint32_t i = 0; i < d->n; i++) {
        zx_data_input *in = &d->inputs[i];
        if (in == labels || !zx_data_takes_tokens(in->decl)) continue;
        if (is_one_of(in->name, others, ZX_COUNT(others))) continue;
        if (found != NULL) return NULL;
        found = in;
    }
    return found;
}

static zx_status give_bare(zx_data *d, const char *text, zx_err *err)
{
    zx_data_input *labels = zx_data_labels(d), *tokens = find_tokens(d, labels);
    if (tokens == NULL) {
        zx_err_hint(err, "--data INPUT=%s", zx_text_safe(d->mem, text));
        return ZX_FAIL(err, ZX_E_USAGE,
                       "--data %s: which input takes tokens isn't clear; the inputs are %s",
                       zx_text_safe(d->mem, text), all_inputs(d));
    }
    if (tokens->source.kind != ZX_SOURCE_NONE)
        return ZX_FAIL(err, ZX_E_USAGE, "--data %s: '%s' has a source already",
                       zx_text_safe(d->mem, text), tokens->name);
    ZX_TRY(zx_data_source_parse(text, ".", d->mem, &tokens->source, err));
    if (tokens->source.path == NULL) {
        zx_err_hint(err, "--data INPUT=%s, with one of the inputs %s", zx_text_safe(d->mem, text),
                    all_inputs(d));
        return ZX_FAIL(err, ZX_E_USAGE, "--data %s: a source that is no file needs an input's name",
                       zx_text_safe(d->mem, text));
    }
    if (labels == NULL || labels->source.kind != ZX_SOURCE_NONE) return ZX_OK;
    labels->source = tokens->source;
    labels->source.kind = ZX_SOURCE_LABELS;
    return ZX_OK;
}

// ---- matching -----------------------------------------------------------------------------------

static zx_status no_input(const zx_data *d, const char *where, const char *name, zx_err *err)
{
    const char **names = ZX_NEW(d->mem, const char *, d->n);
    for (uint32_t i = 0; i < d->n; i++) names[i] = d->inputs[i].name;
    const char *near = zx_text_nearest(name, names, d->n);
    zx_err_hint(err, "one of the inputs: %s", all_inputs(d));
    return ZX_FAIL(err, ZX_E_USAGE, "%s: the model has no input '%s'%s%s%s", where,
                   zx_text_safe(d->mem, name), near != NULL ? "; the nearest is '" : "",
                   near != NULL ? near : "", near != NULL ? "'" : "");
}

static zx_status give_one(zx_data *d, const char *arg, zx_err *err)
{
    // Names may hold '=': the longest input name that is followed by one counts.
    zx_data_input *in = NULL;
    size_t longest = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        const size_t n = strlen(d->inputs[i].name);
        if (strncmp(arg, d->inputs[i].name, n) != 0 || arg[n] != '=') continue;
        if (in != NULL && n <= longest) continue;
        in = &d->inputs[i];
        longest = n;
    }
    const char *eq = strchr(arg, '=');
    if (in == NULL && (eq == NULL || access(arg, F_OK) == 0)) return give_bare(d, arg, err);
    if (in == NULL)
        return no_input(d, "--data", zx_arena_strn(d->mem, arg, (size_t)(eq - arg)), err);
    if (in->source.kind != ZX_SOURCE_NONE && in->source.kind != ZX_SOURCE_LABELS)
        return ZX_FAIL(err, ZX_E_USAGE, "--data: input '%s' is given twice", in->name);
    return zx_data_source_parse(arg + longest + 1, ".", d->mem, &in->source, err);
}

static zx_status give_from_config(zx_data *d, const zx_config *c, zx_err *err)
{
    const char *whose = d->eval ? "zerox.eval.data" : "zerox.data";
    const zx_config_value *v = zx_config_get(c, whose);
    if (!v->has) return ZX_OK;
    const char *key;
    json_t *j;
    json_object_foreach((json_t *)(uintptr_t)v->json, key, j)
    {
        zx_data_input *in = zx_data_find(d, key);
        if (in == NULL) return no_input(d, c->path, key, err);
        if (json_string_value(j) == NULL)
            return ZX_FAIL(err, ZX_E_USAGE, "%s: %s.%s must be a text", c->path, whose,
                           zx_text_safe(d->mem, key));
        if (in->source.kind != ZX_SOURCE_NONE) continue; // the command line comes first
        ZX_TRY(zx_data_source_parse(zx_arena_str(d->mem, json_string_value(j)), c->dir, d->mem,
                                    &in->source, err));
    }
    return ZX_OK;
}

// Evaluation takes from training what is no file: masks, positions, labels that are copies.
static void give_from_training(zx_data *d, const zx_data *trained)
{
    for (uint32_t i = 0; i < d->n; i++) {
        const zx_data_input *other = zx_data_find(trained, d->inputs[i].name);
        if (d->inputs[i].source.kind != ZX_SOURCE_NONE || other == NULL) continue;
        if (other->source.kind == ZX_SOURCE_NONE || zx_data_source_is_file(&other->source))
            continue;
        d->inputs[i].source = other->source;
        d->inputs[i].why = "as in training";
    }
}

static void give_beside(zx_data *d, const char *model)
{
    static const char *const ends[] = {"npy", "bin"};
    const char *slash = strrchr(model, '/');
    const char *dir =
        slash == NULL ? "." : zx_arena_strn(d->mem, model, (size_t)(slash - model) + 1);
    for (uint32_t i = 0; i < d->n; i++) {
        zx_data_input *in = &d->inputs[i];
        for (size_t e = 0; e < ZX_COUNT(ends) && in->source.kind == ZX_SOURCE_NONE; e++) {
            if (strchr(in->name, '/') != NULL) continue; // a name from a file leads nowhere else
            const char *path = slash == NULL
                                   ? zx_arena_printf(d->mem, "%s.%s", in->name, ends[e])
                                   : zx_arena_printf(d->mem, "%s%s.%s", dir, in->name, ends[e]);
            if (access(path, F_OK) != 0) continue;
            in->source = (zx_data_source){
                .kind = e == 0 ? ZX_SOURCE_NPY : ZX_SOURCE_TOKENS, .text = path, .path = path};
            in->why = "found beside the model";
            in->beside = true;
        }
    }
}

static void give_defaults(zx_data *d)
{
    static const struct {
        const char *name, *word;
        zx_data_kind kind;
    } usual[] = {{"attention_mask", "ones", ZX_SOURCE_ONES},
                 {"position_ids", "arange", ZX_SOURCE_ARANGE}};
    for (size_t i = 0; i < ZX_COUNT(usual); i++) {
        zx_data_input *in = zx_data_find(d, usual[i].name);
        if (in == NULL || in->source.kind != ZX_SOURCE_NONE) continue;
        in->source = (zx_data_source){.kind = usual[i].kind, .text = usual[i].word};
        in->why = "by default";
    }
}

// One file of tokens feeds the model where only its tokens and labels lack data.
static bool needs_a_file_of_tokens(const zx_data *d)
{
    const zx_data_input *labels = zx_data_labels(d), *tokens = find_tokens(d, labels);
    if (tokens == NULL || tokens->source.kind != ZX_SOURCE_NONE) return false;
    for (uint32_t i = 0; i < d->n; i++) {
        const zx_data_input *in = &d->inputs[i];
        if (in == tokens || in->source.kind != ZX_SOURCE_NONE) continue;
        if (in != labels || !(in->decl == NULL || zx_data_takes_tokens(in->decl))) return false;
    }
    return true;
}

// Tokens have their file, and only labels are missing that the same file gives.
static const zx_data_input *tokens_that_give_labels(const zx_data *d)
{
    const zx_data_input *labels = zx_data_labels(d), *tokens = find_tokens(d, labels);
    if (tokens == NULL || labels == NULL || tokens->source.kind != ZX_SOURCE_TOKENS) return NULL;
    if (labels->decl != NULL && !zx_data_takes_tokens(labels->decl)) return NULL;
    for (uint32_t i = 0; i < d->n; i++)
        if ((d->inputs[i].source.kind == ZX_SOURCE_NONE) != (&d->inputs[i] == labels)) return NULL;
    return tokens;
}

static zx_status missing(zx_data *d, zx_err *err)
{
    zx_text names = {0}, example = {0};
    for (uint32_t i = 0; i < d->n; i++) {
        const char *name = zx_text_safe(d->mem, d->inputs[i].name);
        if (d->inputs[i].source.kind != ZX_SOURCE_NONE) continue;
        zx_text_put(&example, " --data %s=%s.npy", name, name);
        zx_text_put(&names, "%s'%s'", names.n > 0 ? ", " : "", name);
    }
    const bool any = d->lacking = names.n > 0;
    if (any) ZX_FAIL(err, ZX_E_DATA, "no data for %s; the inputs are %s", names.at, all_inputs(d));
    const zx_data_input *tokens = any ? tokens_that_give_labels(d) : NULL;
    if (any && d->eval)
        zx_err_hint(err, "--eval-data FILE, or --eval-data INPUT=FILE for each of them");
    else if (tokens != NULL)
        zx_err_hint(err, "%s --data %s, which without a name feeds tokens and labels", d->command,
                    zx_text_safe(d->mem, tokens->source.text));
    else if (any && needs_a_file_of_tokens(d))
        zx_err_hint(err,
                    "%s --data FILE.txt (a token is a byte) or FILE.bin (uint16 tokens; "
                    "FILE.bin:u32 for uint32)",
                    d->command);
    else if (any)
        zx_err_hint(err, "%s%s", d->command, example.at);
    zx_text_free(&names);
    zx_text_free(&example);
    return any ? ZX_E_DATA : ZX_OK;
}

void zx_data_suggest(const zx_data *d, const char *command, zx_err *err)
{
    if (d == NULL || !d->lacking) return;
    zx_text data = {0};
    for (uint32_t i = 0; i < d->n; i++)
        if (d->inputs[i].source.kind == ZX_SOURCE_NONE)
            zx_text_put(&data, " --data %s=synthetic", zx_text_safe(d->mem, d->inputs[i].name));
    err->hint[0] = '\0'; // it said how to train
    zx_err_hint(err, "%s%s", command, data.at != NULL ? data.at : "");
    zx_text_free(&data);
}

// ---- opening ------------------------------------------------------------------------------------

// A file's samples against what the model declares, as far as it is fixed.
static zx_status check_decl(const zx_data *d, const zx_data_input *in, zx_err *err)
{
    const zx_data_source *s = &in->source;
    if (in->decl == NULL) return ZX_OK;
    char shape[ZX_SHAPE_TEXT];
    const char *want = zx_data_decl_text(in->decl, d->mem);
    if (s->kind == ZX_SOURCE_TOKENS && in->decl->rank != 2) {
        zx_err_hint(err, "--data %s=FILE.npy, which numpy.save(\"FILE.npy\", array) writes",
                    zx_text_safe(d->mem, in->name));
        return ZX_FAIL(err, ZX_E_DATA,
                       "input '%s' is %s; a token file (%s) feeds inputs [batch, sequence]",
                       zx_text_safe(d->mem, in->name), want, s->path);
    }
    if (s->kind != ZX_SOURCE_NPY) return ZX_OK;
    const zx_shape *have = &s->npy.type.shape;
    bool fits = have->rank == in->decl->rank && have->rank > 0;
    for (uint32_t i = 1; fits && i < have->rank; i++)
        fits = in->decl->dim[i] < 0 || in->decl->dim[i] == have->dim[i];
    if (fits) return ZX_OK;
    if (in->decl->rank == have->rank + 1)
        zx_err_hint(err, "samples lie along axis 0: numpy.save(\"%s\", x[numpy.newaxis])", s->path);
    else
        zx_err_hint(err, "another file: --data %s=FILE.npy", zx_text_safe(d->mem, in->name));
    return ZX_FAIL(err, ZX_E_DATA, "input '%s' is %s; %s holds %s %s (samples along axis 0)",
                   zx_text_safe(d->mem, in->name), want, s->path, zx_dtypes[s->dtype].word,
                   zx_shape_text(have, shape));
}

static void add_shape(zx_data *d, const zx_data_input *in)
{
    if (in->source.kind != ZX_SOURCE_NPY) return;
    const zx_shape *have = &in->source.npy.type.shape;
    zx_input_shape *to = &d->shapes[d->n_shapes++];
    to->name = in->name;
    to->rank = have->rank - 1;
    for (uint32_t i = 1; i < have->rank; i++) to->dim[i - 1] = have->dim[i];
}

static zx_status open_file(zx_data *d, zx_data_input *in, zx_err *err)
{
    const bool npy_labels = in->source.kind == ZX_SOURCE_LABELS && in->source.path != NULL &&
                            strstr(in->source.path, ".npy") != NULL;
    if (!npy_labels) ZX_TRY(zx_data_source_open(&in->source, err));
    if (in->source.kind == ZX_SOURCE_NPY && in->source.npy.type.shape.rank == 0)
        return ZX_FAIL(err, ZX_E_DATA, "%s holds a single number, not samples", in->source.path);
    return check_decl(d, in, err);
}

static void leave_out(zx_data_input *in)
{
    zx_data_source_close(&in->source);
    in->source = (zx_data_source){.kind = ZX_SOURCE_NONE};
    in->from = NULL;
    in->why = NULL;
    in->beside = false;
}

void zx_data_leave_out(zx_data *d, zx_data_input *in, const zx_err *why, zx_notes *notes)
{
    zx_note(notes, d->mem, "%s beside the model isn't its data: %s",
            zx_text_safe(d->mem, in->source.path), why->cause[0]);
    leave_out(in);
}

bool zx_data_leave_out_beside(zx_data *d)
{
    bool any = false;
    d->n_shapes = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        any |= d->inputs[i].beside;
        if (d->inputs[i].beside)
            leave_out(&d->inputs[i]);
        else
            add_shape(d, &d->inputs[i]);
    }
    return any;
}

static zx_status open_files(zx_data *d, zx_notes *notes, zx_err *err)
{
    for (uint32_t i = 0; i < d->n; i++) {
        zx_data_input *in = &d->inputs[i];
        zx_err found = {0};
        if (open_file(d, in, &found) == ZX_OK) {
            add_shape(d, in);
            continue;
        }
        if (!in->beside || !d->optional) return zx_err_merge(err, &found);
        zx_data_leave_out(d, in, &found, notes);
    }
    return ZX_OK;
}

zx_status zx_data_open(const zx_data_request *r, zx_arena *mem, zx_data **out, zx_notes *notes,
                       zx_err *err)
{
    zx_data *d = ZX_NEW(mem, zx_data, 1);
    *out = d;
    *d = (zx_data){.mem = mem,
                   .model = r->model,
                   .command = r->command != NULL ? r->command : "zerox train MODEL.onnx",
                   .shuffle = r->shuffle,
                   .optional = r->optional,
                   .keep_all = !zx_config_get(r->config, "dataloader_drop_last")->b,
                   .eval = r->trained != NULL,
                   .seed = r->seed};
    d->inputs = ZX_NEW(mem, zx_data_input, r->n_inputs + 1);
    d->shapes = ZX_NEW(mem, zx_input_shape, r->n_inputs + 1);
    for (uint32_t i = 0; i < r->n_inputs; i++)
        d->inputs[d->n++] = (zx_data_input){.name = r->inputs[i].name, .decl = &r->inputs[i]};
    const char *label = zx_config_get(r->config, "zerox.loss.label")->text;
    if (zx_config_get(r->config, "zerox.loss.kind")->has && zx_data_find(d, label) == NULL)
        d->inputs[d->n++] = (zx_data_input){.name = label};
    for (int bare = 0; bare < 2; bare++) // named ones first: a bare FILE fills what they leave
        for (uint32_t i = 0; i < r->n_given; i++) {
            const bool named = strchr(r->given[i], '=') != NULL && access(r->given[i], F_OK) != 0;
            if (named == (bare == 0)) ZX_TRY(give_one(d, r->given[i], err));
        }
    ZX_TRY(give_from_config(d, r->config, err));
    if (d->eval)
        give_from_training(d, r->trained);
    else
        give_beside(d, r->model);
    give_defaults(d);
    if (!r->optional) ZX_TRY(missing(d, err));
    return open_files(d, notes, err);
}

void zx_data_close(zx_data *d)
{
    if (d == NULL) return;
    for (uint32_t i = 0; i < d->n; i++) zx_data_source_close(&d->inputs[i].source);
}

uint32_t zx_data_shapes(const zx_data *d, const zx_input_shape **out)
{
    *out = d->shapes;
    return d->n_shapes;
}

bool zx_data_reads(const zx_data *d, const struct stat *file)
{
    for (uint32_t i = 0; i < d->n; i++) {
        struct stat own;
        const zx_data_source *s = &d->inputs[i].source;
        if (s->path != NULL && stat(s->path, &own) == 0 && own.st_dev == file->st_dev &&
            own.st_ino == file->st_ino)
            return true;
    }
    return false;
}
