// backend.h - what plans run on: this host's cores, or GPUs. All that differs between them is
// behind this table: devices, memory, kernels and the loop over a plan. A session has one backend.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_BACKEND_H
#define ZX_RUNTIME_BACKEND_H

#include "graph/graph.h"
#include "kernels/kernel.h"
#include "runtime/guard.h"
#include "sched/machine.h"

struct zx_session;
struct zx_slot;

typedef struct zx_backend {
    const char *name;
    bool epilogues; // its products are faster with what graph/epilogue.h puts to them
    // Devices that this process sees, and how one looks (NULL: there are none to look at); both may
    // be called in a process that does nothing else. 0 devices: err may say why.
    uint32_t (*count)(zx_err *err);
    zx_status (*device)(uint32_t index, zx_device *out, zx_err *err);
    // This rank's device, `local` of those of this host; what kernels find in zx_call.cuda.
    zx_status (*open)(uint32_t local, const struct zx_cuda **out, zx_err *err);
    void (*close)(const struct zx_cuda *gpu); // accepts NULL
    // Bytes of memory that `ranks` ranks of this host have together; 0: nothing says.
    uint64_t (*usable)(const struct zx_cuda *gpu, uint32_t ranks);
    const zx_kernel *(*kernel)(uint32_t op); // NULL: it has none
    // Products of float32 may round their operands to TF32 from now on. NULL: they never do.
    void (*allow_tf32)(const struct zx_cuda *gpu);
    // ---- of a session: ranks call these together
    zx_status (*reserve)(struct zx_session *s, zx_err *err); // s->base, s->mine
    void (*release)(struct zx_session *s);                   // also what is half there
    zx_status (*start)(struct zx_session *s, zx_err *err);   // once all calls are prepared
    void (*stop)(struct zx_session *s);                      // also what isn't started
    bool (*run)(struct zx_session *s);           // the plan once; false: the run is lost
    void (*reset_working)(struct zx_session *s); // buffers' working copies := committed ones
    // ---- this rank's memory, between runs or as far as the compute stream has come
    // Where the host writes a slot as a whole, and that it has. NULL: no memory.
    void *(*begin_fill)(struct zx_session *s, const struct zx_slot *slot);
    bool (*end_fill)(struct zx_session *s, const struct zx_slot *slot, void *at);
    // What the memory holds, until the next call. NULL: the device has failed.
    const void *(*see)(struct zx_session *s, const void *at, uint64_t bytes);
    // Bytes of a rank's reservation, on rank 0. All ranks call.
    bool (*fetch)(struct zx_session *s, uint32_t rank, uint64_t offset, void *to, uint64_t bytes);
} zx_backend;

extern const zx_backend zx_backend_cpu;

// Where a rank's plan runs. Zeroed: this host's cores.
typedef struct zx_site {
    const zx_backend *backend; // NULL: zx_backend_cpu
    const struct zx_cuda *gpu;
    uint32_t local;          // which of the host's devices it is
    uint32_t devices, share; // that there are; ranks on this one (0 is 1)
    zx_guard *guard;         // of this rank's calls; the caller's, NULL: none
} zx_site;

static inline const zx_backend *zx_site_backend(const zx_site *p)
{
    return p != NULL && p->backend != NULL ? p->backend : &zx_backend_cpu;
}

// "cpu", "cuda", "auto" or NULL, which is auto: cuda where this build has it and there is a device.
// *devices: how many there are (cpu: 0). They are counted in a process of their own: one that has
// asked a driver for its devices can't hand them to those that it forks.
zx_status zx_backend_choose(const char *word, const zx_backend **out, uint32_t *devices,
                            zx_err *err);
// How the devices look that a run on GPUs would have, at most `most` of them, in out; a process of
// its own looks at them. *built: whether this build knows GPUs at all. E_DEVICE: why there are
// none, or can't be looked at.
zx_status zx_backend_devices(zx_device *out, uint32_t most, uint32_t *n, bool *built, zx_err *err);
// Bytes of memory that `ranks` ranks of this host have together; 0: nothing says.
uint64_t zx_site_usable(const zx_site *p, uint32_t ranks);
zx_status zx_site_look(const zx_site *p, zx_device *out, zx_err *err); // at this rank's device
// guard: of its calls, which outlives it; NULL: none.
zx_status zx_site_open(zx_site *p, const zx_backend *b, uint32_t local, zx_guard *guard,
                       zx_err *err);
void zx_site_close(zx_site *p); // accepts a zeroed one
// E_UNSUPPORTED, naming each op of the graph that the backend has no kernel for.
zx_status zx_backend_check(const zx_backend *b, const zx_graph *g, zx_err *err);

#endif
