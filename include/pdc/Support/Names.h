// Names in messages: which known one an unknown name means, and nouns behind numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pdc {

/// The known name that `name` looks like a misspelling of: at most a third of its letters inserted, left out, changed,
/// or swapped with a neighbour, upper and lower case and '_', '-' alike. Empty if none does.
std::string nearestName(std::string_view name, const std::vector<std::string_view>& known);

/// "did you mean 'parameter_bytes'?", or, where nothing is near, "known here: a, b, c".
std::string helpForUnknown(std::string_view name, const std::vector<std::string_view>& known);

/// "1 stage", "4 stages", "2 minibatches".
std::string counted(std::int64_t count, std::string_view noun);

} // namespace pdc
