// machine.c - machines as numbers, and what collectives cost on them; see machine.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/machine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double zx_curve_seconds(const zx_curve *c, double bytes)
{
    if (c->n == 0) return 0;
    if (bytes <= c->bytes[0]) return c->seconds[0];
    for (uint32_t i = 1; i < c->n; i++) {
        if (bytes > c->bytes[i]) continue;
        const double part = log(bytes / c->bytes[i - 1]) / log(c->bytes[i] / c->bytes[i - 1]);
        return c->seconds[i - 1] + part * (c->seconds[i] - c->seconds[i - 1]);
    }
    const uint32_t last = c->n - 1;
    return c->seconds[last] * bytes / c->bytes[last];
}

uint64_t zx_gather_wire(uint32_t ranks, uint64_t bytes)
{
    return bytes / ranks * (ranks - 1);
}

uint64_t zx_allreduce_wire(uint32_t ranks, uint64_t bytes)
{
    return 2 * zx_gather_wire(ranks, bytes);
}

static double on_wire(const zx_machine *m, const zx_curve *c, uint32_t ranks, uint64_t bytes)
{
    if (m->wire > 0) return m->latency + (double)zx_gather_wire(ranks, bytes) / m->wire;
    return zx_curve_seconds(c, (double)bytes);
}

double zx_gather_seconds(const zx_machine *m, uint32_t ranks, uint64_t bytes)
{
    return ranks == 1 ? 0 : on_wire(m, &m->gather, ranks, bytes);
}

// A reduce reads every rank's piece of this rank's shard and adds them up.
double zx_reduce_seconds(const zx_machine *m, uint32_t ranks, uint64_t bytes)
{
    const double adding = (double)bytes / m->sum;
    return ranks == 1 ? adding : on_wire(m, &m->reduce, ranks, bytes) + adding;
}

double zx_allreduce_seconds(const zx_machine *m, uint32_t ranks, uint64_t bytes)
{
    return zx_reduce_seconds(m, ranks, bytes) + zx_gather_seconds(m, ranks, bytes);
}

// Cores share a host's memory: two of them move about 1.7 times as much as one, many about 4 times.
zx_machine zx_machine_host(uint32_t ranks, uint32_t threads)
{
    // One core of a current server (AVX-512, oneDNN f32), ranks on one host over shared memory.
    zx_machine m = {.name = "host",
                    .host = true,
                    .ranks = ranks,
                    .flops = 100e9,
                    .flops_16 = 100e9,
                    .memory = 8e9,
                    .op_seconds = 3e-6,
                    .copy = 8e9,
                    .sum = 6e9,
                    .update = 8e9,
                    .threads = threads,
                    .wire = 4e9,
                    .latency = 30e-6};
    const double t = threads == 0 ? 1 : (double)threads;
    m.flops *= t;
    m.flops_16 *= t;
    m.memory *= 5 * t / (t + 4);
    m.update = m.memory;
    return m;
}

void zx_machine_link(zx_machine *m, double bytes_per_second, double latency_seconds)
{
    m->wire = bytes_per_second;
    m->latency = latency_seconds;
}
