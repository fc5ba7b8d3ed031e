// machine.c - machines as numbers, and what collectives cost on them; see machine.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/machine.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Fitted, the only two: on the published points of bench_sim.c. The share of the achieved products
// that a model's products reach, and of the memory's rate that the optimizer's step reaches.
#define FIT_PRODUCTS 0.9
#define FIT_UPDATE 0.13

#define INTERFERENCE 0.189
#define OP_SECONDS 3e-6
#define HOST_SECONDS 5e-6
#define HOOK_SECONDS 50e-6

// ---- curves -------------------------------------------------------------------------------------

double zx_curve_seconds(const zx_curve *c, double bytes)
{
    if (c->n == 0) return 0;
    if (bytes <= c->bytes[0]) return c->seconds[0];
    const uint32_t last = c->n - 1;
    if (bytes >= c->bytes[last]) return c->seconds[last] * (bytes / c->bytes[last]);
    uint32_t i = 1;
    while (bytes > c->bytes[i]) i++;
    const double part = log(bytes / c->bytes[i - 1]) / log(c->bytes[i] / c->bytes[i - 1]);
    return c->seconds[i - 1] * pow(c->seconds[i] / c->seconds[i - 1], part);
}

uint64_t zx_gather_wire(uint32_t ranks, uint64_t bytes)
{
    return bytes / ranks * (ranks - 1);
}

uint64_t zx_allreduce_wire(uint32_t ranks, uint64_t bytes)
{
    return 2 * zx_gather_wire(ranks, bytes);
}

// ---- collectives --------------------------------------------------------------------------------

static double sent(const zx_machine *m, const zx_curve *c, uint32_t ranks, uint64_t bytes)
{
    if (m->wire > 0) return (double)zx_gather_wire(ranks, bytes) / m->wire;
    return zx_curve_seconds(c, (double)bytes);
}

const zx_rates_16 *zx_machine_rates_16(const zx_machine *m, zx_dtype type)
{
    const zx_rates_16 *r = type == ZX_BF16 ? &m->bf16 : type == ZX_F16 ? &m->fp16 : NULL;
    return r != NULL && r->flops > 0 ? r : NULL;
}

double zx_machine_norm(const zx_machine *m, zx_dtype type)
{
    const zx_rates_16 *r = zx_machine_rates_16(m, type);
    if (r != NULL && r->norm > 0) return r->norm;
    return m->norm > 0 ? m->norm : m->memory;
}

zx_machine zx_machine_in(const zx_machine *m, zx_dtype type)
{
    const zx_rates_16 *r = zx_machine_rates_16(m, type);
    zx_machine in = *m;
    if (r != NULL && r->sum > 0) in.sum = r->sum;
    if (r != NULL && r->update > 0) in.update = r->update;
    return in;
}

double zx_wire_seconds(const zx_machine *m, zx_collective what, uint32_t ranks, uint64_t bytes)
{
    double seconds = 0;
    if (ranks == 1) return 0;
    if (what != ZX_REDUCE_SCATTER) seconds += sent(m, &m->gather, ranks, bytes);
    if (what != ZX_ALL_GATHER) seconds += sent(m, &m->reduce, ranks, bytes);
    return m->latency + seconds;
}

// A rank writes all bytes of a gather; it reads every rank's piece of its own shard to add them up,
// and copies the others' sums. Measured tables have the adding in them.
double zx_core_seconds(const zx_machine *m, zx_collective what, uint32_t ranks, uint64_t bytes)
{
    const bool table = m->wire <= 0 && m->cores <= 0 && ranks > 1;
    const double all = (double)bytes;
    if (what == ZX_ALL_GATHER) return m->cores > 0 ? all / m->copy : 0;
    double seconds = table ? 0 : all / m->sum;
    if (what == ZX_ALL_REDUCE && m->cores > 0)
        seconds += (double)zx_gather_wire(ranks, bytes) / m->copy;
    return seconds;
}

double zx_refill_seconds(const zx_machine *m, double bytes)
{
    return m->cores > 0 ? fmin(bytes, m->cache) / m->copy : 0;
}

static double alone(const zx_machine *m, zx_collective what, uint32_t ranks, uint64_t bytes)
{
    const double wire = zx_wire_seconds(m, what, ranks, bytes);
    const double core = zx_core_seconds(m, what, ranks, bytes);
    return m->cores > 0 ? fmax(wire, core) : wire + core;
}

double zx_gather_seconds(const zx_machine *m, uint32_t ranks, uint64_t bytes)
{
    return ranks == 1 ? 0 : alone(m, ZX_ALL_GATHER, ranks, bytes);
}

double zx_reduce_seconds(const zx_machine *m, uint32_t ranks, uint64_t bytes)
{
    return alone(m, ZX_REDUCE_SCATTER, ranks, bytes);
}

double zx_allreduce_seconds(const zx_machine *m, uint32_t ranks, uint64_t bytes)
{
    return alone(m, ZX_ALL_REDUCE, ranks, bytes);
}

// ---- rows ---------------------------------------------------------------------------------------

typedef enum link_id { V100, A100, H100, H100_1, H200, B200 } link_id;
typedef enum link_way { GATHER, REDUCE } link_way;

static const struct machine_row {
    const char *names;
    uint32_t gpus; // a node
    double device_bytes, flops, flops_16, peak, peak_16, peak_tf32, memory;
    link_id links;
    const char *what;
} rows[] = {
#define ZX_MACHINE(names, gpus, bytes, flops, flops_16, peak, peak_16, tf32, memory, links, what)  \
    {names, gpus, bytes, flops, flops_16, peak, peak_16, tf32, memory, links, what},
#include "sched/machines.def"
};

static const struct link_row {
    link_id links;
    link_way which;
    uint32_t nodes;
    double latency, rate;
} link_rows[] = {
#define ZX_LINK(links, which, nodes, us, gbps) {links, which, nodes, us * 1e-6, gbps * 1e9},
#include "sched/machines.def"
};

static const struct rate_row {
    link_id links;
    uint32_t nodes;
    double bytes, rate;
} rate_rows[] = {
#define ZX_RATE(links, nodes, mib, gbps) {links, nodes, mib * 1048576.0, gbps * 1e9},
#include "sched/machines.def"
};

#define MOST_RANKS 65536
#define FIRST_POINT 4096.0 // bytes; a point each time the size doubles, up to 32 GiB

// Seconds by the rows for exactly so many nodes; < 0: there are none.
static double by_row(link_id links, link_way which, uint32_t nodes, uint32_t ranks, double bytes)
{
    const double sent_bytes = bytes / ranks * (ranks - 1);
    for (size_t i = 0; i < ZX_COUNT(link_rows); i++) {
        const struct link_row *l = &link_rows[i];
        if (l->links == links && l->which == which && l->nodes == nodes)
            return l->latency + sent_bytes / l->rate;
    }
    zx_curve c = {0}; // of what the wire carries
    for (size_t i = 0; i < ZX_COUNT(rate_rows); i++) {
        const struct rate_row *r = &rate_rows[i];
        if (r->links != links || r->nodes != nodes) continue;
        c.bytes[c.n] = r->bytes;
        c.seconds[c.n++] = r->bytes / r->rate;
    }
    if (c.n == 0) return -1;
    return zx_curve_seconds(&c, bytes) / ranks * (ranks - 1);
}

static double by_nodes(link_id links, link_way which, uint32_t nodes, uint32_t ranks, double bytes)
{
    uint32_t below = 0, above = 0, before = 0; // rows: the last two up to `nodes`, the next one
    for (uint32_t n = 1; n <= 64; n++) {
        if (by_row(links, which, n, ranks, bytes) < 0) continue;
        if (n > nodes) {
            above = n;
            break;
        }
        before = below;
        below = n;
    }
    if (below == 0) return by_row(links, which, above, ranks, bytes); // fewer than the first row
    const double low = by_row(links, which, below, ranks, bytes);
    if (below == nodes) return low;
    const double part = (double)(nodes - below);
    if (above != 0) {
        const double high = by_row(links, which, above, ranks, bytes);
        return low + part / (above - below) * (high - low);
    }
    const double grown = by_row(links, which, below, ranks, FIRST_POINT) -
                         by_row(links, which, before, ranks, FIRST_POINT);
    return low + part / (below - before) * grown;
}

static zx_curve curve_of(const struct machine_row *row, link_way which, uint32_t ranks)
{
    zx_curve c = {0};
    if (ranks == 1) return c;
    const uint32_t nodes = (ranks + row->gpus - 1) / row->gpus;
    for (double bytes = FIRST_POINT; c.n < ZX_CURVE_POINTS; bytes *= 2) {
        c.bytes[c.n] = bytes;
        c.seconds[c.n++] = by_nodes(row->links, which, nodes, ranks, bytes);
    }
    return c;
}

static bool has_word(const char *words, const char *word, size_t n)
{
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        const size_t len = strcspn(at, " ");
        if (len == n && memcmp(at, word, n) == 0) return true;
        at += len;
    }
    return false;
}

// `name` without its count has n bytes.
static zx_status no_such(const char *name, size_t n_name, zx_err *err)
{
    zx_arena mem = {0};
    const char *words[2 * ZX_COUNT(rows)];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        for (const char *at = rows[i].names; *at != '\0'; at += strspn(at, " ")) {
            const size_t len = strcspn(at, " ");
            words[n++] = zx_arena_strn(&mem, at, len);
            at += len;
        }
    const char *near = zx_text_nearest(zx_arena_strn(&mem, name, n_name), words, n);
    zx_err_hint(err, "zerox machine --list, or a file as zerox machine --format json writes it");
    const zx_status st = ZX_FAIL(err, ZX_E_USAGE, "there is no machine '%s'%s%s%s",
                                 zx_text_safe(&mem, name), near != NULL ? "; the nearest is '" : "",
                                 near != NULL ? near : "", near != NULL ? "'" : "");
    zx_arena_free(&mem);
    return st;
}

// "h100x32": the length of "h100", and 32; a name that ends in no count: 0.
static size_t split_count(const char *name, uint64_t *count)
{
    size_t n = strlen(name), digits = n;
    *count = 0;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') digits--;
    if (digits < 2 || digits == n || name[digits - 1] != 'x' || n - digits > 9) return n;
    *count = strtoull(name + digits, NULL, 10);
    return digits - 1;
}

static zx_status check_ranks(const struct machine_row *row, const char *word, uint64_t ranks,
                             zx_err *err)
{
    if (ranks == 0 || ranks > MOST_RANKS)
        return ZX_FAIL(err, ZX_E_USAGE, "machine %s: %" PRIu64 " ranks is outside 1 to %d", word,
                       ranks, MOST_RANKS);
    if (ranks > row->gpus && ranks % row->gpus != 0)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "machine %s has %u GPUs a node: %" PRIu64 " ranks don't fill whole nodes",
                       word, row->gpus, ranks);
    return ZX_OK;
}

zx_status zx_machine_find(const char *name, uint32_t ranks, zx_machine *out, zx_err *err)
{
    uint64_t count = 0;
    const size_t n = split_count(name, &count);
    const struct machine_row *row = NULL;
    for (size_t i = 0; i < ZX_COUNT(rows) && row == NULL; i++)
        if (has_word(rows[i].names, name, n)) row = &rows[i];
    if (row == NULL) return no_such(name, n, err);
    char word[16];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(row->names, " "), row->names);
    const bool counted = name[n] != '\0';
    if (!counted) count = ranks != 0 ? ranks : row->gpus;
    ZX_TRY(check_ranks(row, word, count, err));
    if (ranks != 0 && count != ranks)
        return ZX_FAIL(err, ZX_E_USAGE, "machine %s is one of %" PRIu64 " ranks, not %u", name,
                       count, ranks);
    const uint32_t all = (uint32_t)count;
    *out = (zx_machine){.ranks = all,
                        .device_bytes = (uint64_t)row->device_bytes,
                        .flops = row->flops * FIT_PRODUCTS,
                        .flops_16 = row->flops_16 * FIT_PRODUCTS,
                        .peak = row->peak,
                        .peak_16 = row->peak_16,
                        .peak_tf32 = row->peak_tf32,
                        .memory = row->memory,
                        .op_seconds = OP_SECONDS,
                        .host_seconds = HOST_SECONDS,
                        .hook_seconds = HOOK_SECONDS,
                        .copy = row->memory / 2,
                        .sum = row->memory,
                        .update = row->memory * FIT_UPDATE,
                        .interference = INTERFERENCE,
                        .gather = curve_of(row, GATHER, all),
                        .reduce = curve_of(row, REDUCE, all)};
    snprintf(out->name, sizeof out->name, "%sx%u", word, all);
    return ZX_OK;
}

void zx_machine_tf32(zx_machine *m)
{
    if (m->peak_tf32 <= 0 || m->peak_16 <= 0) return;
    m->flops = m->flops_16 / m->peak_16 * m->peak_tf32;
    m->peak = m->peak_tf32;
}

void zx_machine_list(zx_text *out)
{
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        zx_text_put(out, "%-14s %s\n", rows[i].names, rows[i].what);
}

// ---- this host, links ---------------------------------------------------------------------------

// One core of a current server (AVX-512, oneDNN f32), ranks on one host over shared memory. Cores
// share a host's memory: two of them move about 1.7 times as much as one, many about 4 times.
zx_machine zx_machine_host(uint32_t ranks, uint32_t threads)
{
    const double t = threads == 0 ? 1 : (double)threads;
    return (zx_machine){.name = "host",
                        .host = true,
                        .ranks = ranks,
                        .flops = 100e9 * t,
                        .flops_16 = 100e9 * t,
                        .memory = 8e9 * (5 * t / (t + 4)),
                        .op_seconds = 3e-6,
                        .copy = 8e9,
                        .sum = 6e9,
                        .update = 8e9 * (5 * t / (t + 4)),
                        .cores = t,
                        .threads = (uint32_t)t,
                        .wire = ZX_MACHINE_NO_WIRE,
                        .latency = 30e-6};
}

void zx_machine_link(zx_machine *m, double bytes_per_second, double latency_seconds)
{
    m->wire = bytes_per_second;
    m->latency = latency_seconds;
}
