// eval.c - see eval.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/eval.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/op.h"
#include "kernels/cpu/cpu.h"

const char *zx_fault_text(const zx_fault *f, char buf[ZX_FAULT_TEXT])
{
    static const char *const texts[ZX_FAULT_COUNT] = {
#define X(name, text) text,
        ZX_FAULT_MAP(X)
#undef X
    };
    ZX_ASSERT(f->kind < ZX_FAULT_COUNT);
    // The texts are ours and take two long longs or none: -Wformat can't see through the table.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    snprintf(buf, ZX_FAULT_TEXT, texts[f->kind], (long long)f->a, (long long)f->b);
#pragma GCC diagnostic pop
    return buf;
}

// Room of `n` bytes at a multiple of ZX_ALIGN; NULL if there is none. The caller frees it.
static void *room_for(uint64_t n)
{
    if (n > SIZE_MAX - ZX_ALIGN) return NULL;
    return aligned_alloc(ZX_ALIGN, (size_t)zx_align_up(n > 0 ? n : 1, ZX_ALIGN));
}

static bool is_aligned(const void *p)
{
    return ((uintptr_t)p & (ZX_ALIGN - 1)) == 0;
}

// Everything one evaluation holds.
struct held {
    zx_view *in, *out;
    void **copies; // of inputs that weren't aligned; NULL where none was needed
    void *work, *state;
};

static zx_status view_input(const zx_tensor *t, zx_view *view, void **copy, zx_err *err)
{
    // Kernels only read their inputs; the view has no const variant.
    *view = (zx_view){.data = (void *)(uintptr_t)t->data, .type = t->type};
    if (t->data == NULL || is_aligned(t->data)) return ZX_OK;
    const uint64_t n = zx_type_bytes(&t->type);
    *copy = room_for(n);
    if (*copy == NULL)
        return ZX_FAIL(err, ZX_E_DEVICE, "no memory for a constant of %llu bytes",
                       (unsigned long long)n);
    view->data = memcpy(*copy, t->data, (size_t)n);
    return ZX_OK;
}

static zx_status run_kernel(const zx_kernel *k, zx_call *call, struct held *h, zx_err *err)
{
    uint64_t work_bytes = 0;
    if (k->prepare != NULL) ZX_TRY(k->prepare(call, &work_bytes, &h->state, err));
    if (work_bytes > 0) {
        h->work = room_for(work_bytes);
        if (h->work == NULL)
            return ZX_FAIL(err, ZX_E_DEVICE, "no memory for %llu bytes of scratch",
                           (unsigned long long)work_bytes);
    }
    call->work = h->work;
    call->state = h->state;
    ZX_TRY(k->run(call, err));
    if (call->fault->kind == ZX_FAULT_NONE) return ZX_OK;
    char text[ZX_FAULT_TEXT];
    return ZX_FAIL(err, ZX_E_DATA, "%s", zx_fault_text(call->fault, text));
}

static zx_status eval_run(const zx_eval *self, zx_op_id op, const zx_attrs *attrs,
                          const zx_tensor *in, uint32_t n_in, const zx_tensor *out, uint32_t n_out,
                          zx_err *err)
{
    (void)self;
    static const zx_attrs none = {0};
    const zx_kernel *k = zx_cpu_kernel((uint32_t)op);
    zx_arena mem = {0};
    struct held h = {.in = ZX_NEW(&mem, zx_view, n_in + 1),
                     .out = ZX_NEW(&mem, zx_view, n_out + 1),
                     .copies = ZX_NEW(&mem, void *, n_in + 1)};
    const zx_rng rng = {0};
    zx_fault fault = {0};
    zx_call call = {.op = (uint32_t)op,
                    .n_in = n_in,
                    .n_out = n_out,
                    .in = h.in,
                    .out = h.out,
                    .attrs = attrs != NULL ? attrs : &none,
                    .threads = 1,
                    .rng = &rng,
                    .fault = &fault};
    zx_status st = ZX_OK;
    for (uint32_t i = 0; i < n_in && st == ZX_OK; i++)
        st = view_input(&in[i], &h.in[i], &h.copies[i], err);
    for (uint32_t i = 0; i < n_out; i++)
        h.out[i] = (zx_view){.data = (void *)(uintptr_t)out[i].data, .type = out[i].type};
    if (st == ZX_OK) st = run_kernel(k, &call, &h, err);
    if (st != ZX_OK) zx_err_in(err, "%s", zx_ops[op].word);
    if (h.state != NULL && k->release != NULL) k->release(h.state);
    free(h.work);
    for (uint32_t i = 0; i < n_in; i++) free(h.copies[i]);
    zx_arena_free(&mem);
    return st;
}

const zx_eval zx_cpu_eval = {.run = eval_run};
