// fault.c - the first fault of a rank is kept.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel.h"

void zx_fault_set(zx_fault *f, zx_fault_kind kind, int64_t a, int64_t b)
{
    uint32_t none = ZX_FAULT_NONE;
    if (f == NULL) return;
    if (!__atomic_compare_exchange_n(&f->kind, &none, (uint32_t)kind, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return;
    f->a = a; // only the thread that won gets here; readers come after the kernel's join
    f->b = b;
}
