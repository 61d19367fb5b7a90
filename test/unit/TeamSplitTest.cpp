// LINK: pdcPlan
// --split and "split" in plan.json: what is written is read again, and nothing else is.
#include "pdc/Plan/TeamSplit.h"

#include <gtest/gtest.h>

using namespace pdc;

TEST(TeamSplit, IsReadAsItIsWritten) {
  for (const TeamSplit& split : {TeamSplit{}, TeamSplit{2, false}, TeamSplit{3, true}, TeamSplit{1024, false},
                                 TeamSplit{4, false, true}, TeamSplit{2, false, true, true},
                                 TeamSplit{2, false, true, false, true}, TeamSplit{8, true, true, false, true}}) {
    const std::optional<TeamSplit> read = teamSplitFromText(toText(split));
    ASSERT_TRUE(read) << toText(split);
    EXPECT_EQ(*read, split);
  }
  EXPECT_EQ(toText({2, true}), "tp:2,all");
  EXPECT_EQ(toText({2, false, true}), "sp:2");
  EXPECT_EQ(toText({2, false, true, true}), "ep:2");
  EXPECT_EQ(toText({2, true, true, false, true}), "tps:2,all");
}

TEST(TeamSplit, NothingElseIsRead) {
  for (const char* text : {"",      "tp",      "tp:",      "tp:1",     "tp:0",
                           "tp:-2", "tp:1025", "tp:2.5",   "tp:2,",    "tp:2,most",
                           "tp: 2", "sp:",     "sp:1",     "sp:2,all", "tps",
                           "tps:",  "tps:1",   "tpss:2",   "ts:2",     ":2",
                           "ep:",   "ep:1",    "ep:2,all", "none,all", "tp:99999999999999999999",
                           "tp:2 "})
    EXPECT_FALSE(teamSplitFromText(text)) << text;
}

// A cost graph may have several ways to run its nodes on so many devices; what people type for a model has one.
TEST(TeamSplit, WaysToRunNodesHaveNumbers) {
  TeamSplit second;
  second.menu = 1;
  EXPECT_EQ(toText(second), "none#1");
  second.members = 2;
  EXPECT_EQ(toText(second), "tp:2#1");
  for (const TeamSplit& split : {TeamSplit{}, TeamSplit{2, true}, second}) {
    const std::optional<TeamSplit> read = costSplitFromText(toText(split));
    ASSERT_TRUE(read) << toText(split);
    EXPECT_EQ(*read, split);
  }
  EXPECT_FALSE(teamSplitFromText("tp:2#1"));
  for (const char* text :
       {"#1", "tp#1", "tp:2#", "tp:2#0", "tp:2#-1", "tp:2#1.5", "tp:2#1#1", "tp:2#1,all", "tp:2#9999"})
    EXPECT_FALSE(costSplitFromText(text)) << text;
}
