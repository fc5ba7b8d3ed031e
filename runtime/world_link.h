// world_link.h - what world.c asks of the two ways in which ranks reach each other: sockets between
// processes (world_socket.c), a meeting place between threads (world_local.c).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_WORLD_LINK_H
#define ZX_RUNTIME_WORLD_LINK_H

#include <stdatomic.h>

#include "runtime/world.h"

#define ZX_WORLD_MOST_RANKS 1024
#define ZX_WORLD_LOOK_MS 50 // every wait looks this often whether a peer is gone

// Why the ranks no longer wait for each other; the first reason stays.
typedef enum zx_lost_kind {
    ZX_LOST_NOT,
    ZX_LOST_DIED,
    ZX_LOST_GAVE_UP,
    ZX_LOST_LEFT,
    ZX_LOST_SILENT
} zx_lost_kind;

// One for all ranks, seen by all.
typedef struct zx_world_shared {
    _Atomic uint32_t lost;                      // kind << 16 | rank
    _Atomic uint64_t claims[8];                 // hashes of sentences, 0: free
    _Atomic uint32_t left[ZX_WORLD_MOST_RANKS]; // 1: that rank has closed its world
} zx_world_shared;

// Every rank's bytes: rank r's are bytes[at[r] .. at[r + 1]). Both malloc'ed.
typedef struct zx_parts {
    unsigned char *bytes;
    uint64_t *at;
} zx_parts;
void zx_parts_free(zx_parts *p);
// Makes room for parts of the given sizes; at[] is filled, bytes isn't.
zx_status zx_parts_room(zx_parts *p, uint32_t size, const uint64_t *sizes, zx_err *err);

typedef struct zx_link {
    // All ranks' bytes to all. `call` names the collective call: all ranks must be in the same one.
    zx_status (*share)(zx_world *w, uint32_t call, const void *mine, uint64_t n, zx_parts *out,
                       zx_err *err);
    // Maps `bytes` of every rank; base[r] may be NULL where this failed.
    zx_status (*map)(zx_world *w, uint64_t bytes, unsigned char **base, zx_err *err);
    // Gives up what map mapped; bytes as given to map.
    void (*unmap)(zx_world *w, uint64_t bytes, unsigned char **base);
    void (*close)(zx_world *w);
} zx_link;

struct zx_world {
    const zx_link *link;
    uint32_t rank, size;
    bool kept;       // nothing is unmapped any more
    double patience; // seconds that it waits for another rank; 0: for ever
    zx_world_shared *shared;
    struct zx_socket_link *socket; // world_socket.c
    struct zx_local_link *local;   // world_local.c, one for all ranks
    struct zx_region {             // what zx_world_reserve mapped here
        void *at;
        uint64_t bytes;
    } * regions;
    uint32_t n_regions, cap_regions;
};

zx_world *zx_world_new(const zx_link *link, uint32_t rank, uint32_t size); // NULL: no memory
void zx_world_mark(zx_world *w, zx_lost_kind kind, uint32_t rank);
// Remembers a mapping for zx_world_close; unmaps it at once if that fails.
zx_status zx_world_keep(zx_world *w, void *at, uint64_t bytes, zx_err *err);
void zx_world_drop(zx_world *w, void *at); // unmaps what was kept
// An anonymous or memfd mapping of `bytes` whose pages are touched only when written.
zx_status zx_world_map(int fd, uint64_t bytes, void **at, zx_err *err);

#endif
