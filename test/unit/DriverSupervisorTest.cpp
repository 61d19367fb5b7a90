// LINK: pdcDriver
// The supervisor of a run, with processes that speak its protocol and do what they should not.
#include "pdc/Driver/Supervisor.h"

#include <chrono>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace pdc;

namespace {

/// Ranks as a program in Python: `rank(number, hash)` connects, says hello and gives a file to read and write lines.
const char* const preamble = R"(
import os, signal, socket, sys, threading, time
host, port = os.environ["PDC_CONTROL"].split(":")
token = os.environ["PDC_CONTROL_TOKEN"]
def rank(number, hash="00ff", token=token, stages="0.0"):
    connection = socket.create_connection((host, int(port)))
    lines = connection.makefile("rw")
    lines.reconfigure(line_buffering=True)
    lines.write(f"hello {token} {os.getpid()} here {hash} {number}:{stages}\n")
    return lines
def expect(lines, line):
    if lines.readline() != line + "\n": os._exit(99)
)";

struct Outcome {
  RunEnding ending;
  std::string said;
  double seconds = 0;
};

Outcome supervised(const std::string& program, int ranks, double watchdog = 30, double start = 60) {
  ::alarm(120); // ends a test that hangs
  Diagnostics diags(nullptr);
  const auto begin = std::chrono::steady_clock::now();
  const Expected<RunEnding> ending = supervise({{"python3", "-c", preamble + program}, {}, ""},
                                               {.ranks = ranks,
                                                .watchdogSeconds = watchdog,
                                                .startSeconds = start,
                                                .recordings = testing::TempDir() + "no-recordings"},
                                               diags);
  Outcome outcome;
  EXPECT_TRUE(ending);
  if (ending) outcome.ending = *ending;
  for (const Diagnostic& diagnostic : diags.all()) outcome.said += toString(diagnostic);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Supervisor, SaysNothingOfARunThatEndsWell) {
  const Outcome run = supervised(R"(
a = rank(0); b = rank(1)
expect(a, "go"); expect(b, "go")
a.write("beat 0 5 1 1F3 20\n"); a.write("bye 0\n"); b.write("bye 0\n")
)",
                                 2);
  EXPECT_EQ(run.ending.code, 0);
  EXPECT_FALSE(run.ending.lost);
  EXPECT_EQ(run.said, "");
}

TEST(Supervisor, CountsARunAsDoneOfWhichARankDiesOnItsWayOut) {
  const char* const program = R"(
a = rank(0); b = rank(1)
expect(a, "go"); expect(b, "go")
a.write("bye 0\n"); b.write("bye CODE\n"); a.close(); b.close(); time.sleep(0.3)
sys.exit(137) # as a launcher ends of which a process was killed
)";
  std::string all = program, one = program;
  const Outcome done = supervised(all.replace(all.find("CODE"), 4, "0"), 2);
  EXPECT_EQ(done.ending.code, 0);
  EXPECT_FALSE(done.ending.lost);
  EXPECT_EQ(done.said, "");
  EXPECT_EQ(supervised(one.replace(one.find("CODE"), 4, "75"), 2).ending.code, 137);
}

TEST(Supervisor, EndsARunOfWhichARankComesTwice) {
  const Outcome run = supervised(R"(
a = rank(0, "00ff.11.RANK"); b = rank(0, "00ff.11.RANK")
a.readline(); b.readline(); time.sleep(20)
)",
                                 3);
  EXPECT_EQ(run.ending.code, 1);
  EXPECT_FALSE(run.ending.lost); // again it would be the same
  EXPECT_TRUE(contains(run.said, "error: two processes are rank 0: process ")) << run.said;
  EXPECT_TRUE(contains(run.said, " (by RANK) on here, and process ")) << run.said;
  EXPECT_LT(run.seconds, 15);
}

TEST(Supervisor, EndsARunOfWhichARankDoesNotCome) {
  const Outcome run = supervised(R"(
a = rank(0); c = rank(2)
expect(a, "stop"); expect(c, "stop")
)",
                                 4, 30, /*start=*/1);
  EXPECT_EQ(run.ending.code, 75);
  EXPECT_TRUE(contains(run.said, "error: ranks 1, 3 of 4 did not come within 1.0 s")) << run.said;
  EXPECT_TRUE(contains(run.said, "note: rank 0 (stage 0, replica 0) on here, process ")) << run.said;
  EXPECT_TRUE(contains(run.said, "note: rank 2 (stage 0, replica 0) on here, process ")) << run.said;
  EXPECT_LT(run.seconds, 15);
}

TEST(Supervisor, EndsARunOfWhichARankDoesNotFindTheOthers) {
  const Outcome run = supervised(R"(
a = rank(0); b = rank(1)
expect(a, "go"); expect(b, "go")
b.write("beat 1 0 0 - 0\n")
for _ in range(40):
    a.write("beat 0 0 3 - 0\n"); time.sleep(0.1)
    b.write("beat 1 0 0 - 0\n")
expect(a, "stop")
)",
                                 2, 30, /*start=*/2);
  EXPECT_TRUE(run.ending.lost);
  EXPECT_TRUE(contains(run.said, "error: rank 0 (stage 0, replica 0) on here has not found the others within 2.0 s"))
      << run.said;
}

TEST(Supervisor, NamesARankThatDies) {
  const Outcome run = supervised(R"(
a = rank(0); b = rank(1, stages="2.1")
expect(a, "go"); expect(b, "go")
a.write("beat 0 7 1 ?0RB2<2 250\n"); b.write("beat 1 5 1 2F3 1500\n"); time.sleep(0.5)
b.close()
expect(a, "stop")
sys.exit(75)
)",
                                 2);
  EXPECT_EQ(run.ending.code, 75);
  EXPECT_TRUE(run.ending.lost);
  EXPECT_TRUE(contains(run.said, "rank 1 (stage 2, replica 1) on here is gone; it was in '2F3', begun ")) << run.said;
  EXPECT_TRUE(contains(run.said, "0 in '?0RB2<2', 1 in '2F3'")) << run.said;
  EXPECT_TRUE(contains(run.said, "help: ")) << run.said;
}

TEST(Supervisor, NamesRanksThatMayHaveDiedBeforeTheyWereHeardOf) {
  const Outcome run = supervised(R"(
b = rank(1); time.sleep(0.3)
b.close(); time.sleep(0.5)
sys.exit(137)
)",
                                 3);
  EXPECT_EQ(run.ending.code, 75);
  EXPECT_TRUE(contains(run.said,
                       "rank 1 (stage 0, replica 0) on here is gone; it had not begun to train; or it was ended "
                       "because of rank 0 (not heard of yet), rank 2 (not heard of yet)"))
      << run.said;
}

TEST(Supervisor, EndsWhatDoesNotEndByItself) {
  const Outcome run = supervised(R"(
signal.signal(signal.SIGTERM, signal.SIG_IGN)
a = rank(0); b = rank(1)
expect(a, "go"); expect(b, "go")
b.close()
while True: time.sleep(1)
)",
                                 2);
  EXPECT_EQ(run.ending.code, 75);
  EXPECT_TRUE(run.ending.lost);
}

TEST(Supervisor, CallsARunHungThatDoesNotMove) {
  const Outcome run = supervised(R"(
a = rank(0); b = rank(1)
expect(a, "go"); expect(b, "go")
begin = time.monotonic()
def beats():
    while True:
        a.write("beat 0 7 1 ?0RB2<1 1\n"); b.write("beat 1 5 1 1F3 1\n"); time.sleep(0.3)
threading.Thread(target=beats, daemon=True).start()
expect(a, "stop")
os._exit(75 if time.monotonic() - begin > 3 else 99) # the limit, and a beat
)",
                                 2, /*watchdog=*/2);
  EXPECT_EQ(run.ending.code, 75);
  EXPECT_TRUE(run.ending.lost);
  EXPECT_TRUE(contains(run.said, "nothing has moved for 3.")) << run.said;
  EXPECT_TRUE(contains(run.said, "rank 1 (stage 0, replica 0) on here seems to hang; it was in '1F3'")) << run.said;
}

TEST(Supervisor, LetsARankTakeItsTimeBeforeAndAfterTraining) {
  const Outcome run = supervised(R"(
a = rank(0); b = rank(1)
expect(a, "go"); expect(b, "go")
a.write("beat 0 7 1 ?0RB2<1 1\n"); b.write("beat 1 5 2 1F3 1\n"); time.sleep(2)
a.write("bye 0\n"); b.write("bye 0\n")
)",
                                 2, /*watchdog=*/0.5);
  EXPECT_EQ(run.ending.code, 0) << run.said;
}

TEST(Supervisor, MissesARankThatFallsSilentAtTheEnd) {
  const Outcome run = supervised(R"(
a = rank(0); b = rank(1)
expect(a, "go"); expect(b, "go")
b.write("beat 1 5 2 1F3 1\n")
def beats():
    while True:
        a.write("beat 0 7 2 0F7 1\n"); time.sleep(0.3)
threading.Thread(target=beats, daemon=True).start()
expect(a, "stop")
os._exit(75)
)",
                                 2, /*watchdog=*/1);
  EXPECT_EQ(run.ending.code, 75);
  EXPECT_TRUE(run.ending.lost);
  EXPECT_TRUE(contains(run.said, "rank 1 (stage 0, replica 0) on here has not been heard of for 5.")) << run.said;
}

TEST(Supervisor, RefusesRanksOfDifferentBuilds) {
  const Outcome run = supervised(R"(
a = rank(0, hash="00ff.1111"); time.sleep(0.2); b = rank(1, hash="00ff.2222")
a.readline()
)",
                                 2);
  EXPECT_EQ(run.ending.code, 1);
  EXPECT_FALSE(run.ending.lost);
  EXPECT_TRUE(contains(run.said, "rank 1 (stage 0, replica 0) on here is the build 2222, rank 0 (stage 0, replica 0) "
                                 "on here is 1111"))
      << run.said;
}

TEST(Supervisor, RefusesRanksOfDifferentPlans) {
  const Outcome run = supervised(R"(
a = rank(0); time.sleep(0.2); b = rank(1, hash="0100")
a.readline()
)",
                                 2);
  EXPECT_EQ(run.ending.code, 1);
  EXPECT_FALSE(run.ending.lost);
  EXPECT_TRUE(contains(run.said,
                       "rank 1 (stage 0, replica 0) on here has a plan, schedule or flags with the hash 0100, "
                       "rank 0 (stage 0, replica 0) on here has 00ff"))
      << run.said;
}

TEST(Supervisor, IgnoresStrangers) {
  const Outcome run = supervised(R"(
stranger = rank(1, token="guess"); beyond = rank(7); noise = socket.create_connection((host, int(port))); noise.sendall(b"\0\xff\n" * 1000)
a = rank(0); time.sleep(0.3); b = rank(1)
expect(a, "go"); expect(b, "go")
stranger.write("beat 0 x y\nbye 3\n"); stranger.close(); noise.close(); time.sleep(0.3)
a.write("beat 1 1 1 - 0\n"); a.write("beat\n"); a.write("bye 0\n"); b.write("bye 0\n")
)",
                                 2);
  EXPECT_EQ(run.ending.code, 0) << run.said;
  EXPECT_EQ(run.said, "");
}

TEST(Supervisor, TakesTheCodeOfTheRankThatKnowsWhatIsWrong) {
  const Outcome run = supervised(R"(
a = rank(0); b = rank(1)
expect(a, "go"); expect(b, "go")
a.write("bye 75\n"); b.write("bye 76\n"); time.sleep(0.3); a.close(); b.close()
sys.exit(1)
)",
                                 2);
  EXPECT_EQ(run.ending.code, 76);
  EXPECT_FALSE(run.ending.lost);
  EXPECT_EQ(run.said, "");
}

TEST(Supervisor, HandsASignalOn) {
  const Outcome run = supervised(R"(
a = rank(0)
expect(a, "go"); os.kill(os.getppid(), signal.SIGTERM); expect(a, "signal 15")
a.write("bye 75\n")
sys.exit(75)
)",
                                 1);
  EXPECT_EQ(run.ending.code, 75) << run.said;
  EXPECT_FALSE(run.ending.lost);
}

TEST(Supervisor, TakesTheCodeOfACommandThatNeverConnects) {
  EXPECT_EQ(supervised("sys.exit(2)", 3).ending.code, 2);
}

} // namespace
