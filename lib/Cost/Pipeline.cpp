#include "pdc/Cost/Pipeline.h"

#include "pdc/Cost/Loads.h"
#include "pdc/Cost/StageBuckets.h"
#include "pdc/Plan/GradientTrips.h"
#include "pdc/Schedule/PlanSchedule.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

using namespace pdc;

/// Adds up edges of the same stages and sorts them.
static void mergeEdges(std::vector<PipelineEdge>& edges) {
  std::sort(edges.begin(), edges.end(), [](const PipelineEdge& a, const PipelineEdge& b) {
    return a.from != b.from ? a.from < b.from : a.to < b.to;
  });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (kept > 0 && edges[kept - 1].from == edges[i].from && edges[kept - 1].to == edges[i].to) {
      PipelineEdge& sum = edges[kept - 1];
      sum.forwardBytes += edges[i].forwardBytes;
      sum.backwardBytes += edges[i].backwardBytes;
      sum.forward |= edges[i].forward;
      sum.backward |= edges[i].backward;
    } else {
      edges[kept++] = edges[i];
    }
  }
  edges.resize(kept);
}

/// The stages of `nodes` but `from`, sorted.
static void otherStages(std::span<const std::int64_t> nodes, const std::vector<int>& stageOf, int from,
                        std::vector<int>& stages) {
  stages.clear();
  for (std::int64_t node : nodes)
    if (stageOf[node] != from) stages.push_back(stageOf[node]);
  std::sort(stages.begin(), stages.end());
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
}

static bool isDelayed(const Pipeline& pipeline, const PipelineStage& stage) {
  return pipeline.schedule->syncDelay(pipeline.sync, static_cast<int>(pipeline.stages.size()), stage.replicas) > 0;
}

/// What follows from the sums: all-reduces, what is exposed of them, bytes at the ends of edges.
static void finish(Pipeline& pipeline, const Machine& machine) {
  const bool splits = pipeline.schedule->splitsBackward;
  mergeEdges(pipeline.edges);
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    PipelineStage& stage = pipeline.stages[s];
    stage.syncDelay = isDelayed(pipeline, stage) ? 1 : 0;
    stage.allReduceMs = stage.replicas > 1 ? allReduceMsOf(pipeline, static_cast<int>(s), machine) : 0;
    const double reducingMs = splits ? stage.weightGradientMs : stage.backwardMs();
    // Between its sum and its update a stage whose weights lie in shards leaves the rank to others.
    stage.exposedSyncMs =
        stage.syncDelay > 0 || stage.isInShards()
            ? 0
            : exposedSyncMs(stage.buckets, reducingMs, stage.allReduceMs, stage.allReduceCoreMs, stage.isSharded());
  }
  for (const PipelineEdge& edge : pipeline.edges) {
    PipelineStage &from = pipeline.stages[edge.from], &to = pipeline.stages[edge.to];
    to.bytes.valuesIn += edge.forwardBytes;
    to.bytes.gradientsOut += edge.backwardBytes;
    (edge.to > edge.from + 1 ? from.bytes.gradientsPast : from.bytes.gradientsIn) += edge.backwardBytes;
  }
}

/// What transfers and all-reduces take from the devices, at speed 1. Chunks of one rank send each other nothing.
static void addCoreTimes(Pipeline& pipeline, const Machine& machine) {
  for (const PipelineEdge& edge : pipeline.edges) {
    PipelineStage &from = pipeline.stages[edge.from], &to = pipeline.stages[edge.to];
    if (from.firstRank == to.firstRank) continue;
    const double valueMs = machine.coreMs(static_cast<double>(edge.forwardBytes)),
                 gradientMs = machine.coreMs(static_cast<double>(edge.backwardBytes));
    from.forwardMs += valueMs * mostReceivers(from.team, to.team);
    to.forwardMs += valueMs;
    from.inputGradientMs += gradientMs;
    to.inputGradientMs += gradientMs * mostReceivers(to.team, from.team);
  }
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    PipelineStage& stage = pipeline.stages[s];
    stage.allReduceCoreMs = machine.allReduceCoreMs(stage.bytes.parameters, stage.replicas);
    stage.updateMs += stage.allReduceCoreMs * allReducesOf(pipeline, static_cast<int>(s));
  }
}

static PipelineStage sumOf(const CostGraph& graph, const PlannerOptions& options, const PartitionStage& part) {
  PipelineStage stage;
  stage.replicas = part.replicas;
  stage.team = part.team;
  stage.sharding = options.sharding(part.replicas, part.shards);
  if (stage.isSharded() && options.owners(part.replicas) < part.replicas) stage.shardDegree = options.shardDegree;
  std::int64_t scratch = 0, workspace = 0;
  for (std::int64_t v : part.nodes) {
    const CostNode& node = graph.nodes[v];
    stage.forwardMs += node.forwardMs;
    stage.inputGradientMs += node.inputGradientMs;
    stage.weightGradientMs += node.weightGradientMs;
    stage.forwardTeamMs += node.forwardTeamMs;
    stage.backwardTeamMs += node.backwardTeamMs;
    stage.forwardHiddenTeamMs += node.forwardHiddenTeamMs;
    stage.backwardHiddenTeamMs += node.backwardHiddenTeamMs;
    stage.updateMs += node.updateMs + (part.replicas > 1 ? node.lateUpdateMs : 0);
    stage.bytes.parameters += node.parameterBytes;
    stage.bytes.frozen += node.frozenBytes;
    stage.bytes.gradients += node.gradientBytes;
    stage.bytes.savedAs(part.recompute ? Keeping::recomputed : Keeping::kept) += node.savedBytes;
    stage.bytes.handover += node.handoverBytes;
    scratch = std::max(scratch, node.scratchBytes);
    workspace = std::max(workspace, node.workspaceBytes);
  }
  stage.updateMs /= stage.owners();
  stage.bytes.scratch = scratch + workspace;
  if (part.recompute) {
    stage.inputGradientMs += stage.forwardMs;
    stage.backwardTeamMs += stage.forwardTeamMs;
    stage.backwardHiddenTeamMs += stage.forwardHiddenTeamMs;
  }
  return stage;
}

/// The next so many neighbouring leaves of one machine among `leaves`, of which `taken` are taken; -1: there are none.
static std::int64_t takeTeam(const Machine& machine, const std::vector<std::int64_t>& leaves, std::size_t& taken,
                             int team) {
  for (const auto members = static_cast<std::size_t>(team); taken + members <= leaves.size(); ++taken) {
    const std::int64_t first = leaves[taken], last = leaves[taken + members - 1];
    if (last - first + 1 != team || machine.machineOf(first) != machine.machineOf(last)) continue;
    taken += members;
    return first;
  }
  return -1;
}

/// Stages in turn on equal devices; those of one rank have the same leaves. Returns the speed of each stage.
static std::vector<double> placeInTurn(Pipeline& pipeline, const Machine& machine) {
  const DeviceClass& devices = machine.classes()[0];
  int count = static_cast<int>(pipeline.stages.size());
  for (int s = 0; s < count; ++s) {
    PipelineStage& stage = pipeline.stages[s];
    stage.firstRank = static_cast<std::size_t>(pipeline.schedule->rankOfStage(s, count) * stage.replicas);
    stage.limitBytes = devices.memoryBytes;
  }
  auto ranks = static_cast<std::ptrdiff_t>(count / pipeline.schedule->stagesPerRank * pipeline.stages[0].replicas);
  pipeline.leaves.assign(devices.leaves.begin(), devices.leaves.begin() + ranks);
  return std::vector<double>(pipeline.stages.size(), devices.speed);
}

/// The same on ranks of their own.
static std::vector<double> place(Pipeline& pipeline, const Machine& machine, const Partition& partition) {
  const std::vector<DeviceClass>& classes = machine.classes();
  std::vector<double> speeds;
  std::vector<std::size_t> taken(classes.size(), 0);
  for (std::size_t s = 0; s < partition.stages.size(); ++s) {
    const PartitionStage& part = partition.stages[s];
    PipelineStage& stage = pipeline.stages[s];
    stage.firstRank = pipeline.leaves.size();
    double speed = 0;
    for (std::size_t c = 0; c < classes.size(); ++c) {
      int count = !part.ofClass.empty() ? part.ofClass[c] : c == 0 ? part.replicas : 0;
      if (count == 0) continue;
      bool first = speed == 0;
      speed = first ? classes[c].speed : std::min(speed, classes[c].speed);
      stage.limitBytes = first ? classes[c].memoryBytes : std::min(stage.limitBytes, classes[c].memoryBytes);
      for (int i = 0; i < count; ++i) {
        const std::int64_t leaf = takeTeam(machine, classes[c].leaves, taken[c], part.team);
        pipeline.isPlaced = pipeline.isPlaced && leaf >= 0;
        pipeline.leaves.push_back(std::max<std::int64_t>(leaf, 0));
      }
    }
    speeds.push_back(speed);
  }
  return speeds;
}

/// The edges of a value, which goes to each stage that uses it, and of its gradient. A member that has a part gathers
/// the whole before that leaves for a stage of another split. `users` is scratch.
static void addTensor(Pipeline& pipeline, const CostGraph& graph, const Partition& partition, const Machine& machine,
                      const std::vector<int>& stageOf, std::size_t t, std::vector<int>& users) {
  const auto splitOf = [&](int stage) { return partition.stages[static_cast<std::size_t>(stage)].split; };
  const auto gatherMs = [&](int stage) {
    const CostTensor& own = graph.in(splitOf(stage)).tensors[t];
    return own.isPart ? machine.gatherMs(pipeline.stages[stage].team, static_cast<double>(own.bytes)) : 0;
  };
  const CostTensor& tensor = graph.tensors[t];
  const int from = stageOf[tensor.from];
  otherStages(tensor.to, stageOf, from, users);
  if (users.empty()) return;
  PipelineStage& maker = pipeline.stages[from];
  const std::int64_t own = graph.in(splitOf(from)).tensors[t].bytes, whole = wholeBytes(graph, t);
  const bool gathers = std::any_of(users.begin(), users.end(), [&](int to) { return splitOf(to) != splitOf(from); });
  const bool keeps = std::any_of(users.begin(), users.end(), [&](int to) { return splitOf(to) == splitOf(from); });
  maker.bytes.sent += keeps || !gathers ? own : 0;
  if (gathers && !(keeps && own == whole)) maker.bytes.sent += whole;
  if (gathers) maker.forwardMs += gatherMs(from);
  for (int to : users) pipeline.edges.push_back({from, to, splitOf(to) == splitOf(from) ? own : whole, 0, true, false});
  forEachGradientTrip(
      from, tensor.gradientUsers(), [&](std::int64_t node) { return stageOf[node]; },
      [&](int later, int earlier) {
        const std::int64_t bytes = bytesBetween(graph, t, splitOf(later), splitOf(earlier));
        pipeline.edges.push_back({earlier, later, 0, bytes, false, true});
        if (splitOf(later) != splitOf(earlier)) pipeline.stages[later].inputGradientMs += gatherMs(later);
      });
}

Pipeline pdc::pipelineOf(const CostGraph& graph, const Machine& machine, const PlannerOptions& options,
                         const Partition& partition, std::vector<int>& stageOf) {
  Pipeline pipeline;
  pipeline.schedule = options.schedule;
  pipeline.microbatches = options.schedule->hasBatches ? options.microbatches : 0;
  pipeline.sync = options.sync;
  stageOf.assign(graph.nodes.size(), -1);
  pipeline.stages.reserve(partition.stages.size());
  for (std::size_t s = 0; s < partition.stages.size(); ++s) {
    pipeline.stages.push_back(sumOf(graph.in(partition.stages[s].split), options, partition.stages[s]));
    for (std::int64_t v : partition.stages[s].nodes) stageOf[v] = static_cast<int>(s);
  }
  const std::vector<double> speeds =
      options.schedule->stagesPerRank > 1 ? placeInTurn(pipeline, machine) : place(pipeline, machine, partition);
  const auto graphOf = [&](int stage) -> const CostGraph& {
    return graph.in(partition.stages[static_cast<std::size_t>(stage)].split);
  };
  std::vector<int> users;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t)
    addTensor(pipeline, graph, partition, machine, stageOf, t, users);
  for (std::size_t p = 0; p < graph.sharedParameters.size(); ++p) {
    users.clear();
    for (std::int64_t node : graph.sharedParameters[p].nodes) users.push_back(stageOf[node]);
    if (users.empty()) continue;
    std::sort(users.begin(), users.end());
    const int owner = users.front();
    const CostSharedParameter& parameter = graphOf(owner).sharedParameters[p];
    pipeline.stages[owner].bytes.parameters += parameter.bytes;
    pipeline.stages[owner].bytes.gradients += parameter.bytes * static_cast<std::int64_t>(users.size());
    for (std::size_t i = 0; i < users.size();) {
      std::size_t end = i;
      while (end < users.size() && users[end] == users[i]) ++end;
      if (users[i] != owner) {
        pipeline.shared.push_back({owner, users[i], static_cast<int>(end - i), parameter.bytes});
        // It sends whole parameters.
        pdcrt::Sharding& sharding = pipeline.stages[owner].sharding;
        if (sharding == pdcrt::Sharding::weights) sharding = pdcrt::Sharding::optimizer;
      }
      i = end;
    }
  }
  for (std::size_t p = 0; p < graph.frozenParameters.size(); ++p) {
    std::set<int> stages;
    for (std::int64_t node : graph.frozenParameters[p].nodes) stages.insert(stageOf[node]);
    for (int s : stages) pipeline.stages[s].bytes.frozen += graphOf(s).frozenParameters[p].bytes;
  }
  addCoreTimes(pipeline, machine);
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    PipelineStage& stage = pipeline.stages[s];
    for (double* ms :
         {&stage.forwardMs, &stage.inputGradientMs, &stage.weightGradientMs, &stage.updateMs, &stage.allReduceCoreMs,
          &stage.forwardTeamMs, &stage.backwardTeamMs, &stage.forwardHiddenTeamMs, &stage.backwardHiddenTeamMs})
      *ms /= speeds[s];
  }
  std::vector<std::optional<StageBuckets>> buckets(static_cast<std::size_t>(graph.splits())); // few plans have such
                                                                                              // a stage
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    PipelineStage& stage = pipeline.stages[s];
    if (stage.replicas < 2 || isDelayed(pipeline, stage)) continue;
    const int split = partition.stages[s].split;
    std::optional<StageBuckets>& ofSplit = buckets[static_cast<std::size_t>(split)];
    if (!ofSplit) ofSplit.emplace(graph.in(split), options);
    stage.buckets = ofSplit->of(partition.stages[s], static_cast<int>(s), stageOf);
  }
  finish(pipeline, machine);
  return pipeline;
}

Pipeline pdc::pipelineOf(const Plan& plan, const Machine& machine, const PlannerOptions& options) {
  Pipeline pipeline;
  pipeline.schedule = plan.schedule;
  pipeline.microbatches = plan.schedule->hasBatches ? plan.microbatches : 0;
  pipeline.sync = plan.sync;
  for (const PlanStage& from : plan.stages) {
    PipelineStage stage;
    stage.replicas = from.replicas;
    stage.team = from.split.members;
    stage.sharding = from.sharding;
    stage.shardDegree = from.shardDegree;
    stage.forwardMs = from.forwardMs;
    stage.inputGradientMs = from.inputGradientMs;
    stage.weightGradientMs = from.weightGradientMs;
    stage.updateMs = from.updateMs;
    stage.allReduceCoreMs = from.allReduceCoreMs;
    stage.buckets = from.buckets;
    stage.bytes = {.parameters = from.parameterBytes,
                   .frozen = from.frozenBytes,
                   .gradients = from.gradientBytes,
                   .handover = from.handoverBytes,
                   .scratch = from.scratchBytes};
    stage.bytes.savedAs(Keeping::kept) = from.savedBytes;
    stage.firstRank = pipeline.leaves.size();
    if (plan.schedule->stagesPerRank > 1)
      stage.firstRank = static_cast<std::size_t>(from.replicas) *
                        static_cast<std::size_t>(plan.schedule->rankOfStage(static_cast<int>(pipeline.stages.size()),
                                                                            static_cast<int>(plan.stages.size())));
    std::size_t end = stage.firstRank + static_cast<std::size_t>(from.replicas);
    pipeline.leaves.resize(std::max(pipeline.leaves.size(), end), 0);
    pipeline.stages.push_back(stage);
  }
  for (const PlanRank& rank : plan.ranks)
    for (const PlanRank::Host& host : rank.hosts)
      if (!rank.devices.empty())
        pipeline.leaves[pipeline.stages[host.stage].firstRank + static_cast<std::size_t>(host.replica)] =
            rank.devices[0];
  std::vector<std::int64_t> limits = memoryLimitsOf(plan, options);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) pipeline.stages[s].limitBytes = limits[s];
  for (const EdgeTraffic& edge : trafficOf(plan))
    pipeline.edges.push_back(
        {edge.edge.from, edge.edge.to, edge.forwardBytes, edge.backwardBytes, edge.edge.forward, edge.edge.backward});
  // A value that several stages use is one buffer of the slot.
  std::vector<std::size_t> order(plan.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  auto key = [&](std::size_t i) {
    return std::tie(plan.tensors[i].from, plan.tensors[i].name, plan.tensors[i].bytes); // a part, or the whole, or both
  };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  for (std::size_t i = 0; i < order.size(); ++i)
    if (i == 0 || key(order[i]) != key(order[i - 1]))
      pipeline.stages[plan.tensors[order[i]].from].bytes.sent += plan.tensors[order[i]].bytes;
  for (const PlanSharedParameter& parameter : plan.sharedParameters)
    for (std::size_t i = 1; i < parameter.stages.size(); ++i)
      pipeline.shared.push_back({parameter.stages[0], parameter.stages[i], parameter.uses[i], parameter.bytes});
  finish(pipeline, machine);
  return pipeline;
}

static StageShape shapeAt(const Pipeline& pipeline, const std::vector<int>& warmup, int stage) {
  const PipelineStage& at = pipeline.stages[stage];
  return {at.replicas, warmup[stage], at.syncDelay};
}

int pdc::versionsOf(const Pipeline& pipeline, const PlannerOptions& options, const std::vector<int>& warmup,
                    int stage) {
  return pipeline.schedule->versions(options.weights, shapeAt(pipeline, warmup, 0), shapeAt(pipeline, warmup, stage),
                                     stage);
}

StageBytes pdc::bytesOf(const PipelineStage& stage, const PlannerOptions& options) {
  StageBytes bytes = stage.bytes;
  bytes.optimizer = options.optimizerBytes(bytes.parameters, stage.owners());
  return stage.isInShards() ? inShards(bytes, stage.owners()) : bytes;
}

double pdc::allReducesOf(const Pipeline& pipeline, int s) {
  const PipelineStage& stage = pipeline.stages[s];
  if (!stage.isInShards()) return 1;
  return sumShare(stage.replicas, stage.owners()) +
         gathersOf(pipeline, s) * gatherShare(stage.replicas, stage.owners());
}

int pdc::gathersOf(const Pipeline& pipeline, int s) {
  if (!pipeline.stages[s].isInShards()) return 0;
  return std::max(1, pipeline.schedule->sweeps(s, static_cast<int>(pipeline.stages.size())));
}

std::int64_t pdc::placesOf(const Pipeline& pipeline, int s) {
  if (!pipeline.stages[s].isInShards()) return 0;
  SharedPlaces places;
  for (int t = 0; t < static_cast<int>(pipeline.stages.size()); ++t) {
    const PipelineStage& stage = pipeline.stages[t];
    if (!stage.isInShards() || stage.firstRank != pipeline.stages[s].firstRank) continue;
    if (t < s) return 0;
    places.add(stage.bytes);
  }
  const pdcrt::RankList rank;
  return places.weightBytes(rank) + places.gradientBytes(rank);
}

std::int64_t pdc::memoryOf(const Pipeline& pipeline, const PlannerOptions& options, const std::vector<int>& warmup,
                           int s) {
  const PipelineStage& stage = pipeline.stages[s];
  const StageFrame frame{.versions = versionsOf(pipeline, options, warmup, s),
                         .gradientSets = stage.syncDelay + 1,
                         .depths = pipeline.schedule->depths(pipeline.microbatches, shapeAt(pipeline, warmup, 0),
                                                             shapeAt(pipeline, warmup, s), s)};
  std::int64_t bytes = stageMemory(frame, bytesOf(stage, options)).total() + placesOf(pipeline, s);
  for (const SharedUse& use : pipeline.shared) {
    if (use.user != s) continue;
    std::int64_t versions = versionsOf(pipeline, options, warmup, use.owner);
    const int R = pipeline.stages[use.owner].replicas;
    if (options.weights == pdcrt::WeightPolicy::stash)
      versions = std::min<std::int64_t>(versions, ((warmup[s] + std::int64_t{1}) * stage.replicas + R - 1) / R + 1);
    bytes += sharedBytes(use.bytes, versions, use.uses);
  }
  return bytes;
}
