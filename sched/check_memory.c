// check_memory.c - bytes that remember what they hold, who wrote it and who read it since.
//
// The borders of all slots cut the reservation into pieces; a segment is a run of pieces with one
// history. A write replaces the segments it meets, once everybody who used them is done; what is
// left of a segment at its sides holds nothing any more. Each access is a search for a border in a
// bitmap of bitmaps, and every segment that is met vanishes, so a whole plan costs O(n log n).
// SPDX-License-Identifier: Apache-2.0
#include "sched/check.h"

#include <inttypes.h>
#include <stdlib.h>

// ---- borders
// ----------------------------------------------------------------------------------------------

static int by_address(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t find_border(const zx_shadow *s, uint64_t address)
{
    uint32_t a = 0, b = s->n_borders;
    while (a < b) {
        const uint32_t mid = a + (b - a) / 2;
        if (s->borders[mid] < address)
            a = mid + 1;
        else
            b = mid;
    }
    return a;
}

static void set_bit(zx_shadow *s, uint32_t i)
{
    for (uint32_t l = 0; l < s->n_levels; l++, i /= 64)
        s->bits[l][i / 64] |= UINT64_C(1) << (i % 64);
}

static void clear_bit(zx_shadow *s, uint32_t i)
{
    for (uint32_t l = 0; l < s->n_levels; l++, i /= 64) {
        s->bits[l][i / 64] &= ~(UINT64_C(1) << (i % 64));
        if (s->bits[l][i / 64] != 0) return;
    }
}

// The highest set bit at or below i; ZX_NONE.
static uint32_t set_below(const zx_shadow *s, uint32_t i)
{
    for (uint32_t l = 0; l < s->n_levels; l++) {
        const uint32_t in = i % 64;
        uint64_t word = s->bits[l][i / 64] & (UINT64_MAX >> (63 - in));
        if (word != 0) {
            i = i / 64 * 64 + (63 - (uint32_t)__builtin_clzll(word));
            while (l-- > 0) { // and down again to the lowest level
                word = s->bits[l][i];
                i = i * 64 + (63 - (uint32_t)__builtin_clzll(word));
            }
            return i;
        }
        if (i / 64 == 0) return ZX_NONE;
        i = i / 64 - 1;
    }
    return ZX_NONE;
}

void zx_shadow_make(zx_check *c)
{
    const zx_plan *p = c->p;
    zx_shadow *s = &c->shadow;
    uint64_t *borders = ZX_NEW(c->mem, uint64_t, 2 * (size_t)p->n_slots + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        if (p->slots[i].bytes == 0) continue;
        borders[n++] = p->slots[i].offset;
        borders[n++] = p->slots[i].offset + p->slots[i].bytes;
    }
    qsort(borders, n, sizeof *borders, by_address);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || borders[i] != borders[s->n_borders - 1]) borders[s->n_borders++] = borders[i];
    s->borders = borders;
    uint32_t *lo = ZX_NEW(c->mem, uint32_t, p->n_slots), *hi = ZX_NEW(c->mem, uint32_t, p->n_slots);
    for (uint32_t i = 0; i < p->n_slots; i++) {
        if (p->slots[i].bytes == 0) continue;
        lo[i] = find_border(s, p->slots[i].offset);
        hi[i] = find_border(s, p->slots[i].offset + p->slots[i].bytes);
    }
    s->lo = lo;
    s->hi = hi;
    s->segments = ZX_NEW(c->mem, zx_segment, s->n_borders + 1);
    for (uint32_t words = s->n_borders / 64 + 1;; words = words / 64 + 1) {
        s->bits[s->n_levels++] = ZX_NEW(c->mem, uint64_t, words);
        if (words == 1) break;
    }
}

// ---- accesses
// ---------------------------------------------------------------------------------------------

bool zx_check_done(const zx_check *c, uint32_t before, uint32_t now)
{
    if (before == ZX_NONE) return true;
    return c->known[c->p->insns[now].stream][c->p->insns[before].stream] > c->place[before];
}

zx_content zx_shadow_look(const zx_check *c, uint32_t slot)
{
    const zx_shadow *s = &c->shadow;
    const uint32_t lo = s->lo[slot];
    if (lo == s->hi[slot] || set_below(s, lo) != lo || s->segments[lo].end != s->hi[slot])
        return (zx_content){0};
    return s->segments[lo].content;
}

// Two instructions meet in a slot without an order.
static zx_status unordered(zx_check *c, uint32_t insn, uint32_t other, uint32_t slot)
{
    return ZX_BROKEN(c, "%s and %s use the same bytes of %s, and no event orders them",
                     zx_check_insn_text(c, insn), zx_check_insn_text(c, other),
                     zx_check_slot_text(c, slot));
}

zx_status zx_shadow_read(zx_check *c, uint32_t insn, uint32_t slot, const zx_content *want)
{
    zx_shadow *s = &c->shadow;
    const uint32_t lo = s->lo[slot];
    if (lo == s->hi[slot]) return ZX_OK; // nothing to read
    for (uint32_t i = set_below(s, s->hi[slot] - 1); i != ZX_NONE && s->segments[i].end > lo;
         i = i == 0 ? ZX_NONE : set_below(s, i - 1))
        if (!zx_check_done(c, s->segments[i].writer, insn))
            return unordered(c, insn, s->segments[i].writer, slot);
    const zx_content is = zx_shadow_look(c, slot);
    if (is.holds != want->holds || is.what != want->what || is.version != want->version)
        return ZX_BROKEN(c, "%s reads %s from %s, which holds %s", zx_check_insn_text(c, insn),
                         zx_check_content_text(c, want), zx_check_slot_text(c, slot),
                         zx_check_content_text(c, &is));
    s->segments[lo].reader[c->p->insns[insn].stream] = insn;
    return ZX_OK;
}

// Everybody who used a segment is done when `insn` begins.
static zx_status check_over(zx_check *c, uint32_t insn, uint32_t slot, const zx_segment *g,
                            bool over)
{
    if (g->writer == insn)
        return ZX_BROKEN(c, "%s writes the same bytes twice, in %s", zx_check_insn_text(c, insn),
                         zx_check_slot_text(c, slot));
    if (!zx_check_done(c, g->writer, insn)) return unordered(c, insn, g->writer, slot);
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        const uint32_t reader = g->reader[k];
        if (reader == insn && !over)
            return ZX_BROKEN(c, "%s writes %s over bytes that it reads itself",
                             zx_check_insn_text(c, insn), zx_check_slot_text(c, slot));
        if (reader != insn && !zx_check_done(c, reader, insn))
            return unordered(c, insn, reader, slot);
    }
    return ZX_OK;
}

zx_status zx_shadow_write(zx_check *c, uint32_t insn, uint32_t slot, const zx_content *now,
                          bool over)
{
    zx_shadow *s = &c->shadow;
    const uint32_t lo = s->lo[slot], hi = s->hi[slot];
    if (lo == hi) return ZX_OK;
    for (uint32_t at = hi - 1;;) { // the segments that it meets, from the highest down
        const uint32_t i = set_below(s, at);
        if (i == ZX_NONE || s->segments[i].end <= lo) break;
        const zx_segment g = s->segments[i];
        if (insn != ZX_NONE) ZX_TRY(check_over(c, insn, slot, &g, over));
        if (g.end > hi) { // its upper part stays, as bytes that hold nothing
            s->segments[hi] = g;
            s->segments[hi].content = (zx_content){0};
            set_bit(s, hi);
        }
        if (i < lo) { // its lower part likewise
            s->segments[i].end = lo;
            s->segments[i].content = (zx_content){0};
            break;
        }
        clear_bit(s, i);
        if (i == 0) break;
        at = i - 1;
    }
    s->segments[lo] = (zx_segment){.end = hi, .content = *now, .writer = insn};
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) s->segments[lo].reader[k] = ZX_NONE;
    set_bit(s, lo);
    return ZX_OK;
}
