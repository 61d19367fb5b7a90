// What a link costs is mostly what the communication threads wait for a core, so the sender keeps its own busy, as in a
// pipeline. The receiver waits: where it computes, it does not miss the message, whenever that comes.
#include "pdcrt/LinkProfile.h"

#include "pdcrt/MappedFile.h"
#include "pdcrt/MpiTransport.h"

#include <algorithm>
#include <nlohmann/json.hpp>

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

} // namespace

bool measureLink(Transport& transport, LinkTimes& times) {
  constexpr std::size_t smallMessage = 4 << 10, largeMessage = 4 << 20;
  Communicator communicator(transport);
  double shorter = 0, longer = 0;
  if (!medianTime(communicator, smallMessage, shorter) || !medianTime(communicator, largeMessage, longer)) return false;
  // Noise may make the large message look as quick as the small one: memory of 100 GB/s is the limit.
  const double carrying = std::max(longer - shorter, largeMessage / 100e9);
  if (transport.rank() == 0) times = {shorter, (largeMessage - smallMessage) / carrying};
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
  const nlohmann::ordered_json json = {{"latency_s", times.latency}, {"bandwidth_bytes_per_s", times.bytesPerSecond}};
  return writeAtomically(options.linkFile, json.dump() + "\n");
}

} // namespace pdcrt
