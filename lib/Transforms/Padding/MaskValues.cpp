#include "Padding/MaskValues.h"

#include "pdc/IR/Builder.h"
#include "pdc/IR/Elementwise.h"
#include "pdc/IR/Interpreter.h"

#include <algorithm>
#include <numeric>

using namespace pdc;

/// More elements take too long to follow.
static constexpr std::int64_t mostElements = 1 << 24;

const MaskValues::Known* MaskValues::of(const Value* value) {
  if (!value) return nullptr;
  auto found = known_.find(value);
  if (found == known_.end()) found = known_.emplace(value, compute(*value)).first;
  return found->second ? &*found->second : nullptr;
}

std::optional<MaskValues::Known> MaskValues::compute(const Value& value) {
  if (value.type().elements() > mostElements) return std::nullopt;
  Known known;
  const auto elements = static_cast<std::size_t>(value.type().elements());
  if (&value == &mask_) {
    known.of.resize(elements);
    std::iota(known.of.begin(), known.of.end(), 0);
    known.atZero = known.atOne = Tensor(value.type());
    for (std::int64_t i = 0; i < known.atOne.elements(); ++i) known.atOne.set(i, 1);
    return known;
  }
  if (std::optional<Tensor> constant = Builder::constantValue(&value)) {
    known.of.assign(elements, -1);
    known.atZero = known.atOne = *constant;
    return known;
  }
  const Operation* operation = value.definer();
  if (!operation || operation->def().facts.random) return std::nullopt;
  for (const Value* operand : operation->operands())
    if (operand && !of(operand)) return std::nullopt;
  const auto result = static_cast<std::size_t>(value.resultIndex());
  if (operation->def().kind == OpKind::elementwise) return elementwise(*operation, result);
  const Known* first = of(operation->operand(0));
  if (!first || result != 0) return std::nullopt;
  const std::optional<std::vector<std::int64_t>> places = moved(*operation, {first->of.begin(), first->of.end()});
  if (!places || !interpretAll(*operation, result, known)) return std::nullopt;
  known.of.assign(places->begin(), places->end());
  return known;
}

/// The elements of a result for both masks; all operands are known.
bool MaskValues::interpretAll(const Operation& operation, std::size_t result, Known& known) {
  for (Tensor Known::*mask : {&Known::atZero, &Known::atOne}) {
    std::vector<const Tensor*> operands;
    for (const Value* operand : operation.operands()) operands.push_back(operand ? &(of(operand)->*mask) : nullptr);
    const std::optional<Tensor> tensor = interpreted(operation, result, operands);
    if (!tensor) return false;
    known.*mask = *tensor;
  }
  return true;
}

std::optional<std::vector<std::int64_t>> MaskValues::moved(const Operation& operation,
                                                           const std::vector<std::int64_t>& first) {
  if (operation.def().kind == OpKind::view) return first;
  const bool moves = operation.def().facts.moves && operation.operands().size() == 1;
  if (!moves && !operation.def().facts.picks) return std::nullopt;
  // The same operation on integers, which say where the elements come from.
  Module module;
  Graph& graph = *module.graphs.emplace_back(std::make_unique<Graph>("moves"));
  Diagnostics ignored(nullptr);
  Builder b(module, graph, context_.registry, ignored);
  const Shape& shape = operation.operand(0)->type().shape;
  const Tensor places = Tensor::ofInts(shape, first);
  std::vector<Value*> operands = {graph.addInput(places.type(), "places")};
  std::vector<const Tensor*> tensors = {&places};
  for (std::size_t i = 1; i < operation.operands().size(); ++i) {
    const Value* operand = operation.operand(i);
    const Known* other = of(operand);
    if (operand && (!other || std::any_of(other->of.begin(), other->of.end(), [](std::int32_t at) { return at >= 0; })))
      return std::nullopt;
    operands.push_back(operand ? b.constant(other->atZero) : nullptr);
    tensors.push_back(operand ? &other->atZero : nullptr);
  }
  const Operation* same = b.create(operation.def().name, operands, operation.attributes);
  if (!same) return std::nullopt;
  const std::optional<Tensor> result = interpreted(*same, 0, tensors);
  return result ? std::optional(result->toInts()) : std::nullopt;
}

std::optional<MaskValues::Known> MaskValues::elementwise(const Operation& operation, std::size_t result) {
  const Shape& shape = operation.result(result)->type().shape;
  Known known;
  if (!interpretAll(operation, result, known)) return std::nullopt;
  known.of.assign(static_cast<std::size_t>(known.atZero.elements()), -1);
  for (const Value* operand : operation.operands()) {
    if (!operand) continue;
    const Known& from = *of(operand);
    const Shape& own = operand->type().shape;
    // Its strides along the axes of the result: 0 where it is broadcast.
    std::vector<std::int64_t> strides(shape.size(), 0);
    std::int64_t stride = 1;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const std::size_t axis = own.size() - 1 - i;
      if (own[axis] != 1) strides[shape.size() - 1 - i] = stride;
      stride *= own[axis];
    }
    std::vector<std::int64_t> at(shape.size(), 0);
    std::int64_t place = 0;
    for (std::int32_t& element : known.of) {
      const std::int32_t of = from.of[static_cast<std::size_t>(place)];
      if (of >= 0 && element >= 0 && of != element) return std::nullopt;
      element = std::max(element, of);
      for (std::size_t axis = shape.size(); axis-- > 0;) {
        place += strides[axis];
        if (++at[axis] < shape[axis]) break;
        place -= strides[axis] * shape[axis];
        at[axis] = 0;
      }
    }
  }
  return known;
}

std::optional<Tensor> MaskValues::interpreted(const Operation& operation, std::size_t result,
                                              const std::vector<const Tensor*>& operands) {
  Diagnostics ignored(nullptr);
  Expected<std::vector<Tensor>> results = interpretOperation(operation, operands, Precision::f32, ignored);
  if (!results || result >= results->size()) return std::nullopt;
  return (*results)[result];
}
