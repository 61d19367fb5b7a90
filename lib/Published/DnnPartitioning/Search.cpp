#include "DnnPartitioning/Search.h"

#include <algorithm>

using namespace pdc;
using namespace pdc::placement;

static std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

constexpr int unreached = std::numeric_limits<int>::max();

Search::Search(const Instance& instance, const States& states, Clock::time_point deadline)
    : instance_(instance), states_(states), deadline_(deadline) {
  for (const Class& c : instance.classes) {
    if (c.cpuTime == 0)
      freeOnCpu_ += c.time;
    else
      mostTimePerCpuTime_ = std::max(mostTimePerCpuTime_, static_cast<double>(c.time) / static_cast<double>(c.cpuTime));
  }
  inStage_.assign(instance.tensors.size(), 0);
  tensorBefore_.assign(instance.tensors.size(), 0);
}

bool Search::reachedWith(std::uint32_t state, int accelerators, int cpus) const {
  return fewest_[slot(cpus, state)] <= accelerators;
}

/// Sets dominating_ for every state that is reached with that many devices, or from which steps that do not cost more
/// lead to such a state.
void Search::markDominating(int accelerators, int cpus) {
  for (std::uint32_t state = states_.full() + 1; state-- > 0;)
    dominating_[state] = reachedWith(state, accelerators, cpus) || isDominated(state);
}

bool Search::isDominated(std::uint32_t state) const {
  for (const States::Step& step : states_.steps(state))
    if (step.neverLess && dominating_[step.to]) return true;
  return false;
}

/// The smallest bound under which the devices left may take what is left after a state; 0 if nothing is.
Amount Search::needed(std::uint32_t state, int accelerators, int cpus) const {
  if (state == states_.full()) return 0;
  int acceleratorsLeft = instance_.accelerators - accelerators, cpusLeft = instance_.cpus - cpus;
  Amount left = states_.time(states_.full()) - states_.time(state);
  if (cpusLeft == 0) {
    left += states_.cut(state);
    return acceleratorsLeft == 0 ? never : (left + acceleratorsLeft - 1) / acceleratorsLeft;
  }
  left = std::max<Amount>(0, left - freeOnCpu_);
  double devices = acceleratorsLeft + cpusLeft * mostTimePerCpuTime_;
  if (left == 0 || devices <= 0) return 0;
  return static_cast<Amount>(static_cast<double>(left) / devices * (1 - 1e-12)); // rounded safely
}

void Search::offer(std::uint32_t from, std::uint32_t to, int accelerators, int cpus, bool isCpu, Amount load) {
  if (reachedWith(to, accelerators, cpus)) return;
  Amount least = std::max(load, needed(to, accelerators, cpus));
  if (least > bound_) return reject(least);
  for (int c = cpus; c <= instance_.cpus && fewest_[slot(c, to)] > accelerators; ++c)
    fewest_[slot(c, to)] = accelerators;
  origin_[slot(cpus, to)] = {from, isCpu};
  found_[at(accelerators)][at(cpus)].push_back(to);
  if (to == states_.full()) complete_ = true;
}

/// The stage with one class more; what it may no longer be on is rejected with the amount that was too large.
Search::Growth Search::grow(const Growth& stage, const States::Step& step) {
  const Class& c = instance_.classes[at(step.added)];
  Growth next = stage;
  next.state = step.to;
  next.nextStep = 0;
  next.added = step.added;
  next.time += c.time;
  next.cpuTime += c.cpuTime;
  next.size += c.size;
  for (int t : states_.tensorsOf(step.added)) {
    const Tensor& tensor = instance_.tensors[at(t)];
    int members = ++inStage_[at(t)];
    if (tensorBefore_[at(t)]) {
      if (members == 1) next.incoming += tensor.cost;
    } else {
      if (members == 1) next.outgoing += tensor.cost;
      if (members == static_cast<int>(tensor.classes.size())) next.outgoing -= tensor.cost;
    }
  }
  if (next.onAccelerator) {
    if (!c.onAccelerator || next.size > instance_.memory) {
      next.onAccelerator = false;
    } else if (next.time + next.incoming > bound_) {
      next.onAccelerator = false;
      reject(next.time + next.incoming);
    }
  }
  if (next.onCpu && next.cpuTime > bound_) {
    next.onCpu = false;
    reject(next.cpuTime);
  }
  return next;
}

void Search::shrink(int c) {
  for (int t : states_.tensorsOf(c)) --inStage_[at(t)];
}

/// Grows every stage that may follow a state. Returns false when time is up.
bool Search::expand(std::uint32_t state, int accelerators, int cpus) {
  std::fill(inStage_.begin(), inStage_.end(), 0);
  for (std::size_t t = 0; t < tensorBefore_.size(); ++t) tensorBefore_[t] = states_.touches(state, t);
  stack_.assign(1, {state, 0, -1, 0, 0, 0, 0, 0, accelerators < instance_.accelerators, cpus < instance_.cpus});
  while (!stack_.empty()) {
    Growth& top = stack_.back();
    std::span<const States::Step> steps = states_.steps(top.state);
    while (top.nextStep < steps.size() && steps[top.nextStep].added < top.added) ++top.nextStep;
    if (top.nextStep == steps.size()) {
      if (top.added >= 0) shrink(top.added);
      stack_.pop_back();
      continue;
    }
    if (++grown_ % 4096 == 0 && Clock::now() > deadline_) return false;
    const States::Step& step = steps[top.nextStep++];
    Growth next = grow(top, step);
    if (next.onAccelerator)
      offer(state, next.state, accelerators + 1, cpus, false, next.time + next.incoming + next.outgoing);
    if (next.onCpu) offer(state, next.state, accelerators, cpus + 1, true, next.cpuTime);
    if (complete_) break;
    if (next.onAccelerator || next.onCpu)
      stack_.push_back(next);
    else
      shrink(step.added);
  }
  return true;
}

Search::Answer Search::run(Amount bound) {
  bound_ = bound;
  rejected_ = never;
  complete_ = false;
  std::size_t counts = at(instance_.cpus) + 1;
  fewest_.assign(counts * states_.size(), unreached);
  origin_.assign(counts * states_.size(), {});
  dominating_.assign(states_.size(), 0);
  found_.assign(at(instance_.accelerators) + 1, std::vector<std::vector<std::uint32_t>>(counts));
  for (int c = 0; c <= instance_.cpus; ++c) fewest_[slot(c, 0)] = 0;
  found_[0][0] = {0};
  for (int accelerators = 0; accelerators <= instance_.accelerators; ++accelerators)
    for (int cpus = 0; cpus <= instance_.cpus; ++cpus) {
      std::vector<std::uint32_t>& level = found_[at(accelerators)][at(cpus)];
      if (level.empty()) continue;
      markDominating(accelerators, cpus);
      for (std::uint32_t state : level) {
        if (isDominated(state)) continue;
        if (!expand(state, accelerators, cpus)) return Answer::outOfTime;
        if (complete_) return recordPlan(), Answer::feasible;
      }
    }
  return Answer::infeasible;
}

void Search::recordPlan() {
  stages_.clear();
  value_ = 0;
  int cpus = 0;
  while (fewest_[slot(cpus, states_.full())] == unreached) ++cpus;
  for (std::uint32_t state = states_.full(); state != 0;) {
    Origin origin = origin_[slot(cpus, state)];
    Stage stage{{}, origin.isCpu};
    for (int c = 0; at(c) < instance_.classes.size(); ++c)
      if (states_.contains(state, c) && !states_.contains(origin.from, c)) stage.classes.push_back(c);
    cpus -= origin.isCpu;
    state = origin.from;
    value_ = std::max(value_, loadOf(instance_, stage));
    stages_.push_back(std::move(stage));
  }
  std::reverse(stages_.begin(), stages_.end());
}
