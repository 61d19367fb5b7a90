#include "StageCopier.h"

#include "pdc/Transforms/GraphUtilities.h"

using namespace pdc;

Value* StageCopier::lookUp(const Value* value) {
  auto it = values_.find(value);
  if (it != values_.end()) return it->second;
  if (value->parameter()) return values_[value] = target_.parameterValue(*value->parameter());
  return value->definer() && isConstant(*value->definer()) ? constantHere(*value->definer()) : nullptr;
}

/// Constants are made where they are used, also those of other stages.
Value* StageCopier::constantHere(const Operation& constant) {
  if (constant.stage == stage_) return copy(constant)->result();
  const Value& value = *constant.result();
  Operation* made = target_.addOperation(constant.def(), {}, {&value.type()}, constant.attributes, constant.location,
                                         nullptr, {value.name()});
  made->stage = stage_;
  return values_[&value] = made->result();
}

Operation* StageCopier::copy(const Operation& operation) {
  std::vector<Value*> operands;
  for (const Value* operand : operation.operands()) operands.push_back(operand ? lookUp(operand) : nullptr);
  std::vector<const Type*> types;
  std::vector<std::string> names;
  for (const Value* result : operation.results()) {
    types.push_back(result ? &result->type() : nullptr);
    names.push_back(result ? result->name() : "");
  }
  Operation* made = target_.addOperation(operation.def(), std::move(operands), types, operation.attributes,
                                         operation.location, nullptr, names);
  made->phase = operation.phase;
  made->again = operation.again;
  made->group = operation.group;
  made->stage = operation.stage;
  if (operation.origin()) made->setOrigin(lookUp(operation.origin()));
  operations_[&operation] = made;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (operation.result(i)) values_[operation.result(i)] = made->result(i);
  return made;
}

Operation* StageCopier::lookUp(const Operation* operation) const {
  const auto it = operations_.find(operation);
  return it == operations_.end() ? nullptr : it->second;
}

bool StageCopier::copyOperations() {
  for (const auto& operation : source_.operations()) {
    if (operation->stage != stage_ || operations_.contains(operation.get())) continue;
    for (const Value* operand : operation->operands())
      if (operand && !lookUp(operand)) return false;
    copy(*operation);
  }
  return true;
}
