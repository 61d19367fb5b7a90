#include "Raise/ChoiceMask.h"

#include "Raise/Match.h"
#include "Raise/MatchExpression.h"

#include <algorithm>
#include <numeric>

using namespace pdc;
using namespace pdc::ops;

namespace {

using MaskAxes = std::vector<std::vector<MaskAxis>>;
constexpr std::size_t mostTerms = 16;

void rename(MaskFactor& factor, const std::map<Label, Label>& names) {
  for (Label& label : factor.labels)
    if (const auto name = names.find(label); name != names.end()) label = name->second;
}

void rename(MaskTerm& term, const std::map<Label, Label>& names) {
  for (MaskFactor& factor : term.gates) rename(factor, names);
  for (MaskFactor& factor : term.conditions) rename(factor, names);
  for (OneHot& oneHot : term.oneHots) {
    rename(oneHot.index, names);
    if (const auto name = names.find(oneHot.label); name != names.end()) oneHot.label = name->second;
  }
}

bool isChoosing(const ChoiceMask& mask) {
  return !mask.terms.empty() &&
         std::all_of(mask.terms.begin(), mask.terms.end(), [](const MaskTerm& term) { return !term.oneHots.empty(); });
}

bool hasGates(const ChoiceMask& mask) {
  return std::any_of(mask.terms.begin(), mask.terms.end(), [](const MaskTerm& term) { return !term.gates.empty(); });
}

bool dependsOn(const MaskFactor& factor, Label label) {
  return std::find(factor.labels.begin(), factor.labels.end(), label) != factor.labels.end();
}

/// Calls visit(factor) for all numbers, conditions and indices of a term.
template <class Visit>
void forEachFactor(MaskTerm& term, Visit visit) {
  for (MaskFactor& factor : term.gates) visit(factor);
  for (MaskFactor& factor : term.conditions) visit(factor);
  for (OneHot& oneHot : term.oneHots) visit(oneHot.index);
}

/// Whether `value` is 0, 1, 2, … along one axis and has one element along all others; that axis.
std::optional<std::size_t> axisOfPlaces(Value* value, Builder& b) {
  const Shape& shape = value->type().shape;
  std::optional<std::size_t> axis;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (axis) return std::nullopt;
    axis = i;
  }
  const std::optional<Tensor> places = axis ? b.evaluated(value) : std::nullopt;
  if (!places) return std::nullopt;
  for (std::int64_t i = 0; i < places->elements(); ++i)
    if (places->asDouble(i) != static_cast<double>(i)) return std::nullopt;
  return axis;
}

std::vector<std::int64_t> countedFromFront(std::vector<std::int64_t> axes, int rank) {
  for (std::int64_t& axis : axes)
    if (axis < 0) axis += rank;
  return axes;
}

} // namespace

std::optional<double> pdc::ops::splatOf(Value* value, Builder& b) {
  for (const Operation* definer = value->definer(); definer; definer = value->definer()) {
    if (definer->def().name != "broadcast" && definer->def().name != "reshape") break;
    value = definer->operand(0);
  }
  if (const std::optional<double> number = numberOf(value)) return number;
  constexpr std::int64_t most = 1 << 16;
  const std::optional<Tensor> tensor =
      value->type().elements() <= most && value->type().elements() > 0 ? b.evaluated(value) : std::nullopt;
  if (!tensor) return std::nullopt;
  for (std::int64_t i = 1; i < tensor->elements(); ++i)
    if (tensor->asDouble(i) != tensor->asDouble(0)) return std::nullopt;
  return tensor->asDouble(0);
}

ChoiceMask MaskReader::itself(Value* value) {
  ChoiceMask mask;
  MaskFactor factor{.value = value, .labels = {}};
  for (std::int64_t size : value->type().shape) {
    const Label label = size == 1 ? noLabel : next_++;
    factor.labels.push_back(label);
    mask.axes.emplace_back();
    if (size != 1) mask.axes.back().push_back({label, size});
  }
  MaskTerm term;
  if (value->type().element == ElementType::boolean)
    term.conditions.push_back(std::move(factor));
  else if (numberOf(value) != 1)
    term.gates.push_back(std::move(factor));
  mask.terms.push_back(std::move(term));
  return mask;
}

ChoiceMask MaskReader::withFreshLabels(ChoiceMask mask) {
  std::map<Label, Label> names;
  for (std::vector<MaskAxis>& axis : mask.axes)
    for (MaskAxis& part : axis) part.label = names[part.label] = next_++;
  for (MaskTerm& term : mask.terms) rename(term, names);
  return mask;
}

ChoiceMask MaskReader::read(Value* value) {
  if (const auto found = known_.find(value); found != known_.end()) return withFreshLabels(found->second);
  const Operation* definer = value->definer();
  std::optional<ChoiceMask> mask;
  if (definer && definer->results().size() == 1 && left_-- > 0) mask = readOperation(*definer);
  // Numbers are kept as they are: what they are made of is of no use.
  const bool isNumber =
      mask && !isChoosing(*mask) &&
      std::all_of(mask->terms.begin(), mask->terms.end(), [](const MaskTerm& term) { return term.conditions.empty(); });
  if (!mask || isNumber || mask->terms.size() > mostTerms) mask = itself(value);
  known_[value] = *mask;
  return *mask;
}

std::optional<ChoiceMask> MaskReader::readOperation(const Operation& op) {
  const std::string& name = op.def().name; // pdc: what a pattern is made of
  if (name == "mul" || name == "and") return elementwiseProduct(op, op.operand(0), op.operand(1));
  if (name == "add") return sum(op);
  if (name == "matmul") return matrixProduct(op);
  if (name == "where") return choice(op);
  if (name == "cast") return cast(op);
  if (name == "reshape") return reshaped(op);
  if (name == "transpose") return transposed(op);
  if (name == "broadcast") return broadcast(op);
  if (name == "reduce_sum") return summed(op);
  if (name == "gather") return selected(op);
  return comparison(op);
}

bool MaskReader::split(ChoiceMask& mask, Label label, std::int64_t slow, std::int64_t fast) {
  const Label ofSlow = next_++, ofFast = next_++;
  bool isDone = true;
  for (MaskTerm& term : mask.terms) {
    for (const OneHot& oneHot : term.oneHots) isDone = isDone && oneHot.label != label;
    forEachFactor(term, [&](MaskFactor& factor) {
      const auto at = std::find(factor.labels.begin(), factor.labels.end(), label);
      if (!isDone || at == factor.labels.end()) return;
      Shape shape = factor.value->type().shape;
      const auto axis = at - factor.labels.begin();
      shape[static_cast<std::size_t>(axis)] = slow;
      shape.insert(shape.begin() + axis + 1, fast);
      *at = ofSlow;
      factor.labels.insert(factor.labels.begin() + axis + 1, ofFast);
      factor.value = b.value("reshape", {factor.value}, {{"shape", shape}});
      isDone = factor.value;
    });
  }
  for (std::vector<MaskAxis>& axis : mask.axes)
    for (std::size_t i = 0; i < axis.size(); ++i) {
      if (axis[i].label != label) continue;
      axis[i] = {ofSlow, slow};
      axis.insert(axis.begin() + static_cast<std::ptrdiff_t>(++i), {ofFast, fast});
    }
  return isDone;
}

bool MaskReader::refine(ChoiceMask& x, std::size_t axisOfX, ChoiceMask& y, std::size_t axisOfY) {
  for (std::size_t i = 0; i < std::max(x.axes[axisOfX].size(), y.axes[axisOfY].size()); ++i) {
    if (i >= x.axes[axisOfX].size() || i >= y.axes[axisOfY].size()) return false;
    const MaskAxis ofX = x.axes[axisOfX][i], ofY = y.axes[axisOfY][i];
    if (ofX.size == ofY.size) continue;
    const bool isOfX = ofX.size > ofY.size;
    const std::int64_t large = std::max(ofX.size, ofY.size), small = std::min(ofX.size, ofY.size);
    if (large % small != 0 || !split(isOfX ? x : y, isOfX ? ofX.label : ofY.label, small, large / small)) return false;
  }
  return true;
}

std::optional<MaskAxes> MaskReader::unified(ChoiceMask& x, ChoiceMask& y, std::size_t rank) {
  MaskAxes axes(rank);
  std::map<Label, Label> names;
  for (std::size_t i = 0; i < rank; ++i) { // from the last axis
    const std::size_t atX = x.axes.size() - 1 - i, atY = y.axes.size() - 1 - i;
    const bool isInX = i < x.axes.size() && !x.axes[atX].empty(), isInY = i < y.axes.size() && !y.axes[atY].empty();
    if (isInX && isInY && !refine(x, atX, y, atY)) return std::nullopt;
    if (isInX || isInY) axes[rank - 1 - i] = isInX ? x.axes[atX] : y.axes[atY];
    for (std::size_t part = 0; isInX && isInY && part < x.axes[atX].size(); ++part)
      names[y.axes[atY][part].label] = x.axes[atX][part].label;
  }
  for (MaskTerm& term : y.terms) rename(term, names);
  return axes;
}

std::optional<ChoiceMask> MaskReader::product(ChoiceMask x, ChoiceMask y, MaskAxes axes) {
  if (x.terms.size() != 1 && y.terms.size() != 1) return std::nullopt;
  if (x.kind != MaskKind::sum && y.kind != MaskKind::sum) return std::nullopt;
  ChoiceMask made{.axes = std::move(axes), .terms = {}, .kind = x.kind == MaskKind::sum ? y.kind : x.kind};
  for (const MaskTerm& left : x.terms)
    for (const MaskTerm& right : y.terms) {
      // Numbers are multiplied in the order of the list, and a term is summed over one axis at most.
      if (!left.gates.empty() && right.gates.size() > 1) return std::nullopt;
      if (left.choices > 1 && right.choices > 1) return std::nullopt;
      MaskTerm term = left;
      term.choices = std::max(left.choices, right.choices);
      term.oneHots.insert(term.oneHots.end(), right.oneHots.begin(), right.oneHots.end());
      term.conditions.insert(term.conditions.end(), right.conditions.begin(), right.conditions.end());
      term.gates.insert(term.gates.end(), right.gates.begin(), right.gates.end());
      made.terms.push_back(std::move(term));
    }
  // What is compared with 0 has numbers of its own.
  const ChoiceMask& other = x.kind == MaskKind::sum ? x : y;
  if (made.kind != MaskKind::sum && hasGates(other)) return std::nullopt;
  return made;
}

std::optional<ChoiceMask> MaskReader::elementwiseProduct(const Operation& op, Value* x, Value* y) {
  ChoiceMask left = read(x), right = read(y);
  const std::optional<MaskAxes> axes = unified(left, right, op.result()->type().shape.size());
  return axes ? product(std::move(left), std::move(right), *axes) : std::nullopt;
}

std::optional<ChoiceMask> MaskReader::sum(const Operation& op) {
  for (auto [x, zero] : bothOrders(op))
    if (x->type() == op.result()->type() && splatOf(zero, b) == 0) return read(x);
  ChoiceMask x = read(op.operand(0));
  if (!isChoosing(x) || x.kind != MaskKind::sum) return std::nullopt;
  ChoiceMask y = read(op.operand(1));
  if (!isChoosing(y) || y.kind != MaskKind::sum || op.operand(0)->type().shape != op.operand(1)->type().shape)
    return std::nullopt;
  std::optional<MaskAxes> axes = unified(x, y, x.axes.size());
  if (!axes) return std::nullopt;
  x.axes = std::move(*axes);
  x.terms.insert(x.terms.end(), y.terms.begin(), y.terms.end());
  return x;
}

/// A product of columns and rows; where the inner axis has several places, they are a term's choices.
std::optional<ChoiceMask> MaskReader::matrixProduct(const Operation& op) {
  const int rank = op.result()->type().rank();
  if (op.operand(0)->type().rank() != rank || op.operand(1)->type().rank() != rank) return std::nullopt;
  ChoiceMask x = read(op.operand(0)), y = read(op.operand(1));
  const auto last = static_cast<std::size_t>(rank - 1);
  if (op.attributes.get<bool>("transpose_a")) std::swap(x.axes[last], x.axes[last - 1]);
  if (op.attributes.get<bool>("transpose_b")) std::swap(y.axes[last], y.axes[last - 1]);
  const std::vector<MaskAxis> inner = x.axes[last], innerY = y.axes[last - 1], rows = x.axes[last - 1],
                              columns = y.axes[last];
  if (inner.size() > 1 || innerY.size() != inner.size()) return std::nullopt;
  if (!inner.empty()) {
    if (x.terms.size() != 1 || y.terms.size() != 1 || x.terms[0].choices > 1 || y.terms[0].choices > 1)
      return std::nullopt;
    const auto isOver = [&](const OneHot& oneHot) {
      return oneHot.label == inner[0].label || oneHot.label == innerY[0].label;
    };
    for (const MaskTerm* term : {&x.terms[0], &y.terms[0]})
      if (std::any_of(term->oneHots.begin(), term->oneHots.end(), isOver)) return std::nullopt;
    rename(x.terms[0], {{inner[0].label, choiceLabel}});
    rename(y.terms[0], {{innerY[0].label, choiceLabel}});
  }
  x.axes[last].clear(), x.axes[last - 1].clear(), y.axes[last].clear(), y.axes[last - 1].clear();
  std::optional<MaskAxes> axes = unified(x, y, last + 1);
  if (!axes) return std::nullopt;
  (*axes)[last - 1] = rows, (*axes)[last] = columns;
  std::optional<ChoiceMask> made = product(std::move(x), std::move(y), *std::move(axes));
  if (made && !isChoosing(*made)) return std::nullopt;
  if (made && !inner.empty()) made->terms[0].choices = inner[0].size;
  return made;
}

/// A condition times what is taken where it holds, the other being 0.
std::optional<ChoiceMask> MaskReader::choice(const Operation& op) {
  Value *condition = op.operand(0), *yes = op.operand(1), *no = op.operand(2);
  const bool isOpposite = splatOf(yes, b) == 0;
  if (!isOpposite && splatOf(no, b) != 0) return std::nullopt;
  ChoiceMask where = isOpposite ? itself(condition) : read(condition);
  if (isOpposite) where.terms[0].conditions[0].negated = true;
  Value* taken = isOpposite ? no : yes;
  const std::size_t rank = op.result()->type().shape.size();
  if (splatOf(taken, b) == 1 && condition->type().shape == op.result()->type().shape) return where;
  ChoiceMask numbers = read(taken);
  const std::optional<MaskAxes> axes = unified(where, numbers, rank);
  return axes ? product(std::move(where), std::move(numbers), *axes) : std::nullopt;
}

/// An index that is compared with all places of an axis, or a mask that is compared with 0.
std::optional<ChoiceMask> MaskReader::comparison(const Operation& op) {
  if (op.def().kind != OpKind::elementwise || op.operands().size() != 2 ||
      op.result()->type().element != ElementType::boolean)
    return std::nullopt;
  const ExpressionPtr all = expressionsOf(op).front();
  const std::string first = operandNameInExpressions(op.def(), 0), second = operandNameInExpressions(op.def(), 1);
  const bool isGreater = isBinary(*all, ">"), isLess = isBinary(*all, "<"), differs = isBinary(*all, "!=");
  if (isGreater || isLess || differs) {
    const std::size_t ofZero = isLess ? 0 : 1;
    if (!isName(*all->arguments[0], first) || !isName(*all->arguments[1], second) ||
        splatOf(op.operand(ofZero), b) != 0 || op.operand(1 - ofZero)->type().shape != op.result()->type().shape)
      return std::nullopt;
    ChoiceMask mask = read(op.operand(1 - ofZero));
    if (!isChoosing(mask)) return std::nullopt;
    const bool isOneOrZero = mask.terms.size() == 1 && mask.terms[0].choices == 1 && !hasGates(mask);
    if (mask.kind == MaskKind::sum && !isOneOrZero) mask.kind = differs ? MaskKind::nonzero : MaskKind::positive;
    return mask;
  }
  if (!isBinary(*all, "==")) return std::nullopt;
  for (const auto& [index, places] : {std::pair(0, 1), std::pair(1, 0)}) {
    const std::string &i = index == 0 ? first : second, &p = index == 0 ? second : first;
    Value *of = op.operand(static_cast<std::size_t>(index)), *at = op.operand(static_cast<std::size_t>(places));
    const Expression &left = *all->arguments[static_cast<std::size_t>(index)],
                     &right = *all->arguments[static_cast<std::size_t>(places)];
    if (!isName(right, p)) continue;
    const std::string size = std::to_string(at->type().elements());
    const bool wraps = toString(left) == "select(" + i + " < 0, " + i + " + " + size + ", " + i + ")";
    if (!wraps && !isName(left, i)) continue;
    if (std::optional<ChoiceMask> mask = oneHot(op, of, at, wraps)) return mask;
  }
  return std::nullopt;
}

std::optional<ChoiceMask> MaskReader::oneHot(const Operation& op, Value* index, Value* places, bool wraps) {
  const std::optional<std::size_t> axisOfItself = axisOfPlaces(places, b);
  if (!axisOfItself) return std::nullopt;
  const std::size_t rank = op.result()->type().shape.size();
  const std::size_t axis = *axisOfItself + rank - places->type().shape.size();
  const std::size_t missing = rank - index->type().shape.size();
  if (axis >= missing && index->type().shape[axis - missing] != 1) return std::nullopt;
  ChoiceMask mask = itself(index);
  mask.axes.insert(mask.axes.begin(), missing, {});
  const std::int64_t size = places->type().elements();
  mask.axes[axis] = {{next_, size}};
  MaskFactor factor{.value = index, .labels = {}};
  for (std::size_t i = missing; i < rank; ++i)
    factor.labels.push_back(i == axis || mask.axes[i].empty() ? noLabel : mask.axes[i].front().label);
  mask.terms = {MaskTerm{.oneHots = {{.label = next_++, .size = size, .index = std::move(factor), .wraps = wraps}},
                         .conditions = {},
                         .gates = {}}};
  return mask;
}

/// Conditions become 1 and 0 of any type; numbers may be rounded.
std::optional<ChoiceMask> MaskReader::cast(const Operation& op) {
  ChoiceMask mask = read(op.operand(0));
  return mask.kind == MaskKind::sum && hasGates(mask) ? std::nullopt : std::optional(std::move(mask));
}

std::optional<ChoiceMask> MaskReader::reshaped(const Operation& op) {
  ChoiceMask mask = read(op.operand(0));
  // All factors as one axis, which is divided anew.
  std::vector<MaskAxis> all;
  for (const std::vector<MaskAxis>& axis : mask.axes) all.insert(all.end(), axis.begin(), axis.end());
  mask.axes = {std::move(all)};
  MaskAxes axes;
  std::size_t next = 0;
  for (std::int64_t size : op.result()->type().shape) {
    if (size == 0) return std::nullopt;
    const std::size_t first = next;
    for (std::int64_t made = 1; made < size; made *= mask.axes[0][next++].size) {
      if (next == mask.axes[0].size()) return std::nullopt;
      const MaskAxis part = mask.axes[0][next];
      const std::int64_t missing = size / made;
      if (missing % part.size == 0) continue;
      if (part.size % missing != 0 || !split(mask, part.label, missing, part.size / missing)) return std::nullopt;
    }
    axes.emplace_back(mask.axes[0].begin() + static_cast<std::ptrdiff_t>(first),
                      mask.axes[0].begin() + static_cast<std::ptrdiff_t>(next));
  }
  mask.axes = std::move(axes);
  return mask;
}

std::optional<ChoiceMask> MaskReader::transposed(const Operation& op) {
  ChoiceMask mask = read(op.operand(0));
  MaskAxes axes;
  for (std::int64_t axis : op.attributes.getInts("permutation"))
    axes.push_back(mask.axes[static_cast<std::size_t>(axis)]);
  mask.axes = std::move(axes);
  return mask;
}

std::optional<ChoiceMask> MaskReader::broadcast(const Operation& op) {
  ChoiceMask mask = read(op.operand(0));
  const Shape& shape = op.result()->type().shape;
  mask.axes.insert(mask.axes.begin(), shape.size() - mask.axes.size(), {});
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (mask.axes[i].empty() && shape[i] != 1) mask.axes[i] = {{next_++, shape[i]}};
  return mask;
}

/// The axis that is summed becomes that of a term's choices.
std::optional<ChoiceMask> MaskReader::summed(const Operation& op) {
  ChoiceMask mask = read(op.operand(0));
  if (!isChoosing(mask) || mask.kind != MaskKind::sum) return std::nullopt;
  const int rank = op.operand(0)->type().rank();
  const bool keeps = op.attributes.get<bool>("keep_dims");
  std::vector<std::int64_t> axes = countedFromFront(op.attributes.getInts("axes"), rank);
  std::sort(axes.rbegin(), axes.rend());
  for (std::int64_t at : axes) {
    const std::vector<MaskAxis> axis = mask.axes[static_cast<std::size_t>(at)];
    if (axis.size() > 1) return std::nullopt;
    for (MaskTerm& term : mask.terms) {
      if (axis.empty()) break;
      const auto isOver = [&](const OneHot& oneHot) { return oneHot.label == axis[0].label; };
      if (term.choices > 1 || std::any_of(term.oneHots.begin(), term.oneHots.end(), isOver)) return std::nullopt;
      rename(term, {{axis[0].label, choiceLabel}});
      term.choices = axis[0].size;
    }
    mask.axes[static_cast<std::size_t>(at)].clear();
    if (!keeps) mask.axes.erase(mask.axes.begin() + at);
  }
  return mask;
}

/// One place of an axis: the same place of all factors.
std::optional<ChoiceMask> MaskReader::selected(const Operation& op) {
  Value* place = op.operand(1);
  if (place->type().elements() != 1 || !numberOf(place)) return std::nullopt;
  ChoiceMask mask = read(op.operand(0));
  const auto axis = static_cast<std::size_t>(op.attributes.getInt("axis"));
  if (!isChoosing(mask) || mask.axes[axis].size() > 1) return std::nullopt;
  const Label label = mask.axes[axis].empty() ? noLabel : mask.axes[axis][0].label;
  bool isWhole = true;
  for (MaskTerm& term : mask.terms) {
    for (const OneHot& oneHot : term.oneHots) isWhole = isWhole && (label == noLabel || oneHot.label != label);
    forEachFactor(term, [&](MaskFactor& factor) {
      if (label == noLabel || !isWhole || !dependsOn(factor, label)) return;
      const auto at = std::find(factor.labels.begin(), factor.labels.end(), label) - factor.labels.begin();
      Value* scalar = b.value("reshape", {place}, {{"shape", Shape{}}});
      factor.value = scalar ? b.value("gather", {factor.value, scalar}, {{"axis", std::int64_t{at}}}) : nullptr;
      factor.labels.erase(factor.labels.begin() + at);
      isWhole = factor.value;
    });
  }
  if (!isWhole) return std::nullopt;
  mask.axes.erase(mask.axes.begin() + static_cast<std::ptrdiff_t>(axis));
  mask.axes.insert(mask.axes.begin() + static_cast<std::ptrdiff_t>(axis), place->type().shape.size(), {});
  return mask;
}
