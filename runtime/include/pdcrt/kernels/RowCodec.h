// A matrix in about a quarter of its bytes, for slow links between stages: rows of int8 with a scale each, and the few
// columns with outliers as they are (the decomposition of LLM.int8(), arXiv:2208.07339, section 3).
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace pdcrt {

/// Of x [rows, columns], the `kept` columns j with the largest m_j = max_i |x_ij| stay as they are, if m_j >= alpha; of
/// equal ones the first. Of the others, b_i = max_j |x_ij| is the largest of row i: in f32, each operation rounded
/// once,
///     q_ij = round(x_ij · (127 / b_i)), half to even,   scale_i = b_i / 127,   decoded: q_ij · scale_i.
/// So |decoded - x_ij| <= b_i / 254 but for rounding of 2^-22 b_i. Rows whose b_i is below `least` become zeros. A
/// number that is not finite makes its column an outlier; where there are more of them than `kept`, rows with one
/// become NaN.
class RowCodec {
public:
  struct Options {
    std::int64_t rows = 0, columns = 0;
    std::int64_t kept = 0; ///< columns, at most
    double alpha = 0;      ///< rounded to f32
  };
  static constexpr float least = 0x1p-120f;

  // Of a row whose b_i has these bits without the sign, which grow with it; those of NaN come after infinity.
  static constexpr std::int32_t magnitude = 0x7fffffff, infinity = 0x7f800000;
  static constexpr float scaleOf(std::int32_t largest) {
    const auto b = std::bit_cast<float>(largest);
    return largest >= infinity ? std::bit_cast<float>(infinity) : b < least ? 0 : b / 127.0f;
  }
  /// 127 / b_i; 0: all integers of the row are.
  static constexpr float factorOf(std::int32_t largest) {
    const auto b = std::bit_cast<float>(largest);
    return largest >= infinity || b < least ? 0 : 127.0f / b;
  }

  /// Where the parts lie in the encoded bytes, and their number: scales, numbers of the kept columns (-1: none), what
  /// these contain, row by row, and the integers.
  struct Layout {
    explicit Layout(const Options& o)
        : places(static_cast<std::size_t>(o.rows) * sizeof(float)),
          outliers(places + static_cast<std::size_t>(o.kept) * sizeof(std::int32_t)),
          integers(outliers + static_cast<std::size_t>(o.rows * o.kept) * sizeof(float)),
          bytes(integers + static_cast<std::size_t>(o.rows * o.columns)) {}
    std::size_t places, outliers, integers, bytes;
  };

  RowCodec(Setup& setup, const Options& options);

  void encode(Stream& q, View<const float> x, View<std::uint8_t> y) const;
  void decode(Stream& q, View<const std::uint8_t> x, View<float> y) const;

private:
  Options options_;
};

} // namespace pdcrt
