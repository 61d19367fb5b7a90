// Experts over a team: parameters that hold a matrix for each expert are divided among the members, and so is what is
// computed with them. A product says it: an index that both of its operands and its result have, beside a summed one.
#pragma once

#include "Split/ChooseClasses.h"

#include <unordered_set>

namespace pdc {

/// Experts whose matrices some parameters hold.
struct ExpertClass {
  AxisClass along;                              ///< all that follows if they are divided
  std::unordered_set<const Operation*> divided; ///< of its operations: products, and what is computed between them
  std::map<const Value*, Form> parameters;      ///< of which members have parts
};

struct ExpertClasses {
  std::vector<ExpertClass> classes;  ///< in program order
  std::vector<SplitClass> undivided; ///< parameters that the members cannot divide evenly

  /// The class that divides the operation; null: none.
  const ExpertClass* of(const Operation& operation) const;
  /// The class at whose border the operation is: it brings tokens to experts, or something from them.
  const ExpertClass* at(const Operation& operation) const;
};

ExpertClasses expertClasses(const Graph& graph, const LoopTable& loops, std::int64_t members);

} // namespace pdc
