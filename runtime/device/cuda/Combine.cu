// device::combine on GPUs.
#include "pdcrt/Device.h"

#include "Cuda.h"

#include <type_traits>

namespace pdcrt {
namespace {

constexpr std::size_t termsAtOnce = 16;

struct Terms {
  const void* at[termsAtOnce];
  int count;
};

/// Elements of T, computed with as `As`.
template <class As, class T>
__global__ void combineTerms(T* result, Terms terms, Collective::Combine how, std::int64_t count) {
  for (std::int64_t i = thread(); i < count; i += threads()) {
    As total = static_cast<As>(static_cast<const T*>(terms.at[0])[i]);
    for (int term = 1; term < terms.count; ++term) {
      const As value = static_cast<As>(static_cast<const T*>(terms.at[term])[i]);
      if (how == Collective::Combine::sum)
        total = static_cast<As>(total + value);
      else if (how == Collective::Combine::max ? total < value : value < total)
        total = value;
    }
    result[i] = static_cast<T>(total);
  }
}

template <class As, class T>
void combineAs(Stream& q, Collective::Combine how, T* result, std::span<const void* const> terms, std::int64_t count) {
  // More terms than fit: the sum so far goes through `result`, which is therefore no later term's memory.
  Terms some{};
  for (std::size_t next = 0; next < terms.size();) {
    some.count = 0;
    if (next > 0) some.at[some.count++] = result;
    while (some.count < static_cast<int>(termsAtOnce) && next < terms.size()) some.at[some.count++] = terms[next++];
    launchLoop(q, "combination", combineTerms<As, T>, count, result, some, how, count);
  }
}

} // namespace

void device::combine(Stream& q, Element element, Collective::Combine how, void* result,
                     std::span<const void* const> terms, std::int64_t count) {
  switch (element) {
  case Element::f16: return combineAs<float>(q, how, static_cast<float16*>(result), terms, count);
  case Element::bf16: return combineAs<float>(q, how, static_cast<bfloat16*>(result), terms, count);
  case Element::boolean: throw std::runtime_error("booleans are not combined");
  default: break;
  }
  withElement(element, [&]<class T>(T) { combineAs<T>(q, how, static_cast<T*>(result), terms, count); });
}

} // namespace pdcrt
