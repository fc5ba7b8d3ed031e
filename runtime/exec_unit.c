// exec_unit.c - what is done with a unit's elements, whatever their type: a parameter of 16 bits
// has a float32 copy, which the optimizer changes and the parameter is rounded from.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/exec.h"

// Element `at` of what a slot holds; NULL: there is no slot.
static void *element(const zx_session *s, uint32_t slot, int64_t at, uint32_t bytes)
{
    return slot == ZX_NONE ? NULL : (unsigned char *)zx_slot_at(s, slot) + at * bytes;
}

double zx_exec_square_sum(const zx_session *s, const zx_unit *u)
{
    int64_t at;
    const int64_t n = zx_unit_piece(u, s->rank, &at);
    if (u->grad_slot == ZX_NONE || n == 0) return 0;
    return zx_cpu_square_sum_of(zx_unit_type(s, u->grad_bytes),
                                element(s, u->grad_slot, u->grad_whole ? at : 0, u->grad_bytes), n,
                                (int)s->o.threads);
}

static void step(const zx_session *s, const zx_unit *u, const zx_mixed *x, float *p,
                 float *const state[2], int64_t n)
{
    const int threads = (int)s->o.threads;
    if (s->o.optim.kind == ZX_OPTIM_ADAM) {
        const zx_adam_args a = zx_exec_adam(s, u);
        if (x->low != NULL)
            zx_cpu_adam_mixed(p, x, state[0], state[1], n, &a, threads);
        else
            zx_cpu_adam(p, x->g, state[0], state[1], n, &a, threads);
    } else if (s->o.optim.kind == ZX_OPTIM_LION) {
        const zx_lion_args a = zx_exec_lion(s, u);
        if (x->low != NULL)
            zx_cpu_lion_mixed(p, x, state[0], n, &a, threads);
        else
            zx_cpu_lion(p, x->g, state[0], n, &a, threads);
    } else {
        const zx_sgd_args a = zx_exec_sgd(s, u);
        if (x->low != NULL)
            zx_cpu_sgd_mixed(p, x, state[0], n, &a, threads);
        else
            zx_cpu_sgd(p, x->g, state[0], n, &a, threads);
    }
}

void zx_exec_update(zx_session *s, const zx_unit *u)
{
    int64_t at = 0, n = u->numel;
    if (!u->state_whole) n = zx_unit_piece(u, s->rank, &at);
    if (n == 0) return;
    void *param = element(s, u->param_slot, u->param_whole ? at : 0, u->param_bytes);
    const bool mixed = u->master_slot != ZX_NONE;
    const zx_mixed x = {.low_type = zx_unit_type(s, u->param_bytes),
                        .g_type = zx_unit_type(s, u->grad_bytes),
                        .low = mixed ? param : NULL,
                        .g = element(s, u->grad_slot, u->grad_whole ? at : 0, u->grad_bytes)};
    float *p = mixed ? element(s, u->master_slot, 0, sizeof *p) : param;
    float *const state[2] = {element(s, u->state_slot[0], 0, sizeof(float)),
                             element(s, u->state_slot[1], 0, sizeof(float))};
    step(s, u, &x, p, state, n);
}

// ---- the loss scale -----------------------------------------------------------------------------

// The slot of the constant that the backward pass starts from; ZX_NONE: there is none.
static uint32_t seed_slot(const zx_session *s)
{
    for (uint32_t i = 0; i < s->plan->n_slots && s->graph->seed != ZX_NONE; i++)
        if (s->plan->slots[i].kind == ZX_SLOT_CONST && s->plan->slots[i].what == s->graph->seed)
            return i;
    return ZX_NONE;
}

bool zx_exec_scale(zx_session *s, double scale)
{
    float seed;
    if (scale == s->scale) return true;
    const uint32_t i = seed_slot(s);
    if (i == ZX_NONE) return false;
    const zx_slot *slot = &s->plan->slots[i];
    void *at = s->backend->begin_fill(s, slot);
    if (at == NULL) return false;
    memcpy(&seed, s->graph->values[s->graph->seed].data, sizeof seed);
    seed = (float)((double)seed * scale);
    memcpy(at, &seed, sizeof seed);
    s->scale = scale;
    return s->backend->end_fill(s, slot, at);
}
