#include "TeamWork.h"

#include <algorithm>
#include <utility>

namespace pdcrt {

/// Each has two channels: to gather, and to spread.
static constexpr int lanes = TeamWork::channelsOfCollectives / 2;

/// One collective, again and again.
class TeamWork::Exchange : public Work {
public:
  Exchange(const TeamGroup& group, const Collective& collective, int channel, Lane& lane)
      : group_(group), collective_(collective), lane_(lane), channel_(channel), bytes_(bytesOf(collective.element)) {
    urgent = true;
    const auto others = static_cast<std::size_t>(group.members() - 1);
    gather_.resize(2 * others);
    if (spreads()) spread_.resize(2 * others);
    terms_.reserve(others + 1);
  }

  /// By the thread that computes, before posting.
  void prepare(const std::byte* data, std::byte* arrived) {
    data_ = data;
    arrived_ = arrived;
    step_ = Step::before;
    spreadStarted_ = false;
    if (spreads()) ticket_ = lane_.started++;
  }

  bool advance(Transport& transport) override {
    if (step_ == Step::before) {
      fillGather();
      step_ = Step::gathering;
    }
    if (step_ == Step::gathering) {
      if (!gather_.advance(transport)) return false;
      if (!adds()) return true;
      gather_.precede(transport.stream());
      addOwn(transport);
      summed_.record(transport.stream());
      if (!spreads()) return true;
      step_ = Step::summed;
    }
    if (step_ == Step::summed) {
      if (lane_.spread != ticket_) return false;
      fillSpread();
      step_ = Step::spreading;
    }
    const bool isStarted = std::exchange(spreadStarted_, true);
    const bool isDone = spread_.advance(transport);
    if (!isStarted) {
      ++lane_.spread;
      transport.lookAgain();
    }
    if (isDone) spreadStarted_ = false;
    return isDone;
  }

  void cancel(Transport& transport) override {
    gather_.cancel(transport);
    spread_.cancel(transport);
  }

  void precede(Stream& q) const override {
    gather_.precede(q);
    if (adds()) summed_.precede(q);
    if (spreads()) spread_.precede(q);
  }

private:
  enum class Step : std::uint8_t { before, gathering, summed, spreading };
  using Kind = Collective::Kind;

  bool spreads() const { return collective_.kind == Kind::allReduce; }
  bool adds() const { return spreads() || collective_.kind == Kind::reduceScatter; }

  /// Where part `member` begins, and its size, in bytes.
  struct Part {
    std::size_t begin = 0, bytes = 0;
  };
  Part part(int member) const {
    const std::int64_t most = collective_.partElements(group_.members()), begin = most * member;
    const std::int64_t count =
        collective_.kind == Kind::allReduce ? std::clamp<std::int64_t>(collective_.elements - begin, 0, most) : most;
    return {static_cast<std::size_t>(begin) * bytes_, static_cast<std::size_t>(count) * bytes_};
  }

  void fillGather() {
    gather_.used = 0;
    gather_.after = &ready;
    const Part own = part(group_.self);
    for (int member = 0; member < group_.members(); ++member) {
      if (member == group_.self) continue;
      const Part others = part(member);
      group_.add(gather_, member, /*outgoing=*/false, channel_, arrived_ + others.begin, own.bytes);
      if (collective_.kind == Kind::allGather)
        group_.add(gather_, member, /*outgoing=*/true, channel_, data_, own.bytes);
      else
        group_.add(gather_, member, /*outgoing=*/true, channel_, data_ + others.begin, others.bytes);
    }
  }

  /// Sums the own part into its place in `arrived`.
  void addOwn(Transport& transport) {
    const Part own = part(group_.self);
    if (own.bytes == 0) return;
    // The host adds so many bytes in some 20 µs: what the link has to do meanwhile does not wait for longer.
    constexpr std::size_t betweenLooks = 256 << 10;
    const std::size_t most = device::hostSeesBlocks() ? betweenLooks : own.bytes;
    for (std::size_t done = 0, bytes = 0; done < own.bytes; done += bytes) {
      bytes = std::min(most, own.bytes - done);
      terms_.clear();
      for (int member = 0; member < group_.members(); ++member) {
        const std::byte* const terms = member == group_.self ? data_ : arrived_;
        terms_.push_back(terms + part(member).begin + done);
      }
      device::combine(transport.stream(), collective_.element, collective_.combine, arrived_ + own.begin + done, terms_,
                      static_cast<std::int64_t>(bytes / bytes_));
      if (done + bytes < own.bytes) transport.poll();
    }
  }

  void fillSpread() {
    spread_.used = 0;
    spread_.after = &summed_;
    const Part own = part(group_.self);
    for (int member = 0; member < group_.members(); ++member) {
      if (member == group_.self) continue;
      const Part others = part(member);
      group_.add(spread_, member, /*outgoing=*/false, channel_ + 1, arrived_ + others.begin, others.bytes);
      group_.add(spread_, member, /*outgoing=*/true, channel_ + 1, arrived_ + own.begin, own.bytes);
    }
  }

  const TeamGroup& group_;
  const Collective collective_;
  Lane& lane_;
  const int channel_;
  const std::size_t bytes_; ///< of an element
  const std::byte* data_ = nullptr;
  std::byte* arrived_ = nullptr;
  Step step_ = Step::before;
  std::int64_t ticket_ = 0; ///< of its lane
  bool spreadStarted_ = false;
  TransferGroup gather_, spread_;
  Event summed_;
  std::vector<const void*> terms_;
};

TeamWork::TeamWork(TeamGroup group, std::span<const Collective> collectives, Communicator& communicator,
                   TeamObserver* observer)
    : group_(std::move(group)), communicator_(communicator), observer_(observer),
      lanes_(static_cast<std::size_t>(lanes)), collectives_(collectives.begin(), collectives.end()),
      exchanges_(collectives.size()), pairs_(collectives.size()) {
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    const std::size_t lane = i % lanes_.size();
    const int channel = group_.channel + 2 * static_cast<int>(lane);
    if (collectives[i].kind == Collective::Kind::allReduce && group_.members() == 2)
      pairs_[i] = std::make_unique<PairSum>(group_, collectives[i], channel, communicator_);
    else
      exchanges_[i] = std::make_unique<Exchange>(group_, collectives[i], channel, lanes_[lane]);
  }
}

TeamWork::~TeamWork() = default;

void TeamWork::follow(int collective, Stream& q, const std::byte* data, std::byte* arrived) {
  const auto number = static_cast<std::size_t>(collective);
  PairSum* const pair = pairs_[number].get();
  if (!pair) return;
  if (pair->isUnderWay()) refuseStart(collectives_[number], collective);
  pair->begin(q, data, arrived);
  q.giveResultTo(pair);
  followed_ = collective;
}

void TeamWork::start(int collective, Stream& q, const std::byte* data, std::byte* arrived) {
  const auto number = static_cast<std::size_t>(collective);
  const bool isFollowed = std::exchange(followed_, -1) == collective;
  if (isFollowed) q.giveResultTo(nullptr);
  if (PairSum* const pair = pairs_[number].get()) {
    if (!isFollowed) {
      if (pair->isUnderWay()) refuseStart(collectives_[number], collective);
      pair->begin(q, data, arrived);
    }
    return pair->sendRest();
  }
  Exchange& exchange = *exchanges_[number];
  if (exchange.pending()) refuseStart(collectives_[number], collective);
  exchange.prepare(data, arrived);
  exchange.ready.record(q);
  communicator_.post(exchange);
}

void TeamWork::finish(int collective, Stream& q) {
  const auto number = static_cast<std::size_t>(collective);
  if (observer_) observer_->awaits(collectives_[number], collective);
  const double begin = now();
  if (PairSum* const pair = pairs_[number].get()) {
    if (!pair->finish(q)) throw PeerGone();
  } else {
    if (!communicator_.wait(*exchanges_[number])) throw PeerGone();
    exchanges_[number]->precede(q);
  }
  if (observer_) observer_->met(collectives_[number], collective, begin, now());
}

void LoneTeam::start(int collective, Stream& q, const std::byte* data, std::byte* arrived) {
  const Collective& what = collectives_[static_cast<std::size_t>(collective)];
  const auto bytesOfAll = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * bytesOf(what.element);
  };
  if (what.kind == Collective::Kind::allReduce) {
    device::copy(q, arrived, data, bytesOfAll(what.elements));
  } else if (what.kind == Collective::Kind::reduceScatter) {
    const std::size_t own = bytesOfAll(what.elements * member_);
    device::copy(q, arrived + own, data + own, bytesOfAll(what.elements));
  }
}

} // namespace pdcrt
