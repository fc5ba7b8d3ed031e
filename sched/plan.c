// plan.c - a plan as bytes: its hash, and the block in which rank 0 sends it.
// SPDX-License-Identifier: Apache-2.0
#include "sched/plan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// The arrays of a plan, one row each: member, count, type.
#define ARRAYS(X)                                                                                  \
    X(insns, n_insns, zx_insn)                                                                     \
    X(slots, n_slots, zx_slot)                                                                     \
    X(units, n_units, zx_unit)                                                                     \
    X(launches, n_launches, zx_launch)                                                             \
    X(members, n_members, zx_member)                                                               \
    X(steps, n_steps, zx_plan_step)                                                                \
    X(args, n_args, uint32_t)
// The numbers that decide what is executed.
#define NUMBERS(X)                                                                                 \
    X(ranks)                                                                                       \
    X(stage)                                                                                       \
    X(micro_batches)                                                                               \
    X(optimizer_states)                                                                            \
    X(n_insns)                                                                                     \
    X(n_slots)                                                                                     \
    X(n_units)                                                                                     \
    X(n_launches)                                                                                  \
    X(n_members)                                                                                   \
    X(n_steps)                                                                                     \
    X(n_args)                                                                                      \
    X(n_events)                                                                                    \
    X(graph_hash)                                                                                  \
    X(arena_bytes)                                                                                 \
    X(held_bytes)                                                                                  \
    X(budget)

// They are compared and sent as bytes: no padding in them.
static_assert(sizeof(zx_slot) == 24, "no padding");
static_assert(sizeof(zx_unit) == 64, "no padding");
static_assert(sizeof(zx_member) == 24, "no padding");
static_assert(sizeof(zx_launch) == 12, "no padding");
static_assert(sizeof(zx_plan_step) == 24, "no padding");

static uint64_t fnv(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * UINT64_C(0x100000001b3);
    return h;
}

uint64_t zx_plan_hash(const zx_plan *p)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
#define X(member)                                                                                  \
    {                                                                                              \
        const uint64_t x = p->member;                                                              \
        h = fnv(h, &x, sizeof x);                                                                  \
    }
    NUMBERS(X)
#undef X
#define X(member, count, type) h = fnv(h, p->member, (size_t)p->count * sizeof(type));
    ARRAYS(X)
#undef X
    return h;
}

// ---- sending
// ----------------------------------------------------------------------------------------------

static const char magic[8] = "zxplan2";

typedef struct header {
    char magic[8];
#define X(member) uint64_t member;
    NUMBERS(X)
#undef X
    char policy[sizeof((zx_plan){0}.policy)];
    uint64_t wire_bytes;
    double step_seconds, compute_seconds, exposed_seconds;
} header;

void zx_plan_pack(const zx_plan *p, zx_text *out)
{
    header h = {.wire_bytes = p->wire_bytes,
                .step_seconds = p->step_seconds,
                .compute_seconds = p->compute_seconds,
                .exposed_seconds = p->exposed_seconds};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.policy, p->policy, sizeof h.policy);
#define X(member) h.member = p->member;
    NUMBERS(X)
#undef X
    zx_text_bytes(out, &h, sizeof h);
#define X(member, count, type) zx_text_bytes(out, p->member, (size_t)p->count * sizeof(type));
    ARRAYS(X)
#undef X
}

zx_status zx_plan_unpack(const void *bytes, size_t n, zx_arena *mem, zx_plan *out, zx_err *err)
{
    header h;
    *out = (zx_plan){0};
    if (n < sizeof h) return ZX_FAIL(err, ZX_E_FORMAT, "a plan of %zu bytes is cut short", n);
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0)
        return ZX_FAIL(err, ZX_E_FORMAT, "these bytes are not a plan of this version of zerox");
    uint64_t want = sizeof h; // below 2^32 elements each: no sum overflows
#define X(member, count, type)                                                                     \
    if (h.count >= ZX_NONE)                                                                        \
        return ZX_FAIL(err, ZX_E_FORMAT, "a plan can't have %" PRIu64 " " #member, h.count);       \
    want += h.count * sizeof(type);
    ARRAYS(X)
#undef X
    if (want != n)
        return ZX_FAIL(err, ZX_E_FORMAT, "a plan of %zu bytes should have %" PRIu64, n, want);
    if (h.ranks > UINT32_MAX || h.stage > UINT32_MAX || h.micro_batches > UINT32_MAX ||
        h.optimizer_states > UINT32_MAX || h.n_events > UINT32_MAX)
        return ZX_FAIL(err, ZX_E_FORMAT, "a number in the plan's header is out of range");
    if (!isfinite(h.step_seconds) || !isfinite(h.compute_seconds) || !isfinite(h.exposed_seconds))
        return ZX_FAIL(err, ZX_E_FORMAT, "what the plan predicts is no time");
    zx_plan p = {.wire_bytes = h.wire_bytes,
                 .step_seconds = h.step_seconds,
                 .compute_seconds = h.compute_seconds,
                 .exposed_seconds = h.exposed_seconds};
#define X(member) p.member = (__typeof__(p.member))h.member;
    NUMBERS(X)
#undef X
    memcpy(p.policy, h.policy, sizeof p.policy);
    p.policy[sizeof p.policy - 1] = '\0';
    const unsigned char *at = (const unsigned char *)bytes + sizeof h;
#define X(member, count, type)                                                                     \
    p.member = zx_arena_copy(mem, at, (size_t)p.count * sizeof(type));                             \
    at += (size_t)p.count * sizeof(type);
    ARRAYS(X)
#undef X
    *out = p;
    return ZX_OK;
}
