// Which members of a team have which experts, so that the fullest member has as little to compute as possible.
#pragma once

#include <cstdint>
#include <vector>

namespace pdc {

struct ExpertPlacement {
  std::vector<std::int32_t> order; ///< the experts of member 0, those of member 1, …, ascending in each
  std::int64_t fullest = 0;        ///< sum of the counts of the fullest member
  std::int64_t lowerBound = 0;     ///< no placement has a smaller one
  bool isOptimal() const { return fullest == lowerBound; }
};

/// Experts with these counts (of tokens, or in any unit; none negative, their sum below 2^62), of which each member
/// gets equally many; `members` divides their number. Branch and bound from the best placement that swaps find. It is
/// exact where that ends within a million steps: always up to 12 experts. Then, or where swaps reach the bound,
/// lowerBound is `fullest`. Otherwise it is the larger one of the mean and of what experts that must meet have: of the
/// members·j + 1 largest, j + 1 are with one member. The same counts give the same placement.
ExpertPlacement placeExperts(const std::vector<std::int64_t>& counts, std::int64_t members);

/// The sum of the fullest member if each has experts that follow one another in `order`.
std::int64_t fullestMember(const std::vector<std::int64_t>& counts, const std::vector<std::int32_t>& order,
                           std::int64_t members);

} // namespace pdc
