#include "Shared/LossOverTeam.h"

#include "Shared/Define.h"

namespace pdc::ops {

namespace {

/// Builds values until one is refused; then all are null.
class Steps {
public:
  Steps(const Operation& op, ElementType element, std::int64_t members, Builder& b)
      : op_(op), element_(element), team_{{"members", members}}, b_(b) {}

  Value* value(const char* name, const std::vector<Value*>& operands, Attributes attributes = {}) {
    for (const Value* operand : operands)
      if (!operand) return nullptr;
    return b_.value(name, operands, std::move(attributes));
  }
  Value* number(double value, ElementType element) { return b_.constant(value, element); }
  Value* sumOfTeam(Value* own) { return value("all_reduce", {own}, team_); }

  /// The sum of the weights of the positions that count.
  Value* weightOf(Value* labels, Value* weights) {
    const ElementType integers = labels->type().element;
    const auto none = [&] { return number(0, element_); };
    Value* counts = nullptr;
    if (op_.attributes.get<bool>("has_ignore_index"))
      counts =
          value("not_equal", {labels, number(static_cast<double>(op_.attributes.getInt("ignore_index")), integers)});
    Value* each = number(1, element_);
    if (weights) {
      Value* known = counts ? value("where", {counts, labels, number(0, integers)}) : labels;
      each = value("gather", {weights, known});
    }
    if (!counts && !weights) return number(static_cast<double>(labels->type().elements()), element_);
    if (counts) each = value("where", {counts, each, none()});
    std::vector<std::int64_t> axes;
    for (int axis = 0; axis < labels->type().rank(); ++axis) axes.push_back(axis);
    return value("reduce_sum", {each}, {{"axes", axes}, {"keep_dims", false}});
  }
  /// total / weight; where no position counts, the total is 0, and so is the mean.
  Value* mean(Value* total, Value* weight) {
    Value* isNone = value("equal", {weight, number(0, element_)});
    return value("div", {total, value("where", {isNone, number(1, element_), weight})});
  }

private:
  const Operation& op_;
  ElementType element_;
  Attributes team_;
  Builder& b_;
};

} // namespace

Value* lossOfTeam(const Operation& op, Value* loss, Value* labels, Value* weights, std::int64_t members, Builder& b) {
  Steps s(op, loss->type().element, members, b);
  Value* own = s.weightOf(labels, weights);
  // Both numbers in one message.
  const Attributes pair = {{"shape", Shape{1}}};
  Value* both =
      s.value("concat", {s.value("reshape", {s.value("mul", {loss, own})}, pair), s.value("reshape", {own}, pair)},
              {{"axis", 0}});
  both = s.sumOfTeam(both);
  const auto numberAt = [&](std::int64_t i) {
    Value* one = s.value("slice", {both}, {{"starts", Shape{i}}, {"sizes", Shape{1}}, {"steps", Shape{1}}});
    return s.value("reshape", {one}, {{"shape", Shape{}}});
  };
  return s.mean(numberAt(0), numberAt(1));
}

Value* gradientOfMember(const Operation& op, Value* dloss, Value* labels, Value* weights, std::int64_t members,
                        Builder& b) {
  Steps s(op, dloss->type().element, members, b);
  if (!weights && !op.attributes.get<bool>("has_ignore_index"))
    return s.value("div", {dloss, s.number(static_cast<double>(members), dloss->type().element)});
  Value* own = s.weightOf(labels, weights);
  return s.mean(s.value("mul", {dloss, own}), s.sumOfTeam(own));
}

} // namespace pdc::ops
