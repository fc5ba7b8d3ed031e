// standin.h - what tests tell the stand-in for CUDA, and what they ask it.
//
// The environment says the same where a program is tested: ZX_STANDIN_DEVICES (2),
// ZX_STANDIN_MEMORY (bytes a device, 1 GiB), ZX_STANDIN_SEED (0), ZX_STANDIN_DELAY (microseconds,
// 300), ZX_STANDIN_SAY (1: misuse is said on stderr as it is found), ZX_STANDIN_FAIL (a list as of
// zx_standin_fail_text) and ZX_STANDIN_COUNTS (a file's name: where the process ends, how often
// what was called is written there, behind the name its device). CUDA_LAUNCH_BLOCKING=1 waits for
// each launch, as CUDA does.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_H
#define ZX_STANDIN_H

#include <cuda_runtime.h>
#include <stdbool.h>

#if defined(__cplusplus)
extern "C" {
#endif

// Every queued item is held up by a random time below the limit, blocks and threads of a kernel run
// in another order. 0: no delays, everything in order.
void zx_standin_seed(uint64_t seed);

// The nth call from now (1: the next one) of `call` gives the error and does nothing. `call` is the
// name of a CUDA call, "launch", or "item": the nth thing that a stream does then, so that the
// error is an asynchronous one. A sticky error stays with the device. device -1: any.
void zx_standin_fail(const char *call, uint64_t nth, cudaError_t error, int device);
// "cudaMemcpyAsync:3:700,item:10:719@1,item:4:hang": call, which, error's number or "hang" (of
// items: the stream does nothing any more; of calls: it doesn't come back, NCCL's until a
// communicator is aborted), "kill" (the process dies there) or "stop" (it stops, as by SIGSTOP),
// and after @ the device. False: not understood.
bool zx_standin_fail_text(const char *text);

uint64_t zx_standin_calls(const char *call); // how often it was called since the last reset
uint64_t zx_standin_pageable(void);          // copies that had to be staged: memory wasn't pinned
const char *zx_standin_said(void);           // the first misuse since the last reset, "" if none

// Ends all streams and gives everything back, as a process that ends does; errors, failures to come
// and counts are forgotten. Returns how many streams, events and allocations there still were.
uint32_t zx_standin_reset(void);

#if defined(__cplusplus)
}
#endif

#endif
