// See TeamSums.h.
#include "common/TeamSums.h"

#include "device/cpu/Parts.h"

#include <cstring>
#include <stdexcept>

namespace pdcrt {
namespace {

template <class As, class T>
void finish(const T* sum, double divisor, const T* added, const AddedAlong& along, T* y, std::int64_t count) {
  const As by = static_cast<As>(divisor);
  const auto value = [&](std::int64_t i) {
    return divisor == 1 ? static_cast<As>(sum[i]) : static_cast<As>(static_cast<As>(sum[i]) / by);
  };
  parts::runLines(count, count, [&](std::int64_t begin, std::int64_t end) {
    if (!added && divisor == 1) {
      if (y != sum) std::memcpy(y + begin, sum + begin, static_cast<std::size_t>(end - begin) * sizeof(T));
    } else if (!added) {
      for (std::int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(value(i));
    } else if (along.lanes > 1) {
      for (std::int64_t i = begin; i < end;) { // neighbours by neighbours
        const std::int64_t from = along.at(i), many = std::min(along.lanes - i % along.lanes, end - i);
        for (std::int64_t k = 0; k < many; ++k)
          y[i + k] = static_cast<T>(value(i + k) + static_cast<As>(added[from + k]));
        i += many;
      }
    } else {
      for (std::int64_t i = begin; i < end;) { // one element for a plane
        const As more = static_cast<As>(added[along.at(i)]);
        const std::int64_t many = std::min(along.inner - i % along.inner, end - i);
        for (std::int64_t k = 0; k < many; ++k) y[i + k] = static_cast<T>(value(i + k) + more);
        i += many;
      }
    }
  });
}

} // namespace

void finishTeamSum(Stream&, Element element, const void* sum, double divisor, const void* added,
                   const AddedAlong& along, void* y, std::int64_t count) {
  const auto with = [&]<class As, class T>(As, T) {
    finish<As>(static_cast<const T*>(sum), divisor, static_cast<const T*>(added), along, static_cast<T*>(y), count);
  };
  if (element == Element::f16) return with(float(), float16());
  if (element == Element::bf16) return with(float(), bfloat16());
  withElement(element, [&]<class T>(T value) { with(value, value); });
}

} // namespace pdcrt
