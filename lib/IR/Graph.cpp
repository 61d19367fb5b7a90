// Graphs of operations: ownership, names, uses.
#include "pdc/IR/Graph.h"

#include "pdc/IR/OpDef.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

using namespace pdc;

struct Graph::Names {
  std::unordered_map<std::string, Value*> values;
  std::unordered_map<std::string, int> suffixes; ///< last suffix tried, so that many equal names stay linear
  int next = 0;                                  ///< for values without a name
};

const char* pdc::nameOf(Phase phase) {
  switch (phase) {
  case Phase::forward: return "F";
  case Phase::inputGradient: return "I";
  case Phase::weightGradient: return "W";
  }
  return "";
}

/// Removes one entry of `operation`: one that uses a value twice is listed twice.
static void removeOne(std::vector<Operation*>& operations, const Operation* operation) {
  auto it = std::find(operations.begin(), operations.end(), operation);
  assert(it != operations.end());
  operations.erase(it);
}

void Operation::setOperand(std::size_t i, Value* value) {
  assert(i < operands_.size());
  if (operands_[i]) removeOne(operands_[i]->users_, this);
  operands_[i] = value;
  if (value) value->users_.push_back(this);
}

void Operation::setOrigin(Operation* origin) {
  if (origin_) removeOne(origin_->derived_, this);
  origin_ = origin;
  if (origin) origin->derived_.push_back(this);
}

void Operation::giveDerivedTo(Operation& other) {
  assert(&other != this);
  for (Operation* operation : derived_) {
    operation->origin_ = &other;
    other.derived_.push_back(operation);
  }
  derived_.clear();
}

Graph::Graph(std::string name) : name_(std::move(name)), names_(std::make_unique<Names>()) {}
Graph::~Graph() = default;

std::string Graph::uniqueName(const std::string& wanted) {
  std::string name = wanted;
  if (wanted.empty()) {
    do name = std::to_string(names_->next++);
    while (names_->values.contains(name));
    return name;
  }
  if (!names_->values.contains(name)) return name;
  int& suffix = names_->suffixes[wanted];
  do name = wanted + "." + std::to_string(++suffix);
  while (names_->values.contains(name));
  return name;
}

Value* Graph::newValue(Type type, const std::string& name) {
  Value* value = values_.emplace_back(new Value).get();
  value->place_ = values_.size() - 1;
  value->type_ = std::move(type);
  value->name_ = uniqueName(name);
  names_->values[value->name_] = value;
  return value;
}

Value* Graph::addInput(Type type, const std::string& name, InputKind kind) {
  Value* value = newValue(std::move(type), name);
  inputs.push_back({.value = value, .kind = kind});
  return value;
}

Value* Graph::parameterValue(Parameter& parameter) {
  if (Value* found = find(parameter.name)) {
    if (found->parameter_ == &parameter) return found;
    // A parameter keeps its name, by which weights files know it; another value gives way.
    rename(found, uniqueName(parameter.name));
  }
  Value* value = newValue(team.typeOf(parameter), parameter.name);
  value->parameter_ = &parameter;
  parameterValues_.push_back(value);
  return value;
}

void Graph::eraseParameterValue(Value* value) {
  std::erase(parameterValues_, value);
  destroy(value);
}

Operation* Graph::addOperation(const OpDef& def, std::vector<Value*> operands,
                               const std::vector<const Type*>& resultTypes, Attributes attributes, Location location,
                               const Operation* before, const std::vector<std::string>& resultNames) {
  std::unique_ptr<Operation> owned(new Operation);
  Operation* operation = owned.get();
  operation->def_ = &def;
  operation->operands_ = std::move(operands);
  operation->attributes = std::move(attributes);
  operation->location = std::move(location);
  for (Value* operand : operation->operands_)
    if (operand) operand->users_.push_back(operation);
  for (std::size_t i = 0; i < resultTypes.size(); ++i) {
    Value* result = nullptr;
    if (resultTypes[i]) {
      result = newValue(*resultTypes[i], i < resultNames.size() ? resultNames[i] : "");
      result->definer_ = operation;
      result->resultIndex_ = static_cast<int>(i);
    }
    operation->results_.push_back(result);
  }
  auto position = before ? std::find_if(operations_.begin(), operations_.end(),
                                        [&](const auto& other) { return other.get() == before; })
                         : operations_.end();
  assert((!before || position != operations_.end()) && "the insertion point is not in this graph");
  operations_.insert(position, std::move(owned));
  return operation;
}

void Graph::replaceAllUses(Value* from, Value* to) {
  if (from == to) return;
  for (Operation* user : from->users_)
    for (Value*& operand : user->operands_)
      if (operand == from) {
        operand = to;
        to->users_.push_back(user);
      }
  from->users_.clear();
  for (GraphOutput& output : outputs)
    if (output.value == from) output.value = to;
}

/// Forgets a value that nobody uses; the last one takes its place.
void Graph::destroy(Value* value) {
  assert(value->users_.empty() && !isOutput(value) && "a value of an erased operation is still used");
  names_->values.erase(value->name_);
  const std::size_t place = value->place_;
  std::swap(values_[place], values_.back());
  values_[place]->place_ = place;
  values_.pop_back();
}

/// Of an operation that goes: it comes from nothing, and nothing comes from it.
static void forgetOrigins(Operation& operation) {
  operation.setOrigin(nullptr);
  while (!operation.derived().empty()) operation.derived().back()->setOrigin(nullptr);
}

void Graph::erase(Operation* operation) {
  for (Value* operand : operation->operands_)
    if (operand) std::erase(operand->users_, operation);
  for (Value* value : operation->results_)
    if (value) destroy(value);
  forgetOrigins(*operation);
  // From the back: passes erase what they have just made.
  const auto found = std::find_if(operations_.rbegin(), operations_.rend(),
                                  [&](const auto& other) { return other.get() == operation; });
  operations_.erase(std::next(found).base());
}

void Graph::eraseIf(const std::vector<bool>& deadByPosition) {
  std::unordered_set<const Operation*> dead;
  std::unordered_set<Value*> used;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    if (!deadByPosition[i]) continue;
    dead.insert(operations_[i].get());
    for (Value* operand : operations_[i]->operands_)
      if (operand) used.insert(operand);
  }
  if (dead.empty()) return;
  for (Value* value : used) std::erase_if(value->users_, [&](const Operation* user) { return dead.contains(user); });
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    if (!deadByPosition[i]) continue;
    Operation& operation = *operations_[i];
    for (Value* value : operation.results_)
      if (value) destroy(value);
    forgetOrigins(operation);
  }
  std::erase_if(operations_, [&](const auto& operation) { return dead.contains(operation.get()); });
}

void Graph::reorder(const std::vector<Operation*>& order) {
  assert(order.size() == operations_.size());
  std::unordered_map<const Operation*, std::size_t> positions;
  for (std::size_t i = 0; i < order.size(); ++i) positions[order[i]] = i;
  assert(positions.size() == operations_.size());
  std::vector<std::unique_ptr<Operation>> sorted(operations_.size());
  for (auto& operation : operations_) {
    const std::size_t position = positions.at(operation.get());
    sorted[position] = std::move(operation);
  }
  operations_ = std::move(sorted);
}

Value* Graph::find(const std::string& name) const {
  auto it = names_->values.find(name);
  return it == names_->values.end() ? nullptr : it->second;
}

bool Graph::isOutput(const Value* value) const {
  return std::any_of(outputs.begin(), outputs.end(), [&](const GraphOutput& output) { return output.value == value; });
}

void Graph::rename(Value* value, const std::string& name) {
  if (value->name_ == name) return;
  const std::string unique = uniqueName(name);
  names_->values.erase(value->name_);
  value->name_ = unique;
  names_->values[unique] = value;
}

std::unique_ptr<Graph> pdc::clone(const Graph& graph, const std::string& name) {
  auto copy = std::make_unique<Graph>(name);
  copy->team = graph.team;
  std::unordered_map<const Value*, Value*> values;
  std::unordered_map<const Operation*, Operation*> operations;
  auto copyOf = [&](const Value* value) { return value ? values.at(value) : nullptr; };

  for (const GraphInput& input : graph.inputs) {
    values[input.value] = copy->addInput(input.value->type(), input.value->name(), input.kind);
    GraphInput& added = copy->inputs.back();
    added.peer = input.peer;
    added.gradient = input.gradient;
    added.share = input.share;
    added.classes = input.classes;
  }
  for (const Value* value : graph.parameterValues()) values[value] = copy->parameterValue(*value->parameter());
  for (const auto& operation : graph.operations()) {
    std::vector<Value*> operands;
    for (const Value* operand : operation->operands()) operands.push_back(copyOf(operand));
    std::vector<const Type*> types;
    std::vector<std::string> names;
    for (const Value* result : operation->results()) {
      types.push_back(result ? &result->type() : nullptr);
      names.push_back(result ? result->name() : "");
    }
    Operation* added = copy->addOperation(operation->def(), std::move(operands), types, operation->attributes,
                                          operation->location, nullptr, names);
    for (std::size_t i = 0; i < names.size(); ++i)
      if (Value* result = operation->result(i)) values[result] = added->result(i);
    added->phase = operation->phase;
    added->again = operation->again;
    added->group = operation->group;
    added->stage = operation->stage;
    operations[operation.get()] = added;
  }
  // Origins last: program order need not put them first.
  for (const auto& operation : graph.operations())
    if (operation->origin()) operations.at(operation.get())->setOrigin(operations.at(operation->origin()));
  for (GraphOutput output : graph.outputs) {
    output.value = copyOf(output.value);
    copy->outputs.push_back(output);
  }
  return copy;
}

Graph* Module::findGraph(const std::string& graphName) const {
  for (const auto& graph : graphs)
    if (graph->name() == graphName) return graph.get();
  return nullptr;
}

Parameter* Module::findParameter(const std::string& parameterName) const {
  for (const auto& parameter : parameters)
    if (parameter->name == parameterName) return parameter.get();
  return nullptr;
}

Parameter* Module::addParameter(Parameter parameter) {
  return parameters.emplace_back(std::make_unique<Parameter>(std::move(parameter))).get();
}

void Module::eraseParameter(const Parameter* parameter) {
  std::erase_if(parameters, [&](const auto& each) { return each.get() == parameter; });
}
