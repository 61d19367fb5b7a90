// Quantities as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace pdc {

/// "512 bytes", "12.3 KiB", "4.0 MiB", "61.2 GiB".
std::string sizeText(std::int64_t bytes);

} // namespace pdc
