// Which axis classes of a graph are divided, each operation in at most one of them.
#pragma once

#include "Split/AxisClasses.h"
#include "pdc/Transforms/Split.h"

#include <unordered_set>

namespace pdc {

/// A class is divided if it takes so many floating-point operations off a member, or a byte of memory for parameters,
/// per byte that it makes the member send and receive. Fixed numbers, so that no measurement changes bits. Between two
/// processes of one machine a byte takes the time of some 100 operations; a transformer's block with 171 features
/// passes for two members. A byte of a parameter has one of a gradient and, with momentum, one of a velocity beside it.
inline constexpr double leastFlopsPerByte = 256, memoryOfParameterByte = 3;

/// The divisions of operations and the forms of parameters, and where values are put together.
struct Choice {
  std::unordered_map<const Operation*, Division> divisions;
  std::map<const Parameter*, Form> parameters;
  std::unordered_map<const Value*, Form> joined; ///< of terms and parts that members make other parts of; else whole
  /// Values of which members make parts, and that are put together where all of them is read; else where they are made.
  std::unordered_set<const Value*> gathered;
  std::vector<SplitClass> classes; ///< in the order in which they were decided
};

Choice chooseClasses(const Graph& graph, const LoopTable& loops, const SplitOptions& options);

/// In a graph that reads the same parameters: what follows of their forms.
std::unordered_map<const Operation*, Division> divisionsFor(const Graph& graph, const LoopTable& loops,
                                                            const std::map<const Parameter*, Form>& parameters,
                                                            std::int64_t members);

} // namespace pdc
