// Two phases: every owner gathers its part, then spreads the sum.
#include "pdcrt/AllReduce.h"

#include <algorithm>

namespace pdcrt {
namespace {

/// Floats [begin, end) of the segments laid end to end.
std::vector<Segment> cut(std::span<const Segment> segments, std::size_t begin, std::size_t end) {
  std::vector<Segment> part;
  std::size_t at = 0;
  for (const Segment& segment : segments) {
    const std::size_t from = std::max(begin, at), to = std::min(end, at + segment.count);
    if (from < to) {
      const std::size_t offset = segment.offset + (from - at) * sizeof(float);
      if (!part.empty() && part.back().offset + part.back().count * sizeof(float) == offset)
        part.back().count += to - from;
      else
        part.push_back({offset, to - from});
    }
    at += segment.count;
  }
  return part;
}

} // namespace

AllReduce::AllReduce(std::shared_ptr<const ReduceGroup> group, std::shared_ptr<ReduceLane> lane)
    : group_(std::move(group)), lane_(std::move(lane)) {
  std::size_t floats = 0, all = 0;
  for (const Segment& segment : group_->segments) floats += segment.count;
  const std::size_t replicas = group_->ranks.size();
  for (std::size_t part = 0; part < replicas; ++part) {
    parts_.push_back(cut(group_->segments, floats * part / replicas, floats * (part + 1) / replicas));
    all += parts_.back().size();
  }
  const std::size_t own = parts_[static_cast<std::size_t>(group_->self)].size();
  // In each phase: one direction moves all other parts, the other one moves the own part once per other replica.
  transfers_.resize(all - own + own * (replicas - 1));
}

bool AllReduce::contributes(int replica) const {
  const int replicas = static_cast<int>(group_->ranks.size());
  return (replica - firstContributor_ + replicas) % replicas < contributors_;
}

void AllReduce::prepare(std::byte* block, int firstContributor, int contributors) {
  block_ = block;
  firstContributor_ = firstContributor;
  contributors_ = contributors;
  phase_ = Phase::waiting;
}

float* AllReduce::staged(int replica) const {
  std::size_t count = 0;
  for (const Segment& piece : parts_[static_cast<std::size_t>(group_->self)]) count += piece.count;
  const std::size_t place = static_cast<std::size_t>(replica < group_->self ? replica : replica - 1);
  return reinterpret_cast<float*>(group_->staging) + place * count;
}

void AllReduce::add(int peer, int part, bool outgoing, bool inStaging) {
  std::byte* stage = inStaging ? reinterpret_cast<std::byte*>(staged(peer)) : nullptr;
  for (const Segment& piece : parts_[static_cast<std::size_t>(part)]) {
    Transfer& transfer = transfers_.parts[transfers_.used++];
    transfer.outgoing = outgoing;
    transfer.peer = group_->ranks[static_cast<std::size_t>(peer)];
    transfer.channel = group_->channel;
    transfer.bytes = piece.count * sizeof(float);
    transfer.data = inStaging ? stage : block_ + piece.offset;
    if (inStaging) stage += transfer.bytes;
    transfer.traffic = Traffic::allReduce;
  }
}

bool AllReduce::advance(Transport& transport) {
  const int replicas = static_cast<int>(group_->ranks.size()), self = group_->self;
  if (phase_ == Phase::waiting) {
    if (lane_->running) return false;
    lane_->running = this;
    phase_ = Phase::gathering;
    transfers_.used = 0;
    for (int peer = 0; peer < replicas; ++peer) {
      if (peer == self) continue;
      if (contributes(peer)) add(peer, self, /*outgoing=*/false, /*inStaging=*/true);
      if (contributes(self)) add(peer, peer, /*outgoing=*/true, /*inStaging=*/false);
    }
  }
  if (phase_ == Phase::gathering) {
    if (!transfers_.advance(transport)) return false;
    sum();
    phase_ = Phase::spreading;
    transfers_.used = 0;
    for (int peer = 0; peer < replicas; ++peer) {
      if (peer == self) continue;
      add(peer, peer, /*outgoing=*/false, /*inStaging=*/false);
      add(peer, self, /*outgoing=*/true, /*inStaging=*/false);
    }
  }
  if (!transfers_.advance(transport)) return false;
  lane_->running = nullptr;
  return true;
}

void AllReduce::cancel(Transport& transport) {
  if (lane_->running == this) transfers_.cancel(transport);
}

void AllReduce::sum() {
  const int replicas = static_cast<int>(group_->ranks.size()), self = group_->self;
  std::size_t at = 0;
  for (const Segment& piece : parts_[static_cast<std::size_t>(self)]) {
    float* own = reinterpret_cast<float*>(block_ + piece.offset);
    // Blocks that stay in the first-level cache, so that each value is loaded once.
    constexpr std::size_t blockSize = 1024;
    float total[blockSize];
    for (std::size_t begin = 0; begin < piece.count; begin += blockSize) {
      const std::size_t count = std::min(blockSize, piece.count - begin);
      bool first = true;
      for (int replica = 0; replica < replicas; ++replica) {
        if (!contributes(replica)) continue;
        const float* part = replica == self ? own + begin : staged(replica) + at + begin;
        for (std::size_t i = 0; i < count; ++i) total[i] = first ? part[i] : total[i] + part[i];
        first = false;
      }
      std::copy_n(total, count, own + begin);
    }
    at += piece.count;
  }
}

} // namespace pdcrt
