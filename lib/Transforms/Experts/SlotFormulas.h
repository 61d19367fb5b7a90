// What a graph computes of the place of a token in the queue of its expert, on the way to a slot: whether it is below
// the capacity, the place or the last slot, the place or a mark outside. The numbers in there follow from the capacity,
// and become those of another one.
//
// A formula is known by its values at all places, not by how it is written: each place is tried.
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/Pass/Pass.h"

#include <unordered_map>
#include <vector>

namespace pdc {

/// Places have room for `now` tokens, and shall have room for `then`; there are tokens enough for `queue` places.
struct SlotCount {
  std::int64_t now = 0, then = 0, queue = 0;
  friend bool operator==(const SlotCount&, const SlotCount&) = default;
};

/// The values of which `slots` is made by formulas of one operand, casts and views: where places come from.
std::vector<const Value*> placesBehind(const Value* slots);

/// Replaces the formulas of places so that they are those of the other capacity. Reports an operation that computes
/// something else of a place, or of it something that another capacity would not make the same formula.
Status takeOtherCapacity(PassContext& context, Graph& graph, const std::unordered_map<const Value*, SlotCount>& places);

} // namespace pdc
