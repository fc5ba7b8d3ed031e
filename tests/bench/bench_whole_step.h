// bench_whole_step.h - a planning problem in which residency is of whole steps alone, as
// DeepCompile has it: a unit that is chosen stays once it was gathered; any other is gathered for
// the forward pass and again for the backward pass of every micro-batch.
//
// What isn't chosen becomes two units, one a pass. The planner may still keep one of the two around
// a whole micro-batch: that saves one gather for bytes with which choosing the unit saves two.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_BENCH_WHOLE_STEP_H
#define ZX_BENCH_WHOLE_STEP_H

#include <string.h>

#include "sched/problem.h"

static inline const uint64_t *bench_twice(const uint64_t *list, uint32_t n, zx_arena *mem)
{
    uint64_t *both = ZX_NEW(mem, uint64_t, 2 * n + 1);
    memcpy(both, list, n * sizeof *both);
    memcpy(both + n, list, n * sizeof *both);
    return both;
}

// chosen: by unit; turn: the first step of backward.
static inline void bench_whole_step(const zx_problem *p, const bool *chosen, uint32_t turn,
                                    zx_arena *mem, zx_problem *out)
{
    const uint32_t n = p->n_units;
    zx_read *reads = ZX_NEW(mem, zx_read, p->n_reads + 1);
    bool *pinned = ZX_NEW(mem, bool, 2 * n + 1);
    memcpy(pinned, chosen, n * sizeof *pinned);
    for (uint32_t i = 0; i < p->n_reads; i++) {
        zx_read r = p->reads[i];
        if (!chosen[r.unit] && r.step >= turn) r.unit += n;
        uint32_t at = i; // within a step they are in order of units
        for (; at > 0 && reads[at - 1].step == r.step && reads[at - 1].unit > r.unit; at--)
            reads[at] = reads[at - 1];
        reads[at] = r;
    }
    *out = *p;
    out->n_units = 2 * n;
    out->reads = reads;
    out->pinned = pinned;
    out->unit_bytes = bench_twice(p->unit_bytes, n, mem);
    out->unit_wire = bench_twice(p->unit_wire, n, mem);
    out->unit_elements = bench_twice(p->unit_elements, n, mem);
}

// The fastest of several numbers of chosen units, the first ones that are read; false: none fits.
static inline bool bench_whole_step_best(const zx_problem *p, uint32_t turn, zx_price *best)
{
    bool found = false;
    uint64_t all = 0;
    for (uint32_t u = 0; u < p->n_units; u++) all += p->unit_bytes[u];
    for (uint64_t part = 0; part <= 32; part++) {
        zx_arena mem = {0};
        zx_problem q;
        zx_solution s;
        zx_price price;
        uint64_t least, bytes = 0;
        bool *chosen = ZX_NEW(&mem, bool, p->n_units + 1);
        for (uint32_t i = 0; i < p->n_reads && bytes < all / 32 * part; i++) {
            const uint32_t u = p->reads[i].unit;
            if (!chosen[u]) bytes += p->unit_bytes[u];
            chosen[u] = true;
        }
        bench_whole_step(p, chosen, turn, &mem, &q);
        if (zx_solve(&q, &mem, &s, &least)) {
            zx_problem_price(&q, &s, &price);
            if (!found || price.seconds < best->seconds) *best = price;
            found = true;
        }
        zx_arena_free(&mem);
    }
    return found;
}

// ---- lines at random ----------------------------------------------------------------------------

static inline uint32_t bench_draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 33) % below);
}

#define BENCH_LAYERS 12

// 2 to 12 layers of 1 to 3 units, forward and back; sizes, times, activations, 1 to 4 micro-batches
// and what is read again are drawn. The limit is between the least there is a solution for and what
// everything takes. False: there is a solution in no bytes at all.
static inline bool bench_random_line(uint32_t seed, zx_arena *mem, zx_problem *out, uint32_t *turn)
{
    uint64_t r = seed;
    const uint32_t layers = 2 + bench_draw(&r, BENCH_LAYERS - 1), n = 2 * layers;
    double *seconds = ZX_NEW(mem, double, n);
    uint64_t *base = ZX_NEW(mem, uint64_t, n), alive = 0;
    uint64_t *bytes = ZX_NEW(mem, uint64_t, 3 * layers),
             *elements = ZX_NEW(mem, uint64_t, 3 * layers);
    uint32_t *read_at = ZX_NEW(mem, uint32_t, n + 1), first[BENCH_LAYERS + 1] = {0};
    zx_read *reads = ZX_NEW(mem, zx_read, 6 * layers);
    zx_grad *grads = ZX_NEW(mem, zx_grad, 3 * layers);
    *out = (zx_problem){.n_steps = n, .micro_batches = 1 + bench_draw(&r, 4), .ranks = 2};
    for (uint32_t l = 0; l < layers; l++) {
        first[l + 1] = first[l] + 1 + bench_draw(&r, 3);
        for (uint32_t u = first[l]; u < first[l + 1]; u++) {
            bytes[u] = 64ull * (1 + bench_draw(&r, 64));
            elements[u] = bytes[u] / 4;
        }
    }
    for (uint32_t s = 0; s < n; s++) {
        const uint32_t l = s < layers ? s : n - 1 - s;
        seconds[s] = 1e-5 * (1 + bench_draw(&r, 100));
        if (s < layers) alive += 64ull * bench_draw(&r, 64);
        base[s] = s < layers ? alive : base[l];
        read_at[s] = out->n_reads;
        for (uint32_t u = first[l]; u < first[l + 1]; u++) {
            if (s < layers || bench_draw(&r, 4) > 0) reads[out->n_reads++] = (zx_read){s, u};
            if (s < layers) continue;
            base[s] += bytes[u];
            grads[out->n_grads] = (zx_grad){.unit = u,
                                            .storage = u,
                                            .ready = s + 1,
                                            .spare = s + 1,
                                            .latest = out->micro_batches > 1 ? n + s : n,
                                            .bytes = bytes[u]};
            out->n_grads++;
        }
    }
    read_at[n] = out->n_reads;
    out->seconds = seconds;
    out->base = base;
    out->n_units = first[layers];
    out->reads = reads;
    out->read_at = read_at;
    out->grads = grads;
    out->unit_bytes = out->unit_wire = bytes;
    out->unit_elements = elements;
    out->machine = zx_machine_host(2, 1);
    out->machine.cores = 0;
    zx_machine_link(&out->machine, 1e7, 1e-5 * bench_draw(&r, 5));
    *turn = layers;
    uint64_t least = 0, all = 0;
    zx_solution s;
    if (zx_solve(out, mem, &s, &least)) return false;
    for (uint32_t u = 0; u < out->n_units; u++) all += bytes[u];
    out->limit = least + all * (seed % 7) / 6;
    return true;
}

#endif
