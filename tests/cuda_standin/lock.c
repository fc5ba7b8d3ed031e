// lock.c - locks and sleeping by futexes, which ThreadSanitizer doesn't see; clocks and numbers.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/inside.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void si_sleep_while(_Atomic uint32_t *word, uint32_t seen)
{
    const struct timespec most = {.tv_nsec = 20000000};
    syscall(SYS_futex, (uint32_t *)(uintptr_t)word, FUTEX_WAIT_PRIVATE, seen, &most, NULL, 0);
}

void si_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, (uint32_t *)(uintptr_t)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void si_lock_take(si_lock *l)
{
    uint32_t free_ = 0;
    if (!atomic_compare_exchange_strong(&l->held, &free_, 1))
        while (atomic_exchange(&l->held, 2) != 0) si_sleep_while(&l->held, 2);
    SI_OWN_BEGIN();
}

void si_lock_give(si_lock *l)
{
    SI_OWN_END();
    if (atomic_exchange(&l->held, 0) == 2) si_wake(&l->held);
}

double si_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

uint64_t si_mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}
