// Why a run that has halted does not go on: who waits for whom, as a table and a grid.
#include "Machine.h"

#include <algorithm>
#include <tuple>

using namespace pdcrt;

/// Who has not started the reduction that is next where `action` waits for one, and what it would start.
std::pair<int, Action> Machine::missingPart(int rank, const Action& action) const {
  const Reductions& lane = reductions_[reductionOf(rank, action)];
  const bool isNorm = lane.stage < 0;
  Action next{action.kind, false, action.stage, -1, lane.done + 1};
  for (std::size_t s = 0; s < schedule_.stages.size(); ++s) {
    if (!isNorm && static_cast<int>(s) != action.stage) continue;
    next.stage = static_cast<int>(s);
    for (int who : isNorm ? rankOf_[s] : lane.ranks) {
      bool started = false;
      std::int64_t left = ranks_[who].list.executed();
      for (ListCursor list(schedule_, who, minibatches_); left > 0 && !started; list.pop(), --left)
        started = *list.peek() == next;
      if (!started) return {who, next};
    }
  }
  return {0, next};
}

/// A rank for which a blocked rank waits, with the reason.
std::pair<int, std::string> Machine::reasonOf(int rank) const {
  const Action& action = *ranks_[rank].list.peek();
  auto missing = [&](int who, const Action& what) {
    return std::pair(who, "rank " + std::to_string(who) + " to start " + toString(what));
  };
  if (isReduction(action.kind)) {
    const auto [who, what] = missingPart(rank, action);
    return missing(who, what);
  }
  const Channel& channel = channels_[channelOf(action)];
  if (channel.shared) {
    std::pair<int, std::string> reason{rank, "nothing"};
    forEachServed(schedule_, schedule_.shared[channel.edge], action, replicaAt(rank, action.stage), [&](int q) {
      std::int64_t v = std::min(channel.sending[q].next, channel.receiving[q].next);
      if (v > action.index) return;
      auto [source, target] = endsOf(channel, v, q);
      bool sent = channel.sending[q].posted > v;
      reason = missing(sent ? target : source,
                       {sent ? otherEnd(channel.send) : channel.send, false, sent ? channel.target : channel.source,
                        sent ? channel.source : channel.target, v});
    });
    return reason;
  }
  // The transfer itself, or what is before it in one of its two lanes.
  std::int64_t b = action.index;
  auto lanesOf = [&](std::int64_t index) {
    return std::pair(channel.sending[channel.from.replica(index)], channel.receiving[channel.to.replica(index)]);
  };
  for (bool moved = true; moved;) {
    auto [from, to] = lanesOf(b);
    std::int64_t earlier = std::min(from.next, to.next);
    moved = from.posted > b && to.posted > b && earlier < b;
    if (moved) b = earlier;
  }
  auto [source, target] = endsOf(channel, b, 0);
  const Action send{channel.send, false, channel.source, channel.target, b};
  const Action receive{otherEnd(send.kind), false, channel.target, channel.source, b};
  return lanesOf(b).first.posted > b ? missing(target, receive) : missing(source, send);
}

std::string Machine::picture() const {
  std::vector<BlockedRank> rows;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    BlockedRank row;
    for (const Host& host : schedule_.ranks[r].hosts)
      row.hosts += (row.hosts.empty() ? "" : " ") + std::to_string(host.stage) + "." + std::to_string(host.replica);
    const ListCursor& at = ranks_[r].list;
    ListCursor list(schedule_, static_cast<int>(r), minibatches_, options_.evaluation);
    for (; list.executed() < at.executed(); list.pop())
      if (list.executed() + 3 >= at.executed()) row.last += (row.last.empty() ? "" : " ") + toString(*list.peek());
    if (at.peek()) {
      row.waitsIn = toString(*at.peek());
      std::tie(row.waitsFor, row.reason) = reasonOf(static_cast<int>(r));
    } else {
      row.waitsIn = "(finished)";
    }
    rows.push_back(std::move(row));
  }
  std::vector<std::int64_t> executed;
  for (const Rank& rank : ranks_) executed.push_back(rank.list.executed());
  return pictureOf(minibatches_, rows) + "\n" +
         gridOf(schedule_, minibatches_, options_.evaluation, executed, cycleOf(rows));
}
