// LINK: pdcPlanner
// Values of the planner's flags: what is typed, and what is refused.
#include "pdc/Planner/OptionText.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

using namespace pdc;

template <class Read>
static std::string usageError(Read read) {
  Diagnostics diags(nullptr);
  EXPECT_FALSE(read(diags));
  EXPECT_EQ(diags.exitCode(), ExitCode::usage);
  return diags.all().empty() ? "" : diags.all()[0].message;
}

TEST(Levels, AreReadFromTheInsideOut) {
  Diagnostics diags(nullptr);
  Expected<Cluster> cluster = parseLevels("4x10e9,3x1.25e9", diags);
  ASSERT_TRUE(cluster);
  ASSERT_EQ(cluster->levels.size(), 2u);
  EXPECT_EQ(cluster->levels[0].count, 4);
  EXPECT_EQ(cluster->levels[0].bandwidthBytesPerS, 1e10);
  EXPECT_EQ(cluster->levels[1].bandwidthBytesPerS, 1.25e9);
  EXPECT_EQ(cluster->levels[1].latencyS, 0);
  EXPECT_EQ(cluster->deviceCount(), 12);
  EXPECT_EQ(cluster->device.memoryBytes, unlimitedMemoryBytes);
}

TEST(Levels, RefuseWhatIsNoCountTimesBandwidth) {
  for (const char* text : {"", "4", "4x", "x1e9", "0x1e9", "-4x1e9", "4x0", "4x-1", "4xinf", "4xnan", "4x1e9y",
                           "4x1e9,,", "4.5x1e9", "4x1e999", "99999999999999999999x1"})
    EXPECT_EQ(usageError([&](Diagnostics& diags) { return parseLevels(text, diags); }).rfind("--levels: expected", 0),
              0u)
        << text;
  EXPECT_EQ(usageError([](Diagnostics& diags) { return parseLevels("4x0", diags); }),
            "--levels: expected COUNTxBYTES_PER_SECOND, both above 0, got '4x0'");
  EXPECT_EQ(usageError([](Diagnostics& diags) { return parseLevels("2048x1,1024x1", diags); }),
            "--levels: expected at most 1048576 devices, got more in '2048x1,1024x1'");
}

TEST(Bytes, TakeUnits) {
  Diagnostics diags(nullptr);
  EXPECT_EQ(*parseBytes("--memory", "16e9", diags), 16'000'000'000);
  EXPECT_EQ(*parseBytes("--memory", "16GiB", diags), std::int64_t{16} << 30);
  EXPECT_EQ(*parseBytes("--memory", "1.5kB", diags), 1500);
  for (const char* text : {"", "0", "-1", "nan", "inf", "1e99", "16 GiB", "16gb", "GiB"})
    EXPECT_EQ(usageError([&](Diagnostics& quiet) { return parseBytes("--memory", text, quiet); }),
              std::string("--memory: expected a size of at least one byte, got '") + text + "'");
}

TEST(Bucket, IsASizeOrTheDefault) {
  Diagnostics diags(nullptr);
  PlannerOptions options;
  EXPECT_TRUE(parseBucket("", options, diags));
  EXPECT_EQ(options.bucketBytes, defaultBucketBytes);
  EXPECT_TRUE(parseBucket("25MiB", options, diags));
  EXPECT_EQ(options.bucketBytes, std::int64_t{25} << 20);
  EXPECT_EQ(usageError([&](Diagnostics& quiet) { return parseBucket("0", options, quiet); }),
            "--bucket: expected a size of at least one byte, got '0'");
}

TEST(Warmup, IsAPolicyOrOneNumberPerStage) {
  Diagnostics diags(nullptr);
  PlannerOptions options;
  EXPECT_TRUE(parseWarmup("paper", options, diags));
  EXPECT_EQ(options.warmupPolicy, WarmupPolicy::paper);
  EXPECT_TRUE(parseWarmup("2,0", options, diags));
  EXPECT_EQ(options.warmupPolicy, WarmupPolicy::given);
  EXPECT_EQ(options.warmup, (std::vector<int>{2, 0}));
  for (const char* part : {"x", "-1", "1.5", "99999999999"})
    EXPECT_EQ(usageError([&](Diagnostics& quiet) { return parseWarmup(part, options, quiet); }),
              std::string("--warmup: '") + part + "' is not a number of forwards");
}
