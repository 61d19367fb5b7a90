// Every owner gathers its part, adds, then spreads the sum.
#include "AllReduce.h"

#include <algorithm>
#include <limits>

namespace pdcrt {

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

/// Of the first `floats` of all, dealt out in turn: how many `part` gets of `parts`.
static std::size_t dealt(std::size_t floats, std::size_t part, std::size_t parts) {
  return (floats + parts - 1 - part) / parts;
}

std::size_t ReduceGroup::floats() const {
  std::size_t sum = 0;
  for (const Segment& segment : segments) sum += segment.count;
  return sum;
}

std::size_t ReduceGroup::begin(std::size_t replica) const {
  std::size_t at = 0;
  for (std::size_t part = 0; part < replica; ++part)
    at += dealt(before + floats(), part, ranks.size()) - dealt(before, part, ranks.size());
  return at;
}

std::size_t ReduceGroup::share() const {
  const auto own = static_cast<std::size_t>(self);
  return begin(own + 1) - begin(own);
}

AllReduce::AllReduce(std::shared_ptr<const ReduceGroup> group, std::shared_ptr<ReduceLane> lane)
    : group_(std::move(group)), lane_(std::move(lane)), share_(group_->share()) {
  const std::size_t replicas = group_->ranks.size();
  std::size_t all = 0;
  for (std::size_t part = 0; part < replicas; ++part) {
    parts_.push_back(cut(group_->segments, group_->begin(part), group_->begin(part + 1)));
    all += parts_.back().size();
  }
  const std::size_t own = parts_[static_cast<std::size_t>(group_->self)].size();
  // Both gather and spread: one direction moves all other parts, the other one moves the own part once per other
  // replica.
  transfers_.resize(all - own + own * (replicas - 1));
  terms_.reserve(replicas);
  contributes_.resize(replicas);
}

void AllReduce::prepare(std::byte* block, const std::vector<bool>& contributes) {
  block_ = block;
  contributes_ = contributes;
  step_ = Step::waiting;
}

void AllReduce::prepare(std::byte* block) {
  block_ = block;
  contributes_.assign(group_->ranks.size(), true);
  step_ = Step::waiting;
}

float* AllReduce::staged(int replica) const {
  const auto place = static_cast<std::size_t>(replica < group_->self ? replica : replica - 1);
  return reinterpret_cast<float*>(group_->staging) + place * share_;
}

void AllReduce::add(int peer, int part, bool outgoing, bool inStaging) {
  std::byte* stage = inStaging ? reinterpret_cast<std::byte*>(staged(peer)) : nullptr;
  for (const Segment& piece : parts_[static_cast<std::size_t>(part)]) {
    Transfer& transfer = transfers_.parts[transfers_.used++];
    transfer.outgoing = outgoing;
    transfer.peer = group_->ranks[static_cast<std::size_t>(peer)];
    // Ranks may begin a spread and the gather of the next one in either order.
    transfer.channel = group_->channel + (step_ == Step::spreading ? 1 : 0);
    transfer.bytes = piece.count * sizeof(float);
    transfer.data = inStaging ? stage : block_ + piece.offset;
    if (inStaging) stage += transfer.bytes;
    transfer.traffic = Traffic::allReduce;
    transfer.inBlocks = true;
  }
}

/// Whether what is staged has been read, and it is its turn.
bool AllReduce::mayGather(Transport& transport) const {
  const bool isRead = !lane_->summing || lane_->summing->group_->staging != group_->staging;
  return isRead && transport.gate().mayStart(turn);
}

bool AllReduce::advance(Transport& transport) {
  if (step_ == Step::waiting && !lane_->gathering) {
    step_ = Step::next; // none that was posted later overtakes it
    lane_->gathering = this;
  }
  if (step_ == Step::next && mayGather(transport)) gather(transport);
  if (step_ == Step::gathering && transfers_.advance(transport)) step_ = Step::gathered;
  if (step_ == Step::gathered && !lane_->summing) {
    // The next one begins to gather first, in this round.
    step_ = Step::summing;
    lane_->gathering = nullptr;
    lane_->summing = this;
    transport.lookAgain();
    return false;
  }
  if (step_ == Step::summing) {
    sum(transport);
    step_ = Step::summed;
  }
  if (step_ == Step::summed && !lane_->spreading) {
    lane_->summing = nullptr;
    spread();
    transport.lookAgain();
  }
  if (step_ != Step::spreading || !transfers_.advance(transport)) return false;
  lane_->spreading = nullptr;
  transport.gate().started(turn);
  return true;
}

void AllReduce::cancel(Transport& transport) {
  transfers_.cancel(transport);
}

void AllReduce::gather(Transport& transport) {
  step_ = Step::gathering;
  ready.precede(transport.stream());
  lane_->stagingRead.precede(transport.stream());
  begun_.record(transport.stream());
  transfers_.after = &begun_;
  transfers_.used = 0;
  const int replicas = static_cast<int>(group_->ranks.size()), self = group_->self;
  for (int peer = 0; peer < replicas; ++peer) {
    if (peer == self) continue;
    if (contributes(peer)) add(peer, self, /*outgoing=*/false, /*inStaging=*/true);
    if (contributes(self)) add(peer, peer, /*outgoing=*/true, /*inStaging=*/false);
  }
}

void AllReduce::sum(Transport& transport) {
  // The host adds so many floats in 20 µs to 50 µs: what the link has to do meanwhile does not wait for longer.
  constexpr std::size_t betweenLooks = 1 << 16;
  const std::size_t most = device::hostSeesBlocks() ? betweenLooks : std::numeric_limits<std::size_t>::max();
  Stream& q = transport.stream();
  transfers_.precede(q);
  const int replicas = static_cast<int>(group_->ranks.size()), self = group_->self;
  std::size_t at = 0;
  for (const Segment& piece : parts_[static_cast<std::size_t>(self)])
    for (std::size_t done = 0, count = 0; done < piece.count; done += count) {
      count = std::min(most, piece.count - done);
      float* own = reinterpret_cast<float*>(block_ + piece.offset) + done;
      terms_.clear();
      for (int replica = 0; replica < replicas; ++replica)
        if (contributes(replica)) terms_.push_back(replica == self ? own : staged(replica) + at);
      device::addUp(q, own, terms_, static_cast<std::int64_t>(count));
      at += count;
      if (count == most) transport.poll();
    }
  summed_.record(q);
  lane_->stagingRead.record(q);
}

void AllReduce::spread() {
  step_ = Step::spreading;
  lane_->spreading = this;
  transfers_.after = &summed_;
  transfers_.used = 0;
  const int replicas = static_cast<int>(group_->ranks.size()), self = group_->self;
  for (int peer = 0; peer < replicas; ++peer) {
    if (peer == self) continue;
    add(peer, peer, /*outgoing=*/false, /*inStaging=*/false);
    add(peer, self, /*outgoing=*/true, /*inStaging=*/false);
  }
}

} // namespace pdcrt
