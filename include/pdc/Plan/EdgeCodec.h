// How what crosses from one stage to another is encoded: rows of int8 with a scale each, and the few columns with
// outliers as they are (runtime/include/pdcrt/kernels/RowCodec.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pdc {

struct EdgeCodec {
  double alpha = 6;         ///< the least magnitude of a column that stays as it is
  std::int64_t columns = 4; ///< that may stay, at most

  friend bool operator==(const EdgeCodec&, const EdgeCodec&) = default;
};

/// Which of the tensors that cross are encoded: none, those for which the planner finds that it pays, or all that can
/// be.
enum class EdgeCodecPolicy : std::uint8_t { none, automatic, all };

/// "int8,alpha=6,columns=4".
std::string toText(const EdgeCodec& codec);
/// The same, both numbers optional, alpha at least 0 and columns 0 to 65,536; nothing for any other text.
std::optional<EdgeCodec> edgeCodecFromText(const std::string& text);

struct EdgeCodecChoice {
  EdgeCodecPolicy policy = EdgeCodecPolicy::none;
  EdgeCodec codec = {};
};

/// "none", "auto" or "int8", the latter two with numbers as above; nothing for any other text.
std::optional<EdgeCodecChoice> edgeCodecChoiceFromText(const std::string& text);

} // namespace pdc
