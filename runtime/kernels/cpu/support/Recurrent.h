// What the kernels of recurrent layers share: products with the recurrent weights, and rows whose sequence is over.
#pragma once

#include "Product.h"
#include "common/RecurrentShapes.h"
#include "device/cpu/Parts.h"
#include "pdcrt/View.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace pdcrt::recurrent {

/// How the threads of a rank share a layer: each computes some rows of the batch in all steps, and waits for no other
/// before the last.
struct RowParts {
  int count = 1;         ///< a divisor of the batch, so that all have the same products
  std::int64_t rows = 0; ///< of each

  RowParts() = default;
  template <class Options>
  explicit RowParts(const Options& o) {
    // A product of a row takes as long as a pass over some sixteenth of what it multiplies.
    count = parts::countOf(o.batch, o.steps * o.batch * o.hidden * (1 + o.hidden / 16));
    while (o.batch % count != 0) --count;
    rows = o.batch / count;
  }
};

/// c = a · w, or c += a · w, once per step with the same weights, for the rows of each part. Where there are enough
/// steps to pay for it, a call begins by bringing the weights into the layout that tiles have, or that the library
/// likes: then its product takes 0.6 to 0.9 of the time, and the copy that of two to six products.
class StepProduct {
public:
  StepProduct() = default;
  /// Of the weights as they are read, transposed or not; `inner`: columns of a, `outer`: of c.
  StepProduct(Setup& setup, std::int64_t steps, const RowParts& rowParts, std::int64_t inner, std::int64_t outer,
              bool transposed, bool accumulate = true) {
    const parts::OneThread one;
    const bool packs = steps >= worthPacking;
    const TiledProduct::Options tiles = {rowParts.rows, inner, outer, false, transposed, accumulate};
    if (packs && TiledProduct::preferred(tiles)) {
      tiled_.emplace(tiles);
      packedBytes_ = tiled_->packedBytes();
      return;
    }
    const dnnl::memory::desc a = Product::matrix(rowParts.rows, inner), w = Product::matrix(inner, outer, transposed),
                             c = Product::matrix(rowParts.rows, outer);
    const dnnl::memory::desc any(w.dims(), dnnl::memory::data_type::f32, dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc descriptor({a, packs ? any : w, c}, Product::attributesOf(accumulate),
                                                  onednn::engine());
    const dnnl::memory::desc liked = descriptor.weights_desc();
    for (int part = 0; part < rowParts.count; ++part)
      products_.emplace_back(
          setup, descriptor,
          std::initializer_list<onednn::Operation::Argument>{{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, liked}},
          std::initializer_list<onednn::Operation::Argument>{{DNNL_ARG_DST, c}});
    if (liked == w) return;
    const dnnl::reorder::primitive_desc reorder(onednn::engine(), w, onednn::engine(), liked, onednn::attributes());
    pack_ = {setup, reorder, {{DNNL_ARG_FROM, w}}, {{DNNL_ARG_TO, liked}}};
    packedBytes_ = (liked.get_size() + 63) / 64 * 64;
  }

  /// Of a product of one part, and of packing.
  std::size_t workspaceBytes() const {
    return tiled_ ? tiled_->workspaceBytesPacked() : std::max(products_[0].workspaceBytes(), pack_.workspaceBytes());
  }
  /// Of the weights that `prepare` copies.
  std::size_t packedBytes() const { return packedBytes_; }

  /// The weights as `run` wants them; `room`, packedBytes() of the workspace, must last as long.
  const float* prepare(Stream& q, const float* w, std::byte* room) const {
    if (packedBytes_ == 0) return w;
    float* const packed = reinterpret_cast<float*>(room);
    if (tiled_) {
      tiled_->pack(w, packed);
      return packed;
    }
    const parts::OneThread one;
    pack_.run(q, {w}, {packed});
    return packed;
  }
  /// For the rows of a part, with its part of the workspace.
  void run(Stream& q, int part, const float* a, const float* prepared, float* c) const {
    if (tiled_)
      tiled_->runPacked(q.workspace(), a, prepared, c);
    else
      products_[static_cast<std::size_t>(part)].run(q, {a, prepared}, {c});
  }

private:
  static constexpr std::int64_t worthPacking = 8;

  std::optional<TiledProduct> tiled_;
  std::vector<onednn::Operation> products_; ///< of the parts, where there are no tiles
  onednn::Operation pack_;
  std::size_t packedBytes_ = 0;
};

/// The workspace of a recurrent kernel: the products' for each part, then packed weights, then its own.
struct Workspace {
  std::size_t part = 0, packed = 0, own = 0; ///< size of the first, where the others begin

  Workspace() = default;
  /// `own`: bytes that the kernel itself needs.
  Workspace(Setup& setup, const RowParts& rowParts, std::initializer_list<const StepProduct*> products,
            std::size_t ownBytes) {
    std::size_t packedBytes = 0;
    for (const StepProduct* product : products) {
      part = std::max(part, product->workspaceBytes());
      packedBytes = std::max(packedBytes, product->packedBytes());
    }
    packed = static_cast<std::size_t>(rowParts.count) * part;
    own = packed + packedBytes;
    setup.needWorkspace(own + ownBytes);
  }

  /// Calls f(stream, part, first row, row behind the last), where `stream` has a part of the workspace, in a thread
  /// each.
  template <class F>
  void forEachPart(Stream& q, const RowParts& rowParts, const F& f) const {
    parts::run(rowParts.count, [&](int index) {
      Stream mine(q.workspace() + static_cast<std::size_t>(index) * part, part);
      f(mine, index, index * rowParts.rows, (index + 1) * rowParts.rows);
    });
  }
};

/// Runs `build`, whose errors are told with the sizes of the layer.
template <class Options, class Build>
void construct(const char* layer, const Options& o, Build build) {
  checkSizes(layer, o);
  try {
    build();
  } catch (const dnnl::error& error) {
    throw std::runtime_error(describe(layer, o) + ": oneDNN " + error.what());
  }
}

/// Row b of step t keeps its state.
inline bool isOver(View<const std::int32_t> lengths, std::int64_t b, std::int64_t t) {
  return lengths && t >= lengths[b];
}

/// Copies `from`, or zeros where there is none.
inline void copyOrZero(const float* from, std::int64_t count, float* to) {
  if (from)
    std::copy_n(from, count, to);
  else
    std::fill_n(to, count, 0.0f);
}

/// Adds `from`, if there is one.
inline void add(const float* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; from && i < count; ++i) to[i] += from[i];
}

} // namespace pdcrt::recurrent
