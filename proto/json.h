// json.h - JSON files read with jansson, comments and trailing commas allowed.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_PROTO_JSON_H
#define ZX_PROTO_JSON_H

#include <jansson.h>

#include "graph/base/err.h"

// Reads a JSON file. //, # and /* */ comments and trailing commas are blanked to spaces first, so
// that line and column in errors stay true. Duplicate keys are refused. json_decref the result.
zx_status zx_json_read(const char *path, json_t **out, zx_err *err);
zx_status zx_json_parse(const char *what, const char *text, size_t n, json_t **out, zx_err *err);

#endif
