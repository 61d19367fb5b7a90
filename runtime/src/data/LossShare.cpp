// Counts the labels of an update once, for the first of its minibatches that a replica computes.
#include "LossShare.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace pdcrt {

double countOf(const LossShare& share, const DataRow& row, const std::byte* labels) {
  double sum = 0;
  for (std::int64_t i = 0; i < row.shape.elements(); ++i) {
    const std::int64_t label = row.element == Element::i32 ? reinterpret_cast<const std::int32_t*>(labels)[i]
                                                           : reinterpret_cast<const std::int64_t*>(labels)[i];
    if (share.ignores && label == share.ignored) continue;
    const auto place = static_cast<std::size_t>(label);
    sum += label >= 0 && place < share.weights.size() ? share.weights[place] : 1;
  }
  return sum;
}

bool updatesTogether(const Schedule& schedule) {
  return std::all_of(schedule.stages.begin(), schedule.stages.end(), [&](const ScheduleStage& stage) {
    const int here = static_cast<int>(&stage - schedule.stages.data());
    return schedule.minibatchesOfUpdate(here) == schedule.minibatchesOfUpdate(0);
  });
}

Status LossShares::of(const DataRow& row, std::span<const DataRow> data, const Schedule& schedule,
                      std::int64_t minibatch, std::int64_t minibatches, std::int64_t first, BatchSource& source,
                      float& share) {
  share = 1;
  if (!updatesTogether(schedule)) return {};
  const std::int64_t together = schedule.minibatchesOfUpdate(0);
  const std::int64_t begin = minibatch / together * together, end = std::min(begin + together, minibatches);
  if (end - begin <= 1) return {};
  Update& update = updates_[&row];
  if (update.first != first + begin || update.last != first + end) {
    const auto labels = std::find_if(data.begin(), data.end(), [&](const DataRow& other) {
      return std::strcmp(other.name, row.share->labels) == 0;
    });
    if (labels == data.end())
      return {Exit::invalid, std::string("the stage reads no labels '") + row.share->labels + "'"};
    labels_.resize(static_cast<std::size_t>(labels->shape.elements()) * bytesOf(labels->element));
    update.counts.clear();
    for (std::int64_t b = begin; b < end; ++b) {
      if (Status status = source.read(*labels, first + b, labels_.data()); !status) return status;
      update.counts.push_back(countOf(*row.share, *labels, labels_.data()));
    }
    update.first = first + begin;
    update.last = first + end;
    update.sum = std::accumulate(update.counts.begin(), update.counts.end(), 0.0);
  }
  const double count = update.counts[static_cast<std::size_t>(minibatch - begin)];
  share = update.sum == 0 ? 0.0F : static_cast<float>(static_cast<double>(end - begin) * count / update.sum);
  return {};
}

} // namespace pdcrt
