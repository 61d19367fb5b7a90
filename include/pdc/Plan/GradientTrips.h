// How the gradient of a tensor gets to the stage that makes the tensor.
//
// It is the sum of the parts of its users, added up from the last to the first, whatever the plan (docs/Semantics.md).
// A sum is taken in the earlier of the two stages that what is added comes from, because gradients only go to earlier
// stages. Where the users' stages do not decrease, one message goes from each of these stages to the one before. Else,
// which takes parallel branches in stages of another order, one stage may send several parts, or past another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace pdc {

/// Calls `visit(from, to)` for each message: a tensor that stage `maker` makes, `users` with a part of its gradient,
/// ascending, `stageOf(user)` their stages, none before `maker`.
template <class StageOf, class Visit>
void forEachGradientTrip(int maker, std::span<const std::int64_t> users, StageOf stageOf, Visit visit) {
  int sum = maker; // its stage
  bool any = false;
  const auto go = [&](int from, int to) {
    if (from != to) visit(from, to);
  };
  for (std::size_t i = users.size(); i-- > 0; any = true) {
    const int part = stageOf(users[i]);
    const int both = any ? std::min(sum, part) : part;
    if (any) go(sum, both), go(part, both);
    sum = both;
  }
  if (any) go(sum, maker);
}

} // namespace pdc
