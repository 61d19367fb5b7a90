// LINK: pdcSchedule
// The picture of a schedule that cannot be executed: who does what when, with the spot in brackets, for every kind of
// mistake.
#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

using namespace pdc;

namespace {

/// What the check says, in a run of four minibatches, after `text` was replaced in a good schedule of two stages: one
/// list of the schedule for each batch of four, so that the lists are short.
std::string pictureAfter(const std::string& text, const std::string& replacement) {
  PipelineShape shape = straightShape({{1, 1, 0}, {1, 0, 0}});
  shape.microbatches = 4;
  std::string all = toString(buildSchedule(shape)), error;
  std::size_t at = all.find(text);
  EXPECT_NE(at, std::string::npos) << "no '" << text << "' in\n" << all;
  all.replace(at, text.size(), replacement);
  pdcrt::Schedule changed;
  EXPECT_TRUE(pdcrt::parseSchedule(all, changed, error)) << error << "\n" << all;
  return "\n" + pdcrt::check(changed, 4).problem + "\n";
}

std::size_t longestLine(const std::string& text) {
  std::size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    longest = std::max(longest, static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
                         return (c & 0xC0) != 0x80; // characters, not bytes
                       })));
  return longest;
}

} // namespace

TEST(CheckPicture, MarksAnActionOutOfOrder) {
  EXPECT_EQ(pictureAfter("0F0 0SF0>1\n  0F1 0SF1>1", "0F1 0SF1>1\n  0F0 0SF0>1"), R"(
rank 0: '0F1' is out of order, minibatch 0 is next (in a run of 4 minibatches)
  step         0
  rank 0 (0.0) [0F1]
  rank 1 (1.0)
  rank 0's list: 0RB0<1 0RB1<1 [0F1] 0SF1>1 0F0 0SF0>1 ?0RB0<1 …
)");
}

TEST(CheckPicture, MarksWhatIsUsedBeforeItIsThere) {
  EXPECT_EQ(pictureAfter("?0RB1<1 0B1", "0B1"), R"(
rank 0: '0B1' needs ?0RB1<1 before it (in a run of 4 minibatches)
  step         0     1     2     3     4     5     6
  rank 0 (0.0) 0F0   0F1         0B0   0F2   [0B1]
  rank 1 (1.0)       1F0   1B0   1F1   1B1   1F2   1B2
  rank 0's list: … 0RB2<1 ?0SF0>1 0F2 0SF2>1 [0B1] 0RB3<1 ?0SF1>1 0F3 0SF3>1 …
)");
  EXPECT_EQ(pictureAfter("1B1 1SB1>0", "1SB1>0 1B1"), R"(
rank 1: '1SB1>0' sends what is not computed yet (in a run of 4 minibatches)
  step         0        1        2        3        4
  rank 0 (0.0) 0F0      0F1               0B0      0F2
  rank 1 (1.0)          1F0      1B0      1F1      [1SB1>0]
  rank 1's list: … 1SB0>0 1RF2<0 ?1RF1<0 1F1 [1SB1>0] 1B1 1RF3<0 ?1RF2<0 1F2 …
)");
}

TEST(CheckPicture, MarksOneMinibatchTooMany) {
  EXPECT_EQ(pictureAfter("?0RB0<1 0B0 0RB2<1\n  ?0SF0>1 0F2 0SF2>1", "?0SF0>1 0F2 0SF2>1\n  ?0RB0<1 0B0 0RB2<1"), R"(
rank 0: '0F2' would be minibatch 3 in flight, the stage has 2 slots (in a run of 4 minibatches)
  step         0     1     2     3     4
  rank 0 (0.0) 0F0   0F1   [0F2]
  rank 1 (1.0)       1F0   1B0   1F1   1B1
  rank 0's list: … 0SF0>1 0F1 0SF1>1 ?0SF0>1 [0F2] 0SF2>1 ?0RB0<1 0B0 0RB2<1 …
)");
}

TEST(CheckPicture, MarksABufferThatIsInUse) {
  EXPECT_EQ(pictureAfter("?0SF0>1 0F2", "0F2"), R"(
rank 0: '0F2' overwrites a buffer that is being sent; it needs ?0SF0>1 before it (in a run of 4 minibatches)
  step         0     1     2     3     4
  rank 0 (0.0) 0F0   0F1         0B0   [0F2]
  rank 1 (1.0)       1F0   1B0   1F1   1B1
  rank 0's list: … 0SF1>1 ?0RB0<1 0B0 0RB2<1 [0F2] 0SF2>1 ?0RB1<1 0B1 0RB3<1 …
)");
}

TEST(CheckPicture, MarksASendOrReceiveThatIsMissing) {
  EXPECT_EQ(pictureAfter("1SB3>0", ""), R"(
rank 1: '?1SB3>0' waits for what is not started (in a run of 4 minibatches)
  step         1         2         3         4         5         6         7         8         9
  rank 0 (0.0) 0F1                 0B0       0F2       0B1       0F3       0B2
  rank 1 (1.0) 1F0       1B0       1F1       1B1       1F2       1B2       1F3       1B3       [?1SB3>0]
  rank 1's list: … ?1SB1>0 1B3 1U1 ?1SB2>0 [?1SB3>0]
)");
}

TEST(CheckPicture, MarksAnEndThatComesTooEarly) {
  EXPECT_EQ(pictureAfter("1U1", ""), R"(
rank 1: stage 1 ends with 0 of 1 updates (in a run of 4 minibatches)
  step         0     1     2     3     4     5     6     7     8     9
  rank 0 (0.0) 0F0   0F1         0B0   0F2   0B1   0F3   0B2         0B3
  rank 1 (1.0)       1F0   1B0   1F1   1B1   1F2   1B2   1F3   1B3   [end]
  rank 1's list: … 1B3 1SB3>0 ?1SB2>0 ?1SB3>0 [end]
)");
}

TEST(CheckPicture, MarksWhereADeadlockedRankWaits) {
  EXPECT_EQ(pictureAfter("0F0 0SF0>1\n  0F1 0SF1>1\n  ?0RB0<1 0B0", "?0RB0<1 0F0 0SF0>1\n  0F1 0SF1>1\n  0B0"), R"(
deadlock in a run of 4 minibatches:
  rank  hosts  last actions   waits in  for
  0     0.0    0RB0<1 0RB1<1  ?0RB0<1   rank 1 to start 1SB0>0
  1     1.0    1RF0<0 1RF1<0  ?1RF0<0   rank 0 to start 0SF0>1
  cycle: 0 -> 1 -> 0
  step         0
  rank 0 (0.0) [?0RB0<1]
  rank 1 (1.0) [?1RF0<0]
  rank 0's list: 0RB0<1 0RB1<1 [?0RB0<1] 0F0 0SF0>1 0F1 0SF1>1 …
)");
}

// Of a long run the last steps are shown, and of many ranks those around the mistake; lines stay readable.
TEST(CheckPicture, IsCutToWhatCanBeRead) {
  std::vector<StageShape> stages;
  for (int s = 0; s < 64; ++s) stages.push_back({1, 63 - s, 0});
  pdcrt::Schedule schedule = buildSchedule(straightShape(stages));
  std::vector<pdcrt::Action>& list = schedule.ranks[40].repeat;
  std::swap(list.front(), list.back());
  std::string problem = pdcrt::checkEveryDrain(schedule).problem;
  EXPECT_LE(longestLine(problem), 140u) << problem;
  EXPECT_NE(problem.find("\n  rank 40 (40.0)"), std::string::npos) << problem;
  EXPECT_NE(problem.find("\n  (16 of 64 ranks are shown)"), std::string::npos) << problem;
  EXPECT_EQ(std::count(problem.begin(), problem.end(), '['), 2) << problem;
}
