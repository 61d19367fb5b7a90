// Pieces of an OpDef that many families share: attributes, type inference, costs, examples, references.
#pragma once

#include "pdc/IR/OpDef.h"
#include "pdc/Ops/AllOps.h"

#include "pdcrt/Shape.h"
#include "pdcrt/kernels/Window.h"

#include <optional>
#include <string>
#include <vector>

namespace pdc::ops {

// Attributes. Without a default an attribute is required; `example` then fixes its kind.

AttributeDef integer(std::string name, std::optional<std::int64_t> standard, std::string summary);
AttributeDef number(std::string name, std::optional<double> standard, std::string summary);
AttributeDef boolean(std::string name, bool standard, std::string summary);
AttributeDef integers(std::string name, std::optional<std::vector<std::int64_t>> standard, std::string summary);

/// The attribute `result`: in what low precision result 0 is given, which is computed in f32. Who lowers precision sets
/// it.
AttributeDef lowResult();

// Inference.

using Types = Expected<std::vector<Type>>;

/// The types, the first of them in the low precision that the attribute `result` asks for.
Types withLowResult(const InferContext& c, std::vector<Type> types);

/// Every result has the type of operand `operand`.
InferFn sameTypeAs(std::size_t operand, std::size_t results = 1);
/// As sameTypeAs, for operands that all have one float type.
InferFn sameFloatTypes(std::size_t results = 1);

/// NumPy's broadcast of two shapes, or nothing.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);
/// Whether operand i is there.
inline bool has(const InferContext& c, std::size_t i) {
  return i < c.operands.size() && c.operands[i];
}
/// Attribute `name` of the operation under inference, which the caller has seen to be there.
inline std::int64_t integerOf(const InferContext& c, const char* name) {
  return c.attributes.getInt(name);
}
inline const std::vector<std::int64_t>& integersOf(const InferContext& c, const char* name) {
  return c.attributes.getInts(name);
}

/// Reports unless operand i of 'op' has floats, at least one of them, and a rank from `least` to `most`.
Status requireFloat(const InferContext& c, const char* op, std::size_t i, int least = 0, int most = pdcrt::maxRank);
/// Reports unless operand i has at most the rank that kernels take.
Status requireRank(const InferContext& c, const char* op, std::size_t i, int least = 0, int most = pdcrt::maxRank);
/// Reports unless operand i has exactly the type `type`, in whatever layout; `what` says where that type comes from.
Status requireType(const InferContext& c, const char* op, std::size_t i, const Type& type, const char* what);
/// Reports unless `axis` lies in 0 … rank - 1.
Status requireAxis(const InferContext& c, const char* op, std::int64_t axis, int rank);
/// Reports unless `axes` are distinct, ascending, and each in 0 … rank - 1.
Status requireAxes(const InferContext& c, const char* op, const std::vector<std::int64_t>& axes, int rank);

// Types of an operation's operands and results, for costs, kernels and references.

inline const Type& operandType(const Operation& op, std::size_t i) {
  return op.operand(i)->type();
}
/// Of a result that is there.
inline const Type& resultType(const Operation& op, std::size_t i = 0) {
  return op.result(i)->type();
}
pdcrt::Shape toRuntime(const Shape& shape);
pdcrt::Axes axesOf(const std::vector<std::int64_t>& values);
/// Product of dimensions begin … end - 1.
std::int64_t product(const Shape& shape, std::size_t begin, std::size_t end);

// Layouts.

/// Whether an operand or a result of `op` has its channels in blocks.
bool inChannelBlocks(const Operation& op);
/// For kernels with an option `lanes`: how many channels each position of a plane has in memory.
std::int64_t lanesOf(const Operation& op);
/// The row-major shape in memory of an operand or result [N, C, H, W] of `op`, all of which have one layout.
Shape blockedShape(const Operation& op, const Shape& shape);
/// For OpKernel::channelBlocks: all operands and results of rank 4, in one layout.
ChannelBlocks everyPlane(const Operation& op);

// Costs.

using CostFn = std::function<Cost(const Operation&)>;

/// Bytes of all operands and results that are there.
double bytesMoved(const Operation& op);
/// Reads the operands and writes the results, with `flops` operations per element of operand 0.
CostFn perElement(double flops);
/// Reads and writes as many bytes as the results have: data movement.
Cost moveCost(const Operation& op);

// Examples.

/// The graph text "(inputs) { body }", one statement per line of `body`.
std::string example(const std::string& inputs, const std::string& body);

// References.

/// Calls visit(std::span<const U> from, std::span<U> to) with an unsigned integer U as wide as the elements: for
/// references that only move elements.
template <class Visit>
void visitBytes(const Tensor& from, Tensor& to, Visit visit) {
  switch (pdcrt::bytesOf(from.type().element)) {
  case 1: return visit(from.data<std::uint8_t>(), to.mutableData<std::uint8_t>());
  case 2: return visit(from.data<std::uint16_t>(), to.mutableData<std::uint16_t>());
  case 4: return visit(from.data<std::uint32_t>(), to.mutableData<std::uint32_t>());
  default: return visit(from.data<std::uint64_t>(), to.mutableData<std::uint64_t>());
  }
}
/// A reference that does not compute with floats, so that it is the same in f32 and f64.
ReferenceFns moving(std::function<void(ReferenceContext&)> move);

/// Whether a < b, integers of type `element` as Tensor::asInt gives them.
inline bool isLess(ElementType element, std::int64_t a, std::int64_t b) {
  return element == ElementType::u64 ? static_cast<std::uint64_t>(a) < static_cast<std::uint64_t>(b) : a < b;
}

/// Row-major strides of a shape.
std::vector<std::int64_t> stridesOf(const Shape& shape);
/// Calls visit(index) for every index into `shape`, in row-major order.
template <class Visit>
void forEachIndex(const Shape& shape, Visit visit) {
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::int64_t left = elementsOf(shape); left > 0; --left) {
    visit(std::as_const(index));
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}
/// Position of `index` in memory with `strides`.
std::int64_t dot(const std::vector<std::int64_t>& index, const std::vector<std::int64_t>& strides);

} // namespace pdc::ops
