// How long a sum over a team of two takes: an all-reduce as kernels call it, from start() to the end of finish(), one
// after the other and after 200 µs of computing; and beside it an exchange of as many bytes, which is the link's rate.
// Medians of rounds in turns.
//
//   bin/TeamBench                        members are threads
//   mpirun -n 2 bin/TeamBench            processes, over MPI
//   PDC_RANK=0|1 PDC_WORLD_SIZE=2 PDC_MASTER=127.0.0.1:PORT bin/TeamBench      over TCP
//
// Goals between two processes: 4 KiB in 150 µs; 1 MiB at 0.7 of the link's rate.
#include "collectives/TeamWork.h"
#include "pdcrt/Launcher.h"
#include "transport/mpi/MpiTransport.h"
#include "transport/tcp/TcpTransport.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

using namespace pdcrt;

namespace {

constexpr int rounds = 400, warmUp = 40;

void compute(double seconds) {
  const double end = now() + seconds;
  for (volatile std::uint64_t work = 0; now() < end;) work = work + 1;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Times {
  std::vector<double> sum, sumAfterWork, exchange;
};

void measure(Transport& transport) {
  const int self = transport.rank();
  const std::vector<std::int64_t> sizes = {1 << 10, 4 << 10, 64 << 10, 1 << 20, 4 << 20};
  std::vector<Collective> collectives;
  for (const std::int64_t size : sizes)
    collectives.push_back({.kind = Collective::Kind::allReduce,
                           .combine = Collective::Combine::sum,
                           .element = Element::f32,
                           .elements = size / 4});
  Communicator communicator(transport);
  TeamWork team({.processes = {0, 1}, .self = self, .channel = 10}, collectives, communicator, nullptr);
  if (self == 0) std::printf("%10s %12s %12s %12s %8s\n", "bytes", "sum", "after work", "exchange", "rate");
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto bytes = static_cast<std::size_t>(sizes[i]);
    std::vector<std::byte> data(bytes), arrived(bytes);
    Stream q;
    const auto sum = [&] {
      const double begin = now();
      team.start(static_cast<int>(i), q, data.data(), arrived.data());
      team.finish(static_cast<int>(i), q);
      return now() - begin;
    };
    TransferGroup both;
    both.resize(2);
    both.used = 2;
    const auto exchange = [&] {
      for (std::size_t way = 0; way < 2; ++way) {
        Transfer& transfer = both.parts[way];
        transfer.outgoing = way == 0;
        transfer.peer = 1 - self;
        transfer.channel = 1;
        transfer.data = way == 0 ? data.data() : arrived.data();
        transfer.bytes = bytes;
        transfer.traffic = Traffic::control;
        transfer.inBlocks = true;
      }
      const double begin = now();
      communicator.post(both);
      communicator.wait(both);
      return now() - begin;
    };
    Times times;
    for (int round = 0; round < warmUp + rounds; ++round) {
      const double alone = sum(), moved = exchange();
      compute(200e-6);
      sum(); // both begin together
      compute(200e-6);
      const double after = sum();
      if (round < warmUp) continue;
      times.sum.push_back(alone);
      times.sumAfterWork.push_back(after);
      times.exchange.push_back(moved);
    }
    if (self == 0)
      std::printf("%10zu %9.1f µs %9.1f µs %9.1f µs %8.2f\n", bytes, median(times.sum) * 1e6,
                  median(times.sumAfterWork) * 1e6, median(times.exchange) * 1e6,
                  median(times.exchange) / median(times.sum));
  }
}

} // namespace

int main() {
  std::unique_ptr<Transport> transport;
  Status status;
  if (const std::string meeting = meetingPoint(); !meeting.empty())
    status = openTcp(2, {.rank = launchedAs()->rank, .meeting = meeting, .patience = startPatience()}, transport);
  else if (launchedAs())
    status = openMpi(2, {}, transport);
  if (!status) {
    std::fprintf(stderr, "error: %s\n", status.message().c_str());
    return 1;
  }
  if (transport) {
    measure(*transport);
    return 0;
  }
  const auto transports = makeThreadTransports(2);
  std::thread other([&] { measure(*transports[1]); });
  measure(*transports[0]);
  other.join();
  return 0;
}
