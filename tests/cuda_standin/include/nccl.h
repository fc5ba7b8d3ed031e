// nccl.h - the calls of NCCL that zerox makes, for builds where a stand-in answers them. Names,
// orders of arguments and numbers are NCCL's; what isn't declared here isn't used.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_NCCL_H
#define ZX_STANDIN_NCCL_H

#include <cuda_runtime.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define ZX_STANDIN_NCCL_RESULTS(X)                                                                 \
    X(ncclSuccess, 0, "no error")                                                                  \
    X(ncclUnhandledCudaError, 1, "a CUDA call failed")                                             \
    X(ncclSystemError, 2, "a system call failed")                                                  \
    X(ncclInternalError, 3, "internal error")                                                      \
    X(ncclInvalidArgument, 4, "invalid argument")                                                  \
    X(ncclInvalidUsage, 5, "invalid usage")                                                        \
    X(ncclRemoteError, 6, "a remote process exited or there was a network error")                  \
    X(ncclInProgress, 7, "in progress")
typedef enum ncclResult {
#define X(name, number, words) name = number,
    ZX_STANDIN_NCCL_RESULTS(X)
#undef X
} ncclResult_t;
typedef enum ncclDataType {
    ncclUint8 = 1,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclBfloat16 = 9
} ncclDataType_t;
typedef enum ncclRedOp { ncclSum = 0 } ncclRedOp_t;

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct ncclUniqueId {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef struct ncclComm *ncclComm_t;

const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
// Sums over the ranks, in whatever order; in place where a rank's result has the place of its
// operand (ReduceScatter: of its piece of it).
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t what, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t what, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t what, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);

#if defined(__cplusplus)
}
#endif

#endif
