// fuse_layout.h - a value as another one whose numbers lie in another order: what a chain of
// reshapes, transpositions and repetitions comes to. However an exporter writes it, the same
// movement is the same layout, and is written anew in as few nodes as it takes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_FUSE_LAYOUT_H
#define ZX_GRAPH_FUSE_LAYOUT_H

#include "graph/fuse_parts.h"

#define ZX_LAYOUT_PARTS 24

// `size` numbers, `stride` numbers of the root apart; stride 0: the same ones again.
typedef struct zx_part {
    int64_t size, stride;
} zx_part;

typedef struct zx_parts { // an axis, or several in a row, outermost part first
    uint32_t n;
    zx_part part[ZX_LAYOUT_PARTS];
} zx_parts;

typedef struct zx_layout {
    uint32_t root, rank;
    zx_parts axis[ZX_MAX_RANK];
    double scale; // and times this
    // Where `of` isn't ZX_NONE, the root is to be sliced of that: n from `start` on along an axis.
    // Its numbers are those of `root`, in another order.
    uint32_t of, cut_axis;
    int64_t start, n;
    uint32_t moves, views; // transpositions and reshapes on the way
    uint32_t first_source; // of them
} zx_layout;

enum { // what may be looked through beside reshapes and transpositions
    ZX_LAYOUT_SCALES = 1,
    ZX_LAYOUT_REPEATS = 2,
    ZX_LAYOUT_SLICES = 4, // that are taken of something moved: taken before it was, instead
};

// As far back as it goes.
void zx_layout_of(const zx_match *m, uint32_t v, uint32_t through, zx_layout *l);
// Puts b behind a; false: more parts than fit.
bool zx_parts_add(zx_parts *a, const zx_parts *b);
// Takes the outermost `size` numbers off `from`; false where no cut lies there.
bool zx_parts_cut(zx_parts *from, int64_t size, zx_parts *cut);
int64_t zx_parts_count(const zx_parts *p);
// Whether the parts are the whole root in its own order: a view of it.
bool zx_parts_in_order(const zx_parts *p);
// The root's numbers in the order of the parts, as this shape: a view where they are in order,
// else one transposition. The parts must be the whole root, each once.
bool zx_parts_whole(const zx_match *m, uint32_t root, const zx_parts *p);
uint32_t zx_parts_build(zx_match *m, uint32_t root, const zx_parts *p, const zx_shape *as);

// The root, made where it isn't there.
uint32_t zx_layout_root(zx_match *m, const zx_layout *l);
// Which axis is cut by a slice, the others being whole; the rank where it isn't one.
uint32_t zx_m_sliced_axis(const zx_match *m, const zx_node *slice);
// The node that reads v, where only one does; else NULL.
const zx_node *zx_m_reader(const zx_match *m, uint32_t v);
// A node of this operator on x (and y, z, or ZX_NONE) that was made while this pass runs, for
// whoever needs the same again: its output, else ZX_NONE.
uint32_t zx_m_made(const zx_match *m, zx_op_id op, uint32_t x, uint32_t y, uint32_t z);
// Whether a gradient would go to v: it is a parameter, or made of one.
bool zx_m_trained(zx_match *m, uint32_t v);

#endif
