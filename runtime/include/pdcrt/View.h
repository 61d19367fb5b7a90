// A typed pointer into the arena, and the element types of the values that it may point to.
#pragma once

#include <cstddef>
#include <cstdint>

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
