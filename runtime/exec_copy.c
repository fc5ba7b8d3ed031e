// exec_copy.c - copies into and out of flat slots: a policy whose original concatenates shards and
// gradients does so here too. A flat slot is a row a rank; a row is a shard of each member.
// Gradients travel in the type that they are made in, which is the parameter's.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/exec.h"

static void copy(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    if (bytes > 0) memcpy(to, from, (size_t)bytes);
}

static void copy_padded(unsigned char *to, const unsigned char *from, uint64_t bytes, uint64_t room)
{
    copy(to, from, bytes);
    if (room > bytes) memset(to + bytes, 0, (size_t)(room - bytes));
}

static void pack_shard(zx_session *s, const zx_member *m, unsigned char *flat, uint64_t row)
{
    const zx_unit *u = &s->plan->units[m->unit];
    const uint64_t size = u->param_bytes;
    int64_t at;
    const int64_t n = zx_unit_piece(u, s->rank, &at);
    const unsigned char *from = zx_slot_at(s, u->param_slot);
    if (u->param_whole) from += (uint64_t)at * size;
    copy_padded(flat + (s->rank * row + m->at) * size, from, (uint64_t)n * size,
                (uint64_t)u->shard * size);
}

static void pack_gradient(zx_session *s, const zx_member *m, unsigned char *flat, uint64_t row)
{
    const zx_unit *u = &s->plan->units[m->unit];
    const uint64_t size = u->param_bytes;
    const unsigned char *from = zx_slot_at(s, m->part != ZX_NONE ? m->part : m->slot);
    for (uint32_t r = 0; r < s->ranks; r++) {
        int64_t at;
        const int64_t n = zx_unit_piece(u, r, &at);
        copy_padded(flat + (r * row + m->at) * size, from + (uint64_t)at * size, (uint64_t)n * size,
                    (uint64_t)u->shard * size);
    }
}

void zx_exec_pack(zx_session *s, const zx_launch *l)
{
    const zx_plan *p = s->plan;
    const uint64_t row = zx_launch_row(p, l);
    const bool gathers = zx_launch_gathers(p, l);
    unsigned char *flat = zx_slot_at(s, l->flat);
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
    const unsigned char *flat = zx_slot_at(s, l->flat);
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        const zx_member *m = &p->members[i];
        const uint64_t size = p->units[m->unit].param_bytes;
        const uint64_t shard = (uint64_t)p->units[m->unit].shard * size; // with its pad, which is 0
        unsigned char *to = zx_slot_at(s, m->slot);
        for (uint32_t r = 0; r < s->ranks; r++)
            copy(to + r * shard, flat + (r * row + m->at) * size, shard);
    }
}

void zx_exec_bucket(zx_session *s, const zx_member *m)
{
    const zx_unit *u = &s->plan->units[m->unit];
    copy(zx_slot_at(s, m->part), zx_slot_at(s, m->slot), (uint64_t)u->numel * u->param_bytes);
}
