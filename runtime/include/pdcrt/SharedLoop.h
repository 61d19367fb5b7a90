// Loops of a stage program whose range the threads of a rank share (--threads-per-stage). No iteration reads what
// another one writes, so that results are the same bits for any number of threads.
#pragma once

#include <cstdint>

namespace pdcrt {

/// The elements that a thread gets at least: to wake it takes tens of microseconds.
inline constexpr std::int64_t leastShared = std::int64_t{1} << 16;

/// Calls loop(context, begin, end) for ranges that together are 0 … count - 1, each in a thread of its own; `elements`
/// are in all of them. `loop` throws nothing.
void shareRange(std::int64_t count, std::int64_t elements, void (*loop)(const void*, std::int64_t, std::int64_t),
                const void* context);

/// The same for anything that can be called with begin and end.
template <class Loop>
void shareLoop(std::int64_t count, std::int64_t elements, const Loop& loop) {
  shareRange(
      count, elements,
      [](const void* context, std::int64_t begin, std::int64_t end) {
        (*static_cast<const Loop*>(context))(begin, end);
      },
      &loop);
}

} // namespace pdcrt
