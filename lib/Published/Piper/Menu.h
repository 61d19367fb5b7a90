// Which choice each node of a stage takes: the multiple-choice knapsack inside Piper's problem, solved exactly.
//
// For a stage (a set of nodes with the edges that it cuts), a tensor-parallel degree t, a data-parallel degree d and y
// samples in flight: take one option per node so that Σ a·y + b fits into memory and Σ cost + (d-1)·weight, which is
// d·TPS, is smallest. Start from every node's cheapest option; what is missing of memory must be saved by giving some
// nodes dearer, smaller ones.
//
//   - Nodes with two options that save equally much (equal layers, whatever their times) form a class: if c of them
//     are to save, it is those c with the smallest extra cost. So a class is its sorted extra costs.
//   - All classes but the largest, and nodes with more options, are merged one by one into a list of the pairs
//     (saved, extra) that no other pair beats (Nemhauser and Ullmann 1969). For each pair the number that the largest
//     class must add follows by division. Equal layers therefore cost time linear in their number at worst.
//   - With many groups the linear relaxation comes first. Its value bounds the optimum from below and its rounding up
//     from above, which mostly answers "is d·TPS <= limit?". If not, pairs are dropped whose Lagrangian bound exceeds
//     the known solution: with multiplier λ >= 0 (the relaxation's dual solution), extra + λ·(needed - saved) + Σ over
//     the groups left of min(extra - λ·saved) bounds every completion from below.
//
// Exact for any input; exponential only if the numbers of undominated pairs inside the bound are.
#pragma once

#include "Piper/Instance.h"
#include "pdc/Planner/Order/NodeSet.h"

#include <map>

namespace pdc {

class PiperMenu {
public:
  /// `degree` is an index into instance.tensorDegrees.
  PiperMenu(const PiperInstance& instance, const NodeSet& stage, std::size_t degree);

  /// Whether every node offers the degree.
  bool isOffered() const { return isOffered_; }

  /// The memory that one device may take; must be called before the functions below. `mostInFlight` is the largest y
  /// that they will be asked for.
  void setLimit(double memory, std::int64_t mostInFlight);

  /// The largest y for which some options fit; 0 if none.
  std::int64_t mostInFlight() const { return mostInFlight_; }

  /// d·TPS if memory did not matter: a lower bound of cheapest().
  double fastest(std::int64_t d) const;

  /// The smallest d·TPS that fits; infinite if nothing does.
  double cheapest(std::int64_t d, std::int64_t y);

  /// Whether cheapest(d, y) / d <= tps, often without solving the knapsack. If not, `next` gets a lower bound of
  /// cheapest(d, y) / d that is above tps.
  bool reaches(std::int64_t d, std::int64_t y, double tps, double& next);

  /// Time that a sample of the d replicas' takes all their links together: cut edges, and its share of synchronising
  /// the parameters, for the fastest options.
  double moved(std::int64_t d) const { return cuts_ + static_cast<double>(d - 1) * movedWeight_; }

  /// Memory of the smallest options.
  double leastMemory(std::int64_t y) const;

  /// For the nodes of the stage in ascending order, the input's choices (PiperOption::choice) that cheapest() takes.
  static std::vector<int> choose(const PiperInstance& instance, const NodeSet& stage, std::size_t degree, double memory,
                                 std::int64_t d, std::int64_t y);

private:
  struct Option {
    double cost = 0, weight = 0, memoryA = 0, memoryB = 0;
    int choice = 0;
    double memory(double y) const { return memoryA * y + memoryB; }
    double price(double d) const { return cost + (d - 1) * weight; }
    void add(const Option& other);
  };
  /// Nodes with two options of equal weight that differ by the same memory.
  struct Class {
    double savedA = 0, savedB = 0;
    std::vector<double> extra;      ///< extra[c]: of the c nodes that are cheapest to change
    std::vector<std::size_t> nodes; ///< in that order ...
    std::vector<int> choices;       ///< ... and what they change to; both only for choose()
    double saved(double y) const { return savedA * y + savedB; }
  };
  /// A node with other options.
  struct Several {
    std::size_t node = 0;
    std::vector<Option> options;
  };
  /// Of what the smallest d·TPS that fits exceeds fastest() by.
  struct Bounds {
    double lower = -1, upper = -1; ///< negative: not known yet; equal: solved
  };
  struct Swap;
  struct Item;
  class Knapsack;

  PiperMenu(const PiperInstance& instance, const NodeSet& stage, std::size_t degree, std::vector<int>* cheapestChoices);
  void place(std::size_t node, const std::vector<Option>& options, std::vector<Swap>& swaps, std::vector<int>* choices);
  void groupByMemory(std::vector<Swap>& swaps, bool keepNodes);
  Bounds& boundsOfExtra(std::int64_t d, std::int64_t y);
  void solve(std::int64_t d, std::int64_t y, Bounds& bounds) const;

  bool isOffered_ = true, weightsVary_ = false;
  Option base_; ///< sum over the nodes with one option, and the cheaper option of the nodes in classes
  std::vector<Class> classes_;
  std::vector<Several> several_;
  double cuts_ = 0, movedWeight_ = 0;
  double memory_ = 0;
  std::int64_t mostInFlight_ = 0;
  std::vector<Bounds> extraByY_;                                         ///< if weights do not vary
  std::map<std::pair<std::int64_t, std::int64_t>, Bounds> extraByDAndY_; ///< else
};

} // namespace pdc
