// session_copy.c - the values of one session in another one with a plan of its own: what is
// evaluated is what has been trained so far. A rank copies what it holds itself.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/exec.h"

#define PIECE (UINT64_C(1) << 20) // bytes that are looked at at a time

static bool copy_slot(zx_session *to, uint32_t slot, zx_session *from, const unsigned char *x,
                      uint64_t bytes)
{
    const zx_slot *s = &to->plan->slots[slot];
    unsigned char *at = to->backend->begin_fill(to, s);
    if (at == NULL) return false;
    bool ok = true;
    for (uint64_t k = 0; k < bytes && ok; k += PIECE) {
        const uint64_t n = bytes - k < PIECE ? bytes - k : PIECE;
        const void *seen = from->backend->see(from, x + k, n);
        ok = seen != NULL;
        if (ok) memcpy(at + k, seen, (size_t)n);
    }
    if (bytes < s->bytes) memset(at + bytes, 0, (size_t)(s->bytes - bytes));
    return to->backend->end_fill(to, s, at) && ok;
}

static const zx_unit *unit_of(const zx_plan *p, uint32_t param)
{
    if (param < p->n_units && p->units[param].param == param) return &p->units[param];
    for (uint32_t u = 0; u < p->n_units; u++)
        if (p->units[u].param == param) return &p->units[u];
    return NULL;
}

static zx_status copy_unit(zx_session *to, const zx_unit *u, zx_session *from, const zx_unit *v,
                           zx_err *err)
{
    if (v == NULL || u->numel != v->numel || u->shard != v->shard ||
        u->param_bytes != v->param_bytes || (u->param_whole != 0) != (v->param_whole != 0))
        return ZX_FAIL(err, ZX_E_DEVICE, "the two plans hold parameter %u in unlike ways",
                       u->param);
    int64_t at;
    const int64_t n = u->param_whole != 0 ? u->numel : zx_unit_piece(u, to->rank, &at);
    if (copy_slot(to, u->param_slot, from, zx_slot_at(from, v->param_slot),
                  (uint64_t)n * u->param_bytes))
        return ZX_OK;
    return ZX_FAIL(err, ZX_E_DEVICE, "copying parameter %u: the device has failed", u->param);
}

static zx_status copy_all(zx_session *to, zx_session *from, const uint32_t *params,
                          const uint32_t *buffers, zx_err *err)
{
    for (uint32_t i = 0; i < to->plan->n_units; i++) {
        const zx_unit *u = &to->plan->units[i];
        if (params[u->param] == ZX_NONE || u->numel == 0) continue;
        ZX_TRY(copy_unit(to, u, from, unit_of(from->plan, params[u->param]), err));
    }
    for (uint32_t b = 0; b < to->graph->n_buffers; b++) {
        if (buffers[b] == ZX_NONE) continue;
        const unsigned char *x = zx_slot_at(from, from->buffer_slot[buffers[b]]);
        const uint64_t n = zx_type_bytes(&to->graph->values[to->graph->buffers[b].value].type);
        const uint32_t slots[] = {to->buffer_slot[b], to->working_slot[b]};
        for (size_t k = 0; k < ZX_COUNT(slots); k++)
            if (slots[k] != ZX_NONE && !copy_slot(to, slots[k], from, x, n))
                return ZX_FAIL(err, ZX_E_DEVICE, "copying buffer %u: the device has failed", b);
    }
    return ZX_OK;
}

zx_status zx_session_copy(zx_session *to, zx_session *from, const uint32_t *params,
                          const uint32_t *buffers, zx_err *err)
{
    return zx_world_agree(to->o.world, copy_all(to, from, params, buffers, err), err);
}
