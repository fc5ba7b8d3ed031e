// stream.h - waiting: words that count up, which threads and processes wait for without spinning,
// and the events of a plan made of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_STREAM_H
#define ZX_RUNTIME_STREAM_H

#include <stdatomic.h>

#include "runtime/world.h"

// A number that only grows (modulo 2^32), in memory that the waiters share. Zeroed is 0.
typedef struct zx_word {
    _Atomic uint32_t value;
    _Atomic uint32_t waiters; // > 0: somebody sleeps, a change must wake
} zx_word;

// How waits of one rank behave.
typedef struct zx_patience {
    zx_world *world; // NULL: waits for this rank's own threads, which always come
    uint32_t spins;  // looks before sleeping; 0 where threads outnumber cores
} zx_patience;

#define ZX_NO_PEER UINT32_MAX

// Sets a word; everything written before is visible to who waited for it.
void zx_word_set(zx_word *w, uint32_t value);
static inline bool zx_word_reached(zx_word *w, uint32_t value)
{
    return (int32_t)(atomic_load_explicit(&w->value, memory_order_acquire) - value) >= 0;
}
// Waits until the word is at least `value`. False: it never will be, a rank is lost. `peer` is the
// rank that sets it (ZX_NO_PEER: this one): if it has left, the wait is over too.
bool zx_word_wait(zx_word *w, uint32_t value, const zx_patience *p, uint32_t peer);

double zx_seconds(void); // of a clock that only goes forward

#endif
