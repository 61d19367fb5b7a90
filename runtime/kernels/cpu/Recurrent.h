// What the kernels of recurrent layers share: the order of steps, and products with the recurrent weights.
#pragma once

#include "Onednn.h"
#include "pdcrt/View.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace pdcrt::recurrent {

/// The position of the step that is taken n-th.
inline std::int64_t position(std::int64_t n, std::int64_t steps, bool reverse) {
  return reverse ? steps - 1 - n : n;
}

/// A row-major matrix, or the transposed of one.
inline dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, bool transposed = false) {
  return {{rows, columns},
          dnnl::memory::data_type::f32,
          transposed ? dnnl::memory::format_tag::ba : dnnl::memory::format_tag::ab};
}

/// c = a · b, or c += a · b.
inline onednn::Operation product(Setup& setup, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                 const dnnl::memory::desc& c, bool accumulate) {
  dnnl::primitive_attr attributes = onednn::attributes();
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc descriptor({a, b, c}, attributes, onednn::engine());
  return {setup, descriptor, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}}, {{DNNL_ARG_DST, c}}};
}

/// Runs `build`, whose errors are told with the sizes of the layer.
template <class Options, class Build>
void construct(const char* layer, const Options& o, Build build) {
  const std::string what = std::string(layer) + " of " + std::to_string(o.steps) + " steps, batch " +
                           std::to_string(o.batch) + ", " + std::to_string(o.hidden) + " hidden units: ";
  if (o.steps < 1 || o.batch < 1 || o.hidden < 1) throw std::runtime_error(what + "sizes must be positive");
  try {
    build();
  } catch (const dnnl::error& error) {
    throw std::runtime_error(what + "oneDNN " + error.what());
  }
}

/// Where `gate` stands in `order`; throws if it does not.
inline std::int64_t place(const std::string& order, char gate, std::size_t gates) {
  const std::size_t at = order.find(gate);
  if (order.size() != gates || at == std::string::npos)
    throw std::runtime_error("'" + order + "' is no order of gates, '" + gate + "' is missing");
  return static_cast<std::int64_t>(at);
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
