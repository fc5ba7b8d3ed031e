// launch.h - who this process is: a lone program, the launcher of N ranks, or one rank of somebody
// else's launcher; and the running of it, so that no rank outlives the others.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_LAUNCH_H
#define ZX_RUNTIME_LAUNCH_H

#include "runtime/session.h"
#include "runtime/world.h"

typedef enum zx_who_kind {
    ZX_WHO_ALONE,    // one rank, in this process
    ZX_WHO_LAUNCHER, // starts `ranks` processes and waits for them
    ZX_WHO_RANK,     // RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT were all set
} zx_who_kind;

typedef struct zx_who {
    zx_who_kind kind;
    uint32_t ranks;                    // of the run; all on this host
    uint32_t rank;                     // RANK: which one; else 0
    double join_seconds;               // how long ranks wait for each other to come; 0: 120
    double notice_seconds;             // how long a rank may stand still until that is said; 0: 30
    void (*say)(const char *sentence); // of what is to be known while the ranks run; NULL: nobody
    char name[160];                    // of the abstract socket where they meet
    char note[256]; // one line that the user should see ("" none), e.g. what was ignored
} zx_who;

// Reads the environment. `ranks` is --ranks, 0 where it wasn't given. E_USAGE where it contradicts
// WORLD_SIZE or a variable makes no sense; E_UNSUPPORTED for several hosts.
zx_status zx_launch_who(uint32_t ranks, zx_who *out, zx_err *err);

// What a rank does; returns the process's exit code (a failure is also in err). A rank that fails
// alone may simply return: its peers are told.
typedef int zx_rank_run(void *arg, zx_world *world, zx_err *err);

// Runs `run` as every rank that this process is to be or to start, and returns the exit code.
// Call it before any OpenMP call and from a program with a single thread: LAUNCHER forks.
// What went wrong is in err once, whichever rank it happened to (and nowhere else: with n_causes 0
// there is nothing to print, e.g. where rank 0 of the same launcher already says it).
// A rank that was stopped (SIGSTOP) is told of by who->say, and waited for.
// On SIGINT, SIGTERM or SIGHUP ranks are asked to stop and the exit code is 128+n; a second one
// ends everything within a second.
int zx_launch_run(const zx_who *who, zx_rank_run *run, void *arg, zx_err *err);

// For `run`, in the rank's process and from any of its threads, where its own will never return:
// ends the process as if it had returned with that error. Without a launcher `say` tells of it.
ZX_NORETURN void zx_launch_give_up(const zx_err *why, void (*say)(const zx_err *why));

// For `run`, in the rank's process. From the first call of zx_launch_watch on, a signal asks the
// session to stop after its step (before it a signal ends the process at once: there is nothing to
// save). Call it with NULL before the session is closed: from then on a first signal is only noted.
void zx_launch_watch(zx_session *s);
int zx_launch_signal(void); // the signal that asked this rank to stop; 0: none

#endif
