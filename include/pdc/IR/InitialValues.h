// What parameters are before training, where no file says it.
#pragma once

#include "pdc/IR/Tensor.h"

#include <cstdint>
#include <string>

namespace pdc {

/// The usual initialisation of a parameter: each element is drawn for itself.
struct InitialValues {
  enum class Kind : std::uint8_t { constant, uniform, normal };
  Kind kind = Kind::constant;
  double size = 0; ///< constant: the number; uniform: from -size to size; normal: its standard deviation
  friend bool operator==(const InitialValues&, const InitialValues&) = default;
};

/// "0", "U(-0.25, 0.25)", "N(0, 1)".
std::string toString(const InitialValues& values);

/// Initial values, and the seed that they are drawn with.
struct DrawnValues {
  InitialValues values;
  std::uint64_t seed = 0;
  friend bool operator==(const DrawnValues&, const DrawnValues&) = default;
};

/// The elements, of a float type, of the parameter `name`. Element i is a function of seed, name and i: the same
/// whatever the plan and the other parameters.
Tensor drawnTensor(const DrawnValues& drawn, const std::string& name, const Type& type);

} // namespace pdc
