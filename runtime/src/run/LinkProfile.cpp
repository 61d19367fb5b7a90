// What a link costs is mostly what the communication threads wait for a core, so the sender keeps its own busy, as in a
// pipeline. The receiver waits: where it computes, it does not miss the message, whenever that comes. What bytes take
// from a core is what both ranks compute less while messages go both ways.
#include "LinkProfile.h"

#include "pdcrt/MappedFile.h"
#include "transport/mpi/MpiTransport.h"

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
  if (!communicator.wait(message)) return -1;
  if (!sends) arrival = message.completedAt;
  communicator.post(answer);
  return communicator.wait(answer) ? arrival - message.postedAt : -1;
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
      if (communicator_.transport().aborted()) return false;
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
  return communicator.wait(message);
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

Status profileLink(const RunOptions& options) {
  LinkTimes times;
  bool measured = false, reports = true;
  if (options.threads) {
    std::vector<std::unique_ptr<Transport>> transports = makeThreadTransports(2);
    LinkTimes unused;
    std::thread other([&] { measureLink(*transports[1], unused); });
    measured = measureLink(*transports[0], times);
    other.join();
  } else {
    std::unique_ptr<Transport> transport;
    if (Status status = openMpi(2, {}, transport); !status) return status;
    reports = transport->rank() == 0;
    measured = measureLink(*transport, times);
  }
  if (!measured) return {Exit::again, "another rank has stopped"};
  if (!reports) return {};
  const nlohmann::ordered_json json = {{"latency_s", times.latency},
                                       {"bandwidth_bytes_per_s", times.bytesPerSecond},
                                       {"core_s_per_byte", times.coreTime}};
  return writeAtomically(options.linkFile, json.dump() + "\n");
}

} // namespace pdcrt
