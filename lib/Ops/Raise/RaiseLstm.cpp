#include "Raise/RaiseLstm.h"

#include "Raise/Match.h"
#include "Shared/RecurrentWeights.h"

#include <algorithm>
#include <array>
#include <unordered_set>

using namespace pdc;
using namespace pdc::ops;

namespace {

std::int64_t lastOf(const Value* value) {
  return value->type().shape.back();
}

Value* reshaped(Value* value, const Shape& shape, Builder& b) {
  return !value || value->type().shape == shape ? value : b.value("reshape", {value}, {{"shape", shape}});
}

/// The index along `axis` with which `value`, which has size 1 there or less than all, begins in what it is a part of,
/// where `slice` takes all of every other axis; else nothing.
std::optional<std::int64_t> beginOnly(const Operation* slice, std::size_t axis) {
  if (!slice) return std::nullopt;
  const Shape &whole = slice->operand(0)->type().shape, &part = slice->result()->type().shape;
  const std::vector<std::int64_t>& steps = slice->attributes.getInts("steps");
  for (std::size_t a = 0; a < whole.size(); ++a)
    if (a != axis && (part[a] != whole[a] || (steps[a] != 1 && whole[a] > 1))) return std::nullopt;
  return slice->attributes.getInts("starts")[axis];
}

// Cells.

/// Columns of the gates' sums: those from `begin` on.
struct Columns {
  Value* sums = nullptr;
  std::int64_t begin = 0;

  void followSlices() {
    for (;;) {
      const Operation* slice = definedBy(sums, "slice");
      const auto axis = static_cast<std::size_t>(sums->type().rank() - 1);
      const auto start = beginOnly(slice, axis);
      if (!start || (slice->attributes.getInts("steps")[axis] != 1 && lastOf(sums) > 1)) return;
      begin += *start;
      sums = slice->operand(0);
    }
  }
};

/// Of which columns `value` is the activation, in whichever order they were sliced and activated.
std::optional<Columns> activated(Value* value, const char* activation) {
  if (value->type().rank() < 1) return std::nullopt;
  Columns columns{value};
  columns.followSlices();
  const Operation* op = definedBy(columns.sums, activation);
  if (!op) return std::nullopt;
  columns.sums = op->operand(0);
  columns.followSlices();
  return columns;
}

/// The step of a layer whose new cells an addition computes.
struct Step {
  Value *sums = nullptr, *cellsBefore = nullptr, *state = nullptr;
  std::string order; ///< of the gates' blocks

  /// Notes that gate `letter` is `columns`; false where another gate has them, or they are none of its blocks.
  bool take(char letter, const Columns& columns, std::int64_t hidden) {
    if (sums && columns.sums != sums) return false;
    sums = columns.sums;
    order.resize(4, ' ');
    if (hidden == 0 || lastOf(sums) != 4 * hidden || columns.begin % hidden != 0) return false;
    char& place = order[static_cast<std::size_t>(columns.begin / hidden)];
    if (place != ' ') return false;
    place = letter;
    return true;
  }
};

/// The product of o and tanh(cells), if it is the only one.
bool findState(Step& step, Value* cells) {
  for (const Operation* squash : cells->users()) {
    if (squash->def().name != "tanh" || squash->result()->users().size() != 1) continue;
    const Operation* product = squash->result()->users().front();
    if (product->def().name != "mul" || product->result()->type() != cells->type()) continue;
    for (auto [squashed, gate] : bothOrders(*product)) {
      const auto o = squashed == squash->result() ? activated(gate, "sigmoid") : std::nullopt;
      if (!o || gate->type() != cells->type() || !step.take('o', *o, lastOf(cells))) continue;
      step.state = product->result();
      return true;
    }
  }
  return false;
}

std::optional<Step> stepOf(const Operation& root) {
  Value* cells = root.result();
  if (root.def().name != "add" || cells->type().rank() < 1) return std::nullopt;
  for (auto [kept, added] : bothOrders(root)) {
    const Operation *keeps = definedBy(kept, "mul"), *adds = definedBy(added, "mul");
    if (!keeps || !adds) return std::nullopt;
    for (auto [forget, before] : bothOrders(*keeps))
      for (auto [input, candidate] : bothOrders(*adds)) {
        const auto f = activated(forget, "sigmoid"), i = activated(input, "sigmoid"), g = activated(candidate, "tanh");
        const auto fits = [&](const Value* value) { return value->type() == cells->type(); };
        Step step;
        step.cellsBefore = before;
        const std::int64_t hidden = lastOf(cells);
        if (f && i && g && fits(before) && fits(forget) && fits(input) && fits(candidate) &&
            step.take('f', *f, hidden) && step.take('i', *i, hidden) && step.take('c', *g, hidden) &&
            findState(step, cells))
          return step;
      }
  }
  return std::nullopt;
}

const Operation* lstmBehind(const Value* value, int result);

/// sums = state · R + rest + bias.
struct Sums {
  const Operation* product = nullptr; ///< a linear layer
  Value* rest = nullptr;
};

/// The product with the state before, among those that could be one: that whose input is a state already, or zero.
std::optional<Sums> sumsOf(const Step& step) {
  const Operation* sum = definedBy(step.sums, "add");
  std::optional<Sums> found;
  for (auto [value, rest] : sum ? bothOrders(*sum) : std::vector<std::pair<Value*, Value*>>{}) {
    const Operation* product = definedBy(value, "linear");
    if (!product || product->operand(0)->type() != step.state->type() || rest->type() != step.sums->type()) continue;
    const bool isState = lstmBehind(product->operand(0), 0) || isAlwaysZero(product->operand(0));
    if (!found || isState) found = Sums{product, rest};
    if (isState) return found;
  }
  return found;
}

/// Weights [outputs, inputs] of a linear layer; those that an operation before `root` has turned already, so that all
/// steps of a layer have the same.
Value* rowsPerOutput(const Operation& linear, const Operation& root, Builder& b) {
  Value* weight = linear.operand(1);
  if (linear.attributes.get<bool>("transposed")) return weight;
  const std::vector<std::int64_t> turned = {1, 0};
  for (const auto& operation : b.graph().operations()) {
    if (operation.get() == &root) break;
    if (operation->def().name == "transpose" && operation->operand(0) == weight &&
        operation->attributes.getInts("permutation") == turned)
      return operation->result();
  }
  return b.value("transpose", {weight}, {{"permutation", turned}});
}

Operation* lstm(std::vector<Value*> operands, const std::string& order, bool reverse, Builder& b) {
  while (!operands.back()) operands.pop_back();
  return b.create("lstm", std::move(operands), {{"order", order}, {"reverse", reverse}});
}

Value* raiseCell(const Operation& root, Builder& b) {
  const std::optional<Step> step = stepOf(root);
  const std::optional<Sums> sums = step ? sumsOf(*step) : std::nullopt;
  if (!sums) return nullptr;
  const Type& type = step->state->type();
  const std::int64_t hidden = type.shape.back();
  if (type.elements() == 0) return nullptr;
  const std::int64_t batch = type.elements() / hidden;
  Value *h = sums->product->operand(0), *x = sums->rest, *bias = sums->product->operand(2);
  if (bias) x = b.value("add", {x, bias});
  const auto state = [&](Value* before) {
    return isAlwaysZero(before) ? nullptr : reshaped(before, {batch, hidden}, b);
  };
  Operation* made = lstm({reshaped(x, {1, batch, 4 * hidden}, b), rowsPerOutput(*sums->product, root, b), state(h),
                          state(step->cellsBefore)},
                         step->order, false, b);
  if (!made) return nullptr;
  b.graph().replaceAllUses(step->state, reshaped(made->result(0), type.shape, b));
  return reshaped(made->result(1), type.shape, b);
}

// Layers.

const Value* behindReshapes(const Value* value) {
  while (const Operation* reshape = definedBy(value, "reshape")) value = reshape->operand(0);
  return value;
}

/// The layer of which `value`, perhaps in another shape, is all of result `result`.
const Operation* lstmBehind(const Value* value, int result) {
  const Value* root = value ? behindReshapes(value) : nullptr;
  const Operation* op = definedBy(root, "lstm");
  return op && root->resultIndex() == result ? op : nullptr;
}

/// Whether two values are one, or the same is done to the same values.
bool areEqual(const Value* a, const Value* b) {
  const Operation *x = a ? a->definer() : nullptr, *y = b ? b->definer() : nullptr;
  if (a == b || !x || !y) return a == b;
  return &x->def() == &y->def() && !x->def().facts.random && a->resultIndex() == b->resultIndex() &&
         x->attributes == y->attributes && x->operands() == y->operands();
}

/// Steps of one layer whose states `root` puts together.
class UnrolledLayer {
public:
  UnrolledLayer(const Operation& root, Builder& builder) : root_(root), b(builder) {}

  Value* run() {
    if (!findSteps() || !areChained() || !isReadHereOnly()) return nullptr;
    const Operation& first = *chain_.front();
    const std::int64_t batch = first.operand(0)->type().shape[1], hidden = lastOf(first.operand(1));
    std::vector<Value*> inputs;
    for (const Operation* step : steps_) inputs.push_back(step->operand(0));
    Value* x = joined(inputs);
    if (!x) return nullptr;
    const Operation* made = lstm({x, first.operand(1), first.operand(2), first.operand(3)},
                                 first.attributes.get<std::string>("order"), reverse_, b);
    if (!made) return nullptr;
    const std::int64_t last = reverse_ ? 0 : count() - 1;
    for (std::size_t result : {0, 1})
      for (Value* shown : shownAs(chain_.back()->result(result))) {
        Value* part = row(made->result(result), last);
        if (part) b.graph().replaceAllUses(shown, reshaped(part, shown->type().shape, b));
      }
    const Shape batchFirst = {batch, count(), hidden};
    if (axis_ == 0) return reshaped(made->result(0), root_.result()->type().shape, b);
    return b.value("transpose", {made->result(0)}, {{"permutation", std::vector<std::int64_t>{1, 0, 2}}});
  }

private:
  std::int64_t count() const { return static_cast<std::int64_t>(steps_.size()); }

  /// One step for each operand, all with the same weights.
  bool findSteps() {
    if (root_.def().name != "concat" || root_.operands().size() < 2 || root_.result()->type().rank() != 3) return false;
    axis_ = static_cast<std::size_t>(root_.attributes.getInt("axis"));
    for (const Value* state : root_.operands()) {
      const Operation* step = lstmBehind(state, 0);
      const bool fits = step && step->operand(0)->type().shape[0] == 1 && !step->operand(4) &&
                        !step->attributes.get<bool>("reverse") && axis_ < 2 && state->type().shape[axis_] == 1 &&
                        lastOf(state) == lastOf(step->operand(1));
      if (!fits) return false;
      steps_.push_back(step);
    }
    const Operation& first = *steps_.front();
    return std::all_of(steps_.begin(), steps_.end(), [&](const Operation* step) {
      return step->operand(1) == first.operand(1) && step->attributes == first.attributes;
    });
  }

  /// Whether each step continues that before it, forwards or backwards.
  bool areChained() {
    chain_ = steps_;
    if (continues(*chain_[1], *chain_[0])) return allContinue();
    std::reverse(chain_.begin(), chain_.end());
    reverse_ = true;
    return allContinue();
  }
  bool allContinue() const {
    for (std::size_t i = 1; i < chain_.size(); ++i)
      if (!continues(*chain_[i], *chain_[i - 1])) return false;
    return true;
  }
  static bool continues(const Operation& step, const Operation& before) {
    return lstmBehind(step.operand(2), 0) == &before && lstmBehind(step.operand(3), 1) == &before;
  }

  /// Whether states and cells are read by the next step and by `root` alone, so that no input depends on them; those of
  /// the last also later.
  bool isReadHereOnly() const {
    const auto [before, after] = alive();
    for (std::size_t i = 0; i < chain_.size(); ++i) {
      const Operation* next = i + 1 < chain_.size() ? chain_[i + 1] : nullptr;
      for (std::size_t result : {0, 1})
        for (const Value* shown : shownAs(chain_[i]->result(result))) {
          if (next && b.graph().isOutput(shown)) return false;
          for (const Operation* user : shown->users()) {
            const bool expected = user == &root_ || user == next || user->def().name == "reshape" ||
                                  (after.contains(user) ? !next : !before.contains(user));
            if (!expected) return false;
          }
        }
    }
    return true;
  }

  /// The operations before and after `root` from which something comes.
  std::array<std::unordered_set<const Operation*>, 2> alive() const {
    std::unordered_set<const Value*> used;
    for (const GraphOutput& output : b.graph().outputs) used.insert(output.value);
    std::array<std::unordered_set<const Operation*>, 2> found;
    bool isAfter = true;
    const auto& operations = b.graph().operations();
    for (auto operation = operations.rbegin(); operation != operations.rend(); ++operation) {
      const std::vector<Value*>& results = (*operation)->results();
      isAfter = isAfter && operation->get() != &root_;
      if (std::none_of(results.begin(), results.end(),
                       [&](const Value* value) { return value && used.contains(value); }))
        continue;
      found[isAfter ? 1 : 0].insert(operation->get());
      used.insert((*operation)->operands().begin(), (*operation)->operands().end());
    }
    return found;
  }

  /// `value` and what is the same in another shape.
  static std::vector<Value*> shownAs(Value* value) {
    std::vector<Value*> all = {value};
    for (std::size_t i = 0; i < all.size(); ++i)
      for (const Operation* user : all[i]->users())
        if (user->def().name == "reshape") all.push_back(user->result());
    return all;
  }

  Value* row(Value* of, std::int64_t index) {
    Shape sizes = of->type().shape;
    sizes[0] = 1;
    return b.value("slice", {of},
                   {{"starts", std::vector<std::int64_t>{index, 0, 0}},
                    {"sizes", sizes},
                    {"steps", std::vector<std::int64_t>{1, 1, 1}}});
  }

  /// `parts`, each of B · C elements with last axis C, one after the other: [T, B, C]. What is done alike to each of
  /// them is done to all at once.
  Value* joined(std::vector<Value*> parts) {
    const auto all = [&](const char* op, auto agrees) {
      return std::all_of(parts.begin(), parts.end(), [&](const Value* part) {
        const Operation* definer = definedBy(part, op);
        return definer && agrees(*definer, *parts.front()->definer());
      });
    };
    const auto operands = [&] {
      std::vector<Value*> values;
      for (const Value* part : parts) values.push_back(part->definer()->operand(0));
      return values;
    };
    if (all("reshape", [](const Operation& part, const Operation&) {
          return part.operand(0)->type().rank() > 0 && lastOf(part.operand(0)) == lastOf(part.result());
        }))
      return joined(operands());
    const Operation* first = parts.front()->definer();
    if (all("add", [](const Operation& part, const Operation& other) {
          return areEqual(part.operand(1), other.operand(1)) && part.operand(1)->type().rank() == 1 &&
                 part.operand(0)->type() == part.result()->type();
        })) {
      Value* sums = joined(operands());
      return sums ? b.value("add", {sums, first->operand(1)}) : nullptr;
    }
    if (all("linear", [](const Operation& part, const Operation& other) {
          return part.operand(1) == other.operand(1) && areEqual(part.operand(2), other.operand(2)) &&
                 part.attributes == other.attributes;
        })) {
      Value* inputs = joined(operands());
      return inputs ? b.value("linear", {inputs, first->operand(1), first->operand(2)}, first->attributes) : nullptr;
    }
    if (Value* whole = wholeOf(parts)) return whole;
    const std::int64_t columns = lastOf(parts.front());
    if (columns == 0) return nullptr;
    const std::int64_t rows = parts.front()->type().elements() / columns;
    for (Value*& part : parts)
      if (!(part = reshaped(part, {1, rows, columns}, b))) return nullptr;
    return b.value("concat", std::move(parts), {{"axis", std::int64_t{0}}});
  }

  /// The value of which `parts` are all the rows along axis 0, in order.
  static Value* wholeOf(const std::vector<Value*>& parts) {
    Value* whole = nullptr;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Value* from = parts[i];
      std::int64_t index = 0;
      for (const Operation* slice = definedBy(from, "slice"); slice; slice = definedBy(from, "slice")) {
        const auto start = beginOnly(slice, 0);
        if (!start) break;
        index = *start + index * slice->attributes.getInts("steps")[0];
        from = slice->operand(0);
      }
      if (from == parts[i] || parts[i]->type().shape[0] != 1 || index != static_cast<std::int64_t>(i) ||
          (whole && from != whole))
        return nullptr;
      whole = from;
    }
    return whole->type().rank() == 3 && whole->type().shape[0] == static_cast<std::int64_t>(parts.size()) ? whole
                                                                                                          : nullptr;
  }

  const Operation& root_;
  Builder& b;
  std::size_t axis_ = 0;
  bool reverse_ = false;
  std::vector<const Operation*> steps_; ///< as `root` has them: by time
  std::vector<const Operation*> chain_; ///< as they are computed
};

} // namespace

Value* pdc::ops::raiseLstm(Operation& root, Builder& b) {
  if (root.def().name == "concat") return UnrolledLayer(root, b).run();
  return raiseCell(root, b);
}
