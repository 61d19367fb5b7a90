// The handles of a thread, and what is told of launches.
#include "Libraries.h"

#include "device/cuda/Recorded.h"

#include <memory>

namespace pdcrt {
namespace {

/// What one thread uses of the libraries. They keep workspace and plans of their own, so each is made only where
/// needed.
struct Handles {
  cublasLtHandle_t blas = nullptr;
  cudnnHandle_t dnn = nullptr;

  ~Handles() {
    if (!blas && !dnn) return;
    const std::lock_guard lock(cuda::recording()); // cuDNN waits for the device
    if (blas) cublasLtDestroy(blas);
    if (dnn) cudnnDestroy(dnn);
  }
};

thread_local Handles handles;

} // namespace

void checkLaunch(const char* what) {
  cuda::check(cudaGetLastError(), what);
}

namespace cuda {

cublasLtHandle_t blas() {
  if (!handles.blas) PDCRT_CUDA(cublasLtCreate(&handles.blas));
  return handles.blas;
}

cudnnHandle_t dnn() {
  if (!handles.dnn) PDCRT_CUDA(cudnnCreate(&handles.dnn));
  return handles.dnn;
}

} // namespace cuda
} // namespace pdcrt
