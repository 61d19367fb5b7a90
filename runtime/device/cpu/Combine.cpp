// device::combine and addUp on the CPU.
#include "pdcrt/Device.h"

#include <algorithm>
#include <stdexcept>
#include <type_traits>

namespace pdcrt {
namespace {

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return std::max(a, b);
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return std::min(a, b);
  }
};

/// Elements of T, computed with as `As`.
template <class As, class T, class Term, class Two>
void combineAs(T* result, std::span<const Term* const> terms, std::int64_t count, Two two) {
  // Blocks that stay in registers: each value is loaded once, and loops of a fixed length become vector instructions.
  constexpr std::int64_t blockSize = 16;
  As total[blockSize];
  const auto combineBlock = [&](std::int64_t begin, std::int64_t size) {
    const T* const head = static_cast<const T*>(terms[0]) + begin;
    for (std::int64_t i = 0; i < size; ++i) total[i] = static_cast<As>(head[i]);
    for (const Term* of : terms.subspan(1)) {
      const T* const term = static_cast<const T*>(of) + begin;
      for (std::int64_t i = 0; i < size; ++i) total[i] = two(total[i], static_cast<As>(term[i]));
    }
    for (std::int64_t i = 0; i < size; ++i) result[begin + i] = static_cast<T>(total[i]);
  };
  const std::int64_t whole = count / blockSize * blockSize;
  for (std::int64_t begin = 0; begin < whole; begin += blockSize) combineBlock(begin, blockSize);
  combineBlock(whole, count - whole);
}

template <class Two>
void combineWith(Element element, void* result, std::span<const void* const> terms, std::int64_t count, Two two) {
  switch (element) {
  case Element::f16: return combineAs<float>(static_cast<float16*>(result), terms, count, two);
  case Element::bf16: return combineAs<float>(static_cast<bfloat16*>(result), terms, count, two);
  case Element::boolean: throw std::runtime_error("booleans are not combined");
  default: break;
  }
  withElement(element, [&]<class T>(T) { combineAs<T>(static_cast<T*>(result), terms, count, two); });
}

} // namespace

void device::combine(Stream&, Element element, Collective::Combine how, void* result,
                     std::span<const void* const> terms, std::int64_t count) {
  switch (how) {
  case Collective::Combine::sum: return combineWith(element, result, terms, count, Sum());
  case Collective::Combine::max: return combineWith(element, result, terms, count, Max());
  case Collective::Combine::min: return combineWith(element, result, terms, count, Min());
  }
}

void device::addUp(Stream&, float* sum, std::span<const float* const> terms, std::int64_t count) {
  combineAs<float>(sum, terms, count, Sum());
}

} // namespace pdcrt
