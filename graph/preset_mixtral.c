// preset_mixtral.c - the experts of Mixtral (Jiang et al. 2024): a router sends each token to two
// of eight feed-forward parts.
//
// Shapes are known ahead of time, so each expert takes an equal part of all rows. Rows are sorted
// by expert (stable), each expert takes its slice, and what comes out is sorted back: what
// published Mixtral computes as long as the router is balanced, and the same bytes and products.
// SPDX-License-Identifier: Apache-2.0
#include "graph/preset_net.h"

// The place in `order` of each of its numbers 0 .. count-1, which are sorted upwards: along axis 0,
// equal ones in the order in which they stand.
static const char *sorted_places(zx_net *n, const char *role, const char *order, int64_t count)
{
    const char *out[] = {zx_arena_printf(n->mem, "%s_sorted", role), role};
    const char *const in[] = {order, zx_net_ints(n, 1, &count)};
    zx_net_node(n, "TopK", role, 2, in, 2, out);
    zx_onnx_node_int(&n->out, n->node, "axis", 0);
    zx_onnx_node_int(&n->out, n->node, "largest", 0);
    return out[1];
}

// The probabilities of the chosen experts, which sum to 1, and their numbers: each [rows, chosen].
static void route(zx_net *n, const char *rows, const zx_preset *p, const char **weights,
                  const char **experts)
{
    const int64_t last = -1;
    const char *logits = zx_preset_linear(n, "gate", rows, p->s.width, p->experts);
    const char *all = zx_net_op_int(n, "Softmax", "router_probabilities", logits, NULL, "axis", -1);
    const char *const in[] = {all, zx_net_ints(n, 1, &p->chosen)};
    const char *out[] = {"top_probabilities", "selected_experts"};
    zx_net_node(n, "TopK", "top_k", 2, in, 2, out);
    zx_onnx_node_int(&n->out, n->node, "axis", -1);
    const char *sum = zx_net_op_int(n, "ReduceSum", "top_probabilities_sum", out[0],
                                    zx_net_ints(n, 1, &last), "keepdims", 1);
    *weights = zx_net_op(n, "Div", "routing_weights", out[0], sum, NULL);
    *experts = out[1];
}

// Each expert's slice of x [slots, C] through that expert.
static const char *work(zx_net *n, const char *x, int64_t slots, const zx_preset *p)
{
    const uint32_t experts = (uint32_t)p->experts;
    int64_t *sizes = ZX_NEW(n->mem, int64_t, experts);
    const char **part = ZX_NEW(n->mem, const char *, experts);
    for (uint32_t i = 0; i < experts; i++) {
        sizes[i] = slots / p->experts;
        part[i] = zx_arena_printf(n->mem, "rows_of_%u", i);
    }
    const char *const in[] = {x, zx_net_ints(n, experts, sizes)};
    zx_net_node(n, "Split", "split_rows", 2, in, experts, part);
    zx_onnx_node_int(&n->out, n->node, "axis", 0);
    for (uint32_t i = 0; i < experts; i++) {
        zx_net_enter(n, zx_arena_printf(n->mem, "experts.%u", i));
        x = zx_preset_gated(n, part[i], "w1", "w3", &p->s);
        part[i] = zx_preset_linear(n, "w2", x, p->s.hidden, p->s.width);
        zx_net_leave(n);
    }
    const char *y = "expert_rows";
    zx_net_node(n, "Concat", "concat_rows", experts, part, 1, &y);
    zx_onnx_node_int(&n->out, n->node, "axis", 0);
    return y;
}

const char *zx_preset_experts(zx_net *n, const char *x, const zx_preset *p)
{
    const int64_t rows = p->s.batch * p->s.sequence, slots = rows * p->chosen, c = p->s.width;
    const int64_t middle = 1, last = -1;
    const char *weights, *experts;
    zx_net_enter(n, "block_sparse_moe");
    x = zx_net_reshape(n, "rows", x, 2, (const int64_t[]){rows, c});
    route(n, x, p, &weights, &experts);
    // A slot is a token's first or second expert: slot i is token i / chosen.
    experts = zx_net_reshape(n, "slots", experts, 1, &slots);
    const char *order = sorted_places(n, "slots_by_expert", experts, slots);
    const char *back = sorted_places(n, "places_of_slots", order, slots);
    const char *tokens =
        zx_net_op(n, "Div", "tokens_by_expert", order, zx_net_int(n, p->chosen), NULL);
    x = zx_net_op_int(n, "Gather", "gathered_rows", x, tokens, "axis", 0);
    x = work(n, x, slots, p);
    x = zx_net_op_int(n, "Gather", "rows_of_slots", x, back, "axis", 0);
    x = zx_net_reshape(n, "rows_of_tokens", x, 3, (const int64_t[]){rows, p->chosen, c});
    weights = zx_net_op(n, "Unsqueeze", "weights_of_rows", weights, zx_net_ints(n, 1, &last), NULL);
    x = zx_net_op(n, "Mul", "weighted_rows", x, weights, NULL);
    x = zx_net_op_int(n, "ReduceSum", "summed_rows", x, zx_net_ints(n, 1, &middle), "keepdims", 0);
    x = zx_net_reshape(n, "hidden_states", x, 3, (const int64_t[]){p->s.batch, p->s.sequence, c});
    zx_net_leave(n);
    return x;
}
