#include "Raise/RaiseExperts.h"

#include "Raise/ChoiceMask.h"
#include "Raise/Match.h"

#include <algorithm>
#include <numeric>

using namespace pdc;
using namespace pdc::ops;

namespace {

using Parts = std::vector<MaskAxis>;

std::int64_t sizeOf(const Parts& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{1},
                         [](std::int64_t size, const MaskAxis& part) { return size * part.size; });
}

/// One term of a mask, by index: [groups, tokens, choices] or, without groups, [tokens, choices]. Values are null where
/// an operation was refused.
struct Choices {
  Value *experts = nullptr, *slots = nullptr;
  Value* gates = nullptr; ///< also null where all are 1
  bool fails = false;
};

/// Makes indices of the terms of a mask whose places are groups, tokens, experts and slots.
class ChoicesOf {
public:
  ChoicesOf(const Parts& groups, const Parts& tokens, const MaskAxis& experts, const MaskAxis& slots, Builder& builder)
      : rows_(groups), expert_(experts), slot_(slots), b(builder) {
    rows_.insert(rows_.end(), tokens.begin(), tokens.end());
    const std::int64_t count = sizeOf(groups);
    shape_ = count > 1 ? Shape{count, sizeOf(tokens)} : Shape{sizeOf(tokens)};
  }

  /// Whether the term depends on nothing but what indices can say.
  bool fits(const MaskTerm& term) const {
    const auto isKnown = [&](const MaskFactor& factor, bool mayAskExpert) {
      return std::all_of(factor.labels.begin(), factor.labels.end(), [&](Label label) {
        return label == noLabel || label == choiceLabel || isOfRows(label) || (mayAskExpert && label == expert_.label);
      });
    };
    const auto all = [&](const std::vector<MaskFactor>& factors) {
      return std::all_of(factors.begin(), factors.end(), [&](const MaskFactor& each) { return isKnown(each, true); });
    };
    const auto count = [&](Label label) {
      return std::count_if(term.oneHots.begin(), term.oneHots.end(),
                           [&](const OneHot& oneHot) { return oneHot.label == label; });
    };
    return term.oneHots.size() == 2 && count(expert_.label) == 1 && count(slot_.label) == 1 && all(term.conditions) &&
           all(term.gates) && isKnown(oneHotOf(term, expert_.label).index, false) &&
           isKnown(oneHotOf(term, slot_.label).index, true);
  }

  Choices of(const MaskTerm& term) {
    Choices made;
    choices_ = term.choices;
    const OneHot &expert = oneHotOf(term, expert_.label), &slot = oneHotOf(term, slot_.label);
    expertIndex_ = indexOf(expert, arranged(expert.index));
    Value* slots = indexOf(slot, arranged(slot.index));
    Value* experts = expertIndex_;
    for (const MaskFactor& condition : term.conditions)
      experts =
          compute({experts, arranged(condition)}, condition.negated ? "select(a1, -1, a0)" : "select(a1, a0, -1)");
    for (const MaskFactor& gate : term.gates)
      made.gates = made.gates ? compute({made.gates, arranged(gate)}, "a0 * a1") : arranged(gate);
    made.experts = whole(experts), made.slots = whole(slots);
    if (!term.gates.empty()) made.gates = whole(made.gates);
    made.fails = !made.experts || !made.slots || (!term.gates.empty() && !made.gates);
    return made;
  }

  Value* compute(const std::vector<Value*>& operands, const std::string& expression) {
    if (std::find(operands.begin(), operands.end(), nullptr) != operands.end()) return nullptr;
    return b.value("elementwise", operands, {{"expressions", std::vector{expression}}});
  }
  /// "[groups, tokens, choices]" of values that lie next to each other along the last axis.
  Value* joined(const std::vector<Value*>& values) {
    if (values.size() == 1) return values.front();
    return b.value("concat", values, {{"axis", std::int64_t{values.front()->type().rank() - 1}}});
  }

private:
  bool isOfRows(Label label) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const MaskAxis& row) { return row.label == label; });
  }
  static const OneHot& oneHotOf(const MaskTerm& term, Label label) {
    return *std::find_if(term.oneHots.begin(), term.oneHots.end(),
                         [&](const OneHot& oneHot) { return oneHot.label == label; });
  }

  /// The labels of rows, then the choices: the axes of what is computed.
  std::vector<Label> order() const {
    std::vector<Label> labels;
    for (const MaskAxis& row : rows_) labels.push_back(row.label);
    labels.push_back(choiceLabel);
    return labels;
  }
  Shape sizes() const {
    Shape shape;
    for (const MaskAxis& row : rows_) shape.push_back(row.size);
    shape.push_back(choices_);
    return shape;
  }
  Value* reshape(Value* value, const Shape& shape) {
    return !value || value->type().shape == shape ? value : b.value("reshape", {value}, {{"shape", shape}});
  }
  Value* broadcast(Value* value, const Shape& shape) {
    return !value || value->type().shape == shape ? value : b.value("broadcast", {value}, {{"shape", shape}});
  }
  /// [groups, tokens, choices].
  Value* whole(Value* value) {
    Shape shape = shape_;
    shape.push_back(choices_);
    return reshape(broadcast(value, sizes()), shape);
  }

  /// The factor with an axis for each label of `labels`, of size 1 where it does not depend on it.
  Value* arranged(const MaskFactor& factor, const std::vector<Label>& labels) {
    const Shape& shape = factor.value->type().shape;
    std::vector<std::int64_t> permutation;
    Shape spread;
    for (Label label : labels) {
      const auto at = std::find(factor.labels.begin(), factor.labels.end(), label);
      spread.push_back(at == factor.labels.end() ? 1 : shape[static_cast<std::size_t>(at - factor.labels.begin())]);
      if (at != factor.labels.end()) permutation.push_back(at - factor.labels.begin());
    }
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (factor.labels[i] == noLabel) permutation.push_back(static_cast<std::int64_t>(i));
    if (std::is_sorted(permutation.begin(), permutation.end()) || factor.value->type().elements() == 1)
      return reshape(factor.value, spread);
    return reshape(b.value("transpose", {factor.value}, {{"permutation", permutation}}), spread);
  }

  /// The factor at the expert that is chosen. One outside is dropped; what is read there does not matter.
  Value* arranged(const MaskFactor& factor) {
    if (std::find(factor.labels.begin(), factor.labels.end(), expert_.label) == factor.labels.end())
      return arranged(factor, order());
    std::vector<Label> labels = order();
    labels.push_back(expert_.label);
    Shape shape = sizes();
    const bool isOfChoices = std::find(factor.labels.begin(), factor.labels.end(), choiceLabel) != factor.labels.end();
    if (!isOfChoices) shape.back() = 1;
    std::vector<std::int64_t> rows(static_cast<std::size_t>(elementsOf(shape)));
    std::iota(rows.begin(), rows.end(), 0);
    const Tensor numbers = Tensor::ofInts(shape, rows);
    shape.push_back(expert_.size);
    Value* table = reshape(broadcast(arranged(factor, labels), shape), {elementsOf(shape)});
    const std::string size = std::to_string(expert_.size), last = std::to_string(expert_.size - 1);
    Value* places = compute({expertIndex_, b.constant(numbers)},
                            "a1 * " + size + " + select(a0 < 0, 0, select(a0 > " + last + ", " + last + ", a0))");
    return table && places ? b.value("gather", {table, places}) : nullptr;
  }

  /// The index as i64; -1 where it points at no place.
  Value* indexOf(const OneHot& oneHot, Value* index) {
    if (!index) return nullptr;
    const std::string size = std::to_string(oneHot.size);
    if (isFloat(index->type().element))
      index = compute({index}, (oneHot.wraps ? "select(a0 == floor(a0) && a0 >= -" + size
                                             : std::string("select(a0 == floor(a0) && a0 >= 0")) +
                                   " && a0 < " + size + ", " +
                                   (oneHot.wraps ? "select(a0 < 0, a0 + " + size + ", a0)" : "a0") + ", -1)");
    else if (oneHot.wraps)
      index = compute({index}, "select(a0 < 0, a0 + " + size + ", a0)");
    if (!index || index->type().element == ElementType::i64) return index;
    return b.value("cast", {index}, {{"to", std::string("i64")}});
  }

  Parts rows_;
  MaskAxis expert_, slot_;
  Shape shape_; ///< [groups, tokens]
  std::int64_t choices_ = 1;
  Value* expertIndex_ = nullptr;
  Builder& b;
};

/// The value without conversions and axes of size 1.
const Value* withoutViews(const Value* value) {
  const auto* view = definedBy(value, "reshape");
  if (!view) view = definedBy(value, "cast");
  return view ? withoutViews(view->operand(0)) : value;
}

/// Whether the choices of a term are the best of `best`, next to each other.
bool isLastAxis(const MaskFactor& index, const Operation& best) {
  const Shape &shape = index.value->type().shape, &all = best.result()->type().shape;
  std::size_t last = shape.size();
  while (last > 0 && index.labels[last - 1] == noLabel) --last;
  return last > 0 && index.labels[last - 1] == choiceLabel && shape[last - 1] == all.back() &&
         best.attributes.getInt("axis") == best.result()->type().rank() - 1;
}

/// Whether the expert of a term differs from those of the other terms of a token, and from those of its other choices:
/// they are different ones of the best.
bool areOfOneTopK(const ChoiceMask& mask, Label expert) {
  if (mask.terms.size() == 1 && mask.terms.front().choices == 1) return true;
  const Operation* best = nullptr;
  std::vector<std::optional<double>> places;
  for (const MaskTerm& term : mask.terms)
    for (const OneHot& oneHot : term.oneHots) {
      if (oneHot.label != expert) continue;
      const Value* index = withoutViews(oneHot.index.value);
      const Operation* picked = definedBy(index, "gather");
      const Operation* found = definedBy(picked ? withoutViews(picked->operand(0)) : index, "top_k");
      if (!found || (best && found != best)) return false;
      best = found;
      if (!picked && mask.terms.size() > 1) return false;
      if (!picked) return isLastAxis(oneHot.index, *found);
      if (term.choices > 1 || picked->attributes.getInt("axis") != found->attributes.getInt("axis") ||
          picked->operand(0)->type().shape != found->result()->type().shape)
        return false;
      const std::optional<double> place = numberOf(picked->operand(1));
      if (!place || std::find(places.begin(), places.end(), place) != places.end()) return false;
      places.push_back(place);
    }
  return true;
}

/// The product of a mask and rows: which operand is the mask, and how it lies.
class MaskProduct {
public:
  MaskProduct(const Operation& root, Builder& builder) : root_(root), b(builder) {}

  Value* run(std::size_t maskOperand) {
    const Type& rows = root_.operand(1 - maskOperand)->type();
    if (root_.result()->type().element != ElementType::f32 || !mayBeMask(root_.operand(maskOperand))) return nullptr;
    ChoiceMask mask = MaskReader(b).read(root_.operand(maskOperand));
    const std::size_t rank = mask.axes.size();
    if (rank < 2 || rows.shape.size() > rank) return nullptr;
    // As a left operand, [batch, results, sums].
    const bool isLeft = maskOperand == 0;
    const bool isTransposed = root_.attributes.get<bool>(isLeft ? "transpose_a" : "transpose_b") == isLeft;
    if (isTransposed) std::swap(mask.axes[rank - 1], mask.axes[rank - 2]);
    Parts groups;
    for (std::size_t i = 0; i + 2 < rank; ++i) groups.insert(groups.end(), mask.axes[i].begin(), mask.axes[i].end());
    if (rows.shape.size() < rank && sizeOf(groups) > 1) return nullptr;
    const Parts &results = mask.axes[rank - 2], &sums = mask.axes[rank - 1];
    return make(mask, groups, results, sums, isLeft);
  }

private:
  /// What is far from any mask is not looked at: it depends on a parameter directly.
  static bool mayBeMask(const Value* value) { return value->definer() && !value->parameter(); }

  Value* make(const ChoiceMask& mask, const Parts& groups, const Parts& results, const Parts& sums, bool isLeft) {
    const auto choosesIn = [&](const Parts& parts) {
      return parts.size() == 2 && std::all_of(mask.terms.begin(), mask.terms.end(), [&](const MaskTerm& term) {
               return std::all_of(term.oneHots.begin(), term.oneHots.end(), [&](const OneHot& oneHot) {
                 return oneHot.label == parts[0].label || oneHot.label == parts[1].label;
               });
             });
    };
    const bool dispatches = choosesIn(results);
    if ((!dispatches && !choosesIn(sums)) || mask.terms.empty()) return nullptr;
    const Parts &slots = dispatches ? results : sums, &tokens = dispatches ? sums : results;
    if (tokens.empty()) return nullptr;
    ChoicesOf choices(groups, tokens, slots[0], slots[1], b);
    for (const MaskTerm& term : mask.terms)
      if (!choices.fits(term)) return nullptr;
    // Where a mask is compared with 0, terms that share a place count once; elsewhere one sum of them is rounded.
    areApart_ = areOfOneTopK(mask, slots[0].label);
    if (mask.kind != MaskKind::sum && !areApart_ && !canComparePairs(mask)) return nullptr;
    std::vector<Value*> operands = chosen(mask, choices);
    if (operands.empty()) return nullptr;
    const std::int64_t ofGroups = sizeOf(groups);
    Value* rows = rowsOf(isLeft);
    if (!rows) return nullptr;
    const std::int64_t size = rows->type().shape.back();
    Shape shape = ofGroups > 1 ? Shape{ofGroups} : Shape{};
    const Shape inSlots = {slots[0].size, slots[1].size, size};
    if (dispatches)
      shape.insert(shape.end(), {sizeOf(tokens), size});
    else
      shape.insert(shape.end(), inSlots.begin(), inSlots.end());
    operands.insert(operands.begin(), reshape(rows, shape));
    Attributes attributes;
    if (dispatches) attributes = {{"experts", slots[0].size}, {"capacity", slots[1].size}};
    return result(b.value(dispatches ? "dispatch" : "combine", operands, attributes), isLeft);
  }

  /// Experts, slots and gates of all terms; empty where that failed.
  std::vector<Value*> chosen(const ChoiceMask& mask, ChoicesOf& choices) {
    std::vector<Choices> all;
    for (const MaskTerm& term : mask.terms) {
      all.push_back(choices.of(term));
      if (all.back().fails) return {};
    }
    const bool isSum = mask.kind == MaskKind::sum;
    const bool hasGates = isSum && std::any_of(all.begin(), all.end(), [](const Choices& c) { return c.gates; });
    const bool comparesPairs = !areApart_ && (hasGates || !isSum) && canComparePairs(mask);
    std::vector<Value*> experts, slots, gates;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Choices& each = all[i];
      const Place place = comparesPairs || !isSum ? placeOf(all, i, comparesPairs) : Place{};
      std::string condition = isSum ? "" : place.sum + (mask.kind == MaskKind::positive ? " > 0" : " != 0");
      condition += (condition.empty() || place.isFirst.empty() ? "" : " && ") + place.isFirst;
      experts.push_back(condition.empty() ? each.experts
                                          : choices.compute(place.operands, "select(" + condition + ", a0, -1)"));
      slots.push_back(each.slots);
      gates.push_back(hasGates && comparesPairs ? choices.compute(place.operands, place.sum) : each.gates);
      if (hasGates && !gates.back())
        gates.back() = b.value("broadcast", {b.constant(1.0)}, {{"shape", each.experts->type().shape}});
    }
    if (std::find(experts.begin(), experts.end(), nullptr) != experts.end() ||
        (hasGates && std::find(gates.begin(), gates.end(), nullptr) != gates.end()))
      return {};
    std::vector<Value*> operands = {choices.joined(experts), choices.joined(slots)};
    if (hasGates) operands.push_back(choices.joined(gates));
    return std::find(operands.begin(), operands.end(), nullptr) == operands.end() ? operands : std::vector<Value*>();
  }

  /// What is at the place of a term: expressions of operands, of which the first one is the term's experts.
  struct Place {
    std::vector<Value*> operands;
    std::string sum, isFirst; ///< of the gates of all terms there; whether none of those before is there
  };
  static Place placeOf(const std::vector<Choices>& all, std::size_t i, bool ofAll) {
    Place place{.operands = {all[i].experts}, .sum = {}, .isFirst = {}};
    const auto name = [&](Value* value) {
      place.operands.push_back(value);
      return "a" + std::to_string(place.operands.size() - 1);
    };
    const std::string slot = ofAll ? name(all[i].slots) : "";
    for (std::size_t j = ofAll ? 0 : i; j < (ofAll ? all.size() : i + 1); ++j) {
      const std::string gate = all[j].gates ? name(all[j].gates) : "1", plus = place.sum.empty() ? "" : " + ";
      if (j == i) {
        place.sum += plus + gate;
        continue;
      }
      const std::string isThere = name(all[j].experts) + " == a0 && " + name(all[j].slots) + " == " + slot;
      place.sum += plus + "select(" + isThere + ", " + gate + ", 0)";
      if (j < i) place.isFirst += std::string(place.isFirst.empty() ? "" : " && ") + "!(" + isThere + ")";
    }
    return place;
  }

  static bool canComparePairs(const ChoiceMask& mask) {
    return mask.terms.size() <= 4 &&
           std::all_of(mask.terms.begin(), mask.terms.end(), [](const MaskTerm& term) { return term.choices == 1; });
  }

  Value* reshape(Value* value, const Shape& shape) {
    return value && value->type().shape != shape ? b.value("reshape", {value}, {{"shape", shape}}) : value;
  }
  Value* withLastTwoSwapped(Value* value) {
    std::vector<std::int64_t> permutation(value->type().shape.size());
    std::iota(permutation.begin(), permutation.end(), 0);
    std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
    return b.value("transpose", {value}, {{"permutation", permutation}});
  }
  /// The other operand, [batch, sums, size].
  Value* rowsOf(bool maskIsLeft) {
    Value* rows = root_.operand(maskIsLeft ? 1 : 0);
    const bool lies = root_.attributes.get<bool>(maskIsLeft ? "transpose_b" : "transpose_a") != maskIsLeft;
    return lies ? rows : withLastTwoSwapped(rows);
  }
  /// What was made, [batch, results, size], as the product's result.
  Value* result(Value* made, bool maskIsLeft) {
    Shape shape = root_.result()->type().shape;
    if (maskIsLeft) return reshape(made, shape);
    std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
    Value* rows = reshape(made, shape);
    return rows ? withLastTwoSwapped(rows) : nullptr;
  }

  const Operation& root_;
  Builder& b;
  bool areApart_ = false; ///< no two terms share a place
};

} // namespace

Value* pdc::ops::raiseExperts(Operation& root, Builder& b) {
  if (root.def().name != "matmul") return nullptr;
  if (Value* left = MaskProduct(root, b).run(0)) return left;
  return MaskProduct(root, b).run(1);
}
