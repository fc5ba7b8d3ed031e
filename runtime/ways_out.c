// ways_out.c - see ways_out.h.
//
// Nothing is estimated: a way is offered when the least plan that the planner finds with it fits.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/ways_out.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_WAYS 8
#define SHOWN 3
#define MOST_RANKS 4096
#define NEVER UINT64_MAX

typedef struct way {
    char text[120];
    uint64_t bytes; // that a rank needs with it
} way;

typedef struct ways {
    zx_job *job;
    const zx_plan_options *o;
    uint64_t least, held; // as it is
    uint32_t n;
    way at[MOST_WAYS];
} ways;

// The least that a plan is found for; NEVER: none is.
static uint64_t bytes_of(const zx_graph *train, const zx_plan_options *o, uint64_t *held)
{
    zx_arena mem = {0};
    zx_plan_options least = *o;
    zx_plan p;
    least.least = true;
    least.budget = UINT64_MAX;
    zx_err unused = {0};
    const bool made = zx_plan_make(train, &least, &mem, &p, &unused) == ZX_OK;
    const uint64_t bytes = made ? p.arena_bytes : NEVER;
    if (held != NULL) *held = made ? p.held_bytes : 0;
    zx_arena_free(&mem);
    return bytes;
}

static void add(ways *k, const char *text, uint64_t bytes)
{
    if (k->n == MOST_WAYS || bytes == NEVER || bytes > k->o->budget) return;
    way *w = &k->at[k->n++];
    snprintf(w->text, sizeof w->text, "%s", text);
    w->bytes = bytes;
}

// ---- each of them -------------------------------------------------------------------------------

// As it is typed, three digits, not below: "21.4GiB".
static const char *size_up(uint64_t bytes, char buf[ZX_BYTES_TEXT])
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes, step;
    size_t u = 0;
    for (; x >= 1000 && u + 1 < ZX_COUNT(units); u++) x /= 1024;
    const int digits = u == 0 || x >= 100 ? 0 : x >= 10 ? 1 : 2;
    step = pow(10, -digits);
    for (x = ceil(x / step) * step;; x += step) {
        uint64_t parsed = 0;
        snprintf(buf, ZX_BYTES_TEXT, "%.*f%s", digits, x, units[u]);
        if (!zx_text_parse_size(buf, &parsed) || parsed >= bytes) return buf;
    }
}

// The memory that there is for a rank; NEVER: nothing says.
static uint64_t room(const ways *k)
{
    const zx_machine *m = &k->o->machine;
    if (!m->host) return m->device_bytes > 0 ? m->device_bytes : NEVER;
    const uint64_t usable = zx_site_usable(&k->job->site, k->job->ranks);
    return k->job->o->command == ZX_CMD_TRAIN && usable > 0 ? usable / k->job->ranks : NEVER;
}

// Of the budget itself: the only way that isn't within it.
static bool larger_budget(const ways *k, zx_text *out)
{
    char size[ZX_BYTES_TEXT], more[ZX_BYTES_TEXT];
    if (k->least > room(k)) return false;
    zx_text_put(out, "--budget %s (%s more)", size_up(k->least, size),
                zx_text_size(k->least - k->o->budget, more));
    return true;
}

// The same job in another arena, so that its graphs may be made again.
static zx_job copy_of(const zx_job *job)
{
    zx_job copy = *job;
    copy.mem = (zx_arena){0};
    copy.notes = copy.hook_notes = (zx_notes){0};
    if (job->recompute_auto) copy.recompute = ZX_RECOMPUTE_FULL; // that is how far auto can go
    return copy;
}

// What the changed job needs: its train graph is made.
static uint64_t bytes_of_job(zx_job *job, const zx_plan_options *o)
{
    zx_plan_options with = *o;
    zx_err unused = {0};
    if (zx_job_work_bytes(job, &job->mem, &with.work_bytes, &unused) != ZX_OK) return NEVER;
    return bytes_of(&job->train, &with, NULL);
}

static void try_recompute(ways *k)
{
    const bool can = zx_options_take(k->job->o->command, ZX_OPT_RECOMPUTE);
    if (!can || k->held > k->o->budget || k->job->recompute == ZX_RECOMPUTE_FULL) return;
    zx_job again = copy_of(k->job);
    zx_err unused = {0};
    again.recompute = ZX_RECOMPUTE_FULL;
    if (zx_job_train_graph(&again, &unused) == ZX_OK)
        add(k, "--recompute full", bytes_of_job(&again, k->o));
    zx_arena_free(&again.mem);
}

// A preset is a file of one batch: it is made again.
static zx_status open_preset(zx_job *job, zx_err *err)
{
    const zx_preset_sizes sizes = {(int64_t)zx_given_number(job->o, ZX_OPT_SEQ, 1024),
                                   job->batch.micro};
    zx_preset_info info;
    job->preset_bytes = (zx_text){0};
    job->file = (zx_onnx_file){0};
    ZX_TRY(zx_preset_make(job->preset, &sizes, &job->preset_bytes, &info, err));
    return zx_onnx_open_bytes(&job->file, job->preset, job->preset_bytes.at, job->preset_bytes.n,
                              &job->mem, err);
}

static uint64_t bytes_with_batch(const ways *k, int64_t micro, int64_t accumulate)
{
    zx_job smaller = copy_of(k->job);
    zx_plan_options o = *k->o;
    zx_err unused = {0};
    uint64_t bytes = NEVER;
    const bool preset = smaller.preset != NULL;
    smaller.batch.micro = micro;
    smaller.batch.accumulate = accumulate;
    smaller.data = NULL; // what is read in a batch doesn't depend on its size
    o.micro_batches = (uint32_t)accumulate;
    if ((!preset || open_preset(&smaller, &unused) == ZX_OK) &&
        zx_job_import(&smaller, false, &unused) == ZX_OK)
        bytes = bytes_of_job(&smaller, &o);
    if (preset) {
        zx_onnx_close(&smaller.file);
        zx_text_free(&smaller.preset_bytes);
    }
    zx_arena_free(&smaller.mem);
    return bytes;
}

// The largest that fits, by halves, of a batch that stays the same.
static void try_batch(ways *k)
{
    const zx_job *job = k->job;
    const bool by_option = zx_options_take(job->o->command, ZX_OPT_BATCH);
    char text[120];
    if ((job->preset == NULL && job->fixed_batch > 0) || k->held > k->o->budget) return;
    for (int64_t micro = job->batch.micro, times = 1; micro % 2 == 0;) {
        micro /= 2;
        times *= 2;
        if (job->batch.accumulate > UINT32_MAX / job->ranks / times) return;
        const int64_t accumulate = job->batch.accumulate * times;
        const uint64_t bytes = bytes_with_batch(k, micro, accumulate);
        if (bytes > k->o->budget) continue;
        snprintf(text, sizeof text,
                 by_option ? "--batch %lld --accumulate %lld"
                           : "train_micro_batch_size_per_gpu %lld and "
                             "gradient_accumulation_steps %lld",
                 (long long)micro, (long long)accumulate);
        add(k, text, bytes);
        return;
    }
}

static void try_stage(ways *k)
{
    char text[32];
    zx_plan_options o = *k->o;
    const bool by_option = zx_options_take(k->job->o->command, ZX_OPT_STAGE);
    for (o.stage = k->o->stage + 1; o.stage <= 3 && o.ranks > 1; o.stage++) {
        const uint64_t bytes = bytes_of(&k->job->train, &o, NULL);
        if (bytes > o.budget) continue;
        snprintf(text, sizeof text, by_option ? "--stage %u" : "ZeRO stage %u", o.stage);
        add(k, text, bytes);
        return;
    }
}

// "h100" of "h100x32"; 0: nothing but a name.
static size_t machine_word(const char *name)
{
    size_t n = strlen(name);
    while (n > 0 && isdigit((unsigned char)name[n - 1])) n--;
    return n > 1 && name[n] != '\0' && name[n - 1] == 'x' ? n - 1 : 0;
}

// A machine by name there is with more ranks; of this host's memory a rank has less then.
static bool more_ranks(const ways *k, uint32_t ranks, zx_plan_options *o, char *text, size_t size)
{
    const zx_job *job = k->job;
    const char *name = zx_given_text(job->o, ZX_OPT_MACHINE);
    o->ranks = ranks;
    if (o->machine.host) {
        const bool asked = zx_config_get(&job->config, "zerox.budget")->has;
        snprintf(text, size, "--ranks %u", ranks);
        const uint32_t most = job->site.gpu != NULL ? job->site.devices : zx_memory_cores();
        return asked && (job->o->command != ZX_CMD_TRAIN || ranks <= most);
    }
    if (name == NULL) return false;
    const size_t n = machine_word(name);
    zx_arena mem = {0};
    zx_err unused = {0};
    const char *word = n > 0 ? zx_arena_strn(&mem, name, n) : name;
    const bool found = zx_machine_find(word, ranks, &o->machine, &unused) == ZX_OK;
    snprintf(text, size, n > 0 ? "--machine %sx%u" : "--machine %s --ranks %u",
             zx_text_safe(&mem, word), ranks);
    zx_arena_free(&mem);
    return found;
}

// By doubling. What is held shrinks with the ranks at the most, what comes and goes doesn't.
static void try_ranks(ways *k)
{
    char text[120];
    const uint64_t transient = k->least - k->held;
    if (transient > k->o->budget) return;
    for (uint64_t ranks = k->o->ranks, times = 1; ranks <= MOST_RANKS / 2;) {
        zx_plan_options o = *k->o;
        ranks *= 2;
        times *= 2;
        if (k->held / times > k->o->budget - transient) continue;
        if (!more_ranks(k, (uint32_t)ranks, &o, text, sizeof text)) continue;
        const uint64_t bytes = bytes_of(&k->job->train, &o, NULL);
        if (bytes > o.budget) continue;
        add(k, text, bytes);
        return;
    }
}

// ---- all of them --------------------------------------------------------------------------------

static void sort(ways *k) // what needs most is nearest
{
    for (uint32_t i = 1; i < k->n; i++)
        for (uint32_t j = i; j > 0 && k->at[j].bytes > k->at[j - 1].bytes; j--) {
            const way w = k->at[j];
            k->at[j] = k->at[j - 1];
            k->at[j - 1] = w;
        }
}

// Memory isn't what is short.
static void name_limit(const zx_plan_options *o, zx_err *found)
{
    if (o->max_live_elements == 0) return;
    found->hint[0] = '\0';
    zx_err_hint(found, "a larger stage3_max_live_parameters, or none");
}

void zx_job_ways_out(zx_job *job, const zx_plan_options *o, zx_err *found)
{
    if (found->code != ZX_E_BUDGET) return;
    zx_plan_options all = *o;
    if (job->recompute_auto) zx_job_choose_all(job, &all);
    ways k = {.job = job, .o = &all};
    zx_text out = {0};
    k.least = bytes_of(&job->train, &all, &k.held);
    if (k.least == NEVER) { // no budget would do
        name_limit(&all, found);
        return;
    }
    uint32_t n = larger_budget(&k, &out);
    try_recompute(&k);
    try_batch(&k);
    try_stage(&k);
    try_ranks(&k);
    sort(&k);
    for (uint32_t i = 0; i < k.n && n < SHOWN; i++, n++) {
        char size[ZX_BYTES_TEXT];
        const bool last = i + 1 == k.n || n + 1 == SHOWN;
        zx_text_put(&out, "%s%s (needs %s)",
                    n == 0 ? ""
                    : last ? " or "
                           : ", ",
                    k.at[i].text, zx_text_size(k.at[i].bytes, size));
    }
    if (n > 0) {
        found->hint[0] = '\0';
        zx_err_hint(found, "%s", out.at);
    }
    zx_text_free(&out);
}
