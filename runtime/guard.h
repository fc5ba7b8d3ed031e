// guard.h - a thread beside a rank's own that sees whether a call of a library comes back: CUDA's
// may not where a device or its driver hangs, and nothing that this rank could do afterwards helps.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_GUARD_H
#define ZX_RUNTIME_GUARD_H

#include "graph/base/err.h"

typedef struct zx_guard zx_guard;

// Puts to err where the rank is; the guard's thread calls it while the rank's own is in the call.
typedef void zx_guard_where(const void *of, zx_err *err);

// stuck: a call takes longer than `seconds`. It ends the process: why says what, and where.
zx_status zx_guard_open(double seconds, void (*stuck)(const zx_err *why), zx_guard **out,
                        zx_err *err);
void zx_guard_close(zx_guard *g); // accepts NULL

// Around calls, on the rank's thread: from now on it is in one, in another one than before; it is
// in none. A guard of NULL sees nothing.
void zx_guard_enter(zx_guard *g, zx_guard_where *where, const void *of);
void zx_guard_leave(zx_guard *g);

#endif
