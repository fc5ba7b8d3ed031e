// comm_wire.h - an emulated link: when each collective of a run would be on the wire if a rank had
// one wire of a given speed. It moves nothing; who moves the bytes asks it when.
//
// The rule, which the simulator has too: a collective is eligible once all ranks have issued it,
// and is then on every rank's wire for latency + (n-1)/n * S/B seconds (S: all ranks' bytes, B:
// bytes a second of a rank in each direction; an all-reduce twice the second term). The wire
// serves eligible ones one at a time, in the order of the last rank's issue, ties by position in
// the plan. What only some ranks have issued holds nothing.
//
// Ranks agree because the times are written down once, in memory that they share. Times of issue
// are those of the events that streams waited for, not of threads that woke up, so that a plan's
// ties are ties here.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_COMM_WIRE_H
#define ZX_RUNTIME_COMM_WIRE_H

#include "runtime/stream.h"
#include "sched/plan.h"

typedef struct zx_wire zx_wire; // in shared memory, zeroed when mapped

uint64_t zx_wire_bytes(void);
zx_status zx_wire_start(zx_wire *w, uint32_t ranks, zx_err *err); // by one rank, before any use

// A rank issues the `count`-th collective of a stream (from 1), at `position` of the plan, which
// takes `seconds` of the wire. False: a rank died in here.
bool zx_wire_issue(zx_wire *w, zx_stream s, uint32_t count, uint32_t position, double issued,
                   double seconds);
// Once all ranks have issued it: when all had.
bool zx_wire_eligible(zx_wire *w, zx_stream s, double *at);
// And then, a little later (ZX_WIRE_GRACE), when it is on the wire: the same on every rank.
// Whatever was eligible before it is given its time first.
bool zx_wire_turn(zx_wire *w, zx_stream s, double *from, double *until);

// How long a rank waits after the issue before it asks for the turn, so that one of the same
// moment can be issued by another thread: at most this, and at most half of the time on the wire.
#define ZX_WIRE_GRACE 200e-6

// Sleeps until a moment of zx_seconds(). False: a rank is lost.
bool zx_sleep_until(double at, const zx_world *w);

#endif
