// Views for kernels that take floats of several precisions.
#pragma once

#include "pdcrt/View.h"

#include <cstdint>
#include <type_traits>

namespace pdcrt {

/// A view whose elements the caller chooses: f32, f16 or bf16. Void is void or, of what is only read, const void.
template <class Void>
struct ViewOfAny {
  template <class T>
  using Like = std::conditional_t<std::is_const_v<Void>, const T, T>;

  Void* data = nullptr; ///< null: nothing is there
  Element element = Element::f32;

  constexpr ViewOfAny() = default;
  template <class T>
  requires(std::is_const_v<Void> || !std::is_const_v<T>) constexpr ViewOfAny(View<T> view)
      : data(view.data), element(elementOf<std::remove_const_t<T>>()) {}

  /// Where the elements are of T.
  template <class T>
  constexpr View<Like<T>> as() const {
    return static_cast<Like<T>*>(data);
  }
  constexpr explicit operator bool() const { return data != nullptr; }
};
using AnyView = ViewOfAny<void>;
using AnyConstView = ViewOfAny<const void>;

/// Calls f with a value of the C++ type of a view's elements.
template <class F>
constexpr void withFloats(Element element, F f) {
  if (element == Element::bf16) return f(bfloat16());
  if (element == Element::f16) return f(float16());
  f(float());
}

} // namespace pdcrt
