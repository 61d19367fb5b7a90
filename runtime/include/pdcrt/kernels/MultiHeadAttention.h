// Attention (Attention.h) of heads that lie beside each other in rows, as linear layers make them: what splits heads
// and puts them together again moves no element where the fused algorithm computes it.
#pragma once

#include "pdcrt/kernels/Attention.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pdcrt {

/// As Attention, without dropout. Queries are [batch, queries, heads · size], keys [batch, keys, groups ·
/// size], values [batch, keys, groups · valueSize], results [batch, queries, heads · valueSize]; or, packed, a row has
/// its queries, keys and values one behind the other. One object serves one stream at a time.
class MultiHeadAttention {
public:
  struct Options {
    std::int64_t batch = 1, heads = 1, groups = 1, queries = 1, keys = 1, size = 1, valueSize = 1;
    double scale = 1;
    bool causal = false;
    Shape bias = {}; ///< as Attention's; it hides nothing
    bool packed = false;
    Element element = Element::f32; ///< statistics are of f32
    Attention::Algorithms algorithms = {};
  };
  /// The same where heads lie apart.
  static Attention::Options attentionOf(const Options& o) {
    return {.batch = o.batch,
            .heads = o.heads,
            .groups = o.groups,
            .queries = o.queries,
            .keys = o.keys,
            .size = o.size,
            .valueSize = o.valueSize,
            .scale = o.scale,
            .causal = o.causal,
            .bias = o.bias,
            .element = o.element,
            .algorithms = o.algorithms};
  }

  /// Where element e of position i of head h of sample b is: b · positions · row + begin + i · row + h · size + e.
  struct Part {
    std::int64_t heads, positions, size, begin, row;
    std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t e) const {
      return (b * positions + i) * row + begin + h * size + e;
    }
    std::int64_t elements() const { return heads * positions * size; } ///< of a sample
  };
  struct Rows {
    Part query, key, value, y;

    explicit Rows(const Options& o) {
      const std::int64_t ofQueries = o.heads * o.size, ofKeys = o.groups * o.size, ofValues = o.groups * o.valueSize;
      const std::int64_t all = o.packed ? ofQueries + ofKeys + ofValues : 0;
      const auto row = [&](std::int64_t own) { return o.packed ? all : own; };
      query = {o.heads, o.queries, o.size, 0, row(ofQueries)};
      key = {o.groups, o.keys, o.size, o.packed ? ofQueries : 0, row(ofKeys)};
      value = {o.groups, o.keys, o.valueSize, o.packed ? ofQueries + ofKeys : 0, row(ofValues)};
      y = {o.heads, o.queries, o.valueSize, 0, o.heads * o.valueSize};
    }
  };
  /// Of the workspace, what a copy with heads apart takes, each of which begins at a multiple of 256; and those of all
  /// operands and results.
  static std::size_t copyBytes(const Options& o, const Part& part) {
    const auto bytes = static_cast<std::size_t>(o.batch * part.elements()) * bytesOf(o.element);
    return (bytes + 255) / 256 * 256;
  }
  static std::size_t copyBytes(const Options& o) {
    const Rows rows(o);
    return 2 * (copyBytes(o, rows.query) + copyBytes(o, rows.key) + copyBytes(o, rows.value)) + copyBytes(o, rows.y);
  }

  /// Throws std::runtime_error if sizes are not positive or do not fit.
  MultiHeadAttention(Setup& setup, const Options& options);
  ~MultiHeadAttention();
  MultiHeadAttention(MultiHeadAttention&&) noexcept;
  MultiHeadAttention& operator=(MultiHeadAttention&&) noexcept;

  /// Packed, `key` and `value` are null views. `largest` and `inverse`, [batch, heads, queries], say what Attention's
  /// do, and may be null views.
  void forward(Stream& q, View<const float> query, View<const float> key, View<const float> value,
               View<const float> bias, View<float> y, View<float> largest, View<float> inverse) const;
  /// From what forward had and gave. Packed, `dkey` and `dvalue` are null views, and `dquery` has all three gradients;
  /// else the gradients are made that are not null views.
  void inputGradient(Stream& q, View<const float> dy, View<const float> query, View<const float> key,
                     View<const float> value, View<const float> bias, View<const float> y, View<const float> largest,
                     View<const float> inverse, View<float> dquery, View<float> dkey, View<float> dvalue) const;
  // In bfloat16 and float16, for CUDA.
  template <class T>
  void forward(Stream& q, OperandView<T> query, OperandView<T> key, OperandView<T> value, View<const float> bias,
               View<T> y, View<float> largest, View<float> inverse) const;
  template <class T>
  void inputGradient(Stream& q, OperandView<T> dy, OperandView<T> query, OperandView<T> key, OperandView<T> value,
                     View<const float> bias, OperandView<T> y, View<const float> largest, View<const float> inverse,
                     View<T> dquery, View<T> dkey, View<T> dvalue) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace pdcrt
