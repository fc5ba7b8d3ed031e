// fiber.c - see fiber.h. The switch is six registers by hand on x86-64, ucontext's elsewhere.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/fiber.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda_standin/sanitizer.h"

#if defined(SI_ASAN)
#include <sanitizer/common_interface_defs.h>
#define STACK (256u << 10)
#else
#define STACK (64u << 10)
#endif
#if defined(ZX_STANDIN_TSAN)
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#endif

#if defined(__x86_64__) && !defined(ZX_STANDIN_UCONTEXT)
// Pushes what a called function must keep, leaves the stack at *from and goes on from `to`.
void zx_standin_switch(void **from, void *to);
__asm__(".text\n.globl zx_standin_switch\n.type zx_standin_switch,@function\n"
        "zx_standin_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size zx_standin_switch, .-zx_standin_switch\n"
        ".section .note.GNU-stack,\"\",@progbits\n.text\n");

static bool prepare(si_fiber *f, void (*entry)(void))
{
    void **sp = si_fiber_top(f);
    *--sp = NULL; // where entry would return to; leaves the stack aligned as after a call
    *--sp = (void *)(uintptr_t)entry;
    for (int i = 0; i < 6; i++) *--sp = NULL;
    f->sp = sp;
    return true;
}
static void go(si_fiber *from, si_fiber *to)
{
    zx_standin_switch(&from->sp, to->sp);
}
#else
#include <ucontext.h>

static bool prepare(si_fiber *f, void (*entry)(void))
{
    ucontext_t *c = f->context = malloc(sizeof *c);
    if (c == NULL || getcontext(c) != 0) return false;
    c->uc_stack.ss_sp = f->stack;
    c->uc_stack.ss_size = f->stack_bytes;
    c->uc_link = NULL;
    makecontext(c, entry, 0);
    return true;
}
static void go(si_fiber *from, si_fiber *to)
{
    if (from->context == NULL) from->context = malloc(sizeof(ucontext_t));
    if (from->context == NULL) abort();
    swapcontext(from->context, to->context);
}
#endif

void *si_fiber_top(const si_fiber *f)
{
    return f->stack + f->stack_bytes;
}

void si_fiber_of_thread(si_fiber *f)
{
    pthread_attr_t attr;
    void *at = NULL;
    *f = (si_fiber){0};
    if (pthread_getattr_np(pthread_self(), &attr) != 0) return;
    pthread_attr_getstack(&attr, &at, &f->stack_bytes);
    pthread_attr_destroy(&attr);
    f->stack = at;
#if defined(ZX_STANDIN_TSAN)
    f->tsan = __tsan_get_current_fiber();
#endif
}

bool si_fiber_open(si_fiber *f, void (*entry)(void))
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *f = (si_fiber){.stack_bytes = STACK};
    void *map = mmap(NULL, STACK + page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return false;
    mprotect(map, page, PROT_NONE); // an overflow is a fault
    f->stack = (unsigned char *)map + page;
#if defined(ZX_STANDIN_TSAN)
    f->tsan = __tsan_create_fiber(0);
#endif
    return prepare(f, entry);
}

void si_fiber_close(si_fiber *f)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    free(f->context);
    if (f->sp == NULL && f->context == NULL) return;
#if defined(ZX_STANDIN_TSAN)
    __tsan_destroy_fiber(f->tsan);
#endif
#if defined(SI_ASAN)
    __asan_unpoison_memory_region(f->stack, f->stack_bytes); // frames that never returned
#endif
    munmap(f->stack - page, STACK + page);
    *f = (si_fiber){0};
}

void si_fiber_arrived(void)
{
#if defined(SI_ASAN)
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
}

void si_fiber_switch(si_fiber *from, si_fiber *to, bool leaves)
{
#if defined(SI_ASAN)
    __sanitizer_start_switch_fiber(leaves ? NULL : &from->fake, to->stack, to->stack_bytes);
#else
    (void)leaves;
#endif
#if defined(ZX_STANDIN_TSAN)
    __tsan_switch_to_fiber(to->tsan, 1); // 1: the switch itself orders nothing
#endif
    go(from, to);
#if defined(SI_ASAN)
    __sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
#endif
}
