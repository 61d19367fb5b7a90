// Reverse-mode differentiation of a whole graph, before it is cut.
//
// Walks the forward operations backwards and asks each op on a path from a trained parameter to a loss for its gradient
// rule. What docs/Semantics.md demands of the bits is decided here: the gradient of a value with several consumers is
// folded from its last consumer to its first, each addition belongs to the earlier consumer, and every use of a
// parameter has an accumulator of its own. Linear in the size of the graph.
#include "pdc/Transforms/Transforms.h"

#include "ProgramOrder.h"
#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"
#include "pdc/IR/Elementwise.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

using namespace pdc;

namespace {

/// What the gradient of a value is needed for.
enum class Need {
  nothing,
  parameters, ///< the value follows from parameters alone: its gradient can wait (phase W)
  activation  ///< the gradient of earlier operations needs it (phase I)
};

class Differentiation final : public GradientContext {
public:
  Differentiation(PassContext& context, Graph& graph)
      : context_(context), graph_(graph), builder_(context.module, graph, context.registry, context.diags),
        forward_(positionsOf(graph)) {}

  Status run();

private:
  /// `operation` uses a trained parameter as operand `operand`, with this gradient.
  struct ParameterUse {
    Operation* operation;
    std::size_t operand;
    Value* gradient;
  };

  // What gradient rules see.
  const Operation& op() const override { return *current_; }
  Value* resultGradient(std::size_t i) const override {
    asked_.insert(i);
    return gradientOf(current_->result(i));
  }
  bool wants(std::size_t i) const override { return needOf(current_->operand(i)) != Need::nothing; }
  Operation* create(std::size_t forOperand, const std::string& name, std::vector<Value*> operands,
                    Attributes attributes, const std::vector<bool>& wantedResults) override;

  // Steps.
  void findNeeds();
  void findWhatStopsGradients();
  Status seedLosses();
  Status differentiate(Operation& operation);
  Status requireWholeGradient(const Operation& operation, const std::vector<Value*>& gradients);
  void putInProgramOrder();
  Status addGradientOutputs();
  void warnOfStoppedGradients();
  void warnOfSteps();
  void freezeWhatHasNoGradient();

  const Operation* stopBehind(const Parameter& parameter) const;
  Need needOf(const Value* value) const;
  Value* gradientOf(const Value* value) const;
  Phase phaseFor(const Value* operand) const;
  Value* seedOf(const Type& type);
  Status addContribution(Value* value, Value* contribution);
  Value* ownedByCurrent(const std::vector<Value*>& gradients, std::size_t i);
  bool canBeAccumulator(const ParameterUse& use) const;
  const Parameter* trainedParameterBehind(const Value* value) const;

  PassContext& context_;
  Graph& graph_;
  Builder builder_;
  Positions forward_; ///< of the forward operations
  std::unordered_map<const Value*, Need> needs_;
  std::unordered_map<const Value*, Value*> gradients_; ///< so far: the fold of the consumers seen
  std::vector<ParameterUse> uses_;                     ///< in the order in which they are found
  Operation* current_ = nullptr;
  mutable std::set<std::size_t> asked_; ///< results of `current_` whose gradient its rule has looked at
  Value* lossScale_ = nullptr;          ///< where it is an input
  /// In program order: operations that a loss depends on and through which no gradient of their operands passes.
  std::vector<const Operation*> stops_;
  std::vector<const Operation*> steps_; ///< elementwise operations whose derivative is 0 everywhere
  bool failed_ = false;
};

} // namespace

Need Differentiation::needOf(const Value* value) const {
  auto it = needs_.find(value);
  return it == needs_.end() ? Need::nothing : it->second;
}

Value* Differentiation::gradientOf(const Value* value) const {
  auto it = gradients_.find(value);
  return it == gradients_.end() ? nullptr : it->second;
}

Phase Differentiation::phaseFor(const Value* operand) const {
  return needOf(operand) == Need::parameters ? Phase::weightGradient : Phase::inputGradient;
}

/// A value needs a gradient when it is a float that a trained parameter leads to.
void Differentiation::findNeeds() {
  std::unordered_set<const Value*> fromData;
  for (const GraphInput& input : graph_.inputs) fromData.insert(input.value);
  for (const Value* value : graph_.parameterValues())
    if (value->parameter()->role == ParameterRole::trained)
      needs_[value] = Need::parameters;
    else if (value->parameter()->role == ParameterRole::state)
      fromData.insert(value);

  for (const auto& operation : graph_.operations()) {
    bool trained = false, data = operation->def().facts.random;
    for (const Value* operand : operation->operands()) {
      trained |= needOf(operand) != Need::nothing;
      data |= fromData.contains(operand);
    }
    for (std::size_t i = 0; i < operation->results().size(); ++i) {
      const Value* result = operation->result(i);
      if (!result) continue;
      if (data) fromData.insert(result);
      const auto& defs = operation->def().results;
      const bool detached = defs[std::min(i, defs.size() - 1)].detached;
      if (trained && !detached && isFloat(result->type().element))
        needs_[result] = data ? Need::activation : Need::parameters;
    }
  }
}

/// Operations that make integers of a few bits of what is trained, which is what quantisation does. (Booleans, and
/// integers that count or choose, have no gradient in anybody's eyes.)
void Differentiation::findWhatStopsGradients() {
  std::unordered_set<const Value*> leadsToLoss;
  for (const GraphOutput& output : graph_.outputs)
    if (output.kind == OutputKind::loss) leadsToLoss.insert(output.value);
  const auto& operations = graph_.operations();
  for (auto it = operations.rbegin(); it != operations.rend(); ++it) {
    const Operation& operation = **it;
    const auto leads = [&](const Value* result) { return result && leadsToLoss.contains(result); };
    if (std::none_of(operation.results().begin(), operation.results().end(), leads)) continue;
    leadsToLoss.insert(operation.operands().begin(), operation.operands().end());
    const ElementType element = operation.result() ? operation.result()->type().element : ElementType::f32;
    const bool isShort = !isFloat(element) && element != ElementType::boolean && pdcrt::bytesOf(element) <= 2;
    const auto isTrained = [&](const Value* operand) { return operand && needOf(operand) != Need::nothing; };
    if (isShort && std::any_of(operation.operands().begin(), operation.operands().end(), isTrained))
      stops_.insert(stops_.begin(), &operation);
  }
}

/// The first of them that `parameter` leads to; null: none.
const Operation* Differentiation::stopBehind(const Parameter& parameter) const {
  std::unordered_set<const Value*> reached;
  for (const Value* value : graph_.parameterValues())
    if (value->parameter() == &parameter) reached.insert(value);
  for (const auto& operation : graph_.operations()) {
    if (!isForward(*operation)) break;
    const auto& operands = operation->operands();
    if (std::none_of(operands.begin(), operands.end(), [&](const Value* v) { return reached.contains(v); })) continue;
    if (std::find(stops_.begin(), stops_.end(), operation.get()) != stops_.end()) return operation.get();
    reached.insert(operation->results().begin(), operation->results().end());
  }
  return nullptr;
}

/// 1, or the loss scale: a number, or an input of the graph, which a dynamic scale is.
Value* Differentiation::seedOf(const Type& type) {
  const std::string& scale = context_.options["loss_scale"];
  if (scale == "dynamic") {
    if (!lossScale_) lossScale_ = graph_.addInput({ElementType::f32, {}}, "loss_scale", InputKind::lossScale);
    Value* scaled = lossScale_;
    if (type.element != ElementType::f32)
      scaled = builder_.value("cast", {scaled}, {{"to", std::string(nameOf(type.element))}});
    // The seed is made here, as that of a number is.
    return scaled ? builder_.value("mul", {scaled, builder_.constant(1, type.element)}) : nullptr;
  }
  Tensor seed(type);
  seed.set(0, 1);
  if (!scale.empty()) {
    double number = 0;
    const char* end = scale.data() + scale.size();
    if (auto [at, error] = std::from_chars(scale.data(), end, number);
        error != std::errc() || at != end || !(number > 0) || !std::isfinite(number)) {
      static_cast<void>(context_.diags.error({}).exit(ExitCode::usage)
                        << "loss_scale is '" << scale << "', expected a number above 0 or 'dynamic'");
      return nullptr;
    }
    seed.set(0, number);
  }
  return builder_.constant(seed);
}

/// The gradient of each loss is its seed; it is the last consumer of its value.
Status Differentiation::seedLosses() {
  bool any = false;
  const std::vector<GraphOutput> outputs = graph_.outputs;
  for (auto output = outputs.rbegin(); output != outputs.rend(); ++output) {
    if (output->kind != OutputKind::loss || needOf(output->value) == Need::nothing || !output->value->definer())
      continue;
    any = true;
    current_ = output->value->definer();
    builder_.setLocation(current_->location);
    builder_.setPhase(Phase::inputGradient, current_);
    builder_.setGroup(current_->group);
    Value* seed = seedOf(output->value->type());
    if (!seed || !addContribution(output->value, seed)) return failure;
  }
  if (any) return success;
  const bool hasLoss = std::any_of(outputs.begin(), outputs.end(),
                                   [](const GraphOutput& output) { return output.kind == OutputKind::loss; });
  if (!hasLoss)
    return context_.diags.error({.file = context_.module.file}).help("name one with --loss=")
           << "there is no loss to differentiate";
  Diagnostic error{.location = {.file = context_.module.file}, .message = "no trained parameter influences the loss"};
  if (!stops_.empty())
    error.notes.push_back("no gradient passes '" + describe(*stops_.front()) + "', which makes integers");
  std::vector<const Parameter*> integers;
  for (const auto& parameter : context_.module.parameters)
    if (const ElementType element = parameter->type.element;
        !isFloat(element) && element != ElementType::boolean && pdcrt::bytesOf(element) == 1)
      integers.push_back(parameter.get());
  if (!integers.empty())
    error.notes.push_back(std::to_string(integers.size()) + (integers.size() == 1 ? " weight is" : " weights are") +
                          " stored as 8-bit integers, '" + integers.front()->name + "' first: integers do not learn");
  error.helps.push_back(error.notes.empty()
                            ? "check --freeze= and --train=, and that the loss is computed from the model's output"
                            : "export the model before it is quantized, or with QuantizeLinear and DequantizeLinear in "
                              "pairs, as quantisation-aware training does");
  context_.diags.report(std::move(error));
  return failure;
}

/// Folds one more contribution into the gradient of `value`. The addition belongs to the current operation.
Status Differentiation::addContribution(Value* value, Value* contribution) {
  Value*& gradient = gradients_[value];
  if (!gradient) {
    gradient = contribution;
    return success;
  }
  builder_.setPhase(phaseFor(value), current_);
  Value* sum = builder_.value("add", {gradient, contribution});
  if (!sum) return failure;
  graph_.rename(gradient, value->name() + ".gradient.part");
  gradient = sum;
  return success;
}

/// A rule may return its result's gradient as it is, for several operands (an addition does). The cut must nevertheless
/// see that the gradient of operand i leaves from the stage of this consumer: a view, which costs nothing, says so.
Value* Differentiation::ownedByCurrent(const std::vector<Value*>& gradients, std::size_t i) {
  const auto next = gradients.begin() + static_cast<std::ptrdiff_t>(i) + 1;
  const bool shared = std::find(next, gradients.end(), gradients[i]) != gradients.end();
  if (gradients[i]->definer()->origin() == current_ && !shared) return gradients[i];
  builder_.setPhase(phaseFor(current_->operand(i)), current_);
  return builder_.value("reshape", {gradients[i]}, {{"shape", gradients[i]->type().shape}});
}

Operation* Differentiation::create(std::size_t forOperand, const std::string& name, std::vector<Value*> operands,
                                   Attributes attributes, const std::vector<bool>& wantedResults) {
  builder_.setPhase(phaseFor(current_->operand(forOperand)), current_);
  Operation* made = builder_.create(name, std::move(operands), std::move(attributes), wantedResults);
  if (!made) {
    failed_ = true;
    return nullptr;
  }
  if (made->phase == Phase::inputGradient)
    for (const Value* operand : made->operands())
      if (operand && operand->definer()) computeWithInputGradients(*operand->definer());
  return made;
}

const Parameter* Differentiation::trainedParameterBehind(const Value* value) const {
  while (!value->parameter()) {
    const auto& operands = value->definer()->operands();
    value = *std::find_if(operands.begin(), operands.end(),
                          [&](const Value* operand) { return needOf(operand) != Need::nothing; });
  }
  return value->parameter();
}

Status Differentiation::differentiate(Operation& operation) {
  const auto& results = operation.results();
  const auto& operands = operation.operands();
  const bool reached = std::any_of(results.begin(), results.end(), [&](const Value* v) { return v && gradientOf(v); });
  const auto wanted =
      std::find_if(operands.begin(), operands.end(), [&](const Value* v) { return needOf(v) != Need::nothing; });
  if (!reached || wanted == operands.end()) return success;

  const OpDef& def = operation.def();
  if (!def.gradient && def.kind != OpKind::elementwise)
    return context_.diags.error(operation.location)
               .exit(ExitCode::unsupported)
               .help("freeze what lies before it (--freeze=REGEX), or give the op a gradient (docs/AddingAnOp.md)")
           << "'" << def.name << "' op has no gradient, and parameter '" << trainedParameterBehind(*wanted)->name
           << "' is trained through it";

  current_ = &operation;
  asked_.clear();
  builder_.setLocation(operation.location);
  builder_.setGroup(operation.group);
  const std::vector<Value*> gradients = def.gradient ? def.gradient(*this) : elementwiseGradient(*this);
  if (failed_) return failure;
  if (gradients.size() < operands.size()) // more: of optional operands that are absent
    return context_.diags.error(operation.location).exit(ExitCode::internal)
           << "the gradient rule of '" << def.name << "' returns " << gradients.size() << " gradients for "
           << operands.size() << " operands";
  if (def.gradient && !requireWholeGradient(operation, gradients)) return failure;

  for (std::size_t i = operands.size(); i-- > 0;) {
    if (wants(i) && !gradients[i] && !def.gradient) steps_.push_back(&operation);
    if (!wants(i) || !gradients[i]) continue;
    if (gradients[i]->type() != operands[i]->type())
      return context_.diags.error(operation.location).exit(ExitCode::internal)
             << "the gradient rule of '" << def.name << "' returns " << toString(gradients[i]->type())
             << " for operand " << i << ", which is " << toString(operands[i]->type());
    if (operands[i]->parameter()) {
      uses_.push_back({&operation, i, gradients[i]});
      continue;
    }
    Value* contribution = ownedByCurrent(gradients, i);
    if (!contribution || !addContribution(operands[i], contribution)) return failure;
  }
  return success;
}

/// Reports where a rule leaves something out: the gradient of a result that the loss depends on (a mean beside what it
/// normalises), or for an operand that is trained (the class weights of a loss).
Status Differentiation::requireWholeGradient(const Operation& operation, const std::vector<Value*>& gradients) {
  const auto refuse = [&](const char* what, std::size_t i, const Parameter& parameter) {
    return context_.diags.error(operation.location)
               .exit(ExitCode::unsupported)
               .help("freeze what lies before it (--freeze=REGEX)")
           << "'" << operation.def().name << "' op has no gradient " << what << " " << i << ", and parameter '"
           << parameter.name << "' is trained through it";
  };
  const auto& operands = operation.operands();
  for (std::size_t i = 0; i < operation.results().size(); ++i)
    if (operation.result(i) && gradientOf(operation.result(i)) && !asked_.contains(i)) {
      const auto wanted =
          std::find_if(operands.begin(), operands.end(), [&](const Value* v) { return needOf(v) != Need::nothing; });
      return refuse("of result", i, *trainedParameterBehind(*wanted));
    }
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (wants(i) && !gradients[i]) return refuse("for operand", i, *trainedParameterBehind(operands[i]));
  return success;
}

/// An accumulator is written by the operation that computes the gradient. That does not go for a value which is
/// something else as well, or which may arrive from another stage: an operation that follows from parameters alone is
/// in the stage of what uses it, others have a place of their own.
bool Differentiation::canBeAccumulator(const ParameterUse& use) const {
  const Value* root = rootOf(use.gradient);
  const Operation& definer = *root->definer();
  if (isConstant(definer)) return false;
  if (definer.origin() != use.operation &&
      (definer.phase != Phase::weightGradient || needOf(use.operation->result()) != Need::parameters))
    return false;
  for (const Value* link = use.gradient;; link = link->definer()->operand(0)) {
    const std::size_t expectedUsers = link == use.gradient ? 0 : 1;
    if (link->users().size() != expectedUsers || graph_.isOutput(link)) return false;
    if (link == root) return true;
  }
}

/// One output per use, in program order of the uses.
Status Differentiation::addGradientOutputs() {
  std::sort(uses_.begin(), uses_.end(), [&](const ParameterUse& a, const ParameterUse& b) {
    return std::pair(forward_.at(a.operation), a.operand) < std::pair(forward_.at(b.operation), b.operand);
  });
  for (const ParameterUse& use : uses_) {
    Parameter* parameter = use.operation->operand(use.operand)->parameter();
    Value* gradient = use.gradient;
    if (!canBeAccumulator(use)) {
      gradient = copyOf(context_, graph_, gradient, *use.operation, Phase::weightGradient);
      if (!gradient) return failure;
    }
    graph_.rename(gradient, parameter->name + ".gradient");
    graph_.outputs.push_back({.kind = OutputKind::gradient, .value = gradient, .name = {}, .parameter = parameter});
  }
  for (const auto& operation : graph_.operations())
    for (Value* result : operation->results())
      if (Value* gradient = result ? gradientOf(result) : nullptr; gradient && !isConstant(*gradient->definer()))
        graph_.rename(gradient, result->name() + ".gradient");
  return success;
}

/// Backward operations follow the forward ones, in reverse program order of their origins, phase I before phase W.
void Differentiation::putInProgramOrder() {
  std::vector<Operation*> order;
  for (const auto& operation : graph_.operations()) order.push_back(operation.get());
  std::stable_sort(order.begin() + static_cast<std::ptrdiff_t>(forward_.size()), order.end(),
                   [&](const Operation* a, const Operation* b) {
                     const std::size_t first = forward_.at(a->origin()), second = forward_.at(b->origin());
                     return first != second ? first > second : a->phase < b->phase;
                   });
  graph_.reorder(order);
}

/// Where a gradient is lost on one way to the loss, what is left of it on others is wrong.
void Differentiation::warnOfStoppedGradients() {
  if (stops_.empty()) return;
  context_.diags.warning(stops_.front()->location)
          .help("quantisation-aware training has a DequantizeLinear behind each QuantizeLinear: export such a model")
      << (stops_.size() == 1 ? "makes" : "and " + std::to_string(stops_.size() - 1) + " others make")
      << " integers of what is trained: no gradient passes, what lies before learns nothing through it";
}

/// What rounds has the derivative 0. A straight-through estimator, x + (round(x) - x).detach(), loses its detach when
/// it is exported, and with it the gradient.
void Differentiation::warnOfSteps() {
  if (steps_.empty()) return;
  context_.diags.warning(steps_.back()->location)
          .help("a straight-through estimator is exported as QuantizeLinear and DequantizeLinear in a row, or as "
                "torch.fake_quantize_per_tensor_affine; --freeze= says that this is meant")
      << "has the derivative 0"
      << (steps_.size() == 1 ? "" : ", as have " + std::to_string(steps_.size() - 1) + " other operations")
      << ": what is trained before learns nothing through it";
}

void Differentiation::freezeWhatHasNoGradient() {
  std::unordered_set<const Parameter*> used;
  for (const ParameterUse& use : uses_) used.insert(use.operation->operand(use.operand)->parameter());
  for (const auto& parameter : context_.module.parameters) {
    if (parameter->role != ParameterRole::trained || used.contains(parameter.get())) continue;
    parameter->role = ParameterRole::frozen;
    if (const Operation* stop = stopBehind(*parameter)) {
      context_.diags.warning(parameter->location).help("name it in --freeze= if that is meant")
          << "parameter '" << parameter->name << "' is not trained: no gradient passes '" << describe(*stop)
          << "', which makes integers of what it leads to";
      continue;
    }
    context_.diags.warning(parameter->location).help("name it in --freeze= if that is meant")
        << "parameter '" << parameter->name << "' does not influence the loss and is not trained";
  }
}

Status Differentiation::run() {
  for (const auto& operation : graph_.operations())
    if (!isForward(*operation))
      return context_.diags.error(operation->location) << "graph '@" << graph_.name() << "' is differentiated already";
  findNeeds();
  findWhatStopsGradients();
  if (!seedLosses()) return failure;
  warnOfStoppedGradients();
  // A copy: the graph's own list grows meanwhile.
  std::vector<Operation*> forward(forward_.size());
  for (const auto& [operation, position] : forward_) forward[position] = const_cast<Operation*>(operation);
  for (auto operation = forward.rbegin(); operation != forward.rend(); ++operation)
    if (!differentiate(**operation)) return failure;
  warnOfSteps();
  if (!addGradientOutputs()) return failure;
  putInProgramOrder();
  freezeWhatHasNoGradient();
  eraseDeadOperations(graph_);
  return success;
}

Status pdc::differentiate(PassContext& context) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  // The order in which parts of a gradient are added up is that of the fusion groups, then.
  putInProgramOrder(**graph);
  return Differentiation(context, **graph).run();
}
