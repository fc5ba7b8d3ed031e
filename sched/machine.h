// machine.h - how fast machines are: a row of machines.def, this host as calibrated, or a file.
//
// A machine is as one rank sees it. Times of collectives are tables over the full size (all ranks'
// bytes), in seconds; between two points it is the logarithms of size and time that are linear, so
// that latency alone and rate alone are met exactly.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_MACHINE_H
#define ZX_SCHED_MACHINE_H

#include "graph/base/arena.h"
#include "graph/base/text.h"
#include "sched/kinds.h"

#define ZX_CURVE_POINTS 24
typedef struct zx_curve {
    uint32_t n; // 0: nothing is sent (one rank)
    double bytes[ZX_CURVE_POINTS], seconds[ZX_CURVE_POINTS];
} zx_curve;
// Below the first point: its time. Beyond the last: at the rate of the last point.
double zx_curve_seconds(const zx_curve *c, double bytes);

// Of hosts: what is measured with operands of a type of 16 bits; 0: unknown, as without them.
typedef struct zx_rates_16 {
    double flops, flops_nt, flops_tn;       // of products; of those by b turned; of a turned
    double memory, near, sum, update, norm; // as the machine's
    double rates[ZX_KIND_COUNT];
} zx_rates_16;

typedef struct zx_machine {
    char name[48];           // "host", "h100x32", "host 2x1, link 0.5GB/s 0.2ms"
    bool host;               // its figures are this host's: real time, not a simulated device's
    uint32_t ranks;          // that it is a machine of; 0: any number
    uint64_t device_bytes;   // memory of a rank; 0: unknown
    double flops, flops_16;  // of matrix products a second: operands of 4 bytes, of 2
    double peak, peak_16;    // the same by its data sheet, to compare with; 0: unknown
    double peak_tf32;        // of float32 rounded to TF32; 0: it has none
    double memory;           // bytes a second that elementwise kernels move
    double op_seconds;       // the least that an execution takes
    double host_seconds;     // of the host, to enqueue one instruction
    double hook_seconds;     // of the host, for one hook of a hook-driven policy
    double copy;             // bytes a second that a copy moves (a byte counts once)
    double sum;              // bytes a second that adding gradients reads
    double update;           // bytes a second that the optimizer reads and writes
    double interference;     // compute takes 1 + this while a collective is in flight
    double cores;            // of a rank, shared by its compute threads and by what moves bytes;
                             // 0: bytes are moved by engines of their own
    uint32_t threads;        // compute threads of a rank, where cores > 0
    double cache;            // bytes of a core's own cache, which compute shares with such moves
    double near;             // `memory` of what lies in that cache; 0: unknown
    zx_curve gather, reduce; // seconds by full size: all-gather, reduce-scatter
    // A link in place of the tables, where wire > 0: a collective of full size S takes
    // latency + (ranks - 1) / ranks * S / wire of the rank's one wire (an all-reduce twice the
    // second term), and moving and adding the bytes takes core time beside.
    double wire, latency;
    // Of hosts: amounts a second of each kind of kinds.def, beside its products; 0: unknown, and
    // products and memory say all.
    double rates[ZX_KIND_COUNT];
    double norm; // bytes a second of gradients that their norm reads; 0: `memory`
    zx_rates_16 bf16, fp16;
} zx_machine;
#define ZX_MACHINE_NO_WIRE 1e12 // ranks in one memory: only cores' work takes time

// A row by its name, for a number of ranks: "h100x32" and ("h100", 32) are the same; ranks 0 stands
// for what the name says, or one node. E_USAGE with the nearest name.
zx_status zx_machine_find(const char *name, uint32_t ranks, zx_machine *out, zx_err *err);
// A GPU as it describes itself; what it doesn't tell is 0.
typedef struct zx_device {
    char name[96];
    uint64_t bytes, free_bytes; // of its memory
    uint32_t major, minor;      // compute capability
    uint32_t processors;        // multiprocessors
    uint32_t engines;           // that copy beside them
    double clock;               // of multiprocessors, hertz at the most
    double bandwidth;           // bytes a second of its memory
} zx_device;
typedef struct zx_device_use {
    uint32_t ranks, share; // of the run; of one device (0 is 1)
    bool by_host_memory;   // ranks exchange through the host's memory
} zx_device_use;
// The machine of ranks on such devices of one host, for real runs. *known: it is a row's, by the
// device's name, memory and bandwidth; else it is made of the device's figures, with what products
// reach and the link between devices assumed, as is a link by the host's memory.
zx_status zx_machine_of_device(const zx_device *d, const zx_device_use *use, zx_machine *out,
                               bool *known, zx_err *err);
// This host from constants, for where nothing was calibrated (tests, builds).
zx_machine zx_machine_host(uint32_t ranks, uint32_t threads);
// As text and back: JSON, every field by its name. E_FORMAT names the key that is wrong.
void zx_machine_put(const zx_machine *m, zx_text *out);
zx_status zx_machine_read(const char *path, zx_machine *out, zx_err *err);
// The same machine where float32 is multiplied as TF32: as large a part of that peak as operands of
// 2 bytes achieve of theirs. No change where it has none.
void zx_machine_tf32(zx_machine *m);
void zx_machine_list(zx_text *out); // the rows, a line each
// The same machine behind an emulated link.
void zx_machine_link(zx_machine *m, double bytes_per_second, double latency_seconds);

typedef enum zx_collective { ZX_ALL_GATHER, ZX_REDUCE_SCATTER, ZX_ALL_REDUCE } zx_collective;
// What is measured in a type; NULL: nothing, or it isn't of 16 bits.
const zx_rates_16 *zx_machine_rates_16(const zx_machine *m, zx_dtype type);
// Bytes a second of gradients kept in this type that their norm reads.
double zx_machine_norm(const zx_machine *m, zx_dtype type);
// The same machine where gradients are of this type: how fast they are added up, and parameters
// with them updated.
zx_machine zx_machine_in(const zx_machine *m, zx_dtype type);
// Of a collective over this many bytes in all: what the wire takes, and what cores take beside it
// at `copy` and `sum` bytes a second (where cores is 0: what its reduce takes on top, for adding).
double zx_wire_seconds(const zx_machine *m, zx_collective what, uint32_t ranks, uint64_t bytes);
double zx_core_seconds(const zx_machine *m, zx_collective what, uint32_t ranks, uint64_t bytes);
// Bytes that go through a core which computes put as many others out of its cache, and compute
// waits until they are back: of a copy those that it reads and those that it writes, of a
// collective those that it reads; what that writes is what compute reads next. 0 where no cores
// move bytes.
double zx_refill_seconds(const zx_machine *m, double bytes);
// Seconds of a collective over units with this many bytes in all, alone on wire and cores.
double zx_gather_seconds(const zx_machine *m, uint32_t ranks, uint64_t bytes);
double zx_reduce_seconds(const zx_machine *m, uint32_t ranks, uint64_t bytes);
double zx_allreduce_seconds(const zx_machine *m, uint32_t ranks, uint64_t bytes);
uint64_t zx_gather_wire(uint32_t ranks, uint64_t bytes); // bytes that a rank receives, and sends
uint64_t zx_allreduce_wire(uint32_t ranks, uint64_t bytes);

#endif
