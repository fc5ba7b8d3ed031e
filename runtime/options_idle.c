// options_idle.c - options that others leave nothing to do: refused, from the command line alone.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/options.h"

enum { // bits of the commands' column
#define X(id, word, operand, help, example) id = 1 << ZX_CMD_##id,
    ZX_COMMAND_MAP(X)
#undef X
};

static bool is_one_of(const char *word, const char *a, const char *b)
{
    return word != NULL && (strcmp(word, a) == 0 || strcmp(word, b) == 0);
}

static bool shows_no_bound(const zx_options *o)
{
    return is_one_of(zx_given_text(o, ZX_OPT_FORMAT), "states", "trace");
}

static bool sweeps(const zx_options *o, const char *what)
{
    const char *sweep = zx_given_text(o, ZX_OPT_SWEEP);
    return sweep != NULL && strncmp(sweep, what, strlen(what)) == 0;
}

static bool sweeps_budgets(const zx_options *o)
{
    return sweeps(o, "budget=");
}

static bool sweeps_bandwidths(const zx_options *o)
{
    return sweeps(o, "bandwidth=");
}

bool zx_options_name_machine(const zx_options *o)
{
    const char *named = o->command == ZX_CMD_MACHINE && o->operand != NULL
                            ? o->operand
                            : zx_given_text(o, ZX_OPT_MACHINE);
    return named != NULL && !is_one_of(named, "host", "constants");
}

static bool no_model(const zx_options *o)
{
    return zx_given(o, ZX_OPT_EXPLAIN) && o->operand == NULL;
}

static bool least_of_a_plan(const zx_options *o)
{
    const char *budget = zx_given_text(o, ZX_OPT_BUDGET);
    return zx_given(o, ZX_OPT_PLAN_FILE) && budget != NULL && strcmp(budget, "min") == 0;
}

zx_status zx_options_check_idle(const zx_options *o, zx_err *err)
{
    static const struct {
        zx_option_id id;
        unsigned commands;
        bool (*when)(const zx_options *o);
        const char *why;
    } rules[] = {
        {ZX_OPT_CERTIFY, PLAN | SIMULATE, shows_no_bound, "--format text and json show it"},
        {ZX_OPT_JITTER, PLAN | SIMULATE, shows_no_bound, "--format text and json show it"},
        {ZX_OPT_BUDGET, COMPARE, sweeps_budgets, "--sweep has the budgets"},
        {ZX_OPT_BANDWIDTH, COMPARE, sweeps_bandwidths, "--sweep has the bandwidths"},
        {ZX_OPT_THREADS, MACHINE, zx_options_name_machine,
         "it is of this host, and another machine is named"},
        {ZX_OPT_CALIBRATE, MACHINE, zx_options_name_machine,
         "it measures this host, and another machine is named"},
        {ZX_OPT_DIM, CONFIG, no_model, "it is of a model, and none is given"},
        {ZX_OPT_BUDGET, TRAIN, least_of_a_plan,
         "the least memory is looked for where a plan is made, and --plan gives one"},
    };
    for (size_t i = 0; i < ZX_COUNT(rules); i++) {
        if ((rules[i].commands >> o->command & 1) == 0 || !zx_given(o, rules[i].id)) continue;
        if (o->help || !rules[i].when(o)) continue;
        zx_arena mem = {0};
        const zx_status st = ZX_FAIL(err, ZX_E_USAGE, "%s has no effect: %s",
                                     zx_option_word(rules[i].id, &mem), rules[i].why);
        zx_arena_free(&mem);
        return st;
    }
    return ZX_OK;
}
