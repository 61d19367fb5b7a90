// Products of a batch whose matrices end with rows of zeros: the slots of an expert that no token has taken. Such a row
// of a makes a row of zeros of c; where rows are summed over, it adds nothing.
#pragma once

#include "Product.h"
#include "pdcrt/kernels/MatMul.h"

#include <cstdint>
#include <vector>

namespace pdcrt {

class FilledRows {
public:
  /// No rows are left out.
  FilledRows() = default;
  /// Products of fewer rows, where they may pay: of batches of large matrices. Throws dnnl::error.
  FilledRows(Setup& setup, const MatMul::Options& o);

  /// What MatMul::forward says. False: too few rows are zeros, and nothing has been done. A factor that is not finite
  /// makes NaN of a 0 here only in rows that are not left out.
  bool run(Stream& q, const float* a, const float* b, float* c) const;

private:
  /// The rows of element `i` of the batch that count.
  std::int64_t filled(const float* a, const float* b, std::int64_t i) const;

  MatMul::Options o_{};
  std::int64_t rows_ = 0, step_ = 0;
  std::vector<Product> products_; ///< of step, 2 · step, … rows; the last one of all
};

} // namespace pdcrt
