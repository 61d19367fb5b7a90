// Help for names that nobody knows: which known one was meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pdc {

/// The known name that `name` looks like a misspelling of: at most a third of its letters inserted, left out, changed,
/// or swapped with a neighbour, upper and lower case and '_', '-' alike. Empty if none does.
std::string nearestName(std::string_view name, const std::vector<std::string_view>& known);

/// "did you mean 'parameter_bytes'?", or, where nothing is near, "known here: a, b, c".
std::string helpForUnknown(std::string_view name, const std::vector<std::string_view>& known);

} // namespace pdc
