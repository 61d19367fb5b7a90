#include "TeamWork.h"

#include <algorithm>
#include <utility>

namespace pdcrt {

/// Each has two channels: to gather, and to spread.
static constexpr int lanes = TeamWork::channelsOfCollectives / 2;

/// One collective, again and again.
class TeamWork::Exchange : public Work {
public:
  Exchange(const TeamGroup& group, const Collective& collective, int number, Lane& lane)
      : group_(group), collective_(collective), lane_(lane), channel_(group.channel + 2 * (number % lanes)),
        bytes_(bytesOf(collective.element)) {
    urgent = true;
    const auto others = static_cast<std::size_t>(group.members() - 1);
    gather_.resize(2 * others);
    if (spreads()) spread_.resize(2 * others);
    terms_.reserve(others + 1);
  }

  const Collective& collective() const { return collective_; }

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

  /// By the thread that computes, when the work is complete: what was left to it.
  void finish(Stream& q) {
    if (!isDirect()) return;
    const std::byte* own = data_;
    terms_.clear();
    for (int member = 0; member < 2; ++member) terms_.push_back(member == group_.self ? own : arrived_);
    device::combine(q, collective_.element, collective_.combine, arrived_, terms_, collective_.elements);
  }

private:
  enum class Step : std::uint8_t { before, gathering, summed, spreading };
  using Kind = Collective::Kind;

  /// Two members exchange all that they have.
  bool isDirect() const { return collective_.kind == Kind::allReduce && group_.members() == 2; }
  bool spreads() const { return collective_.kind == Kind::allReduce && !isDirect(); }
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

  void add(TransferGroup& transfers, int member, bool outgoing, int channel, const std::byte* data, std::size_t bytes) {
    if (bytes == 0) return;
    Transfer& transfer = transfers.parts[transfers.used++];
    transfer.outgoing = outgoing;
    transfer.peer = group_.processes[static_cast<std::size_t>(member)];
    transfer.channel = channel;
    transfer.data = const_cast<std::byte*>(data); // which a send only reads
    transfer.bytes = bytes;
    transfer.traffic = Traffic::team;
    transfer.inBlocks = true;
  }

  void fillGather() {
    gather_.used = 0;
    gather_.after = &ready;
    const Part own = part(group_.self);
    for (int member = 0; member < group_.members(); ++member) {
      if (member == group_.self) continue;
      const Part others = part(member);
      if (isDirect()) {
        const std::size_t all = static_cast<std::size_t>(collective_.elements) * bytes_;
        add(gather_, member, /*outgoing=*/false, channel_, arrived_, all);
        add(gather_, member, /*outgoing=*/true, channel_, data_, all);
        continue;
      }
      add(gather_, member, /*outgoing=*/false, channel_, arrived_ + others.begin, own.bytes);
      if (collective_.kind == Kind::allGather)
        add(gather_, member, /*outgoing=*/true, channel_, data_, own.bytes);
      else
        add(gather_, member, /*outgoing=*/true, channel_, data_ + others.begin, others.bytes);
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
      add(spread_, member, /*outgoing=*/false, channel_ + 1, arrived_ + others.begin, others.bytes);
      add(spread_, member, /*outgoing=*/true, channel_ + 1, arrived_ + own.begin, own.bytes);
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
      lanes_(static_cast<std::size_t>(lanes)) {
  for (std::size_t i = 0; i < collectives.size(); ++i)
    exchanges_.push_back(
        std::make_unique<Exchange>(group_, collectives[i], static_cast<int>(i), lanes_[i % lanes_.size()]));
}

TeamWork::~TeamWork() = default;

void TeamWork::start(int collective, Stream& q, const std::byte* data, std::byte* arrived) {
  Exchange& exchange = *exchanges_[static_cast<std::size_t>(collective)];
  if (exchange.pending()) refuseStart(exchange.collective(), collective);
  exchange.prepare(data, arrived);
  exchange.ready.record(q);
  communicator_.post(exchange);
}

void TeamWork::finish(int collective, Stream& q) {
  Exchange& exchange = *exchanges_[static_cast<std::size_t>(collective)];
  if (observer_) observer_->awaits(exchange.collective(), collective);
  const double begin = now();
  if (!communicator_.wait(exchange)) throw PeerGone();
  if (observer_) observer_->met(exchange.collective(), collective, begin, now());
  exchange.precede(q);
  exchange.finish(q);
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
