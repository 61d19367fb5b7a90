// What a link costs is mostly what the communication threads wait for a core, so the sender keeps its own busy, as in a
// pipeline. The receiver waits: where it computes, it does not miss the message, whenever that comes. What bytes take
// from a core is what both ranks compute less while messages go both ways.
#include "LinkProfile.h"

#include "collectives/TeamWork.h"
#include "pdcrt/Launcher.h"
#include "pdcrt/MappedFile.h"
#include "transport/mpi/MpiTransport.h"
#include "transport/tcp/TcpTransport.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace pdcrt {
namespace {

void compute(double seconds) {
  const double end = now() + seconds;
  for (volatile std::uint64_t work = 0; now() < end;) work = work + 1;
}

/// Waits for a transfer. False: another rank is gone, and the communicator has let go of the transfer.
bool arrives(Communicator& communicator, const Transfer& transfer) {
  if (communicator.wait(transfer)) return true;
  communicator.stop();
  return false;
}

/// One message from rank 0 to rank 1, which answers with the time of its arrival: seconds from posting to arrival, at
/// rank 0; negative when the other rank is gone.
double oneMessage(Communicator& communicator, std::vector<std::byte>& bytes) {
  constexpr double before = 2e-3, after = 10e-3;
  const bool sends = communicator.transport().rank() == 0;
  double arrival = 0;
  Transfer message, answer;
  message.outgoing = sends;
  answer.outgoing = !sends;
  message.channel = 1;
  answer.channel = 2;
  message.peer = answer.peer = sends ? 1 : 0;
  message.data = bytes.data();
  message.bytes = bytes.size();
  answer.data = reinterpret_cast<std::byte*>(&arrival);
  answer.bytes = sizeof arrival;
  if (sends) compute(before);
  communicator.post(message); // to receive it early, as in a pipeline
  if (sends) compute(after);
  if (!arrives(communicator, message)) return -1;
  if (!sends) arrival = message.completedAt;
  communicator.post(answer);
  return arrives(communicator, answer) ? arrival - message.postedAt : -1;
}

/// The median of some rounds, the first ones left out.
bool medianTime(Communicator& communicator, std::size_t size, double& median) {
  constexpr std::size_t warmUp = 3, rounds = 25;
  std::vector<std::byte> bytes(size);
  std::vector<double> times;
  for (std::size_t round = 0; round < warmUp + rounds; ++round) {
    const double time = oneMessage(communicator, bytes);
    if (time < 0) return false;
    if (round >= warmUp) times.push_back(time);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  median = times[rounds / 2];
  return true;
}

/// Adds arrays that lie in the core's cache, as kernels keep theirs.
class Computation {
public:
  [[gnu::noinline]] void round() { // as fast wherever it is called
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] = sum_[i] * 0.5f + term_[i];
    ++rounds_;
  }
  /// Rounds since the last call.
  double rounds() { return static_cast<double>(std::exchange(rounds_, 0)); }

private:
  std::vector<float> sum_ = std::vector<float>(1 << 15, 1), term_ = std::vector<float>(1 << 15, 0.5f);
  std::int64_t rounds_ = 0;
};

/// Messages that go both ways at once, so many in all each way, two of them under way. As in a pipeline, what they
/// carry is in no cache.
class Exchange {
public:
  static constexpr std::size_t messageBytes = 1 << 20;

  explicit Exchange(Communicator& communicator) : communicator_(communicator) {
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      Transfer& transfer = transfers_[i];
      transfer.outgoing = i % 2 == 0;
      transfer.peer = 1 - communicator.transport().rank();
      transfer.channel = 3 + static_cast<int>(i / 2); // of a pair that passes each other
      transfer.bytes = messageBytes;
    }
  }

  /// Calls round() meanwhile. False: the other rank is gone.
  template <class Round>
  bool run(std::int64_t messages, Round round) {
    std::array<std::int64_t, ways> left;
    std::array<bool, ways> posted{};
    for (std::size_t i = 0; i < ways; ++i) left[i] = (messages + (i < 2 ? 1 : 0)) / 2;
    for (bool busy = true; busy;) {
      busy = false;
      for (std::size_t i = 0; i < ways; ++i) {
        if (posted[i] && transfers_[i].complete()) posted[i] = false;
        if (!posted[i] && left[i] > 0) {
          transfers_[i].data = bytes_.data() + next_ * messageBytes;
          next_ = (next_ + 1) % places;
          communicator_.post(transfers_[i]);
          posted[i] = true;
          --left[i];
        }
        busy |= posted[i];
      }
      if (communicator_.transport().aborted()) {
        communicator_.stop();
        return false;
      }
      if (busy) round();
    }
    return true;
  }

private:
  static constexpr std::size_t ways = 4, places = 64;
  Communicator& communicator_;
  std::array<Transfer, ways> transfers_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(places * messageBytes);
  std::size_t next_ = 0; ///< of the places that messages lie in
};

/// Rank 0 tells rank 1 a number. False: the other rank is gone.
bool agree(Communicator& communicator, std::int64_t& number) {
  Transfer message;
  message.outgoing = communicator.transport().rank() == 0;
  message.peer = message.outgoing ? 1 : 0;
  message.channel = 1;
  message.data = reinterpret_cast<std::byte*>(&number);
  message.bytes = sizeof number;
  communicator.post(message);
  return arrives(communicator, message);
}

/// Seconds that a byte sent or received takes from a rank's computing: the median of some rounds, in each of which the
/// rank computes alone first.
bool medianCoreTime(Communicator& communicator, double bytesPerSecond, double& median) {
  constexpr double lasting = 0.1; // seconds of a round
  constexpr std::size_t rounds = 9;
  auto messages = static_cast<std::int64_t>(lasting * bytesPerSecond / Exchange::messageBytes);
  messages = std::clamp<std::int64_t>(messages, 2, 256);
  Computation computation;
  Exchange exchange(communicator);
  std::vector<double> times;
  for (std::size_t round = 0; round < rounds; ++round) {
    if (!agree(communicator, messages)) return false;
    computation.rounds();
    double begin = now();
    while (now() < begin + lasting) computation.round();
    const double roundSeconds = (now() - begin) / computation.rounds();
    // Both ranks compute alone, or neither.
    if (!exchange.run(1, [&] { computation.round(); })) return false;
    computation.rounds();
    begin = now();
    if (!exchange.run(messages, [&] { computation.round(); })) return false;
    const double lost = now() - begin - roundSeconds * computation.rounds();
    times.push_back(lost / static_cast<double>(2 * messages * static_cast<std::int64_t>(Exchange::messageBytes)));
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  median = std::max(0.0, times[rounds / 2]);
  return true;
}

} // namespace

bool measureLink(Transport& transport, LinkTimes& times) {
  constexpr std::size_t smallMessage = 4 << 10, largeMessage = 4 << 20;
  Communicator communicator(transport);
  double shorter = 0, longer = 0;
  if (!medianTime(communicator, smallMessage, shorter) || !medianTime(communicator, largeMessage, longer)) return false;
  // Noise may make the large message look as quick as the small one: memory of 100 GB/s is the limit.
  const double carrying = std::max(longer - shorter, largeMessage / 100e9);
  const double bytesPerSecond = (largeMessage - smallMessage) / carrying;
  double coreTime = 0;
  if (!medianCoreTime(communicator, bytesPerSecond, coreTime)) return false;
  if (transport.rank() == 0) times = {shorter, bytesPerSecond, coreTime};
  return true;
}

bool measureTeam(Transport& transport, int members, TeamTimes& times) {
  using Kind = Collective::Kind;
  constexpr std::int64_t few = 1 << 10, many = 1 << 20; // elements
  Communicator communicator(transport);
  TeamGroup group{.processes = {}, .self = transport.rank(), .channel = 1};
  for (int member = 0; member < members; ++member) group.processes.push_back(member);
  std::vector<Collective> collectives(1, {.kind = Kind::allReduce, .elements = 1}); // brings the members together
  for (const std::int64_t elements : {few, many}) {
    collectives.push_back({.kind = Kind::allReduce, .elements = elements});
    collectives.push_back({.kind = Kind::allToAll, .elements = elements / members});
  }
  TeamWork team(group, collectives, communicator, nullptr);
  Stream q;
  const std::vector<float> data(many, 1);
  std::vector<float> arrived(many + members); // the parts of a sum are rounded up
  const auto run = [&](int collective) {
    const double begin = now();
    team.start(collective, q, std::as_bytes(std::span(data)).data(), std::as_writable_bytes(std::span(arrived)).data());
    team.finish(collective, q);
    return now() - begin;
  };
  const auto median = [&](int collective) {
    constexpr std::size_t warmUp = 3, rounds = 25;
    constexpr double before = 1e-3; // members come from computing
    std::vector<double> seconds;
    for (std::size_t round = 0; round < warmUp + rounds; ++round) {
      compute(before);
      run(0);
      const double time = run(collective);
      if (round >= warmUp) seconds.push_back(time);
    }
    std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
    return seconds[rounds / 2];
  };
  const auto timesOf = [&](int shorter, int longer) {
    const auto bytes = [&](int collective) {
      const Collective& c = collectives[static_cast<std::size_t>(collective)];
      return static_cast<double>(c.sentElements(0, members)) * sizeof(float);
    };
    const double least = median(shorter), most = median(longer), difference = bytes(longer) - bytes(shorter);
    const double bytesPerSecond = difference / std::max(most - least, difference / 100e9); // as in measureLink
    return CollectiveTimes{std::max(0.0, least - bytes(shorter) / bytesPerSecond), bytesPerSecond};
  };
  bool measured = true;
  try {
    times.sum = timesOf(1, 3);
    times.exchange = timesOf(2, 4);
  } catch (const PeerGone&) {
    measured = false;
  }
  communicator.stop(); // while what it may still have to do is there
  return measured;
}

namespace {

/// Calls `measure`, as several ranks do at once, on the transport of each of them. `reports`: this one writes the
/// result.
template <class Times>
Status onRanks(const RunOptions& options, int ranks, bool (*measure)(Transport&, int, Times&), Times& times,
               bool& reports) {
  bool measured = false;
  reports = true;
  if (options.threads) {
    std::vector<std::unique_ptr<Transport>> transports = makeThreadTransports(ranks);
    std::vector<std::thread> others;
    std::vector<Times> unused(static_cast<std::size_t>(ranks));
    for (std::size_t rank = 1; rank < transports.size(); ++rank)
      others.emplace_back([&, rank] { measure(*transports[rank], ranks, unused[rank]); });
    measured = measure(*transports[0], ranks, times);
    for (std::thread& other : others) other.join();
  } else {
    std::unique_ptr<Transport> transport;
    const std::string meeting = meetingPoint();
    const std::optional<LaunchedAs> launched = launchedAs();
    if (!meeting.empty() && launched && launched->ranks != ranks)
      return {Exit::usage, "--link takes " + std::to_string(ranks) + " processes here, " +
                               std::to_string(launched->ranks) + " were started"};
    const Status status = meeting.empty()
                              ? openMpi(ranks, {}, transport)
                              : openTcp(ranks, {launched ? launched->rank : 0, meeting, startPatience()}, transport);
    if (!status) return status;
    reports = transport->rank() == 0;
    measured = measure(*transport, ranks, times);
  }
  if (!measured) return {Exit::again, "another rank has stopped"};
  return {};
}

bool measurePair(Transport& transport, int, LinkTimes& times) {
  return measureLink(transport, times);
}

} // namespace

Status profileLink(const RunOptions& options) {
  LinkTimes link;
  TeamTimes team;
  bool reports = true;
  const Status status = options.linkTeam > 0 ? onRanks(options, options.linkTeam, measureTeam, team, reports)
                                             : onRanks(options, 2, measurePair, link, reports);
  if (!status || !reports) return status;
  const auto textOf = [](const CollectiveTimes& times) {
    return nlohmann::ordered_json{{"latency_s", times.latency}, {"bandwidth_bytes_per_s", times.bytesPerSecond}};
  };
  const nlohmann::ordered_json json =
      options.linkTeam > 0
          ? nlohmann::ordered_json{{"team_sum", textOf(team.sum)}, {"team_exchange", textOf(team.exchange)}}
          : nlohmann::ordered_json{{"latency_s", link.latency},
                                   {"bandwidth_bytes_per_s", link.bytesPerSecond},
                                   {"core_s_per_byte", link.coreTime}};
  return writeAtomically(options.linkFile, json.dump() + "\n");
}

} // namespace pdcrt
