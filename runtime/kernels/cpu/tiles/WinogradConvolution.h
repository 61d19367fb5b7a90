// Convolution with filters of 3x3, channels and filters in blocks of 16, by Winograd's algorithm F(4x4, 3x3) on
// processors with AVX2 (TiledConvolution::available): an output takes 2.25 multiplications instead of 9, and rounds
// about four times as much (A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural Networks, CVPR 2016). The
// library has it for AVX-512 only, where it keeps the values of all squares at once.
#pragma once

#include "pdcrt/kernels/Conv2d.h"

#include <cstddef>
#include <cstdint>

namespace pdcrt {

class WinogradConvolution {
public:
  /// Of a convolution that Conv2d::takesTiledWinograd.
  explicit WinogradConvolution(const Conv2d::Options& o);

  std::size_t forwardWorkspace() const;
  std::size_t inputGradientWorkspace() const;
  std::size_t weightGradientWorkspace() const;
  /// Layouts are those of Conv2d with 16 lanes everywhere; `b` and `db` may be null, so may `added`, to
  /// which dx is added, and which may be dx. Results are the same bits for any
  /// number of threads.
  void forward(std::byte* workspace, const float* x, const float* w, const float* b, float* y) const;
  /// Of Conv2d::forwardPooled; `index` may be null.
  void forwardPooled(std::byte* workspace, const float* x, const float* w, const float* b, float* maxima,
                     std::int32_t* index) const;
  void inputGradient(std::byte* workspace, const float* dy, const float* w, const float* added, float* dx) const;
  void weightGradient(std::byte* workspace, const float* x, const float* dy, float* dw, float* db) const;

  /// Channels are counted in blocks, pads are where the input is read as 0.
  struct Sizes {
    std::int64_t samples, inputs, outputs, height, width, rows, columns, top, left;

    /// Squares of 4x4 outputs, those over the edges included.
    std::int64_t squares() const { return samples * squareRows() * squareColumns(); }
    std::int64_t squareRows() const { return (rows + 3) / 4; }
    std::int64_t squareColumns() const { return (columns + 3) / 4; }
  };

private:
  Sizes sizes_;    ///< of forward and the weight gradient
  Sizes backward_; ///< of the input's gradient, which is a convolution of dy
  bool relu_ = false;
  int threads_;
};

} // namespace pdcrt
