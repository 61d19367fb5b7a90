#include "pdc/Analysis/TeamTimes.h"

#include "pdc/IR/Loops.h"
#include "pdcrt/Team.h"

#include <algorithm>
#include <array>
#include <map>

using namespace pdc;

namespace {

constexpr std::size_t phases = 3;

double& timeOf(CostNode& node, Phase phase) {
  return phase == Phase::forward         ? node.forwardMs
         : phase == Phase::inputGradient ? node.inputGradientMs
                                         : node.weightGradientMs;
}
double timeOf(const GroupTimes& times, Phase phase) {
  return phase == Phase::forward         ? times.forwardMs
         : phase == Phase::inputGradient ? times.inputGradientMs
                                         : times.weightGradientMs;
}

/// How many times as long as the estimate the operations of each group take in each phase.
class Scales {
public:
  Scales(const Graph& graph, const Profile& profile, const DeviceKind& device) : scales_(profile.groups.size()) {
    const Profile estimate = estimatedTimes(graph, device, profile.version);
    for (std::size_t g = 0; g < scales_.size(); ++g)
      for (std::size_t p = 0; p < phases; ++p) {
        const double estimated = timeOf(estimate.groups[g], Phase(p));
        scales_[g][p] = estimated > 0 ? timeOf(profile.groups[g], Phase(p)) / estimated : 1;
      }
  }
  double of(const Operation& operation) const {
    return scales_[static_cast<std::size_t>(operation.group)][static_cast<std::size_t>(operation.phase)];
  }

private:
  std::vector<std::array<double, phases>> scales_;
};

bool endsCollective(const Operation& operation) {
  return operation.def().kind == OpKind::collective && operation.def().split.half != CollectiveHalf::start;
}

/// The members send their terms, and then the sums; two send each other all that they have.
int stepsOf(const Reformed& reformed) {
  return reformed.from.isPartial() && !reformed.to.isSplit() && reformed.members > 2 ? 2 : 1;
}

/// What was measured of a team of so many members; null: nothing.
const TeamLink* measured(const std::vector<TeamLink>& links, std::int64_t members) {
  const auto found = std::ranges::find(links, members, &TeamLink::members);
  return found == links.end() ? nullptr : &*found;
}

/// A collective by itself, in which a member sends so many bytes, and what these take from the core that computes: as
/// long as nothing else is computed, that is a part of what was measured, and comes on top of what the link takes.
struct CollectiveTime {
  double ms = 0, coreMs = 0;
  bool isMeasured = false;

  /// What it adds to the time of what is computed, which goes on for so long behind its start.
  double beside(double waitedMs) const { return isMeasured ? std::max(waitedMs, coreMs) : waitedMs + coreMs; }
};

CollectiveTime timeOf(const Reformed& reformed, double bytes, const TeamDevices& team) {
  const double coreMs = 1e3 * 2 * bytes * team.device.coreSPerByte;
  const bool adds = reformed.from.isPartial();
  const ClusterLevel& link = team.link;
  if (const TeamLink* own = measured(adds ? link.teamSums : link.teamExchanges, reformed.members)) {
    // An all-reduce of more than two members is a reduce-scatter, and a gather behind it.
    const double steps = adds && reformed.members > 2 && reformed.to.isSplit() ? 0.5 : 1;
    return {1e3 * (steps * own->latencyS + bytes / own->bandwidthBytesPerS), coreMs, true};
  }
  return {1e3 * (stepsOf(reformed) * link.latencyS + bytes / link.bandwidthBytesPerS), coreMs, false};
}

} // namespace

/// As the runtime makes it, of elements of a member's operand.
static pdcrt::Collective collectiveOf(const Reformed& reformed, std::int64_t elements) {
  using Kind = pdcrt::Collective::Kind;
  if (reformed.from.isPartial() && !reformed.to.isSplit()) return {.kind = Kind::allReduce, .elements = elements};
  if (!reformed.to.isSplit()) return {.kind = Kind::allGather, .elements = elements};
  return {.kind = reformed.from.isPartial() ? Kind::reduceScatter : Kind::allToAll,
          .elements = elements / reformed.members};
}

std::int64_t pdc::bytesSentOverTeam(const Operation& operation) {
  if (!endsCollective(operation)) return 0;
  const Reformed reformed = operation.def().split.forms(operation);
  if (reformed.from.isWhole()) return 0; // each takes its part of what it has
  const Type& own = operation.operand(0)->type();
  if (own.elements() == 0) return 0;
  const auto members = static_cast<int>(reformed.members);
  return collectiveOf(reformed, own.elements()).sentElements(0, members) * (own.bytes() / own.elements());
}

std::int64_t pdc::bytesSentOverTeam(const Graph& stage) {
  std::int64_t bytes = 0;
  for (const auto& operation : stage.operations())
    if (operation->group >= 0) bytes += bytesSentOverTeam(*operation);
  return bytes;
}

/// What the sums of gradients take of which members have terms, before an update.
static void addSums(CostGraph& cost, const Graph& graph, const TeamDevices& team) {
  const auto members = static_cast<double>(graph.team.members);
  for (const GraphOutput& output : graph.outputs) {
    if (!graph.team.formOf(output).isPartial() || !output.value->definer()) continue;
    const double bytes = 2 * (members - 1) / members * static_cast<double>(output.value->type().bytes());
    const TeamLink* own = measured(team.link.teamSums, graph.team.members);
    const double coreMs = 1e3 * 2 * bytes * team.device.coreSPerByte;
    cost.nodes[static_cast<std::size_t>(output.value->definer()->group)].updateMs +=
        own ? std::max(coreMs, 1e3 * bytes / own->bandwidthBytesPerS)
            : coreMs + 1e3 * bytes / team.link.bandwidthBytesPerS;
  }
}

void pdc::addTeamTimes(CostGraph& cost, const Graph& graph, const Profile& profile, const TeamDevices& team,
                       bool splitBackward) {
  const DeviceKind& device = team.device;
  if (graph.team.sums) addSums(cost, graph, team);
  const Scales scales(graph, profile, device);
  const auto partOf = [&](Phase phase) {
    return phase == Phase::weightGradient && !splitBackward ? Phase::inputGradient : phase;
  };
  // What has been computed so far in each part of the program, and when the starts came.
  std::array<double, phases> computedMs = {};
  struct Sent {
    double firstMs = 0, lastMs = 0; ///< when the first part was there, and when the last one was
    std::int64_t parts = 1;
  };
  std::map<const Value*, Sent> sent; // by what arrives meanwhile
  for (const auto& operation : graph.operations()) {
    if (operation->group < 0) continue;
    double& now = computedMs[static_cast<std::size_t>(partOf(operation->phase))];
    if (operation->def().kind != OpKind::collective) {
      const double ms = scales.of(*operation) * estimatedMs(*operation, device);
      now += ms;
      const std::int64_t parts = partsOf(*operation);
      if (const Operation* const start = parts > 1 ? startThatSends(*operation->result(0)) : nullptr)
        sent[start->result()] = {.firstMs = now - ms + ms / static_cast<double>(parts), .parts = parts};
      continue;
    }
    if (operation->def().split.half == CollectiveHalf::start)
      sent.try_emplace(operation->result(), Sent{.firstMs = now}).first->second.lastMs = now;
    const auto bytes = static_cast<double>(bytesSentOverTeam(*operation));
    if (bytes == 0) continue;
    const CollectiveTime time = timeOf(operation->def().split.forms(*operation), bytes, team);
    double waitedMs = time.ms;
    if (operation->def().split.half == CollectiveHalf::finish)
      if (const auto it = sent.find(operation->operand(1)); it != sent.end()) {
        const auto& [firstMs, lastMs, parts] = it->second;
        waitedMs = std::max({0.0, firstMs + time.ms - now, lastMs + time.ms / static_cast<double>(parts) - now});
      }
    const double ms = time.beside(waitedMs);
    CostNode& node = cost.nodes[static_cast<std::size_t>(operation->group)];
    timeOf(node, operation->phase) += ms;
    const bool isForward = operation->phase == Phase::forward;
    (isForward ? node.forwardTeamMs : node.backwardTeamMs) += ms;
    (isForward ? node.forwardHiddenTeamMs : node.backwardHiddenTeamMs) += std::max(0.0, time.ms - waitedMs);
    node.teamBytes += static_cast<std::int64_t>(bytes);
  }
}
