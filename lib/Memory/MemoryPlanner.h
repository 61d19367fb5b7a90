// Places the values of a stage. First what has a fixed place (parameters, inputs, what leaves: MemoryPlanFixed.cpp),
// then what is saved from forward to backward, last what lives inside a phase (MemoryPlanTemporaries.cpp).
#pragma once

#include "pdc/Memory/MemoryPlan.h"

#include "BlockLayout.h"
#include "pdcrt/Setup.h"

#include <map>
#include <unordered_set>

namespace pdc {

class MemoryPlanner {
public:
  MemoryPlanner(const Graph& training, const Graph* evaluation, const MemoryOptions& options, Diagnostics& diags);

  Expected<MemoryPlan> run();

private:
  /// A place where a value must be at the end of its phase, beside where it is made.
  struct Pin {
    const Value* root;
    Place place;
    ProgramPhase phase; ///< in which the place is filled, unless the value is made earlier in the same pass
  };

  Status checkType(const Value* value, const Location& location, const OpDef* op, bool keepsHigh = false);
  Status checkTypes(const Graph& graph);
  Status checkPhases();

  // What has a fixed place.
  void placeShared();
  const PlacedSharedValue* received(const Parameter* parameter) const;
  void placeParameters();
  void collectEdges();
  int edgeOf(bool gradient, int from, int to) const;
  Place takeEdge(int edge, const Value* value);
  void placeInputs();
  PlacedSharedUse& nextSharedUse(const Parameter* parameter);
  Place slotPlace(const Value* root);
  void placeWhatLeaves();
  bool updatesEarly(const GraphOutput& gradient) const;
  void placeSaved();
  void findHandedOver();

  // Results of operations.
  void placeResults(const Graph& graph, GraphMemory& memory);
  Place placeOfResult(const Graph& graph, const Operation& operation, const Value* result);
  void addCopies(const Graph& graph, const GraphMemory& memory);

  // The graph of evaluations.
  Status planEvaluation();
  std::optional<Place> placeInTraining(const GraphInput& input,
                                       std::map<std::pair<int, bool>, std::size_t>& seen) const;
  std::optional<Place> sentPlace(const GraphOutput& output, std::size_t position) const;
  Place lossPlace(std::size_t position, const Value* root, Bump& predictions) const;
  Place predictionPlace(const Value* root, Bump& predictions) const;

  // What lives inside a phase.
  void findLifetimes(GraphMemory& memory);
  void timeEarlyUpdates();
  void findReplacements(GraphMemory& memory);
  Status addWorkspaces(GraphMemory& memory);
  void followMakers(GraphMemory& memory);
  void placeTemporaries(GraphMemory& memory);
  void countLiveBytes();

  void finish();
  Buffer& addBuffer(GraphMemory& memory, const Value* value, Place place);
  int parameterIndex(const Parameter* parameter) const;
  std::int64_t stateOffset(const Parameter* parameter) const;

  const Graph& training_;
  const Graph* evaluation_;
  MemoryOptions options_;
  Diagnostics& diags_;
  MemoryPlan plan_;
  Bump weights_, frozen_, state_, gradients_, slot_, dataStaging_;
  std::vector<Bump> edgeBlocks_;
  std::vector<Pin> pins_, evaluationPins_;
  std::unordered_map<const Value*, Place> inSlot_;
  std::unordered_set<const Value*> handedOver_;
  std::unordered_map<const Value*, int> outputsOf_;        ///< of the training graph, by root
  std::unordered_map<const Parameter*, int> gradientUses_; ///< uses that have a gradient
  std::map<std::string, pdcrt::Setup> kernelSetups_; ///< what has learnt the workspace, by what identifies a kernel
  std::int64_t pinnedSlotBytes_ = 0;                 ///< of what training and evaluation have in common
  std::int64_t slotBytes_ = 0, handoverBytes_ = 0, scratchBytes_ = 0;
};

} // namespace pdc
