#include "Chain/RackBound.h"

#include "Numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace pdc;

RackBound::RackBound(const ChainSums& sums, const PlannerOptions& options, const Machine& machine)
    : FewestLeaves(sums, options, machine), racks_(static_cast<int>(machine.components(machine.levels() - 1))),
      inside_(static_cast<int>(machine.inside(machine.levels() - 1))) {}

bool RackBound::rulesOut(double timeMs, std::int64_t steps) {
  timeMs_ = timeMs;
  steps_ = steps;
  linkBytes_ = timeMs * forgiven * machine_.bytesPerMs(levels_ - 1);
  findRest();
  labels_.assign(static_cast<std::size_t>(sums_.n) + 1, {});
  labels_[0].push_back({});
  for (int i = 0; i < sums_.n; ++i) {
    extend(i);
    labels_[i].clear();
    labels_[i].shrink_to_fit();
    if (steps_ < 0) return false;
  }
  return labels_[sums_.n].empty();
}

/// As in chainMemoryBound: computation, and minibatches in flight in front of the last stage.
void RackBound::findRest() {
  const int n = sums_.n;
  const double perT = 1 / (timeMs_ * forgiven);
  rest_.assign(static_cast<std::size_t>(n) + 1, 0);
  double kept = 0; // with the best last stage
  for (int j = n - 1; j >= 0; --j) {
    double work = (work_[n] - work_[j]) * perT;
    kept += (slots_[j + 1] - slots_[j]) * sums_.behindMs(j) * perT / (limitBytes_ * forgiven);
    if (leastBytes(j, n) <= limitBytes_ * forgiven) kept = std::min(kept, work);
    rest_[j] = std::max(work, kept) * (1 - 1e-9);
  }
}

/// Bytes on the link of the label's rack, without those that leave it at j.
double RackBound::bytesOn(const Label& label, int j) const {
  return j - label.start >= sums_.longestTensor ? label.later : label.now;
}

double RackBound::meanBytes(const Stage& stage, bool isLong) const {
  const std::vector<double>& bytes = isLong ? sums_.returnBytes : sums_.nextBytes;
  return std::min(bytes[stage.from], bytes[stage.to]);
}

bool RackBound::mayEnd(const Label& label, int j) const {
  if (j == sums_.n) return true;
  double out = 0; // of the last of several whole stages
  if (j > label.start) out = j - label.start >= sums_.longestTensor ? sums_.returnBytes[j] : sums_.nextBytes[j];
  return bytesOn(label, j) + out <= linkBytes_;
}

bool RackBound::isBetter(const Label& a, const Label& b, int j) const {
  if (a.rack > b.rack || a.used > b.used) return false;
  if (b.used == 0 || a.used == 0) return a.used == b.used;
  if (a.later > b.later || a.filledLater > b.filledLater) return false;
  bool areLong = j - std::max(a.start, b.start) >= sums_.longestTensor;
  return areLong || (a.now <= b.now && a.filledNow <= b.filledNow && a.start >= b.start);
}

bool RackBound::isReplaced(int j, const Label& label) const {
  return std::any_of(labels_[j].begin(), labels_[j].end(), [&](const Label& a) { return isBetter(a, label, j); });
}

void RackBound::offer(int j, Label label) {
  // In steps, downwards, so that few labels differ.
  constexpr double parts = 24;
  const double step = linkBytes_ / parts;
  for (double* bytes : {&label.now, &label.later, &label.filledNow, &label.filledLater})
    *bytes = std::floor(*bytes / step) * step;
  if (isReplaced(j, label)) return;
  std::vector<Label>& labels = labels_[j];
  labels.erase(std::remove_if(labels.begin(), labels.end(), [&](const Label& b) { return isBetter(label, b, j); }),
               labels.end());
  constexpr std::size_t most = 64;
  if (labels.size() < most) {
    labels.push_back(label);
    return;
  }
  // One that is no worse than two of them.
  for (Label& other : labels) {
    if (other.used == 0 || label.used == 0) continue;
    other = {std::min(other.rack, label.rack),
             std::min(other.used, label.used),
             std::min(other.now, label.now),
             std::min(other.later, label.later),
             std::min(other.filledNow, label.filledNow),
             std::min(other.filledLater, label.filledLater),
             std::max(other.start, label.start),
             other.isWhole || label.isWhole};
    return;
  }
  labels.push_back(label);
}

void RackBound::extend(int i) {
  const std::vector<Label> labels = labels_[i];
  if (labels.empty()) return;
  for (const Label& label : labels)
    if (label.isWhole) fillRack(label, i);
  goAcross(labels, i);
}

/// Everything that the label's rack may hold from place i on, in whole stages.
void RackBound::fillRack(const Label& label, int i) {
  const double perT = 1 / (timeMs_ * forgiven);
  Label made = label;
  made.isWhole = false;
  made.now = label.filledNow;
  made.later = label.filledLater;
  if (label.used == 0) {
    made.now = made.filledNow = i > 0 ? sums_.nextBytes[i] : 0;
    made.later = made.filledLater = i > 0 ? sums_.returnBytes[i] : 0;
    made.start = i;
  }
  double kept = 0;
  for (int j = i + 1; j <= sums_.n; ++j) {
    --steps_;
    double work = (work_[j] - work_[i]) * perT;
    kept += (slots_[j] - slots_[j - 1]) * sums_.behindMs(j - 1) * perT / (limitBytes_ * forgiven);
    // In front of the last stage; which places that one has is not known.
    double leaves = std::max({1.0, work, j < sums_.n ? kept : 0}) * (1 - 1e-9);
    if (work * (1 - 1e-9) > inside_ - label.used) break;
    made.used = label.used + static_cast<int>(std::ceil(leaves));
    if (made.used > inside_ || !isWithin(static_cast<double>(label.rack) * inside_ + made.used, j)) continue;
    if (mayEnd(made, j)) offer(j, {label.rack + 1});
    if (made.used < inside_) offer(j, made);
  }
}

/// One stage from place i on that ends in a later rack.
void RackBound::goAcross(const std::vector<Label>& labels, int i) {
  const int n = sums_.n;
  const double perT = 1 / (timeMs_ * forgiven);
  const double keptShare = sums_.behindMs(i) * perT / (limitBytes_ * forgiven);
  double first = std::numeric_limits<double>::infinity();
  for (const Label& label : labels) first = std::min(first, static_cast<double>(label.rack) * inside_ + label.used);
  constexpr double wasteful = 40; // leaves
  const double acrossPerByte = 2 / machine_.routeBytesPerMs(levels_ - 1) * perT;
  for (int j = i + 1; j <= n; ++j) {
    if (leastBytes(i, j) > limitBytes_ * forgiven) break;
    double work = (work_[j] - work_[i]) * perT, kept = j < n ? (slots_[j] - slots_[i]) * keptShare : 0;
    if (!isWithin(first + work, n)) break;
    // From two replicas on 2(r - 1)/r·bytes take r·T at most, and r²/(r - 1) ≤ r + 2.
    double parameters = sums_.parameters[j] - sums_.parameters[i];
    double leaves = std::max({2.0, work, kept, parameters * acrossPerByte - 2}) * (1 - 1e-9);
    if (!isWithin(first + leaves, j)) continue;
    const Stage stage{i,
                      j,
                      work_[j] - work_[i],
                      parameters,
                      sums_.gradients[j] - sums_.gradients[i],
                      sums_.frozen[j] - sums_.frozen[i],
                      slots_[j] - slots_[i],
                      sums_.inBytes(i, j),
                      sums_.outBytes(i, j)};
    if (leaves - work > wasteful) {
      goAcrossAnyhow(first, stage, leaves);
      continue;
    }
    for (const Label& label : labels) {
      --steps_;
      const double least = std::max(leaves, inside_ - label.used + 1.0);
      if (isWithin(static_cast<double>(label.rack) * inside_ + label.used + least, j)) goAcross(label, stage, least);
    }
  }
}

/// The same from any label, none of which ends before leaf `begin`, for a stage that has many leaves for its work.
void RackBound::goAcrossAnyhow(double begin, const Stage& stage, double least) {
  const int leaves = static_cast<int>(std::ceil(begin + least)), last = (leaves - 1) / inside_;
  endAcross(begin, stage, last, leaves - last * inside_, 0);
}

/// The labels of a stage that begins at leaf `begin` or later and ends at leaf `used` of rack `last` or later.
void RackBound::endAcross(double begin, const Stage& stage, int last, int used, double entering) {
  const int to = stage.to;
  // A whole stage behind it gets values from its replicas outside, as those inside do from the stage in front.
  auto labelAt = [&](int rack, int leaves, double bytes, double in) {
    return Label{rack, leaves, bytes + in, bytes + in, bytes + meanBytes(stage, false), bytes + meanBytes(stage, true),
                 to};
  };
  steps_ -= 4;
  if (used < inside_) {
    // Up to the border it may have more of them.
    offer(to, labelAt(last, used, ringBytes(stage, (last + 1) * inside_ - begin), entering));
  }
  if (last + 1 < racks_ && isWithin((last + 1) * inside_ + 1, to))
    offer(to, labelAt(last + 1, 1, ringBytes(stage, devices_), 0));
  for (int border = last + 1; border <= racks_ && isWithin(border * inside_, to); ++border) {
    double r = border * inside_ - begin;
    if (to < sums_.n && (stage.in + stage.out) * inside_ / r + ringBytes(stage, r) > linkBytes_) continue;
    offer(to, {border});
    break;
  }
}

void RackBound::goAcross(const Label& label, const Stage& stage, double least) {
  const int begin = label.rack * inside_ + label.used;
  // What the link of the rack that it leaves bears: all-reduce and its replicas' parts there, bytes/r, which is no less
  // with fewer replicas. What whole stages in front send to replicas outside, and what replicas inside send on, is a
  // mean of both borders' bytes.
  const double left = inside_ - label.used, reduced = 2 * (1 - 1 / least) * stage.parameters;
  double free = linkBytes_, bytes = reduced + left * stage.out;
  if (label.used == 0) {
    bytes += left * stage.in;
  } else {
    free -= bytesOn(label, stage.from);
    if (stage.from > label.start) {
      free -= meanBytes(stage, stage.from - label.start >= sums_.longestTensor);
      bytes = reduced;
    }
  }
  if (free <= 0) return;
  least = std::max(least, bytes / free * (1 - 1e-9));
  if (!isWithin(begin + least, stage.to)) return;
  const int replicas = static_cast<int>(std::ceil(least));
  const int last = (begin + replicas - 1) / inside_, used = begin + replicas - last * inside_;
  endAcross(begin, stage, last, used, used * stage.in / replicas);
}

double pdc::rackBound(const ChainSums& sums, const PlannerOptions& options, const Machine& machine, double lowMs,
                      double highMs) {
  constexpr double goal = 1.0095; // a gap of 1 %, but for rounding
  constexpr std::int64_t steps = 40'000'000, fewSteps = 10'000'000;
  int outer = machine.levels() - 1;
  if (outer < 1 || machine.bytesPerMs(outer) >= machine.bytesPerMs(outer - 1) || !sums.everyGradientReturns ||
      !(highMs < 1e300) || lowMs <= 0 || highMs <= lowMs * goal)
    return lowMs;
  RackBound racks(sums, options, machine);
  // A gap of more than a few per cent is not closed by it; then only just above what is proven.
  constexpr double within = 1.06;
  if (highMs <= lowMs * within && racks.rulesOut(highMs / goal, steps)) return highMs / goal;
  return racks.rulesOut(lowMs * goal, fewSteps) ? lowMs * goal : lowMs;
}
