#include "Search/Placement.h"

#include "Numbers.h"

#include <algorithm>

using namespace pdc;

Placement::Placement(const States& states, const StageLoads& loads, const PlannerOptions& options,
                     const Machine& machine, const Relaxation& relaxation)
    : states_(states), loads_(loads), options_(options), machine_(machine), relaxation_(relaxation),
      flush_(options.schedule->hasBatches),
      devices_(static_cast<int>(std::min<std::int64_t>(machine.components(0), 1 << 20))) {}

bool Placement::matters(const Machine& machine) {
  return machine.classes().size() == 1 && machine.levels() > 1 && machine.levels() <= Carry::mostLevels;
}

double Placement::bound(const StageLoads::Stage& stage, int offset, int replicas, const StageForm& form,
                        Carry& carry) const {
  double r = replicas, largest = 0;
  std::int64_t end = std::int64_t{offset} + replicas, last = end - 1;
  double ring = replicas > 1 && !flush_ ? 2 * (r - 1) / r / r * static_cast<double>(stage.parameterBytes) : 0;
  auto up = static_cast<double>(stage.outBytes), gradientUp = static_cast<double>(stage.inGradientBytes);
  auto down = static_cast<double>(stage.inBytes),
       gradientDown = static_cast<double>(stage.outGradientBytes + stage.passGradientBytes);
  double slowest = machine_.bytesPerMs(0), latency = machine_.routeLatencyMs(0);
  for (int level = 1; level < machine_.levels(); ++level) {
    std::int64_t inside = machine_.inside(level);
    double capacity = machine_.bytesPerMs(level);
    std::int64_t first = offset / inside, final = last / inside;
    bool fromStart = offset == first * inside, toEnd = end == (final + 1) * inside;
    double &upBytes = carry.upBytes[level], &downBytes = carry.downBytes[level];
    if (toEnd) upBytes = downBytes = 0;
    auto charge = [&](double share, bool values, bool results, double reduced) {
      upBytes += share * ((results ? up : 0) + (values ? gradientUp : 0)) + reduced;
      downBytes += share * ((values ? down : 0) + (results ? gradientDown : 0)) + reduced;
      largest = std::max(largest, std::max(upBytes, downBytes) / capacity);
    };
    if (first == final) {
      charge(1, fromStart, toEnd, 0);
    } else {
      slowest = std::min(slowest, capacity);
      latency = machine_.routeLatencyMs(level);
      charge(static_cast<double>(end - final * inside) / r, true, toEnd, ring);
      if (final - first >= 2) {
        upBytes = downBytes = 0;
        charge(static_cast<double>(inside) / r, true, true, ring);
      }
      upBytes = downBytes = 0;
      charge(static_cast<double>((first + 1) * inside - offset) / r, fromStart, true, ring);
    }
    if (fromStart) upBytes = downBytes = 0;
  }
  // The all-reduce knows the levels that it crosses here.
  if (replicas > 1) largest = std::max(largest, loads_.withAllReduce(stage, replicas, form, slowest, latency));
  if (machine_.sharesCores()) {
    std::int64_t firstMachine = machine_.machineOf(offset), lastMachine = machine_.machineOf(last);
    if (machine_.machineOf(end) != lastMachine) carry.coresMs = 0;
    double each = loads_.busyMs(stage, replicas, form, loads_.best().speed) / r;
    std::int64_t leaf = end;
    for (std::int64_t machine = lastMachine; machine >= firstMachine; --machine) {
      while (leaf > offset && machine_.machineOf(leaf - 1) == machine) {
        carry.coresMs += each;
        --leaf;
      }
      if (std::int64_t cores = machine_.coresOf(machine); cores > 0)
        largest = std::max(largest, carry.coresMs / static_cast<double>(cores));
      if (machine > firstMachine || offset == 0 || machine_.machineOf(offset - 1) != machine) carry.coresMs = 0;
    }
  }
  return largest;
}

bool Placement::fill(double limitMs, const std::function<bool()>& stop) {
  table_.clear();
  double work = 0, n = devices_;
  for (int j = 1; j < states_.size(); ++j) work += static_cast<double>(relaxation_.before(j).size());
  constexpr double mostWork = 3e8;
  if (work * n * n / 2 > mostWork) return false;
  std::size_t width = static_cast<std::size_t>(devices_) + 1;
  table_.assign(width * states_.size(), {infinity, -1, 0});
  table_[0].timeMs = 0;
  const std::vector<StageForm>& forms = loads_.forms();
  for (int j = 1; j < states_.size(); ++j) {
    if (stop()) {
      table_.clear();
      return false;
    }
    Entry* to = &table_[static_cast<std::size_t>(j) * width];
    for (std::size_t k = 0; k < relaxation_.before(j).size(); ++k) {
      int i = relaxation_.before(j)[k];
      const Entry* from = &table_[static_cast<std::size_t>(i) * width];
      int start = 0;
      while (start < devices_ && from[start].timeMs == infinity) ++start;
      if (start == devices_) continue;
      const StageLoads::Stage& stage = relaxation_.stage(j, k, 0);
      int most = options_.straight ? 1 : devices_ - start;
      int least = loads_.fewestReplicas(stage, limitMs, most);
      if (least == 0) continue;
      for (int replicas = least; replicas <= most; ++replicas) {
        double own = loads_.bound(stage, replicas);
        if (own >= limitMs) continue;
        for (int offset = start; offset + replicas <= devices_; ++offset) {
          double before = from[offset].timeMs;
          Entry& entry = to[offset + replicas];
          double time = std::max(before, own);
          if (time >= entry.timeMs || time >= limitMs) continue;
          double placed = infinity; // in the best form
          for (const StageForm& form : forms) {
            if (form.recompute != forms.front().recompute) continue; // takes longer
            Carry carry;
            placed = std::min(placed, bound(stage, offset, replicas, form, carry));
          }
          time = std::max(time, placed);
          if (time < entry.timeMs && time < limitMs) entry = {time, i, replicas};
        }
      }
    }
  }
  return true;
}

std::vector<RelaxedStage> Placement::path(int devices) const {
  std::vector<RelaxedStage> path;
  for (int j = states_.last(), offset = devices; j > 0;) {
    const Entry& entry = table_[static_cast<std::size_t>(j) * (devices_ + 1) + offset];
    if (entry.from < 0) return {};
    path.push_back({entry.from, j, entry.replicas});
    offset -= entry.replicas;
    j = entry.from;
  }
  return {path.rbegin(), path.rend()};
}
