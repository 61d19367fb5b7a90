// Tensors in memory, and conversions between element types (half precisions included, rounded to nearest even).
#include "pdc/IR/Tensor.h"

#include "pdcrt/LowPrecision.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

using namespace pdc;

Tensor::Tensor(Type type) : type_(std::move(type)) {
  assert(type_.bytes() >= 0);
  bytes_ = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(type_.bytes()));
}

Tensor::Tensor(Type type, std::span<const std::byte> bytes) : type_(std::move(type)) {
  assert(type_.bytes() == static_cast<std::int64_t>(bytes.size()));
  bytes_ = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
}

Tensor Tensor::scalar(double value, ElementType element) {
  return ofFloats({}, {&value, 1}, element);
}

Tensor Tensor::ofInts(Shape shape, std::span<const std::int64_t> values, ElementType element) {
  Tensor tensor(Type{element, std::move(shape)});
  assert(tensor.elements() == static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) tensor.setInt(static_cast<std::int64_t>(i), values[i]);
  return tensor;
}

Tensor Tensor::ofFloats(Shape shape, std::span<const double> values, ElementType element) {
  Tensor tensor(Type{element, std::move(shape)});
  assert(tensor.elements() == static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) tensor.set(static_cast<std::int64_t>(i), values[i]);
  return tensor;
}

std::span<const std::byte> Tensor::bytes() const {
  return bytes_ ? std::span<const std::byte>(*bytes_) : std::span<const std::byte>();
}

namespace {
/// Calls `visit` with a pointer to element `i` in its C++ type.
template <class Bytes, class Visit>
auto visitElement(Bytes* bytes, ElementType element, std::int64_t i, Visit visit) {
  auto at = [&]<class T>(T*) {
    using Pointer = std::conditional_t<std::is_const_v<Bytes>, const T*, T*>;
    return visit(reinterpret_cast<Pointer>(bytes) + i);
  };
  switch (element) {
  case ElementType::f64: return at(static_cast<double*>(nullptr));
  case ElementType::f32: return at(static_cast<float*>(nullptr));
  case ElementType::f16: return at(static_cast<pdcrt::float16*>(nullptr));
  case ElementType::bf16: return at(static_cast<pdcrt::bfloat16*>(nullptr));
  case ElementType::i64: return at(static_cast<std::int64_t*>(nullptr));
  case ElementType::i32: return at(static_cast<std::int32_t*>(nullptr));
  case ElementType::i16: return at(static_cast<std::int16_t*>(nullptr));
  case ElementType::i8: return at(static_cast<std::int8_t*>(nullptr));
  case ElementType::u64: return at(static_cast<std::uint64_t*>(nullptr));
  case ElementType::u32: return at(static_cast<std::uint32_t*>(nullptr));
  case ElementType::u16: return at(static_cast<std::uint16_t*>(nullptr));
  case ElementType::u8:
  case ElementType::boolean: break;
  }
  return at(static_cast<std::uint8_t*>(nullptr));
}

/// C++ leaves the conversion of a float that does not fit undefined; here it takes the nearest value, and NaN gives 0.
template <class T>
T saturate(double value) {
  if (std::isnan(value)) return 0;
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double high = static_cast<double>(std::numeric_limits<T>::max());
  if (value <= low) return std::numeric_limits<T>::min();
  if (value >= high) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}
} // namespace

double Tensor::asDouble(std::int64_t i) const {
  return visitElement(bytes_->data(), type_.element, i, []<class T>(const T* p) { return static_cast<double>(*p); });
}

std::int64_t Tensor::asInt(std::int64_t i) const {
  if (isFloat(type_.element)) return saturate<std::int64_t>(asDouble(i));
  return visitElement(bytes_->data(), type_.element, i,
                      []<class T>(const T* p) { return static_cast<std::int64_t>(*p); });
}

void Tensor::set(std::int64_t i, double value) {
  unshare();
  const ElementType element = type_.element;
  visitElement(bytes_->data(), element, i, [&]<class T>(T* p) {
    if (element == ElementType::boolean)
      *p = static_cast<T>(value != 0);
    else if constexpr (std::is_integral_v<T>)
      *p = saturate<T>(value);
    else
      *p = static_cast<T>(value);
  });
}

void Tensor::setInt(std::int64_t i, std::int64_t value) {
  if (isFloat(type_.element) || type_.element == ElementType::boolean) return set(i, static_cast<double>(value));
  unshare();
  visitElement(bytes_->data(), type_.element, i, [&]<class T>(T* p) { *p = static_cast<T>(value); });
}

std::vector<std::int64_t> Tensor::toInts() const {
  std::vector<std::int64_t> values(static_cast<std::size_t>(elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = asInt(static_cast<std::int64_t>(i));
  return values;
}

Tensor Tensor::convertedTo(ElementType element) const {
  if (element == type_.element) return *this;
  Tensor result(Type{element, type_.shape});
  const std::int64_t count = elements();
  // From integer to integer not by way of double, which has 53 bits.
  if (!isFloat(element) && !isFloat(type_.element) && element != ElementType::boolean) {
    for (std::int64_t i = 0; i < count; ++i) result.setInt(i, asInt(i));
    return result;
  }
  for (std::int64_t i = 0; i < count; ++i) result.set(i, asDouble(i));
  return result;
}

Tensor Tensor::reshaped(Shape shape) const {
  assert(elementsOf(shape) == elements());
  Tensor result = *this;
  result.type_.shape = std::move(shape);
  return result;
}

bool Tensor::equals(const Tensor& other) const {
  const auto left = bytes(), right = other.bytes();
  return type_ == other.type_ && left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0);
}

void Tensor::unshare() {
  if (bytes_.use_count() > 1) bytes_ = std::make_shared<std::vector<std::byte>>(*bytes_);
}
