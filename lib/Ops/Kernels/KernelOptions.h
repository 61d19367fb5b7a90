// Makes a KernelUse from one Options value: the text that generated programs contain and the object that the compiler
// constructs to learn the workspace come from the same fields, so that they cannot disagree.
//
// Each Options struct has one line at the end of this file. Its structured binding names as many members as the struct
// has, so a member that is added to a kernel's options does not compile until it is listed here.
#pragma once

#include "pdc/IR/OpDef.h"

#include "pdcrt/CudaWorkspace.h"
#include "pdcrt/kernels/Attention.h"
#include "pdcrt/kernels/AveragePool2d.h"
#include "pdcrt/kernels/BatchNorm.h"
#include "pdcrt/kernels/Broadcast.h"
#include "pdcrt/kernels/Concat.h"
#include "pdcrt/kernels/Conv2d.h"
#include "pdcrt/kernels/CumSum.h"
#include "pdcrt/kernels/Dropout.h"
#include "pdcrt/kernels/Experts.h"
#include "pdcrt/kernels/Gather.h"
#include "pdcrt/kernels/Gru.h"
#include "pdcrt/kernels/LayerNorm.h"
#include "pdcrt/kernels/Linear.h"
#include "pdcrt/kernels/LinearInt8.h"
#include "pdcrt/kernels/LinearOfRows.h"
#include "pdcrt/kernels/Lstm.h"
#include "pdcrt/kernels/MatMul.h"
#include "pdcrt/kernels/MaxPool2d.h"
#include "pdcrt/kernels/MultiHeadAttention.h"
#include "pdcrt/kernels/OwnPart.h"
#include "pdcrt/kernels/Pad.h"
#include "pdcrt/kernels/RecurrentWeights.h"
#include "pdcrt/kernels/Reduce.h"
#include "pdcrt/kernels/Rnn.h"
#include "pdcrt/kernels/RowCodec.h"
#include "pdcrt/kernels/Scatter.h"
#include "pdcrt/kernels/Slice.h"
#include "pdcrt/kernels/Softmax.h"
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"
#include "pdcrt/kernels/SoftmaxCrossEntropyParts.h"
#include "pdcrt/kernels/TeamExchange.h"
#include "pdcrt/kernels/TeamGather.h"
#include "pdcrt/kernels/TeamReduce.h"
#include "pdcrt/kernels/TeamScatter.h"
#include "pdcrt/kernels/TopK.h"
#include "pdcrt/kernels/Transpose.h"

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace pdc::ops {

// Values as C++ source.

inline std::string toCpp(bool value) {
  return value ? "true" : "false";
}
inline std::string toCpp(std::int64_t value) {
  return std::to_string(value);
}
inline std::string toCpp(int value) {
  return std::to_string(value);
}
inline std::string toCpp(std::uint32_t value) {
  return std::to_string(value);
}
/// The shortest text that reads back as the same number.
inline std::string toCpp(double value) {
  if (std::isnan(value)) return "__builtin_nan(\"\")";
  if (std::isinf(value)) return value < 0 ? "-__builtin_inf()" : "__builtin_inf()";
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}
/// Of names that are words.
inline std::string toCpp(const std::string& word) {
  return "\"" + word + "\"";
}
inline std::string toCpp(ElementType element) {
  return std::string("pdcrt::Element::") + nameOf(element);
}
inline std::string toCpp(pdcrt::Reduction value) {
  constexpr const char* names[] = {"sum", "mean", "max", "min", "product"};
  return std::string("pdcrt::Reduction::") + names[static_cast<int>(value)];
}
inline std::string toCpp(pdcrt::Combination value) {
  constexpr const char* names[] = {"replace", "add", "multiply", "max", "min"};
  return std::string("pdcrt::Combination::") + names[static_cast<int>(value)];
}
inline std::string toCpp(pdcrt::Attention::Algorithm value) {
  return std::string("pdcrt::Attention::Algorithm::") + pdcrt::Attention::algorithmNames[static_cast<int>(value)];
}
inline std::string toCpp(const pdcrt::Attention::Algorithms& value) {
  return "{.forward = " + toCpp(value.forward) + ", .inputGradient = " + toCpp(value.inputGradient) +
         (value.workspace > 0 ? ", .workspace = " + toCpp(value.workspace) : "") + "}";
}
inline std::string toCpp(pdcrt::Conv2d::Algorithm value) {
  return std::string("pdcrt::Conv2d::Algorithm::") + pdcrt::Conv2d::algorithmNames[static_cast<int>(value)];
}
inline std::string toCpp(const pdcrt::Conv2d::Algorithms& value) {
  return "{.forward = " + toCpp(value.forward) + ", .inputGradient = " + toCpp(value.inputGradient) +
         ", .weightGradient = " + toCpp(value.weightGradient) +
         (value.workspace > 0 ? ", .workspace = " + toCpp(value.workspace) : "") + "}";
}
inline std::string toCpp(pdcrt::Linear::Algorithm value) {
  return std::string("pdcrt::Linear::Algorithm::") + pdcrt::Linear::algorithmNames[static_cast<int>(value)];
}
/// Those that were chosen: a call is of one method, and the kernel is its own.
inline std::string toCpp(const pdcrt::Linear::Algorithms& value) {
  std::string text = "{";
  const auto add = [&](const char* name, pdcrt::Linear::Algorithm algorithm) {
    if (algorithm != pdcrt::Linear::Algorithm::automatic)
      text += (text.size() > 1 ? ", ." : ".") + std::string(name) + " = " + toCpp(algorithm);
  };
  add("forward", value.forward), add("inputGradient", value.inputGradient), add("weightGradient", value.weightGradient);
  return text + "}";
}
inline std::string toCpp(const std::vector<std::int64_t>& values) {
  std::string text = "{";
  for (std::int64_t value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "}";
}
inline std::string toCpp(const pdcrt::Shape& shape) {
  return toCpp(std::vector<std::int64_t>(shape.dims, shape.dims + shape.rank));
}
inline std::string toCpp(const pdcrt::Axes& axes) {
  return toCpp(std::vector<std::int64_t>(axes.begin(), axes.end()));
}
inline std::string toCpp(pdcrt::Dims2 value) {
  return toCpp(std::vector{value.height, value.width});
}
inline std::string toCpp(pdcrt::Pads2 value) {
  return toCpp(std::vector{value.top, value.left, value.bottom, value.right});
}

inline std::string toCpp(pdcrt::TeamReduce::Combine value) {
  constexpr const char* names[] = {"sum", "mean", "max", "min"};
  return std::string("pdcrt::TeamReduce::Combine::") + names[static_cast<int>(value)];
}
inline std::string toCpp(const pdcrt::TeamDivision& division) {
  return "{.axis = " + toCpp(division.axis) + (division.blocks != 1 ? ", .blocks = " + toCpp(division.blocks) : "") +
         (division.padded != 0 ? ", .padded = " + toCpp(division.padded) : "") + "}";
}

/// Names ("input, filter, strides") and members of an Options struct; specialised below.
template <class Options>
struct Fields;

/// Entry `index` of a list that is separated by ", ".
inline std::string entryOf(std::string_view list, std::size_t index) {
  for (; index > 0; --index) list.remove_prefix(list.find(", ") + 2);
  return std::string(list.substr(0, list.find(", ")));
}

/// ".input = {32, 64, 56, 56}, .strides = {2, 2}": the members that differ from their defaults.
template <class Options>
std::string describe(const Options& options) {
  const Options defaults;
  std::string text;
  auto member = [&](std::size_t index, const auto& value, const auto& standard) {
    if (!(value == standard))
      text += (text.empty() ? "." : ", .") + entryOf(Fields<Options>::names, index) + " = " + toCpp(value);
  };
  const auto values = Fields<Options>::members(options);
  const auto standards = Fields<Options>::members(defaults);
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (member(i, std::get<i>(values), std::get<i>(standards)), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<decltype(values)>>());
  return text;
}

/// Declares the workspace of a kernel for CUDA. Throws where pdcrt/CudaWorkspace.h does not know the class: a refused
/// model is better than a wrong result.
template <class Options>
void planCuda(pdcrt::Setup& setup, const Options& options) {
  if constexpr (requires { pdcrt::cuda::workspaceOf(options); })
    setup.needWorkspace(pdcrt::cuda::workspaceOf(options));
  else
    throw std::runtime_error("there is none for CUDA");
}

/// Whether a kernel asks for workspace for each method apart (Setup::Method).
template <class Kernel>
concept AsksByMethod = Kernel::workspaceByMethod;

/// A call of `method` of `Kernel`, which is constructed with `options`.
template <class Kernel>
KernelUse kernelUse(const char* className, const char* method, const typename Kernel::Options& options) {
  return {.className = className,
          .method = method,
          .options = describe(options),
          .workspaceByMethod = AsksByMethod<Kernel>,
          .construct = [options](pdcrt::Setup& setup) {
            if (setup.plansCuda())
              planCuda(setup, options);
            else
              Kernel kernel(setup, options);
          }};
}

#define PDC_FIELDS(Options, ...)                                                                                       \
  template <>                                                                                                          \
  struct Fields<pdcrt::Options> {                                                                                      \
    static auto members(const pdcrt::Options& options) {                                                               \
      const auto& [__VA_ARGS__] = options;                                                                             \
      return std::tie(__VA_ARGS__);                                                                                    \
    }                                                                                                                  \
    static constexpr std::string_view names = #__VA_ARGS__;                                                            \
  };

PDC_FIELDS(Attention::Options, batch, heads, groups, queries, keys, size, valueSize, scale, causal, bias, hides, ratio,
           op, run, members, element, algorithms)
PDC_FIELDS(AveragePool2d::Options, input, output, kernel, strides, pads, countIncludePad, lanes)
PDC_FIELDS(BatchNorm::Options, input, epsilon, momentum, unbiased, relu, lanes)
PDC_FIELDS(Broadcast::Options, input, output)
PDC_FIELDS(Concat::Options, outer, inner)
PDC_FIELDS(Conv2d::Options, input, filter, strides, pads, dilations, groups, bias, relu, pooled, inputLanes,
           outputLanes, filterLanes, element, algorithms)
PDC_FIELDS(CumSum::Options, outer, size, inner, exclusive, reverse)
PDC_FIELDS(Dropout::Options, elements, op, ratio, run, members)
PDC_FIELDS(Experts::Options, groups, tokens, choices, experts, capacity, size, all)
PDC_FIELDS(Gather::Options, outer, size, inner, count, rows)
PDC_FIELDS(Gru::Options, steps, batch, hidden, order, reverse)
PDC_FIELDS(LayerNorm::Options, rows, size, epsilon)
PDC_FIELDS(Linear::Options, rows, inputs, outputs, transposed, bias, element, wideGradient, algorithms, parts)
PDC_FIELDS(LinearInt8::Options, rows, inputs, outputs, kept, bias, alpha)
PDC_FIELDS(LinearOfRows::Options, rows, inputs, outputs, transposed, bias)
PDC_FIELDS(Lstm::Options, steps, batch, hidden, order, reverse)
PDC_FIELDS(MatMul::Options, batch, m, k, n, transposeA, transposeB, broadcastA, broadcastB, element)
PDC_FIELDS(MaxPool2d::Options, input, output, kernel, strides, pads, dilations, relu, lanes)
PDC_FIELDS(MultiHeadAttention::Options, batch, heads, groups, queries, keys, size, valueSize, scale, causal, bias,
           packed, element, algorithms)
PDC_FIELDS(OwnPart::Options, operand, members, to)
PDC_FIELDS(Pad::Options, input, before, after, value)
PDC_FIELDS(RecurrentWeights::Options, steps, batch, hidden, gates, reverse)
PDC_FIELDS(Reduce::Options, input, axes, kind)
PDC_FIELDS(Rnn::Options, steps, batch, hidden, relu, reverse)
PDC_FIELDS(RowCodec::Options, rows, columns, kept, alpha)
PDC_FIELDS(Scatter::Options, size, inner, count, kind)
PDC_FIELDS(Slice::Options, input, output, starts, steps)
PDC_FIELDS(Softmax::Options, rows, classes, logarithm)
PDC_FIELDS(SoftmaxCrossEntropy::Options, batch, classes, inner, hasIgnoreIndex, ignoreIndex, labelSmoothing, gap, total,
           element)
PDC_FIELDS(SoftmaxCrossEntropyParts::Options, batch, classes, inner, total, hasIgnoreIndex, ignoreIndex, labelSmoothing,
           element)
PDC_FIELDS(TeamExchange::Options, operand, members, from, to, element)
PDC_FIELDS(TeamGather::Options, operand, members, from, element)
PDC_FIELDS(TeamReduce::Options, operand, members, combine, addedAxis, lanes, element)
PDC_FIELDS(TeamScatter::Options, operand, members, to, element)
PDC_FIELDS(TopK::Options, outer, size, inner, k, largest)
PDC_FIELDS(Transpose::Options, input, permutation)

#undef PDC_FIELDS

} // namespace pdc::ops
