// loss_scale.c - see loss_scale.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/loss_scale.h"

zx_loss_scale zx_loss_scale_start(const zx_loss_scale_rule *r)
{
    return (zx_loss_scale){.scale = r->fixed > 0 ? r->fixed : r->first,
                           .last_overflow = -1,
                           .hysteresis = r->hysteresis};
}

static bool overflowed(zx_loss_scale *s, const zx_loss_scale_rule *r)
{
    if (r->hysteresis != 1 && s->hysteresis != 1) {
        s->hysteresis--;
    } else {
        if (s->scale <= r->least) return false;
        s->scale = s->scale / 2 > r->least ? s->scale / 2 : r->least;
    }
    s->last_overflow = s->iter;
    return true;
}

bool zx_loss_scale_update(zx_loss_scale *s, const zx_loss_scale_rule *r, bool overflow)
{
    const int64_t stable = s->iter - s->last_overflow - 1;
    if (r->fixed > 0) return true;
    if (overflow && !overflowed(s, r)) return false;
    if (!overflow && r->consecutive) s->hysteresis = r->hysteresis;
    if (!overflow && stable > 0 && stable % r->window == 0) {
        s->hysteresis = r->hysteresis;
        s->scale *= 2;
    }
    s->iter++;
    return true;
}
