// A loss whose positions a team divides. It is the mean over the positions that count, weighted by their classes, of
// which members need not have equally many. With the weight W of a member's own positions and its mean L:
//   loss = sum over the members of L · W / sum over the members of W
// and the gradient of its logits is that of L, times W / sum over the members of W.
#pragma once

#include "pdc/IR/Builder.h"

namespace pdc::ops {

/// The loss of the team, a scalar that all members have, of a member's loss and labels. `op` has the attributes of a
/// loss; the weights of its classes may be null. Null, with an error reported, where that failed.
Value* lossOfTeam(const Operation& op, Value* loss, Value* labels, Value* weights, std::int64_t members, Builder& b);

/// The gradient of a member's loss, of the gradient of the team's. Likewise.
Value* gradientOfMember(const Operation& op, Value* dloss, Value* labels, Value* weights, std::int64_t members,
                        Builder& b);

} // namespace pdc::ops
