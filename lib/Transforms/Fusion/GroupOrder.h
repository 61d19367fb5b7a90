// Which fusion groups come before which in every plan.
#pragma once

#include "pdc/IR/Graph.h"

#include <map>
#include <set>
#include <string>
#include <unordered_set>

namespace pdc {

/// Which groups use forward values of which: these are in no lower stage, however the graph is cut.
class GroupOrder {
public:
  explicit GroupOrder(const Graph& graph);

  bool leadsTo(int from, int to) const;

  /// Whether the gradients that a backward operation reads come from stages no lower than its own, however the graph is
  /// cut. A sum need not care, it is taken in the lowest (SplitStages.cpp); what a sum becomes a part of stays where it
  /// is.
  bool isBelowItsOperands(const Operation& operation) const;

private:
  bool isBelow(int group, const Value* gradient) const;

  std::map<int, std::set<int>> users_;
  std::unordered_set<std::string> staying_; ///< sums that are below their operands, by their names
};

} // namespace pdc
