// Moves weight gradients forward in program order. Linear in the size of the graph.
#include "pdc/Transforms/Transforms.h"

#include "GraphUtilities.h"

#include <unordered_set>

using namespace pdc;

namespace {

class Reordering {
public:
  explicit Reordering(Graph& graph) : graph_(graph) {}

  void run() {
    for (const auto& operation : graph_.operations()) emit(*operation);
    graph_.reorder(order_);
  }

private:
  void emit(Operation& operation) {
    if (!emitted_.insert(&operation).second) return;
    order_.push_back(&operation);
    if (isForward(operation)) return;
    for (const Value* result : operation.results())
      if (result)
        for (Operation* user : result->users())
          if (user->phase == Phase::weightGradient && isReady(*user)) emit(*user);
  }

  bool isReady(const Operation& operation) const {
    for (const Value* operand : operation.operands())
      if (operand && operand->definer() && !emitted_.contains(operand->definer())) return false;
    return true;
  }

  Graph& graph_;
  std::vector<Operation*> order_;
  std::unordered_set<const Operation*> emitted_;
};

} // namespace

void pdc::computeWeightGradientsEarly(Graph& stage) {
  Reordering(stage).run();
}
