#include "pdc/IR/Loops.h"

#include "pdc/IR/Builder.h"

#include <algorithm>

using namespace pdc;

Loops::Loops(const Operation& op)
    : operands(op.operands().size()), results(op.results().size()), over(op.results().size()) {}

int Loops::index(std::int64_t size, bool mayPad, bool isInOneBlock) {
  sizes.push_back(size);
  pads.push_back(mayPad);
  inOneBlock.push_back(isInOneBlock);
  return static_cast<int>(sizes.size()) - 1;
}

Loops& Loops::operand(std::size_t i, int axis, int index, std::int64_t blocks) {
  operands[i].push_back({index, axis, blocks});
  return *this;
}

Loops& Loops::result(std::size_t i, int axis, int index, std::int64_t blocks) {
  results[i].push_back({index, axis, blocks});
  return *this;
}

Loops& Loops::reduce(std::size_t result, int index, Combine combine) {
  over[result].push_back({index, combine});
  return *this;
}

static std::int64_t ceilOf(std::int64_t size, std::int64_t parts) {
  return (size + parts - 1) / parts;
}

Type pdc::partOf(const Type& whole, const Form& form, std::int64_t parts) {
  Type part = whole;
  if (!form.isSplit()) return part;
  std::int64_t& size = part.shape[static_cast<std::size_t>(form.axis)];
  size = ceilOf(size, parts);
  return part;
}

Type pdc::wholeOf(const Type& part, const Form& form, std::int64_t parts) {
  Type whole = part;
  if (!form.isSplit()) return whole;
  std::int64_t& size = whole.shape[static_cast<std::size_t>(form.axis)];
  size = form.padded > 0 ? form.padded : size * parts;
  return whole;
}

Form pdc::splitOf(const Type& whole, int axis, std::int64_t blocks, std::int64_t parts) {
  const std::int64_t size = whole.shape[static_cast<std::size_t>(axis)];
  return Form::split(axis, blocks, blocks == 1 && size % parts != 0 ? size : 0);
}

pdcrt::Part pdc::storedPart(const Type& whole, const Form& form, std::int64_t parts) {
  if (!form.isSplit()) return {};
  return {form.axis, form.blocks, parts, whole.shape[static_cast<std::size_t>(form.axis)], {}};
}

bool pdc::canSplit(const Type& whole, const Form& form, std::int64_t parts) {
  if (!form.isSplit()) return true;
  const std::int64_t size = whole.shape[static_cast<std::size_t>(form.axis)];
  // Every member has at least one element that is none of the padding.
  if (form.padded > 0)
    return form.padded == size && form.blocks == 1 && size % parts != 0 && whole.layout == plain &&
           ceilOf(size, parts) * (parts - 1) < size;
  if (size == 0 || size % (form.blocks * parts) != 0) return false;
  // The parts must be able to have the layout of the whole.
  const Type part = partOf(whole, form, parts);
  return whole.layout == plain || (whole.layout == filterInBlocks ? fitsFilterBlocks(part) : fitsChannelBlocks(part));
}

/// The loops of ops that compute each element of each result from the operands' elements at the same place, after
/// broadcasting.
static Loops loopsOfElementwise(const Operation& op) {
  Loops loops(op);
  const Shape& shape = op.result() ? op.result()->type().shape : op.results().back()->type().shape;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] < 2) continue;
    const int index = loops.index(shape[axis]);
    for (std::size_t i = 0; i < op.operands().size(); ++i) {
      if (!op.operand(i)) continue;
      const Shape& operand = op.operand(i)->type().shape;
      const std::size_t missing = shape.size() - operand.size();
      if (axis >= missing && operand[axis - missing] == shape[axis])
        loops.operand(i, static_cast<int>(axis - missing), index);
    }
    for (std::size_t i = 0; i < op.results().size(); ++i)
      if (op.result(i)) loops.result(i, static_cast<int>(axis), index);
  }
  return loops;
}

std::vector<CommonFactor> pdc::commonFactors(const Shape& from, const Shape& to) {
  // Where axes begin, counted in elements from the end: suffix products. Factors lie between neighbours of both sets.
  auto cutsOf = [](const Shape& shape) {
    std::vector<std::int64_t> cuts = {1};
    for (auto size = shape.rbegin(); size != shape.rend(); ++size) cuts.push_back(cuts.back() * *size);
    return cuts;
  };
  const std::vector<std::int64_t> fromCuts = cutsOf(from), toCuts = cutsOf(to);
  if (fromCuts.back() == 0 || fromCuts.back() != toCuts.back()) return {};
  std::vector<std::int64_t> cuts = fromCuts;
  cuts.insert(cuts.end(), toCuts.begin(), toCuts.end());
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  // The axis that holds the elements from `low` to `high`, and the blocks of them on it; nothing: they straddle axes.
  auto placeOf = [](const std::vector<std::int64_t>& of, std::int64_t low, std::int64_t high) {
    for (std::size_t k = 0; k + 1 < of.size(); ++k)
      if (of[k] <= low && high <= of[k + 1] && low % of[k] == 0 && of[k + 1] % high == 0 && of[k] < of[k + 1])
        return std::optional(std::pair(static_cast<int>(of.size() - 2 - k), of[k + 1] / high));
    return std::optional<std::pair<int, std::int64_t>>();
  };
  std::vector<CommonFactor> factors;
  for (std::size_t k = cuts.size() - 1; k > 0; --k) {
    const std::int64_t low = cuts[k - 1], high = cuts[k];
    if (high % low != 0) continue;
    const auto source = placeOf(fromCuts, low, high), target = placeOf(toCuts, low, high);
    if (source && target) factors.push_back({high / low, source->first, target->first, source->second, target->second});
  }
  return factors;
}

static Loops loopsOfView(const Operation& op) {
  Loops loops(op);
  for (const CommonFactor& factor : commonFactors(op.operand(0)->type().shape, op.result()->type().shape)) {
    // Padding stays behind the end of an axis that is one in both shapes.
    const auto isAxis = [&](const Value* value, int axis) {
      return value->type().shape[static_cast<std::size_t>(axis)] == factor.size;
    };
    const int index =
        loops.index(factor.size, isAxis(op.operand(0), factor.fromAxis) && isAxis(op.result(), factor.toAxis));
    loops.operand(0, factor.fromAxis, index, factor.fromBlocks).result(0, factor.toAxis, index, factor.toBlocks);
  }
  return loops;
}

Loops pdc::loopsOf(const Operation& op) {
  if (op.def().split.loops) return op.def().split.loops(op);
  if (op.def().kind == OpKind::elementwise) return loopsOfElementwise(op);
  if (op.def().kind == OpKind::view) return loopsOfView(op);
  return Loops(op);
}

/// The division of which a run is such a split: its blocks are those of the run, each in as many blocks as are left.
static std::optional<Division> divisionOf(const std::vector<LoopRun>& runs, const Loops& loops, const Form& form,
                                          std::int64_t parts) {
  if (!form.isSplit()) return std::nullopt;
  for (const LoopRun& run : runs) {
    if (run.axis != form.axis || form.blocks % run.blocks != 0) continue;
    const std::int64_t blocks = form.blocks / run.blocks, size = loops.sizes[static_cast<std::size_t>(run.index)];
    const bool fits = form.padded > 0 ? size == form.padded && loops.pads[static_cast<std::size_t>(run.index)]
                                      : size % (blocks * parts) == 0;
    if (fits) return Division{run.index, parts, blocks};
  }
  return std::nullopt;
}

std::optional<Division> pdc::divisionOfOperand(const Operation& op, const Loops& loops, std::size_t i, const Form& form,
                                               std::int64_t parts) {
  const std::optional<Division> division = divisionOf(loops.operands[i], loops, form, parts);
  return division && canDivide(op, loops, *division) ? division : std::nullopt;
}

std::optional<Division> pdc::divisionOfResult(const Operation& op, const Loops& loops, std::size_t i, const Form& form,
                                              std::int64_t parts) {
  const std::optional<Division> division = divisionOf(loops.results[i], loops, form, parts);
  return division && canDivide(op, loops, *division) ? division : std::nullopt;
}

static Form formOf(const Loops& loops, const std::vector<LoopRun>& runs, const Division& division) {
  const std::int64_t size = loops.sizes[static_cast<std::size_t>(division.index)];
  const bool isEven = size % (division.blocks * division.parts) == 0;
  for (const LoopRun& run : runs)
    if (run.index == division.index) return Form::split(run.axis, run.blocks * division.blocks, isEven ? 0 : size);
  return {};
}

Form pdc::formOfOperand(const Loops& loops, std::size_t i, const Division& division) {
  return formOf(loops, loops.operands[i], division);
}

Form pdc::formOfResult(const Loops& loops, std::size_t i, const Division& division) {
  for (const Reduced& reduced : loops.over[i])
    if (reduced.index == division.index) return Form::partial(reduced.combine);
  return formOf(loops, loops.results[i], division);
}

bool pdc::canDivide(const Operation& op, const Loops& loops, const Division& division) {
  const std::int64_t size = loops.sizes[static_cast<std::size_t>(division.index)];
  const bool isEven = size % (division.blocks * division.parts) == 0;
  if (division.blocks > 1 && loops.inOneBlock[static_cast<std::size_t>(division.index)]) return false;
  if (size == 0 || (!isEven && (division.blocks > 1 || !loops.pads[static_cast<std::size_t>(division.index)])))
    return false;
  for (std::size_t i = 0; i < op.operands().size(); ++i)
    if (op.operand(i) && !canSplit(op.operand(i)->type(), formOfOperand(loops, i, division), division.parts))
      return false;
  for (std::size_t i = 0; i < op.results().size(); ++i)
    if (op.result(i) && !canSplit(op.result(i)->type(), formOfResult(loops, i, division), division.parts)) return false;
  return true;
}

std::vector<Value*> pdc::divided(const Operation& op, const Loops& loops, const Division& division,
                                 const std::vector<Value*>& operands, Builder& b) {
  std::vector<Type> types; // of the results; of absent ones, whatever
  for (std::size_t i = 0; i < op.results().size(); ++i)
    types.push_back(op.result(i) ? partOf(op.result(i)->type(), formOfResult(loops, i, division), division.parts)
                                 : Type{});
  std::vector<Value*> results;
  if (op.def().split.divide) {
    results = op.def().split.divide(op, loops, division, operands, b);
  } else {
    Attributes attributes = op.attributes;
    for (const AttributeDef& attribute : op.def().attributes)
      if (attribute.shapeOfResult >= 0)
        attributes.set(attribute.name, types[static_cast<std::size_t>(attribute.shapeOfResult)].shape);
    std::vector<bool> wanted;
    for (const Value* result : op.results()) wanted.push_back(result);
    if (const Operation* made = b.create(op.def().name, operands, attributes, wanted)) results = made->results();
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!op.result(i)) continue;
    if (!results[i] || results[i]->type().shape != types[i].shape) {
      b.diags().error(op.location) << "a part of '" << op.def().name << "' op has "
                                   << (results[i] ? toString(results[i]->type()) : std::string("no result"))
                                   << " and not " << toString(types[i]);
      return {};
    }
    results[i]->setType(types[i]); // with the layout of the whole
  }
  return results;
}
