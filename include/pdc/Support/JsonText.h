// JSON that is written.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace pdc {

/// Text for people to read and edit: whatever fits stands on one line. Ends with a newline. Numbers that are not finite
/// become null.
std::string pretty(const nlohmann::ordered_json& value);

} // namespace pdc
