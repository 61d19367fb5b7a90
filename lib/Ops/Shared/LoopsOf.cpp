#include "Shared/LoopsOf.h"

#include <algorithm>

namespace pdc::ops {

namespace {

/// The axis of a place, counted from the front; nothing where the value has no part in the index.
std::optional<int> axisIn(const Value* value, const Place& place) {
  if (!value) return std::nullopt;
  const Shape& shape = value->type().shape;
  const int axis = place.axis < 0 ? place.axis + static_cast<int>(shape.size()) : place.axis;
  if (axis < 0 || shape[static_cast<std::size_t>(axis)] == 1) return std::nullopt;
  return axis;
}

} // namespace

void addIndex(Loops& loops, const Operation& op, const Index& index) {
  if (index.size < 2) return;
  const int number = loops.index(index.size, index.mayPad, index.inOneBlock);
  for (const Place& place : index.operands)
    if (place.i < op.operands().size())
      if (const std::optional<int> axis = axisIn(op.operand(place.i), place))
        loops.operand(place.i, *axis, number, place.blocks);
  for (const Place& place : index.results)
    if (place.i < op.results().size())
      if (const std::optional<int> axis = axisIn(op.result(place.i), place))
        loops.result(place.i, *axis, number, place.blocks);
  for (std::size_t result : index.reduced)
    if (result < op.results().size()) loops.reduce(result, number, index.combine);
}

void addAxes(Loops& loops, const Operation& op, const Axes& axes) {
  const Shape& shape =
      (axes.operands.empty() ? op.result(axes.results.front()) : op.operand(axes.operands.front()))->type().shape;
  const int rank = static_cast<int>(shape.size()), end = std::min(axes.end < 0 ? axes.end + rank : axes.end, rank);
  const auto placesIn = [](const std::vector<std::size_t>& values, int axis) {
    std::vector<Place> places;
    for (std::size_t i : values) places.push_back({i, axis});
    return places;
  };
  for (int axis = axes.begin; axis < end; ++axis)
    addIndex(loops, op,
             {.size = shape[static_cast<std::size_t>(axis)],
              .operands = placesIn(axes.operands, axis),
              .results = placesIn(axes.results, axis),
              .reduced = axes.reduced});
}

std::function<Loops(const Operation&)> alongAxes(Axes axes) {
  return [axes = std::move(axes)](const Operation& op) {
    Loops loops(op);
    addAxes(loops, op, axes);
    return loops;
  };
}

Loops loopsBesideAxis(const Operation& op) {
  Loops loops(op);
  const int axis = static_cast<int>(op.attributes.getInt("axis"));
  addAxes(loops, op, {.end = axis, .operands = {0}, .results = {0}});
  addAxes(loops, op, {.begin = axis + 1, .operands = {0}, .results = {0}});
  return loops;
}

std::vector<Value*> sameWith(const Operation& op, const Loops& loops, const Division& division,
                             const std::vector<Value*>& operands,
                             const std::vector<std::pair<std::string, Attribute>>& changed, Builder& b) {
  Attributes attributes = op.attributes;
  for (const AttributeDef& def : op.def().attributes) {
    if (def.shapeOfResult < 0) continue;
    const auto i = static_cast<std::size_t>(def.shapeOfResult);
    attributes.set(def.name, partOf(op.result(i)->type(), formOfResult(loops, i, division), division.parts).shape);
  }
  for (const auto& [name, value] : changed) attributes.set(name, value);
  std::vector<bool> wanted;
  for (const Value* result : op.results()) wanted.push_back(result);
  const Operation* made = b.create(op.def().name, operands, attributes, wanted);
  return made ? made->results() : std::vector<Value*>();
}

} // namespace pdc::ops
