#include "pdcrt/Places.h"

using namespace pdcrt;

Places::Places(const Schedule& schedule) : schedule_(&schedule), firstOf_{0} {
  for (const ScheduleStage& stage : schedule.stages) rankOf_.emplace_back(static_cast<std::size_t>(stage.replicas), -1);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const std::vector<Host>& hosts = schedule.ranks[rank].hosts;
    for (const Host& host : hosts)
      rankOf_[static_cast<std::size_t>(host.stage)][static_cast<std::size_t>(host.replica)] = static_cast<int>(rank);
    for (int member = 0; member < team(hosts[0]); ++member) places_.push_back({static_cast<int>(rank), member});
    firstOf_.push_back(static_cast<int>(places_.size()));
  }
}

std::string Places::count() const {
  const std::string text = std::to_string(ranks()) + (ranks() == 1 ? " rank" : " ranks");
  return processes() == ranks() ? text : text + " of " + std::to_string(processes()) + " processes";
}

std::size_t Places::hostCount() const {
  std::size_t count = 0;
  for (int process = 0; process < processes(); ++process) count += hosts(process).size();
  return count;
}

int Places::process(const Host& host, int member) const {
  const auto stage = static_cast<std::size_t>(host.stage), replica = static_cast<std::size_t>(host.replica);
  const int rank = rankOf_[stage][replica];
  return rank < 0 ? -1 : process(rank, member);
}

std::vector<int> Places::partners(const Host& own, int member, const Host& other, bool sends) const {
  if (!sends) return {process(other, member % team(other))};
  std::vector<int> receivers;
  for (int receiver = member; receiver < team(other); receiver += team(own))
    receivers.push_back(process(other, receiver));
  return receivers;
}
