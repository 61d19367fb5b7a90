// A product of two matrices by tiles of our own, where those are faster, or by oneDNN's matmul.
#pragma once

#include "Onednn.h"
#include "cpu/tiles/TiledProduct.h"

#include <optional>

namespace pdcrt {

/// c [m, n] = a [m, k] · b [k, n] (+ bias [n]), or added to c.
class Product {
public:
  Product() = default;
  /// Throws dnnl::error.
  Product(Setup& setup, const TiledProduct::Options& o, bool bias = false) : bias_(bias) {
    if (TiledProduct::preferred(o)) {
      tiled_.emplace(o);
      workspace_ = tiled_->workspaceBytes();
      setup.needWorkspace(workspace_);
      return;
    }
    const dnnl::memory::desc a = matrix(o.m, o.k, o.transposeA), b = matrix(o.k, o.n, o.transposeB),
                             c = matrix(o.m, o.n), row = matrix(1, o.n);
    const dnnl::primitive_attr attributes = attributesOf(o.adds);
    if (bias) {
      const dnnl::matmul::primitive_desc descriptor({a, b, row, c}, attributes, onednn::engine());
      library_ = {
          setup, descriptor, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_BIAS, row}}, {{DNNL_ARG_DST, c}}};
    } else {
      const dnnl::matmul::primitive_desc descriptor({a, b, c}, attributes, onednn::engine());
      library_ = {setup, descriptor, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}}, {{DNNL_ARG_DST, c}}};
    }
    workspace_ = library_.workspaceBytes();
  }

  std::size_t workspaceBytes() const { return workspace_; }

  void run(Stream& q, const float* a, const float* b, float* c, const float* bias = nullptr) const {
    if (tiled_)
      tiled_->run(q.workspace(), a, b, bias, c);
    else if (bias_)
      library_.run(q, {a, b, bias}, {c});
    else
      library_.run(q, {a, b}, {c});
  }

  /// A row-major matrix, or the transposed of one.
  static dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, bool transposed = false) {
    return {{rows, columns},
            dnnl::memory::data_type::f32,
            transposed ? dnnl::memory::format_tag::ba : dnnl::memory::format_tag::ab};
  }
  /// Of products that are added to what is there, or not.
  static dnnl::primitive_attr attributesOf(bool adds) {
    dnnl::primitive_attr attributes = onednn::attributes();
    if (adds) {
      dnnl::post_ops sum;
      sum.append_sum();
      attributes.set_post_ops(sum);
    }
    return attributes;
  }

private:
  bool bias_ = false;
  std::size_t workspace_ = 0;
  std::optional<TiledProduct> tiled_;
  onednn::Operation library_;
};

} // namespace pdcrt
