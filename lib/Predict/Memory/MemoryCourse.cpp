// A step function in a bounded number of intervals: when there are too many, neighbours are joined.
#include "pdc/Predict/Memory.h"

#include <algorithm>
#include <cmath>

using namespace pdc;

static const MemorySplit& larger(const MemorySplit& a, const MemorySplit& b) {
  return b.total() > a.total() ? b : a;
}

void MemoryCourse::change(double ms, const MemorySplit& inUse) {
  fillTo(ms);
  current_ = inUse;
  intervals_.back() = larger(intervals_.back(), current_);
  if (current_.total() > peak_.total()) {
    peak_ = current_;
    peakMs_ = ms;
  }
}

void MemoryCourse::finish(double ms) {
  fillTo(ms);
}

/// Makes the interval that holds `ms` the last one.
void MemoryCourse::fillTo(double ms) {
  while (ms / intervalMs_ >= static_cast<double>(mostIntervals)) coarsen();
  auto last = static_cast<std::size_t>(ms / intervalMs_);
  while (intervals_.size() <= last) intervals_.push_back(current_);
}

void MemoryCourse::coarsen() {
  intervalMs_ *= 2;
  for (std::size_t i = 0; i < intervals_.size(); ++i)
    intervals_[i / 2] = i % 2 == 0 ? intervals_[i] : larger(intervals_[i / 2], intervals_[i]);
  intervals_.resize((intervals_.size() + 1) / 2);
}

void MemoryCourse::coarsenTo(double intervalMs) {
  while (intervalMs_ < intervalMs) coarsen();
}
