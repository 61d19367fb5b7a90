// See Convolution.h.
#include "Shared/Convolution.h"

using namespace pdc;
using namespace pdc::ops;

pdc::ops::Convolution::Convolution(const Operation& op, const Type& xType, const Type& wType, const Type& yType)
    : x(xType.shape), w(wType.shape), y(yType.shape), window(windowOf(op.attributes)),
      groups(op.attributes.getInt("groups")), inputLanes(pdc::lanesOf(xType)), outputLanes(pdc::lanesOf(yType)),
      filterLanes(wType.layout == filterInBlocks ? channelBlock : 1), relu(op.attributes.getOr("relu", false)),
      element(yType.element), algorithms(*convolutionAlgorithmsOf(op.attributes)) {
  window.kernel[0] = w[2], window.kernel[1] = w[3];
}

pdcrt::Conv2d::Options pdc::ops::Convolution::options(bool bias) const {
  return {.input = toRuntime(x),
          .filter = toRuntime(w),
          .strides = window.stridesDims(),
          .pads = window.padsDims(),
          .dilations = window.dilationsDims(),
          .groups = groups,
          .bias = bias,
          .relu = relu,
          .inputLanes = inputLanes,
          .outputLanes = outputLanes,
          .filterLanes = filterLanes,
          .element = element,
          .algorithms = algorithms};
}

Convolution pdc::ops::convolutionOf(const Operation& op) {
  return {op, operandType(op, 0), operandType(op, 1), resultType(op)};
}

std::vector<AttributeDef> pdc::ops::convolutionAttributes(std::vector<AttributeDef> more) {
  std::vector<AttributeDef> defs = windowAttributes(/*kernel=*/false, /*dilations=*/true);
  defs.push_back(integer("groups", 1, "channels are convolved in as many separate groups"));
  defs.push_back(convolutionAlgorithms());
  defs.push_back(convolutionWorkspace());
  defs.insert(defs.end(), more.begin(), more.end());
  return defs;
}

namespace {

bool asksForWinograd(const pdcrt::Conv2d::Algorithms& algorithms) {
  using Algorithm = pdcrt::Conv2d::Algorithm;
  const auto asks = [](Algorithm a) { return a == Algorithm::winograd || a == Algorithm::tiledWinograd; };
  return asks(algorithms.forward) || asks(algorithms.inputGradient) || asks(algorithms.weightGradient);
}

} // namespace

Expected<Shape> pdc::ops::convolutionShape(const InferContext& c, const char* op, const Shape& x, const Shape& w) {
  const std::int64_t groups = integerOf(c, "groups");
  if (groups < 1 || x[1] != w[1] * groups || w[0] % groups != 0)
    return c.error() << "'" << op << "' op has " << x[1] << " input channels and " << w[0] << " output channels in "
                     << groups << " groups, the filter " << toString(w) << " takes " << w[1] << " each";
  if (!checkWindowAttributes(c, op)) return failure;
  Window window = windowOf(c.attributes);
  window.kernel[0] = w[2], window.kernel[1] = w[3];
  if (!checkWindow(c, op, window, x[2], x[3])) return failure;
  const std::optional<pdcrt::Conv2d::Algorithms> algorithms = convolutionAlgorithmsOf(c.attributes);
  if (!algorithms)
    return c.error() << "'" << op << "' op needs three algorithms, each of them automatic or one of pdcrt::Conv2d's";
  if (asksForWinograd(*algorithms) && !pdcrt::Conv2d::takesWinograd({.filter = toRuntime(w),
                                                                     .strides = window.stridesDims(),
                                                                     .dilations = window.dilationsDims(),
                                                                     .groups = groups}))
    return c.error() << "'" << op << "' op asks for winograd with the filter " << toString(w)
                     << ", which is for filters of 3x3 with strides and dilations of 1, in one group";
  return Shape{x[0], w[0], window.count(0, x[2]), window.count(1, x[3])};
}

Expected<Shape> pdc::ops::convolutionShape(const InferContext& c, const char* op) {
  if (!requireFloat(c, op, 0, 4, 4) || !requireFloat(c, op, 1, 4, 4)) return failure;
  const Type &x = c.operand(0), &w = c.operand(1);
  if (x.element != w.element)
    return c.error() << "'" << op << "' op has " << toString(x) << " and a filter " << toString(w);
  if (has(c, 2) && !requireType(c, op, 2, {x.element, {w.shape[0]}}, "the filter")) return failure;
  return convolutionShape(c, op, x.shape, w.shape);
}

/// Blocks are of one group; with dilations the library has its GEMM only for the gradients, which takes row-major
/// filters.
std::vector<const Value*> pdc::ops::filterInBlocksOf(const Operation& op, const Value* filter) {
  if (op.attributes.getInt("groups") != 1 || !(windowOf(op.attributes).dilationsDims() == pdcrt::Dims2{1, 1}))
    return {};
  return {filter};
}

bool pdc::ops::isInOneGroup(const Operation& op) {
  return op.attributes.getInt("groups") == 1;
}

ChannelBlocks pdc::ops::blocksBesideFilter(const Operation& op) {
  if (op.operand(0) == op.operand(1)) return {};
  return {.values = {op.operand(0), op.result()}, .apart = true, .last = isInOneGroup(op)};
}

std::int64_t pdc::ops::fanInOfConvolution(const Operation& op) {
  return product(operandType(op, 1).shape, 1, 4);
}

// Channels of x are groups · inputs, channels of y are groups · outputs, and w is [groups · outputs, inputs, …]. Groups
// are the first index, as divideConvolution expects it.

Loops pdc::ops::loopsOfConvolution(const Operation& op, bool mayDivideInputs) {
  const Shape &x = operandType(op, 0).shape, &w = operandType(op, 1).shape;
  const std::int64_t groups = op.attributes.getInt("groups");
  Loops loops(op);
  addIndex(loops, op, {.size = groups, .operands = {{0, 1}, {1, 0}, {2, 0}}, .results = {{0, 1}, {1, 1}}});
  addIndex(loops, op, {.size = x[0], .operands = {{0, 0}}, .results = {{0, 0}, {1, 0}}});
  addIndex(loops, op,
           {.size = w[0] / groups,
            .operands = {{1, 0, groups}, {2, 0, groups}},
            .results = {{0, 1, groups}, {1, 1, groups}}});
  if (!mayDivideInputs) return loops;
  addIndex(loops, op, {.size = w[1], .operands = {{0, 1, groups}, {1, 1}}, .results = {}, .reduced = {0}});
  if (op.operands().size() > 2 && op.operand(2)) loops.added = {.operand = 2, .axis = 1};
  return loops;
}

Loops pdc::ops::loopsOfInputGradient(const Operation& op) {
  const Shape &dy = operandType(op, 0).shape, &w = operandType(op, 1).shape;
  const std::int64_t groups = op.attributes.getInt("groups");
  Loops loops(op);
  addIndex(loops, op, {.size = groups, .operands = {{0, 1}, {1, 0}, {2, 1}}, .results = {{0, 1}}});
  addIndex(loops, op, {.size = dy[0], .operands = {{0, 0}, {2, 0}}, .results = {{0, 0}}});
  addIndex(loops, op,
           {.size = w[0] / groups, .operands = {{0, 1, groups}, {1, 0, groups}}, .results = {}, .reduced = {0}});
  addIndex(loops, op, {.size = w[1], .operands = {{1, 1}, {2, 1, groups}}, .results = {{0, 1, groups}}});
  if (op.operands().size() > 2) loops.added = {.operand = 2};
  return loops;
}

Loops pdc::ops::loopsOfWeightGradient(const Operation& op) {
  const Shape &x = operandType(op, 0).shape, &w = resultType(op).shape;
  const std::int64_t groups = op.attributes.getInt("groups");
  Loops loops(op);
  addIndex(loops, op, {.size = groups, .operands = {{0, 1}, {1, 1}}, .results = {{0, 0}, {1, 0}}});
  addIndex(loops, op, {.size = x[0], .operands = {{0, 0}, {1, 0}}, .results = {}, .reduced = {0, 1}});
  addIndex(loops, op,
           {.size = w[0] / groups, .operands = {{1, 1, groups}}, .results = {{0, 0, groups}, {1, 0, groups}}});
  addIndex(loops, op, {.size = w[1], .operands = {{0, 1, groups}}, .results = {{0, 1}}});
  return loops;
}

std::vector<Value*> pdc::ops::divideConvolution(const Operation& op, const Loops& loops, const Division& division,
                                                const std::vector<Value*>& operands, Builder& b) {
  const std::int64_t groups = op.attributes.getInt("groups");
  const bool isOfGroups = groups > 1 && division.index == 0;
  return sameWith(op, loops, division, operands, {{"groups", isOfGroups ? groups / division.parts : groups}}, b);
}
