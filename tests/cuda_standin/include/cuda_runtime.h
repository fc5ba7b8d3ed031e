// cuda_runtime.h - the calls of CUDA's runtime that zerox makes, for builds where a stand-in
// answers them. Names, orders of arguments and numbers are CUDA's, so that the same sources compile
// against the real thing; what isn't declared here isn't used.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_CUDA_RUNTIME_H
#define ZX_STANDIN_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define ZX_CUDA_STANDIN 1 // what sources may ask; the real header has no such name
#define CUDART_VERSION 13000

#if defined(__cplusplus)
extern "C" {
#endif

// name, number, words, sticky: the device answers nothing else until the process ends
#define ZX_STANDIN_ERRORS(X)                                                                       \
    X(cudaSuccess, 0, "no error", 0)                                                               \
    X(cudaErrorInvalidValue, 1, "invalid argument", 0)                                             \
    X(cudaErrorMemoryAllocation, 2, "out of memory", 0)                                            \
    X(cudaErrorInitializationError, 3, "initialization error", 0)                                  \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument", 0)                       \
    X(cudaErrorInvalidDevicePointer, 17, "invalid device pointer", 0)                              \
    X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction", 0)                            \
    X(cudaErrorInsufficientDriver, 35, "driver older than the runtime", 0)                         \
    X(cudaErrorNoDevice, 100, "no CUDA device", 0)                                                 \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal", 0)                                    \
    X(cudaErrorNoKernelImageForDevice, 209, "no kernel image for the device", 0)                   \
    X(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error", 1)                                \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle", 0)                           \
    X(cudaErrorNotReady, 600, "not ready", 0)                                                      \
    X(cudaErrorIllegalAddress, 700, "illegal memory access", 1)                                    \
    X(cudaErrorLaunchOutOfResources, 701, "too many resources for launch", 0)                      \
    X(cudaErrorLaunchTimeout, 702, "launch timed out", 1)                                          \
    X(cudaErrorMisalignedAddress, 716, "misaligned address", 1)                                    \
    X(cudaErrorLaunchFailure, 719, "launch failure", 1)                                            \
    X(cudaErrorHostMemoryAlreadyRegistered, 712, "host memory is registered already", 0)           \
    X(cudaErrorHostMemoryNotRegistered, 713, "host memory is not registered", 0)                   \
    X(cudaErrorNotPermitted, 800, "operation not permitted", 0)                                    \
    X(cudaErrorNotSupported, 801, "operation not supported", 0)                                    \
    X(cudaErrorUnknown, 999, "unknown error", 1)
typedef enum cudaError {
#define X(name, number, words, sticky) name = number,
    ZX_STANDIN_ERRORS(X)
#undef X
} cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
enum cudaDeviceAttr { // those that are answered
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
struct cudaDeviceProp { // of the real one's fields those that are read
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
    int major, minor, multiProcessorCount, warpSize, maxThreadsPerBlock, l2CacheSize;
    int asyncEngineCount, memoryBusWidth, pciDomainID, pciBusID, pciDeviceID;
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *);

#define cudaHostAllocDefault 0x00u
#define cudaHostAllocPortable 0x01u
#define cudaHostAllocMapped 0x02u
#define cudaHostRegisterDefault 0x00u
#define cudaHostRegisterPortable 0x01u
#define cudaHostRegisterMapped 0x02u
#define cudaStreamDefault 0x00u
#define cudaStreamNonBlocking 0x01u
#define cudaEventDefault 0x00u
#define cudaEventBlockingSync 0x01u
#define cudaEventDisableTiming 0x02u

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);

#if !defined(__cplusplus) // in C++ the real header has templates over T** beside them; see below
cudaError_t cudaMalloc(void **at, size_t bytes);
cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags);
#endif
cudaError_t cudaFree(void *at);
cudaError_t cudaFreeHost(void *at);
cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *at);
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *at, int byte, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to);

#if defined(__cplusplus)
}
extern "C" cudaError_t cudaMalloc(void **at, size_t bytes);
extern "C" cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags);
#include "standin_device.h"
#endif

#endif
