// The forward product of pdcrt::LinearInt8, by the instructions that a processor has for sums of products of integers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pdcrt {

class Int8Product {
public:
  /// Ascending: a processor that has some of them has those before.
  enum class Instructions { plain, avx2, avx512, vnni };
  static bool available(Instructions instructions);
  static Instructions best();

  struct Sizes {
    std::int64_t rows, inputs, outputs, kept;
    float alpha;
  };
  /// As LinearInt8::forward has them; those that are absent are null.
  struct Operands {
    const float* x;
    const std::int8_t* w;
    const float* scale;
    const float* kept;
    const std::int32_t* keptInputs;
    const float* bias;
    float* y;
  };

  Int8Product() = default;
  explicit Int8Product(const Sizes& sizes, Instructions instructions = best());

  std::size_t workspaceBytes() const;
  /// Results are the same bits for any number of threads, and by any instructions.
  void run(std::byte* workspace, const Operands& operands) const;

private:
  Sizes s_{};
  Instructions instructions_ = Instructions::plain;
  int threads_ = 1;
};

} // namespace pdcrt
