// LINK: pdcrt pdcSchedule
// What ranks must have in common before they train: the kind of device within a team.
#include "run/Agreement.h"
#include "run/Processor.h"

#include "pdc/Schedule/PipelineShape.h"

#include <gtest/gtest.h>

using namespace pdcrt;

namespace {

/// Two ranks, each a team of two, on hosts a, b, c, d with devices of these kinds.
Status agree(const std::vector<double>& kinds) {
  RunFiles files;
  files.schedule = pdc::buildSchedule(pdc::straightShape({{.replicas = 1, .warmup = 1}, {.replicas = 1}}));
  for (auto& stage : files.schedule.stages) stage.team = 2;
  RunOptions options;
  options.steps = 4;
  files.training.batch = 2;
  std::map<int, Message> hellos;
  for (int process = 0; process < 4; ++process) {
    Message& hello = hellos[process];
    hello.rank = process;
    hello.values[0] = 8; // samples
    hello.values[1] = -1;
    hello.values[2] = process == 2; // it has the loss
    hello.values[3] = -1;
    hello.values[4] = kinds[static_cast<std::size_t>(process)];
    hello.text[0] = static_cast<char>('a' + process);
  }
  Agreement agreement;
  return agreeOn(hellos, options, files, agreement);
}

TEST(Agreement, MembersOfATeamHaveDevicesOfOneKind) {
  EXPECT_TRUE(agree({1, 1, 1, 1})) << agree({1, 1, 1, 1}).message();
  EXPECT_TRUE(agree({1, 1, 2, 2})) << "stages may be computed by different processors";
  const Status status = agree({1, 1, 2, 1});
  EXPECT_EQ(status.code(), Exit::noDevice);
  EXPECT_EQ(status.message(),
            "members 0 and 1 of the team of rank 1 compute on devices of different kinds (hosts c and "
            "d): they would not get the same bits");
  EXPECT_NE(agree({1, 2, 1, 1}).message().find("hosts a and b"), std::string::npos);
}

TEST(Processor, ItsKindIsWhatDoesNotChangeWhileItRuns) {
  const auto x86 = [](const char* name, const char* mhz, const char* flags) {
    const std::string one = std::string("processor\t: 0\nvendor_id\t: X\nmodel name\t: ") + name +
                            "\ncpu MHz\t\t: " + mhz + "\nflags\t\t: " + flags + "\n\n";
    return one + "processor\t: 1\nmodel name\t: another\n\n";
  };
  const std::string kind = processorKind(x86("One", "2000", "avx2"));
  EXPECT_EQ(kind, "vendor_id\t: X\nmodel name\t: One\nflags\t\t: avx2\n");
  EXPECT_EQ(processorKind(x86("One", "3000", "avx2")), kind);
  EXPECT_NE(processorKind(x86("One", "2000", "avx2 avx512f")), kind);
  EXPECT_NE(processorKind(x86("Two", "2000", "avx2")), kind);
  EXPECT_EQ(processorKind("processor\t: 0\nBogoMIPS\t: 50\nFeatures\t: fp sve\nCPU part\t: 0xd0c\n"),
            "Features\t: fp sve\nCPU part\t: 0xd0c\n");
  EXPECT_EQ(processorKind(""), "");
}

} // namespace
