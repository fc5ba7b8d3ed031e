// table.c - from an op to its CUDA kernel; errors of CUDA as statuses.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.h"

#include <string.h>

static const struct {
    const char *name;
    const zx_kernel *kernel;
} kernels[] = {
#define X(name) {#name, &zx_cuda_##name},
    ZX_CUDA_KERNELS(X)
#undef X
};

const zx_kernel *zx_cuda_kernel(uint32_t op)
{
    static const char *const names[] = {
#define ZX_OP(id, word, lo, hi, outs, flags, infer, grad, cost, kern) #kern,
#include "graph/ops.def"
#undef ZX_OP
    };
    for (uint32_t i = 0; op < ZX_COUNT(names) && i < ZX_COUNT(kernels); i++)
        if (strcmp(names[op], kernels[i].name) == 0) return kernels[i].kernel;
    return NULL;
}

// What to try, by the kind of error. Those of calls that were wrong are zerox's own.
static const char *hint_of(cudaError_t e)
{
    static const char *const none =
        "nvidia-smi, which has to list the device; CUDA_VISIBLE_DEVICES may hide it";
    static const char *const failed = "CUDA_LAUNCH_BLOCKING=1 before the command: it waits for "
                                      "each instruction and names the one "
                                      "that fails; `dmesg | grep Xid` has what the driver saw";
    static const struct {
        cudaError_t e;
        const char *hint;
    } rows[] = {
        {cudaErrorMemoryAllocation, "a smaller --budget, or fewer ranks on a device; nvidia-smi "
                                    "shows who else is in its memory"},
        {cudaErrorLaunchOutOfResources, "a smaller micro-batch; --backend cpu"},
        {cudaErrorInitializationError, none},
        {cudaErrorInsufficientDriver, "a driver as new as this build's CUDA; --backend cpu"},
        {cudaErrorNoDevice, none},
        {cudaErrorInvalidDevice, none},
        {cudaErrorNoKernelImageForDevice, "a build with this device's architecture in "
                                          "-DZX_CUDA_ARCHS; --backend cpu"},
        {cudaErrorECCUncorrectable,
         "another device: this one's memory fails (nvidia-smi -q -d ECC)"},
        {cudaErrorIllegalAddress, failed},
        {cudaErrorLaunchTimeout, "a device without a display, or a smaller micro-batch"},
        {cudaErrorMisalignedAddress, failed},
        {cudaErrorLaunchFailure, failed},
        {cudaErrorUnknown, failed},
    };
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        if (rows[i].e == e) return rows[i].hint;
    return "once more; where it fails again, it is a fault of zerox to report; --backend cpu";
}

zx_status zx_cuda_check(cudaError_t e, const char *what, zx_err *err)
{
    if (e == cudaSuccess) return ZX_OK;
    if (err != NULL) zx_err_hint(err, "%s", hint_of(e));
    // A call's text is cut to its name.
    return ZX_FAIL(err, ZX_E_DEVICE, "%.*s: %s: %s", (int)strcspn(what, "("), what,
                   cudaGetErrorName(e), cudaGetErrorString(e));
}
