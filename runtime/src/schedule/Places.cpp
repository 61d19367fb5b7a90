#include "pdcrt/Places.h"

using namespace pdcrt;

Places::Places(const Schedule& schedule) : Places(schedule, std::vector<int>(schedule.ranks.size(), 1)) {}

Places::Places(const Schedule& schedule, std::span<const int> members) : schedule_(&schedule), firstOf_{0} {
  for (const ScheduleStage& stage : schedule.stages) rankOf_.emplace_back(static_cast<std::size_t>(stage.replicas), -1);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (const Host& host : schedule.ranks[rank].hosts)
      rankOf_[static_cast<std::size_t>(host.stage)][static_cast<std::size_t>(host.replica)] = static_cast<int>(rank);
    for (int member = 0; member < members[rank]; ++member) places_.push_back({static_cast<int>(rank), member});
    firstOf_.push_back(static_cast<int>(places_.size()));
  }
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
