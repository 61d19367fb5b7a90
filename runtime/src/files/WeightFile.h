// The one conversion between the order in which files hold the elements of a parameter, which is row-major, and the
// order in the memory of a stage, which is that of its kernels (FilterBlocks.h).
#pragma once

#include "pdcrt/Stage.h"
#include "pdcrt/Status.h"

#include <cstddef>
#include <span>

namespace pdcrt {

struct WeightFile {
  /// Puts the values of one parameter, or of something that is laid out like it, from the file's order into the
  /// memory's, in place. Fails with Exit::invalid where the parameter cannot lie so, or `values` are not its size.
  static Status load(const ParameterRow& row, std::span<std::byte> values);
  /// The way back.
  static Status store(const ParameterRow& row, std::span<std::byte> values);

  /// The same for all parameters of a stage: the trained ones in a block of weights, or of what the optimizer keeps of
  /// them; the frozen ones in the frozen block. Null: those are left alone.
  static Status load(std::span<const ParameterRow> parameters, std::byte* weights, std::byte* frozen);
  static Status store(std::span<const ParameterRow> parameters, std::byte* weights, std::byte* frozen);
};

} // namespace pdcrt
