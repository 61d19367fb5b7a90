// Where an executor's data comes from.
#pragma once

#include "pdcrt/Stage.h"
#include "pdcrt/Status.h"

#include <cstddef>
#include <cstdint>

namespace pdcrt {

/// Provides what the data set has for a minibatch.
class BatchSource {
public:
  virtual ~BatchSource() = default;
  /// Writes the values of `row` for `minibatch` to `destination`.
  virtual Status read(const DataRow& row, std::int64_t minibatch, std::byte* destination) = 0;
};

} // namespace pdcrt
