// Gradients of a linear layer from those rows of dy that are not all zeros. Where a mask takes positions out of a loss
// (padding of texts, labels that are ignored), their rows are exactly 0 in every layer before it: such a row makes a
// row of zeros of dx, and adds nothing to dw. The others are copied side by side, and multiplied by products of fewer
// rows.
#pragma once

#include "Product.h"
#include "pdcrt/kernels/Linear.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pdcrt {

class LiveRows {
public:
  /// No rows are left out.
  LiveRows() = default;
  /// Products for fewer rows, where they may pay: of layers with many rows, inputs and outputs, whose copies are small.
  /// Throws dnnl::error.
  explicit LiveRows(const Linear::Options& o);

  /// Bytes of workspace that the calls use; 0: no call does anything.
  std::size_t inputGradientBytes() const { return inputs_.bytes; }
  std::size_t weightGradientBytes() const { return weights_.bytes; }

  /// What Linear's methods of these names say, without db. False: too few rows are zeros, and nothing has been done. A
  /// factor that is not finite makes NaN of a 0 here only in rows that are not left out.
  bool inputGradient(Stream& q, const float* dy, const float* w, float* dx) const;
  bool weightGradient(Stream& q, const float* x, const float* dy, float* dw) const;

private:
  /// Products of step, 2 · step, … rows, and where the copies of rows lie in the workspace.
  struct Sizes {
    std::vector<Product> products;
    std::size_t dyAt = 0, xAt = 0, ownAt = 0; ///< ownAt: the workspace of the product
    std::size_t bytes = 0;
  };
  /// Finds the live rows of dy, and copies them to the workspace, with zeros up to the rows of a product.
  struct Found;
  Found find(Stream& q, const Sizes& sizes, const float* dy) const;

  Linear::Options o_{};
  std::int64_t step_ = 0;
  Sizes inputs_, weights_;
};

} // namespace pdcrt
