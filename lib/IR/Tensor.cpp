// Tensors in memory, and conversions between element types (half precisions included, rounded to nearest even).
#include "pdc/IR/Tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

using namespace pdc;

static float floatFromBf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

static std::uint16_t bf16FromFloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

static float floatFromF16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1F, mantissa = bits & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000 | (mantissa << 13));
  if (exponent == 0) { // zero or subnormal: mantissa · 2^-24
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

static std::uint16_t f16FromDouble(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7E00;
  if (magnitude == 0) return sign;
  if (magnitude >= 65520) return sign | 0x7C00; // half-way beyond the largest finite number
  // The unit in the last place: 2^-24 for subnormal numbers, else 2^(exponent - 10).
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int unit = std::max(exponent - 11, -24);
  const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
  // `units` is mantissa with the hidden bit; a carry into the exponent is an ordinary addition.
  return static_cast<std::uint16_t>(sign | ((static_cast<std::uint32_t>(unit + 24) << 10) + units));
}

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
/// f16 and bf16, which C++ does not have: their bits.
struct Half {
  std::uint16_t bits;
};

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
  case ElementType::f16:
  case ElementType::bf16: return at(static_cast<Half*>(nullptr));
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
  return visitElement(bytes_->data(), type_.element, i, [&]<class T>(const T* p) -> double {
    if constexpr (std::is_same_v<T, Half>)
      return type_.element == ElementType::f16 ? floatFromF16(p->bits) : floatFromBf16(p->bits);
    else
      return static_cast<double>(*p);
  });
}

std::int64_t Tensor::asInt(std::int64_t i) const {
  if (isFloat(type_.element)) return saturate<std::int64_t>(asDouble(i));
  return visitElement(bytes_->data(), type_.element, i, []<class T>(const T* p) -> std::int64_t {
    if constexpr (std::is_same_v<T, Half>)
      return 0; // not reached
    else
      return static_cast<std::int64_t>(*p);
  });
}

void Tensor::set(std::int64_t i, double value) {
  unshare();
  const ElementType element = type_.element;
  visitElement(bytes_->data(), element, i, [&]<class T>(T* p) {
    if constexpr (std::is_same_v<T, Half>)
      p->bits = element == ElementType::f16 ? f16FromDouble(value) : bf16FromFloat(static_cast<float>(value));
    else if (element == ElementType::boolean)
      *p = static_cast<T>(value != 0);
    else if constexpr (std::is_floating_point_v<T>)
      *p = static_cast<T>(value);
    else
      *p = saturate<T>(value);
  });
}

void Tensor::setInt(std::int64_t i, std::int64_t value) {
  if (isFloat(type_.element) || type_.element == ElementType::boolean) return set(i, static_cast<double>(value));
  unshare();
  visitElement(bytes_->data(), type_.element, i, [&]<class T>(T* p) {
    if constexpr (!std::is_same_v<T, Half>) *p = static_cast<T>(value);
  });
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
