// hooks.h - the decisions of a hook-driven ZeRO-3 (DeepSpeed 0.19), one by one, from a model file.
//
// Three steps: the modules that a file shows and what each reads (hooks_tree.c), the stream of hook
// events of one micro-batch (hooks_stream.c), and the coordinator that answers each event with
// gathers, frees and reduces (hooks.c). hooks_text.c writes the answers down.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_HOOKS_H
#define ZX_SCHED_HOOKS_H

#include "graph/base/text.h"
#include "graph/import.h"

// ---- modules ------------------------------------------------------------------------------------

typedef struct zx_module {
    const char *path; // "" for the root, which is module 0
    const char *type; // its class with its Python module; "" where the file doesn't say
    bool hooked;      // false: within a leaf
    bool leaf;        // fetched with all below it, as one
    uint32_t n_own, n_all;
    const uint32_t *own, *all; // parameters read in it, and in it or below it; ascending
    // What it asks for before its first call has shown that it reads other modules' parameters,
    // too; NULL: it reads none.
    const uint32_t *first;
    uint32_t n_first;
} zx_module;

typedef enum zx_hook_kind {
    ZX_HOOK_FETCH,
    ZX_HOOK_RELEASE,
    ZX_HOOK_GRAD,
    ZX_HOOK_READ // forward: the module reads a parameter of another
} zx_hook_kind;
typedef struct zx_hook {
    uint8_t kind;  // zx_hook_kind
    uint8_t phase; // zx_phase; of a GRAD: backward
    uint32_t id;   // module; of a GRAD the parameter
    // Where: forward, all sources before this one have run; backward, of all from this one on
    // their backward has.
    uint32_t at;
    uint32_t again; // forward, but run again in the backward pass, of the checkpointed call that
                    // ends before this source; ZX_NONE: it is not
} zx_hook;

typedef struct zx_hooks { // what a micro-batch asks of the coordinator
    uint32_t n_modules, n_params, n_events;
    uint32_t n_forward; // events of the forward pass; the backward's come after them
    const zx_module *modules;
    const char *const *params; // names by id, as the file has them
    const int64_t *numel;
    const zx_hook *events;
} zx_hooks;

typedef struct zx_hooks_options {            // of the event stream
    uint32_t n_names, n_suffixes, n_classes; // leaf_module.names, .name_suffixes, .classes
    const char *const *names, *const *suffixes, *const *classes;
    bool default_classes; // nobody asked for them: no note where one isn't found
    int64_t granularity;  // stage3_module_granularity_threshold; 0: none
    uint32_t n_calls;
    const char *const
        *calls; // paths of all calls in order, where the file can't tell; NULL: it can
    uint32_t n_again;
    const char *const *again; // paths of modules that are checkpointed: run again for backward
} zx_hooks_options;

// Of a forward graph that was imported from a file, before any folding. Notes say what is assumed
// where no file can tell, and which leaves aren't there. E_UNSUPPORTED: the file has no module
// paths; E_USAGE: `calls` contradict it.
zx_status zx_hooks_make(const zx_graph *g, const zx_hooks_options *o, zx_arena *mem, zx_hooks *out,
                        zx_notes *notes, zx_err *err);

// ---- the coordinator ----------------------------------------------------------------------------

typedef struct zx_hook_limits { // all in elements, never bytes
    int64_t prefetch_bucket, max_live, max_reuse, param_persistence, model_persistence,
        reduce_bucket;
    uint32_t accumulate; // micro-batches between optimizer steps, >= 1
    bool no_memo;        // decide every release anew (the original never does)
} zx_hook_limits;

typedef enum zx_hook_mode { ZX_HOOK_INVALID, ZX_HOOK_RECORD, ZX_HOOK_COMPLETE } zx_hook_mode;

typedef enum zx_decision_kind {
    ZX_DECIDED_FETCH,   // id: module; step, mode, elements: live as counted before it
    ZX_DECIDED_RELEASE, // id: module; step
    ZX_DECIDED_GATHER,  // params in one launch, elements
    ZX_DECIDED_WAIT,    // id: parameter in flight; the first of a launch lands all of it
    ZX_DECIDED_FREE,    // id: parameter
    ZX_DECIDED_GRAD,    // id: parameter, copied into the bucket
    ZX_DECIDED_REDUCE,  // params of one flush, elements
    ZX_DECIDED_REGATHER // persistent params after the optimizer, a launch each; not in the logs
} zx_decision_kind;

typedef struct zx_decision {
    uint8_t kind, phase, mode;
    uint32_t id, step;
    uint32_t first, n; // range of zx_coordinator's lists
    uint32_t event;    // at which it was decided; ZX_NONE: before the first; their number: after
                       // the last
    int64_t elements;
} zx_decision;

typedef struct zx_coordinator zx_coordinator;

// Starts before the first micro-batch. `hooks` must outlive it; all its memory is in `mem`.
zx_coordinator *zx_coordinator_make(const zx_hooks *hooks, const zx_hook_limits *l, zx_arena *mem);
// One micro-batch: reset, these events (those of `hooks`, or others over its modules, as tests
// have them), flush, leftovers, and the optimizer step where one is due. A stream without a
// backward part counts as an evaluation: nothing is flushed, no micro-batch counted. What was
// decided is then in zx_coordinator_decided, until the next call. E_UNSUPPORTED where the original
// stops with a tracing error.
zx_status zx_coordinator_run(zx_coordinator *c, const zx_hook *events, uint32_t n_events,
                             zx_err *err);
const zx_decision *zx_coordinator_decided(const zx_coordinator *c, uint32_t *n,
                                          const uint32_t **lists);

// ---- written down -------------------------------------------------------------------------------

// The decisions of one micro-batch in the words of DeepSpeed's instrumented logs.
void zx_hooks_put(const zx_hooks *h, const zx_coordinator *c, uint32_t micro, zx_text *out);

#endif
