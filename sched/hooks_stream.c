// hooks_stream.c - the hook events of one micro-batch.
//
// Forward: a fetch where a module's call begins, a release where it ends. Backward runs the calls
// in reverse: a fetch for every tensor of a call whose gradient comes from outside it, a release
// once the gradients of all its inputs are there, and a parameter's gradient at the first node that
// reads it. A checkpointed call is run again, forward, when its backward comes to the first node
// that saved something, and as far as that node.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "sched/hooks_tree.h"

typedef struct call {
    uint32_t module, parent;
    uint32_t first, end;  // its nodes: a range of the sources
    uint32_t n_out, n_in; // tensors that get a gradient from outside; inputs that need one
    uint32_t n_fired;     // of those inputs, how many get one
} call;

typedef enum mark_kind { ENTER, EXIT, NODE } mark_kind;
typedef struct mark { // the forward pass, in order
    uint8_t kind;
    uint32_t id; // call, or source
} mark;

typedef struct stream {
    const zx_graph *g;
    zx_arena *mem;
    zx_module_tree t;
    uint32_t n_calls, cap_calls, n_marks, cap_marks, n_events, cap_events;
    call *calls;
    mark *marks;
    zx_hook *events;
    uint32_t *call_of; // by source
    uint32_t *maker;   // by tensor: the source that makes it; ZX_NONE
    bool *needs;       // by tensor: a gradient is taken of it
    uint32_t *last;    // by tensor: 1 + the last source that gives it a gradient; 0: none does
    uint32_t *group;   // by source: the first of its operator's nodes
    uint32_t *grad_at; // by parameter: the group whose backward completes its gradient; ZX_NONE
    bool *bias_first;  // by parameter: its gradient comes before others of its operator
    bool *crossed;     // by source, and the end: something that gets a gradient passes before it
} stream;

static void put_mark(stream *s, mark_kind kind, uint32_t id)
{
    ZX_GROW(s->mem, s->marks, s->n_marks, s->cap_marks);
    s->marks[s->n_marks++] = (mark){(uint8_t)kind, id};
}

static uint32_t add_call(stream *s, const call *x)
{
    ZX_GROW(s->mem, s->calls, s->n_calls, s->cap_calls);
    s->calls[s->n_calls] = *x;
    return s->n_calls++;
}

// ---- calls --------------------------------------------------------------------------------------

typedef struct opened {
    const char *said;
    uint32_t call;
} opened;

// The caller's list of all calls tells apart calls in a row, which the file doesn't: before the
// call of `path` it names a module again that is open. How many stay open then; n: it doesn't. *at,
// what of the list is behind, moves on to there.
static uint32_t open_again(const stream *s, const zx_hooks_options *o, const opened *stack,
                           uint32_t n, const char *path, uint32_t *at)
{
    uint32_t to = *at;
    while (to < o->n_calls && strcmp(o->calls[to], path) != 0) to++;
    if (to == o->n_calls) return n; // for merge_calls to say
    for (uint32_t i = *at; i < to; i++)
        for (uint32_t d = 1; d < n; d++) {
            if (strcmp(o->calls[i], s->t.modules[s->calls[stack[d].call].module].path) != 0)
                continue;
            *at = i;
            return d;
        }
    *at = to + 1;
    return n;
}

static void close_to(stream *s, const opened *stack, uint32_t *n, uint32_t depth, uint32_t end)
{
    for (; *n > depth; (*n)--) {
        s->calls[stack[*n - 1].call].end = end;
        put_mark(s, EXIT, stack[*n - 1].call);
    }
}

// A call is a maximal run of nodes of its scope.
static void find_calls(stream *s, const zx_hooks_options *o)
{
    const zx_graph *g = s->g;
    opened *stack = NULL;
    uint32_t n = 0, cap = 0, listed = 0;
    s->call_of = ZX_NEW(s->mem, uint32_t, g->n_sources + 1);
    ZX_GROW(s->mem, stack, n, cap);
    stack[n++] = (opened){"", add_call(s, &(call){.parent = ZX_NONE})};
    put_mark(s, ENTER, 0);
    for (uint32_t i = 0; i < g->n_sources; i++) {
        const zx_scopes *at = &s->t.scopes[i];
        uint32_t depth = 1;
        for (uint32_t k = 0; k < at->n; k++) {
            const uint32_t m = at->at[k].module;
            if (!s->t.modules[m].hooked) continue;
            if (depth < n && strcmp(stack[depth].said, at->at[k].said) == 0) {
                depth++;
                continue;
            }
            close_to(s, stack, &n, depth, i);
            const uint32_t stay = open_again(s, o, stack, n, s->t.modules[m].path, &listed);
            if (stay < n) {
                close_to(s, stack, &n, stay, i);
                depth = 1;
                k = UINT32_MAX; // from the outermost again
                continue;
            }
            const call x = {.module = m, .parent = stack[n - 1].call, .first = i};
            ZX_GROW(s->mem, stack, n, cap);
            stack[n++] = (opened){at->at[k].said, add_call(s, &x)};
            put_mark(s, ENTER, stack[n - 1].call);
            depth = n;
        }
        if (at->stated) close_to(s, stack, &n, depth, i);
        s->call_of[i] = stack[n - 1].call;
        put_mark(s, NODE, i);
    }
    close_to(s, stack, &n, 0, g->n_sources);
}

// ---- gradients ----------------------------------------------------------------------------------

// A gradient passes to this input: by the operator's row, and where the exporter wrote an Identity
// for a tensor that the model detaches, not at all.
static bool passes(const zx_source *x, uint32_t input)
{
    if (strcmp(x->op, "Identity") == 0 && strncmp(x->part, "detach", 6) == 0) return false;
    return x->in_ids[input] != ZX_NONE && ((x->diff >> (input < 31 ? input : 31)) & 1) != 0;
}

static bool is_param(const stream *s, uint32_t tensor)
{
    return s->t.params[tensor] != ZX_NONE;
}

// A gradient reaches source i: one of its outputs needs one and gets one.
static bool reached(const stream *s, uint32_t i)
{
    const zx_source *x = &s->g->sources[i];
    for (uint32_t k = 0; k < x->n_out; k++)
        if (x->out_ids[k] != ZX_NONE && s->last[x->out_ids[k]] > i && s->needs[x->out_ids[k]])
            return true;
    return false;
}

static void find_gradients(stream *s)
{
    const zx_graph *g = s->g;
    s->maker = ZX_NEW(s->mem, uint32_t, g->n_tensors + 1);
    s->needs = ZX_NEW(s->mem, bool, g->n_tensors + 1);
    s->last = ZX_NEW(s->mem, uint32_t, g->n_tensors + 1);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        s->maker[i] = ZX_NONE;
        s->needs[i] = is_param(s, i) && !g->params[s->t.params[i]].frozen;
    }
    for (uint32_t i = 0; i < g->n_sources; i++) {
        const zx_source *x = &g->sources[i];
        bool needs = false;
        for (uint32_t k = 0; k < x->n_in; k++)
            needs = needs || (passes(x, k) && s->needs[x->in_ids[k]]);
        for (uint32_t k = 0; k < x->n_out; k++) {
            if (x->out_ids[k] == ZX_NONE) continue;
            s->maker[x->out_ids[k]] = i;
            s->needs[x->out_ids[k]] |= needs; // a parameter may be made by a node, too
        }
    }
    if (g->source_loss != ZX_NONE) s->last[g->source_loss] = g->n_sources + 1;
    for (uint32_t i = g->n_sources; i-- > 0;) {
        const zx_source *x = &g->sources[i];
        if (!reached(s, i)) continue;
        for (uint32_t k = 0; k < x->n_in; k++)
            if (passes(x, k) && s->last[x->in_ids[k]] == 0) s->last[x->in_ids[k]] = i + 1;
    }
}

// torch.addmm(bias, x, weight), as Gemm or taken apart: autograd goes by its inputs. Attention with
// packed weights: the hooks make its inputs differ, so it takes weight and bias apart, bias last.
static bool is_bias_first(const zx_source *x, uint32_t input, const char *name)
{
    const size_t n = strlen(name), end = strlen(".in_proj_bias");
    if (n > end && strcmp(name + n - end, ".in_proj_bias") == 0) return true;
    if (strncmp(x->part, "addmm", 5) != 0) return false;
    return strcmp(x->op, "Add") == 0 || (strcmp(x->op, "Gemm") == 0 && input == 2);
}

// The nodes of one operator of the exporter's (a Linear's Transpose, MatMul and Add) complete their
// parameters' gradients together.
static void find_groups(stream *s)
{
    const zx_graph *g = s->g;
    s->group = ZX_NEW(s->mem, uint32_t, g->n_sources + 1);
    s->grad_at = ZX_NEW(s->mem, uint32_t, g->n_params + 1);
    s->bias_first = ZX_NEW(s->mem, bool, g->n_params + 1);
    for (uint32_t i = 0; i < g->n_params; i++) s->grad_at[i] = ZX_NONE;
    for (uint32_t i = 0; i < g->n_sources; i++) {
        const zx_source *x = &g->sources[i];
        const bool on = i > 0 && s->call_of[i] == s->call_of[i - 1] && x->part[0] != '\0' &&
                        strcmp(x->part, g->sources[i - 1].part) == 0;
        s->group[i] = on ? s->group[i - 1] : i;
        if (!reached(s, i)) continue;
        for (uint32_t k = 0; k < x->n_in; k++) {
            const uint32_t p = passes(x, k) ? s->t.params[x->in_ids[k]] : ZX_NONE;
            const bool alias = strcmp(x->op, "Identity") == 0;
            if (p == ZX_NONE || g->params[p].frozen || alias || s->grad_at[p] != ZX_NONE) continue;
            s->grad_at[p] = s->group[i];
            s->bias_first[p] = is_bias_first(x, k, g->params[p].name);
        }
    }
}

// What each call takes and gives, of what needs a gradient. Readers come after makers, so a tensor
// leaves a call if its last reader lies behind the call's end, and it is new to a call if nothing
// read it since the call began.
static void find_borders(stream *s)
{
    const zx_graph *g = s->g;
    uint32_t *read = ZX_NEW(s->mem, uint32_t, g->n_tensors + 1);  // 1 + the last reader so far
    uint32_t *given = ZX_NEW(s->mem, uint32_t, g->n_tensors + 1); // the same of those that give
    for (uint32_t i = 0; i < g->n_sources; i++) {
        const zx_source *x = &g->sources[i];
        const bool gives = reached(s, i);
        for (uint32_t k = 0; k < x->n_in; k++) {
            const uint32_t v = x->in_ids[k];
            if (v == ZX_NONE || !s->needs[v] || is_param(s, v)) continue;
            const bool fires = gives && passes(x, k);
            for (uint32_t c = s->call_of[i]; c != ZX_NONE; c = s->calls[c].parent) {
                call *at = &s->calls[c];
                if (s->maker[v] >= at->first) break;
                at->n_in += read[v] <= at->first;
                at->n_fired += fires && given[v] <= at->first;
            }
            read[v] = i + 1;
            if (fires) given[v] = i + 1;
        }
        for (uint32_t k = 0; k < x->n_out; k++) {
            const uint32_t v = x->out_ids[k];
            if (v == ZX_NONE || !s->needs[v] || is_param(s, v)) continue;
            for (uint32_t c = s->call_of[i]; c != ZX_NONE; c = s->calls[c].parent) {
                if (s->last[v] <= s->calls[c].end) break;
                s->calls[c].n_out++;
            }
        }
    }
}

// ---- calls that left no node --------------------------------------------------------------------

static void find_crossed(stream *s)
{
    const uint32_t n = s->g->n_sources;
    int64_t *change = ZX_NEW(s->mem, int64_t, (size_t)n + 3), now = 0;
    s->crossed = ZX_NEW(s->mem, bool, n + 1);
    for (uint32_t v = 0; v < s->g->n_tensors; v++) {
        if (!s->needs[v] || is_param(s, v) || s->maker[v] == ZX_NONE) continue;
        if (s->last[v] <= s->maker[v] + 1) continue;
        change[s->maker[v] + 1]++;
        change[s->last[v]]--;
    }
    for (uint32_t i = 0; i <= n; i++) s->crossed[i] = (now += change[i]) > 0;
}

// Calls paths[0..n): each begins where it stands and ends before the next that isn't below it. Such
// a module hands on one tensor.
static void insert_calls(stream *s, const char *const *paths, uint32_t n, uint32_t before)
{
    uint32_t *open = ZX_NEW(s->mem, uint32_t, n + 1), n_open = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t m = zx_module_find(&s->t, paths[i]);
        if (!s->t.modules[m].hooked) continue;
        while (n_open > 0 &&
               !zx_module_below(paths[i], s->t.modules[s->calls[open[n_open - 1]].module].path))
            put_mark(s, EXIT, open[--n_open]);
        const uint32_t some = s->crossed[before] ? 1 : 0;
        const call x = {m, ZX_NONE, before, before, some, some, some};
        open[n_open] = add_call(s, &x);
        put_mark(s, ENTER, open[n_open++]);
    }
    while (n_open > 0) put_mark(s, EXIT, open[--n_open]);
}

// The caller's list of all calls against those that the file shows: the latter must be in it, in
// order; what else is in it left no node.
static zx_status merge_calls(stream *s, const zx_hooks_options *o, zx_err *err)
{
    const mark *old = s->marks;
    const uint32_t n_old = s->n_marks;
    uint32_t at = 0, node = 0;
    find_crossed(s);
    s->marks = NULL;
    s->n_marks = s->cap_marks = 0;
    for (uint32_t i = 0; i < n_old; i++) {
        if (old[i].kind == NODE) node = old[i].id + 1;
        const uint32_t id = old[i].id;
        const char *path = old[i].kind == NODE ? "" : s->t.modules[s->calls[id].module].path;
        uint32_t to = at;
        if (old[i].kind == ENTER && id > 0) {
            while (to < o->n_calls && strcmp(o->calls[to], path) != 0) to++;
            if (to == o->n_calls)
                return ZX_FAIL(err, ZX_E_USAGE,
                               "--modules: the call of '%s' that the file shows isn't in the list, "
                               "or not in this order (after %u of its %u lines)",
                               zx_text_safe(s->mem, path), at, o->n_calls);
        } else if (old[i].kind == EXIT) {
            uint32_t next = i;
            while (next < n_old && old[next].kind != ENTER) next++;
            const char *ahead =
                next < n_old ? s->t.modules[s->calls[old[next].id].module].path : NULL;
            while (to < o->n_calls && zx_module_below(o->calls[to], path) &&
                   (ahead == NULL || strcmp(o->calls[to], ahead) != 0))
                to++;
        }
        insert_calls(s, o->calls + at, to - at, node);
        at = to + (old[i].kind == ENTER && id > 0);
        put_mark(s, (mark_kind)old[i].kind, id);
    }
    return ZX_OK;
}

// ---- events -------------------------------------------------------------------------------------

static void put_event(stream *s, zx_hook_kind kind, zx_phase phase, uint32_t id, uint32_t at)
{
    ZX_GROW(s->mem, s->events, s->n_events, s->cap_events);
    s->events[s->n_events++] = (zx_hook){(uint8_t)kind, (uint8_t)phase, id, at, ZX_NONE};
}

// The node reads what its call's module didn't ask for: another module's parameter.
static bool reads_others(const stream *s, uint32_t source)
{
    const zx_module *m = &s->t.modules[s->calls[s->call_of[source]].module];
    const zx_source *x = &s->g->sources[source];
    if (m->first == NULL || strcmp(x->op, "Identity") == 0) return false;
    for (uint32_t k = 0; k < x->n_in; k++) {
        const uint32_t p = x->in_ids[k] == ZX_NONE ? ZX_NONE : s->t.params[x->in_ids[k]];
        bool asked = p == ZX_NONE;
        for (uint32_t i = 0; i < m->n_first && !asked; i++) asked = m->first[i] == p;
        if (!asked) return true;
    }
    return false;
}

// Marks [from, to) as the forward pass has them.
static void put_forward(stream *s, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        if (s->marks[i].kind == NODE) {
            const uint32_t id = s->marks[i].id;
            if (reads_others(s, id))
                put_event(s, ZX_HOOK_READ, ZX_FORWARD, s->calls[s->call_of[id]].module, id);
            continue;
        }
        const call *c = &s->calls[s->marks[i].id];
        if (s->marks[i].kind == ENTER) put_event(s, ZX_HOOK_FETCH, ZX_FORWARD, c->module, c->first);
        if (s->marks[i].kind == EXIT) put_event(s, ZX_HOOK_RELEASE, ZX_FORWARD, c->module, c->end);
    }
}

// ---- checkpointed calls -------------------------------------------------------------------------

// Whether the node's backward needs what the forward saved. What isn't listed does.
static bool saves(const zx_source *x)
{
    static const char *const none[] = {
        "Add",        "Cast",     "CastLike", "Concat", "Expand",
        "Flatten",    "Identity", "Neg",      "Pad",    "ReduceMean",
        "ReduceSum",  "Reshape",  "Slice",    "Split",  "SplitToSequence",
        "SequenceAt", "Squeeze",  "Sub",      "Sum",    "Transpose",
        "Unsqueeze"};
    for (size_t i = 0; i < ZX_COUNT(none); i++)
        if (strcmp(x->op, none[i]) == 0) return false;
    return true;
}

static bool is_checkpointed(const zx_hooks_options *o, const char *path)
{
    for (uint32_t i = 0; i < o->n_again; i++)
        if (strcmp(o->again[i], path) == 0) return true;
    return false;
}

// The call from its beginning to the node at mark `to`, where it is left: what encloses that node
// gets no release.
static void run_again(stream *s, uint32_t id, uint32_t to)
{
    const uint32_t first = s->n_events;
    uint32_t from = to;
    while (s->marks[from].kind != ENTER || s->marks[from].id != id) from--;
    put_forward(s, from, to);
    for (uint32_t i = first; i < s->n_events; i++) s->events[i].again = s->calls[id].end;
}

typedef struct grad {
    uint32_t at, param;
    bool before; // the others of its operator
} grad;

static int last_first(const void *a, const void *b)
{
    const grad *x = a, *y = b;
    if (x->at != y->at) return x->at > y->at ? -1 : 1;
    if (x->before != y->before) return x->before ? -1 : 1;
    return x->param < y->param ? -1 : x->param > y->param;
}

// The gradients of a leaf's parameters come together, at the end of its whole backward; the others'
// with the operator that reads them first.
static void put_backward(stream *s, const zx_hooks_options *o)
{
    const uint32_t n_params = s->g->n_params, n_modules = s->t.n_modules;
    grad *grads = ZX_NEW(s->mem, grad, n_params + 1);
    uint32_t n = 0, next = 0;
    uint32_t *leaf_of = ZX_NEW(s->mem, uint32_t, n_params + 1);
    uint32_t *first_call = ZX_NEW(s->mem, uint32_t, n_modules + 1);
    int64_t *remaining = ZX_NEW(s->mem, int64_t, n_modules + 1); // reset by each forward call
    for (uint32_t m = 0; m < n_modules; m++) first_call[m] = ZX_NONE;
    for (uint32_t p = 0; p < n_params; p++) leaf_of[p] = ZX_NONE;
    for (uint32_t i = 0; i < s->n_marks; i++) {
        if (s->marks[i].kind != ENTER) continue;
        const call *c = &s->calls[s->marks[i].id];
        const zx_module *m = &s->t.modules[c->module];
        remaining[c->module] = c->n_in;
        if (first_call[c->module] != ZX_NONE) continue;
        first_call[c->module] = s->marks[i].id;
        for (uint32_t k = 0; m->leaf && c->n_out > 0 && k < m->n_all; k++)
            if (!s->g->params[m->all[k]].frozen)
                leaf_of[m->all[k]] = c->module; // of several leaves, the last
    }
    for (uint32_t p = 0; p < n_params; p++)
        if (leaf_of[p] == ZX_NONE && s->grad_at[p] != ZX_NONE)
            grads[n++] = (grad){s->grad_at[p], p, s->bias_first[p]};
    if (n > 0) qsort(grads, n, sizeof *grads, last_first);

    uint32_t again = ZX_NONE; // a checkpointed call that hasn't run again yet
    for (uint32_t i = s->n_marks; i-- > 0;) {
        const uint32_t id = s->marks[i].id;
        if (s->marks[i].kind == NODE) {
            if (again != ZX_NONE && reached(s, id) && saves(&s->g->sources[id])) {
                run_again(s, again, i);
                again = ZX_NONE;
            }
            for (; next < n && grads[next].at == id; next++)
                put_event(s, ZX_HOOK_GRAD, ZX_BACKWARD, grads[next].param, id);
            continue;
        }
        const call *c = &s->calls[id];
        const zx_module *m = &s->t.modules[c->module];
        if (s->marks[i].kind == EXIT) {
            for (uint32_t k = 0; k < c->n_out; k++)
                put_event(s, ZX_HOOK_FETCH, ZX_BACKWARD, c->module, c->end);
            if (again == ZX_NONE && is_checkpointed(o, m->path)) again = id;
            continue;
        }
        if (again == id) again = ZX_NONE; // it saved nothing
        for (uint32_t k = 0; m->leaf && c->n_out > 0 && k < m->n_all; k++)
            if (leaf_of[m->all[k]] == c->module)
                put_event(s, ZX_HOOK_GRAD, ZX_BACKWARD, m->all[k], c->first);
        for (uint32_t k = 0; k < c->n_fired; k++)
            if (--remaining[c->module] == 0)
                put_event(s, ZX_HOOK_RELEASE, ZX_BACKWARD, c->module, c->first);
    }
}

// A leaf's gradients are handed on when its inputs have theirs; where none needs one that is before
// its parameters are fetched, and the original fails.
static void note_leaves(const stream *s, zx_notes *notes)
{
    bool *said = ZX_NEW(s->mem, bool, s->t.n_modules + 1);
    for (uint32_t i = 0; i < s->n_calls; i++) {
        const call *c = &s->calls[i];
        const zx_module *m = &s->t.modules[c->module];
        if (!m->leaf || c->n_in > 0 || c->n_out == 0 || m->n_all == 0 || said[c->module]) continue;
        said[c->module] = true;
        zx_note(
            notes, s->mem,
            "leaf module '%s' takes no tensor that needs a gradient: DeepSpeed 0.19 stops in its "
            "backward pass",
            m->path[0] ? zx_text_safe(s->mem, m->path) : "<root>");
    }
}

zx_status zx_hooks_make(const zx_graph *g, const zx_hooks_options *o, zx_arena *mem, zx_hooks *out,
                        zx_notes *notes, zx_err *err)
{
    stream s = {.g = g, .mem = mem};
    *out = (zx_hooks){0};
    if (g->n_tensors == 0 || g->source_loss == ZX_NONE)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "%s: a file with a loss is needed to follow hooks",
                       g->name);
    ZX_TRY(zx_module_tree_make(g, o, mem, &s.t, notes, err));
    find_calls(&s, o);
    find_gradients(&s);
    find_groups(&s);
    find_borders(&s);
    if (o->n_calls > 0) ZX_TRY(merge_calls(&s, o, err));
    note_leaves(&s, notes);
    put_forward(&s, 0, s.n_marks);
    out->n_forward = s.n_events;
    put_backward(&s, o);
    zx_note(notes, mem, "assumed of modules, since no file can tell: see docs/COMPARE.md%s",
            o->n_calls > 0 ? "" : "; --modules FILE lists their calls");

    const char **names = ZX_NEW(mem, const char *, g->n_params + 1);
    int64_t *numel = ZX_NEW(mem, int64_t, g->n_params + 1);
    for (uint32_t i = 0; i < g->n_params; i++) {
        names[i] = g->params[i].name;
        numel[i] = zx_shape_count(&g->values[g->params[i].value].type.shape);
    }
    *out = (zx_hooks){.n_modules = s.t.n_modules,
                      .n_params = g->n_params,
                      .n_events = s.n_events,
                      .n_forward = out->n_forward,
                      .modules = s.t.modules,
                      .params = names,
                      .numel = numel,
                      .events = s.events};
    return ZX_OK;
}
