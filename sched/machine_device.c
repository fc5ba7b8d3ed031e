// machine_device.c - a GPU as a machine: the row of machines.def that it is, or its own figures.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sched/machine.h"

static const struct gpu_row {
    const char *device, *machine;
} rows[] = {
#define ZX_DEVICE(device, machine) {device, machine},
#include "sched/machines.def"
};

// Multiplications and additions that a multiprocessor begins in a clock, dense: of float32, and of
// 16-bit operands with sums in float32. By compute capability; of those between, the row below.
static const struct rate {
    uint32_t capability; // 10 * major + minor
    double f32, half;
} rates[] = {{70, 64, 512},   {80, 64, 1024},   {86, 128, 256},
             {90, 128, 2048}, {100, 128, 4096}, {120, 128, 256}};

// What products reach of that, as in the rows of machines.def and the fit to their points.
#define PRODUCTS_REACH 0.72
#define LINK 20e9 // bytes a second and seconds between GPUs that nothing is known of
#define LINK_SECONDS 20e-6
#define HOST_LINK 10e9 // through the host's memory: to it, and out of it again
#define HOST_LINK_SECONDS 50e-6

static bool within(double x, double of, double part)
{
    return fabs(x - of) <= part * of;
}

// A part of a GPU, and the same chip with other memory, have its name too. *node: one node of it.
static const char *machine_of(const zx_device *d, zx_machine *node)
{
    for (size_t i = 0; i < ZX_COUNT(rows); i++) {
        if (strstr(d->name, rows[i].device) == NULL) continue;
        if (zx_machine_find(rows[i].machine, 0, node, NULL) != ZX_OK) continue;
        if (!within((double)d->bytes, (double)node->device_bytes, 0.1)) continue;
        if (d->bandwidth <= 0 || within(d->bandwidth, node->memory, 0.1)) return rows[i].machine;
    }
    return NULL;
}

static void by_figures(const zx_device *d, zx_machine *m)
{
    const struct rate *rate = &rates[0];
    const double update = m->update / m->memory;
    for (size_t i = 1; i < ZX_COUNT(rates); i++)
        if (rates[i].capability <= 10 * d->major + d->minor) rate = &rates[i];
    const double clocks = 2 * (double)d->processors * d->clock;
    const double known = d->bandwidth > 0 ? d->bandwidth : m->memory * clocks * rate->f32 / m->peak;
    m->peak = clocks * rate->f32;
    m->peak_16 = clocks * rate->half;
    m->peak_tf32 = d->major >= 8 ? m->peak_16 / 2 : 0;
    m->flops = PRODUCTS_REACH * m->peak;
    m->flops_16 = PRODUCTS_REACH * m->peak_16;
    m->memory = m->sum = known;
    m->copy = known / 2;
    m->update = update * known;
    m->gather = m->reduce = (zx_curve){0};
    zx_machine_link(m, LINK, LINK_SECONDS);
}

static void share(zx_machine *m, double ranks)
{
    m->device_bytes = (uint64_t)((double)m->device_bytes / ranks);
    m->flops /= ranks;
    m->flops_16 /= ranks;
    m->memory /= ranks;
    m->copy /= ranks;
    m->sum /= ranks;
    m->update /= ranks;
}

zx_status zx_machine_of_device(const zx_device *d, const zx_device_use *use, zx_machine *out,
                               bool *known, zx_err *err)
{
    // What goes by the host's memory needs no link of GPUs; of more than a node's nothing is known.
    const uint32_t linked = use->by_host_memory ? 1 : use->ranks;
    zx_machine node;
    const char *word = machine_of(d, &node);
    *known = word != NULL && linked <= node.ranks;
    if (!*known) word = "h100"; // for what no figures are told of
    if (!*known && (d->processors == 0 || d->clock <= 0))
        return ZX_FAIL(err, ZX_E_DEVICE, "CUDA device '%s' tells neither clock nor multiprocessors",
                       d->name);
    ZX_TRY(zx_machine_find(word, *known ? linked : 1, out, err));
    out->ranks = use->ranks;
    snprintf(out->name, sizeof out->name, "%.36sx%u", *known ? word : d->name, use->ranks);
    if (!*known) by_figures(d, out);
    out->host = true;
    out->device_bytes = d->bytes;
    if (use->share > 1) share(out, use->share);
    if (!use->by_host_memory || use->ranks == 1) return ZX_OK;
    out->gather = out->reduce = (zx_curve){0};
    zx_machine_link(out, HOST_LINK / (use->share > 1 ? use->share : 1), HOST_LINK_SECONDS);
    return ZX_OK;
}
