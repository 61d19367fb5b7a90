// Rows of tokens put into the slots of experts, and fetched from there, by index: what a mixture of experts does around
// its experts. Kernel: pdcrt::Experts, whose header has the definition. The gradients of both are each other.
#include "Kernels/KernelOptions.h"
#include "Raise/RaiseChosenWeights.h"
#include "Raise/RaiseExperts.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

#include <algorithm>

namespace pdc::ops::Experts {

namespace {

/// Where the operands of an op are, and which has rows of tokens and which has slots. An operand is -1 where it is the
/// result.
struct Places {
  const char* op;
  int tokens, slotRows; ///< x [groups, tokens, size], y [groups, experts, capacity, size]
  std::size_t experts;  ///< the operand; `slots` and then `gates` follow it
};
constexpr Places dispatchPlaces{"dispatch", 0, -1, 1}, combinePlaces{"combine", -1, 0, 1},
    gradientPlaces{"combine_gate_gradient", 0, 1, 2};

/// Gates are operands of all but their gradient.
bool hasGates(const Places& p) {
  return p.tokens < 0 || p.slotRows < 0;
}

const Type& typeAt(const Operation& op, int operand) {
  return operand < 0 ? resultType(op) : operandType(op, static_cast<std::size_t>(operand));
}

pdcrt::Experts::Options optionsOf(const Operation& op, const Places& p) {
  const Shape &y = typeAt(op, p.slotRows).shape, &choices = operandType(op, p.experts).shape;
  const std::size_t n = y.size(), m = choices.size();
  return {.groups = product(y, 0, n - 3),
          .tokens = choices[m - 2],
          .choices = choices[m - 1],
          .experts = y[n - 3],
          .capacity = y[n - 2],
          .size = y[n - 1],
          .all = op.attributes.getInt("all")};
}

AttributeDef allAttribute() {
  return integer("all", 0, "how many experts there are of which Y has a member's part; 0: Y has all of them");
}

/// Reports unless experts, slots and, if they are there, gates are [groups, tokens, choices] of x or y, which has this
/// shape without its last `inner` axes.
Status requireChoices(const InferContext& c, const Places& p, std::int64_t groups, int rank) {
  const Type& experts = c.operand(p.experts);
  if (experts.element != ElementType::i64)
    return c.error() << "'" << p.op << "' op needs choices of i64, they are " << toString(experts);
  if (experts.rank() != rank || (rank == 3 && experts.shape[0] != groups))
    return c.error() << "'" << p.op << "' op needs choices "
                     << (rank == 3 ? "[groups, tokens, choices]" : "[tokens, choices]")
                     << (rank == 3 ? " of " + std::to_string(groups) + " groups" : std::string()) << ", they are "
                     << toString(experts);
  if (!requireType(c, p.op, p.experts + 1, experts, "choices")) return failure;
  if (hasGates(p) && has(c, p.experts + 2))
    return requireType(c, p.op, p.experts + 2, {ElementType::f32, experts.shape}, "choices");
  return success;
}

Status requireFloats(const InferContext& c, const Places& p, std::size_t i, int least) {
  if (!requireRank(c, p.op, i, least, least + 1)) return failure;
  if (c.operand(i).element == ElementType::f32) return success;
  return c.error() << "'" << p.op << "' op needs operand " << i << " of f32, it is " << toString(c.operand(i));
}

/// Reports unless x has a row for each token of experts.
Status requireRows(const InferContext& c, const Places& p, const Type& x) {
  const Shape& choices = c.operand(p.experts).shape;
  if (x.shape[x.shape.size() - 2] == choices[choices.size() - 2]) return success;
  return c.error() << "'" << p.op << "' op has rows " << toString(x) << " for choices "
                   << toString(c.operand(p.experts));
}

Types inferDispatch(const InferContext& c) {
  const Places& p = dispatchPlaces;
  if (!requireFloats(c, p, 0, 2)) return failure;
  const Type& x = c.operand(0);
  const std::int64_t experts = integerOf(c, "experts"), capacity = integerOf(c, "capacity"), all = integerOf(c, "all");
  if (!requireChoices(c, p, x.shape[0], x.rank()) || !requireRows(c, p, x)) return failure;
  if (experts < 0 || capacity < 0 || (all != 0 && all < experts))
    return c.error() << "'dispatch' op has " << experts << " experts of " << all << " and capacity " << capacity;
  Shape y = x.shape;
  y.insert(y.end() - 1, capacity);
  y[y.size() - 3] = experts;
  if (elementsOf(y) < 0) return c.error() << "'dispatch' op has too many elements, " << toString(y);
  return std::vector<Type>{{x.element, y}};
}

Types inferCombine(const InferContext& c) {
  const Places& p = combinePlaces;
  if (!requireFloats(c, p, 0, 3)) return failure;
  const Type& y = c.operand(0);
  if (!requireChoices(c, p, y.shape[0], y.rank() - 1)) return failure;
  Shape x = c.operand(1).shape;
  x.back() = y.shape.back();
  return std::vector<Type>{{y.element, x}};
}

Types inferGradient(const InferContext& c) {
  const Places& p = gradientPlaces;
  if (!requireFloats(c, p, 0, 2) || !requireFloats(c, p, 1, 3)) return failure;
  const Type &x = c.operand(0), &y = c.operand(1);
  if (x.rank() + 1 != y.rank() || x.element != y.element || x.shape.back() != y.shape.back() ||
      (x.rank() == 3 && x.shape[0] != y.shape[0]))
    return c.error() << "'" << p.op << "' op has rows " << toString(x) << " and slots " << toString(y);
  if (!requireChoices(c, p, y.shape[0], x.rank()) || !requireRows(c, p, x)) return failure;
  return std::vector<Type>{{x.element, c.operand(2).shape}};
}

Cost costFor(const Operation& op, const Places& p) {
  const pdcrt::Experts::Options o = optionsOf(op, p);
  const double rows = static_cast<double>(o.groups) * static_cast<double>(o.tokens) * static_cast<double>(o.choices);
  return {.flops = 2 * rows * static_cast<double>(o.size), .bytes = bytesMoved(op)};
}

/// Groups and the size of a row run everywhere, tokens and experts where they are axes; what has no such axis is summed
/// over them, and so is the gradient of gates over a row.
Loops loopsFor(const Operation& op, const Places& p) {
  Loops loops(op);
  if (op.attributes.getInt("all") > 0) return loops; // a member's part
  const pdcrt::Experts::Options o = optionsOf(op, p);
  const auto add = [&](Index index, std::optional<int> ofX, std::optional<int> ofY, std::optional<int> ofChoices) {
    bool isInResult = false;
    const auto place = [&](int operand, std::optional<int> axis) {
      if (!axis) return;
      if (operand < 0) index.results.push_back({0, *axis}), isInResult = true;
      if (operand >= 0) index.operands.push_back({static_cast<std::size_t>(operand), *axis});
    };
    place(p.tokens, ofX), place(p.slotRows, ofY);
    for (std::size_t i = 0; i < 3 && ofChoices; ++i) place(static_cast<int>(p.experts + i), ofChoices);
    if (!hasGates(p)) place(-1, ofChoices);
    if (!isInResult) index.reduced = {0};
    addIndex(loops, op, index);
  };
  if (operandType(op, p.experts).rank() == 3) add({.size = o.groups, .operands = {}, .results = {}}, 0, 0, 0);
  add({.size = o.tokens, .operands = {}, .results = {}}, -2, {}, -2);
  add({.size = o.experts, .operands = {}, .results = {}, .inOneBlock = true}, {}, -3, {});
  add({.size = o.size, .operands = {}, .results = {}}, -1, -1, {});
  return loops;
}

/// The division tells a member that has a part of the experts how many there are.
std::vector<Value*> divideFor(const Operation& op, const Loops& loops, const Division& division,
                              const std::vector<Value*>& operands, Builder& b, const Places& p) {
  const Form slots = p.slotRows < 0 ? formOfResult(loops, 0, division)
                                    : formOfOperand(loops, static_cast<std::size_t>(p.slotRows), division);
  const Type& y = typeAt(op, p.slotRows);
  if (!slots.isSplit() || slots.axis != y.rank() - 3) return sameWith(op, loops, division, operands, {}, b);
  const std::int64_t experts = y.shape[y.shape.size() - 3];
  std::vector<std::pair<std::string, Attribute>> changed = {{"all", experts}};
  if (p.slotRows < 0) changed.emplace_back("experts", experts / division.parts);
  return sameWith(op, loops, division, operands, changed, b);
}

/// Calls visit(choice, token, slot, gate) for every choice that names a slot; tokens and slots are counted over all
/// groups.
template <class T, class Visit>
void forEachChoice(ReferenceContext& c, const Places& p, Visit visit) {
  const pdcrt::Experts::Options o = optionsOf(c.op, p);
  const Tensor &experts = *c.operands[p.experts], &slots = *c.operands[p.experts + 1];
  const Tensor* gates = hasGates(p) && c.operands.size() > p.experts + 2 ? c.operands[p.experts + 2] : nullptr;
  for (std::int64_t i = 0; i < experts.elements(); ++i) {
    const std::int64_t expert = experts.asInt(i) - (o.all > 0 ? c.member * o.experts : 0), slot = slots.asInt(i);
    if (expert < 0 || expert >= o.experts || slot < 0 || slot >= o.capacity) continue;
    const std::int64_t token = i / o.choices, group = token / o.tokens;
    visit(i, token, (group * o.experts + expert) * o.capacity + slot,
          gates ? gates->data<T>()[static_cast<std::size_t>(i)] : T(1));
  }
}

/// dispatch, combine or their gradient: rows of `size`.
template <class T>
void rowsOfDispatch(ReferenceContext& c) {
  const std::int64_t size = resultType(c.op).shape.back();
  const auto x = c.in<T>(0);
  const auto y = c.out<T>(0);
  forEachChoice<T>(c, dispatchPlaces, [&](std::int64_t, std::int64_t token, std::int64_t slot, T gate) {
    for (std::int64_t j = 0; j < size; ++j) y[slot * size + j] += gate * x[token * size + j];
  });
}

template <class T>
void rowsOfCombine(ReferenceContext& c) {
  struct Term {
    std::int64_t token, slot;
    T gate;
  };
  std::vector<Term> terms;
  forEachChoice<T>(c, combinePlaces, [&](std::int64_t, std::int64_t token, std::int64_t slot, T gate) {
    terms.push_back({token, slot, gate});
  });
  std::stable_sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
    return a.token != b.token ? a.token < b.token : a.slot < b.slot;
  });
  const std::int64_t size = resultType(c.op).shape.back();
  const auto y = c.in<T>(0);
  const auto x = c.out<T>(0);
  for (const Term& term : terms)
    for (std::int64_t j = 0; j < size; ++j) x[term.token * size + j] += term.gate * y[term.slot * size + j];
}

template <class T>
void productsOfRows(ReferenceContext& c) {
  const std::int64_t size = operandType(c.op, 0).shape.back();
  const auto x = c.in<T>(0), y = c.in<T>(1);
  const auto gates = c.out<T>(0);
  forEachChoice<T>(c, gradientPlaces, [&](std::int64_t i, std::int64_t token, std::int64_t slot, T) {
    for (std::int64_t j = 0; j < size; ++j) gates[i] += x[token * size + j] * y[slot * size + j];
  });
}

/// With z the rows that are moved: those of z are moved back, and each gate gets the product of the two rows.
std::vector<Value*> gradient(GradientContext& g, bool ofDispatch) {
  const Operation& op = g.op();
  Value *dz = g.resultGradient(0), *z = op.operand(0), *experts = op.operand(1), *slots = op.operand(2);
  std::vector<Value*> gradients(op.operands().size(), nullptr);
  if (!dz) return gradients;
  const std::int64_t all = op.attributes.getInt("all");
  if (g.wants(0)) {
    Attributes attributes{{"all", all}};
    if (!ofDispatch) {
      const Shape& y = z->type().shape;
      attributes.set("experts", y[y.size() - 3]);
      attributes.set("capacity", y[y.size() - 2]);
    }
    std::vector<Value*> operands = op.operands();
    operands[0] = dz;
    gradients[0] = g.value(0, ofDispatch ? "combine" : "dispatch", operands, attributes);
  }
  if (op.operand(3) && g.wants(3))
    gradients[3] =
        g.value(3, "combine_gate_gradient", {ofDispatch ? z : dz, ofDispatch ? dz : z, experts, slots}, {{"all", all}});
  return gradients;
}

OpDef definition(const Places& p, const char* method) {
  OpDef def = {.name = p.op};
  def.cost = [&p](const Operation& op) { return costFor(op, p); };
  def.kernel.use = [&p, method](const Operation& op) {
    return kernelUse<pdcrt::Experts>("Experts", method, optionsOf(op, p));
  };
  def.split = {.loops = [&p](const Operation& op) { return loopsFor(op, p); },
               .divide = [&p](const Operation& op, const Loops& loops, const Division& division,
                              const std::vector<Value*>& operands,
                              Builder& b) { return divideFor(op, loops, division, operands, b, p); },
               .places = p.experts};
  def.results = {{"Y"}};
  def.attributes = {allAttribute()};
  return def;
}

/// A row of one number, 1, for each token: the sum over the slots of an expert is how many it takes.
Value* loadOf(const Operation& op, Builder& b) {
  const Type& choices = operandType(op, 1);
  Shape shape(choices.shape.begin(), choices.shape.end() - 1);
  shape.push_back(1);
  Tensor ones({ElementType::f32, shape});
  for (std::int64_t i = 0; i < ones.elements(); ++i) ones.set(i, 1);
  Value* taken = b.value("dispatch", {b.constant(ones), op.operand(1), op.operand(2)}, op.attributes);
  if (!taken) return nullptr;
  const std::int64_t rank = taken->type().rank();
  std::vector<std::int64_t> summed = {rank - 2, rank - 1};
  if (rank == 4) summed.insert(summed.begin(), 0);
  Value* sums = b.value("reduce_sum", {taken}, {{"axes", summed}});
  Tensor all({ElementType::f32, {1}});
  all.set(0, static_cast<double>(choices.elements()));
  return sums ? b.value("concat", {sums, b.constant(all)}, {{"axis", std::int64_t{0}}}) : nullptr;
}

OpDef dispatchDef() {
  OpDef def = definition(dispatchPlaces, "dispatch");
  def.summary = "Rows of tokens in the slots of the experts that they choose, times gates; zeros where a slot is empty";
  def.operands = {{"X"}, {"choices"}, {"slots"}, {.name = "gates", .optional = true}};
  def.attributes = {integer("experts", std::nullopt, "how many Y has"),
                    integer("capacity", std::nullopt, "how many slots an expert has"), allAttribute()};
  def.infer = inferDispatch;
  def.gradient = [](GradientContext& g) { return gradient(g, true); };
  def.rewrites.raise = raiseExperts; // of combine too
  def.rewrites.load = loadOf;
  def.reference = reference([]<class T>(ReferenceContext& c) { rowsOfDispatch<T>(c); });
  const auto text = [](const char* x, const char* choices, const char* gates, const char* y) {
    return example("%x: f32" + std::string(x) + ", %e: i64" + choices + ", %s: i64" + choices +
                       (*gates ? ", %g: f32" + std::string(choices) : ""),
                   "%y = dispatch %x, %e, %s" + std::string(gates) + " {" + y);
  };
  def.examples = {
      text("[5, 3]", "[5, 1]", "", "capacity = 2, experts = 2} : f32[2, 2, 3]"),
      text("[4, 5]", "[4, 2]", ", %g", "capacity = 3, experts = 4} : f32[4, 3, 5]"),
      text("[2, 4, 3]", "[2, 4, 1]", "", "capacity = 2, experts = 2} : f32[2, 2, 2, 3]"),
      text("[2, 3, 2]", "[2, 3, 3]", ", %g", "capacity = 1, experts = 2} : f32[2, 2, 1, 2]"),
      text("[6, 1]", "[6, 1]", ", %g", "capacity = 2, experts = 1} : f32[1, 2, 1]"),
      text("[3, 4]", "[3, 2]", "", "all = 4, capacity = 2, experts = 1} : f32[1, 2, 4]"),
  };
  return def;
}

OpDef combineDef() {
  OpDef def = definition(combinePlaces, "combine");
  def.rewrites.raise = raiseChosenWeights; // of dispatch too
  def.summary = "For each token the sum of the slots that it has chosen, times gates, in order of experts";
  def.operands = {{"Y"}, {"choices"}, {"slots"}, {.name = "gates", .optional = true}};
  def.results = {{"X"}};
  def.infer = inferCombine;
  def.gradient = [](GradientContext& g) { return gradient(g, false); };
  def.reference = reference([]<class T>(ReferenceContext& c) { rowsOfCombine<T>(c); });
  const auto text = [](const char* x, const char* choices, const char* gates, const char* y) {
    return example("%x: f32" + std::string(x) + ", %e: i64" + choices + ", %s: i64" + choices +
                       (*gates ? ", %g: f32" + std::string(choices) : ""),
                   "%y = combine %x, %e, %s" + std::string(gates) + y);
  };
  def.examples = {
      text("[2, 2, 3]", "[5, 1]", ", %g", " : f32[5, 3]"),
      text("[4, 3, 5]", "[4, 2]", ", %g", " : f32[4, 5]"),
      text("[2, 2, 2, 3]", "[2, 4, 1]", "", " : f32[2, 4, 3]"),
      text("[2, 2, 1, 2]", "[2, 3, 3]", ", %g", " : f32[2, 3, 2]"),
      text("[1, 2, 1]", "[6, 1]", "", " : f32[6, 1]"),
      text("[1, 2, 4]", "[3, 2]", ", %g", " {all = 4} : f32[3, 4]"),
  };
  return def;
}

OpDef gateGradientDef() {
  OpDef def = definition(gradientPlaces, "gateGradient");
  def.summary = "Gradient of the gates of combine: the product of a token's row and of the slot that it has chosen";
  def.operands = {{"dX"}, {"Y"}, {"choices"}, {"slots"}};
  def.results = {{"dgates"}};
  def.infer = inferGradient;
  def.reference = reference([]<class T>(ReferenceContext& c) { productsOfRows<T>(c); });
  def.examples = {example("%dx: f32[5, 3], %y: f32[2, 2, 3], %e: i64[5, 2], %s: i64[5, 2]",
                          "%dg = combine_gate_gradient %dx, %y, %e, %s : f32[5, 2]"),
                  example("%dx: f32[2, 4, 3], %y: f32[2, 4, 1, 3], %e: i64[2, 4, 1], %s: i64[2, 4, 1]",
                          "%dg = combine_gate_gradient %dx, %y, %e, %s : f32[2, 4, 1]"),
                  example("%dx: f32[3, 4], %y: f32[1, 2, 4], %e: i64[3, 2], %s: i64[3, 2]",
                          "%dg = combine_gate_gradient %dx, %y, %e, %s {all = 4} : f32[3, 2]")};
  return def;
}

} // namespace

std::vector<OpDef> define() {
  return {dispatchDef(), combineDef(), gateGradientDef()};
}

} // namespace pdc::ops::Experts
