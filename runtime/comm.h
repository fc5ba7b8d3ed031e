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
    zx_patience patience;
    uint64_t board_bytes;      // that `exchange` carries from each rank
    double wire_delay_seconds; // test: the wire stays busy this much longer a launch
} zx_comm_args;

// Every call but open, close and fetch is collective: all ranks make the same calls in the same
// order on each stream. Calls of different streams run at the same time. False: a rank is lost.
// A call returns when this rank's result is whole and no peer still reads this rank's operands.
typedef struct zx_transport {
    const char *name;
    zx_status (*open)(const zx_comm_args *a, zx_comm **out, zx_err *err);
    void (*close)(zx_comm *c); // accepts NULL
    // Every member whole into its slot, the pad zeroed.
    bool (*gather)(zx_comm *c, zx_stream s, const zx_launch *l);
    // Sums in rank order of the members' slots, this rank's slice: written or added to its shard.
    bool (*reduce)(zx_comm *c, zx_stream s, const zx_launch *l, bool add);
    // The same into every rank's whole accumulator.
    bool (*allreduce)(zx_comm *c, zx_stream s, const zx_launch *l, bool add);
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

// Rank r's elements of a unit: [*from, *from + the result). A rank may have none.
static inline int64_t zx_unit_piece(const zx_unit *u, uint32_t r, int64_t *from)
{
    const int64_t at = (int64_t)r * u->shard;
    *from = at < u->numel ? at : u->numel;
    const int64_t rest = u->numel - *from;
    return rest < u->shard ? rest : u->shard;
}

#endif
