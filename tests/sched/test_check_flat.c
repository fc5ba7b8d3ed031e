// test_check_flat.c - the checker's rules of 16-bit units, flat slots, copies and the bucket: a
// plan that breaks each, and the sentence that comes out.
// SPDX-License-Identifier: Apache-2.0
#include "tests/sched/check_plans.h"

// ---- through flat slots
// ---------------------------------------------------------------------------------
static void elements_of_two_bytes(edit *e)
{
    e->units[0].param_bytes = 2;
}
static void short_accumulator(edit *e)
{
    e->units[0].grad_bytes = 2;
}
static void f32_copy_of_f32(edit *e)
{
    e->units[0].master_slot = e->units[0].state_slot[0];
}
static void no_f32_copy(edit *e)
{
    e->units[0].master_slot = ZX_NONE;
}
static void f32_copy_of_another(edit *e)
{
    e->units[0].master_slot = e->units[2].master_slot;
}
static void f32_copy_of_16_bits(edit *e)
{
    e->slots[e->units[0].master_slot].bytes /= 2;
}
static void four_bytes_each(edit *e)
{
    e->units[0].param_bytes = 4;
}
static void long_accumulator(edit *e)
{
    e->units[0].grad_bytes = 4; // which is allowed, but the slot is for 2
}
static void member_elsewhere_in_the_row(edit *e)
{
    e->members[e->launches[0].member].at = 1;
}
// Its own flat slot becomes something else that may be there.
static void leave_flat(edit *e, uint32_t launch, uint32_t slot)
{
    zx_slot *was = &e->slots[e->launches[launch].flat];
    *was = (zx_slot){was->offset, was->bytes, ZX_SLOT_WORK, 0};
    e->launches[launch].flat = slot;
}
static void flat_of_nothing(edit *e)
{
    leave_flat(e, 0, find_slot(e, ZX_SLOT_VALUE, 0));
}
static void flat_of_another(edit *e)
{
    e->slots[find_slot(e, ZX_SLOT_FLAT, 0)].what ^= 1;
}
static void short_flat(edit *e)
{
    e->slots[find_slot(e, ZX_SLOT_FLAT, 0)].bytes -= 4;
}
static void two_of_other_sizes_share_a_flat(edit *e)
{
    for (uint32_t i = 1; i < e->p.n_launches; i++) {
        const uint32_t flat = e->launches[i].flat;
        if (e->slots[flat].bytes == e->slots[e->launches[0].flat].bytes) continue;
        leave_flat(e, 0, flat);
        return;
    }
    fail_msg("all launches are equal");
}
static void part_outside_the_bucket(edit *e)
{
    e->slots[find_slot(e, ZX_SLOT_PART, 0)].offset = 0;
}
static void part_before_the_bucket(edit *e)
{
    e->slots[find_slot(e, ZX_SLOT_PART, 0)].offset = e->slots[find_slot(e, ZX_SLOT_FLAT, 0)].offset;
}
static void part_longer_than_the_bucket(edit *e)
{
    zx_slot *bucket = &e->slots[find_slot(e, ZX_SLOT_BUCKET, 0)];
    bucket->bytes = 4;
    e->p.arena_bytes = 0; // which is no longer where the bucket ends
    for (uint32_t i = 0; i < e->p.n_slots; i++)
        if (e->slots[i].offset + e->slots[i].bytes > e->p.arena_bytes)
            e->p.arena_bytes = e->slots[i].offset + e->slots[i].bytes;
}
static void part_of_another(edit *e)
{
    const zx_launch *l = &e->launches[e->insns[find(e, ZX_I_REDUCE, 0)].a];
    const zx_launch *other = &e->launches[e->insns[find(e, ZX_I_REDUCE, 1)].a];
    e->members[l->member].part = e->members[other->member].part;
}
static void part_of_a_gather(edit *e)
{
    e->members[e->launches[e->insns[find(e, ZX_I_GATHER, 0)].a].member].part =
        find_slot(e, ZX_SLOT_PART, 0);
}
static void two_buckets_of_what(edit *e)
{
    e->slots[find_slot(e, ZX_SLOT_BUCKET, 0)].what = 1;
}
static void no_such_member(edit *e)
{
    zx_insn *in = &e->insns[find(e, ZX_I_BUCKET, 0)];
    in->b = e->launches[in->a].n_members;
}
static void not_packed(edit *e)
{
    const uint32_t i = find(e, ZX_I_PACK, 0);
    e->insns[i].id = ZX_I_MARK;
    e->insns[i].a = ZX_NONE;
}
static void packed_on_the_other_stream(edit *e)
{
    e->insns[find(e, ZX_I_PACK, 0)].stream = ZX_S_BUCKET;
}
static void packed_without_flat(edit *e)
{
    zx_insn pack = {ZX_I_PACK, ZX_S_COPY,      0, ZX_NONE, e->insns[find(e, ZX_I_GATHER, 0)].a,
                    ZX_NONE,   e->p.n_events++};
    insert(e, find(e, ZX_I_GATHER, 0), pack);
}
static void unpacked_before_it_is_there(edit *e)
{
    drop(e, find_wait(e, ZX_S_COPY, 1)); // the first is before the pack
}
static void packed_too_late(edit *e)
{
    for (uint32_t i = find(e, ZX_I_GATHER, 0);; i--)
        if (e->insns[i].id == ZX_I_WAIT && e->insns[i].stream == ZX_S_GATHER) {
            drop(e, i);
            return;
        }
}
static void not_unpacked(edit *e)
{
    const uint32_t i = find(e, ZX_I_UNPACK, 0);
    e->insns[i].id = ZX_I_MARK;
    e->insns[i].a = ZX_NONE;
}
static void unpacked_twice(edit *e)
{
    zx_insn again = e->insns[find(e, ZX_I_UNPACK, 0)];
    again.c = e->p.n_events++;
    insert(e, find(e, ZX_I_UNPACK, 0) + 1, again);
}
static void unpacks_a_reduce(edit *e)
{
    e->insns[find(e, ZX_I_UNPACK, 0)].a = e->insns[find(e, ZX_I_REDUCE, 0)].a;
}
static void not_bucketed(edit *e)
{
    const uint32_t i = find(e, ZX_I_BUCKET, 0);
    e->insns[i].id = ZX_I_MARK;
    e->insns[i].a = e->insns[i].b = ZX_NONE;
}
static void bucketed_twice(edit *e)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < e->p.n_insns; i++)
        if (e->insns[i].id == ZX_I_BUCKET) last = i;
    zx_insn again = e->insns[last];
    again.c = e->p.n_events++;
    insert(e, last + 1, again);
}
static void bucketed_without_part(edit *e)
{
    e->members[e->launches[e->insns[find(e, ZX_I_BUCKET, 0)].a].member].part = ZX_NONE;
}
static void frees_the_bucket(edit *e)
{
    e->insns[find(e, ZX_I_FREE, 0)].a = find_slot(e, ZX_SLOT_BUCKET, 0);
}
static void executed_after_the_norm(edit *e)
{
    uint32_t last = 0; // nobody reads what it makes
    for (uint32_t i = 0; i < e->p.n_insns; i++)
        if (e->insns[i].id == ZX_I_EXEC) last = i;
    move(e, last, find(e, ZX_I_NORM, 0));
}
static const check_case cases[] = {
    {"a good plan of stage 3 through flat slots", FLAT, none, NULL},
    {"a good plan of stage 2 through flat slots", FLAT_SPREAD, none, NULL},
    {"16 bits in the plan, 32 in the graph", SHARDED, elements_of_two_bytes,
     "elements of 2 bytes in the plan, of 4"},
    {"an accumulator shorter than what it adds up", SHARDED, short_accumulator,
     "is accumulated in elements of 2 bytes"},
    {"an f32 copy of f32", SHARDED, f32_copy_of_f32, "has a slot for its f32 copy"},
    {"a good plan of 16 bits", HALF, none, NULL},
    {"no f32 copy", HALF, no_f32_copy, "has no slot for its f32 copy"},
    {"the f32 copy of another", HALF, f32_copy_of_another, "has no slot for its f32 copy"},
    {"an f32 copy of 16 bits", HALF, f32_copy_of_16_bits, "bytes for its f32 copy, it needs"},
    {"32 bits in the plan, 16 in the graph", HALF, four_bytes_each,
     "elements of 4 bytes in the plan, of 2"},
    {"an accumulator longer than its slot", HALF, long_accumulator,
     "bytes for its gradient, it needs"},
    {"a member elsewhere in the row", SHARDED, member_elsewhere_in_the_row,
     "is at element 1 of a row, those before it end at 0"},
    {"a flat slot that is none", FLAT, flat_of_nothing, "launch 0 goes through no flat slot"},
    {"a flat slot of another launch", FLAT, flat_of_another, "is for nothing that there is"},
    {"a flat slot too short", FLAT, short_flat, "should have"},
    {"two launches of other sizes share a flat slot", FLAT, two_of_other_sizes_share_a_flat,
     "it needs"},
    {"a part outside the bucket", FLAT, part_outside_the_bucket, "share bytes"},
    {"a part before the bucket", FLAT, part_before_the_bucket, "lies in no bucket"},
    {"a part longer than the bucket", FLAT, part_longer_than_the_bucket, "lies in no bucket"},
    {"a part of another unit", FLAT, part_of_another, "has a part of the bucket that isn't for it"},
    {"a part for a gather", FLAT, part_of_a_gather, "has a part of the bucket that isn't for it"},
    {"a bucket of something", FLAT, two_buckets_of_what, "is for nothing that there is"},
    {"a gradient of no member", FLAT, no_such_member, "has no member"},
    {"a gather that isn't packed", FLAT, not_packed, "reads this rank's row of launch"},
    {"a gather packed as a reduce", FLAT, packed_on_the_other_stream, "isn't reduced"},
    {"a pack without a flat slot", SHARDED, packed_without_flat, "goes through no flat slot"},
    {"rows unpacked before they are there", FLAT, unpacked_before_it_is_there,
     "reads the gathered rows of launch"},
    {"a gather before it is packed", FLAT, packed_too_late, "reads this rank's row"},
    {"a gather that isn't unpacked", FLAT, not_unpacked, "reads the gathered"},
    {"a gather unpacked twice", FLAT, unpacked_twice, "a unit that was never freed"},
    {"a reduce unpacked", FLAT, unpacks_a_reduce, "is reduced"},
    {"a gradient that isn't in the bucket", FLAT, not_bucketed, "in the bucket from"},
    {"a gradient too often in the bucket", FLAT, bucketed_twice, "once more than there are"},
    {"a gradient without a part of the bucket", FLAT, bucketed_without_part,
     "has no part of the bucket"},
    {"the bucket is freed", FLAT, frees_the_bucket, "which lives across steps"},
    {"parameters left in shards by flat gathers", FLAT_SPREAD, not_unpacked,
     "but not gathered again"},
    {"a node executed after the norm", SHARDED, executed_after_the_norm, "comes after the norm"},
};

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(cases)];
    for (size_t i = 0; i < ZX_COUNT(cases); i++)
        tests[i] = zx_case(cases[i].name, test_check, &cases[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
