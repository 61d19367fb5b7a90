#include "Shared/CrossEntropy.h"

namespace pdc::ops {

std::vector<AttributeDef> crossEntropyAttributes() {
  return {boolean("has_ignore_index", false, "whether some positions do not count"),
          integer("ignore_index", -100, "the label of positions that do not count"),
          number("label_smoothing", 0.0, "share of the loss that all classes have in equal parts, 0 to 1")};
}

bool countsInLoss(const Operation& op, std::int64_t label) {
  return !op.attributes.get<bool>("has_ignore_index") || label != op.attributes.getInt("ignore_index");
}

Status requireLabels(const InferContext& c, const char* op, std::size_t i, const Shape& shape, const std::string& of) {
  const Type& type = c.operand(i);
  if ((type.element == ElementType::i64 || type.element == ElementType::i32) && type.shape == shape) return success;
  return c.error() << "'" << op << "' op needs labels of i64" << toString(shape) << " or i32" << toString(shape)
                   << " for " << of << ", they are " << toString(type);
}

Status requireLossOptions(const InferContext& c, const char* op, std::size_t weights, ElementType element,
                          std::int64_t classes) {
  if (const double smoothing = c.attributes.getFloat("label_smoothing"); !(smoothing >= 0 && smoothing <= 1))
    return c.error() << "'" << op << "' op has label_smoothing = " << smoothing << ", it must lie between 0 and 1";
  return has(c, weights) ? requireType(c, op, weights, {element, {classes}}, "a weight for each class") : success;
}

} // namespace pdc::ops
