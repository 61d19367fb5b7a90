// A typed pointer into the arena, and the element types of the values that it may point to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace pdcrt {

enum class Element : std::uint8_t { f64, f32, f16, bf16, i64, i32, i8, u8, boolean };

/// Bytes of one element.
constexpr std::size_t bytesOf(Element element) {
  switch (element) {
  case Element::f64:
  case Element::i64: return 8;
  case Element::f32:
  case Element::i32: return 4;
  case Element::f16:
  case Element::bf16: return 2;
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
  if constexpr (std::is_same_v<T, std::int64_t>) return Element::i64;
  if constexpr (std::is_same_v<T, std::int32_t>) return Element::i32;
  if constexpr (std::is_same_v<T, std::int8_t>) return Element::i8;
  static_assert(std::is_same_v<T, double> || std::is_same_v<T, float> || std::is_same_v<T, std::int64_t> ||
                std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::int8_t> || std::is_same_v<T, std::uint8_t>);
  return Element::u8;
}

/// Calls f with a value of the C++ type of `element`, one of those that elementOf() knows.
template <class F>
void withElement(Element element, F f) {
  switch (element) {
  case Element::f64: return f(double());
  case Element::f32: return f(float());
  case Element::i64: return f(std::int64_t());
  case Element::i32: return f(std::int32_t());
  case Element::i8: return f(std::int8_t());
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

} // namespace pdcrt
