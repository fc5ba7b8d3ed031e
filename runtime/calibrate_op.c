// calibrate_op.c - see calibrate_op.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/calibrate_op.h"

#include <stdlib.h>
#include <string.h>

#include "graph/precision.h"
#include "kernels/cpu/cpu.h"
#include "sched/trace.h"

#define STEP ((size_t)1 << 20) // bytes between the places of two turns

// In [0, 1): variances may not be negative. With 7 bits behind the point, so that halves of them
// are numbers of bf16 in [0, 1) too.
void zx_bench_fill(float *x, size_t n)
{
    uint32_t random = 1;
    for (size_t i = 0; i < n; i++) {
        random = random * 1664525 + 1013904223;
        x[i] = (float)(random >> 25) / (1 << 7);
    }
}

// Side by side in lines of their own; returns where the next one begins.
static float *lay(zx_view *v, const zx_type *type, float *at)
{
    *v = (zx_view){at, *type};
    return at + zx_align_up(zx_type_bytes(type), ZX_ALIGN) / sizeof *at;
}

static zx_status prepare(zx_bench_op *b, zx_err *err)
{
    uint64_t bytes = 0;
    b->call.in = b->in;
    b->call.out = b->out;
    b->call.attrs = &b->attrs;
    b->call.rng = &b->rng;
    b->kernel = zx_cpu_kernel_of_any(b->call.op);
    if (b->kernel->prepare == NULL) return ZX_OK;
    ZX_TRY(b->kernel->prepare(&b->call, &bytes, &b->state, err));
    b->call.state = b->state;
    if (bytes == 0) return ZX_OK;
    b->call.work = aligned_alloc(ZX_ALIGN, (size_t)zx_align_up(bytes, ZX_ALIGN));
    return b->call.work != NULL ? ZX_OK : ZX_FAIL(err, ZX_E_DEVICE, "no memory to calibrate in");
}

static zx_op_args args_of(const zx_bench_op *b, const zx_type **in, zx_type *out)
{
    for (uint32_t i = 0; i < b->call.n_in; i++) in[i] = &b->in[i].type;
    for (uint32_t i = 0; i < b->call.n_out; i++) out[i] = b->out[i].type;
    return (zx_op_args){(zx_op_id)b->call.op,     &b->attrs, b->call.n_in,
                        zx_ops[b->call.op].n_out, in,        out};
}

// Operands are there; outputs follow from them, as of a graph that then gets another precision.
static zx_status open_op(zx_bench_op *b, const zx_bench_room *room, uint32_t kind, zx_dtype type,
                         zx_err *err)
{
    const zx_type *in[ZX_BENCH_VIEWS];
    zx_type wide[ZX_BENCH_VIEWS], out[8] = {0};
    zx_op_args args = args_of(b, in, out);
    for (uint32_t i = 0; i < args.n_in; i++) {
        wide[i] = b->in[i].type;
        if (zx_dtype_is_float(wide[i].dtype)) wide[i].dtype = ZX_F32;
        in[i] = &wide[i];
    }
    ZX_TRY(zx_ops[args.op].infer(&args, out, err));
    float *to = room->out;
    b->call.n_out = args.n_out;
    for (uint32_t i = 0; i < args.n_out; i++) {
        if (out[i].dtype == ZX_F32 && !zx_precision_stays(args.op, i)) out[i].dtype = type;
        to = lay(&b->out[i], &out[i], to);
    }
    args = args_of(b, in, out);
    const size_t bytes = (size_t)(to - room->out) * sizeof *to;
    if (bytes > b->bytes) b->bytes = bytes;
    ZX_ASSERT(b->bytes <= room->bytes);
    b->room_bytes = room->bytes;
    b->cost = zx_ops[args.op].cost(&args);
    if (kind != ZX_NONE) b->amount = zx_kinds[kind].amount(&args, &b->cost);
    return prepare(b, err);
}

double zx_bench_products(const zx_bench_op *b, const zx_machine *m)
{
    const zx_type *in[ZX_BENCH_VIEWS];
    zx_type out[8] = {0};
    const zx_op_args args = args_of(b, in, out);
    return zx_trace_products(&args, m, b->cost.flops);
}

zx_status zx_bench_open(zx_bench_op *b, uint32_t op, zx_dtype type, const zx_attrs *attrs,
                        const zx_bench_room *room, const zx_shape *x, const zx_shape *y,
                        int threads, zx_err *err)
{
    *b = (zx_bench_op){.call = {.op = op, .n_in = 2, .threads = threads}, .attrs = *attrs};
    float *at = lay(&b->in[0], &(zx_type){type, *x}, room->in);
    at = lay(&b->in[1], &(zx_type){type, *y}, at);
    b->bytes = (size_t)(at - room->in) * sizeof *at;
    return open_op(b, room, ZX_NONE, type, err);
}

zx_status zx_bench_open_kind(zx_bench_op *b, uint32_t kind, zx_dtype type,
                             const zx_bench_room *room, int threads, zx_err *err)
{
    const zx_kind *k = &zx_kinds[kind];
    float *at = room->in;
    *b = (zx_bench_op){.call = {.op = k->op, .threads = threads}};
    while (b->attrs.n < ZX_KIND_ATTRS && k->attrs[b->attrs.n].n > 0) b->attrs.n++;
    b->attrs.list = k->attrs;
    for (uint32_t i = 0; i < ZX_KIND_OPERANDS && k->operands[i].used; i++) {
        zx_type is = k->operands[i].type;
        if (is.dtype == ZX_F32 && !k->operands[i].stays) is.dtype = type;
        if (zx_dtype_is_float(is.dtype))
            at = lay(&b->in[i], &is, at);
        else
            b->in[i] = (zx_view){(void *)(uintptr_t)room->labels, is};
        b->call.n_in++;
    }
    b->bytes = (size_t)(at - room->in) * sizeof *at;
    return open_op(b, room, kind, type, err);
}

zx_status zx_bench_run(zx_bench_op *b, uint32_t turn, zx_err *err)
{
    zx_view in[ZX_BENCH_VIEWS], out[ZX_BENCH_VIEWS];
    const size_t on = turn % ((b->room_bytes - b->bytes) / STEP + 1) * STEP;
    memcpy(in, b->in, sizeof in);
    memcpy(out, b->out, sizeof out);
    for (uint32_t i = 0; i < b->call.n_in; i++)
        if (zx_dtype_is_float(in[i].type.dtype)) in[i].data = (unsigned char *)in[i].data + on;
    for (uint32_t i = 0; i < b->call.n_out; i++) out[i].data = (unsigned char *)out[i].data + on;
    zx_call call = b->call;
    call.in = in;
    call.out = out;
    return b->kernel->run(&call, err);
}

void zx_bench_close(zx_bench_op *b)
{
    if (b->kernel != NULL && b->kernel->release != NULL) b->kernel->release(b->state);
    free(b->call.work);
}
