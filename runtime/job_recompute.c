// job_recompute.c - see job_recompute.h.
//
// auto. What is recomputed needn't be kept from forward to backward, and the planner has those
// bytes for parameters that stay and gathers that come early; it costs the seconds of running
// again, which are free while compute waits for the wire anyway. So parts are put in order of bytes
// x seconds for which they are kept by the seconds that they take again: of equal layers the first
// ones, which wait longest. How many of them is found by asking the planner, for the predicted step
// as a function of that number falls as long as the bytes help and rises with the compute.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_recompute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/cmd.h"
#include "runtime/session.h"
#include "sched/trace.h"

#define GRID 5        // equal gaps in which the search begins
#define AS_GOOD 1.001 // of steps this near the one that recomputes less is better

// ---- variants -----------------------------------------------------------------------------------

#define KEY "zerox.recompute"

static bool is_one_of(const char *word, const char *const *words, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcasecmp(word, words[i]) == 0) return true;
    return false;
}

static void take_word(zx_job *job, const char *word)
{
    job->recompute = strcasecmp(word, "full") == 0 ? ZX_RECOMPUTE_FULL : ZX_RECOMPUTE_NONE;
    job->recompute_auto = strcasecmp(word, "auto") == 0;
}

// DeepSpeed's section says how the model's own calls of its checkpoint function are carried out; a
// graph has no such calls, but a number of them is one of layers.
#define CHECKPOINTS "activation_checkpointing.number_checkpoints"
static void take_checkpoints(zx_job *job, bool stated)
{
    const zx_config_value *n = zx_config_get(&job->config, CHECKPOINTS);
    if (!n->has || n->i == 0) return;
    if (stated) {
        zx_note(&job->notes, &job->mem,
                CHECKPOINTS " has no effect: " KEY " says what is recomputed");
        return;
    }
    job->recompute = ZX_RECOMPUTE_BLOCKS;
    job->again_first = n->i < UINT32_MAX ? (uint32_t)n->i : UINT32_MAX;
    // Its default isn't what is done: config.json, stating it, would give another run.
    ((zx_config_value *)(uintptr_t)zx_config_get(&job->config, KEY))->has = false;
}

zx_status zx_job_recompute(zx_job *job, zx_err *err)
{
    static const char *const words[] = {"none", "full", "auto"};
    const char *given = zx_given_text(job->o, ZX_OPT_RECOMPUTE);
    if (given != NULL && !is_one_of(given, words, ZX_COUNT(words)))
        return ZX_FAIL(err, ZX_E_USAGE, "--recompute is none, full or auto, not '%s'",
                       zx_text_safe(&job->mem, given));
    if (given != NULL) zx_config_set_text(&job->config, KEY, given, ZX_FROM_COMMAND);
    const zx_config_value *v = zx_config_get(&job->config, KEY);
    const bool stated = v->from == ZX_FROM_COMMAND || v->from == ZX_FROM_FILE;
    const char *word = v->n > 0 ? v->texts[0] : v->text != NULL ? v->text : words[0]; // of []: none
    if (v->n <= 1 && is_one_of(word, words, ZX_COUNT(words))) {
        take_word(job, word);
        take_checkpoints(job, stated);
        return ZX_OK;
    }
    for (uint32_t i = 0; i < v->n; i++)
        if (strpbrk(v->texts[i], ".*?/") == NULL)
            return ZX_FAIL(err, ZX_E_USAGE,
                           KEY " is none, full, auto, or names of layers like \"*.layers.0\" or "
                               "\"*.h.?\", not '%s'",
                           zx_text_safe(&job->mem, v->texts[i]));
    take_checkpoints(job, stated);
    job->recompute = ZX_RECOMPUTE_BLOCKS;
    job->n_again = v->n;
    job->again = v->texts;
    return ZX_OK;
}

static bool is_named(const zx_job *job, uint32_t block, const char *name)
{
    for (uint32_t k = 0; k < job->n_again; k++)
        if (zx_text_match(job->again[k], name)) return true;
    return block < job->again_first;
}

const zx_blocks *zx_job_recompute_blocks(zx_job *job, zx_blocks *out)
{
    const bool full = job->recompute == ZX_RECOMPUTE_FULL;
    if (!full && job->n_again == 0 && job->again_first == 0) return NULL;
    zx_blocks_make(&job->forward, &job->mem, out);
    if (full) return out;
    const char **names = ZX_NEW(&job->mem, const char *, out->n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < out->n; i++)
        if (is_named(job, i, out->names[i])) names[n++] = out->names[i];
    out->names = names;
    out->n = n;
    return out;
}

static zx_status no_such_layer(zx_job *job, const char *pattern, const zx_blocks *b, zx_err *err)
{
    const char *safe = zx_text_safe(&job->mem, pattern);
    zx_err_hint(err, "zerox.recompute \"full\" or \"auto\", or names of whole layers");
    if (b->n == 0)
        return ZX_FAIL(err, ZX_E_USAGE,
                       KEY ": no layer is named '%s': the model's file names no layers", safe);
    return ZX_FAIL(err, ZX_E_USAGE, KEY ": no layer is named '%s'; there are '%s' to '%s'", safe,
                   zx_text_safe(&job->mem, b->names[0]),
                   zx_text_safe(&job->mem, b->names[b->n - 1]));
}

zx_status zx_job_recompute_named(zx_job *job, const bool **out, zx_err *err)
{
    zx_recompute_parts parts;
    zx_blocks blocks;
    *out = NULL;
    if (job->n_again == 0 && job->again_first == 0) return ZX_OK;
    zx_recompute_look(&job->plain, &job->mem, &parts);
    zx_blocks_make(&job->plain, &job->mem, &blocks);
    if (parts.segments) blocks.n = 0;
    bool *again = ZX_NEW(&job->mem, bool, parts.n + 1);
    uint32_t n = 0;
    for (; n < blocks.n && n < job->again_first; n++) again[n] = parts.bytes[n] > 0;
    if (job->again_first > 0 && n == 0)
        zx_note(&job->notes, &job->mem,
                CHECKPOINTS " has no effect: the model's file names no layers (" KEY " \"full\" "
                            "takes segments of it)");
    else if (job->again_first > 0)
        zx_note(&job->notes, &job->mem,
                CHECKPOINTS ": the first %u layers are recomputed; in DeepSpeed the model's own "
                            "calls say which. " KEY " has more to choose from",
                n);
    for (uint32_t k = 0; k < job->n_again; k++) {
        bool found = false;
        for (uint32_t i = 0; i < blocks.n; i++) {
            if (!zx_text_match(job->again[k], blocks.names[i])) continue;
            again[i] = found = true;
        }
        if (!found) return no_such_layer(job, job->again[k], &blocks, err);
    }
    *out = again;
    return ZX_OK;
}

zx_status zx_variant_make(const zx_job *job, zx_recompute_kind kind, const bool *again,
                          zx_arena *mem, zx_variant *out, zx_err *err)
{
    *out = (zx_variant){.kind = kind};
    if (kind != ZX_RECOMPUTE_NONE) {
        zx_recompute_parts parts;
        zx_recompute_look(&job->plain, mem, &parts);
        bool *chosen = ZX_NEW(mem, bool, parts.n + 1);
        for (uint32_t i = 0; i < parts.n; i++) {
            chosen[i] = kind == ZX_RECOMPUTE_FULL ? parts.bytes[i] > 0 : again[i];
            out->n += chosen[i];
        }
        out->n_parts = parts.n;
        out->segments = parts.segments;
        out->again = chosen;
    }
    zx_graph single; // in float32
    ZX_TRY(zx_recompute_make(&job->plain, kind, out->again, mem, &single, &out->from, err));
    zx_precision_apply(&single, job->precision, mem, &out->train);
    return ZX_OK;
}

static const char none_word[] = "none", full_word[] = "full";

const char *zx_variant_word(const zx_variant *v, zx_arena *mem)
{
    if (v->kind != ZX_RECOMPUTE_BLOCKS) return v->kind == ZX_RECOMPUTE_FULL ? full_word : none_word;
    char *word = ZX_NEW(mem, char, v->n_parts + 1);
    for (uint32_t i = 0; i < v->n_parts; i++) word[i] = v->again[i] ? '1' : '0';
    return word;
}

zx_status zx_variant_read(const zx_job *job, const char *word, zx_arena *mem, zx_variant *out,
                          zx_err *err)
{
    zx_recompute_parts parts;
    if (strcmp(word, none_word) == 0)
        return zx_variant_make(job, ZX_RECOMPUTE_NONE, NULL, mem, out, err);
    if (strcmp(word, full_word) == 0)
        return zx_variant_make(job, ZX_RECOMPUTE_FULL, NULL, mem, out, err);
    const size_t n = strlen(word);
    zx_recompute_look(&job->plain, mem, &parts);
    if (n == 0 || strspn(word, "01") < n || n != parts.n)
        return ZX_FAIL(err, ZX_E_USAGE, "recomputed is '%s', which is nothing of the %u parts here",
                       zx_text_safe(mem, word), parts.n);
    bool *again = ZX_NEW(mem, bool, n + 1);
    for (size_t i = 0; i < n; i++) again[i] = word[i] == '1';
    return zx_variant_make(job, ZX_RECOMPUTE_BLOCKS, again, mem, out, err);
}

zx_status zx_variant_share(const zx_job *job, zx_world *w, zx_arena *mem, zx_variant *v,
                           zx_err *err)
{
    const char *mine = zx_variant_word(v, mem);
    void *bytes = (void *)(uintptr_t)mine;
    size_t n = strlen(mine);
    zx_status st = zx_world_send(w, &bytes, &n, err);
    if (st == ZX_OK && bytes != mine) {
        const char *word = zx_arena_strn(mem, bytes, n);
        if (strcmp(word, mine) != 0) st = zx_variant_read(job, word, mem, v, err);
        free(bytes);
    }
    return zx_world_agree(w, st, err);
}

const char *zx_variant_text(const zx_variant *v, zx_arena *mem)
{
    if (v->n == 0) return "";
    if (v->kind == ZX_RECOMPUTE_FULL)
        return v->segments ? "recomputed by segment" : "recomputed by layer";
    return zx_arena_printf(mem, "%u of %u %s recomputed", v->n, v->n_parts,
                           v->segments ? "segments" : "layers");
}

// Whether a node has operands of the types that the one that it repeats has: a copy reads others
// where it is of no importance what they are (graph/recompute.c).
static bool same_types(const zx_graph *a, const zx_node *x, const zx_graph *b, const zx_node *y)
{
    for (uint32_t i = 0; i < x->n_in; i++) {
        const uint32_t v = zx_node_in(a, x, i), w = zx_node_in(b, y, i);
        if ((v == ZX_NONE) != (w == ZX_NONE)) return false;
        if (v != ZX_NONE && a->values[v].type.dtype != b->values[w].type.dtype) return false;
    }
    return true;
}

static uint64_t work_of(const zx_job *job, const zx_variant *v, uint32_t node,
                        const zx_plan_options *plain)
{
    const uint64_t first = plain->work_bytes[v->from[node]];
    uint64_t own = 0;
    zx_err unused = {0}; // a session that can't prepare it says so itself
    if (first == 0 ||
        same_types(&v->train, &v->train.nodes[node], &job->plain, &job->plain.nodes[v->from[node]]))
        return first;
    if (zx_session_node_work(&job->site, &v->train, node, job->threads, &own, &unused) != ZX_OK)
        return first;
    return own;
}

void zx_variant_options(const zx_job *job, const zx_variant *v, const zx_plan_options *plain,
                        zx_arena *mem, zx_plan_options *out)
{
    const uint32_t n = v->train.n_nodes;
    *out = *plain;
    if (plain->work_bytes != NULL) {
        uint64_t *work = ZX_NEW(mem, uint64_t, n + 1);
        for (uint32_t i = 0; i < n; i++) work[i] = work_of(job, v, i, plain);
        out->work_bytes = work;
    }
    if (plain->times == NULL) return;
    zx_times *times = ZX_NEW(mem, zx_times, 1);
    *times = *plain->times;
    if (times->node != NULL) {
        double *node = ZX_NEW(mem, double, n + 1);
        for (uint32_t i = 0; i < n; i++) node[i] = plain->times->node[v->from[i]];
        times->node = node;
    }
    out->times = times;
}

void zx_job_take(zx_job *job, const zx_variant *v)
{
    job->recompute = v->kind;
    job->variant = *v;
    job->train = v->train;
}

// ---- candidates ---------------------------------------------------------------------------------

typedef struct part {
    uint32_t part;
    double worth;   // bytes x seconds kept, by the seconds that they take again
    double seconds; // again, of a micro-batch
} part;

typedef struct tried {
    bool done, fits;
    double seconds, compute; // of the step; of it, compute as fast as alone
    uint64_t bytes;
} tried;

typedef struct search {
    const zx_job *job;
    zx_plan_options o; // of job->plain
    zx_arena mem;
    uint32_t n, n_parts;
    part *order;    // candidate k: the first k of these n
    double *extra;  // n + 1: seconds that candidate k adds to a step
    tried *at;      // n + 1
    zx_err refused; // of the candidate that was planned last and didn't fit
} search;

static int by_worth(const void *a, const void *b)
{
    const part *x = a, *y = b;
    if (x->worth != y->worth) return x->worth > y->worth ? -1 : 1;
    return x->part < y->part ? -1 : x->part > y->part;
}

// Of each part, for how long what it saves is kept: from its last step of forward to its first of
// backward.
static double *kept_seconds(search *s, const zx_recompute_parts *parts, const zx_trace *t)
{
    double *from = ZX_NEW(&s->mem, double, parts->n + 1),
           *kept = ZX_NEW(&s->mem, double, parts->n + 1);
    bool *back = ZX_NEW(&s->mem, bool, parts->n + 1);
    for (uint32_t i = 0; i < t->n_steps; i++) {
        const uint32_t p = parts->of_node[t->node[i]];
        if (p == ZX_NONE || back[p]) continue;
        back[p] = t->graph->nodes[t->node[i]].phase == ZX_BACKWARD;
        if (back[p])
            kept[p] = t->at[i] - from[p];
        else
            from[p] = t->at[i + 1];
    }
    return kept;
}

static zx_status find_candidates(search *s, zx_err *err)
{
    zx_recompute_parts parts;
    zx_trace t;
    zx_graph g;
    zx_precision_apply(&s->job->plain, s->job->precision, &s->mem, &g);
    zx_recompute_look(&g, &s->mem, &parts);
    ZX_TRY(zx_trace_make(&g, &s->o, &s->mem, &t, err));
    const double *kept = kept_seconds(s, &parts, &t),
                 *measured = s->o.times != NULL ? s->o.times->node : NULL;
    s->n_parts = parts.n;
    s->order = ZX_NEW(&s->mem, part, parts.n + 1);
    part *of = ZX_NEW(&s->mem, part, parts.n + 1);
    for (uint32_t i = 0; i < t.n_steps; i++) {
        const uint32_t node = t.node[i];
        if (!parts.again[node]) continue;
        of[parts.of_node[node]].seconds += measured != NULL ? measured[node] : t.seconds[i];
    }
    for (uint32_t p = 0; p < parts.n; p++) {
        if (parts.bytes[p] == 0) continue;
        of[p].part = p;
        of[p].worth = (double)parts.bytes[p] * kept[p] / fmax(of[p].seconds, 1e-12);
        s->order[s->n++] = of[p];
    }
    qsort(s->order, s->n, sizeof *s->order, by_worth);
    s->extra = ZX_NEW(&s->mem, double, s->n + 1);
    s->at = ZX_NEW(&s->mem, tried, s->n + 1);
    for (uint32_t k = 0; k < s->n; k++)
        s->extra[k + 1] = s->extra[k] + s->o.micro_batches * s->order[k].seconds;
    return ZX_OK;
}

static zx_status make(const search *s, uint32_t k, zx_arena *mem, zx_variant *out,
                      zx_plan_options *o, zx_err *err)
{
    bool *again = ZX_NEW(mem, bool, s->n_parts + 1);
    for (uint32_t i = 0; i < k; i++) again[s->order[i].part] = true;
    ZX_TRY(zx_variant_make(s->job, k > 0 ? ZX_RECOMPUTE_BLOCKS : ZX_RECOMPUTE_NONE, again, mem, out,
                           err));
    zx_variant_options(s->job, out, &s->o, mem, o);
    return ZX_OK;
}

// Plans candidate k, once. One that doesn't fit is no error.
static zx_status try(search *s, uint32_t k, zx_err *err)
{
    tried *t = &s->at[k];
    zx_arena mem = {0};
    zx_variant v;
    zx_plan_options o;
    zx_plan plan;
    zx_err found = {0};
    if (t->done) return ZX_OK;
    zx_status st = make(s, k, &mem, &v, &o, &found);
    if (st == ZX_OK) st = zx_plan_make(&v.train, &o, &mem, &plan, &found);
    *t = (tried){.done = true, .seconds = INFINITY, .bytes = UINT64_MAX};
    if (st == ZX_OK)
        *t = (tried){true, true, plan.step_seconds, plan.compute_seconds, plan.arena_bytes};
    if (st == ZX_E_BUDGET) s->refused = found;
    zx_arena_free(&mem);
    return st == ZX_OK || st == ZX_E_BUDGET ? ZX_OK : zx_err_merge(err, &found);
}

// ---- the search ---------------------------------------------------------------------------------

// The first candidate of (no, yes] that fits: whoever recomputes more takes no more.
static zx_status first_that_fits(search *s, uint32_t no, uint32_t yes, uint32_t *out, zx_err *err)
{
    while (yes - no > 1) {
        const uint32_t k = no + (yes - no) / 2;
        ZX_TRY(try(s, k, err));
        if (s->at[k].fits)
            yes = k;
        else
            no = k;
    }
    *out = yes;
    return ZX_OK;
}

static uint32_t fastest(const search *s)
{
    uint32_t best = 0;
    for (uint32_t k = 1; k <= s->n; k++)
        if (s->at[k].done && s->at[k].seconds < s->at[best].seconds) best = k;
    return best;
}

// The last candidate that might be faster than the best: compute alone takes less.
static uint32_t last_of_use(const search *s, uint32_t first)
{
    const double most = s->at[fastest(s)].seconds - s->at[first].compute + s->extra[first];
    uint32_t last = s->n;
    while (last > first && s->extra[last] >= most) last--;
    return last;
}

// From candidate `first` on, which fits: equal gaps, then the wider gap beside the best one is
// halved until its neighbours are known.
static zx_status find_fastest(search *s, uint32_t first, zx_err *err)
{
    const uint32_t all = last_of_use(s, first) - first;
    for (uint32_t i = 1; i <= GRID; i++) ZX_TRY(try(s, first + all * i / GRID, err));
    for (;;) {
        const uint32_t best = fastest(s), last = last_of_use(s, first);
        uint32_t below = best, above = best;
        while (below > first && (below == best || !s->at[below].done)) below--;
        while (above < last && (above == best || !s->at[above].done)) above++;
        const uint32_t left = best - below, right = above - best;
        if (left <= 1 && right <= 1) return ZX_OK;
        ZX_TRY(try(s, left >= right ? below + left / 2 : best + right / 2, err));
    }
}

static zx_status find(search *s, uint32_t *out, zx_err *err)
{
    const bool roomy = s->o.roomy;
    uint32_t first = 0;
    *out = 0;
    s->o.roomy = false; // of plans that are compared
    ZX_TRY(try(s, 0, err));
    if (s->n == 0 || (roomy && s->at[0].fits)) return ZX_OK;
    if (s->o.least) { // the fewest bytes of a grid, and in those the fastest
        for (uint32_t i = 1; i <= GRID; i++) {
            const uint32_t k = s->n * i / GRID;
            ZX_TRY(try(s, k, err));
            if (s->at[k].bytes < s->at[first].bytes) first = k;
        }
        s->o.budget = s->at[first].bytes;
        s->o.least = false;
        memset(s->at, 0, (s->n + 1) * sizeof *s->at);
        ZX_TRY(try(s, 0, err));
        ZX_TRY(try(s, first, err));
    } else if (!s->at[0].fits) {
        ZX_TRY(try(s, s->n, err));
        if (!s->at[s->n].fits) return ZX_OK;
        ZX_TRY(first_that_fits(s, 0, s->n, &first, err));
    }
    ZX_TRY(find_fastest(s, first, err));
    const double most = s->at[fastest(s)].seconds * AS_GOOD;
    while (!s->at[*out].done || s->at[*out].seconds > most) ++*out;
    return ZX_OK;
}

zx_status zx_job_choose(const zx_job *job, const zx_plan_options *o, zx_arena *mem, zx_variant *out,
                        zx_plan_options *with, zx_plan *plan, zx_err *err)
{
    search s = {.job = job, .o = *o};
    uint32_t k = 0;
    zx_status st = find_candidates(&s, err);
    if (st == ZX_OK) st = find(&s, &k, err);
    if (st == ZX_OK && !s.at[k].fits) {
        if (s.n > 0) zx_err_in(&s.refused, "with all recomputed that can be");
        st = zx_err_merge(err, &s.refused);
    }
    s.o.roomy = o->roomy;
    if (st == ZX_OK) st = make(&s, k, mem, out, with, err);
    if (st == ZX_OK) st = zx_plan_make(&out->train, with, mem, plan, err);
    zx_arena_free(&s.mem);
    return st;
}

zx_status zx_job_choose_own(zx_job *job, zx_plan_options *o, zx_arena *mem, zx_plan *plan,
                            zx_err *err)
{
    zx_variant v;
    zx_plan_options with;
    ZX_TRY(zx_job_choose(job, o, mem, &v, &with, plan, err));
    *o = with;
    zx_job_take(job, &v);
    if (v.n > 0)
        zx_note(&job->notes, &job->mem, "--recompute auto: %s", zx_variant_text(&v, &job->mem));
    else
        zx_note(&job->notes, &job->mem, "--recompute auto: nothing is recomputed");
    if (v.segments)
        zx_note(&job->notes, &job->mem,
                "the model's file names no layers: segments of its forward pass take their place");
    return ZX_OK;
}

void zx_job_choose_all(zx_job *job, zx_plan_options *o)
{
    zx_variant v;
    zx_plan_options with;
    if (zx_variant_make(job, ZX_RECOMPUTE_FULL, NULL, &job->mem, &v, NULL) != ZX_OK) return;
    zx_variant_options(job, &v, o, &job->mem, &with);
    *o = with;
    zx_job_take(job, &v);
}
