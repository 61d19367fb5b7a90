// What the members of a stage program's views and kernels are called, and which value is which member.
#pragma once

#include "pdc/CodeGen/Naming.h"
#include "pdc/CodeGen/StageEmitter.h"
#include "pdc/Memory/MemoryPlan.h"

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace pdc {

/// One member of Weights, State, Slot, Handover, Gradients or Scratch.
struct ViewMember {
  std::string name;
  Place place;
  Type type;
  std::string comment; ///< what it is, after its type
  bool readOnly = false;
};

/// A table for operations of kind constant, of which the first is given.
struct ConstantTable {
  std::string name;
  const Operation* operation = nullptr;
};

/// What a program calls an output that the runtime reads.
std::string wordOf(OutputKind output);

/// Gives every buffer of a stage a member of a view:
///   w.fc1_weight   a parameter           r.bn1_running_mean   a running statistic
///   s.image        an input              s.in0, s.loss        received from another stage, and a loss
///   s.a7, t.a3     activations           s.a7 in the slot, t.a3 in scratch; e3 for those of evaluate
///   t.g5, h.g6     gradients             h.g6 in the handover; s.gin0 and s.gout0 received from and sent to another
///   stage g.fc1_weight   the gradient of a use of a parameter
class StageNames {
public:
  explicit StageNames(const StageProgram& program);

  std::vector<ViewMember> weights, state, slot, handover, gradients, scratch;
  std::vector<ConstantTable> constants;

  /// "s.a7": how `value` is written in a phase of the graph that `memory` is of.
  std::string reference(const GraphMemory& memory, const Value* value) const;
  /// "g.fc1_weight": a fixed place.
  std::string reference(const Place& place) const;

private:
  using FixedKey = std::tuple<Block, int, std::int64_t>;

  void nameFixed(std::vector<ViewMember>& members, char view, Identifiers& names, const std::string& hint,
                 const Place& place, const Type& type, const std::string& comment, bool readOnly = false);
  const std::string& nameOfTable(const Operation& constant);
  void nameOutputs(const MemoryPlan& memory, const GraphMemory& graph);
  void nameResults(const GraphMemory& memory, bool evaluation);
  void namePorts(const StageProgram& program);

  std::map<FixedKey, std::string> fixed_;          ///< places that have one value
  std::map<const Value*, std::string> references_; ///< of values whose place others use too
  Identifiers slotNames_, handoverNames_, scratchNames_;
  int activations_ = 0, gradients_ = 0, evaluated_ = 0;
};

} // namespace pdc
