// A GPU as a device (Device.h): blocks are its memory, and work goes into streams.
#include "pdcrt/Device.h"

#include "Cuda.h"
#include "Recorded.h"
#include "pdcrt/Constant.h"
#include "pdcrt/StreamClock.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace pdcrt {
namespace {

/// The first error of any thread: whoever waits for a stream learns of it.
std::atomic<cudaError_t> failure{cudaSuccess};

/// For calls on which nobody waits.
void note(cudaError_t code) {
  cudaError_t none = cudaSuccess;
  if (code != cudaSuccess) failure.compare_exchange_strong(none, code);
}

Status failed(cudaError_t code) {
  return {Exit::noDevice, std::string("the GPU has failed: ") + cudaGetErrorString(code)};
}

int deviceOfThread() {
  int device = 0;
  note(cudaGetDevice(&device));
  return device;
}

/// Bytes of the blocks on each device; those of a node with more share places.
std::atomic<std::size_t>& blockBytes() {
  static std::atomic<std::size_t> bytes[64];
  return bytes[deviceOfThread() % 64];
}

} // namespace

/// An event of CUDA belongs to a device, ours to any: there is one for each device on whose streams it was recorded.
struct Event::Impl {
  struct OfDevice {
    int device;
    cudaEvent_t event;
  };
  std::vector<OfDevice> events;
  cudaEvent_t last = nullptr; ///< recorded last

  ~Impl() {
    for (const OfDevice& one : events) cudaEventDestroy(one.event);
  }
};

Event::Event() : impl_(std::make_unique<Impl>()) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(Stream& q) {
  const int device = deviceOfThread(); // streams are used by threads of their device
  auto known = std::find_if(impl_->events.begin(), impl_->events.end(),
                            [&](const Impl::OfDevice& one) { return one.device == device; });
  if (known == impl_->events.end()) {
    cudaEvent_t event = nullptr;
    note(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    known = impl_->events.insert(known, {device, event});
  }
  impl_->last = known->event;
  note(cudaEventRecord(impl_->last, cuda::streamOf(q)));
}

bool Event::passed() const {
  if (!impl_->last) return true;
  const cudaError_t code = cudaEventQuery(impl_->last);
  if (code == cudaErrorNotReady) return false;
  note(code);
  return true;
}

void Event::wait() const {
  if (impl_->last) note(cudaEventSynchronize(impl_->last));
}

void Event::precede(Stream& q) const {
  if (impl_->last) note(cudaStreamWaitEvent(cuda::streamOf(q), impl_->last, 0));
}

struct StreamClock::Impl {
  std::vector<cudaEvent_t> events; ///< kept, and recorded again
  std::size_t used = 0;

  ~Impl() {
    for (cudaEvent_t event : events) cudaEventDestroy(event);
  }
};

StreamClock::StreamClock() : impl_(std::make_unique<Impl>()) {}
StreamClock::~StreamClock() = default;

std::size_t StreamClock::mark(Stream& q) {
  if (impl_->used == impl_->events.size()) {
    cudaEvent_t event = nullptr;
    note(cudaEventCreateWithFlags(&event, cudaEventDefault));
    impl_->events.push_back(event);
  }
  note(cudaEventRecord(impl_->events[impl_->used], cuda::streamOf(q)));
  return impl_->used++;
}

double StreamClock::seconds(std::size_t from, std::size_t to) const {
  float milliseconds = 0;
  note(cudaEventElapsedTime(&milliseconds, impl_->events[from], impl_->events[to]));
  return milliseconds * 1e-3;
}

void StreamClock::clear() {
  impl_->used = 0;
}

namespace {

/// Cycles and nanoseconds of one processor, over about a millisecond.
[[maybe_unused]] __global__ void countCycles(long long* counts) {
#ifdef __CUDA_ARCH__
  const long long cycles = clock64();
  long long begin = 0, end = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end));
  } while (end - begin < 1000000);
  counts[0] = clock64() - cycles;
  counts[1] = end - begin;
#else
  counts[0] = counts[1] = 0;
#endif
}

} // namespace

std::shared_ptr<const void> onDevice(const void* table, std::size_t bytes) {
  void* memory = nullptr;
  PDCRT_CUDA(cudaMalloc(&memory, bytes));
  std::shared_ptr<const void> owner(memory, [](const void* m) { cudaFree(const_cast<void*>(m)); });
  PDCRT_CUDA(cudaMemcpy(memory, table, bytes, cudaMemcpyHostToDevice));
  PDCRT_CUDA(cudaStreamSynchronize(nullptr)); // the copy of pageable memory may only have been staged
  return owner;
}

namespace device {

Status open() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return {};
  return {Exit::noDevice,
          std::string("no CUDA device") + (code == cudaSuccess ? "" : std::string(": ") + cudaGetErrorString(code)),
          "start the program where an NVIDIA GPU and its driver are, or compile the model without --target=cuda"};
}

void use(int rank) {
  int count = 1;
  note(cudaGetDeviceCount(&count));
  if (count < 1) count = 1;
  note(cudaSetDevice(rank % count));
  // Without, copies between GPUs of one process go through memory of the host.
  for (int peer = 0; peer < count; ++peer) {
    int can = 0;
    if (peer != rank % count && cuda::got(cudaDeviceCanAccessPeer(&can, rank % count, peer)) && can)
      static_cast<void>(cuda::got(cudaDeviceEnablePeerAccess(peer, 0))); // or it was enabled before
  }
}

bool allowTf32() {
  cuda::tf32 = true;
  return true;
}
bool hostSeesBlocks() {
  return false;
}
const char* target() {
  return "cuda";
}

std::string name() {
  cudaDeviceProp properties = {};
  note(cudaGetDeviceProperties(&properties, deviceOfThread()));
  return properties.name;
}

double clockMhz(Stream& q) {
  long long counts[2] = {0, 0};
  auto* memory = reinterpret_cast<long long*>(allocate(sizeof counts));
  if (!memory) return 0;
  PDCRT_LAUNCH(countCycles, 1, 1, cuda::streamOf(q), memory);
  copy(q, counts, memory, sizeof counts);
  note(cudaStreamSynchronize(cuda::streamOf(q)));
  release(reinterpret_cast<std::byte*>(memory), sizeof counts);
  return counts[1] > 0 ? 1e3 * static_cast<double>(counts[0]) / static_cast<double>(counts[1]) : 0;
}

std::byte* allocate(std::size_t bytes) {
  void* memory = nullptr;
  if (bytes == 0 || !cuda::got(cudaMalloc(&memory, bytes))) return nullptr;
  blockBytes() += bytes;
  // In a stream of its own: what others have begun on the device may wait for what this thread has not begun yet.
  Stream q = openStream();
  zero(q, memory, bytes);
  note(cudaStreamSynchronize(cuda::streamOf(q)));
  close(q);
  return static_cast<std::byte*>(memory);
}
void release(std::byte* memory, std::size_t bytes) {
  if (!memory) return;
  blockBytes() -= bytes;
  const std::lock_guard lock(cuda::recording());
  note(cudaDeviceSynchronize());
  note(cudaFree(memory));
}
std::size_t otherBytes() {
  std::size_t free = 0, total = 0;
  note(cudaMemGetInfo(&free, &total));
  const std::size_t used = total - free, blocks = blockBytes();
  return used > blocks ? used - blocks : 0;
}
std::byte* allocateHost(std::size_t bytes) {
  void* memory = nullptr;
  if (!cuda::got(cudaMallocHost(&memory, std::max<std::size_t>(bytes, 1)))) return nullptr;
  return static_cast<std::byte*>(memory);
}
void releaseHost(std::byte* memory, std::size_t) {
  if (memory) note(cudaFreeHost(memory));
}

Stream openStream(std::byte* workspace, std::size_t workspaceBytes) {
  cudaStream_t stream = nullptr;
  note(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return {workspace, workspaceBytes, stream};
}
void close(Stream& q) {
  if (q.native()) note(cudaStreamDestroy(cuda::streamOf(q)));
  q = Stream();
}
Status wait(Stream& q) {
  note(cudaStreamSynchronize(cuda::streamOf(q)));
  const cudaError_t code = failure;
  return code == cudaSuccess ? Status() : failed(code);
}

void copy(Stream& q, void* to, const void* from, std::size_t bytes) {
  note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda::streamOf(q)));
}
void zero(Stream& q, void* to, std::size_t bytes) {
  note(cudaMemsetAsync(to, 0, bytes, cuda::streamOf(q)));
}

} // namespace device
} // namespace pdcrt
