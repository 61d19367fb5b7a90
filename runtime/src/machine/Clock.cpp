#include "Clock.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

using namespace pdcrt;

Clock::Clock(const Times& times, int links)
    : busyCores_(times.busyCores), groupOf_(times.coreGroup), groups_(1), users_(static_cast<std::size_t>(links)) {
  groups_[0].cores = times.cores;
  if (groupOf_.empty()) return;
  // Ranks with cores of their own need no clock of their own: they are group 0 together.
  groups_[0].cores = 0;
  std::vector<int> place;
  for (int cores : times.groupCores) {
    place.push_back(cores > 0 ? static_cast<int>(groups_.size()) : 0);
    if (cores > 0) groups_.emplace_back().cores = cores;
  }
  for (int& group : groupOf_) group = place[group];
}

void Clock::compute(int rank, double ms) {
  Group& group = groups_[groupOf_.empty() ? 0 : groupOf_[rank]];
  bringUp(group);
  group.computations.push_back({group.common + ms, sequence_++, rank});
  std::push_heap(group.computations.begin(), group.computations.end(), std::greater<>());
  group.busy += busyCores(rank);
  findNext(group);
  ++computing_;
}

int Clock::flow(const Load& load) {
  if (unused_.empty()) {
    unused_.push_back(static_cast<int>(flows_.size()));
    flows_.emplace_back();
  }
  int id = unused_.back();
  unused_.pop_back();
  Flow& flow = flows_[id];
  flow.links = load.links;
  flow.aloneMs = load.aloneMs;
  flow.onLinks = false;
  flow.sequence = sequence_++;
  flow.left = 1;
  if (load.latencyMs > 0) {
    flow.end = now_ + load.latencyMs;
    push(id);
  } else {
    startOnLinks(id);
  }
  return id;
}

double Clock::rateOf(const Group& group) const {
  if (group.cores <= 0 || group.busy <= group.cores) return 1;
  return static_cast<double>(group.cores) / static_cast<double>(group.busy);
}

/// Lets the common clock go on until now, at the rate since it was looked at last.
void Clock::bringUp(Group& group) const {
  group.common = group.cores <= 0 ? now_ : group.common + (now_ - group.since) * rateOf(group);
  group.since = now_;
}

/// When the first of its computations is done, which holds until there is another one.
void Clock::findNext(Group& group) const {
  group.next = group.computations.empty() ? std::numeric_limits<double>::infinity()
               : group.cores <= 0         ? group.computations[0].end
                                          : now_ + (group.computations[0].end - group.common) / rateOf(group);
}

const std::vector<Clock::Done>& Clock::pass() {
  for (const Done& done : done_)
    if (!done.computation) unused_.push_back(done.id);
  done_.clear();
  while (done_.empty() && (computing_ > 0 || !heap_.empty())) {
    double next = heap_.empty() ? std::numeric_limits<double>::infinity() : heap_[0].end;
    for (const Group& group : groups_) next = std::min(next, group.next);
    now_ = next = std::max(now_, next);
    // What ends together, but for rounding, is done together.
    double close = 1e-12 * std::max(1.0, next);
    for (Group& group : groups_) {
      if (group.next > next + close) continue;
      bringUp(group);
      while (!group.computations.empty() && group.computations[0].end <= group.common + close) {
        done_.push_back({group.computations[0].sequence, true, group.computations[0].rank});
        group.busy -= busyCores(group.computations[0].rank);
        std::pop_heap(group.computations.begin(), group.computations.end(), std::greater<>());
        group.computations.pop_back();
        --computing_;
      }
      findNext(group);
    }
    while (!heap_.empty() && heap_[0].end <= now_ + close) {
      int id = heap_[0].id;
      popFirst();
      if (!flows_[id].onLinks) {
        startOnLinks(id);
        continue;
      }
      leaveLinks(id);
      done_.push_back({flows_[id].sequence, false, id});
    }
  }
  std::sort(done_.begin(), done_.end());
  return done_;
}

std::vector<Clock::UnderWay> Clock::underWay() const {
  std::vector<UnderWay> all;
  for (const Group& group : groups_) {
    double common = group.cores <= 0 ? now_ : group.common + (now_ - group.since) * rateOf(group);
    for (const Computation& one : group.computations)
      all.push_back({one.sequence, true, one.rank, false, one.end - common});
  }
  for (const Entry& entry : heap_) {
    const Flow& flow = flows_[entry.id];
    double left = flow.onLinks ? flow.left - (now_ - flow.since) / flow.wholeMs : flow.end - now_;
    all.push_back({flow.sequence, false, entry.id, flow.onLinks, left});
  }
  std::sort(all.begin(), all.end(), [](const UnderWay& a, const UnderWay& b) { return a.sequence < b.sequence; });
  return all;
}

void Clock::skip(double ms) {
  now_ += ms;
  for (Group& group : groups_) {
    group.common += ms;
    group.since += ms;
    group.next += ms;
    for (Computation& one : group.computations) one.end += ms;
  }
  for (Entry& entry : heap_) {
    entry.end += ms;
    flows_[entry.id].since += ms;
    flows_[entry.id].end += ms;
  }
}

void Clock::startOnLinks(int id) {
  Flow& flow = flows_[id];
  flow.onLinks = true;
  flow.since = now_;
  flow.wholeMs = 0;
  for (const LinkUse& use : flow.links) users_[use.link].push_back(id);
  refresh(flow);
  push(id);
  for (const LinkUse& use : flow.links) changed(use.link);
}

void Clock::leaveLinks(int id) {
  for (const LinkUse& use : flows_[id].links) {
    std::vector<int>& users = users_[use.link];
    users.erase(std::find(users.begin(), users.end(), id));
  }
  for (const LinkUse& use : flows_[id].links) changed(use.link);
}

void Clock::changed(int link) {
  for (int id : users_[link]) {
    Flow& flow = flows_[id];
    double before = flow.end;
    if (!refresh(flow)) continue;
    heap_[flow.place].end = flow.end;
    if (flow.end < before)
      moveUp(flow.place);
    else
      moveDown(flow.place);
  }
}

/// Finds the rate again; whether it has changed.
bool Clock::refresh(Flow& flow) {
  double wholeMs = flow.aloneMs;
  for (const LinkUse& use : flow.links)
    wholeMs = std::max(wholeMs, use.ms * static_cast<double>(users_[use.link].size()));
  if (wholeMs == flow.wholeMs) return false;
  if (flow.wholeMs > 0) flow.left = std::max(0.0, flow.left - (now_ - flow.since) / flow.wholeMs);
  flow.wholeMs = wholeMs;
  flow.since = now_;
  flow.end = now_ + flow.left * wholeMs;
  return true;
}

void Clock::put(std::size_t place, const Entry& entry) {
  heap_[place] = entry;
  flows_[entry.id].place = place;
}

void Clock::moveUp(std::size_t place) {
  Entry entry = heap_[place];
  for (; place > 0 && entry < heap_[(place - 1) / 2]; place = (place - 1) / 2) put(place, heap_[(place - 1) / 2]);
  put(place, entry);
}

void Clock::moveDown(std::size_t place) {
  Entry entry = heap_[place];
  while (true) {
    std::size_t child = 2 * place + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
    if (!(heap_[child] < entry)) break;
    put(place, heap_[child]);
    place = child;
  }
  put(place, entry);
}

void Clock::push(int id) {
  heap_.push_back({flows_[id].end, flows_[id].sequence, id});
  moveUp(heap_.size() - 1);
}

void Clock::popFirst() {
  Entry last = heap_.back();
  heap_.pop_back();
  if (heap_.empty()) return;
  put(0, last);
  moveDown(0);
}
