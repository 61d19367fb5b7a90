#include "pdc/Plan/TeamSplit.h"

#include <algorithm>
#include <charconv>

using namespace pdc;

std::int64_t pdc::teamsAtOnce(std::int64_t cores, const TeamSplit& split) {
  return cores > 0 ? std::max<std::int64_t>(cores / split.members, 1) : 0;
}

std::string pdc::toText(const TeamSplit& split) {
  if (split.isNone()) return "none";
  return (split.experts  ? "ep:"
          : split.tokens ? "sp:"
                         : "tp:") +
         std::to_string(split.members) + (split.all ? ",all" : "");
}

std::optional<TeamSplit> pdc::teamSplitFromText(const std::string& text) {
  constexpr int most = 1024;
  if (text == "none") return TeamSplit{};
  TeamSplit split;
  split.experts = text.starts_with("ep:");
  split.tokens = split.experts || text.starts_with("sp:");
  if (!split.tokens && !text.starts_with("tp:")) return std::nullopt;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data() + 3, end, split.members);
  if (problem != std::errc() || split.members < 2 || split.members > most) return std::nullopt;
  const std::string option(rest, end);
  if (!option.empty() && (option != ",all" || split.tokens)) return std::nullopt;
  split.all = !option.empty();
  return split;
}
