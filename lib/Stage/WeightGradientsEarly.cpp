// Moves weight gradients forward in program order. Linear in the size of the graph.
#include "pdc/Stage/StagePasses.h"

#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

using namespace pdc;

namespace {

class Reordering {
public:
  Reordering(Graph& graph, bool afterReaders) : graph_(graph) {
    for (const GraphOutput& output : graph.outputs)
      if (afterReaders && output.kind == OutputKind::gradient) findReaders(output);
  }

  void run() {
    for (const auto& operation : graph_.operations()) emit(*operation);
    graph_.reorder(order_);
  }

private:
  /// A gradient that can be made in parts is, where they are used up at once: nothing may read the parameter any more.
  void findReaders(const GraphOutput& gradient) {
    const Operation* maker = gradient.value->definer();
    if (!maker || maker->phase != Phase::weightGradient || maker->def().kind != OpKind::kernel ||
        maker->def().kernel.use(*maker).partBytes == 0)
      return;
    for (const Value* value : graph_.parameterValues())
      if (value->parameter() == gradient.parameter)
        for (const Operation* reader : value->users())
          if (reader != maker && reader->phase == Phase::inputGradient) readers_[maker].push_back(reader);
  }

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
    const auto readers = readers_.find(&operation);
    return readers == readers_.end() || std::all_of(readers->second.begin(), readers->second.end(),
                                                    [&](const Operation* reader) { return emitted_.contains(reader); });
  }

  Graph& graph_;
  std::vector<Operation*> order_;
  std::unordered_set<const Operation*> emitted_;
  std::unordered_map<const Operation*, std::vector<const Operation*>> readers_; ///< of the parameter, by its gradient's
};

} // namespace

void pdc::computeWeightGradientsEarly(Graph& stage, bool afterReaders) {
  Reordering(stage, afterReaders).run();
}
