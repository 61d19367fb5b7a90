// The relaxed problem with places: which leaves a stage has, and so which links its all-reduces and tensors must cross.
//
// With equal devices, stage s lies on the leaves [o, o + R), o = replicas of all stages before. Every transfer over the
// link of a component has one end inside. It is charged to the stage of that end, where the stage alone shows that the
// other end is outside: values come from leaves before o, so they enter every component that begins at o or later;
// values go to leaves from o + R, so they leave every component that ends at o + R or earlier; gradients the other way
// round. Hence the sum over the stages in a component is a lower bound of its link's load. Components that a stage
// shares with later ones carry what those have added (Carry).
//
// best(state, o), the smallest time in which the state's stages can lie on exactly the first o leaves, is a table
// filled once, O(S²·N²) in the worst case; stages and replicas that cannot be faster than a known plan are skipped.
#pragma once

#include "Search/Relaxation.h"

#include <functional>

namespace pdc {

/// Loads, per minibatch, that the components with the leaf before a suffix of stages already bear.
struct Carry {
  static constexpr int mostLevels = 6;
  std::array<double, mostLevels> upBytes{}, downBytes{};
  double coresMs = 0;
};

class Placement {
public:
  Placement(const States& states, const StageLoads& loads, const PlannerOptions& options, const Machine& machine,
            const Relaxation& relaxation);

  /// Whether places say more than numbers of devices do: one class of devices on several levels.
  static bool matters(const Machine& machine);

  /// The bound of a stage on [offset, offset + replicas) when the components that it shares with later stages bear
  /// `carry` already, which becomes what they and the stage leave to the stages before.
  double bound(const StageLoads::Stage& stage, int offset, int replicas, const StageForm& form, Carry& carry) const;

  /// Fills the table with everything below limitMs. Returns false, and leaves it empty, if that takes too long or
  /// `stop` returns true.
  bool fill(double limitMs, const std::function<bool()>& stop);
  bool isFilled() const { return !table_.empty(); }

  /// At least the time of a plan whose stages before some stage make up `state` on leaves [0, offset). Where stages are
  /// counted, of any number of them.
  double best(int state, int offset) const {
    return isFilled() ? table_[static_cast<std::size_t>(state) * (devices_ + 1) + offset].timeMs : 0;
  }

  /// The plan behind best(last, devices).
  std::vector<RelaxedStage> path(int devices) const;
  int devices() const { return devices_; }

private:
  struct Entry {
    double timeMs;
    int from, replicas;
  };

  const States& states_;
  const StageLoads& loads_;
  const PlannerOptions& options_;
  const Machine& machine_;
  const Relaxation& relaxation_;
  bool flush_ = false;
  int devices_ = 0;
  std::vector<Entry> table_;
};

} // namespace pdc
