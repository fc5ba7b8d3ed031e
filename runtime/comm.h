// comm.h - the collectives that a step executes, as the executor sees them. A transport moves
// bytes; sums are zerox's own, in rank order, so that every transport gives the same bits.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_COMM_H
#define ZX_RUNTIME_COMM_H

#include "graph/base/tensor.h"
#include "runtime/stream.h"
#include "sched/plan.h"

typedef struct zx_comm zx_comm;

typedef struct zx_comm_args {
    const zx_plan *plan;        // outlives the comm
    unsigned char *const *base; // one rank's reservation each, as mapped here
    zx_dtype half;              // what elements of two bytes are
    zx_patience patience;
    uint64_t board_bytes; // that `exchange` carries from each rank
    // An emulated link (comm_wire.h), where either is above 0: bytes a second of a rank in each
    // direction (0: no limit), and seconds that every collective takes beside.
    double bandwidth, latency_seconds;
} zx_comm_args;

// A collective on its way: what the caller says of it, and when it was on the wire.
typedef struct zx_sent {
    uint32_t position; // of its instruction in the plan
    bool timed;        // from and until are wanted; always on an emulated link
    double issued;     // when this rank's stream came to it; for an emulated link
    double from, until;
} zx_sent;

// Every call but open, close and fetch is collective: all ranks make the same calls in the same
// order on each stream. Calls of different streams run at the same time. False: a rank is lost.
// A call returns when this rank's result is whole and no peer still reads this rank's operands.
typedef struct zx_transport {
    const char *name;
    zx_status (*open)(const zx_comm_args *a, zx_comm **out, zx_err *err);
    void (*close)(zx_comm *c); // accepts NULL
    // Every member whole into its slot, the pad zeroed; or every rank's row into the flat slot.
    bool (*gather)(zx_comm *c, zx_stream s, const zx_launch *l, zx_sent *t);
    // Sums in rank order of the members' slots (or of their places in the flat slots), this rank's
    // slice: written or added to its shard.
    bool (*reduce)(zx_comm *c, zx_stream s, const zx_launch *l, bool add, zx_sent *t);
    // The same into every rank's whole accumulator.
    bool (*allreduce)(zx_comm *c, zx_stream s, const zx_launch *l, bool add, zx_sent *t);
    // Every rank's board (board_bytes) to all, in rank order.
    bool (*exchange)(zx_comm *c, const void *mine, void *all);
    bool (*barrier)(zx_comm *c);
    // to := mean in rank order of all ranks' `from` (f32; of other types rank 0's). The slots
    // `from` may be written again after the next barrier. Not collective, but all ranks must have
    // come to where `from` is final.
    void (*mean)(zx_comm *c, uint32_t from, uint32_t to, const zx_type *type);
    // Copies bytes of a rank's reservation; the caller keeps them still.
    void (*fetch)(zx_comm *c, uint32_t rank, uint64_t offset, void *to, uint64_t bytes);
} zx_transport;

extern const zx_transport zx_comm_shm; // ranks of one host, over memory that all map

// Elements of a row of a launch's flat slot: a shard of each member.
static inline uint64_t zx_launch_row(const zx_plan *p, const zx_launch *l)
{
    if (l->n_members == 0) return 0;
    const zx_member *last = &p->members[l->member + l->n_members - 1];
    return last->at + (uint64_t)p->units[last->unit].shard;
}

// Rank r's elements of a unit: [*from, *from + the result). A rank may have none.
static inline int64_t zx_unit_piece(const zx_unit *u, uint32_t r, int64_t *from)
{
    const int64_t at = (int64_t)r * u->shard;
    *from = at < u->numel ? at : u->numel;
    const int64_t rest = u->numel - *from;
    return rest < u->shard ? rest : u->shard;
}

#endif
