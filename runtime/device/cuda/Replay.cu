// Recordings as CUDA graphs.
#include "pdcrt/Replay.h"

#include "Cuda.h"
#include "Recorded.h"

#include <exception>
#include <utility>

namespace pdcrt {
namespace {

thread_local const std::uint64_t* minibatchOfRecording = nullptr;
thread_local bool minibatchAskedFor = false;

__global__ void storeNumber(std::uint64_t* to, std::uint64_t value) {
  *to = value;
}

} // namespace

const std::uint64_t* cuda::recordedMinibatch() {
  minibatchAskedFor = true;
  return minibatchOfRecording;
}

std::mutex& cuda::recording() {
  static std::mutex ofDevice[64]; // those of a node with more share
  int device = 0;
  static_cast<void>(cuda::got(cudaGetDevice(&device))); // destructors ask too, at the end of a process
  return ofDevice[device % 64];
}

struct Recording::Impl {
  bool called = false;
  bool plain = false; ///< there was no memory for the graph
  bool draws = false; ///< the graph reads the number of the minibatch
  cudaGraphExec_t graph = nullptr;

  ~Impl() {
    if (graph) cudaGraphExecDestroy(graph);
  }
  void record(void (*phase)(const Call&), const Call& call, const std::uint64_t* minibatch);
};

void Recording::Impl::record(void (*phase)(const Call&), const Call& call, const std::uint64_t* minibatch) {
  const std::lock_guard lock(cuda::recording());
  cudaStream_t stream = cuda::streamOf(*call.stream);
  cudaGraph_t recorded = nullptr;
  // Of this thread only: others may launch meanwhile.
  PDCRT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  minibatchOfRecording = minibatch;
  minibatchAskedFor = false;
  std::exception_ptr thrown;
  try {
    phase(call);
  } catch (...) { // a stream that goes on recording would fail with another error everywhere
    thrown = std::current_exception();
  }
  minibatchOfRecording = nullptr;
  draws = minibatchAskedFor;
  cudaError_t made = cudaStreamEndCapture(stream, &recorded);
  if (made == cudaSuccess && !thrown) made = cudaGraphInstantiate(&graph, recorded, 0);
  if (recorded) cudaGraphDestroy(recorded);
  if (thrown) std::rethrow_exception(thrown);
  plain = made == cudaErrorMemoryAllocation && !cuda::got(made);
  if (!plain) cuda::check(made, "recording a phase as a graph");
}

Recording::Recording() : impl_(std::make_unique<Impl>()) {}
Recording::~Recording() = default;
Recording::Recording(Recording&&) noexcept = default;
Recording& Recording::operator=(Recording&&) noexcept = default;

void Recording::run(void (*phase)(const Call&), const Call& call, std::uint64_t* minibatch) {
  // The first call is plain: it loads code and prepares libraries, which nobody may do while they record.
  const bool again = std::exchange(impl_->called, true);
  if (again && !impl_->graph && !impl_->plain) impl_->record(phase, call, minibatch);
  if (!impl_->graph) return phase(call);
  if (impl_->draws) device::store(*call.stream, minibatch, call.draw.minibatch);
  PDCRT_CUDA(cudaGraphLaunch(impl_->graph, cuda::streamOf(*call.stream)));
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
