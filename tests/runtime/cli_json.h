// cli_json.h - what the program says in JSON, read.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_RUNTIME_CLI_JSON_H
#define ZX_TESTS_RUNTIME_CLI_JSON_H

#include <jansson.h>

#include "tests/runtime/cli.h"

// `zerox ARGS`, which has to end well, and its stdout. The caller's to json_decref.
static inline json_t *cli_json(const char *const *args)
{
    static cli_result r;
    json_error_t e;
    cli_run(args, &r);
    cli_expect(&r, 0, NULL, NULL);
    json_t *all = json_load_file(".out", 0, &e);
    if (all == NULL) fail_msg("line %d: %s in %s", e.line, e.text, r.out);
    return all;
}

static inline double cli_number(const json_t *x, const char *name)
{
    const json_t *v = json_object_get(x, name);
    if (!json_is_number(v)) fail_msg("no number '%s'", name);
    return json_number_value(v);
}

#endif
