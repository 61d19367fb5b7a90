#include "Exchange.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace pdcrt {
namespace {

/// How many of `floats` elements part `part` of `parts` gets when they are dealt out in turn.
std::size_t dealt(std::size_t floats, std::size_t part, std::size_t parts) {
  return (floats + parts - 1 - part) / parts;
}

/// Appends a transfer of each piece of a part with a replica: between `block` and the peer, or, if not null, into or
/// out of `staging`, where the pieces lie end to end.
void append(TransferGroup& transfers, const ExchangeParts& parts, int channel, int peer, int part, bool outgoing,
            std::byte* block, float* staging = nullptr) {
  auto* staged = reinterpret_cast<std::byte*>(staging);
  for (const Segment& piece : parts.of(part)) {
    Transfer& transfer = transfers.parts[transfers.used++];
    transfer.outgoing = outgoing;
    transfer.peer = parts.group().ranks[static_cast<std::size_t>(peer)];
    transfer.channel = channel;
    transfer.bytes = piece.count * sizeof(float);
    transfer.data = staged ? staged : block + piece.offset;
    if (staged) staged += transfer.bytes;
    transfer.traffic = Traffic::allReduce;
    transfer.inBlocks = true;
  }
}

} // namespace

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

static std::size_t floatsOf(std::span<const Segment> segments) {
  std::size_t sum = 0;
  for (const Segment& segment : segments) sum += segment.count;
  return sum;
}

std::size_t ReduceGroup::floats() const {
  return floatsOf(segments);
}

std::size_t ReduceGroup::begin(std::size_t replica) const {
  std::size_t at = 0;
  for (std::size_t part = 0; part < replica; ++part)
    at += dealt(before + floats(), part, ranks.size()) - dealt(before, part, ranks.size());
  return at;
}

std::size_t ReduceGroup::share() const {
  const auto own = static_cast<std::size_t>(self);
  if (!parts.empty()) return floatsOf(parts[own]);
  return begin(own + 1) - begin(own);
}

ExchangeParts::ExchangeParts(std::shared_ptr<const ReduceGroup> group)
    : group_(std::move(group)), parts_(group_->parts), share_(group_->share()) {
  if (!parts_.empty()) return;
  for (std::size_t part = 0; part < group_->ranks.size(); ++part)
    parts_.push_back(cut(group_->segments, group_->begin(part), group_->begin(part + 1)));
}

std::vector<Segment> ExchangeParts::all() const {
  std::vector<Segment> all;
  for (const std::vector<Segment>& part : parts_) all.insert(all.end(), part.begin(), part.end());
  return all;
}

float* ExchangeParts::staged(int replica) const {
  const auto place = static_cast<std::size_t>(replica < self() ? replica : replica - 1);
  return reinterpret_cast<float*>(group_->staging) + place * share_;
}

std::size_t ExchangeParts::transfers() const {
  std::size_t all = 0;
  for (const std::vector<Segment>& part : parts_) all += part.size();
  return all - own().size() + own().size() * static_cast<std::size_t>(replicas() - 1);
}

GatherParts::GatherParts(std::shared_ptr<const ExchangeParts> parts) : parts_(std::move(parts)) {
  transfers_.resize(parts_->transfers());
  contributes_.resize(static_cast<std::size_t>(parts_->replicas()));
}

void GatherParts::prepare(std::byte* block, const std::vector<bool>& contributes, const Event* after) {
  block_ = block;
  contributes_ = contributes;
  after_ = after ? after : &ready;
  begun_ = false;
}

bool GatherParts::advance(Transport& transport) {
  if (!std::exchange(begun_, true)) begin(transport);
  return transfers_.advance(transport);
}

void GatherParts::begin(Transport& transport) {
  after_->precede(transport.stream());
  if (stagingRead) stagingRead->precede(transport.stream());
  mayBegin_.record(transport.stream());
  transfers_.after = &mayBegin_;
  transfers_.used = 0;
  const int self = parts_->self(), channel = parts_->group().channel;
  for (int peer = 0; peer < parts_->replicas(); ++peer) {
    if (peer == self) continue;
    if (contributes_[static_cast<std::size_t>(peer)])
      append(transfers_, *parts_, channel, peer, self, /*outgoing=*/false, block_, parts_->staged(peer));
    if (contributes_[static_cast<std::size_t>(self)])
      append(transfers_, *parts_, channel, peer, peer, /*outgoing=*/true, block_);
  }
}

AddParts::AddParts(std::shared_ptr<const ExchangeParts> parts) : parts_(std::move(parts)) {
  contributes_.resize(static_cast<std::size_t>(parts_->replicas()));
  terms_.reserve(contributes_.size());
}

void AddParts::prepare(std::byte* block, const std::vector<bool>& contributes) {
  block_ = block;
  contributes_ = contributes;
  piece_ = done_ = staged_ = 0;
}

bool AddParts::advance(Transport& transport) {
  // The host adds so many floats in 20 µs to 50 µs: what the link, or a team, has to do meanwhile does not wait for
  // longer.
  constexpr std::size_t betweenLooks = 1 << 16;
  const std::size_t most = device::hostSeesBlocks() ? betweenLooks : std::numeric_limits<std::size_t>::max();
  Stream& q = transport.stream();
  while (piece_ < parts_->own().size()) {
    const Segment& piece = parts_->own()[piece_];
    const std::size_t count = std::min(most, piece.count - done_);
    float* own = reinterpret_cast<float*>(block_ + piece.offset) + done_;
    terms_.clear();
    for (int replica = 0; replica < parts_->replicas(); ++replica)
      if (contributes_[static_cast<std::size_t>(replica)])
        terms_.push_back(replica == parts_->self() ? own : parts_->staged(replica) + staged_);
    device::addUp(q, own, terms_, static_cast<std::int64_t>(count));
    staged_ += count;
    done_ += count;
    if (done_ == piece.count) {
      done_ = 0;
      ++piece_;
    }
    if (count < most || piece_ == parts_->own().size()) continue;
    transport.lookAgain();
    return false;
  }
  summed_.record(q);
  return true;
}

SpreadParts::SpreadParts(std::shared_ptr<const ExchangeParts> parts) : parts_(std::move(parts)) {
  transfers_.resize(parts_->transfers());
}

void SpreadParts::prepare(std::byte* block, const Event* after) {
  block_ = block;
  transfers_.after = after ? after : &ready;
  begun_ = false;
}

bool SpreadParts::advance(Transport& transport) {
  if (!std::exchange(begun_, true)) {
    transfers_.used = 0;
    const int self = parts_->self(), channel = parts_->group().channel + 1;
    for (int peer = 0; peer < parts_->replicas(); ++peer) {
      if (peer == self) continue;
      append(transfers_, *parts_, channel, peer, peer, /*outgoing=*/false, block_);
      append(transfers_, *parts_, channel, peer, self, /*outgoing=*/true, block_);
    }
  }
  return transfers_.advance(transport);
}

} // namespace pdcrt
