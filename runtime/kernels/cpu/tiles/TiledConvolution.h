// Convolution with channels and filters in blocks of 16, on processors with AVX2. Without AVX-512 oneDNN wants blocks
// of 8, so that it copies each operand and result (docs/decisions/0005-cpu-kernels.md).
#pragma once

#include "ConvolutionSizes.h"
#include "pdcrt/kernels/Conv2d.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pdcrt {

class TiledConvolution {
public:
  /// Whether this processor has the instructions, and whether it has no better ones.
  static bool available();
  static bool preferred();

  /// Of a convolution that Conv2d::takesTiles.
  explicit TiledConvolution(const Conv2d::Options& o);

  std::size_t forwardWorkspace() const;
  std::size_t inputGradientWorkspace() const;
  std::size_t weightGradientWorkspace() const;
  /// Layouts are those of Conv2d with 16 lanes everywhere; `b` and `db` may be null, so may `added`, to
  /// which dx is added, and which may be dx. Results are the same bits for any
  /// number of threads.
  void forward(std::byte* workspace, const float* x, const float* w, const float* b, float* y) const;
  void inputGradient(std::byte* workspace, const float* dy, const float* w, const float* added, float* dx) const;
  void weightGradient(std::byte* workspace, const float* x, const float* dy, float* dw, float* db) const;

private:
  convolution::Sizes sizes_; ///< of forward and the weight gradient
  std::vector<convolution::Residue> backward_;
  bool relu_ = false;
  int threads_;
};

} // namespace pdcrt
