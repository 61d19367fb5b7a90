#include "pdc/Plan/TeamSplit.h"

#include <algorithm>
#include <charconv>

using namespace pdc;

std::int64_t pdc::teamsAtOnce(std::int64_t cores, const TeamSplit& split) {
  return cores > 0 ? std::max<std::int64_t>(cores / split.members, 1) : 0;
}

double pdc::shareOfCore(std::int64_t cores, const TeamSplit& split) {
  return cores > 0 ? std::min(1.0, static_cast<double>(cores) / split.members) : 1;
}

static std::string kindOf(const TeamSplit& split) {
  if (split.experts) return "ep";
  if (split.weights) return "tps";
  return split.tokens ? "sp" : "tp";
}

std::string pdc::toText(const TeamSplit& split) {
  const std::string menu = split.menu > 0 ? "#" + std::to_string(split.menu) : "";
  if (split.isNone()) return "none" + menu;
  return kindOf(split) + ":" + std::to_string(split.members) + (split.all ? ",all" : "") + menu;
}

std::string pdc::suffixOf(const TeamSplit& split) {
  return split.isNone() ? "" : "." + kindOf(split) + std::to_string(split.members) + (split.all ? ".all" : "");
}

std::optional<TeamSplit> pdc::teamSplitFromText(const std::string& text) {
  constexpr int most = 1024;
  if (text == "none") return TeamSplit{};
  const std::string name = text.substr(0, text.find(':'));
  TeamSplit split;
  split.experts = name == "ep";
  split.weights = name == "tps";
  split.tokens = split.experts || split.weights || name == "sp";
  if (name == text || kindOf(split) != name) return std::nullopt;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data() + name.size() + 1, end, split.members);
  if (problem != std::errc() || split.members < 2 || split.members > most) return std::nullopt;
  const std::string option(rest, end);
  if (!option.empty() && (option != ",all" || (split.tokens && !split.weights))) return std::nullopt;
  split.all = !option.empty();
  return split;
}

std::optional<TeamSplit> pdc::costSplitFromText(const std::string& text) {
  constexpr int most = 1024;
  const std::size_t mark = text.find('#');
  std::optional<TeamSplit> split = teamSplitFromText(text.substr(0, mark));
  if (!split || mark == std::string::npos) return split;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data() + mark + 1, end, split->menu);
  if (problem != std::errc() || rest != end || split->menu < 1 || split->menu > most) return std::nullopt;
  return split;
}

std::optional<std::vector<TeamSplit>> pdc::teamSplitsFromText(const std::string& text) {
  std::vector<std::string> texts;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    const std::string part = text.substr(begin, end == std::string::npos ? end : end - begin);
    if (part == "all" && !texts.empty())
      texts.back() += ",all";
    else
      texts.push_back(part);
  }
  std::vector<TeamSplit> splits;
  for (const std::string& each : texts) {
    const std::optional<TeamSplit> split = teamSplitFromText(each);
    if (!split) return std::nullopt;
    splits.push_back(*split);
  }
  return splits;
}
