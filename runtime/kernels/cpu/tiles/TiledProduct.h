// Products of matrices on processors with AVX2 and without AVX-512. How fast oneDNN's are there depends on the layouts
// of the operands, and they allocate buffers in every call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pdcrt {

/// c [m, n] = a [m, k] · b [k, n] (+ bias [n]), or added to c; row-major but for operands that are given transposed.
class TiledProduct {
public:
  struct Options {
    std::int64_t m, k, n;
    bool transposeA = false, transposeB = false; ///< given as [k, m], as [n, k]
    bool adds = false;
  };

  /// Whether this processor computes it, and the library does not better; for products that are not tiny.
  static bool preferred(const Options& o);

  TiledProduct() = default;
  explicit TiledProduct(const Options& o);

  std::size_t workspaceBytes() const;
  /// `bias` may be null. Results are the same bits for any number of threads.
  void run(std::byte* workspace, const float* a, const float* b, const float* bias, float* c) const;

  /// For many products with the same b: it is brought into the order of the tiles once.
  std::size_t packedBytes() const;
  void pack(const float* b, float* packed) const;
  std::size_t workspaceBytesPacked() const;
  void runPacked(std::byte* workspace, const float* a, const float* packed, float* c) const;

private:
  Options o_{};
  int threads_ = 1;
};

} // namespace pdcrt
