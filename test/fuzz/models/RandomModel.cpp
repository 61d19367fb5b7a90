#include "RandomModel.h"

#include "pdc/IR/Builder.h"
#include "pdc/IR/Elementwise.h"
#include "pdc/IR/Interpreter.h"
#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"
#include "pdc/Ops/AllOps.h"
#include "pdc/Transforms/Transforms.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <random>
#include <unordered_map>
#include <unordered_set>

using namespace pdc;
using namespace pdc::testing;

const OpRegistry& pdc::testing::allOps() {
  static const OpRegistry* registry = [] {
    auto* ops = new OpRegistry;
    registerAllOps(*ops);
    return ops;
  }();
  return *registry;
}

namespace {

/// An example of an op, as a graph.
struct Example {
  const OpDef* def;
  std::unique_ptr<Module> module;
  bool differentiable;
  const Graph& graph() const { return *module->graphs.front(); }
};

/// Element types that generated programs compute with.
bool isComputed(const Type& type) {
  return !isFloat(type.element) || type.element == ElementType::f32;
}

bool canBeComputed(const Graph& graph) {
  for (const GraphInput& input : graph.inputs)
    if (!isComputed(input.value->type())) return false;
  for (const auto& operation : graph.operations())
    for (const Value* result : operation->results())
      if (result && (!isComputed(result->type()) || result->type().layout != plain)) return false;
  return true;
}

const std::vector<Example>& examples() {
  static const auto* all = [] {
    auto* list = new std::vector<Example>;
    for (const OpDef* def : allOps().all())
      for (const std::string& text : def->examples) {
        Diagnostics silent(nullptr);
        auto module = parseModule("module @e { graph @main" + text + " }", "example", allOps(), silent);
        if (module && canBeComputed(*(*module)->graphs.front()))
          list->push_back({def, *std::move(module), def->gradient || def->kind == OpKind::elementwise});
      }
    return list;
  }();
  return *all;
}

/// Products of activations with weights are where a model is cut: they come often.
enum class Sort { elementwise, product, other, none };
Sort sortOf(const Example& example) {
  const OpDef& def = *example.def;
  if (def.kind == OpKind::elementwise) return Sort::elementwise;
  if (def.kind == OpKind::constant || def.facts.lossLike) return Sort::none;
  return example.differentiable && def.precision == PrecisionClass::preferLow ? Sort::product : Sort::other;
}

class Drawing {
public:
  explicit Drawing(std::uint64_t seed)
      : random_(seed), silent_(nullptr), graph_(*module_.graphs.emplace_back(std::make_unique<Graph>("main"))),
        builder_(module_, graph_, allOps(), silent_), tensors_(dataMinibatches) {
    module_.name = "random" + std::to_string(seed);
  }

  /// The text of the model; empty when it came to nothing.
  std::string run() {
    for (int i = between(1, 2); i > 0; --i) pool_.push_back(newInput({ElementType::f32, shape()}, "x"));
    if (chance(0.4)) projectTable();
    const int wanted = between(2, 18);
    for (int made = 0, tries = 0; made < wanted && tries < 10 * wanted; ++tries) made += attempt();
    for (Value* projection : projections_)
      if (projection->users().empty()) pool_.push_back(projection);
    if (!addLosses()) return {};
    dropUnused();
    return print(module_);
  }
  std::vector<Tensors> inputs() const {
    std::vector<Tensors> values(dataMinibatches);
    for (const GraphInput& input : graph_.inputs)
      for (std::size_t m = 0; m < values.size(); ++m)
        values[m][input.value->name()] = tensors_[m].at(input.value).convertedTo(input.value->type().element);
    return values;
  }
  Tensors parameters() const {
    Tensors values;
    for (const Value* value : graph_.parameterValues())
      values[value->name()] = tensors_[0].at(value).convertedTo(value->type().element);
    return values;
  }

private:
  int between(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
  template <class T>
  const T& oneOf(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(between(0, static_cast<int>(list.size()) - 1))];
  }

  Shape shape() {
    Shape dims;
    for (int rank = between(0, 4); rank > 0; --rank) dims.push_back(chance(0.25) ? 1 : between(2, 5));
    return dims;
  }

  // Leaves, with values. Floats keep a distance of 0.05 from multiples of a half, where many functions have kinks.

  Tensor valuesOf(const Type& type, const std::string& name) {
    Tensor tensor(type);
    const bool positive = name.find("positive") != std::string::npos;
    const int largest = name.find("lengths") != std::string::npos ? 3 : 1; // else labels, indices, masks
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const double number = 0.05 + 0.4 * std::uniform_real_distribution<double>(0, 1)(random_) + 0.5 * between(0, 2);
      tensor.set(i, isFloat(type.element) ? (positive || chance(0.5) ? number : -number) : between(0, largest));
    }
    return tensor;
  }
  Value* newInput(const Type& type, const std::string& name) {
    Value* value = graph_.addInput(type, name);
    for (auto& tensors : tensors_) tensors[value] = held(valuesOf(type, name));
    return value;
  }
  Value* newParameter(const Type& type) {
    Parameter* parameter = module_.addParameter({.name = "w" + std::to_string(module_.parameters.size()),
                                                 .type = type,
                                                 .role = ParameterRole::trained,
                                                 .reference = {},
                                                 .location = {}});
    Value* value = graph_.parameterValue(*parameter);
    const Tensor tensor = held(valuesOf(type, ""));
    for (auto& tensors : tensors_) tensors[value] = tensor;
    trained_.insert(value);
    return value;
  }
  static Tensor held(const Tensor& tensor) { return tensor.convertedTo(heldAs(tensor.type().element, Precision::f64)); }

  // Operations.

  Value* create(const std::string& name, std::vector<Value*> operands, Attributes attributes = {}) {
    return noted(builder_.create(name, std::move(operands), std::move(attributes)));
  }
  /// Remembers whether a trained parameter leads to the results.
  Value* noted(Operation* operation) {
    if (!operation) return nullptr;
    const bool trained = std::any_of(operation->operands().begin(), operation->operands().end(),
                                     [&](Value* operand) { return trained_.contains(operand); });
    for (Value* result : operation->results())
      if (result && trained && isFloat(result->type().element)) trained_.insert(result);
    return operation->result();
  }

  Value* flat(Value* x) { return create("reshape", {x}, {{"shape", Shape{x->type().elements()}}}); }
  Value* shaped(Value* x, const Shape& shape) {
    return !x || x->type().shape == shape ? x : create("reshape", {x}, {{"shape", shape}});
  }

  /// `x` in another shape: as it is, its first elements, or its first element with a new parameter.
  Value* adapted(Value* x, const Shape& shape, bool trained) {
    const std::int64_t has = x->type().elements(), wanted = elementsOf(shape);
    if (has == wanted) return shaped(x, shape);
    if (has == 0 || wanted == 0) return nullptr;
    auto first = [&](std::int64_t count) -> Value* {
      Value* all = flat(x);
      if (!all || has == count) return all;
      return create("slice", {all}, {{"starts", Shape{0}}, {"sizes", Shape{count}}, {"steps", Shape{1}}});
    };
    if (has > wanted) return shaped(first(wanted), shape);
    Value* one = shaped(first(1), Shape(shape.size(), 1));
    const Type type{ElementType::f32, shape};
    return one ? create("add", {one, trained ? newParameter(type) : newInput(type, "x")}) : nullptr;
  }

  bool isUsable(const Value* value, bool trained) const { return trained || !trained_.contains(value); }

  /// A value of the pool: one of the last as often as any.
  Value* fromPool(ElementType element, bool trained) {
    std::vector<Value*> fitting;
    for (Value* value : pool_)
      if (value->type().element == element && isUsable(value, trained)) fitting.push_back(value);
    if (fitting.empty()) return nullptr;
    if (chance(0.5) && fitting.size() > 3) fitting.erase(fitting.begin(), fitting.end() - 3);
    return oneOf(fitting);
  }

  Value* integerOperand(const Type& type, const std::string& name) {
    Value* x = chance(0.7) ? fromPool(type.element, true) : nullptr;
    if (x && x->type().elements() == type.elements()) return shaped(x, type.shape);
    return newInput(type, name);
  }

  /// An operand for an input of an example. `trained`: a trained parameter may lead to it. `pooled`: how often it is a
  /// value that is there.
  Value* operandFor(const Type& type, const std::string& name, bool trained, double pooled) {
    if (!isFloat(type.element)) return integerOperand(type, name);
    trained &= !name.starts_with("constant");
    Value* x = chance(pooled) ? fromPool(type.element, trained) : nullptr;
    if (x) x = adapted(x, type.shape, trained);
    if (!x && trained && !unused_.empty() && chance(0.4)) x = projected(type.shape);
    if (!x && trained && chance(0.3)) x = usedParameter(type);
    if (!x) x = trained && chance(0.8) ? newParameter(type) : newInput(type, name);
    if (name.find("positive") == std::string::npos || !x) return x;
    x = create("abs", {x});
    return x ? create("add", {x, builder_.constant(0.5)}) : nullptr;
  }
  Value* usedParameter(const Type& type) {
    std::vector<Value*> fitting;
    for (Value* value : graph_.parameterValues())
      if (value->type() == type && !value->users().empty()) fitting.push_back(value);
    return fitting.empty() ? nullptr : oneOf(fitting);
  }

  /// What layers share that does not depend on the data, as positions relative to each other: a table of parameters
  /// and what is made of it for each layer, before any of them and in another order.
  void projectTable() {
    const Type type{ElementType::f32, {between(2, 4), between(2, 4)}};
    Value* table = create("tanh", {newParameter(type)});
    for (int i = between(2, 6); table && i > 0; --i)
      if (Value* projection = create(chance(0.5) ? "mul" : "add", {table, newParameter(type)}))
        projections_.push_back(projection);
    evaluate(0);
    unused_ = projections_;
    std::shuffle(unused_.begin(), unused_.end(), random_);
  }
  Value* projected(const Shape& shape) {
    Value* projection = unused_.back();
    unused_.pop_back();
    return adapted(projection, shape, true);
  }

  /// A shape that broadcasts to `shape`.
  Shape broadcasting(Shape shape) {
    if (chance(0.5)) return shape;
    shape.erase(shape.begin(), shape.begin() + between(0, static_cast<int>(shape.size())));
    for (std::int64_t& dim : shape)
      if (chance(0.3)) dim = 1;
    return shape;
  }

  /// The operations of an example on operands of this model; null when something does not fit.
  Operation* instantiate(const Example& example) {
    std::unordered_map<const Value*, Value*> copies;
    std::optional<Shape> common; // of elementwise ops
    bool first = true;
    for (const GraphInput& input : example.graph().inputs) {
      Type type = input.value->type();
      if (example.def->kind == OpKind::elementwise) {
        if (!common) {
          const Value* base = fromPool(ElementType::f32, example.differentiable);
          common = base ? base->type().shape : shape();
        }
        type.shape = first ? *common : broadcasting(*common);
      }
      const double pooled = first ? 1 : sortOf(example) == Sort::product ? 0.15 : 0.5;
      Value* operand = operandFor(type, input.value->name(), example.differentiable, pooled);
      if (!operand) return nullptr;
      copies[input.value] = operand;
      first = false;
    }
    Operation* last = nullptr;
    for (const auto& operation : example.graph().operations()) {
      std::vector<Value*> operands;
      for (const Value* operand : operation->operands()) {
        if (operand && !copies.contains(operand)) return nullptr; // what another has for its gradient only
        operands.push_back(operand ? copies.at(operand) : nullptr);
      }
      std::vector<bool> wanted;
      for (const Value* result : operation->results()) wanted.push_back(result != nullptr);
      last = builder_.create(operation->def().name, operands, operation->attributes, wanted);
      if (!last) return nullptr;
      noted(last);
      const std::vector<Value*> known = publicResults(*last);
      for (std::size_t i = 0; i < wanted.size(); ++i)
        if (std::ranges::find(known, last->result(i)) != known.end()) copies[operation->result(i)] = last->result(i);
    }
    return last;
  }

  /// Adds an op and what adapts its operands, or nothing.
  bool attempt() {
    const std::size_t operations = graph_.operations().size();
    const Example* example = nullptr;
    const Sort sort = chance(0.3) ? Sort::elementwise : chance(0.6) ? Sort::product : Sort::other;
    do example = &oneOf(examples());
    while (sortOf(*example) != sort);
    Operation* made = instantiate(*example);
    if (!made || !evaluate(operations)) return takeBack(operations), false;
    for (Value* result : publicResults(*made)) pool_.push_back(bounded(result));
    return true;
  }

  /// Those that the op has when a model is evaluated, too; others are for its gradient. Gradients do not pass detached
  /// ones, differences do.
  std::vector<Value*> publicResults(Operation& operation) {
    const std::size_t operations = graph_.operations().size();
    std::vector<Value*> forms = operation.results();
    if (operation.def().rewrites.evaluation) forms = operation.def().rewrites.evaluation(operation, builder_);
    takeBack(operations);
    const auto& defs = operation.def().results;
    std::vector<Value*> results;
    for (std::size_t i = 0; i < operation.results().size(); ++i)
      if (operation.result(i) && i < forms.size() && forms[i] && !defs[std::min(i, defs.size() - 1)].detached)
        results.push_back(operation.result(i));
    return results;
  }

  void takeBack(std::size_t operations) {
    while (graph_.operations().size() > operations) {
      Operation* last = graph_.operations().back().get();
      for (Value* result : last->results()) {
        trained_.erase(result);
        for (auto& tensors : tensors_) tensors.erase(result);
      }
      graph_.erase(last);
    }
  }

  /// Computes the operations from `begin` on. False: an op refuses its operands, or values are too large.
  bool evaluate(std::size_t begin) {
    for (std::size_t at = begin; at < graph_.operations().size(); ++at)
      for (int m = 0; m < dataMinibatches; ++m)
        if (!evaluate(*graph_.operations()[at], tensors_[static_cast<std::size_t>(m)], m)) return false;
    return true;
  }
  bool evaluate(const Operation& operation, std::unordered_map<const Value*, Tensor>& tensors, int minibatch) {
    for (const Value* result : operation.results())
      if (result && (result->type().elements() > 2000 || !isComputed(result->type()))) return false;
    std::vector<const Tensor*> operands;
    for (const Value* operand : operation.operands()) operands.push_back(operand ? &tensors.at(operand) : nullptr);
    auto results = interpretOperation(operation, operands, Precision::f64, silent_, drawSeed,
                                      static_cast<std::uint64_t>(minibatch));
    if (!results) return false;
    for (std::size_t i = 0; i < results->size(); ++i) {
      if (!operation.result(i)) continue;
      if (!(largest((*results)[i]) < 1e4)) return false;
      tensors[operation.result(i)] = std::move((*results)[i]);
    }
    return true;
  }
  static double largest(const Tensor& tensor) {
    double most = 0;
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (const double size = std::abs(tensor.asDouble(i)); !(size <= most)) most = size; // NaN stays
    return most;
  }

  /// A float of which not much becomes too much.
  Value* bounded(Value* x) {
    if (!isFloat(x->type().element)) return x;
    const double most = largest(tensors_[0].at(x));
    if (most <= 4) return x;
    const std::size_t operations = graph_.operations().size();
    Value* scaled = create("mul", {x, builder_.constant(std::exp2(-std::ceil(std::log2(most))))});
    return scaled && evaluate(operations) ? scaled : x;
  }

  // Losses.

  bool addLosses() {
    std::vector<Value*> ends;
    for (Value* value : pool_)
      if (trained_.contains(value) && value->users().empty() && value->type().elements() > 0) ends.push_back(value);
    std::shuffle(ends.begin(), ends.end(), random_);
    const int most = between(1, 3);
    std::vector<Value*> losses;
    for (Value* end : ends) {
      Value* term = chance(0.3) ? lossOf(end) : meanSquareOf(end);
      if (!term) continue;
      if (static_cast<int>(losses.size()) < most) {
        losses.push_back(term);
      } else {
        Value*& sum = losses[static_cast<std::size_t>(between(0, most - 1))];
        if (!(sum = create("add", {sum, term}))) return false;
      }
    }
    for (Value* loss : losses)
      graph_.outputs.push_back({.kind = OutputKind::loss, .value = loss, .name = {}, .parameter = nullptr});
    return !losses.empty();
  }
  Value* meanSquareOf(Value* x) {
    Value* all = flat(x);
    Value* squares = all ? create("mul", {all, all}) : nullptr;
    return squares ? create("reduce_mean", {squares}, {{"axes", Shape{0}}, {"keep_dims", false}}) : nullptr;
  }
  /// A loss of the registry whose first operand is made of `x`.
  Value* lossOf(Value* x) {
    std::vector<const Example*> candidates;
    for (const Example& example : examples())
      if (example.def->facts.lossLike) candidates.push_back(&example);
    const Graph& graph = oneOf(candidates)->graph();
    const Operation& operation = *graph.operations().back();
    std::vector<Value*> operands;
    for (const Value* operand : operation.operands())
      operands.push_back(!operand                        ? nullptr
                         : operands.empty()              ? adapted(x, operand->type().shape, true)
                         : operand->definer() != nullptr ? nullptr
                                                         : newInput(operand->type(), "label"));
    if (!operands[0]) return nullptr;
    const std::size_t before = graph_.operations().size();
    Operation* made = builder_.create(operation.def().name, operands, operation.attributes);
    Value* loss = noted(made);
    if (loss && loss->type().shape.empty()) return loss;
    takeBack(before);
    return nullptr;
  }
  void dropUnused() {
    std::erase_if(graph_.inputs, [](const GraphInput& input) { return input.value->users().empty(); });
    std::erase_if(module_.parameters, [&](const auto& parameter) {
      const Value* value = graph_.find(parameter->name);
      return !value || value->users().empty();
    });
  }

  std::mt19937_64 random_;
  Diagnostics silent_;
  Module module_;
  Graph& graph_;
  Builder builder_;
  std::vector<Value*> pool_;                 ///< what ops may take
  std::vector<Value*> projections_, unused_; ///< of a table that layers share; those that none has taken
  std::unordered_set<const Value*> trained_;
  std::vector<std::unordered_map<const Value*, Tensor>> tensors_; ///< by minibatch, in f64
};

/// Fusion groups, between which it can be cut.
int groupsOf(const RandomModel& model) {
  Diagnostics silent(nullptr);
  auto module = parseModule(model.text, "random", allOps(), silent);
  PassContext context{**module, allOps(), silent, {}};
  if (!canonicalize(context) || !raise(context) || !differentiate(context) || !fuse(context)) return 1;
  int groups = 0;
  for (const auto& operation : (*module)->findGraph("main")->operations())
    groups = std::max(groups, operation->group + 1);
  return groups;
}

} // namespace

void RandomModel::describe(const Module& module) {
  const Graph& graph = *module.findGraph("main");
  operations = 0;
  for (const auto& operation : graph.operations()) operations += operation->def().kind != OpKind::constant;
  std::erase_if(parameters, [&](const auto& entry) { return !module.findParameter(entry.first); });
  for (Tensors& tensors : inputs) std::erase_if(tensors, [&](const auto& entry) { return !graph.find(entry.first); });
}

std::vector<const OpDef*> pdc::testing::differentiableOps() {
  std::vector<const OpDef*> ops;
  for (const Example& example : examples())
    if (example.differentiable && (ops.empty() || ops.back() != example.def)) ops.push_back(example.def);
  return ops;
}

RandomModel pdc::testing::randomModel(std::uint64_t seed) {
  for (std::uint64_t attempt = 0;; ++attempt) {
    Drawing drawing(seed * 1000 + attempt);
    RandomModel model{.seed = seed, .text = drawing.run(), .inputs = {}, .parameters = {}};
    if (model.text.empty()) continue;
    model.inputs = drawing.inputs();
    model.parameters = drawing.parameters();
    Diagnostics silent(nullptr);
    auto module = parseModule(model.text, "random", allOps(), silent);
    if (!module || !verify(**module, silent)) {
      std::fprintf(stderr, "does not read back:\n%s\n", model.text.c_str());
      std::exit(1);
    }
    model.describe(**module);
    if (model.operations < 5 || model.operations > 40 || !isSound(model)) continue;
    if (groupsOf(model) > static_cast<int>(seed % 4) || attempt > 50) return model;
  }
}
