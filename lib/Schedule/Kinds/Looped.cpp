// Schedules whose ranks host several stages. How many buffers of each kind they need is found by executing the order of
// one batch with F = I = W = 1: so many that no computation waits for a buffer. An execution in which nothing waits in
// vain orders all events, so the lists cannot deadlock either, whatever the times.
#include "Kinds/Looped.h"

#include "Kinds/ListBuilder.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <map>

using namespace pdc;
using pdcrt::ActionKind;

std::optional<int> pdc::stagesPerRankIn(std::string_view text, std::string_view prefix) {
  constexpr int most = 1024;
  if (!text.starts_with(prefix)) return std::nullopt;
  int stages = 0;
  const char* const end = text.data() + text.size();
  const auto [next, code] = std::from_chars(text.data() + prefix.size(), end, stages);
  if (code != std::errc() || next != end || stages < 2 || stages > most) return std::nullopt;
  return stages;
}

namespace {

/// Ends of the computations of one batch, by stage and minibatch; -1 before.
struct BatchTimes {
  std::vector<std::vector<double>> forward, input, weight;
};

class BatchExecution {
public:
  BatchExecution(const PipelineShape& shape, const BatchOrder& order, std::int64_t minibatches)
      : shape_(shape), order_(order), next_(order.size()), free_(order.size()) {
    auto n = static_cast<std::size_t>(minibatches);
    times_.forward.assign(shape.stages.size(), std::vector<double>(n, -1));
    times_.weight = times_.input = times_.forward;
  }

  BatchTimes run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < order_.size(); ++r)
        for (; next_[r] < order_[r].size() && compute(order_[r][next_[r]], free_[r]); ++next_[r]) moved = true;
    }
    for (std::size_t r = 0; r < order_.size(); ++r) assert(next_[r] == order_[r].size() && "the order is executable");
    return std::move(times_);
  }

private:
  /// Computes if everything that it needs is there; `free` is when its rank is.
  bool compute(const Computation& what, double& free) {
    auto j = static_cast<std::size_t>(what.minibatch);
    double start = free;
    auto need = [&](double end) {
      start = std::max(start, end);
      return end >= 0;
    };
    bool backward = what.kind == ActionKind::backward || what.kind == ActionKind::backwardInput;
    for (const pdcrt::ScheduleEdge& edge : shape_.edges) {
      if (what.kind == ActionKind::forward && edge.forward && edge.to == what.stage &&
          !need(times_.forward[edge.from][j]))
        return false;
      if (backward && edge.backward && edge.from == what.stage && !need(times_.input[edge.to][j])) return false;
    }
    free = start + (what.kind == ActionKind::backward ? 2 : 1);
    if (what.kind == ActionKind::forward) times_.forward[what.stage][j] = free;
    if (backward) times_.input[what.stage][j] = free;
    if (what.kind == ActionKind::backward || what.kind == ActionKind::backwardWeight)
      times_.weight[what.stage][j] = free;
    return true;
  }

  const PipelineShape& shape_;
  const BatchOrder& order_;
  std::vector<std::size_t> next_;
  std::vector<double> free_;
  BatchTimes times_;
};

} // namespace

/// Minibatches that have come (in order) and not gone (in order), at most.
static int mostAtOnce(const std::vector<double>& come, const std::vector<double>& gone) {
  std::size_t most = 0;
  for (std::size_t j = 0, left = 0; j < come.size(); ++j) {
    while (left < j && gone[left] <= come[j]) ++left;
    most = std::max(most, j + 1 - left);
  }
  return static_cast<int>(most);
}

static std::int64_t mostMinibatches(const PipelineShape& shape) {
  std::int64_t R = shape.stages[0].replicas;
  return (shape.microbatches + R - 1) / R;
}

BatchOrder LoopedKind::orderOf(const PipelineShape& shape) const {
  return order(static_cast<int>(shape.stages.size()) / stagesPerRank, mostMinibatches(shape));
}

/// Slots, handovers and warm-up of each stage, from the order of its own computations.
static void readDepths(const BatchOrder& order, std::vector<pdcrt::ScheduleStage>& stages) {
  struct Count {
    int forwards = 0, inputs = 0, weights = 0;
  };
  std::vector<Count> counts(stages.size());
  for (const std::vector<Computation>& rank : order)
    for (const Computation& what : rank) {
      pdcrt::ScheduleStage& stage = stages[what.stage];
      Count& count = counts[what.stage];
      if (what.kind == ActionKind::forward) {
        ++count.forwards;
        if (count.inputs == 0) stage.warmup = count.forwards - 1;
      }
      stage.slots = std::max(stage.slots, count.forwards - count.weights);
      if (what.kind == ActionKind::backward || what.kind == ActionKind::backwardInput) ++count.inputs;
      stage.handovers = std::max(stage.handovers, count.inputs - count.weights);
      if (what.kind == ActionKind::backward || what.kind == ActionKind::backwardWeight) ++count.weights;
    }
}

namespace {

/// Computations of a rank that follow each other in one stage: for them its sharded weights are gathered once.
struct Visit {
  int stage = 0;
  std::size_t begin = 0, end = 0; ///< in the rank's order
  bool sums = false;              ///< the last backward is one of them
};

std::vector<Visit> visitsOf(const std::vector<Computation>& order) {
  std::vector<Visit> visits;
  std::map<int, std::size_t> lastOf; // by stage: its last visit
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (visits.empty() || visits.back().stage != order[i].stage) visits.push_back({order[i].stage, i});
    visits.back().end = i + 1;
    lastOf[order[i].stage] = visits.size() - 1;
  }
  for (const auto& [stage, last] : lastOf) visits[last].sums = true;
  return visits;
}

} // namespace

/// How often each stage with sharded weights is visited in a batch.
static void readSweeps(const BatchOrder& order, std::vector<pdcrt::ScheduleStage>& stages) {
  for (pdcrt::ScheduleStage& stage : stages)
    if (stage.sharding == pdcrt::Sharding::weights) stage.sweeps = 0;
  for (const std::vector<Computation>& rank : order)
    for (const Visit& visit : visitsOf(rank))
      if (pdcrt::ScheduleStage& stage = stages[visit.stage]; stage.sharding == pdcrt::Sharding::weights) ++stage.sweeps;
}

pdcrt::Schedule LoopedKind::frame(const PipelineShape& shape) const {
  pdcrt::Schedule schedule;
  schedule.kind = name;
  schedule.weights = shape.weights;
  schedule.minibatchesPerUpdate = shape.microbatches;
  schedule.gradientNorm = shape.gradientNorm;
  for (const StageShape& stage : shape.stages)
    schedule.stages.push_back({.replicas = stage.replicas,
                               .sharding = stage.replicas > 1 ? stage.sharding : pdcrt::Sharding::none,
                               .shardDegree = stage.shardDegree,
                               .teamSums = stage.teamSums});
  const BatchOrder batch = orderOf(shape);
  readDepths(batch, schedule.stages);
  readSweeps(batch, schedule.stages);
  for (const std::vector<Computation>& rank : batch) {
    std::vector<int> stages;
    for (const Computation& what : rank) stages.push_back(what.stage);
    std::sort(stages.begin(), stages.end());
    stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
    for (int q = 0; q < shape.stages[0].replicas; ++q) {
      schedule.ranks.emplace_back();
      for (int stage : stages) schedule.ranks.back().hosts.push_back({stage, q});
    }
  }
  const BatchTimes times = BatchExecution(shape, batch, mostMinibatches(shape)).run();
  schedule.edges = shape.edges;
  for (const pdcrt::ScheduleEdge& edge : shape.edges) {
    const pdcrt::ScheduleStage &from = schedule.stages[edge.from], &to = schedule.stages[edge.to];
    // One more than what is in use, for what arrives meanwhile.
    int values = std::max(mostAtOnce(times.forward[edge.from], times.weight[edge.to]), to.slots + 1);
    int gradients = std::max(mostAtOnce(times.input[edge.to], times.weight[edge.from]), from.handovers + 1);
    schedule.rings.push_back({.forwardSend = edge.forward ? from.slots : 0,
                              .forwardReceive = edge.forward ? values : 0,
                              .backwardSend = edge.backward ? 2 : 0,
                              .backwardReceive = edge.backward ? gradients : 0});
  }
  for (const auto& [owner, user] : shape.shared) schedule.shared.push_back({owner, user});
  return schedule;
}

namespace {

/// The lists of the batches of one rank.
class RankBatches {
public:
  /// `inOneGo`: the backwards of a stage follow each other.
  RankBatches(const pdcrt::Schedule& schedule, pdcrt::RankList& rank, const std::vector<Computation>& order,
              bool inOneGo)
      : schedule_(schedule), rank_(rank), order_(order), inOneGo_(inOneGo), visits_(visitsOf(order)) {
    for (const pdcrt::Host& host : rank.hosts) builders_.emplace_back(schedule, host);
  }

  void fill() {
    fillBatches(schedule_, rank_, builders_, [&](auto& list, const BatchSpan& batch) {
      std::size_t gathered = 0; // visits whose weights have been asked for
      for (std::size_t i = 0; i < visits_.size(); ++i) {
        // While this one computes, the weights of the next one are on their way.
        std::size_t next = i + 1;
        while (next < visits_.size() && !isGathered(visits_[next].stage)) ++next;
        for (; gathered < std::min(next + 1, visits_.size()); ++gathered)
          if (const int stage = visits_[gathered].stage; isGathered(stage)) builderOf(stage).unshard(list);
        visit(list, visits_[i], batch);
      }
    });
  }

private:
  bool isGathered(int stage) const { return schedule_.stages[stage].sharding == pdcrt::Sharding::weights; }
  /// Whether the replicas of a stage add up its gradients while the rank goes on with another one: where it does not
  /// come back to the stage in this batch. What other stages have of them comes at the end.
  bool sumsEarly(int stage) const {
    const auto owns = [&](const pdcrt::SharedEdge& edge) { return edge.owner == stage; };
    return inOneGo_ && std::none_of(schedule_.shared.begin(), schedule_.shared.end(), owns);
  }
  const ListBuilder& builderOf(int stage) const {
    std::size_t i = 0;
    while (rank_.hosts[i].stage != stage) ++i;
    return builders_[i];
  }

  void visit(std::vector<pdcrt::Action>& list, const Visit& visit, const BatchSpan& batch) const {
    const ListBuilder& builder = builderOf(visit.stage);
    if (visit.sums && isGathered(visit.stage)) awaitPlace(list, visit.stage, batch.version);
    for (std::size_t i = visit.begin; i < visit.end; ++i) {
      const std::int64_t minibatch = batch.first + order_[i].minibatch;
      if (minibatch >= batch.last) continue; // a replica may have one minibatch less
      switch (order_[i].kind) {
      case ActionKind::forward: builder.forward(list, minibatch); break;
      case ActionKind::backward: builder.backward(list, minibatch); break;
      case ActionKind::backwardInput: builder.backwardInput(list, minibatch); break;
      default: builder.backwardWeight(list, minibatch);
      }
    }
    if (isGathered(visit.stage)) builder.reshard(list);
    if (visit.sums && sumsEarly(visit.stage)) builder.reduce(list, batch.version);
  }

  /// Waits for the sums whose gradients are where those of a stage will be.
  void awaitPlace(std::vector<pdcrt::Action>& list, int stage, std::int64_t version) const {
    for (const pdcrt::Host& host : rank_.hosts)
      if (host.stage != stage && isGathered(host.stage) &&
          schedule_.sumPlace(rank_, host.stage) == schedule_.sumPlace(rank_, stage))
        builderOf(host.stage).awaitReduced(list, version);
  }

  const pdcrt::Schedule& schedule_;
  pdcrt::RankList& rank_;
  const std::vector<Computation>& order_;
  bool inOneGo_;
  std::vector<Visit> visits_;
  std::vector<ListBuilder> builders_;
};

} // namespace

pdcrt::Schedule LoopedKind::build(const PipelineShape& shape) const {
  pdcrt::Schedule schedule = frame(shape);
  const BatchOrder batch = orderOf(shape);
  const auto replicas = static_cast<std::size_t>(shape.stages[0].replicas);
  const bool inOneGo = sweeps(0, static_cast<int>(shape.stages.size())) > 0;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r)
    RankBatches(schedule, schedule.ranks[r], batch[r / replicas], inOneGo).fill();
  return schedule;
}
