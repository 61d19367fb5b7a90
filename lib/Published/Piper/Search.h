// One question of Piper's problem, answered exactly: is there a plan with TPS <= τ within this memory? Piper/Solver.h
// says how and why; this is the run over the states.
#pragma once

#include "Piper/Menu.h"
#include "Piper/Solver.h"
#include "Piper/States.h"

#include <chrono>
#include <memory>

namespace pdc {

class PiperSearch {
public:
  PiperSearch(const PiperInstance& instance, const PiperSearchOptions& options);

  /// Whether all down-sets are states.
  bool isComplete() const { return states_.isComplete; }
  void setMemory(double memory);

  /// Looks for a plan with TPS <= threshold within the memory.
  bool run(double threshold);

  /// After a run without a plan: no threshold below admits one. The run is void if it ran out of time.
  double next() const { return next_; }
  bool ranOutOfTime() const { return isOutOfTime_; }

  /// From now on, labels also count the bytes that a sample moves, and runs find the plan that moves fewest (then that
  /// with the fewest devices, then that with the earliest cuts). A run then gives up, without a plan, at a state with
  /// too many labels.
  void countMoved() { countsMoved_ = true; }

  /// After a run with a plan: the one with the fewest devices, or what countMoved() says; in pipeline order.
  PiperSolution solution();

  /// A TPS that no plan falls below.
  double workBound() const { return states_.work.back() / static_cast<double>(instance_.devices); }

private:
  using Clock = std::chrono::steady_clock;

  struct Label {
    std::int64_t replicas = 0, devices = 0; ///< D, K
    double moved = 0;                       ///< time of all that the stages send per sample
    std::size_t state = 0, label = 0;       ///< where it comes from
    std::size_t degree = 0;
    std::int64_t d = 0;
  };
  /// Degree d serves the labels with up to so many replicas.
  struct Step {
    std::int64_t d, reach;
  };

  PiperMenu& menu(std::size_t state, std::size_t place, std::size_t degree);
  void addStages(std::size_t state, std::size_t place, std::size_t degree);
  void findSteps(PiperMenu& menu, std::size_t state, std::size_t from, std::size_t degree);
  std::int64_t largestInFlight(PiperMenu& menu, std::int64_t d, std::int64_t least, std::int64_t most);
  void offer(const Label& label);
  bool keepBest(std::size_t state);
  void keepBestThatMove(std::vector<Label>& kept);
  const Label& best() const;
  bool isLate() { return isOutOfTime_ = isOutOfTime_ || (deadline_ && Clock::now() > *deadline_); }

  const PiperInstance& instance_;
  PiperStates states_;
  std::optional<Clock::time_point> deadline_;
  bool isOutOfTime_ = false, countsMoved_ = false;
  std::vector<std::size_t> firstMenu_;            ///< of a state's pairs with its supersets
  std::vector<std::unique_ptr<PiperMenu>> menus_; ///< by pair of states and degree, made when first needed
  std::size_t menuCount_ = 0;
  double memory_ = 0;

  // Of one run:
  double threshold_ = 0, next_ = 0;
  std::int64_t devicesLeft_ = 0; ///< bound on what the nodes of the current state need
  std::vector<std::vector<Label>> labels_;
  std::vector<std::int64_t> fewestDevices_; ///< of each state's labels
  std::vector<Label> offersByReplicas_;     ///< devices 0: none
  std::vector<std::size_t> offered_;
  std::vector<Label> offers_; ///< while bytes count
  std::vector<Step> steps_;
};

} // namespace pdc
