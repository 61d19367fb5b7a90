// The operations of one stage, copied out of the graph of the whole model.
#pragma once

#include "pdc/IR/Graph.h"

#include <unordered_map>

namespace pdc {

/// Copies the operations of one stage into a graph of its own.
class StageCopier {
public:
  StageCopier(const Graph& source, Graph& target, int stage) : source_(source), target_(target), stage_(stage) {}

  void bind(const Value* from, Value* to) { values_[from] = to; }
  /// What stands for `value` of the source; null when it is not there.
  Value* lookUp(const Value* value);
  /// False when an operation needs a value that is not in its stage.
  bool copyOperations();
  /// What stands for `operation` of the source; null when it is in another stage.
  Operation* lookUp(const Operation* operation) const;

private:
  Operation* copy(const Operation& operation);
  Value* constantHere(const Operation& constant);

  const Graph& source_;
  Graph& target_;
  int stage_;
  std::unordered_map<const Value*, Value*> values_;
  std::unordered_map<const Operation*, Operation*> operations_;
};

} // namespace pdc
