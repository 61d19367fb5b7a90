// A linear layer of which only some rows are read: those of padded positions are not computed.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <memory>

namespace pdcrt {

/// y[rows, outputs] = x[rows, inputs] · op(w) (+ b[outputs]) in the rows where live[rows] is not 0, zeros in the
/// others; everything row-major. No result may overlap an operand. One object serves one stream at a time.
class LinearOfRows {
public:
  struct Options {
    std::int64_t rows = 0, inputs = 0, outputs = 0;
    bool transposed = false; ///< w is [outputs, inputs], else [inputs, outputs]
    bool bias = false;
  };

  /// Throws std::runtime_error, with the sizes, if the library refuses them.
  LinearOfRows(Setup& setup, const Options& options);
  ~LinearOfRows();
  LinearOfRows(LinearOfRows&&) noexcept;
  LinearOfRows& operator=(LinearOfRows&&) noexcept;

  /// `b` is empty without Options::bias.
  void forward(Stream& q, View<const float> x, View<const float> w, View<const float> live, View<const float> b,
               View<float> y) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace pdcrt
