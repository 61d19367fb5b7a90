// LINK: pdcrt
// What becomes of a process whose supervisor is gone, or cannot be reached any more; and what it is told of a rank.
#include "pdcrt/ControlLine.h"
#include "transport/Transport.h"
#include "watch/Supervision.h"

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace pdcrt;

namespace {

constexpr double patience = 1000; // seconds: nobody here waits so long

/// What a rank does when its supervisor goes: the code of its process (-1: it has not ended), and its recording.
struct Outcome {
  int code = -1;
  std::string recording;
};

/// A process with one rank that begins an action `ago` seconds before its supervisor closes the connection, and ends
/// with 3 a moment after it was told so.
Outcome outlives(double ago, RunPhase phase) {
  const std::string folder = testing::TempDir() + "pdcrt-supervision-" + std::to_string(::getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener, plain, length), 0);
  EXPECT_EQ(::listen(listener, 1), 0);
  EXPECT_EQ(::getsockname(listener, plain, &length), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(listener);
    ::setenv("PDC_CONTROL", ("127.0.0.1:" + std::to_string(ntohs(address.sin_port))).c_str(), 1);
    ::setenv("PDC_CONTROL_PATIENCE", std::to_string(patience).c_str(), 1);
    std::atomic<int> signal{0};
    FlightRecorder recorder(3, {{0, 0}});
    Supervision supervision(folder, [&signal](int number) { signal = number; });
    supervision.add(recorder);
    recorder.enter(phase);
    recorder.begin({}, now() - ago);
    if (!supervision.connect(1, 2)) ::_exit(4);
    while (signal == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::seconds(2)); // who stands still has ended by then
    ::_exit(signal == SIGHUP ? 3 : 5);
  }
  const int connection = ::accept(listener, nullptr, nullptr);
  std::string hello;
  for (char c = 0; c != '\n' && ::read(connection, &c, 1) == 1;) hello += c;
  EXPECT_EQ(hello.rfind("hello ", 0), 0u) << hello;
  EXPECT_EQ(::send(connection, "go\n", 3, MSG_NOSIGNAL), 3);
  ::close(connection);
  ::close(listener);
  Outcome outcome;
  int state = 0;
  if (::waitpid(child, &state, 0) == child && WIFEXITED(state)) outcome.code = WEXITSTATUS(state);
  std::ifstream file(recordingOf(folder, 3));
  outcome.recording.assign(std::istreambuf_iterator<char>(file), {});
  std::filesystem::remove_all(folder);
  return outcome;
}

TEST(Supervision, ARankThatStoodStillBeforeItsSupervisorWasGoneEnds) {
  const Outcome outcome = outlives(patience + 100, RunPhase::training);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::again));
  EXPECT_NE(outcome.recording.find("the supervisor cannot be reached, and nothing moves"), std::string::npos)
      << outcome.recording;
}

TEST(Supervision, ARankThatMovesGoesOnAsAfterASignal) {
  const Outcome outcome = outlives(0, RunPhase::training);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.recording, "");
}

// The last checkpoint takes its time.
TEST(Supervision, ARankThatHasTrainedMayStandStillTenTimesAsLong) {
  EXPECT_EQ(outlives(9 * patience, RunPhase::finishing).code, 3);
  EXPECT_EQ(outlives(10 * patience + 100, RunPhase::finishing).code, static_cast<int>(Exit::again));
}

TEST(FlightRecorder, NamesTheCollectiveThatAnActionWaitsFor) {
  FlightRecorder recorder(3, {{1, 0}}, /*member=*/1);
  EXPECT_EQ(toString(recorder.now()), "-");
  recorder.begin({.kind = ActionKind::forward, .stage = 1, .index = 3}, 1);
  EXPECT_EQ(toString(recorder.now()), "1F3");
  recorder.await("all-reduce", 7);
  EXPECT_EQ(toString(recorder.now()), "?1F3.all-reduce-7");
  const std::string json = recorder.toJson(2, "test");
  EXPECT_NE(json.find("\"awaits\": \"all-reduce 7\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"member\": 1"), std::string::npos) << json;
  recorder.met();
  EXPECT_EQ(toString(recorder.now()), "1F3");
  recorder.await("all-to-all", 2);
  recorder.begin({.kind = ActionKind::forward, .stage = 1, .index = 4}, 2);
  EXPECT_EQ(toString(recorder.now()), "1F4");
  EXPECT_EQ(recorder.toJson(2, "test").find("awaits"), std::string::npos);
}

TEST(ControlLine, HelloNamesStagesAndMembers) {
  HelloLine hello;
  ASSERT_TRUE(parseHello("hello token 12 alpha 0abc 4:1.0 5:1.0.1,3.2.1", hello));
  ASSERT_EQ(hello.ranks.size(), 2u);
  EXPECT_EQ(hello.ranks[0].stages, "stage 1, replica 0");
  EXPECT_EQ(hello.ranks[1].stages, "stage 1, replica 0, member 1; stage 3, replica 2, member 1");
  for (const char* wrong : {"1", "1.", "1.0.", "1.0.x", "1.0.1.2", "1..1", ".0.1"})
    EXPECT_FALSE(parseHello("hello token 12 alpha 0abc 4:" + std::string(wrong), hello)) << wrong;
  BeatLine beat;
  ASSERT_TRUE(parseBeat("beat 5 12 1 ?1F3.all-reduce-7 20", beat));
  EXPECT_EQ(beat.action, "?1F3.all-reduce-7");
}

} // namespace
