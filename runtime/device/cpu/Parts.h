// Work of a kernel that several threads of a rank (pdcrt/Threads.h) share: parts that do not depend on each other, so
// that results are the same bits for any number of threads.
#pragma once

#include "pdcrt/SharedLoop.h"
#include "pdcrt/Threads.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace pdcrt::parts {

/// While it lives, kernels are constructed and called with one thread.
class OneThread {
public:
  OneThread() : before_(std::exchange(kernelThreads, 1)) {}
  ~OneThread() { kernelThreads = before_; }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

private:
  int before_;
};

/// How many parts `items` are for: one for each thread of the rank, where a part has at least `least` of the `elements`
/// that a call reads or writes. Waking a thread takes tens of microseconds.
inline int countOf(std::int64_t items, std::int64_t elements, std::int64_t least = leastShared) {
  return static_cast<int>(std::max<std::int64_t>(1, std::min({std::int64_t{kernelThreads}, items, elements / least})));
}

struct Range {
  std::int64_t begin, end;
};

/// The items of part `part` of `count`.
inline Range rangeOf(int part, int count, std::int64_t items) {
  return {part * items / count, (part + 1) * items / count};
}

/// Calls f(0) to f(count - 1), each in a thread of its own, which calls kernels with one thread. f throws nothing.
template <class F>
void run(int count, const F& f) {
  if (count == 1) return f(0);
#pragma omp parallel for num_threads(count) schedule(static, 1)
  for (int part = 0; part < count; ++part) {
    const OneThread one;
    f(part);
  }
}

/// The same for ranges of items: f(begin, end).
template <class F>
void runRanges(int count, std::int64_t items, const F& f) {
  run(count, [&](int part) {
    const Range range = rangeOf(part, count, items);
    f(range.begin, range.end);
  });
}

/// The same for `count` neighbours, in multiples of 16: of floats, a line of the cache. A call reads or writes
/// `elements`.
template <class F>
void runLines(std::int64_t count, std::int64_t elements, const F& f) {
  constexpr std::int64_t line = 16;
  const std::int64_t lines = (count + line - 1) / line;
  runRanges(countOf(lines, elements), lines,
            [&](std::int64_t begin, std::int64_t end) { f(begin * line, std::min(end * line, count)); });
}

} // namespace pdcrt::parts
