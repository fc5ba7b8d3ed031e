// session_norms.c - norms of single parameters and their gradients, from the ranks' shards: nothing
// is gathered.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>

#include "runtime/exec.h"

#define CHUNK                                                                                      \
    65536 // elements that are looked at at a time, a multiple of zx_cpu_square_sum's blocks

// Squares of this rank's piece of a unit.
static zx_status own_squares(zx_session *s, const zx_unit *u, double *out, zx_err *err)
{
    const bool master = u->master_slot != ZX_NONE; // what isn't trained has none, in 16 bits too
    const bool whole = (master ? u->state_whole : u->param_whole) != 0;
    const zx_dtype type = master ? ZX_F32 : zx_unit_type(s, u->param_bytes);
    const uint64_t size = zx_dtype_bytes(type);
    const unsigned char *from = zx_slot_at(s, master ? u->master_slot : u->param_slot);
    int64_t at;
    const int64_t n = zx_unit_piece(u, s->rank, &at);
    *out = 0;
    for (int64_t k = 0; k < n; k += CHUNK) {
        const int64_t some = n - k < CHUNK ? n - k : CHUNK;
        const uint64_t place = (uint64_t)((whole ? at : 0) + k);
        const void *x = s->backend->see(s, from + place * size, (uint64_t)some * size);
        if (x == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "norms: the device has failed");
        *out += zx_cpu_square_sum_of(type, x, some, (int)s->o.threads);
    }
    return ZX_OK;
}

// The gradients' squares are still what NORM has exchanged; what it knows of the norm beside, such
// as a scale of the loss, holds for each of them.
static double grad_norm(const zx_session *s, uint32_t param)
{
    const uint32_t micros = s->plan->micro_batches;
    double all = 0, mine = 0;
    for (uint32_t u = 0; u < s->plan->n_units; u++)
        for (uint32_t r = 0; r < s->ranks; r++) {
            const double squares = zx_board_of(s, r)->loss[micros + u];
            all += squares;
            if (s->plan->units[u].param == param) mine += squares;
        }
    return all == 0 ? 0 : s->norm * sqrt(mine / all);
}

zx_status zx_session_norms(zx_session *s, uint32_t n, const uint32_t *params, double *weights,
                           double *grads, zx_err *err)
{
    double *mine = calloc(n + 1, sizeof *mine), *all = calloc((n + 1) * s->ranks, sizeof *all);
    ZX_ASSERT(mine != NULL && all != NULL);
    zx_status st = ZX_OK;
    for (uint32_t i = 0; i < n && st == ZX_OK; i++) {
        grads[i] = grad_norm(s, params[i]);
        for (uint32_t u = 0; u < s->plan->n_units && st == ZX_OK; u++) {
            double squares = 0;
            if (s->plan->units[u].param != params[i]) continue;
            st = own_squares(s, &s->plan->units[u], &squares, err);
            mine[i] += squares;
        }
    }
    st = zx_world_agree(s->o.world, st, err);
    if (st == ZX_OK) st = zx_world_exchange(s->o.world, mine, n * sizeof *mine, all, err);
    for (uint32_t i = 0; i < n && st == ZX_OK; i++) {
        weights[i] = 0;
        for (uint32_t r = 0; r < s->ranks; r++) weights[i] += all[r * n + i];
        weights[i] = sqrt(weights[i]);
    }
    free(mine);
    free(all);
    return st;
}
