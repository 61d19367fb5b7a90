// The tensors of the members of a team: parts of whole ones, and what they make together (Form in Loops.h).
#pragma once

#include "pdc/IR/Loops.h"
#include "pdc/IR/Tensor.h"

#include <vector>

namespace pdc {

/// What member `member` of `members` has of a value: its part of a split, or all of a whole one.
Tensor partOf(const Tensor& whole, const Form& form, std::int64_t members, std::int64_t member);

/// The tensor with other elements at the places of an axis: those of place `order[i]` at place i, and the way back.
Tensor inOrder(const Tensor& tensor, int axis, const std::vector<std::int32_t>& order);
Tensor outOfOrder(const Tensor& tensor, int axis, const std::vector<std::int32_t>& order);

/// The value of which these are the members' tensors, at least one. Partial ones are combined in the order of members;
/// of whole ones the first is taken.
Tensor composed(const std::vector<Tensor>& ofMembers, const Form& form);

} // namespace pdc
