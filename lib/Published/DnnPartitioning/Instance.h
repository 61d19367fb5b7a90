// An operator-placement problem as the solver sees it: classes of nodes that share a device in every plan that matters,
// whole numbers instead of doubles, tensors as hyperedges.
//
// A tensor is the set of classes that make or use it. It costs an accelerator with the classes S if it touches S
// without lying inside, so
//
//   load(S) = time(S) + cut(S),   cut(S) = Σ cost of the tensors with members in S and outside S
//
// where cut is symmetric (a set and its complement have the same) and submodular: adding v to a larger set adds no more
// to the cut than adding v to a smaller one. Everything that is pruned or merged here rests on these two facts.
#pragma once

#include "pdc/Published/DnnPartitioning.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace pdc::placement {

/// Times and sizes in units of a power of two so small that the sum of everything stays below 2^60. Sums of them are
/// exact, in any order; a number that has not enough bits left is rounded by 2^-61 of that sum.
using Amount = std::int64_t;
inline constexpr Amount never = std::numeric_limits<Amount>::max();

class Scale {
public:
  Scale() = default;
  /// For amounts that sum up to at most `total`.
  explicit Scale(double total);
  Amount amount(double value) const;
  double value(Amount amount) const;

private:
  int shift_ = 0;
};

struct Class {
  std::vector<std::int64_t> nodes; ///< of the problem, ascending
  std::vector<int> parts;          ///< of the instance that was contracted, ascending
  Amount time = 0, cpuTime = 0, size = 0;
  bool onAccelerator = true;
};

struct Tensor {
  Amount cost = 0;
  std::vector<int> classes; ///< ascending, at least two
};

struct Instance {
  Scale timeScale, sizeScale;
  std::vector<Class> classes; ///< numbered in a topological order of `edges`
  std::vector<Tensor> tensors;
  std::vector<std::pair<int, int>> edges; ///< (a, b): a is not on a later device than b
  Amount memory = 0;                      ///< of an accelerator; never: more than everything takes
  int accelerators = 0, cpus = 0;         ///< no more than classes
};

/// Some classes on one device.
struct Stage {
  std::vector<int> classes; ///< ascending
  bool isCpu = false;
};

/// The load of a stage, by its definition.
Amount loadOf(const Instance& instance, const Stage& stage);

/// Classes are the nodes of one colour and of one cycle of order, backward edges read as data flows or the other way,
/// whichever leaves more classes.
Instance makeInstance(const DnnPartitioningProblem& problem);

/// The instance in which the classes c with one groupOf[c], 0 … groups-1, are one. Groups must not form cycles of
/// order.
Instance merged(const Instance& fine, const std::vector<int>& groupOf, std::size_t groups);

} // namespace pdc::placement
