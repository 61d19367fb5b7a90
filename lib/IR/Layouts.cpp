// Which layouts an operation takes.
#include "pdc/IR/Layouts.h"

#include <algorithm>

using namespace pdc;

/// `shape` with dimensions of 1 in front, as broadcasting sees it.
static Shape ofRankFour(const Shape& shape) {
  Shape four(4 - shape.size(), 1);
  four.insert(four.end(), shape.begin(), shape.end());
  return four;
}

/// Whether an operand of this shape, row-major, can be indexed along with one that has its channels in blocks.
static bool fitsBesideBlocks(const Shape& shape) {
  if (shape.size() > 4) return false;
  const Shape s = ofRankFour(shape);
  return s[1] == 1 || (s[2] == 1 && s[3] == 1 && s[1] % channelBlock == 0);
}

static ChannelBlocks ofElementwise(const Operation& op) {
  ChannelBlocks blocks;
  for (const auto* list : {&op.operands(), &op.results()})
    for (const Value* value : *list) {
      if (!value) continue;
      if (value->type().rank() == 4 && !fitsBesideBlocks(value->type().shape))
        blocks.values.push_back(value);
      else if (!fitsBesideBlocks(value->type().shape))
        return {};
    }
  return blocks;
}

ChannelBlocks pdc::channelBlocksOf(const Operation& op) {
  const OpDef& def = op.def();
  if (def.kernel.channelBlocks) return def.kernel.channelBlocks(op);
  if (def.kind == OpKind::elementwise) return ofElementwise(op);
  if (def.kind == OpKind::view && op.operand(0)->type().shape == op.result()->type().shape)
    return {.values = {op.operand(0), op.result()}};
  return {};
}

std::vector<const Value*> pdc::filterBlocksOf(const Operation& op) {
  return op.def().kernel.filterBlocks ? op.def().kernel.filterBlocks(op) : std::vector<const Value*>{};
}

Shape pdc::memoryShape(const Type& operand, const Type& result) {
  if (operand.shape == result.shape) return memoryShape(result);
  if (result.layout == plain) return operand.shape;
  const Shape s = ofRankFour(operand.shape);
  if (s[1] == 1) return {s[0], 1, s[2], s[3], 1};
  const std::int64_t lanes = lanesOf(result);
  return {s[0], s[1] / lanes, s[2], s[3], lanes};
}

Status pdc::checkLayouts(const Operation& op, Diagnostics& diags) {
  const auto inBlocks = [](const Value* value) { return value && value->type().layout != plain; };
  const auto& operands = op.operands();
  const auto& results = op.results();
  if (std::none_of(operands.begin(), operands.end(), inBlocks) &&
      std::none_of(results.begin(), results.end(), inBlocks))
    return success;
  // Elements in the same order everywhere: that of filters, too (a gradient that is copied).
  const auto isAlike = [&](const Value* value) { return value && value->type() == results[0]->type(); };
  if (op.def().kind == OpKind::elementwise && std::all_of(operands.begin(), operands.end(), isAlike) &&
      std::all_of(results.begin(), results.end(), isAlike))
    return success;
  const ChannelBlocks blocks = channelBlocksOf(op);
  const std::vector<const Value*> filters = filterBlocksOf(op);
  const auto known = [&](const Value* value) {
    const auto& taken = value->type().layout == filterInBlocks ? filters : blocks.values;
    return std::find(taken.begin(), taken.end(), value) != taken.end();
  };
  for (const auto* list : {&operands, &results})
    for (const Value* value : *list)
      if (inBlocks(value) && !known(value))
        return diags.error(op.location) << "'" << op.def().name << "' op does not take '%" << value->name() << "' as "
                                        << toString(value->type());
  if (blocks.apart) return success;
  for (const Value* value : blocks.values)
    if (!inBlocks(value) && !isInEitherLayout(value->type()))
      return diags.error(op.location) << "'" << op.def().name << "' op takes blocks of channels for all operands or "
                                      << "none, '%" << value->name() << "' is " << toString(value->type());
  return success;
}
