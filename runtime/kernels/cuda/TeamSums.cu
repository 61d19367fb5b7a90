// See TeamSums.h.
#include "common/TeamSums.h"

#include "device/cuda/Cuda.h"

namespace pdcrt {
namespace {

template <class As, class T>
__global__ void finishSums(const T* sum, double divisor, const T* added, AddedAlong along, T* y, std::int64_t count) {
  for (std::int64_t i = thread(); i < count; i += threads()) {
    As value = static_cast<As>(sum[i]);
    if (divisor != 1) value = static_cast<As>(value / static_cast<As>(divisor));
    if (added) value = static_cast<As>(value + static_cast<As>(added[along.at(i)]));
    y[i] = static_cast<T>(value);
  }
}

} // namespace

void finishTeamSum(Stream& q, Element element, const void* sum, double divisor, const void* added,
                   const AddedAlong& along, void* y, std::int64_t count) {
  const auto with = [&]<class As, class T>(As, T) {
    launchLoop(q, "sum of a team", finishSums<As, T>, count, static_cast<const T*>(sum), divisor,
               static_cast<const T*>(added), along, static_cast<T*>(y), count);
  };
  if (element == Element::f16) return with(float(), float16());
  if (element == Element::bf16) return with(float(), bfloat16());
  withElement(element, [&]<class T>(T value) { with(value, value); });
}

} // namespace pdcrt
