// Streams as queues. Work runs when somebody waits for it, or before, as the seed draws; so what is not ordered by an
// event happens in any order. Misuse ends the program with a message.
//
// Over 500 lines: every call shares one private world, which nothing else may touch.
#include "StandIn.h"
#include "Streams.h"

#include <cuda_runtime.h>
#include <nccl.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace stand_in {

[[noreturn]] void misuse(const char* what) {
  std::fprintf(stderr, "stand-in for CUDA: %s\n", what);
  std::abort();
}

// ---- Streams ----

struct EventState {
  std::uint64_t recorded = 0, passed = 0; ///< how often
  std::uint64_t at = 0;                   ///< microseconds of work that had been done when it passed last
};
struct Event {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
  int device = 0;
  bool timed = false;
};

struct Task {
  std::function<void()> work;        ///< or:
  std::shared_ptr<EventState> event; ///< recorded, or waited for
  std::uint64_t count = 0;           ///< the recording that is meant
  bool waits = false;
  std::shared_ptr<Kernel> kernel = nullptr; ///< or: work in several steps
};
/// Work that was recorded instead of done.
struct Graph {
  std::vector<std::function<void()>> works;
};
struct Stream {
  std::deque<Task> tasks;
  std::unique_ptr<Graph> recorded; ///< while it is captured
  int device = 0;
  bool runs = false;
};

namespace {

/// A number of the environment, for programs that cannot ask (StandIn.h).
std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : otherwise;
}

/// Everything that the calls share; whoever looks at it holds the mutex.
struct World {
  std::recursive_mutex mutex;
  std::vector<Stream*> streams;
  std::map<std::byte*, std::size_t> allocations;
  bool failsGraphs = false;
  std::set<std::pair<int, int>> peers; ///< devices that may access others' memory
  std::uint64_t seed = setting("PDC_STAND_IN_SEED", 1);
  std::mt19937_64 random{seed};
  std::condition_variable_any moved;
  std::uint64_t moves = 0, kernels = 0; ///< of anything; kernels that have not ended
  std::chrono::milliseconds patience{30'000};
  Stream* held = nullptr;
  std::uint64_t heldSteps = 0, worksDone = 0;
  int devices = static_cast<int>(setting("PDC_STAND_IN_DEVICES", 1));
};
World& world() {
  static World* one = new World; // never destroyed: threads may end later
  return *one;
}

thread_local int deviceOfThread = 0;
thread_local Stream* capturedByThread = nullptr;
thread_local cudaError_t lastError = cudaSuccess;
/// Of a device, and of what a context takes of it.
constexpr std::size_t deviceBytes = std::size_t{16} << 30, contextBytes = std::size_t{256} << 20;

/// Of a call that fails: whoever asks next learns of it, as after the launch of a kernel.
cudaError_t failed(cudaError_t code) {
  return lastError = code;
}

/// To be called with the mutex held.
std::size_t freeBytes() {
  std::size_t free = deviceBytes - contextBytes;
  for (const auto& [memory, bytes] : world().allocations) free -= bytes;
  return free;
}

bool isDevice(int device) {
  std::lock_guard lock(world().mutex);
  return device >= 0 && device < world().devices;
}

/// What CUDA refuses while the calling thread captures a stream.
void mayNotCapture(const char* call) {
  if (capturedByThread) misuse((std::string(call) + " while a stream is captured").c_str());
}

bool ready(const Stream& stream) {
  if (stream.tasks.empty() || stream.runs) return false;
  const Task& task = stream.tasks.front();
  if (task.kernel) return task.kernel->ready();
  return !task.waits || task.event->passed >= task.count;
}

void runFront(Stream& stream) {
  changed();
  if (const std::shared_ptr<Kernel> kernel = stream.tasks.front().kernel) {
    if (!kernel->advance()) return;
    stream.tasks.pop_front();
    --world().kernels;
    return;
  }
  Task task = std::move(stream.tasks.front());
  stream.tasks.pop_front();
  if (task.work) {
    stream.runs = true;
    task.work();
    stream.runs = false;
    ++world().worksDone;
  } else if (!task.waits) {
    task.event->passed = std::max(task.event->passed, task.count);
    task.event->at = world().worksDone;
  }
}

/// Runs one task of some stream that is ready; false where none is. For some time now and then one of the streams is
/// held back: nothing but `must` lets it go on.
bool step(bool must) {
  World& w = world();
  if (w.heldSteps == 0) {
    w.heldSteps = 1 + w.random() % 64;
    w.held = w.streams.empty() ? nullptr : w.streams[w.random() % w.streams.size()];
  }
  --w.heldSteps;
  std::vector<Stream*> able;
  for (Stream* stream : w.streams)
    if (ready(*stream) && stream != w.held) able.push_back(stream);
  if (able.empty() && must && w.held && ready(*w.held)) able.push_back(w.held);
  if (able.empty()) return false;
  runFront(*able[w.random() % able.size()]);
  return true;
}

/// As much as the seed says.
void wander() {
  World& w = world();
  for (std::uint64_t steps = w.random() % 4; steps > 0 && step(/*must=*/false); --steps) {
  }
}

/// To be called with the mutex held, once. While all waits for what other threads have not put into streams yet, they
/// go on.
template <class Done>
void runUntil(Done done) {
  World& w = world();
  bool stuck = false;
  while (!done()) {
    if (step(/*must=*/true)) continue;
    if (w.kernels == 0) misuse("a wait that nothing can end");
    const std::uint64_t before = w.moves;
    if (w.moved.wait_for(w.mutex, w.patience, [&] { return w.moves != before; })) continue;
    if (stuck || !whenStuck) misuse("a wait of NCCL that nothing can end");
    stuck = true;
    whenStuck();
  }
}

/// To be called with the mutex held.
void waitForDevice() {
  runUntil([] {
    for (const Stream* stream : world().streams)
      if (stream->device == deviceOfThread && !stream->tasks.empty()) return false;
    return true;
  });
}

Stream& checked(cudaStream_t stream) {
  World& w = world();
  if (std::find(w.streams.begin(), w.streams.end(), stream) == w.streams.end()) misuse("no stream");
  return *stream;
}

/// Memory of a device must be allocated where it is touched.
void checkRange(const void* memory, std::size_t bytes) {
  World& w = world();
  std::lock_guard lock(w.mutex);
  const auto* at = static_cast<const std::byte*>(memory);
  auto next = w.allocations.upper_bound(const_cast<std::byte*>(at));
  if (next == w.allocations.begin()) return; // of the host
  --next;
  if (at < next->first + next->second && at + bytes > next->first + next->second)
    misuse("a copy beyond the end of an allocation");
}

} // namespace

void (*whenStuck)() = nullptr;
std::recursive_mutex& mutex() {
  return world().mutex;
}
void waitUntil(const std::function<bool()>& done) {
  runUntil(done);
}
void changed() {
  ++world().moves;
  world().moved.notify_all();
}
int mostKernels() {
  std::lock_guard lock(world().mutex);
  return 1 + static_cast<int>(world().seed % 3);
}
int currentDevice() {
  return deviceOfThread;
}
void setPatience(int milliseconds) {
  std::lock_guard lock(world().mutex);
  world().patience = std::chrono::milliseconds(milliseconds);
}

void interleave(std::uint64_t seed) {
  std::lock_guard lock(world().mutex);
  world().seed = seed;
  world().random.seed(seed);
}
void failGraphs(bool fail) {
  std::lock_guard lock(world().mutex);
  world().failsGraphs = fail;
}
void setDevices(int count) {
  std::lock_guard lock(world().mutex);
  world().devices = count;
}
std::size_t pending() {
  std::lock_guard lock(world().mutex);
  std::size_t count = 0;
  for (const Stream* stream : world().streams) count += stream->tasks.size();
  return count;
}

bool immediate(cudaStream_t stream) {
  return stream == nullptr;
}
void enqueue(cudaStream_t stream, std::function<void()> work) {
  if (immediate(stream)) return work();
  std::lock_guard lock(world().mutex);
  if (checked(stream).recorded) {
    if (capturedByThread != stream) misuse("work of another thread in a stream that is captured");
    stream->recorded->works.push_back(std::move(work));
    return;
  }
  stream->tasks.push_back({std::move(work), nullptr, 0, false});
  changed();
  wander();
}
void elapse(std::uint64_t microseconds) {
  std::lock_guard lock(world().mutex);
  world().worksDone += microseconds;
}
void enqueue(cudaStream_t stream, std::shared_ptr<Kernel> kernel) {
  mayNotCapture("a call of NCCL");
  if (immediate(stream)) misuse("NCCL in the stream that does its work at once");
  std::lock_guard lock(world().mutex);
  if (checked(stream).device != deviceOfThread) misuse("NCCL in a stream of another device");
  stream->tasks.push_back({nullptr, nullptr, 0, false, std::move(kernel)});
  ++world().kernels;
  changed();
  wander();
}

} // namespace stand_in

using namespace stand_in;

const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaSuccess         ? "no error"
         : code == cudaErrorNoDevice ? "no CUDA-capable device is detected"
                                     : "an error";
}
cudaError_t cudaGetLastError() {
  return std::exchange(lastError, cudaSuccess);
}
cudaError_t cudaGetDeviceCount(int* count) {
  std::lock_guard lock(world().mutex);
  *count = world().devices;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDevice(int* device) {
  *device = deviceOfThread;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!isDevice(device)) return cudaErrorInvalidValue;
  std::snprintf(properties->name, sizeof properties->name, "stand-in"); // devices of one kind
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!isDevice(device)) return cudaErrorInvalidValue;
  deviceOfThread = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  mayNotCapture("cudaDeviceSynchronize");
  std::lock_guard lock(world().mutex);
  for (const Stream* stream : world().streams)
    if (stream->device == deviceOfThread && stream->recorded)
      misuse("cudaDeviceSynchronize while another thread captures a stream of the device");
  waitForDevice();
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}
/// Once for each pair, as CUDA has it.
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  std::lock_guard lock(world().mutex);
  const bool isNew = world().peers.insert({deviceOfThread, peer}).second;
  return isNew ? cudaSuccess : failed(cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceGetPCIBusId(char* name, int length, int device) {
  std::snprintf(name, static_cast<std::size_t>(length), "0000:%02d:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  mayNotCapture("cudaMalloc");
  const std::size_t size = (bytes + 255) / 256 * 256;
  std::lock_guard lock(world().mutex);
  if (bytes > freeBytes()) return failed(cudaErrorMemoryAllocation);
  *memory = std::aligned_alloc(256, std::max<std::size_t>(size, 256));
  if (!*memory) return failed(cudaErrorMemoryAllocation);
  world().allocations[static_cast<std::byte*>(*memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  mayNotCapture("cudaFree");
  if (!memory) return cudaSuccess;
  std::lock_guard lock(world().mutex);
  waitForDevice();
  if (world().allocations.erase(static_cast<std::byte*>(memory)) == 0) misuse("cudaFree of what was not allocated");
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  std::lock_guard lock(world().mutex);
  *total = deviceBytes;
  *free = freeBytes();
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  mayNotCapture("cudaMallocHost");
  *memory = std::malloc(std::max<std::size_t>(bytes, 1));
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  mayNotCapture("cudaMemset");
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  mayNotCapture("cudaMemcpy");
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  if (immediate(stream)) return cudaMemset(memory, value, bytes);
  checkRange(memory, bytes);
  enqueue(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (immediate(stream)) return cudaMemcpy(to, from, bytes, kind);
  checkRange(to, bytes);
  checkRange(from, bytes);
  enqueue(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  std::lock_guard lock(world().mutex);
  *stream = new Stream;
  (*stream)->device = deviceOfThread;
  world().streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  mayNotCapture("cudaStreamSynchronize");
  if (immediate(stream)) return cudaSuccess;
  std::lock_guard lock(world().mutex);
  Stream& s = checked(stream);
  runUntil([&] { return s.tasks.empty(); });
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cudaStreamSynchronize(stream);
  std::lock_guard lock(world().mutex);
  std::erase(world().streams, &checked(stream));
  if (world().held == stream) world().held = nullptr;
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new Event;
  (*event)->timed = flags == cudaEventDefault;
  (*event)->device = deviceOfThread;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  mayNotCapture("cudaEventRecord");
  std::lock_guard lock(world().mutex);
  const std::uint64_t count = ++event->state->recorded;
  if (immediate(stream)) {
    event->state->passed = count;
    return cudaSuccess;
  }
  if (checked(stream).device != event->device) return cudaErrorInvalidResourceHandle;
  stream->tasks.push_back({nullptr, event->state, count, false});
  changed();
  wander();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  mayNotCapture("cudaStreamWaitEvent");
  std::lock_guard lock(world().mutex);
  if (immediate(stream)) return cudaEventSynchronize(event);
  checked(stream).tasks.push_back({nullptr, event->state, event->state->recorded, true});
  changed();
  wander();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  mayNotCapture("cudaEventQuery");
  std::lock_guard lock(world().mutex);
  wander();
  return event->state->passed >= event->state->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  mayNotCapture("cudaEventSynchronize");
  std::lock_guard lock(world().mutex);
  runUntil([&] { return event->state->passed >= event->state->recorded; });
  return cudaSuccess;
}

/// A piece of work takes a microsecond, unless it has said more (elapse).
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  std::lock_guard lock(world().mutex);
  for (cudaEvent_t event : {from, to}) {
    if (!event->timed || event->state->recorded == 0) return cudaErrorInvalidResourceHandle;
    if (event->state->passed < event->state->recorded) return cudaErrorNotReady;
  }
  *milliseconds = static_cast<float>(to->state->at - from->state->at) * 1e-3f;
  return cudaSuccess;
}

// ---- NVTX ----

namespace {
thread_local int openRanges = 0;
}

int nvtxRangePushA(const char* name) {
  static std::FILE* const file =
      std::getenv("PDC_STAND_IN_RANGES") ? std::fopen(std::getenv("PDC_STAND_IN_RANGES"), "w") : nullptr;
  if (file) std::fprintf(file, "%*s%s\n", 2 * openRanges, "", name);
  return openRanges++;
}
int nvtxRangePop() {
  if (openRanges == 0) misuse("the end of a range that nobody has begun");
  return --openRanges;
}

// ---- Graphs ----

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  mayNotCapture("cudaStreamBeginCapture");
  if (immediate(stream)) misuse("a capture of the stream that does its work at once");
  std::lock_guard lock(world().mutex);
  checked(stream).recorded = std::make_unique<Graph>();
  capturedByThread = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  std::lock_guard lock(world().mutex);
  if (capturedByThread != stream) misuse("the end of a capture that this thread has not begun");
  capturedByThread = nullptr;
  *graph = checked(stream).recorded.release();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  std::lock_guard lock(world().mutex);
  if (world().failsGraphs) return failed(cudaErrorMemoryAllocation);
  *executable = new Graph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const std::function<void()>& work : executable->works) enqueue(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
