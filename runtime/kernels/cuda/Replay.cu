// Recordings as CUDA graphs.
#include "pdcrt/Replay.h"

#include "Cuda.h"
#include "Recorded.h"

namespace pdcrt {
namespace {

thread_local const std::uint64_t* minibatchOfRecording = nullptr;

__global__ void storeNumber(std::uint64_t* to, std::uint64_t value) {
  *to = value;
}

} // namespace

const std::uint64_t* cuda::recordedMinibatch() {
  return minibatchOfRecording;
}

struct Recording::Impl {
  bool called = false;
  cudaGraphExec_t graph = nullptr;

  ~Impl() {
    if (graph) cudaGraphExecDestroy(graph);
  }
};

Recording::Recording() : impl_(std::make_unique<Impl>()) {}
Recording::~Recording() = default;
Recording::Recording(Recording&&) noexcept = default;
Recording& Recording::operator=(Recording&&) noexcept = default;

void Recording::run(void (*phase)(const Call&), const Call& call, const std::uint64_t* minibatch) {
  if (!impl_->called) {
    impl_->called = true;
    return phase(call);
  }
  cudaStream_t stream = cuda::streamOf(*call.stream);
  if (!impl_->graph) {
    cudaGraph_t recorded = nullptr;
    // Of this thread only: others may allocate meanwhile.
    PDCRT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    minibatchOfRecording = minibatch;
    phase(call);
    minibatchOfRecording = nullptr;
    PDCRT_CUDA(cudaStreamEndCapture(stream, &recorded));
    const cudaError_t made = cudaGraphInstantiate(&impl_->graph, recorded, 0);
    cudaGraphDestroy(recorded);
    cuda::check(made, "cudaGraphInstantiate");
  }
  PDCRT_CUDA(cudaGraphLaunch(impl_->graph, stream));
}

namespace device {

bool records() {
  return true;
}

void store(Stream& q, std::uint64_t* to, std::uint64_t value) {
  PDCRT_LAUNCH(storeNumber, 1, 1, cuda::streamOf(q), to, value);
  checkLaunch("the number of a minibatch");
}

} // namespace device
} // namespace pdcrt
