// What crosses between stages, where neighbours may be divided over teams in different ways.
//
// Stages of one split hand a value on member by member, as each has it. Between others only whole values cross: a
// member that has a part of one gathers it before it sends it, and takes its own part of what arrives. That moves
// numbers and computes none, so no bit depends on where such a border is.
#pragma once

#include "pdc/Pass/Pass.h"
#include "pdc/Plan/TeamSplit.h"

#include <string>
#include <vector>

namespace pdc {

/// The whole model, as the stages of a split compute it.
struct StageSource {
  TeamSplit split;
  Graph* training = nullptr;
  Graph* evaluation = nullptr;
};

/// One tensor on its way between two stages.
struct Crossing {
  const Value* sent;                   ///< of the training graph that `from` is cut out of
  const Value* received;               ///< of that of `to`; both are one value where the stages have one split
  const Value* receivedPart = nullptr; ///< what a member has of it there, beside the whole
  std::string name;                    ///< by which both ends know it
  int from, to;
  bool gradient;
  bool evaluates;          ///< read by forward operations of `to`
  bool isAtBorder = false; ///< between different splits, so it crosses whole
};

/// Who computes what.
struct StageSources {
  std::vector<StageSource> all; ///< the first is undivided, if there are several
  std::vector<int> of;          ///< by stage

  const StageSource& operator[](int stage) const {
    return all[static_cast<std::size_t>(of[static_cast<std::size_t>(stage)])];
  }
};

/// What crosses, of what would in each source: `found[i]` in source i. An error where something is not to be had whole
/// at a border between different splits.
Expected<std::vector<Crossing>> crossingsBetween(PassContext& context, const StageSources& sources,
                                                 const std::vector<std::vector<Crossing>>& found);

/// The parameter and its gradients as a stage has them must be those of the other stages that use it.
Status checkSharedForms(PassContext& context, const StageSources& sources, const Parameter& parameter,
                        const std::vector<int>& stages);

/// Adds the gathering of a value of which members have parts, and returns the whole value. Null: an error was reported.
Value* gatherAtBorder(PassContext& context, Graph& stage, Value* part, const Value& whole);

/// A use of a value in a stage.
struct PartUse {
  Operation* user;
  std::size_t operand;
};

/// Lets `uses`, at least one, in program order, read a member's part of `received`, which is whole, and returns the
/// part. Null: an error was reported.
Value* takePartAtBorder(PassContext& context, Graph& stage, Value* received, const Value& part,
                        const std::vector<PartUse>& uses);

} // namespace pdc
