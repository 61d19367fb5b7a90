// Executes the lists of all ranks against each other, event by event; with all times zero it is the deadlock check.
// Because posts and transfers are in order, a lane is two counters: what is posted next, and what is transferred next.
#include "Machine.h"

#include <algorithm>
#include <utility>

using namespace pdcrt;

Machine::Machine(const Schedule& schedule, std::int64_t minibatches, const CheckOptions& options, CheckResult& result)
    : schedule_(schedule), minibatches_(minibatches), times_(options.times ? *options.times : Times()),
      options_(options), result_(result),
      clock_(times_, times_.sharedLinks ? 2 * static_cast<int>(schedule.ranks.size()) : times_.links),
      periodMinibatches_(periodMinibatches(schedule)), inFlight_(minibatchesInFlight(schedule)),
      rankOf_(schedule.stages.size()), ports_(schedule.stages.size()), replicaOf_(schedule.ranks.size()),
      looking_(options.untilSteady ||
               (options.times && !options.everyPeriod && !options.order && !options.trace && result.hosts.empty())) {
  for (std::size_t s = 0; s < schedule.stages.size(); ++s) {
    rankOf_[s].resize(schedule.stages[s].replicas);
    firstHost_.push_back(s == 0 ? 0 : firstHost_[s - 1] + schedule.stages[s - 1].replicas);
  }
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    for (const Host& host : schedule.ranks[r].hosts) {
      rankOf_[host.stage][host.replica] = static_cast<int>(r);
      replicaOf_[r].push_back({host.stage, host.replica});
    }
    ranks_.emplace_back(ListCursor(schedule, static_cast<int>(r), minibatches, options.evaluation));
  }
  addReductions();
  for (std::size_t e = 0; e < schedule.edges.size(); ++e)
    for (bool forward : {true, false}) addChannel(static_cast<int>(e), false, forward);
  for (std::size_t e = 0; e < schedule.shared.size(); ++e)
    for (bool versions : {true, false}) addChannel(static_cast<int>(e), true, versions);
}

void Machine::addReductions() {
  Reductions everyone{ActionKind::gradientNorm, -1};
  for (const std::vector<int>& ranks : rankOf_) everyone.ranks.insert(everyone.ranks.end(), ranks.begin(), ranks.end());
  reductions_.push_back(std::move(everyone));
  for (std::size_t s = 0; s < schedule_.stages.size(); ++s) {
    const auto stage = static_cast<int>(s);
    std::array<std::size_t, reductionLanes>& lanes = lanes_.emplace_back(); // of a norm: that of everyone, the first
    const ScheduleStage& shape = schedule_.stages[s];
    auto add = [&](ActionKind kind) {
      lanes[laneNumber(kind)] = reductions_.size();
      const int together = shape.meetIn(kind);
      for (auto first = rankOf_[s].begin(); first != rankOf_[s].end(); first += together)
        reductions_.push_back({kind, stage, std::vector<int>(first, first + together)});
    };
    add(shape.sum());
    if (shape.sharding == Sharding::optimizer) add(ActionKind::allGather);
    if (shape.sharding == Sharding::weights) add(ActionKind::unshard);
    if (schedule_.minibatchesPerUpdate == 0 && schedule_.hasNorm(stage)) add(ActionKind::gradientNorm);
  }
}

void Machine::addChannel(int edge, bool shared, bool forward) {
  int from = shared ? schedule_.shared[edge].owner : schedule_.edges[edge].from;
  int to = shared ? schedule_.shared[edge].user : schedule_.edges[edge].to;
  const ActionLane lane = shared ? (forward ? ActionLane::versions : ActionLane::parts)
                                 : (forward ? ActionLane::values : ActionLane::gradients);
  Channel channel{edge,
                  shared,
                  forward,
                  forward ? from : to,
                  forward ? to : from,
                  sendOf(lane),
                  schedule_.routing(forward ? from : to),
                  schedule_.routing(forward ? to : from)};
  const int number = static_cast<int>(channels_.size());
  ports_[channel.source].push_back({channel.send, channel.target, number});
  ports_[channel.target].push_back({otherEnd(channel.send), channel.source, number});
  if (shared) {
    for (int q = 0; q < schedule_.stages[to].replicas; ++q)
      for (bool receiving : {false, true}) {
        std::vector<Lane>& lanes = receiving ? channel.receiving : channel.sending;
        lanes.push_back({0, 0});
        for (std::int64_t Lane::*counter : {&Lane::posted, &Lane::next})
          moveOn(channel, lanes.back(), q, receiving, counter);
      }
  } else {
    auto addLanes = [](std::vector<Lane>& lanes, const Routing& routing) {
      for (int q = 0; q < routing.replicas(); ++q) lanes.push_back({routing.minibatch(0, q), routing.minibatch(0, q)});
    };
    addLanes(channel.sending, channel.from);
    addLanes(channel.receiving, channel.to);
  }
  channels_.push_back(std::move(channel));
}

bool Machine::isServed(const Channel& channel, int q, std::int64_t version) const {
  const SharedEdge& edge = schedule_.shared[channel.edge];
  return channel.forward ? schedule_.takesVersion(edge, q, version) : schedule_.hasPart(edge, q, version);
}

/// Moves a counter of a lane to its next minibatch or version.
void Machine::moveOn(Channel& channel, Lane& lane, int q, bool receiving, std::int64_t Lane::*counter) {
  if (!channel.shared)
    lane.*counter = (receiving ? channel.to : channel.from).next(lane.*counter);
  else
    do ++(lane.*counter);
    while (!isServed(channel, q, lane.*counter));
}

int Machine::channelOf(const Action& action) const {
  for (const Port& port : ports_[action.stage])
    if (port.kind == action.kind && port.peer == action.peer) return port.channel;
  return -1;
}

int Machine::replicaAt(int rank, int stage) const {
  for (const auto& [hosted, replica] : replicaOf_[rank])
    if (hosted == stage) return replica;
  return 0;
}

/// Sender and receiver of a transfer, as ranks.
std::pair<int, int> Machine::endsOf(const Channel& channel, std::int64_t index, int q) const {
  if (!channel.shared)
    return {rankOf_[channel.source][channel.from.replica(index)], rankOf_[channel.target][channel.to.replica(index)]};
  const SharedEdge& edge = schedule_.shared[channel.edge];
  int owner = rankOf_[edge.owner][q % schedule_.stages[edge.owner].replicas], user = rankOf_[edge.user][q];
  return channel.forward ? std::pair(owner, user) : std::pair(user, owner);
}

void Machine::run() {
  passTime();
  conclude();
}

void Machine::passTime() {
  for (std::size_t r = 0; r < ranks_.size(); ++r) wake(static_cast<int>(r));
  settle();
  while (!result_.steady) {
    const std::vector<Clock::Done>& done = clock_.pass();
    if (done.empty()) break;
    for (const Clock::Done& one : done) {
      if (one.computation)
        finishComputation(one.id);
      else
        finish(tasks_[one.id]);
    }
    settle();
    if (std::exchange(newPeriod_, false) && looking_) lookForSteadyState();
  }
}

Halt Machine::runTo(std::int64_t gate) {
  gate_ = gate;
  for (std::size_t r = 0; r < ranks_.size(); ++r) wake(static_cast<int>(r));
  settle();
  Halt halt;
  for (const Rank& rank : ranks_) {
    halt.round.push_back(rank.list.round());
    halt.offset.push_back(rank.list.offset());
    halt.executed += rank.list.executed();
  }
  return halt;
}

std::vector<double> Machine::runUntil(const std::vector<std::int64_t>& executed) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r].most = executed[r];
  passTime();
  std::vector<double> idleSince;
  for (const Rank& rank : ranks_) idleSince.push_back(rank.blocked ? rank.since : rank.use.lastMs);
  return idleSince;
}

void Machine::settle() {
  while (!ready_.empty()) {
    int rank = ready_.front();
    ready_.pop_front();
    ranks_[rank].queued = false;
    advance(rank);
  }
}

void Machine::wake(int r) {
  Rank& rank = ranks_[r];
  if (rank.computing || rank.queued) return;
  rank.queued = true;
  ready_.push_back(r);
}

/// Executes the list of rank `r` until it computes, blocks or ends.
void Machine::advance(int r) {
  Rank& rank = ranks_[r];
  while (const Action* next = rank.computing ? nullptr : rank.list.peek()) {
    const Action& action = *next;
    if (rank.list.executed() >= rank.most) break;
    if (action.wait) {
      double startedMs = 0;
      if (!isDone(r, action, &startedMs)) {
        if (!rank.blocked) rank.since = clock_.now();
        rank.blocked = true;
        return;
      }
      if (rank.blocked) account(r, startedMs);
    } else if (isComputation(action.kind)) {
      if (action.kind == ActionKind::forward && action.index >= gate_) return;
      compute(r, action);
    } else if (isReduction(action.kind)) {
      postReduction(r, action);
    } else {
      post(r, action);
    }
    rank.list.pop();
    if (!rank.list.peek() || rank.list.executed() >= rank.most) rank.use.lastMs = clock_.now();
  }
}

/// Whether a wait is over, and when what it waited for started.
bool Machine::isDone(int rank, const Action& action, double* startedMs) const {
  if (isReduction(action.kind)) {
    const Reductions& reductions = reductions_[reductionOf(rank, action)];
    *startedMs = reductions.startedMs;
    return reductions.done >= action.index;
  }
  const Channel& channel = channels_[channelOf(action)];
  const bool sending = channel.source == action.stage;
  const std::vector<Lane>& lanes = sending ? channel.sending : channel.receiving;
  if (!channel.shared) {
    const Lane& lane = lanes[(sending ? channel.from : channel.to).replica(action.index)];
    *startedMs = lane.started;
    return lane.next > action.index;
  }
  bool done = true;
  forEachServed(schedule_, schedule_.shared[channel.edge], action, replicaAt(rank, action.stage), [&](int q) {
    *startedMs = std::max(*startedMs, lanes[q].started);
    done &= lanes[q].next > action.index;
  });
  return done;
}

/// Splits the time that a rank was blocked at what it waited for having started.
void Machine::account(int r, double startedMs) {
  Rank& rank = ranks_[r];
  rank.blocked = false;
  double from = std::min(std::max(startedMs, rank.since), clock_.now());
  (rank.begun ? rank.use.waitingMs : rank.use.fillMs) += from - rank.since;
  bool reduction = isReduction(rank.list.peek()->kind);
  (reduction ? rank.use.allReduceMs : rank.use.transferMs) += clock_.now() - from;
  if (options_.waits && clock_.now() > rank.since) tell({r, -1, *rank.list.peek(), rank.since, clock_.now()});
}

void Machine::post(int rank, const Action& action) {
  int index = channelOf(action);
  Channel& channel = channels_[index];
  bool receiving = channel.source != action.stage;
  std::vector<Lane>& lanes = receiving ? channel.receiving : channel.sending;
  if (!channel.shared) {
    const Routing& routing = receiving ? channel.to : channel.from;
    lanes[routing.replica(action.index)].posted = routing.next(action.index);
    startTransfer(index, action.index, 0);
    return;
  }
  forEachServed(schedule_, schedule_.shared[channel.edge], action, replicaAt(rank, action.stage), [&](int q) {
    if (!isServed(channel, q, action.index)) return;
    moveOn(channel, lanes[q], q, receiving, &Lane::posted);
    startTransfer(index, action.index, q);
  });
}

void Machine::startTransfer(int index, std::int64_t b, int q) {
  Channel& channel = channels_[index];
  Lane& from = channel.sending[channel.shared ? q : channel.from.replica(b)];
  Lane& to = channel.receiving[channel.shared ? q : channel.to.replica(b)];
  if (from.busy || to.busy || from.next != b || to.next != b || from.posted <= b || to.posted <= b) return;
  from.busy = to.busy = true;
  Task task{false, index, q, b, clock_.now()};
  if (options_.order) result_.started.push_back(actionOf(task));
  if (!options_.times) return begin(task, load_);
  if (channel.shared || channel.sending.size() > 1 || channel.receiving.size() > 1) {
    loadOf(channel, b, q, load_);
    return begin(task, load_);
  }
  if (!channel.loadKnown) loadOf(channel, b, q, channel.load);
  channel.loadKnown = true;
  begin(task, channel.load);
}

/// What a transfer takes.
void Machine::loadOf(const Channel& channel, std::int64_t b, int q, Load& load) const {
  load.latencyMs = load.aloneMs = 0; // keeping the memory of its list
  load.links.clear();
  auto [source, target] = endsOf(channel, b, q);
  if (channel.shared) {
    if (times_.sharedLoad) times_.sharedLoad(schedule_.shared[channel.edge], channel.forward, source, target, load);
  } else if (times_.transferLoad) {
    times_.transferLoad(schedule_.edges[channel.edge], channel.forward, source, target, load);
  } else if (times_.transfer) {
    load.aloneMs = times_.transfer(schedule_.edges[channel.edge], channel.forward);
    if (times_.sharedLinks) load.links = {{2 * source, load.aloneMs}, {2 * target + 1, load.aloneMs}};
  }
}

std::size_t Machine::reductionOf(int rank, const Action& action) const {
  const auto stage = static_cast<std::size_t>(action.stage);
  const std::size_t first = lanes_[stage][laneNumber(action.kind)];
  if (reductions_[first].stage < 0) return first;
  return first + static_cast<std::size_t>(replicaAt(rank, action.stage)) / reductions_[first].ranks.size();
}

/// Which of the groups of a stage's replicas has this lane.
int Machine::groupOf(int which) const {
  const Reductions& lane = reductions_[which];
  return lane.stage < 0 ? 0 : which - static_cast<int>(lanes_[lane.stage][laneNumber(lane.kind)]);
}

void Machine::postReduction(int rank, const Action& action) {
  const std::size_t which = reductionOf(rank, action);
  Reductions& reductions = reductions_[which];
  auto ahead = static_cast<std::size_t>(action.index - reductions.started - 1);
  if (reductions.posted.size() <= ahead) reductions.posted.resize(ahead + 1, 0);
  ++reductions.posted[ahead];
  startReduction(static_cast<int>(which));
}

void Machine::startReduction(int which) {
  Reductions& reductions = reductions_[which];
  if (reductions.busy || reductions.posted.empty() || reductions.posted[0] < static_cast<int>(reductions.ranks.size()))
    return;
  reductions.busy = true;
  reductions.posted.pop_front();
  reductions.startedMs = clock_.now();
  Task task{true, which, 0, ++reductions.started, clock_.now()};
  if (options_.order) result_.started.push_back(actionOf(task));
  load_ = {};
  // A norm is a few bytes: only waiting for each other takes time.
  const bool takesTime = reductions.kind != ActionKind::gradientNorm;
  if (takesTime && times_.allReduceLoad) {
    times_.allReduceLoad(reductions.kind, reductions.stage, groupOf(which), load_);
  } else if (takesTime && times_.allReduce) {
    load_.aloneMs = times_.allReduce(reductions.kind, reductions.stage);
    if (times_.sharedLinks)
      for (int rank : reductions.ranks)
        for (int link : {2 * rank, 2 * rank + 1}) load_.links.push_back({link, load_.aloneMs});
  }
  begin(task, load_);
}

/// Puts what takes time under way, and finishes what does not.
void Machine::begin(const Task& task, const Load& load) {
  bool takesTime = load.latencyMs > 0 || load.aloneMs > 0 ||
                   std::any_of(load.links.begin(), load.links.end(), [](const LinkUse& use) { return use.ms > 0; });
  if (!takesTime) return finish(task);
  auto id = static_cast<std::size_t>(clock_.flow(load));
  if (tasks_.size() <= id) tasks_.resize(id + 1);
  tasks_[id] = task;
}

/// How a transfer (as its send) or an all-reduce is named.
Action Machine::actionOf(const Task& task) const {
  if (task.allReduce) {
    const Reductions& reductions = reductions_[task.channel];
    return {reductions.kind, false, std::max(0, reductions.stage), -1, task.index};
  }
  const Channel& channel = channels_[task.channel];
  return {channel.send, false, channel.source, channel.target, task.index};
}

void Machine::tell(const TracedAction& traced) {
  if (options_.trace) result_.trace.push_back(traced);
  if (options_.observe) options_.observe(traced);
  if (cycle_ && options_.retell && (traced.rank < options_.retoldRanks || traced.peerRank < options_.retoldRanks))
    cycle_->told.push_back(traced);
}

void Machine::finish(const Task& done) {
  Task task = done; // what starts next may take its place
  if (task.allReduce) {
    Reductions& reductions = reductions_[task.channel];
    tell({reductions.ranks[0], -1, actionOf(task), task.startMs, clock_.now()});
    reductions.busy = false;
    reductions.done = task.index;
    for (int rank : reductions.ranks) wake(rank);
    return startReduction(task.channel);
  }
  Channel& channel = channels_[task.channel];
  std::int64_t b = task.index;
  auto [source, target] = endsOf(channel, b, task.lane);
  tell({source, target, actionOf(task), task.startMs, clock_.now()});
  const int fromLane = channel.shared ? task.lane : channel.from.replica(b);
  const int toLane = channel.shared ? task.lane : channel.to.replica(b);
  Lane &from = channel.sending[fromLane], &to = channel.receiving[toLane];
  for (Lane* lane : {&from, &to}) {
    lane->busy = false;
    lane->started = task.startMs;
  }
  moveOn(channel, from, fromLane, false, &Lane::next);
  moveOn(channel, to, toLane, true, &Lane::next);
  wake(source);
  wake(target);
  startTransfer(task.channel, from.next, task.lane);
  if (to.next != from.next) startTransfer(task.channel, to.next, task.lane);
}

void Machine::compute(int r, const Action& action) {
  Rank& rank = ranks_[r];
  rank.computing = true;
  rank.action = action;
  rank.since = clock_.now();
  rank.durationMs = times_.computation && action.kind != ActionKind::reshard ? times_.computation(action) : 0;
  if (action.kind == ActionKind::reshard) return finishComputation(r);
  if (!rank.begun) rank.use.firstMs = clock_.now();
  rank.begun = true;
  if (rank.durationMs > 0)
    clock_.compute(r, rank.durationMs);
  else
    finishComputation(r);
}

void Machine::finishComputation(int r) {
  Rank& rank = ranks_[r];
  rank.computing = false;
  rank.use.computeMs += rank.durationMs;
  if (!result_.hosts.empty())
    result_.hosts[firstHost_[rank.action.stage] + replicaAt(r, rank.action.stage)].computeMs += rank.durationMs;
  rank.use.sharedMs += std::max(0.0, clock_.now() - rank.since - rank.durationMs);
  rank.use.lastMs = clock_.now();
  tell({r, -1, rank.action, rank.since, clock_.now()});
  bool backward = rank.action.kind == ActionKind::backward || rank.action.kind == ActionKind::backwardWeight;
  if (backward || rank.action.kind == ActionKind::evaluate) doneWithInput(rank.action.index);
  wake(r);
}

void Machine::doneWithInput(std::int64_t minibatch) {
  if (!options_.times) return;
  if (static_cast<std::size_t>(minibatch) >= inputDone_.size()) {
    inputDone_.resize(static_cast<std::size_t>(minibatch) + 1, -1);
    stagesLeft_.resize(inputDone_.size(), static_cast<int>(rankOf_.size()));
  }
  if (--stagesLeft_[minibatch] > 0) return; // stages that wait for nothing from others run ahead of them
  inputDone_[minibatch] = clock_.now();
  std::int64_t each = periodMinibatches_;
  for (; inputs_ < static_cast<std::int64_t>(inputDone_.size()) && inputDone_[inputs_] >= 0; ++inputs_)
    newPeriod_ |= inputs_ % each == 0;
}

void pdcrt::execute(const Schedule& schedule, std::int64_t minibatches, const CheckOptions& options,
                    CheckResult& result) {
  Machine(schedule, minibatches, options, result).run();
}

struct GatedRun::State {
  State(const Schedule& schedule, std::function<void(const TracedAction&)> observe)
      : machine(schedule, endless, {.order = false, .observe = std::move(observe)}, result) {}
  CheckResult result;
  Machine machine;
};

GatedRun::GatedRun(const Schedule& schedule, std::function<void(const TracedAction&)> observe)
    : state_(std::make_unique<State>(schedule, std::move(observe))) {}
GatedRun::~GatedRun() = default;

Halt GatedRun::runTo(std::int64_t gate) {
  return state_->machine.runTo(gate);
}
