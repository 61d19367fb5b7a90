// Questions about graphs that several transforms ask.
#pragma once

#include "pdc/IR/Elementwise.h"
#include "pdc/IR/Graph.h"
#include "pdc/IR/OpDef.h"
#include "pdc/Pass/Pass.h"

#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace pdc {

/// Position of each operation in program order.
using Positions = std::unordered_map<const Operation*, std::size_t>;
Positions positionsOf(const Graph& graph);

/// @main; reports when the module has none.
Expected<Graph*> mainGraph(PassContext& context);

/// The value whose bytes `value` is: follows views back to what made them.
Value* rootOf(Value* value);

inline bool isConstant(const Operation& operation) {
  return operation.def().kind == OpKind::constant;
}
inline bool isForward(const Operation& operation) {
  return operation.phase == Phase::forward;
}
/// Whether its result has the operand's elements, each in a place of its own.
inline bool movesElements(const Operation& operation) {
  return operation.def().kind == OpKind::view || operation.def().facts.moves;
}

/// Whether `operation` adds two gradients: parts of that of one value, which a cut may put into the lowest stage that
/// one of them comes from (SplitStages.cpp).
bool addsGradients(const Operation& operation);

/// Moves an operation of phase W, and what it reads of that phase, to phase I, which never waits for phase W and after
/// which gradients leave a stage.
void computeWithInputGradients(Operation& operation);

/// What the losses of `graph` are computed from, themselves included.
std::unordered_set<const Value*> behindLosses(const Graph& graph);

/// Removes operations that lead to no output, to no value in `kept`, and are not the origin of one that stays.
void eraseDeadOperations(Graph& graph, const std::unordered_set<const Value*>& kept = {});

/// A copy of `value`'s bytes in `graph`: an operation before `before` (null: at the end) with the annotations of
/// `like`, in `phase`.
Value* copyOf(PassContext& context, Graph& graph, Value* value, const Operation& like, Phase phase,
              const Operation* before = nullptr);

/// "layer1.0/conv1", or the op's name where the model gave none: what messages call an operation.
std::string describe(const Operation& operation);

} // namespace pdc
