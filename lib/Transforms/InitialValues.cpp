// One walk in program order. A value that is computed from parameters and constants alone stands for those parameters,
// as long as ops only move or combine elements: a transposed weight, the sum of two biases.
#include "pdc/Transforms/InitialValues.h"

#include "pdc/IR/OpDef.h"

#include <set>

using namespace pdc;

namespace {

using Parameters = std::set<const Parameter*>;

class Walk {
public:
  explicit Walk(const Graph& graph) {
    for (const Value* value : graph.parameterValues()) standsFor_[value] = {value->parameter()};
    for (const auto& operation : graph.operations()) visit(*operation);
  }
  std::map<const Parameter*, InitialValues> found;

private:
  void visit(const Operation& operation) {
    const OpDef& def = operation.def();
    Parameters all;
    bool computed = false;
    for (std::size_t i = 0; i < operation.operands().size(); ++i) {
      const Value* operand = operation.operand(i);
      if (!operand) continue;
      const auto parameters = standsFor_.find(operand);
      if (parameters == standsFor_.end()) {
        computed = true;
        continue;
      }
      all.insert(parameters->second.begin(), parameters->second.end());
      if (parameters->second.empty() || !def.usage.initialValues) continue;
      if (const auto values = def.usage.initialValues(operation, i))
        for (const Parameter* parameter : parameters->second) found.try_emplace(parameter, *values);
    }
    if (computed || !(def.facts.moves || def.kind == OpKind::elementwise || def.kind == OpKind::constant)) return;
    for (const Value* result : operation.results())
      if (result) standsFor_[result] = all;
  }

  std::map<const Value*, Parameters> standsFor_; ///< none: of constants
};

} // namespace

std::map<const Parameter*, InitialValues> pdc::usualValues(const Graph& graph) {
  return Walk(graph).found;
}
