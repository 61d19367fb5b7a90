// cuBLASLt and cuDNN: checked calls, and handles. Their headers take seconds to read, so few files include this one.
#pragma once

#include "device/cuda/Cuda.h"

#include <cublasLt.h>
#include <cudnn.h>

namespace pdcrt::cuda {

inline void check(cublasStatus_t code, const char* call) {
  if (code != CUBLAS_STATUS_SUCCESS) fail(call, cublasLtGetStatusString(code));
}
inline void check(cudnnStatus_t code, const char* call) {
  if (code != CUDNN_STATUS_SUCCESS) fail(call, cudnnGetErrorString(code));
}

/// The handles of the calling thread, on its device. Made when they are first asked for; a kernel asks while it is
/// constructed, and is called by the same thread.
cublasLtHandle_t blas();
cudnnHandle_t dnn();

} // namespace pdcrt::cuda
