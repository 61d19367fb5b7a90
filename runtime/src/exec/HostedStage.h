// A stage replica that a rank hosts: where its blocks lie, how far it is, and the parts that move what goes in and out.
#pragma once

#include "DataIn.h"
#include "Edges.h"
#include "GradientFlow.h"
#include "TiedParameters.h"
#include "WeightGather.h"
#include "WeightSweeps.h"
#include "Weights.h"
#include "collectives/MemberGather.h"
#include "pdcrt/LossScale.h"
#include "pdcrt/Optimizer.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/Stage.h"
#include "pdcrt/Team.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace pdcrt {

struct HostedStage {
  const Stage* stage = nullptr;
  Host host;
  int replicas = 1;
  int member = 0, members = 1; ///< of the team that computes it
  Routing routing;             ///< of the stage's minibatches
  std::shared_ptr<const void> kernels;
  std::unique_ptr<Team> team;           ///< null: the stage is computed by one process
  std::unique_ptr<MemberGather> gather; ///< null where there are no other members

  // Weights and their updates.
  std::unique_ptr<Optimizer> optimizer;
  Versions versions;
  WeightGather gathered;       ///< of versions that replicas update in shards
  WeightSweeps sweeps;         ///< of weights that lie in shards: a version has the replica's only
  std::byte* frozen = nullptr; ///< parameters that never change
  std::int64_t updates = 0;    ///< since the beginning of the training
  std::int64_t skipped = 0;    ///< of them, because gradients were not finite; the optimizer does not count these
  bool updating = false;       ///< a backward has made early updates of the next version
  DynamicLossScale lossScale;  ///< the same in all stages, because they skip together
  std::byte *state = nullptr, *optimizerState = nullptr;

  // What phases work in.
  struct Slot {
    std::byte* memory = nullptr;
    std::int64_t version = 0; ///< that the forward used
  };
  std::vector<Slot> slots;        ///< a ring over local minibatches
  std::byte* handovers = nullptr; ///< a ring over local minibatches
  int handoverCount = 1;
  std::byte* scratch = nullptr;

  // What goes in and out.
  DataPlace data;
  Edges edges;
  GradientFlow gradients;
  TiedParameters tied;

  Slot& slotOf(std::int64_t minibatch) {
    return slots[static_cast<std::size_t>(routing.local(minibatch)) % slots.size()];
  }
};

} // namespace pdcrt
