// fiber.h - stacks that a thread switches between, told to the sanitizers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_FIBER_H
#define ZX_STANDIN_FIBER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct si_fiber {
    void *sp; // while it doesn't run
    unsigned char *stack;
    size_t stack_bytes;
    void *fake, *tsan; // the sanitizers'
    void *context;     // where there is no switch of our own
} si_fiber;

// The thread's own stack, to come back to.
void si_fiber_of_thread(si_fiber *f);
// One that begins in `entry`, which must call si_fiber_arrived first and never returns.
bool si_fiber_open(si_fiber *f, void (*entry)(void));
void si_fiber_close(si_fiber *f); // wherever it was
void si_fiber_arrived(void);
// leaves: `from` is never gone back to.
void si_fiber_switch(si_fiber *from, si_fiber *to, bool leaves);
void *si_fiber_top(const si_fiber *f);

#endif
