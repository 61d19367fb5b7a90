// The order of branches that meet again, such as a residual block's convolutions and the one of its shortcut. Groups
// are intervals of program order (FusionGroups.cpp), so what follows where branches meet joins the group of the last
// one, which then comes behind all others. That should be the longest: of the shorter ones, every cut is free then. In
// return the sum of the gradients of what branches read is an operation of its own (GroupOrder.h).
#include "pdc/Transforms/Transforms.h"

#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>

using namespace pdc;

namespace {

/// What an operation computes with what nobody else uses: it and its operands' definers, as far as each has one user.
struct Branch {
  std::int64_t layers = 0; ///< operations that read a matrix of weights
  std::size_t first = 0;   ///< position of the first operation
};

class Branches {
public:
  explicit Branches(Graph& graph) : graph_(graph), positions_(positionsOf(graph)) {
    for (const auto& operation : graph.operations()) branches_.push_back(branchOf(*operation));
  }

  /// Moves one branch to where a longer one that it meets begins; false: there is none to move.
  bool moveOne() {
    for (const auto& operation : graph_.operations()) {
      const std::vector<Operation*> met = branchesOf(*operation);
      if (met.size() < 2) continue;
      const Operation* longest = *std::max_element(
          met.begin(), met.end(), [&](Operation* a, Operation* b) { return of(*a).layers < of(*b).layers; });
      for (Operation* end : met)
        if (of(*end).layers < of(*longest).layers && moveBefore(*end, of(*longest).first)) return true;
    }
    return false;
  }

private:
  std::size_t positionOf(const Operation& operation) const { return positions_.at(&operation); }
  const Branch& of(const Operation& operation) const { return branches_[positionOf(operation)]; }

  const Operation* onlyUserOf(const Operation& operation) const {
    const Operation* found = nullptr;
    for (const Value* result : operation.results()) {
      if (!result) continue;
      for (const Operation* user : result->users()) {
        if (found && user != found) return nullptr;
        found = user;
      }
    }
    return found;
  }

  /// Definers of operands that only `operation` uses, each once.
  std::vector<Operation*> ownOf(const Operation& operation) const {
    std::vector<Operation*> own;
    for (const Value* operand : operation.operands()) {
      Operation* definer = operand ? operand->definer() : nullptr;
      if (definer && onlyUserOf(*definer) == &operation && std::find(own.begin(), own.end(), definer) == own.end())
        own.push_back(definer);
    }
    return own;
  }

  Branch branchOf(const Operation& operation) const {
    const auto& operands = operation.operands();
    const bool layer = std::any_of(operands.begin(), operands.end(), [](Value* operand) {
      const Value* root = operand ? rootOf(operand) : nullptr;
      return root && root->parameter() && operand->type().rank() >= 2;
    });
    Branch branch = {layer ? 1 : 0, positionOf(operation)};
    for (const Operation* definer : ownOf(operation)) {
      branch.layers += of(*definer).layers;
      branch.first = std::min(branch.first, of(*definer).first);
    }
    return branch;
  }

  /// The ends of the branches with layers that meet in `operation`.
  std::vector<Operation*> branchesOf(const Operation& operation) const {
    std::vector<Operation*> ends = ownOf(operation);
    std::erase_if(ends, [&](Operation* end) { return of(*end).layers == 0; });
    return ends;
  }

  /// Where everything that the branch reads is there at `position`, and it begins later.
  bool moveBefore(Operation& end, std::size_t position) {
    if (of(end).first < position) return false;
    std::unordered_set<const Operation*> moved = {&end};
    std::vector<const Operation*> open = {&end};
    while (!open.empty()) {
      const Operation* operation = open.back();
      open.pop_back();
      for (const Value* operand : operation->operands()) {
        const Operation* definer = operand ? operand->definer() : nullptr;
        if (!definer) continue;
        if (onlyUserOf(*definer) == operation) {
          if (moved.insert(definer).second) open.push_back(definer);
        } else if (!moved.contains(definer) && positionOf(*definer) >= position) {
          return false;
        }
      }
    }
    std::vector<Operation*> order;
    for (const auto& operation : graph_.operations()) order.push_back(operation.get());
    std::stable_partition(order.begin() + static_cast<std::ptrdiff_t>(position), order.end(),
                          [&](const Operation* operation) { return moved.contains(operation); });
    graph_.reorder(order);
    return true;
  }

  Graph& graph_;
  const Positions positions_;
  std::vector<Branch> branches_; ///< by the position of their last operation
};

} // namespace

Status pdc::orderBranches(PassContext& context) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  while (Branches(**graph).moveOne()) {
  }
  return success;
}
