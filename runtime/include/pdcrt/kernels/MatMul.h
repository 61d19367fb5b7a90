// Batched matrix product, over oneDNN or kernels of our own. Its gradients are matrix products with other flags.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <memory>

namespace pdcrt {

/// c[batch, m, n] = op(a)[batch, m, k] · op(b)[batch, k, n], row-major. c may not overlap an operand. One object serves
/// one stream at a time.
class MatMul {
public:
  struct Options {
    std::int64_t batch = 1, m = 0, k = 0, n = 0;
    bool transposeA = false; ///< a is stored [batch, k, m]
    bool transposeB = false; ///< b is stored [batch, n, k]
    bool broadcastA = false; ///< a has no batch axis: the same for every c
    bool broadcastB = false;
    Element element = Element::f32; ///< of a, b and c; sums are in f32
  };

  /// Throws std::runtime_error, with the sizes, if the library refuses them.
  MatMul(Setup& setup, const Options& options);
  ~MatMul();
  MatMul(MatMul&&) noexcept;
  MatMul& operator=(MatMul&&) noexcept;

  void forward(Stream& q, View<const float> a, View<const float> b, View<float> c) const;
  /// In bfloat16 and float16, for CUDA.
  template <class T>
  void forward(Stream& q, OperandView<T> a, OperandView<T> b, View<T> c) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace pdcrt
