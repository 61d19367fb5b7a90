// LINK: pdcrt
// Flags of a training: a stage program takes every flag that pdc-run hands on.
#include "pdcrt/RunFlags.h"
#include "run/Options.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

using namespace pdcrt;

namespace {

Status parse(std::vector<std::string> words, RunOptions& options) {
  words.insert(words.begin(), "stage0");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  bool finished = false;
  return parseOptions(static_cast<int>(arguments.size()), arguments.data(), options, finished);
}

/// A value that the flag takes, by the type that it states: the first of several, else a number.
std::string valueOf(const RunFlag& flag) {
  const std::string type = flag.type;
  if (type == "MEAN/STD") return "0.5/2";
  if (type.find('|') == std::string::npos || type.starts_with("DIR")) return "1";
  return type.substr(0, type.find('|'));
}

TEST(RuntimeOptions, TakeEveryFlagThatIsHandedOn) {
  for (const RunFlag& flag : runFlags) {
    const std::string name = flag.name;
    std::vector<std::string> words = {name + "=" + valueOf(flag)};
    if (name != "--data") words.push_back("--data=tokens.bin");
    if (name == "--eval-every") words.push_back("--eval=more.bin");
    if (name == "--checkpoint-every") words.push_back("--checkpoint-dir=kept");
    RunOptions options;
    const Status status = parse(words, options);
    EXPECT_TRUE(status) << name << ": " << status.message();
  }
}

TEST(RuntimeOptions, SaySeedAndRateOnlyWhereTheyAreGiven) {
  RunOptions options;
  ASSERT_TRUE(parse({"--data=d"}, options));
  EXPECT_FALSE(options.seed);
  EXPECT_FALSE(options.learningRate);
  ASSERT_TRUE(parse({"--data=d", "--seed=7", "--lr=0.5"}, options));
  EXPECT_EQ(options.seed, 7u);
  EXPECT_EQ(options.learningRate, 0.5);
}

TEST(RuntimeOptions, RefuseWhatContradicts) {
  RunOptions options;
  EXPECT_EQ(parse({}, options).code(), Exit::usage);
  EXPECT_EQ(parse({"--data=d", "--epochs=1", "--steps=1"}, options).code(), Exit::usage);
  EXPECT_EQ(parse({"--data=d", "--checkpoint-every=1"}, options).code(), Exit::usage);
  EXPECT_EQ(parse({"--data=d", "--unknown=1"}, options).code(), Exit::usage);
}

} // namespace
