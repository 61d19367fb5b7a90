// Another capacity for mixtures of experts whose rows are dealt out by index.
//
// The capacity C of an expert is how many tokens it takes: C = ⌈F · k · S / E⌉ for S tokens that are dealt out together
// (of a group, where they have groups), k choices of each, E experts and the capacity factor F (Lepikhin et al. 2020,
// GShard, arXiv:2006.16668, section 2.2; Fedus et al. 2021, Switch Transformers, arXiv:2101.03961, section 2.2).
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/Pass/Pass.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pdc {

/// An operation that puts rows into the slots of experts.
struct SlotsOfExperts {
  Operation* operation = nullptr;
  const Value *experts = nullptr, *slots = nullptr; ///< i64, [tokens, choices], or with groups before them
  std::int64_t count = 0;                           ///< of experts
  std::int64_t capacity = 0;                        ///< slots of each
  std::int64_t choices = 0; ///< of all tokens that are dealt out together: no expert can have more
};

/// In program order.
std::vector<SlotsOfExperts> slotsOfExperts(const Graph& graph);

/// A layer with experts, and how many slots each of them had and has.
struct LayerCapacity {
  std::string name; ///< as evaluations call it
  std::int64_t before = 0, after = 0;
};
/// "experts of 'blocks.0.experts' have 13 slots each, 10 in the file"
std::string toText(const LayerCapacity& layer);

/// Gives every layer of @main that deals out rows to experts the capacity of the factor, which is greater than 0, and
/// tells of each in `layers` if it is not null. What the file computes of the capacity follows: the same rule drops
/// tokens, with another number. Runs before differentiation. Reports a graph without such layers, a place of a token of
/// which something else is computed, and a capacity that a parameter or a result of the graph has as an axis.
Status setCapacity(PassContext& context, double factor, std::vector<LayerCapacity>* layers = nullptr);

/// The same, with a capacity for each of slotsOfExperts.
Status setCapacity(PassContext& context, const std::vector<std::int64_t>& capacities,
                   std::vector<LayerCapacity>* layers = nullptr);

} // namespace pdc
