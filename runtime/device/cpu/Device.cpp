// The CPU as a device: blocks are memory of the process, and everything is done when its call returns.
#include "pdcrt/Device.h"

#include "pdcrt/Constant.h"
#include "pdcrt/Ranges.h"
#include "pdcrt/Replay.h"
#include "pdcrt/StreamClock.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace pdcrt {

struct Event::Impl {};

Event::Event() = default;
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
void Event::record(Stream&) {}
bool Event::passed() const {
  return true;
}
void Event::wait() const {}
void Event::precede(Stream&) const {}

struct Recording::Impl {};

Recording::Recording() = default;
Recording::~Recording() = default;
Recording::Recording(Recording&&) noexcept = default;
Recording& Recording::operator=(Recording&&) noexcept = default;
void Recording::run(void (*phase)(const Call&), const Call& call, std::uint64_t*) {
  phase(call);
}

struct StreamClock::Impl {
  std::vector<std::chrono::steady_clock::time_point> points;
};

StreamClock::StreamClock() : impl_(std::make_unique<Impl>()) {}
StreamClock::~StreamClock() = default;
std::size_t StreamClock::mark(Stream&) {
  impl_->points.push_back(std::chrono::steady_clock::now());
  return impl_->points.size() - 1;
}
double StreamClock::seconds(std::size_t from, std::size_t to) const {
  return std::chrono::duration<double>(impl_->points[to] - impl_->points[from]).count();
}
void StreamClock::clear() {
  impl_->points.clear();
}

std::shared_ptr<const void> onDevice(const void* table, std::size_t) {
  return {table, [](const void*) {}};
}

namespace device {

Status open() {
  return {};
}
void use(int) {}
bool allowTf32() {
  return false;
}
bool hostSeesBlocks() {
  return true;
}
const char* target() {
  return "cpu";
}
std::string name() {
  return {};
}
double clockMhz(Stream&) {
  return 0;
}

std::byte* allocate(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  (void)::madvise(memory, bytes, MADV_HUGEPAGE); // fewer misses of the address cache; only advice
  std::memset(memory, 0, bytes);                 // touches every page now, not in the first minibatches
  return static_cast<std::byte*>(memory);
}
void release(std::byte* memory, std::size_t bytes) {
  if (memory) ::munmap(memory, bytes);
}
std::byte* allocateHost(std::size_t bytes) {
  return static_cast<std::byte*>(std::malloc(std::max<std::size_t>(bytes, 1)));
}
void releaseHost(std::byte* memory, std::size_t) {
  std::free(memory);
}

Stream openStream(std::byte* workspace, std::size_t workspaceBytes) {
  return {workspace, workspaceBytes};
}
void close(Stream&) {}
Status wait(Stream&) {
  return {};
}

std::size_t otherBytes() {
  return 0;
}

bool namesRanges() {
  return false;
}
void beginRange(const char*) {}
void endRange() {}

bool records() {
  return false;
}
void store(Stream&, std::uint64_t* to, std::uint64_t value) {
  *to = value;
}

void copy(Stream&, void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void zero(Stream&, void* to, std::size_t bytes) {
  std::memset(to, 0, bytes);
}

void divide(Stream&, float* values, float divisor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] /= divisor;
}

static double sumOfSquares(const float* values, std::int64_t count) {
  double sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; ++lane) sums[lane] += static_cast<double>(values[i + lane]) * values[i + lane];
  for (; i < count; ++i) sums[i % 8] += static_cast<double>(values[i]) * values[i];
  double sum = 0;
  for (double part : sums) sum += part;
  return sum;
}

Status sumsOfSquares(Stream&, std::span<const Floats> of, std::int64_t block, std::span<double> sums) {
  std::size_t next = 0;
  for (const Floats& floats : of)
    for (std::int64_t begin = 0; begin < floats.count; begin += block)
      sums[next++] = sumOfSquares(floats.values + begin, std::min(block, floats.count - begin));
  return {};
}

} // namespace device
} // namespace pdcrt
