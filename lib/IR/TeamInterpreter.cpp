#include "pdc/IR/TeamInterpreter.h"

#include "pdc/IR/Elementwise.h"
#include "pdc/IR/TeamTensors.h"

#include <unordered_map>

using namespace pdc;

namespace {

/// A value as every member has it.
using OfMembers = std::vector<Tensor>;

class TeamRun {
public:
  TeamRun(const Graph& graph, Precision precision, Diagnostics& diags)
      : graph_(graph), members_(graph.team.members), precision_(precision), diags_(diags) {}

  Status bind(const std::map<std::string, Tensor>& inputs, const std::map<std::string, Tensor>& parameters);
  Status run(std::uint64_t seed, std::uint64_t minibatch);
  Expected<InterpreterResult> collect();

private:
  Status bind(const Value& value, const Type& whole, const Form& form, const std::map<std::string, Tensor>& tensors);
  const std::vector<std::int32_t>* orderOf(const Parameter* parameter) const {
    const auto found = graph_.team.orders.find(parameter);
    return found == graph_.team.orders.end() ? nullptr : &found->second;
  }
  Expected<std::vector<OfMembers>> runApart(const Operation& operation, std::uint64_t seed, std::uint64_t minibatch);
  std::vector<OfMembers> runTogether(const Operation& operation);
  Expected<Tensor> whole(const GraphOutput& output);
  Failure failed(const std::string& problem) {
    return diags_.error({.node = "@" + graph_.name()}).exit(ExitCode::internal) << problem;
  }

  const Graph& graph_;
  const std::int64_t members_;
  Precision precision_;
  Diagnostics& diags_;
  std::unordered_map<const Value*, OfMembers> tensors_;
  std::unordered_map<const Value*, std::size_t> usesLeft_;
};

Status TeamRun::bind(const Value& value, const Type& type, const Form& form,
                     const std::map<std::string, Tensor>& tensors) {
  const auto found = tensors.find(value.name());
  if (found == tensors.end()) return failed("'" + value.name() + "' has no value");
  if (found->second.shape() != type.shape)
    return failed("'" + value.name() + "' is " + toString(type.shape) + ", its value " +
                  toString(found->second.shape()));
  Tensor tensor = found->second.convertedTo(heldAs(type.element, precision_));
  if (precision_ == Precision::f32) roundTo(tensor, type.element);
  if (const auto* order = orderOf(value.parameter())) tensor = inOrder(tensor, form.axis, *order);
  OfMembers& parts = tensors_[&value];
  for (std::int64_t m = 0; m < members_; ++m) parts.push_back(partOf(tensor, form, members_, m));
  return success;
}

Status TeamRun::bind(const std::map<std::string, Tensor>& inputs, const std::map<std::string, Tensor>& parameters) {
  for (const GraphInput& input : graph_.inputs)
    if (!bind(*input.value, input.value->type(), {}, inputs)) return failure;
  for (const Value* value : graph_.parameterValues())
    if (!bind(*value, value->parameter()->type, graph_.team.formOf(*value->parameter()), parameters)) return failure;
  return success;
}

/// Results of an operation that each member computes by itself.
Expected<std::vector<OfMembers>> TeamRun::runApart(const Operation& operation, std::uint64_t seed,
                                                   std::uint64_t minibatch) {
  std::vector<OfMembers> results(operation.results().size());
  for (std::int64_t m = 0; m < members_; ++m) {
    std::vector<const Tensor*> operands;
    for (const Value* operand : operation.operands())
      operands.push_back(operand ? &tensors_.at(operand)[static_cast<std::size_t>(m)] : nullptr);
    Expected<std::vector<Tensor>> own = interpretOperation(operation, operands, precision_, diags_, seed, minibatch, m);
    if (!own) return failure;
    for (std::size_t i = 0; i < own->size(); ++i) results[i].push_back(std::move((*own)[i]));
  }
  return results;
}

/// Adds `added` to every element, or along an axis.
void addTo(Tensor& sum, const Tensor& added, std::optional<int> along) {
  std::int64_t inner = 1, size = sum.elements();
  if (along) {
    size = added.elements();
    for (std::size_t axis = static_cast<std::size_t>(*along) + 1; axis < sum.shape().size(); ++axis)
      inner *= sum.shape()[axis];
  }
  for (std::int64_t i = 0; i < sum.elements(); ++i) sum.set(i, sum.asDouble(i) + added.asDouble(i / inner % size));
}

/// Results of a collective, by its definition. What was started is computed where it is finished.
std::vector<OfMembers> TeamRun::runTogether(const Operation& operation) {
  const OpSplit& split = operation.def().split;
  if (split.half == CollectiveHalf::start)
    return {OfMembers(static_cast<std::size_t>(members_), Tensor(operation.result()->type()))};
  const Reformed reformed = split.forms(operation);
  Tensor value = composed(tensors_.at(operation.operand(0)), reformed.from);
  if (const Value* added = operation.operand(split.half == CollectiveHalf::finish ? 2 : 1))
    addTo(value, tensors_.at(added).front(), reformed.addedAlong);
  OfMembers result;
  for (std::int64_t m = 0; m < members_; ++m) result.push_back(partOf(value, reformed.to, members_, m));
  return {result};
}

Status TeamRun::run(std::uint64_t seed, std::uint64_t minibatch) {
  for (const auto& operation : graph_.operations())
    for (const Value* operand : operation->operands())
      if (operand) ++usesLeft_[operand];
  for (const GraphOutput& output : graph_.outputs) ++usesLeft_[output.value]; // outputs stay

  for (const auto& operation : graph_.operations()) {
    Expected<std::vector<OfMembers>> results =
        operation->def().kind == OpKind::collective ? runTogether(*operation) : runApart(*operation, seed, minibatch);
    if (!results) return failure;
    for (std::size_t i = 0; i < results->size(); ++i) {
      const Value* result = operation->result(i);
      if (!result || !usesLeft_.contains(result)) continue;
      if (precision_ == Precision::f32)
        for (Tensor& tensor : (*results)[i]) roundTo(tensor, result->type().element);
      tensors_[result] = std::move((*results)[i]);
    }
    for (const Value* operand : operation->operands())
      if (operand && --usesLeft_.at(operand) == 0) tensors_.erase(operand);
  }
  return success;
}

Expected<Tensor> TeamRun::whole(const GraphOutput& output) {
  const OfMembers& tensors = tensors_.at(output.value);
  const Form form = graph_.team.formOf(output);
  if (form.isWhole())
    for (const Tensor& tensor : tensors)
      if (!(tensor == tensors.front()))
        return failed("members have different values of '" + output.value->name() + "'");
  const auto* order = orderOf(output.parameter);
  return order ? outOfOrder(composed(tensors, form), form.axis, *order) : composed(tensors, form);
}

Expected<InterpreterResult> TeamRun::collect() {
  InterpreterResult result;
  for (const GraphOutput& output : graph_.outputs) {
    const Expected<Tensor> tensor = whole(output);
    if (!tensor) return failure;
    add(result, output, *tensor);
  }
  return result;
}

} // namespace

Expected<InterpreterResult> pdc::interpretTeam(const Graph& graph, const std::map<std::string, Tensor>& inputs,
                                               const std::map<std::string, Tensor>& parameters, Precision precision,
                                               Diagnostics& diags, std::uint64_t seed, std::uint64_t minibatch) {
  TeamRun run(graph, precision, diags);
  if (!run.bind(inputs, parameters) || !run.run(seed, minibatch)) return failure;
  return run.collect();
}
