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
  terms_.reserve(replicas);
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
    transfer.inBlocks = true;
  }
}

bool AllReduce::advance(Transport& transport) {
  const int replicas = static_cast<int>(group_->ranks.size()), self = group_->self;
  if (phase_ == Phase::waiting) {
    if (lane_->running || !transport.gate().mayStart(turn)) return false;
    lane_->running = this;
    phase_ = Phase::gathering;
    transfers_.used = 0;
    ready.precede(transport.stream());
    lane_->stagingRead.precede(transport.stream());
    begun_.record(transport.stream());
    transfers_.after = &begun_;
    for (int peer = 0; peer < replicas; ++peer) {
      if (peer == self) continue;
      if (contributes(peer)) add(peer, self, /*outgoing=*/false, /*inStaging=*/true);
      if (contributes(self)) add(peer, peer, /*outgoing=*/true, /*inStaging=*/false);
    }
  }
  if (phase_ == Phase::gathering) {
    if (!transfers_.advance(transport)) return false;
    sum(transport.stream());
    phase_ = Phase::spreading;
    transfers_.used = 0;
    transfers_.after = &summed_;
    for (int peer = 0; peer < replicas; ++peer) {
      if (peer == self) continue;
      add(peer, peer, /*outgoing=*/false, /*inStaging=*/false);
      add(peer, self, /*outgoing=*/true, /*inStaging=*/false);
    }
  }
  if (!transfers_.advance(transport)) return false;
  lane_->running = nullptr;
  transport.gate().started(turn);
  return true;
}

void AllReduce::cancel(Transport& transport) {
  if (lane_->running == this) transfers_.cancel(transport);
}

void AllReduce::sum(Stream& q) {
  const int replicas = static_cast<int>(group_->ranks.size()), self = group_->self;
  transfers_.precede(q);
  std::size_t at = 0;
  for (const Segment& piece : parts_[static_cast<std::size_t>(self)]) {
    float* own = reinterpret_cast<float*>(block_ + piece.offset);
    terms_.clear();
    for (int replica = 0; replica < replicas; ++replica)
      if (contributes(replica)) terms_.push_back(replica == self ? own : staged(replica) + at);
    device::addUp(q, own, terms_, static_cast<std::int64_t>(piece.count));
    at += piece.count;
  }
  summed_.record(q);
  lane_->stagingRead.record(q);
}

} // namespace pdcrt
