// Parameters that are computed from the stored values of another one while weights are written: weights of 8 bits.
#pragma once

#include "pdc/IR/Tensor.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pdc {

/// What a parameter is of a matrix of f32, the source, whose rows along `axis` are quantised one by one
/// (pdcrt/Int8.h): with axis 1 its columns are.
struct DerivedValues {
  enum class Kind : std::uint8_t {
    int8,   ///< i8[rows, size]: the integers
    scales, ///< f32[rows]: of each row
    inputs, ///< f32[count, rows]: at these places of each row, the source's own values
    places  ///< i32[count]: these places
  };
  Kind kind = Kind::int8;
  std::string of;                     ///< the name of the source, which the parameter's reference or draw is for
  Type source;                        ///< its type
  int axis = 0;                       ///< 0 or 1
  std::vector<std::int64_t> inputs{}; ///< of Kind::inputs and Kind::places, ascending
  friend bool operator==(const DerivedValues&, const DerivedValues&) = default;
};

/// "int8", "scales", "inputs", "places": text of parse and print.
const char* nameOf(DerivedValues::Kind kind);

/// The type of such a parameter.
Type typeOf(const DerivedValues& derived);

/// Its values, from the source's. `source` has the elements of derived.source. Empty where one of them is not finite:
/// `badAt` is the first.
Tensor derivedTensor(const DerivedValues& derived, std::span<const float> source, std::int64_t& badAt);

} // namespace pdc
