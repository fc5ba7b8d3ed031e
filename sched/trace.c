// trace.c - see trace.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/trace.h"

#include <inttypes.h>
#include <math.h>

#include "graph/count_loss.h"
#include "sched/sums.h"

const uint32_t *zx_trace_roots(const zx_graph *g, zx_arena *mem)
{
    return zx_graph_roots(g, mem);
}

// A product's operands are its first two inputs, but for one number: what a gradient is multiplied
// by.
static bool has_16_bit_operands(const zx_op_args *a)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_in && i < 2; i++) {
        if (a->in[i] == NULL || !zx_dtype_is_float(a->in[i]->dtype)) continue;
        if (zx_shape_count(&a->in[i]->shape) == 1) continue;
        if (zx_dtype_bytes(a->in[i]->dtype) != 2) return false;
        n++;
    }
    return n > 0;
}

// What a host measured in the type of 16 bits that the operator reads or writes; NULL.
static const zx_rates_16 *rates_16_of(const zx_op_args *a, const zx_machine *m)
{
    const zx_rates_16 *r = NULL;
    for (uint32_t i = 0; i < a->n_in && r == NULL; i++)
        if (a->in[i] != NULL) r = zx_machine_rates_16(m, a->in[i]->dtype);
    for (uint32_t i = 0; i < a->n_out && r == NULL; i++)
        r = zx_machine_rates_16(m, a->out[i].dtype);
    return m->cores > 0 ? r : NULL;
}

// How fast a host's products of 16 bits are, by which operand is turned. A linear layer's loss is a
// product by its weights turned, and the gradients of that are one of each.
static double product_rate(const zx_op_args *a, const zx_machine *m, const zx_rates_16 *r)
{
    const double nt = r->flops_nt > 0 ? r->flops_nt : r->flops;
    const double tn = r->flops_tn > 0 ? r->flops_tn : r->flops;
    switch (zx_kind_of(a)) {
    case ZX_KIND_MATMUL:
        if (zx_attr_int(a->attrs, ZX_A_TRANS_A, 0) != 0) return tn;
        return zx_attr_int(a->attrs, ZX_A_TRANS_B, 0) != 0 ? nt : r->flops;
    case ZX_KIND_LINEAR_CROSS_ENTROPY:
        return nt;
    case ZX_KIND_LINEAR_CROSS_ENTROPY_GRAD:
        return 3 / (1 / r->flops + 1 / nt + 1 / tn);
    case ZX_KIND_CONV:
    case ZX_KIND_CONV_GRAD_X:
    case ZX_KIND_CONV_GRAD_W:
        return r->flops;
    default:
        return m->flops; // attention, and what is no product: float32 whatever its operands are
    }
}

double zx_trace_products(const zx_op_args *args, const zx_machine *m, double flops)
{
    const zx_rates_16 *r = rates_16_of(args, m);
    if (r != NULL) return flops / product_rate(args, m, r);
    return flops / (has_16_bit_operands(args) ? m->flops_16 : m->flops);
}

zx_dtype zx_trace_param_type(const zx_graph *g)
{
    for (uint32_t u = 0; u < g->n_params; u++) {
        const zx_dtype t = g->values[g->params[u].value].type.dtype;
        if (zx_param_trained(g, u) && (t == ZX_BF16 || t == ZX_F16)) return t;
    }
    return ZX_F32;
}

// What an operator of a host takes beside its products.
static double kind_seconds(const zx_op_args *args, const zx_machine *m, const zx_cost *cost)
{
    const uint32_t kind = m->cores > 0 ? zx_kind_of(args) : ZX_NONE;
    const zx_rates_16 *r = rates_16_of(args, m);
    const double rate = kind == ZX_NONE                   ? 0
                        : r != NULL && r->rates[kind] > 0 ? r->rates[kind]
                                                          : m->rates[kind];
    return rate > 0 ? zx_kinds[kind].amount(args, cost) / rate : 0;
}

// Of what an operator moves, as much is found in a host's cache as its predecessors leave there:
// fitted to Add of 0.1 to 1.5 MB in steps.
static double moves_seconds(double bytes, const zx_machine *m, const zx_rates_16 *r)
{
    const double memory = r != NULL && r->memory > 0 ? r->memory : m->memory;
    const double near = r != NULL && r->near > 0 ? r->near : m->near;
    const double kept = m->cores > 0 && near > memory ? fmin(bytes, m->cache / 8) : 0;
    return (bytes - kept) / memory + (kept > 0 ? kept / near : 0);
}

double zx_trace_seconds(const zx_graph *g, const zx_node *n, const zx_machine *m, zx_cost *cost)
{
    const zx_type *in[64];
    zx_type out[8] = {0};
    const uint32_t n_in = n->n_in < ZX_COUNT(in) ? n->n_in : (uint32_t)ZX_COUNT(in);
    const uint32_t n_out = n->n_out < ZX_COUNT(out) ? n->n_out : (uint32_t)ZX_COUNT(out);
    for (uint32_t i = 0; i < n_in; i++) {
        const uint32_t v = zx_node_in(g, n, i);
        in[i] = v == ZX_NONE ? NULL : &g->values[v].type;
    }
    for (uint32_t i = 0; i < n_out; i++) {
        const uint32_t v = zx_node_out(g, n, i);
        if (v != ZX_NONE) out[i] = g->values[v].type;
    }
    const zx_op_args args = {n->op, &n->attrs, n_in, n_out, in, out};
    *cost = zx_ops[n->op].cost(&args);
    const double products = zx_trace_products(&args, m, cost->flops) + kind_seconds(&args, m, cost);
    const double moves = moves_seconds(cost->bytes, m, rates_16_of(&args, m));
    return (products > moves ? products : moves) + m->op_seconds;
}

bool zx_node_may_overwrite(const zx_graph *g, const zx_node *n, uint32_t in, uint32_t out)
{
    const uint32_t x = zx_node_in(g, n, in), y = zx_node_out(g, n, out);
    if (x == ZX_NONE || y == ZX_NONE) return false;
    const zx_type *a = &g->values[x].type, *b = &g->values[y].type;
    if (a->dtype != b->dtype || zx_type_bytes(a) != zx_type_bytes(b)) return false;
    if (n->op == ZX_OP_BATCH_NORM) return (in == 3 && out == 1) || (in == 4 && out == 2);
    if (n->op == ZX_OP_GATHER_GRAD) return in == 2 && out == 0;
    return out == 0 && (zx_ops[n->op].flags & ZX_OP_INPLACE) != 0;
}

typedef struct maker {
    const zx_graph *g;
    zx_arena *mem;
    zx_trace *t;
    uint32_t *step_of;   // by node
    uint32_t *last_read; // by root value: the last step that reads it; ZX_NONE
    bool *needed;        // by root value: read after the step (loss, gradient)
    bool *is_grad;       // by root value: reduced, so its bytes outlive the last step that reads it
    zx_where *where;
    zx_storage *storages;
} maker;

// Batch normalisation and its like write a buffer's next value over the working copy, so nobody may
// read the old one afterwards.
static zx_status join_buffers(maker *k, zx_err *err)
{
    const zx_graph *g = k->g;
    for (uint32_t b = 0; b < g->n_buffers; b++) {
        const zx_buffer *x = &g->buffers[b];
        k->where[x->value] = (zx_where){ZX_AT_BUFFER, b};
        if (x->next == ZX_NONE || k->t->root[x->next] == x->value) continue;
        const uint32_t next = k->t->root[x->next];
        const zx_value *v = &g->values[next];
        const zx_type *was = &g->values[x->value].type;
        if (v->role != ZX_R_MADE || k->where[next].kind != ZX_AT_NOWHERE || k->is_grad[next] ||
            zx_type_bytes(&v->type) != zx_type_bytes(was) || v->type.dtype != was->dtype)
            return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                           "buffer '%s' becomes '%s', which is not a value of its own and its size",
                           x->name, g->values[x->next].name);
        const zx_node *by = &g->nodes[v->by];
        const uint32_t read = k->last_read[x->value], made = k->step_of[v->by];
        bool fine = read == ZX_NONE || read < made;
        if (read == made) { // the maker itself reads it: only where that is in place
            fine = true;
            for (uint32_t i = 0; i < by->n_in; i++) {
                const uint32_t in = zx_node_in(g, by, i);
                if (in == ZX_NONE || k->t->root[in] != x->value) continue;
                bool ok = false;
                for (uint32_t o = 0; o < by->n_out; o++)
                    ok |= zx_node_out(g, by, o) == next && zx_node_may_overwrite(g, by, i, o);
                fine &= ok;
            }
        }
        if (!fine)
            return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                           "buffer '%s' is read again after node '%s' has changed it", x->name,
                           by->name);
        k->where[next] = (zx_where){ZX_AT_BUFFER, b};
    }
    return ZX_OK;
}

// The input whose bytes output 0 of a node may take over; ZX_NONE.
static uint32_t overwritten(const maker *k, const zx_node *n, uint32_t step)
{
    if ((zx_ops[n->op].flags & ZX_OP_INPLACE) == 0) return ZX_NONE;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const uint32_t v = zx_node_in(k->g, n, i);
        if (v == ZX_NONE || !zx_node_may_overwrite(k->g, n, i, 0)) continue;
        const uint32_t root = k->t->root[v];
        if (k->g->values[root].role == ZX_R_MADE && k->where[root].kind == ZX_AT_STORAGE &&
            k->last_read[root] == step && !k->is_grad[root] && !k->needed[root])
            return k->where[root].index;
    }
    return ZX_NONE;
}

static uint32_t add_storage(maker *k, uint32_t root, uint32_t input, uint32_t born)
{
    const uint32_t dies = k->last_read[root];
    k->storages[k->t->n_storages] = (zx_storage){
        .bytes = zx_type_bytes(&k->g->values[root].type),
        .value = root,
        .input = input,
        .born = born,
        .dies = dies == ZX_NONE || dies < born ? born : dies,
    };
    k->where[root] = (zx_where){ZX_AT_STORAGE, k->t->n_storages};
    return k->t->n_storages++;
}

static void place_outputs(maker *k)
{
    const zx_graph *g = k->g;
    for (uint32_t t = 0; t < k->t->n_steps; t++) {
        const zx_node *n = &g->nodes[k->t->node[t]];
        for (uint32_t o = 0; o < n->n_out; o++) {
            const uint32_t v = zx_node_out(g, n, o);
            if (v == ZX_NONE || k->where[v].kind != ZX_AT_NOWHERE) continue;
            if (o > 0 && k->last_read[v] == ZX_NONE && !k->needed[v]) continue;
            const uint32_t over = o == 0 ? overwritten(k, n, t) : ZX_NONE;
            if (over == ZX_NONE) {
                add_storage(k, v, ZX_NONE, t);
                continue;
            }
            k->where[v] = (zx_where){ZX_AT_STORAGE, over};
            const uint32_t dies = k->last_read[v];
            if (dies != ZX_NONE && dies > t) k->storages[over].dies = dies;
        }
    }
}

// Inputs are fed before the first step that reads them.
static void place_inputs(maker *k)
{
    const zx_graph *g = k->g;
    uint32_t *first = ZX_NEW(k->mem, uint32_t, g->n_values);
    for (uint32_t v = 0; v < g->n_values; v++) first[v] = ZX_NONE;
    for (uint32_t t = k->t->n_steps; t-- > 0;) {
        const zx_node *n = &g->nodes[k->t->node[t]];
        for (uint32_t i = 0; i < n->n_in; i++) {
            const uint32_t v = zx_node_in(g, n, i);
            if (v != ZX_NONE) first[k->t->root[v]] = t;
        }
    }
    uint32_t *at = ZX_NEW(k->mem, uint32_t, g->n_inputs);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const uint32_t v = g->inputs[i];
        at[i] = ZX_NONE;
        if (k->last_read[v] == ZX_NONE) continue;
        at[i] = add_storage(k, v, i, first[v] == ZX_NONE ? k->last_read[v] : first[v]);
    }
    k->t->input_at = at;
}

static void place_consts(maker *k)
{
    uint32_t *consts = ZX_NEW(k->mem, uint32_t, k->g->n_values);
    for (uint32_t v = 0; v < k->g->n_values; v++) {
        if (k->g->values[v].role != ZX_R_CONST || k->last_read[v] == ZX_NONE) continue;
        k->where[v] = (zx_where){ZX_AT_CONST, k->t->n_consts};
        consts[k->t->n_consts++] = v;
    }
    k->t->consts = consts;
}

// Notes a read of a value by something that isn't a step: it counts as the last step's where the
// value isn't made by a step.
static uint32_t read_outside(maker *k, uint32_t value, bool gradient)
{
    const uint32_t root = k->t->root[value];
    const zx_value *v = &k->g->values[root];
    k->needed[root] = true;
    if (v->role == ZX_R_MADE) {
        k->is_grad[root] |= gradient;
        return k->step_of[v->by];
    }
    return k->last_read[root] = k->t->n_steps - 1;
}

static void collect_steps(maker *k, const zx_plan_options *o)
{
    const zx_graph *g = k->g;
    zx_trace *t = k->t;
    uint32_t *node = ZX_NEW(k->mem, uint32_t, g->n_nodes);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        k->step_of[i] = ZX_NONE;
        if (!zx_node_runs(&g->nodes[i])) continue;
        k->step_of[i] = t->n_steps;
        node[t->n_steps++] = i;
    }
    zx_cost *cost = ZX_NEW(k->mem, zx_cost, t->n_steps);
    double *seconds = ZX_NEW(k->mem, double, t->n_steps),
           *at = ZX_NEW(k->mem, double, t->n_steps + 1);
    uint64_t *work = ZX_NEW(k->mem, uint64_t, t->n_steps);
    for (uint32_t s = 0; s < t->n_steps; s++) {
        const zx_node *n = &g->nodes[node[s]];
        seconds[s] = zx_trace_seconds(g, n, &o->machine, &cost[s]);
        at[s + 1] = at[s] + seconds[s];
        work[s] = o->work_bytes ? o->work_bytes[node[s]] : 0;
        for (uint32_t i = 0; i < n->n_in; i++) {
            const uint32_t v = zx_node_in(g, n, i);
            if (v != ZX_NONE) k->last_read[t->root[v]] = s;
        }
    }
    t->node = node;
    t->cost = cost;
    t->seconds = seconds;
    t->at = at;
    t->work = work;
}

// ---- uses and reuse distances
// ---------------------------------------------------------------------

static void measure_reuse(maker *k, zx_use *uses)
{
    const zx_graph *g = k->g;
    const zx_trace *t = k->t;
    const uint32_t n = t->n_uses, twice = 2 * n;
    uint64_t *sum = ZX_NEW(k->mem, uint64_t, twice + 1);
    uint64_t *elements = ZX_NEW(k->mem, uint64_t, twice + 1);
    uint32_t *seen = ZX_NEW(k->mem, uint32_t, g->n_params); // place of its last read, plus one
    for (uint32_t i = 0; i < twice; i++) {
        const uint32_t u = uses[i % n].unit;
        const zx_type *type = &g->values[g->params[u].value].type;
        const uint64_t bytes = zx_type_bytes(type);
        elements[i + 1] = elements[i] + (uint64_t)zx_shape_count(&type->shape);
        if (seen[u] > 0) {
            const uint32_t was = seen[u] - 1;
            zx_use *from = &uses[was % n];
            if (was < n) { // the second round only completes the first one's last uses
                const uint32_t to = uses[i % n].step + (i < n ? 0 : t->n_steps);
                from->next = i % n;
                from->steps = to - from->step - 1;
                from->seconds = t->at[uses[i % n].step] + (i < n ? 0 : t->at[t->n_steps]) -
                                t->at[from->step + 1];
                from->bytes = zx_sums_before(sum, i) - zx_sums_before(sum, was + 1);
                from->elements = elements[i] - elements[was + 1];
            }
            zx_sums_add(sum, twice, was, 0 - bytes);
        }
        seen[u] = i + 1;
        zx_sums_add(sum, twice, i, bytes);
    }
}

static bool empty(const zx_graph *g, uint32_t unit)
{
    return zx_shape_count(&g->values[g->params[unit].value].type.shape) == 0;
}

static void collect_uses(maker *k)
{
    const zx_graph *g = k->g;
    zx_trace *t = k->t;
    uint32_t most = g->n_params;
    for (uint32_t s = 0; s < t->n_steps; s++) most += g->nodes[t->node[s]].n_in;
    zx_use *uses = ZX_NEW(k->mem, zx_use, most);
    uint32_t *use_at = ZX_NEW(k->mem, uint32_t, t->n_steps + 1);
    uint32_t *first = ZX_NEW(k->mem, uint32_t, g->n_params);
    uint32_t *read_at =
        ZX_NEW(k->mem, uint32_t, g->n_params); // the last step that reads it, plus one
    for (uint32_t u = 0; u < g->n_params; u++) first[u] = ZX_NONE;
    for (uint32_t s = 0; s < t->n_steps; s++) {
        const zx_node *n = &g->nodes[t->node[s]];
        use_at[s] = t->n_uses;
        for (uint32_t i = 0; i < n->n_in; i++) {
            const uint32_t v = zx_node_in(g, n, i);
            if (v == ZX_NONE || k->where[t->root[v]].kind != ZX_AT_UNIT) continue;
            const uint32_t u = k->where[t->root[v]].index;
            if (read_at[u] == s + 1 || empty(g, u)) continue;
            read_at[u] = s + 1;
            if (first[u] == ZX_NONE) first[u] = t->n_uses;
            uses[t->n_uses++] = (zx_use){.step = s, .unit = u};
        }
        if (s + 1 < t->n_steps) continue;
        // A gradient or a loss that is a parameter's own bytes: read after the last step.
        for (uint32_t u = 0; u < g->n_params; u++) {
            if (!k->needed[g->params[u].value] || read_at[u] == s + 1 || empty(g, u)) continue;
            if (first[u] == ZX_NONE) first[u] = t->n_uses;
            uses[t->n_uses++] = (zx_use){.step = s, .unit = u};
        }
    }
    use_at[t->n_steps] = t->n_uses;
    t->uses = uses;
    t->use_at = use_at;
    t->first_use = first;
    measure_reuse(k, uses);
}

static zx_status check_graph(const zx_graph *g, zx_err *err)
{
    if (g->loss == ZX_NONE)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "the graph has no loss to train on");
    if (zx_shape_count(&g->values[g->loss].type.shape) != 1 && !zx_loss_is_counted(g))
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "the loss '%s' is not a scalar",
                       g->values[g->loss].name);
    for (uint32_t u = 0; u < g->n_params; u++) {
        const zx_param *p = &g->params[u];
        const zx_dtype type = g->values[p->value].type.dtype;
        if (type != ZX_F32 && type != ZX_BF16 && type != ZX_F16)
            return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                           "parameter '%s' is %s; float32, bfloat16 and float16 are planned",
                           p->name, zx_dtypes[type].word);
        if (p->grad == ZX_NONE) continue;
        ZX_ASSERT(zx_type_bytes(&g->values[p->grad].type) ==
                  zx_type_bytes(&g->values[p->value].type));
    }
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (zx_node_runs(&g->nodes[i])) return ZX_OK;
    return ZX_FAIL(err, ZX_E_UNSUPPORTED, "the graph computes nothing");
}

zx_status zx_trace_make(const zx_graph *g, const zx_plan_options *o, zx_arena *mem, zx_trace *out,
                        zx_err *err)
{
    ZX_TRY(check_graph(g, err));
    *out = (zx_trace){.graph = g, .micro_batches = o->micro_batches};
    maker k = {
        .g = g,
        .mem = mem,
        .t = out,
        .step_of = ZX_NEW(mem, uint32_t, g->n_nodes),
        .last_read = ZX_NEW(mem, uint32_t, g->n_values),
        .needed = ZX_NEW(mem, bool, g->n_values),
        .is_grad = ZX_NEW(mem, bool, g->n_values),
        .where = ZX_NEW(mem, zx_where, g->n_values),
        .storages = ZX_NEW(mem, zx_storage, g->n_values + 1),
    };
    out->root = zx_trace_roots(g, mem);
    for (uint32_t v = 0; v < g->n_values; v++) k.last_read[v] = ZX_NONE;
    collect_steps(&k, o);
    uint32_t *ready = ZX_NEW(mem, uint32_t, g->n_params);
    for (uint32_t u = 0; u < g->n_params; u++) {
        k.where[g->params[u].value] = (zx_where){ZX_AT_UNIT, u};
        ready[u] = zx_param_trained(g, u) ? read_outside(&k, g->params[u].grad, true) : ZX_NONE;
    }
    out->grad_ready = ready;
    out->loss_ready = read_outside(&k, g->loss, false);
    ZX_TRY(join_buffers(&k, err));
    for (uint32_t u = 0; u < g->n_params; u++)
        if (ready[u] != ZX_NONE && k.where[out->root[g->params[u].grad]].kind == ZX_AT_BUFFER)
            return ZX_FAIL(err, ZX_E_UNSUPPORTED, "the gradient of parameter '%s' is a buffer",
                           g->params[u].name);
    place_consts(&k);
    place_inputs(&k);
    place_outputs(&k);
    // Views are where their roots are.
    for (uint32_t v = 0; v < g->n_values; v++) k.where[v] = k.where[out->root[v]];
    out->storages = k.storages;
    out->where = k.where;
    collect_uses(&k);
    return ZX_OK;
}
