// The result of code that can fail. The diagnostic is emitted where the failure is known (Diagnostics.h); what is
// returned only says whether there is a value.
#pragma once

#include <cassert>
#include <optional>
#include <utility>

namespace pdc {

/// "It failed, and the reason has been reported."
struct Failure {};
inline constexpr Failure failure{};

template <class T>
class [[nodiscard]] Expected {
public:
  Expected(Failure) {}
  Expected(T value) : value_(std::move(value)) {}

  explicit operator bool() const { return value_.has_value(); }
  T& operator*() & { return assert(value_), *value_; }
  const T& operator*() const& { return assert(value_), *value_; }
  T&& operator*() && { return assert(value_), *std::move(value_); }
  T* operator->() { return assert(value_), &*value_; }
  const T* operator->() const { return assert(value_), &*value_; }

private:
  std::optional<T> value_;
};

/// Success or failure without a value: `return success;`.
struct Success {};
inline constexpr Success success{};
using Status = Expected<Success>;

} // namespace pdc
