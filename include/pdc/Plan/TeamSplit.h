// How a stage is divided over the team of devices that computes each of its replicas.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pdc {

struct TeamSplit {
  int members = 1;      ///< devices of the team; 1: the stage is not divided
  bool all = false;     ///< every axis of a parameter is divided, whether that is worth its communication or not
  bool tokens = false;  ///< positions of sequences are divided instead, and no parameters
  bool experts = false; ///< with `tokens`: samples are divided instead of positions, and parameters of experts
  bool weights = false; ///< with `tokens`: parameters are divided, too, as without it
  int menu = 0;         ///< of a cost graph with several ways to run its nodes on so many devices: which; 0: the first

  bool isNone() const { return members == 1; }
  friend bool operator==(const TeamSplit&, const TeamSplit&) = default;
};

/// Teams that `cores` cores, which several devices share, can compute for at once: at least one. 0 where each device
/// has cores of its own, as `cores` is then.
std::int64_t teamsAtOnce(std::int64_t cores, const TeamSplit& split);
/// The share of a core that a member has where `cores` cores, which several devices share, are fewer than members; else
/// 1.
double shareOfCore(std::int64_t cores, const TeamSplit& split);

/// "none", "tp:2" (tensor parallelism over two members), "tp:2,all", "sp:2" (sequence parallelism), "tps:2" (both),
/// "tps:2,all", "ep:2" (expert parallelism). The second way to run nodes has "#1" behind it.
std::string toText(const TeamSplit& split);
/// What the names of the graphs of its members end with: ".tp2", ".tp2.all"; empty for none.
std::string suffixOf(const TeamSplit& split);
/// Nothing where the text is none of these, or the team has more than 1,024 members.
std::optional<TeamSplit> teamSplitFromText(const std::string& text);
/// The same of a cost graph or a plan, where "none#1" or "tp:2#1" is the second way to run its nodes.
std::optional<TeamSplit> costSplitFromText(const std::string& text);
/// "none,tp:2,all,tp:4": three splits. Nothing where one of them is none.
std::optional<std::vector<TeamSplit>> teamSplitsFromText(const std::string& text);

} // namespace pdc
