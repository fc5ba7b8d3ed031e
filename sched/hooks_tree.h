// hooks_tree.h - what hooks_tree.c finds in a file and hooks_stream.c makes events of.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_HOOKS_TREE_H
#define ZX_SCHED_HOOKS_TREE_H

#include "sched/hooks.h"

typedef struct zx_scope { // one module on the way from the root to a node
    const char *said;     // as the file has it: "a.b@1" for a second call of a.b
    uint32_t module;
} zx_scope;

typedef struct zx_scopes {
    bool stated; // false: the node belongs to the call that is open there
    uint32_t n;  // without the root
    const zx_scope *at;
} zx_scopes;

typedef struct zx_module_tree {
    uint32_t n_modules;
    zx_module *modules; // the root, then by path
    zx_scopes *scopes;  // by source
    uint32_t *params;   // by tensor: the parameter that it is, also through Identity; ZX_NONE
} zx_module_tree;

zx_status zx_module_tree_make(const zx_graph *g, const zx_hooks_options *o, zx_arena *mem,
                              zx_module_tree *out, zx_notes *notes, zx_err *err);
uint32_t zx_module_find(const zx_module_tree *t, const char *path); // ZX_NONE: there is none
bool zx_module_below(const char *path, const char *above); // strictly; all is below the root ""

#endif
