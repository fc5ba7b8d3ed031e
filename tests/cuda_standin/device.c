// device.c - the stand-in's devices: how many, how they look, which is this thread's.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/inside.h"

#include <stdio.h>

static si_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local int current;

static uint64_t number(const char *name, uint64_t absent)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 10) : absent;
}
static void read_settings(void)
{
    settings.devices = (int)number("ZX_STANDIN_DEVICES", 2);
    if (settings.devices > SI_DEVICES) settings.devices = SI_DEVICES;
    settings.memory = number("ZX_STANDIN_MEMORY", 1u << 30);
    settings.seed = number("ZX_STANDIN_SEED", 0);
    settings.delay_us = (uint32_t)number("ZX_STANDIN_DELAY", 300);
    settings.say = number("ZX_STANDIN_SAY", 0) != 0;
    settings.blocking = number("CUDA_LAUNCH_BLOCKING", 0) != 0;
}
si_settings *si_get(void)
{
    pthread_once(&once, read_settings);
    return &settings;
}
int si_current(void)
{
    return current;
}
void zx_standin_seed(uint64_t seed)
{
    si_get()->seed = seed;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    SI_BEGIN();
    *count = si_get()->devices;
    return si_return(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

static bool there(int device)
{
    return device >= 0 && device < si_get()->devices;
}
cudaError_t cudaSetDevice(int device)
{
    if (!there(device)) return si_wrong(cudaErrorInvalidDevice, "cudaSetDevice: no %d", device);
    current = device;
    SI_BEGIN();
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

#define SHARED 49152u // bytes a block without asking, and with
#define SHARED_OPTIN 101376u

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    SI_BEGIN();
    if (!there(device))
        return si_wrong(cudaErrorInvalidDevice, "cudaGetDeviceProperties: no %d", device);
    *prop = (struct cudaDeviceProp){.totalGlobalMem = si_get()->memory,
                                    .sharedMemPerBlock = SHARED,
                                    .sharedMemPerBlockOptin = SHARED_OPTIN,
                                    .major = 8,
                                    .minor = 6,
                                    .multiProcessorCount = 4,
                                    .warpSize = 32,
                                    .maxThreadsPerBlock = 1024,
                                    .l2CacheSize = 1 << 20,
                                    .asyncEngineCount = 2,
                                    .memoryBusWidth = 64,
                                    .pciBusID = device};
    snprintf(prop->name, sizeof prop->name, "stand-in for CUDA %d", device);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    static const struct {
        enum cudaDeviceAttr attr;
        int value;
    } rows[] = {
        {cudaDevAttrMaxThreadsPerBlock, 1024},
        {cudaDevAttrMaxSharedMemoryPerBlock, SHARED},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, SHARED_OPTIN},
        {cudaDevAttrClockRate, 1000000},
        {cudaDevAttrMultiProcessorCount, 4},
        {cudaDevAttrMemoryClockRate, 1000000},
        {cudaDevAttrGlobalMemoryBusWidth, 64},
        {cudaDevAttrComputeCapabilityMajor, 8},
        {cudaDevAttrComputeCapabilityMinor, 6},
    };
    SI_BEGIN();
    if (!there(device))
        return si_wrong(cudaErrorInvalidDevice, "cudaDeviceGetAttribute: no %d", device);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].attr == attr) {
            *value = rows[i].value;
            return cudaSuccess;
        }
    return si_wrong(cudaErrorInvalidValue, "cudaDeviceGetAttribute: no attribute %d", (int)attr);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    SI_BEGIN();
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    SI_BEGIN();
    si_wait_device(current);
    return si_return(si_stuck(current));
}

uint32_t zx_standin_reset(void)
{
    const uint32_t left = si_stream_reset() + si_event_reset() + si_memory_reset();
    si_error_reset();
    si_item_reset();
    current = 0;
    return left;
}
