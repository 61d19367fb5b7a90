#include "Chain/ChainFill.h"

#include <algorithm>
#include <cmath>

using namespace pdc;

ChainFill::ChainFill(const ChainSums& sums, const PlannerOptions& options, const Machine& machine)
    : sums_(sums), options_(options), machine_(machine), devices_(static_cast<int>(machine.components(0))),
      levels_(machine.levels()), stashes_(options.weights != pdcrt::WeightPolicy::latest) {
  for (std::size_t i = 0; i < sums.parameters.size(); ++i)
    slots_.push_back((stashes_ ? sums.parameters[i] : 0) + sums.savedBytes[i]);
}

ChainFill::Stages ChainFill::plan(const Choice& choice) {
  choice_ = choice;
  lengths_.clear();
  for (int length = 1; length < sums_.n; length += 1 + length / choice.lengths) lengths_.push_back(length);
  lengths_.push_back(sums_.n);
  limitBytes_ = choice.memoryShare * static_cast<double>(machine_.classes()[0].memoryBytes);
  labels_.assign(static_cast<std::size_t>(levels_), std::vector<Label>(static_cast<std::size_t>(sums_.n) + 1));
  for (int kind = 0; kind < levels_; ++kind) {
    label(kind, sums_.n).key = 0;
    label(kind, sums_.n).ahead = -1e300;
  }
  for (int p = sums_.n; p > 0; --p)
    for (int kind = 0; kind < levels_; ++kind) {
      bool isNew = kind == 0 || label(kind, p).leaves != label(kind - 1, p).leaves;
      if (label(kind, p).key < 1e300 && isNew) extend(p, kind);
    }
  Stages stages;
  if (label(0, 0).key >= 1e300) return stages;
  for (int i = 0, kind = 0; i < sums_.n;) {
    const Label& at = label(kind, i);
    stages.ends.push_back(at.next);
    stages.replicas.push_back(at.replicas);
    i = at.next;
    kind = at.nextKind;
  }
  stages.replicas[0] += devices_ - label(0, 0).leaves; // so that the borders are where they were counted from
  return stages;
}

double ChainFill::keyOf(int i, double leaves, double ahead, double allMs) const {
  return leaves + choice_.weight * std::max(0.0, ahead + allMs / choice_.timeMs) * slots_[i] / limitBytes_;
}

void ChainFill::extend(int p, int kind) {
  const Label behind = label(kind, p);
  if (behind.leaves + sums_.workMs(0, p) / choice_.timeMs > devices_ * (1 + 1e-12)) return;
  for (std::size_t k = 0; k < lengths_.size(); ++k) {
    int i = p - lengths_[k];
    if (i < 0) break;
    // Of the first places of a stretch the one that fewest bytes cross.
    constexpr int looked = 10;
    int shortest = std::min(k > 0 ? p - lengths_[k - 1] : p, i + looked);
    for (int other = i + 1; other < shortest; ++other)
      if (sums_.cutBytes[other] < sums_.cutBytes[i] && i > 0) i = other;
    double least = sums_.workMs(i, p) / choice_.timeMs;
    if (behind.leaves + least > devices_ * (1 + 1e-12)) break;
    if (sums_.gradients[p] - sums_.gradients[i] + sums_.frozen[p] - sums_.frozen[i] + slots_[p] - slots_[i] >
        limitBytes_)
      break;
    double ahead = std::max(behind.ahead, -1e200);
    double key = keyOf(i, behind.leaves + std::max(1.0, std::ceil(least * (1 - 1e-12))), ahead,
                       behind.allMs + sums_.loopMs[p] - sums_.loopMs[i]);
    bool mayImprove = false;
    for (int other = 0; other < levels_; ++other) mayImprove |= key < label(other, i).key;
    if (mayImprove) tryStage(stageOf(i, p), behind, kind);
  }
}

ChainFill::Stage ChainFill::stageOf(int i, int p) const {
  return {i,
          p,
          sums_.workMs(i, p),
          sums_.loopMs[p] - sums_.loopMs[i],
          sums_.parameters[p] - sums_.parameters[i],
          sums_.gradients[p] - sums_.gradients[i],
          sums_.frozen[p] - sums_.frozen[i],
          slots_[p] - slots_[i],
          sums_.cutBytes[i],
          sums_.cutBytes[p]};
}

double ChainFill::syncMs(double parameters, int level, int replicas) const {
  if (replicas < 2) return 0;
  double ring = 2.0 * (replicas - 1) / replicas * parameters;
  return 2.0 * (replicas - 1) * machine_.routeLatencyMs(level) + ring / machine_.routeBytesPerMs(level);
}

/// The fewest replicas from `least` to `most` with an all-reduce over links of a level in time; 0 if there are none.
int ChainFill::syncReplicas(double parameters, int level, int least, int most) const {
  auto suffices = [&](int r) { return syncMs(parameters, level, r) <= r * choice_.timeMs; };
  if (least > most) return 0;
  if (suffices(least)) return least;
  if (!suffices(most)) return 0;
  int low = least, high = most;
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    (suffices(middle) ? high : low) = middle;
  }
  return high;
}

/// stageMemory() without minibatches in flight, about: rings of three values and two gradients; no scratch and no
/// handovers. It is a guess that the cost model checks.
double ChainFill::baseBytes(const Stage& stage, int replicas) const {
  double states = options_.leastOptimizerState() + (stashes_ ? 0 : 1);
  return stage.parameters * states + stage.gradients * (replicas > 1 ? 2 : 1) + stage.frozen + 3 * stage.in +
         2 * stage.out;
}

int ChainFill::memoryReplicas(const Stage& stage, const Label& behind, int replicas) const {
  double perMinibatch = stage.slotBytes + stage.in + stage.out, left = limitBytes_ - baseBytes(stage, replicas);
  double most = perMinibatch > 0 ? std::floor(left / perMinibatch) : left >= 0 ? 1e9 : 0;
  if (most < 1) return devices_ + 1;
  if (stage.to == sums_.n) return replicas;
  double needed = behind.ahead + (stage.loopMs + behind.allMs) / choice_.timeMs;
  return static_cast<int>(std::min<double>(devices_ + 1, std::max<double>(replicas, std::ceil(needed / most - 1e-9))));
}

void ChainFill::tryStage(const Stage& stage, const Label& behind, int kind) {
  int least = std::max(1, static_cast<int>(std::ceil(stage.workMs / choice_.timeMs * (1 - 1e-12))));
  least = memoryReplicas(stage, behind, least);
  for (int span = 0; span < levels_; ++span) {
    std::int64_t inside = span + 1 < levels_ ? machine_.inside(span + 1) : devices_;
    int room = static_cast<int>(inside - behind.leaves % inside);
    int smaller = span > 0 ? static_cast<int>(machine_.inside(span) - behind.leaves % machine_.inside(span)) : 0;
    int r = syncReplicas(stage.parameters, span, std::max(least, smaller + 1), room);
    if (r == 0) continue;
    bool placed = attempt(stage, behind, kind, r);
    for (int level = 1; level <= std::min(span + 1, levels_ - 1); ++level) {
      std::int64_t unit = machine_.inside(level), end = (behind.leaves + r + unit - 1) / unit * unit;
      if (end - behind.leaves <= room) placed |= attempt(stage, behind, kind, static_cast<int>(end) - behind.leaves);
    }
    if (placed) return;
  }
}

/// Loads of links, from the level of the second component on; `span` becomes the largest level that its ring crosses.
bool ChainFill::crosses(const Stage& stage, const Label& behind, int replicas, Label& label, int& span) const {
  double r = replicas, ring = replicas > 1 ? 2 * (r - 1) / r * stage.parameters / r : 0;
  if ((stage.in + stage.out) / r + ring > choice_.timeMs * machine_.bytesPerMs(0)) return false;
  std::int64_t begin = behind.leaves, end = begin + replicas;
  for (int level = 1; level < levels_; ++level) {
    std::int64_t inside = machine_.inside(level), first = begin / inside, last = (end - 1) / inside;
    double most = choice_.timeMs * machine_.bytesPerMs(level), load = 0;
    bool isFresh = begin % inside == 0, closes = end % inside == 0;
    if (first == last) {
      load = isFresh ? stage.out : behind.carried[level];
      if (closes) load += stage.in;
    } else {
      span = level;
      auto inFirst = static_cast<double>(inside - begin % inside);
      auto inLast = static_cast<double>(end - last * inside);
      load = (isFresh ? inFirst / r * stage.out : behind.carried[level] + (r - inFirst) / r * stage.out) +
             inFirst / r * stage.in + ring;
      if (load > most) return false;
      if (last > first + 1 && static_cast<double>(inside) / r * (stage.in + stage.out) + ring > most) return false;
      load = inLast / r * stage.out + ring + (closes ? inLast / r : 1 - inLast / r) * stage.in;
    }
    if (load > most) return false;
    label.carried[level] = closes ? 0 : load;
  }
  return true;
}

/// There and back between this stage and the one behind it.
double ChainFill::transfersMs(const Stage& stage, const Label& behind, int span) const {
  if (stage.to == sums_.n) return 0;
  int level = span;
  for (int k = 1; k < levels_; ++k)
    if (behind.leaves % machine_.inside(k) == 0 || behind.replicas > machine_.inside(k)) level = std::max(level, k);
  return 2 * machine_.transferMs(level, stage.out);
}

/// Minibatches that the stage must have room for.
double ChainFill::inFlight(const Stage& stage, const Label& behind, int replicas, double behindMs, double sync) {
  if (stage.to == sums_.n) return 1;
  double perT = 1 / choice_.timeMs, needed = behind.ahead + (stage.loopMs + behindMs) * perT;
  if (replicas == 1 || sync * perT <= 1) return std::max(needed, 1.0);
  constexpr int farthest = 40;
  double r = replicas, most = behind.ahead;
  int i = stage.to, kind = -1, steps = 0;
  for (const Label* u = &behind; i < sums_.n && u->ahead + r - 1 > most; ++steps) {
    most = std::max(most, steps == farthest ? u->ahead + r - 1 : r * std::ceil(u->inFlight / r) - u->behindMs * perT);
    if (steps == farthest) break;
    i = u->next;
    kind = u->nextKind;
    u = &label(kind, i);
  }
  walked_ += steps;
  return std::max({needed, most + (stage.loopMs + behindMs + sync) * perT - r, 1.0});
}

bool ChainFill::attempt(const Stage& stage, const Label& behind, int kind, int replicas) {
  ++steps_;
  double r = replicas;
  std::int64_t end = behind.leaves + replicas;
  if (end > devices_) return false;
  double ahead = std::max(behind.ahead, -1e200);
  double key = keyOf(stage.from, static_cast<double>(end), ahead, behind.allMs + stage.loopMs);
  auto improves = [&](double value, int level) {
    return end % machine_.inside(level) == 0 && value < label(level, stage.from).key;
  };
  bool mayImprove = false;
  for (int level = 0; level < levels_; ++level) mayImprove |= improves(key, level);
  if (!mayImprove) return false;
  Label made;
  int span = 0;
  if (!crosses(stage, behind, replicas, made, span)) return false;
  double sync = syncMs(stage.parameters, span, replicas);
  bool waits = replicas > 1 && (options_.sync != SyncPolicy::overlap || (stage.from == 0 && stage.to == sums_.n));
  if (sync > r * choice_.timeMs || stage.workMs + (waits ? sync : 0) > r * choice_.timeMs * (1 + 1e-12)) return false;
  made.behindMs = behind.allMs + transfersMs(stage, behind, span);
  double versions = std::ceil(inFlight(stage, behind, replicas, made.behindMs, sync) / r - 1e-9);
  versions = std::max(versions, 1.0);
  if (baseBytes(stage, replicas) + versions * (stage.slotBytes + stage.in + stage.out) > limitBytes_) return false;
  made.leaves = static_cast<int>(end);
  made.next = stage.to;
  made.nextKind = kind;
  made.replicas = replicas;
  made.inFlight = (versions - 1) * r;
  made.allMs = made.behindMs + stage.loopMs;
  made.ahead = std::max(behind.ahead, made.inFlight - made.behindMs / choice_.timeMs);
  made.key = keyOf(stage.from, made.leaves, made.ahead, made.allMs);
  bool placed = false;
  for (int level = 0; level < levels_; ++level)
    if (improves(made.key, level)) {
      label(level, stage.from) = made;
      placed = true;
    }
  return placed;
}
