// A tensor in memory: values of constants, inputs and results of the interpreter. Row-major.
#pragma once

#include "pdc/IR/Type.h"

#include <cassert>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace pdc {

/// Copying shares the bytes; `mutableData` unshares them first.
class Tensor {
public:
  Tensor() = default;
  /// Zeros.
  explicit Tensor(Type type);
  /// Takes a copy of `bytes`, which must be type.bytes() long.
  Tensor(Type type, std::span<const std::byte> bytes);
  static Tensor scalar(double value, ElementType element = ElementType::f32);
  static Tensor ofInts(Shape shape, std::span<const std::int64_t> values, ElementType element = ElementType::i64);
  static Tensor ofFloats(Shape shape, std::span<const double> values, ElementType element = ElementType::f32);

  const Type& type() const { return type_; }
  const Shape& shape() const { return type_.shape; }
  std::int64_t elements() const { return type_.elements(); }

  /// Elements as `T`, which must be the C++ type of the element type (float, double, std::int64_t, …; std::uint8_t for
  /// boolean, std::uint16_t bits for f16 and bf16).
  template <class T>
  std::span<const T> data() const {
    assert(sizeof(T) == pdcrt::bytesOf(type_.element));
    return {reinterpret_cast<const T*>(bytes_ ? bytes_->data() : nullptr), static_cast<std::size_t>(elements())};
  }
  template <class T>
  std::span<T> mutableData() {
    assert(sizeof(T) == pdcrt::bytesOf(type_.element));
    unshare();
    return {reinterpret_cast<T*>(bytes_->data()), static_cast<std::size_t>(elements())};
  }
  std::span<const std::byte> bytes() const;

  /// Element i, whatever the element type, as a double or an integer; of a u64, the integer with the same 64 bits.
  double asDouble(std::int64_t i) const;
  std::int64_t asInt(std::int64_t i) const;
  /// An integer takes the nearest value that it has, 0 for NaN.
  void set(std::int64_t i, double value);
  /// An integer takes the low bits of `value`.
  void setInt(std::int64_t i, std::int64_t value);
  std::vector<std::int64_t> toInts() const;

  /// The same values as another element type (rounded or truncated as C++ does).
  Tensor convertedTo(ElementType element) const;
  /// The same bytes with another shape of as many elements.
  Tensor reshaped(Shape shape) const;

  /// Same type, same bits.
  bool equals(const Tensor& other) const;
  friend bool operator==(const Tensor& a, const Tensor& b) { return a.equals(b); }

private:
  void unshare();
  Type type_;
  std::shared_ptr<std::vector<std::byte>> bytes_;
};

} // namespace pdc
