// cublasLt.h - the calls of cuBLASLt that zerox makes, for builds where a stand-in answers them.
// Names, orders of arguments and numbers are cuBLASLt's; what isn't declared here isn't used.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_CUBLASLT_H
#define ZX_STANDIN_CUBLASLT_H

#include <cuda_runtime.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define ZX_STANDIN_BLAS_STATUSES(X)                                                                \
    X(CUBLAS_STATUS_SUCCESS, 0, "no error")                                                        \
    X(CUBLAS_STATUS_NOT_INITIALIZED, 1, "the library was not initialized")                         \
    X(CUBLAS_STATUS_ALLOC_FAILED, 3, "the resource allocation failed")                             \
    X(CUBLAS_STATUS_INVALID_VALUE, 7, "an unsupported value or parameter was passed")              \
    X(CUBLAS_STATUS_ARCH_MISMATCH, 8, "the device can't do this")                                  \
    X(CUBLAS_STATUS_EXECUTION_FAILED, 13, "the device failed to execute")                          \
    X(CUBLAS_STATUS_INTERNAL_ERROR, 14, "an internal operation failed")                            \
    X(CUBLAS_STATUS_NOT_SUPPORTED, 15, "the functionality is not supported")
typedef enum cublasStatus {
#define X(name, number, words) name = number,
    ZX_STANDIN_BLAS_STATUSES(X)
#undef X
} cublasStatus_t;
typedef enum cublasOperation { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum cublasComputeType {
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77 // float32 operands with 10 bits behind the point
} cublasComputeType_t;
typedef enum cudaDataType { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType;

typedef enum cublasLtEpilogue {
    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_BIAS = 4, // of D's rows, added to every column
    // GELU by tanh; AUX: of what is written to the auxiliary matrix
    CUBLASLT_EPILOGUE_GELU_AUX = 160,
    CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
    // Times the slope of that GELU at the auxiliary matrix; BGRAD: sums of D's rows into the bias
    CUBLASLT_EPILOGUE_DGELU = 192,
    CUBLASLT_EPILOGUE_DGELU_BGRAD = 208,
    CUBLASLT_EPILOGUE_BGRADA = 256, // sums of A over the inner size into the bias, one a row of D
    CUBLASLT_EPILOGUE_BGRADB = 512  // the same of B, one a column of D
} cublasLtEpilogue_t;
typedef enum cublasLtMatmulDescAttributes {
    CUBLASLT_MATMUL_DESC_TRANSA = 3,                // int32_t
    CUBLASLT_MATMUL_DESC_TRANSB = 4,                // int32_t
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,              // uint32_t
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,          // void *
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11, // void *
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12       // int64_t, a multiple of 8
} cublasLtMatmulDescAttributes_t;
typedef enum cublasLtMatrixLayoutAttribute {
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,         // int32_t
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6 // int64_t, elements
} cublasLtMatrixLayoutAttribute_t;
typedef enum cublasLtMatmulPreferenceAttributes {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,   // uint64_t
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5, // uint32_t, and the next three
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
} cublasLtMatmulPreferenceAttributes_t;

typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct zx_standin_matmul_desc *cublasLtMatmulDesc_t;
typedef struct zx_standin_layout *cublasLtMatrixLayout_t;
typedef struct zx_standin_preference *cublasLtMatmulPreference_t;
typedef struct cublasLtMatmulAlgo {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct cublasLtMatmulHeuristicResult {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

const char *cublasLtGetStatusName(cublasStatus_t status);
const char *cublasLtGetStatusString(cublasStatus_t status);
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType scale);
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes);
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld);
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout);
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void *value, size_t bytes);
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference);
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes);

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found);
// D = alpha op(A) op(B) + beta C, then the epilogue; matrices are stored by columns.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream);

#if defined(__cplusplus)
}
#endif

#endif
