// What the tests of NCCL's stand-in share: ranks that are connected by it.
#pragma once

#include "DeviceBlock.h"
#include "StandIn.h"
#include "transport/nccl/NcclTransport.h"

#include <memory>
#include <thread>
#include <vector>

namespace pdcrt {

/// The lane of a team that is alone: stage 0.
inline NcclLane laneOfTeam(int members) {
  Schedule schedule;
  schedule.stages = {{.team = members}};
  schedule.ranks.resize(1);
  schedule.ranks[0].hosts = {{0, 0}};
  const std::vector<NcclLane> lanes = ncclLanes(schedule);
  EXPECT_EQ(lanes.size(), 1u);
  return lanes.front();
}

/// Connects ranks with a device each; what each of them says.
inline std::vector<Status> connectByNccl(const std::vector<NcclLane>& lanes, int count,
                                         std::vector<std::unique_ptr<Transport>>& transports) {
  stand_in::setDevices(count);
  transports = makeThreadTransports(count);
  std::vector<Status> statuses(transports.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < transports.size(); ++r)
    threads.emplace_back([&, r] { statuses[r] = makeNcclTransport(lanes, transports[r]); });
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

/// Ranks with a device each, connected by NCCL, and their communication threads.
class NcclRanks {
public:
  NcclRanks(int count, const std::vector<NcclLane>& lanes) {
    statuses = connectByNccl(lanes, count, transports);
    for (const auto& transport : transports) communicators.push_back(std::make_unique<Communicator>(*transport));
  }

  std::vector<Status> statuses;
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::unique_ptr<Communicator>> communicators;
};

inline void set(TransferGroup& group, bool outgoing, int peer, int channel, const Block& block) {
  group.resize(1);
  group.used = 1;
  group.parts[0].outgoing = outgoing;
  group.parts[0].peer = peer;
  group.parts[0].channel = channel;
  group.parts[0].data = block.memory();
  group.parts[0].bytes = bytes;
  group.parts[0].inBlocks = true;
}

} // namespace pdcrt
