// world.h - the ranks of a run as one rank sees them: who they are, what they agree on, and memory
// that all of them map.
//
// A rank is a process, or (in tests) a thread of one process. Ranks of a host meet at an abstract
// Unix socket; the connections stay open, so that a rank that dies is noticed at once.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_WORLD_H
#define ZX_RUNTIME_WORLD_H

#include "graph/base/err.h"

typedef struct zx_world zx_world;

// One process a rank: meets the others at the abstract socket `name`. E_COMM after timeout_seconds,
// naming the ranks that never came.
zx_status zx_world_join(const char *name, uint32_t rank, uint32_t size, double timeout_seconds,
                        zx_world **out, zx_err *err);
// Ranks as threads of this process: fills worlds[0..size). Size 1 is also how a lone process runs.
zx_status zx_world_local(uint32_t size, zx_world **worlds, zx_err *err);
void zx_world_close(zx_world *w); // accepts NULL

uint32_t zx_world_rank(const zx_world *w);
uint32_t zx_world_size(const zx_world *w);

// ---- outside the step: collective calls over the sockets; all ranks call them in the same order -

// Every rank brings its outcome; all return the same: OK if all are, else the failure of the lowest
// failing rank ("rank 2: ..." unless that is rank 0), in `err` on every rank.
zx_status zx_world_agree(zx_world *w, zx_status mine, zx_err *err);
// Rank 0's bytes to all: on the others *bytes is malloc'ed and the caller's.
zx_status zx_world_send(zx_world *w, void **bytes, size_t *n, zx_err *err);
// Every rank's `n` bytes to all, in rank order: out has n*size bytes.
zx_status zx_world_exchange(zx_world *w, const void *mine, size_t n, void *out, zx_err *err);
// E_COMM if any two ranks' numbers differ, saying what differs.
zx_status zx_world_same(zx_world *w, const char *what, uint64_t number, zx_err *err);

// One reservation a rank, mapped by all: base[r] is where rank r's `bytes` begin here. Pages come
// zeroed and are touched only when written. Unmapped by zx_world_release or zx_world_close.
zx_status zx_world_reserve(zx_world *w, uint64_t bytes, unsigned char **base, zx_err *err);
// This rank is done with a reservation, its own part and the others'; they may still use theirs.
// Not collective. `bytes` and base[] as they were reserved; base[] is NULL afterwards.
void zx_world_release(zx_world *w, uint64_t bytes, unsigned char **base);
// From here on nothing is unmapped any more: a device that failed may still write there. The
// process ends soon.
void zx_world_keep_mapped(zx_world *w);

// ---- dying --------------------------------------------------------------------------------------
// How long this rank waits for another, from now on: 0, as at first, for ever. Who waits longer
// gives the other one up, as if it had died.
void zx_world_patience(zx_world *w, double seconds);
// Whether a wait for `rank` that began at `since` (zx_seconds) has lasted too long: it is lost
// then.
bool zx_world_late(zx_world *w, uint32_t rank, double since);
// Non-zero once a peer died or called zx_world_abort; every wait of the step's path looks at it.
bool zx_world_lost(const zx_world *w);
void zx_world_abort(zx_world *w); // tells all peers to stop waiting
// The sentence for err: "rank 2 died (connection closed)", E_COMM.
zx_status zx_world_why(const zx_world *w, zx_err *err);
// True once a rank has closed its world. Who still waits for it calls zx_world_gone: that rank is
// lost, and everybody stops waiting.
bool zx_world_left(zx_world *w, uint32_t rank);
void zx_world_gone(zx_world *w, uint32_t rank);
// True for the first rank that claims this sentence: it prints it, the others needn't.
bool zx_world_claim(zx_world *w, const char *sentence);

#endif
