// exec_copy.c - copies into and out of flat slots: a policy whose original concatenates shards and
// gradients does so here too. A flat slot is a row a rank; a row is a shard of each member.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/exec.h"

static void copy(float *to, const float *from, int64_t n)
{
    if (n > 0) memcpy(to, from, (size_t)n * sizeof *to);
}

static void copy_padded(float *to, const float *from, int64_t n, int64_t room)
{
    copy(to, from, n);
    if (room > n) memset(to + n, 0, (size_t)(room - n) * sizeof *to);
}

static void pack_shard(zx_session *s, const zx_member *m, float *flat, uint64_t row)
{
    const zx_unit *u = &s->plan->units[m->unit];
    int64_t at;
    const int64_t n = zx_unit_piece(u, s->rank, &at);
    const float *from = (const float *)zx_slot_at(s, u->param_slot) + (u->param_whole ? at : 0);
    copy_padded(flat + s->rank * row + m->at, from, n, u->shard);
}

static void pack_gradient(zx_session *s, const zx_member *m, float *flat, uint64_t row)
{
    const zx_unit *u = &s->plan->units[m->unit];
    const float *from = zx_slot_at(s, m->part != ZX_NONE ? m->part : m->slot);
    for (uint32_t r = 0; r < s->ranks; r++) {
        int64_t at;
        const int64_t n = zx_unit_piece(u, r, &at);
        copy_padded(flat + r * row + m->at, from + at, n, u->shard);
    }
}

void zx_exec_pack(zx_session *s, const zx_launch *l)
{
    const zx_plan *p = s->plan;
    const uint64_t row = zx_launch_row(p, l);
    const bool gathers = zx_launch_gathers(p, l);
    float *flat = zx_slot_at(s, l->flat);
    for (uint32_t i = l->member; i < l->member + l->n_members; i++)
        if (gathers)
            pack_shard(s, &p->members[i], flat, row);
        else
            pack_gradient(s, &p->members[i], flat, row);
}

void zx_exec_unpack(zx_session *s, const zx_launch *l)
{
    const zx_plan *p = s->plan;
    const uint64_t row = zx_launch_row(p, l);
    const float *flat = zx_slot_at(s, l->flat);
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        const zx_member *m = &p->members[i];
        const int64_t shard = p->units[m->unit].shard; // with its pad, which is 0
        float *to = zx_slot_at(s, m->slot);
        for (uint32_t r = 0; r < s->ranks; r++) copy(to + r * shard, flat + r * row + m->at, shard);
    }
}

void zx_exec_bucket(zx_session *s, const zx_member *m)
{
    copy(zx_slot_at(s, m->part), zx_slot_at(s, m->slot), s->plan->units[m->unit].numel);
}
