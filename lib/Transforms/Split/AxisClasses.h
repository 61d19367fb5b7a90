// What is divided together: if a weight is split along its outputs, so is what its layer computes, what is computed of
// that element by element, and the inputs of the layer that reads it.
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/IR/Loops.h"

#include <unordered_map>
#include <utility>
#include <vector>

namespace pdc {

/// The loops of every operation of a graph, found once.
class LoopTable {
public:
  explicit LoopTable(const Graph& graph);
  const Loops& of(const Operation& operation) const { return loops_.at(&operation); }

private:
  std::unordered_map<const Operation*, Loops> loops_;
};

/// Values that are split alike, and the divisions of the operations between them.
struct AxisClass {
  std::vector<const Value*> values;         ///< in the order in which they were found
  std::vector<const Operation*> operations; ///< likewise
  std::unordered_map<const Value*, Form> forms;
  std::unordered_map<const Operation*, Division> divisions;

  bool holds(const Value* value, const Form& form) const {
    const auto found = forms.find(value);
    return found != forms.end() && found->second == form;
  }
};

/// All that follows if these values are split so over `members`.
AxisClass classOf(const LoopTable& loops, const std::vector<std::pair<const Value*, Form>>& seeds,
                  std::int64_t members);

/// Every class of a graph that splits a parameter and no input, in the order of their first operations.
std::vector<AxisClass> parameterClasses(const Graph& graph, const LoopTable& loops, std::int64_t members);

} // namespace pdc
