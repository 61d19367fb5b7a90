// Divides a graph over a team of devices, all of which run it on the same minibatch: tensor parallelism (Megatron-LM,
// arXiv:1909.08053, section 3), the same with positions divided between its layers (arXiv:2205.05198, section 4.2.2),
// sequence parallelism (DeepSpeed-Ulysses, arXiv:2309.14509, section 3) or expert parallelism (GShard,
// arXiv:2006.16668, section 3) for any graph, from what each op says of its loops (IR/Loops.h).
//
//   axis classes   values and operations that are divided together: the heads of a block, the hidden units of an MLP, a
//                  vocabulary, the channels between two convolutions
//   choice         which classes are worth what their members must tell each other; or: the positions of sequences, or
//                  samples and experts
//   rewrite        the graph of a member: operations on parts, and collectives where forms do not agree
//   hiding         collectives start as early, and finish as late, as others in their group allow
#pragma once

#include "pdc/Pass/Pass.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace pdc {

struct SplitOptions {
  std::int64_t members = 2;
  bool all = false;     ///< divides every class with a parameter, whether that is worth its communication or not
  bool tokens = false;  ///< divides the positions of sequences instead, and no parameters
  bool experts = false; ///< with `tokens`: divides samples instead of positions, and parameters of experts
  bool weights = false; ///< with `tokens`: divides parameters as without it, and positions elsewhere
  /// With `experts`, by the names that evaluations give to layers: which expert lies at which place. The first member
  /// has those of the first places. Layers without an order keep that of the file.
  std::map<std::string, std::vector<std::int32_t>> orders = {};
};

/// What became of the order of a layer.
struct PlacedLayer {
  std::string name;
  std::string why; ///< its experts keep the order of the file; empty: they have got the order
};

/// What became of one axis class.
struct SplitClass {
  std::vector<std::string> parameters; ///< that are divided, with their axes: "h.0.mlp.fc.weight axis 1"
  double flops = 0;                    ///< that a member does not compute any more, per step
  std::int64_t parameterBytes = 0;     ///< that a member does not hold any more
  std::int64_t communicatedBytes = 0;  ///< that a member sends and receives for it, per step
  bool chosen = false;
  std::string why; ///< it was not chosen; of experts: how tokens come to them
};

/// Adds to the module what a member runs: of each graph @G a graph @G.tpN, @G.tpsN, @G.spN or @G.epN. Operations keep
/// their groups, phases and origins, values their names; what a member has of a value that is put together has the name
/// of the value and partSuffix, and what it made of that before, if it is another form, ".made". `classes`, if it is
/// not null, gets the classes in the order in which they were decided; `placed` the layers with experts, in program
/// order, where there are orders. Errors beside what cannot be divided: an order of a layer that is not there, or of
/// another number of experts.
Status splitOverTeam(PassContext& context, const SplitOptions& options, std::vector<SplitClass>* classes = nullptr,
                     std::vector<PlacedLayer>* placed = nullptr);

/// A parameter, or the result of an operation, that members have parts of.
struct TeamPart {
  Form form;       ///< a split
  Type whole = {}; ///< of what is divided
};

/// What splitOverTeam would divide of @main, by name: parameters, and values as they are made, or where terms of a sum
/// are scattered. Nothing is changed. Orders of experts are left out.
struct TeamParts {
  std::map<std::string, TeamPart> parameters, values;
};
Expected<TeamParts> partsOverTeam(PassContext& context, const SplitOptions& options);

/// What the names of the graphs of members end with: ".tp2".
std::string suffixOf(const SplitOptions& options);

/// Compares the graph of a member with the graph that was divided:
///
///   - groups, phases and origins of operations are the same, value by value
///   - inputs and outputs are the same, in order; of gradients and states a member has the part of the parameter
///   - a value that keeps its name is whole
///   - a collective is of the whole team, and in no earlier phase than what it brings together
///
/// Reports the first thing that is not so, as an internal error: no plan, cut or checkpoint could be trusted.
Status verifySplit(const Graph& whole, const Graph& member, Diagnostics& diags);

/// Puts the start and the finish of a collective in its place, one behind the other. Returns the result, which keeps
/// its name; null: an error was reported.
Value* divideInHalves(PassContext& context, Graph& graph, Operation& whole);

/// In graphs of teams: each collective that communicates becomes its start and its finish, and what does not need the
/// result, of the same group and phase or of its weight gradients, stands between the two. With the option `parts`,
/// operations that can make large terms of a sum in parts do (partsAttribute).
Status hideCollectives(PassContext& context);

} // namespace pdc
