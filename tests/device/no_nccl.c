// no_nccl.c - NCCL's calls where there is no NCCL: none works. One rank makes none, and several on
// one device exchange through the host's memory (--comm shm).
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#define NONE(name, ...)                                                                            \
    ncclResult_t name(__VA_ARGS__)                                                                 \
    {                                                                                              \
        return ncclSystemError;                                                                    \
    }
#define U __attribute__((unused))

const char *ncclGetErrorString(ncclResult_t result U)
{
    return "built without NCCL";
}
const char *ncclGetLastError(ncclComm_t comm U)
{
    return "";
}
NONE(ncclGetUniqueId, ncclUniqueId *id U)
NONE(ncclCommInitRank, ncclComm_t *comm U, int ranks U, ncclUniqueId id U, int rank U)
NONE(ncclCommDestroy, ncclComm_t comm U)
NONE(ncclCommAbort, ncclComm_t comm U)
NONE(ncclCommGetAsyncError, ncclComm_t comm U, ncclResult_t *error U)
NONE(ncclGroupStart, void)
NONE(ncclGroupEnd, void)
NONE(ncclAllGather, const void *from U, void *to U, size_t count U, ncclDataType_t type U,
     ncclComm_t comm U, cudaStream_t stream U)
NONE(ncclReduceScatter, const void *from U, void *to U, size_t count U, ncclDataType_t type U,
     ncclRedOp_t what U, ncclComm_t comm U, cudaStream_t stream U)
NONE(ncclAllReduce, const void *from U, void *to U, size_t count U, ncclDataType_t type U,
     ncclRedOp_t what U, ncclComm_t comm U, cudaStream_t stream U)
NONE(ncclReduce, const void *from U, void *to U, size_t count U, ncclDataType_t type U,
     ncclRedOp_t what U, int root U, ncclComm_t comm U, cudaStream_t stream U)
NONE(ncclSend, const void *from U, size_t count U, ncclDataType_t type U, int peer U,
     ncclComm_t comm U, cudaStream_t stream U)
NONE(ncclRecv, void *to U, size_t count U, ncclDataType_t type U, int peer U, ncclComm_t comm U,
     cudaStream_t stream U)
