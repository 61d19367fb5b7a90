// Repeats, at the beginning of a stage's backward, the forward operations whose results the backward reads.
//
// From what the backward reads, operations are marked backwards through the forward until values are reached that are
// there anyway: inputs, what arrives, what leaves, parameters, constants. The marked operations are copied in program
// order, and the backward reads the copies. A copy has the same kernel, operands and random numbers as its origin, so
// it has the same bits. Linear in the size of the graph.
#include "pdc/Stage/StagePasses.h"

#include "pdc/Transforms/GraphUtilities.h"

#include <unordered_map>
#include <unordered_set>

using namespace pdc;

namespace {

class Recomputation {
public:
  explicit Recomputation(Graph& graph) : graph_(graph) {}

  void run() {
    findKept();
    for (const auto& operation : graph_.operations()) {
      if (isForward(*operation)) continue;
      if (!firstBackward_) firstBackward_ = operation.get();
      for (const Value* operand : operation->operands()) need(operand);
    }
    for (const GraphOutput& output : graph_.outputs) // a forward value that is a gradient
      if (output.kind == OutputKind::gradient || output.isGradient) need(output.value);
    if (repeated_.empty()) return;
    repeat();
    readCopies();
  }

private:
  /// What stays in memory until the backward whether or not it is recomputed.
  void findKept() {
    for (const GraphOutput& output : graph_.outputs) {
      if (output.kind == OutputKind::state) states_.insert(output.value);
      if (output.kind == OutputKind::sent && !output.isGradient) kept_.insert(rootOf(output.value));
      if (output.kind == OutputKind::loss || output.kind == OutputKind::term) kept_.insert(rootOf(output.value));
    }
  }

  void need(const Value* value) {
    std::vector<const Value*> open = {value};
    while (!open.empty()) {
      const Value* next = open.back();
      open.pop_back();
      if (!next || !next->definer()) continue;
      const Operation& definer = *next->definer();
      if (!isForward(definer) || isConstant(definer) || kept_.contains(next)) continue;
      if (!repeated_.insert(&definer).second) continue;
      for (const Value* operand : definer.operands()) open.push_back(operand);
    }
  }

  void repeat() {
    std::vector<Operation*> originals; // in program order; copying changes the list
    for (const auto& operation : graph_.operations())
      if (repeated_.contains(operation.get())) originals.push_back(operation.get());
    for (Operation* original : originals) {
      std::vector<Value*> operands;
      for (Value* operand : original->operands()) operands.push_back(copyOf(operand));
      std::vector<const Type*> types;
      std::vector<std::string> names;
      for (std::size_t i = 0; i < original->results().size(); ++i) {
        const Value* result = original->result(i);
        // Only the first forward replaces running statistics.
        const bool absent = !result || (states_.contains(result) && original->def().results[i].optional);
        types.push_back(absent ? nullptr : &result->type());
        names.push_back(absent ? "" : result->name() + ".again");
      }
      Operation* copy = graph_.addOperation(original->def(), std::move(operands), types, original->attributes,
                                            original->location, firstBackward_, names);
      copy->phase = Phase::inputGradient;
      copy->setOrigin(original);
      copy->again = true;
      copy->group = original->group;
      copy->stage = original->stage;
      for (std::size_t i = 0; i < names.size(); ++i)
        if (copy->result(i) && !kept_.contains(original->result(i))) copies_[original->result(i)] = copy->result(i);
    }
  }

  void readCopies() {
    for (const auto& operation : graph_.operations()) {
      if (isForward(*operation) || operation->again) continue;
      for (std::size_t i = 0; i < operation->operands().size(); ++i)
        operation->setOperand(i, copyOf(operation->operand(i)));
    }
    for (GraphOutput& output : graph_.outputs)
      if (output.kind == OutputKind::gradient || output.isGradient) output.value = copyOf(output.value);
  }

  Value* copyOf(Value* value) const {
    auto it = copies_.find(value);
    return it == copies_.end() ? value : it->second;
  }

  Graph& graph_;
  const Operation* firstBackward_ = nullptr;
  std::unordered_set<const Value*> kept_, states_;
  std::unordered_set<const Operation*> repeated_;
  std::unordered_map<const Value*, Value*> copies_;
};

} // namespace

void pdc::recomputeForward(Graph& stage) {
  Recomputation(stage).run();
}
