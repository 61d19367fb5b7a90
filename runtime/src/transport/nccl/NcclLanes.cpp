// Which lanes a schedule needs, and whether its ranks use them.
#include "NcclTransport.h"

#include "base/Index.h"
#include "pdcrt/Places.h"
#include "transport/Channels.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <utility>

namespace pdcrt {
namespace {

class Lanes {
public:
  explicit Lanes(const Schedule& schedule)
      : schedule_(schedule), places_(schedule), channel_(startChannel(schedule) + 1) {}

  void addEdge(int edge, Direction direction) {
    const ScheduleEdge& ends = schedule_.edges[index(edge)];
    const bool forward = direction == Direction::forward;
    NcclLane lane;
    lane.name = (forward ? "values of edge " : "gradients of edge ") + std::to_string(ends.from) + " > " +
                std::to_string(ends.to);
    for (int low = 0; low < replicasOf(schedule_, ends.from); ++low)
      for (int high = 0; high < replicasOf(schedule_, ends.to); ++high) {
        const Host from = {ends.from, low}, to = {ends.to, high};
        link(lane, forward ? from : to, forward ? to : from, edgeChannel(schedule_, edge, direction, low, high));
      }
    add(std::move(lane));
  }

  void addReplicas(int stage) {
    NcclLane lane;
    lane.name = "replicas of stage " + std::to_string(stage);
    const bool ofMembers = schedule_.stages[index(stage)].teamSums;
    for (int a = 0; a < replicasOf(schedule_, stage); ++a)
      for (int b = 0; b < replicasOf(schedule_, stage); ++b)
        for (int step = 0; step < 2 && (a != b || ofMembers); ++step)
          (ofMembers ? linkAll(lane, {stage, a}, {stage, b}, allReduceChannel(stage) + step)
                     : link(lane, {stage, a}, {stage, b}, allReduceChannel(stage) + step));
    if (!lane.links.empty()) add(std::move(lane));
  }

  void addShared(int shared, bool parts) {
    const SharedEdge& edge = schedule_.shared[index(shared)];
    NcclLane lane;
    lane.name = (parts ? "gradients" : "versions") + std::string(" that stages ") + std::to_string(edge.owner) +
                " and " + std::to_string(edge.user) + " share";
    for (int q = 0; q < replicasOf(schedule_, edge.user); ++q) {
      const Host owner = {edge.owner, q % replicasOf(schedule_, edge.owner)}, user = {edge.user, q};
      link(lane, parts ? user : owner, parts ? owner : user, sharedChannel(schedule_, shared, parts, q));
    }
    add(std::move(lane));
  }

  void addTeam(int rank) {
    const Host& host = schedule_.ranks[index(rank)].hosts[0];
    NcclLane lane;
    lane.name = "team of replica " + std::to_string(host.replica) + " of stage " + std::to_string(host.stage);
    lane.isTeam = true;
    for (int member = 0; member < places_.members(rank); ++member) lane.ranks.push_back(places_.process(rank, member));
    if (lane.ranks.size() > 1) add(std::move(lane));
  }

  std::vector<NcclLane> lanes;

private:
  /// What each member of a replica sends to each of another one, or to the others of its own.
  void linkAll(NcclLane& lane, Host from, Host to, int channel) {
    const int members = schedule_.stages[index(from.stage)].team;
    for (int member = 0; member < members; ++member)
      for (int receiver = 0; receiver < members; ++receiver)
        if (from.replica != to.replica || member != receiver)
          lane.links.push_back({places_.process(from, member), places_.process(to, receiver), channel});
  }

  /// What the members of a replica send to those of another one.
  void link(NcclLane& lane, const Host& from, const Host& to, int channel) const {
    for (int member = 0; member < schedule_.stages[index(from.stage)].team; ++member)
      for (int receiver : places_.partners(from, member, to, /*sends=*/true))
        lane.links.push_back({places_.process(from, member), receiver, channel});
  }

  void add(NcclLane lane) {
    for (const NcclLane::Link& link : lane.links)
      for (int rank : {link.from, link.to}) lane.ranks.push_back(rank);
    std::sort(lane.ranks.begin(), lane.ranks.end());
    lane.ranks.erase(std::unique(lane.ranks.begin(), lane.ranks.end()), lane.ranks.end());
    lane.channel = channel_++;
    lanes.push_back(std::move(lane));
  }

  const Schedule& schedule_;
  Places places_;
  int channel_;
};

/// What a rank tells rank 0, and rank 0 all.
struct LaneHello {
  std::int32_t wish = 0;  ///< BlockWay
  std::int32_t built = 0; ///< with NCCL
  char gpu[112] = {};     ///< machine and GPU
};
struct Verdict {
  std::int32_t way = 0, code = 0;
};

/// Sends or receives at start-up, when no other thread uses the transport.
Status exchange(Transport& transport, int peer, int channel, bool outgoing, void* data, std::size_t bytes) {
  Transfer transfer;
  transfer.outgoing = outgoing;
  transfer.peer = peer;
  transfer.channel = channel;
  transfer.data = static_cast<std::byte*>(data);
  transfer.bytes = bytes;
  return finishAlone(transport, transfer, "rank " + std::to_string(peer));
}

Status decide(const std::vector<LaneHello>& hellos, BlockWay& way) {
  way = static_cast<BlockWay>(hellos[0].wish);
  for (std::size_t rank = 1; rank < hellos.size(); ++rank)
    if (hellos[rank].wish != hellos[0].wish)
      return {Exit::usage, "rank " + std::to_string(rank) + " was started with another --transport than rank 0",
              "give all ranks the same flags"};
  if (way == BlockWay::host) return {};
  Status problem;
  for (std::size_t rank = 0; rank < hellos.size() && problem; ++rank) {
    if (!hellos[rank].built)
      problem = {Exit::usage, "the program of rank " + std::to_string(rank) + " was built without NCCL",
                 "build it where NCCL is, or leave out --transport=nccl"};
    for (std::size_t other = 0; other < rank && problem; ++other)
      if (std::strcmp(hellos[rank].gpu, hellos[other].gpu) == 0)
        problem = {Exit::usage,
                   "ranks " + std::to_string(other) + " and " + std::to_string(rank) + " have the same GPU (" +
                       hellos[rank].gpu + "), which NCCL refuses",
                   "start as many ranks on a machine as it has GPUs, or leave out --transport=nccl"};
  }
  if (way == BlockWay::nccl) return problem;
  way = problem ? BlockWay::nccl : BlockWay::host;
  return {};
}

} // namespace

Status finishAlone(Transport& transport, Transfer& transfer, const std::string& whom) {
  constexpr double limit = 120; // seconds: the other rank may still be loading its libraries
  const double begin = now();
  while (!transfer.advance(transport)) {
    transport.poll();
    if (transport.aborted()) {
      transfer.cancel(transport);
      return transport.failure();
    }
    if (now() - begin > limit) {
      transfer.cancel(transport);
      return {Exit::again, whom + " has not answered for " + std::to_string(static_cast<int>(limit)) + " s"};
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return {};
}

std::vector<NcclLane> ncclLanes(const Schedule& schedule) {
  Lanes lanes(schedule);
  for (std::size_t e = 0; e < schedule.edges.size(); ++e) {
    if (schedule.edges[e].forward) lanes.addEdge(static_cast<int>(e), Direction::forward);
    if (schedule.edges[e].backward) lanes.addEdge(static_cast<int>(e), Direction::backward);
  }
  for (std::size_t s = 0; s < schedule.stages.size(); ++s) lanes.addReplicas(static_cast<int>(s));
  for (std::size_t i = 0; i < schedule.shared.size(); ++i)
    for (bool parts : {false, true}) lanes.addShared(static_cast<int>(i), parts);
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) lanes.addTeam(static_cast<int>(r));
  return std::move(lanes.lanes);
}

Status chooseBlockWay(Transport& transport, const Schedule& schedule, BlockWay wish, BlockWay& way) {
  const int channel = startChannel(schedule);
  const int ranks = transport.ranks(), rank = transport.rank();
  std::vector<LaneHello> hellos(index(ranks));
  LaneHello& own = hellos[index(rank)];
  own.wish = static_cast<std::int32_t>(wish);
  own.built = static_cast<bool>(ncclAvailable());
  char machine[64] = {};
  ::gethostname(machine, sizeof machine - 1);
  std::snprintf(own.gpu, sizeof own.gpu, "%s %s", machine, gpuOf(rank).c_str());
  Verdict verdict;
  if (rank > 0) {
    if (Status status = exchange(transport, 0, channel, true, &own, sizeof own); !status) return status;
    if (Status status = exchange(transport, 0, channel, false, &verdict, sizeof verdict); !status) return status;
    way = static_cast<BlockWay>(verdict.way);
    if (verdict.code == 0) return {};
    // Rank 0 says why, and ends all. Who ended before would end rank 0 too.
    return exchange(transport, 0, channel, false, &verdict, sizeof verdict);
  }
  for (int other = 1; other < ranks; ++other)
    if (Status status = exchange(transport, other, channel, false, &hellos[index(other)], sizeof own); !status)
      return status;
  const Status status = decide(hellos, way);
  verdict.way = static_cast<std::int32_t>(way);
  verdict.code = static_cast<std::int32_t>(status.code());
  for (int other = 1; other < ranks; ++other)
    if (Status sent = exchange(transport, other, channel, true, &verdict, sizeof verdict); !sent) return sent;
  return status;
}

} // namespace pdcrt
