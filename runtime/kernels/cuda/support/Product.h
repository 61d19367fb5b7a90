// A product of row-major matrices through cuBLASLt, prepared when it is constructed.
//
// The library counts columns: a row-major matrix is the transpose of what it sees. So it is asked for the transpose of
// the result, transposed b times transposed a, which costs nothing.
#pragma once

#include "device/cuda/Cuda.h"
#include "pdcrt/CudaWorkspace.h"
#include "pdcrt/View.h"

#include <memory>

namespace pdcrt::cuda {

/// c[batch, m, n] = op(a)[batch, m, k] · op(b)[batch, k, n] (+ bias[n]) (+ c). Sums are in f32; without TF32.
class Product {
public:
  /// What is added up over k beside the product: op(a), which gives m sums, or op(b), which gives n.
  enum class Sums { none, ofA, ofB };
  static constexpr int places = 6;

  struct Options {
    std::int64_t m = 0, k = 0, n = 0;
    bool transposeA = false; ///< a is stored [k, m]
    bool transposeB = false; ///< b is stored [n, k]
    bool bias = false;
    bool accumulate = false; ///< adds to what is in c
    std::int64_t batch = 1;
    bool broadcastA = false, broadcastB = false; ///< one matrix for the whole batch
    std::uint32_t alignment = 64;                ///< of all operands, in bytes
    Element element = Element::f32;              ///< of all operands: f32, f16 or bf16
    bool wideResult = false;                     ///< c is of f32, whatever a and b are; without a bias
    std::int64_t rowStride = 0;                  ///< elements from row to row of a as it is stored; 0: no gap
    /// Copies in the workspace, behind the library's, of matrices with inconvenient rows. For one product that
    /// accumulates nothing, of matrices without gaps.
    PaddedProduct padded = {};
    Sums sums = Sums::none; ///< of the type of c; without a bias
    int place = 0; ///< of the algorithm among those that the library offers, what it recommends first; < places
  };

  Product() = default;
  /// Throws std::runtime_error where the library has no algorithm.
  explicit Product(const Options& options);

  /// `bias`: or where the sums go.
  void run(Stream& q, const void* a, const void* b, const void* bias, void* c) const;

private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// The beginning of the workspace, where libraries want it.
inline std::byte* alignedWorkspace(Stream& q) {
  const auto address = reinterpret_cast<std::uintptr_t>(q.workspace());
  return q.workspace() + (workspaceAlignment - address % workspaceAlignment) % workspaceAlignment;
}
/// The stream with what is left of the workspace from there on.
inline Stream withAlignedWorkspace(Stream& q) {
  Stream aligned = q;
  std::byte* const begin = alignedWorkspace(q);
  return aligned.work(begin, q.workspaceBytes() - static_cast<std::size_t>(begin - q.workspace()));
}

} // namespace pdcrt::cuda
