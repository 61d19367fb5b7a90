// LINK: pdcrt
// Transport `tcp`: how ranks meet, what moves, and what they say of ranks that are gone. That whole runs train the bits
// of threads over it is in RuntimeProcessesTest.
#include "BoundToCores.h"
#include "pdcrt/Cores.h"
#include "transport/tcp/Sockets.h"
#include "transport/tcp/TcpTransport.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <sys/socket.h>
#include <unistd.h>

using namespace pdcrt;
using namespace std::chrono_literals;

namespace {

int freePort() {
  const int socket = listenOn(0), port = portOf(socket);
  ::close(socket);
  return port;
}

struct Met {
  std::vector<Status> statuses;
  std::vector<std::unique_ptr<Transport>> transports;
  /// Each waits for the others' good-bye.
  ~Met() {
    std::vector<std::thread> threads;
    for (auto& transport : transports) threads.emplace_back([&transport] { transport.reset(); });
    for (std::thread& thread : threads) thread.join();
  }
};

/// Threads that say that they are these ranks of `of`.
std::unique_ptr<Met> meet(const std::vector<int>& ranks, int of, double patience = 60, int port = freePort()) {
  auto met = std::make_unique<Met>();
  met->statuses.resize(ranks.size());
  met->transports.resize(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      const TcpOptions options = {
          .rank = ranks[i], .meeting = "127.0.0.1:" + std::to_string(port), .patience = patience};
      met->statuses[i] = openTcp(of, options, met->transports[i]);
    });
  for (std::thread& thread : threads) thread.join();
  return met;
}

void set(Transfer& transfer, bool outgoing, int peer, int channel, std::vector<std::byte>& data) {
  transfer.outgoing = outgoing;
  transfer.peer = peer;
  transfer.channel = channel;
  transfer.data = data.data();
  transfer.bytes = data.size();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(PollingPatience, SpinsWhereSomebodyWaitsAndHasACore) {
  EXPECT_EQ(pollingPatience(1, /*awaited=*/true, /*sends=*/false, 1), 0ns);
  EXPECT_EQ(pollingPatience(100, true, false, 1), 10us);
  EXPECT_EQ(pollingPatience(200, true, false, 1), 200us);
  EXPECT_EQ(pollingPatience(1, true, false, 2), 40us);
  EXPECT_EQ(pollingPatience(10, true, false, 2), 220us);
  EXPECT_EQ(pollingPatience(100, true, false, 2), 400us) << "the core belongs to those that compute";
  EXPECT_EQ(pollingPatience(100, true, false, 10), 500us);
}

TEST(PollingPatience, LooksRarelyBesideKernels) {
  EXPECT_EQ(pollingPatience(1, /*awaited=*/false, /*sends=*/true, 1), 100us);
  EXPECT_EQ(pollingPatience(100, false, true, 1), 200us);
  EXPECT_EQ(pollingPatience(100, false, false, 1), 1ms);
}

TEST(PollingPatience, LooksMoreRarelyWhereRanksShareACore) {
  EXPECT_EQ(pollingPatience(1, /*awaited=*/false, /*sends=*/true, 3), 300us);
  EXPECT_EQ(pollingPatience(100, false, true, 3), 600us);
  for (const bool awaited : {false, true})
    for (const bool sends : {false, true}) EXPECT_EQ(pollingPatience(1000, awaited, sends, 100), 1ms);
}

TEST(PollingPatience, CountsRanksForEachCoreRoundedUp) {
  EXPECT_EQ(ranksPerCore(1, 2), 1);
  EXPECT_EQ(ranksPerCore(2, 2), 1);
  EXPECT_EQ(ranksPerCore(3, 2), 2);
  EXPECT_EQ(ranksPerCore(16, 2), 8);
}

void expectCrowds(int count, int cores) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::unique_ptr<Met> met = meet(ranks, count);
  for (const Status& status : met->statuses) ASSERT_TRUE(status) << status.message();
  for (const auto& transport : met->transports) EXPECT_EQ(transport->crowd(), ranksPerCore(count, cores));
}

TEST(Tcp, KnowsHowManyRanksShareACore) {
  const int cores = ownCores().count;
  for (const int count : {2, std::clamp(cores + 1, 3, 9)}) expectCrowds(count, cores);
}

TEST(Tcp, KnowsThatItsRanksAreBoundToOneCore) {
  std::thread([] { // those that it starts are bound as it is
    bindToFirstCores(1);
    expectCrowds(2, 1);
  })
      .join();
}

// Looks take time from the kernels, and whoever sleeps for a time hears of what has come only later.
TEST(Tcp, SleepsUntilSomethingComes) {
  std::unique_ptr<Met> met = meet({0, 1}, 2);
  for (const Status& status : met->statuses) ASSERT_TRUE(status) << status.message();
  std::vector<std::byte> sent(100, std::byte{7}), received(100);
  Transfer send, receive;
  set(send, true, 1, 3, sent);
  set(receive, false, 0, 3, received);
  std::thread receiver([&] {
    Transport& transport = *met->transports[1];
    transport.start(receive);
    for (transport.poll(); !transport.test(receive); transport.poll()) {
      EXPECT_EQ(transport.patience(1, /*awaited=*/false), -1ns);
      transport.sleep(transport.patience(100, /*awaited=*/true));
    }
  });
  Transport& transport = *met->transports[0];
  transport.start(send);
  for (transport.poll(); !transport.test(send); transport.poll()) {
    EXPECT_EQ(transport.patience(1, /*awaited=*/true), 0ns);
    transport.sleep(transport.patience(1, /*awaited=*/false));
  }
  receiver.join();
  EXPECT_EQ(received, sent);
}

TEST(Tcp, SleepsForATimeWhileBytesMove) {
  std::unique_ptr<Met> met = meet({0, 1}, 2);
  for (const Status& status : met->statuses) ASSERT_TRUE(status) << status.message();
  Transport &sender = *met->transports[0], &receiver = *met->transports[1];
  std::vector<std::byte> sent(32 << 20, std::byte{7}), received(sent.size()); // more than the kernel takes
  Transfer send, receive;
  set(send, true, 1, 3, sent);
  set(receive, false, 0, 3, received);
  sender.start(send);
  receiver.start(receive);
  receiver.poll();
  EXPECT_EQ(receiver.patience(50, /*awaited=*/false), -1ns) << "nothing has come";
  for (bool begun = false; !begun; begun = receiver.patience(50, false) > 0ns) {
    sender.poll();
    receiver.poll();
  }
  ASSERT_FALSE(receiver.test(receive));
  EXPECT_EQ(sender.patience(50, false), pollingPatience(50, false, /*sends=*/true, sender.crowd()));
  EXPECT_EQ(receiver.patience(50, false), pollingPatience(50, false, /*sends=*/false, receiver.crowd()));
  receiver.wake();
  receiver.sleep(-1ns); // a wake-up ends every sleep
  while (!receiver.test(receive)) {
    sender.poll();
    receiver.poll();
  }
  EXPECT_EQ(received, sent);
  EXPECT_EQ(receiver.patience(50, false), -1ns);
}

TEST(Tcp, MovesTransfersOfAChannelInTheirOrder) {
  constexpr int ranks = 3, count = 200;
  const std::size_t sizes[] = {0, 1, 63, 4096, 100'000, 1 << 20};
  std::unique_ptr<Met> met = meet({0, 1, 2}, ranks);
  for (const Status& status : met->statuses) ASSERT_TRUE(status) << status.message();

  // By pair of ranks, itself included: transfers on three channels, filled with their numbers.
  struct Half {
    std::vector<std::byte> data;
    Transfer transfer;
  };
  std::mt19937 random(1);
  std::vector<std::unique_ptr<Half>> posts[ranks];
  for (int i = 0; i < count; ++i) {
    const int from = static_cast<int>(random() % ranks), to = static_cast<int>(random() % ranks);
    const int channel = static_cast<int>(random() % 3);
    const std::size_t bytes = sizes[random() % std::size(sizes)];
    auto send = std::make_unique<Half>(), receive = std::make_unique<Half>();
    send->data.assign(bytes, static_cast<std::byte>(i));
    receive->data.assign(bytes, std::byte{255});
    set(send->transfer, true, to, channel, send->data);
    set(receive->transfer, false, from, channel, receive->data);
    posts[from].push_back(std::move(send));
    posts[to].push_back(std::move(receive));
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Communicator communicator(*met->transports[static_cast<std::size_t>(rank)]);
      for (auto& half : posts[rank]) communicator.post(half->transfer);
      for (auto& half : posts[rank]) EXPECT_TRUE(communicator.wait(half->transfer));
    });
  for (std::thread& thread : threads) thread.join();
  // The k-th receive of a channel has what its k-th send had.
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to)
      for (int channel = 0; channel < 3; ++channel) {
        std::vector<const Half*> sent, received;
        for (const auto& half : posts[from])
          if (half->transfer.outgoing && half->transfer.peer == to && half->transfer.channel == channel)
            sent.push_back(half.get());
        for (const auto& half : posts[to])
          if (!half->transfer.outgoing && half->transfer.peer == from && half->transfer.channel == channel)
            received.push_back(half.get());
        ASSERT_EQ(sent.size(), received.size());
        for (std::size_t k = 0; k < sent.size(); ++k) EXPECT_TRUE(sent[k]->data == received[k]->data);
      }
}

TEST(Tcp, ALargeTransferDoesNotHoldUpAnotherChannel) {
  std::unique_ptr<Met> met = meet({0, 1}, 2);
  std::vector<std::byte> unwanted(8 << 20), small(100, std::byte{7}), got(100);
  Transfer stuck, send, receive;
  set(stuck, true, 1, 1, unwanted); // nobody receives it
  set(send, true, 1, 2, small);
  set(receive, false, 0, 2, got);
  {
    Communicator zero(*met->transports[0]), one(*met->transports[1]);
    zero.post(stuck);
    zero.post(send);
    one.post(receive);
    EXPECT_TRUE(one.wait(receive));
    EXPECT_TRUE(zero.wait(send));
    EXPECT_FALSE(stuck.complete());
  }
  EXPECT_EQ(got, small);
}

TEST(Tcp, StrangersAreHungUpOn) {
  const int port = freePort();
  std::thread stranger([&] {
    int socket = -1;
    for (int i = 0; i < 1000 && socket < 0; ++i, ::usleep(5'000))
      socket = connectTo("127.0.0.1:" + std::to_string(port));
    const std::string nonsense(200, 'x');
    sendAll(socket, nonsense.data(), nonsense.size());
    char c;
    EXPECT_FALSE(receiveAll(socket, &c, 1));
    ::close(socket);
  });
  std::vector<std::unique_ptr<Met>> met;
  std::thread zero([&] { met.push_back(meet({0}, 2, 60, port)); });
  stranger.join();
  std::unique_ptr<Met> one = meet({1}, 2, 60, port);
  zero.join();
  EXPECT_TRUE(met[0]->statuses[0]) << met[0]->statuses[0].message();
  EXPECT_TRUE(one->statuses[0]) << one->statuses[0].message();
  std::thread first([&] { met[0].reset(); });
  one.reset();
  first.join();
}

TEST(Tcp, RefusesTwoOfOneRank) {
  std::unique_ptr<Met> met = meet({0, 1, 1}, 3);
  EXPECT_EQ(met->statuses[0].code(), Exit::usage);
  EXPECT_EQ(met->statuses[0].message(), "two processes say that they are rank 1");
  for (const std::size_t other : {1, 2}) {
    EXPECT_EQ(met->statuses[other].code(), Exit::usage);
    EXPECT_EQ(met->statuses[other].message(), "");
  }
}

TEST(Tcp, NamesRanksThatDoNotCome) {
  std::unique_ptr<Met> met = meet({0, 2}, 4, 1);
  EXPECT_EQ(met->statuses[0].code(), Exit::again);
  EXPECT_TRUE(contains(met->statuses[0].message(), "rank 1, 3 did not come to 127.0.0.1:"))
      << met->statuses[0].message();
  EXPECT_FALSE(met->statuses[1]);
}

TEST(Tcp, NamesAMeetingPointThatIsNone) {
  std::unique_ptr<Transport> transport;
  for (const char* meeting : {"nowhere", ":1", "host:", "host:70000"}) {
    const Status status = openTcp(2, {.rank = 0, .meeting = meeting}, transport);
    EXPECT_EQ(status.code(), Exit::usage);
    EXPECT_TRUE(contains(status.message(), "which is not HOST:PORT")) << status.message();
  }
}

TEST(Tcp, NamesARankThatIsGone) {
  std::unique_ptr<Met> met = meet({0, 1}, 2);
  std::vector<std::byte> data(100);
  Transfer receive;
  set(receive, false, 1, 1, data);
  Communicator zero(*met->transports[0]);
  zero.post(receive);
  met->transports[1]->abort(1);
  EXPECT_FALSE(zero.wait(receive));
  EXPECT_EQ(met->transports[0]->failure().code(), Exit::again);
  EXPECT_EQ(met->transports[0]->failure().message(), "rank 1 at 127.0.0.1 has ended without a word");
}

TEST(Tcp, RefusesATransferOfAnotherSize) {
  std::unique_ptr<Met> met = meet({0, 1}, 2);
  std::vector<std::byte> from(100), to(80);
  Transfer send, receive;
  set(send, true, 1, 1, from);
  set(receive, false, 0, 1, to);
  Communicator zero(*met->transports[0]), one(*met->transports[1]);
  one.post(receive);
  zero.post(send);
  EXPECT_FALSE(zero.wait(send));
  EXPECT_EQ(met->transports[0]->failure().message(), "rank 1 at 127.0.0.1 expects 80 bytes where this rank sends 100");
  met->transports[0]->abort(1);
}

} // namespace
