#include "Raise/RaiseChosenWeights.h"

#include "Raise/Match.h"

#include <numeric>

using namespace pdc;
using namespace pdc::ops;

namespace {

/// The value without reshapes.
Value* withoutReshapes(Value* value) {
  while (const Operation* reshaped = definedBy(value, "reshape")) value = reshaped->operand(0);
  return value;
}

/// Rows [count, inputs] and the matrices [experts, …] from which `index` chooses one for each.
class ChosenWeights {
public:
  ChosenWeights(const Operation& root, Builder& builder) : root_(root), b(builder) {}

  Value* run(std::size_t weights) {
    const Shape& shape = root_.result()->type().shape;
    Value* const selected = root_.operand(weights);
    Value* const rows = root_.operand(1 - weights);
    if (shape.size() != 3 || selected->type().rank() != 3 || rows->type().rank() != 3) return nullptr;
    if (root_.result()->type().element != ElementType::f32 || shape[weights == 0 ? 2 : 1] != 1) return nullptr;
    if (!findTable(selected)) return nullptr;
    const Shape& matrix = selected->type().shape; // [count, …, …]
    count_ = shape[0];
    const bool isTransposed = root_.attributes.get<bool>(weights == 0 ? "transpose_a" : "transpose_b");
    // As [inputs, outputs] on the right, or transposed there.
    const bool outputsFirst = (weights == 0) != isTransposed;
    const std::int64_t outputs = matrix[outputsFirst ? 1 : 2], inputs = matrix[outputsFirst ? 2 : 1];
    findCapacity();
    if (experts_ < 2 || experts_ * capacity_ * (inputs + outputs) > count_ * inputs * outputs) return nullptr;
    return make(rows, {experts_, matrix[1], matrix[2]}, inputs, outputsFirst);
  }

private:
  /// What is gathered along axis 0, one matrix for each row, for this product only.
  bool findTable(Value* selected) {
    const Operation* picked = definedBy(withoutReshapes(selected), "gather");
    if (!picked || picked->attributes.getInt("axis") != 0 || picked->attributes.getInt("rows") != 0) return false;
    for (Value* value = selected;; value = value->definer()->operand(0)) {
      if (!hasOneUse(b.graph(), value)) return false;
      if (value == picked->result()) break;
    }
    table_ = picked->operand(0), index_ = picked->operand(1);
    experts_ = table_->type().shape[0];
    return index_->type().elements() == selected->type().shape[0] &&
           table_->type().elements() == experts_ * selected->type().shape[1] * selected->type().shape[2];
  }

  /// How many rows may choose one expert: all, or one of those next to each other that differ.
  void findCapacity() {
    capacity_ = count_;
    Value* index = withoutReshapes(index_);
    const Operation* wrapped = index->definer();
    const std::string n = std::to_string(experts_);
    if (const Operation* computed = definedBy(index, "elementwise"))
      if (computed->operands().size() == 1 &&
          computed->attributes.get<std::vector<std::string>>("expressions").front() ==
              "select(a0 < -" + n + " || a0 >= " + n + ", " + n + ", select(a0 < 0, a0 + " + n + ", a0) * 1)")
        index = withoutReshapes(wrapped->operand(0));
    const Operation* best = definedBy(index, "top_k");
    if (best && best->attributes.getInt("axis") == index->type().rank() - 1)
      capacity_ = count_ / index->type().shape.back();
  }

  Value* make(Value* rows, const Shape& matrices, std::int64_t inputs, bool outputsFirst) {
    const std::string n = std::to_string(experts_);
    Value* choice = compute({reshape(index_, {count_, 1})}, "select(a0 < 0, a0 + " + n + ", a0)");
    if (choice && choice->type().element != ElementType::i64)
      choice = b.value("cast", {choice}, {{"to", std::string("i64")}});
    Value* slot = slotsOf(choice);
    Value* x = reshape(rows, {count_, inputs});
    Value* weights = reshape(table_, matrices);
    if (!choice || !slot || !x || !weights) return nullptr;
    Value* moved = b.value("dispatch", {x, choice, slot}, {{"experts", experts_}, {"capacity", capacity_}});
    Value* product = moved ? b.value("matmul", {moved, weights}, {{"transpose_b", outputsFirst}}) : nullptr;
    Value* back = product ? b.value("combine", {product, choice, slot}) : nullptr;
    return reshape(back, root_.result()->type().shape);
  }

  /// The number of each row among those that choose the same expert.
  Value* slotsOf(Value* choice) {
    const auto numbers = [&](std::int64_t size, const Shape& shape) {
      std::vector<std::int64_t> values(static_cast<std::size_t>(size));
      std::iota(values.begin(), values.end(), 0);
      return b.constant(Tensor::ofInts(shape, values));
    };
    Value* is = choice ? b.value("equal", {choice, numbers(experts_, {1, experts_})}) : nullptr;
    Value* ones = is ? b.value("cast", {is}, {{"to", std::string("i64")}}) : nullptr;
    Value* sums = ones ? b.value("cumsum", {ones}, {{"axis", std::int64_t{0}}}) : nullptr;
    const std::string n = std::to_string(experts_), last = std::to_string(experts_ - 1);
    Value* places = compute({choice, numbers(count_, {count_, 1})},
                            "a1 * " + n + " + select(a0 < 0, 0, select(a0 > " + last + ", " + last + ", a0))");
    Value* flat = reshape(sums, {count_ * experts_});
    Value* number = flat && places ? b.value("gather", {flat, places}) : nullptr;
    return compute({number}, "a0 - 1");
  }

  Value* compute(const std::vector<Value*>& operands, const std::string& expression) {
    for (const Value* operand : operands)
      if (!operand) return nullptr;
    return b.value("elementwise", operands, {{"expressions", std::vector{expression}}});
  }
  Value* reshape(Value* value, const Shape& shape) {
    return value && value->type().shape != shape ? b.value("reshape", {value}, {{"shape", shape}}) : value;
  }

  const Operation& root_;
  Builder& b;
  Value *table_ = nullptr, *index_ = nullptr;
  std::int64_t experts_ = 0, count_ = 0, capacity_ = 0;
};

} // namespace

Value* pdc::ops::raiseChosenWeights(Operation& root, Builder& b) {
  if (root.def().name != "matmul") return nullptr;
  if (Value* left = ChosenWeights(root, b).run(0)) return left;
  return ChosenWeights(root, b).run(1);
}
