// A typed pointer into the arena, and the element types of the values that it may point to.
#pragma once

#include "pdcrt/LowPrecision.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace pdcrt {

enum class Element : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean };

/// Bytes of one element.
constexpr std::size_t bytesOf(Element element) {
  switch (element) {
  case Element::f64:
  case Element::i64:
  case Element::u64: return 8;
  case Element::f32:
  case Element::i32:
  case Element::u32: return 4;
  case Element::f16:
  case Element::bf16:
  case Element::i16:
  case Element::u16: return 2;
  case Element::i8:
  case Element::u8:
  case Element::boolean: return 1;
  }
  return 0;
}

/// The Element of values of type T; bytes are u8, which booleans are stored as.
template <class T>
constexpr Element elementOf() {
  if constexpr (std::is_same_v<T, double>) return Element::f64;
  if constexpr (std::is_same_v<T, float>) return Element::f32;
  if constexpr (std::is_same_v<T, float16>) return Element::f16;
  if constexpr (std::is_same_v<T, bfloat16>) return Element::bf16;
  static_assert(std::is_floating_point_v<T> || std::is_same_v<T, float16> || std::is_same_v<T, bfloat16> ||
                (std::is_integral_v<T> && sizeof(T) <= 8));
  constexpr bool isSigned = std::is_signed_v<T>;
  switch (sizeof(T)) {
  case 8: return isSigned ? Element::i64 : Element::u64;
  case 4: return isSigned ? Element::i32 : Element::u32;
  case 2: return isSigned ? Element::i16 : Element::u16;
  default: return isSigned ? Element::i8 : Element::u8;
  }
}

/// Calls f with a value of the C++ type of `element`, which is not of low precision.
template <class F>
void withElement(Element element, F f) {
  switch (element) { // NOLINT(bugprone-branch-clone): each calls another function
  case Element::f64: return f(double());
  case Element::f32: return f(float());
  case Element::i64: return f(std::int64_t());
  case Element::i32: return f(std::int32_t());
  case Element::i16: return f(std::int16_t());
  case Element::i8: return f(std::int8_t());
  case Element::u64: return f(std::uint64_t());
  case Element::u32: return f(std::uint32_t());
  case Element::u16: return f(std::uint16_t());
  default: return f(std::uint8_t());
  }
}

/// A pointer with an element type and no size: shapes are compile-time facts, stated where a view is declared.
/// A null view stands for an operand that is absent (a convolution without bias).
template <class T>
struct View {
  T* data = nullptr;

  constexpr View() = default;
  constexpr View(T* pointer) : data(pointer) {}
  /// The view at `base` + `offset` bytes.
  View(const void* base, std::size_t offset)
      : data(reinterpret_cast<T*>(const_cast<std::byte*>(static_cast<const std::byte*>(base)) + offset)) {}
  /// A view of values that may be written converts to one of values that may not.
  constexpr operator View<const T>() const { return {data}; }

  constexpr T& operator[](std::int64_t i) const { return data[i]; }
  constexpr explicit operator bool() const { return data != nullptr; }
};

/// An operand with elements as those of the results.
template <class T>
using OperandView = std::type_identity_t<View<const T>>;

} // namespace pdcrt
