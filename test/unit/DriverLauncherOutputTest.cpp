// LINK: pdcDriver
// What mpirun says of itself, apart from what ranks say.
#include "../../lib/Driver/LauncherOutput.h"

#include <gtest/gtest.h>

using namespace pdc;

namespace {

const std::string frame = std::string(74, '-') + "\n";
const std::string message = frame + "There are not enough slots.\n" + frame;

TEST(LauncherOutput, PassesOnWhatRanksSayAsItComes) {
  LauncherOutput output;
  EXPECT_EQ(output.take("step 1/9 "), "step 1/9 ");
  EXPECT_EQ(output.take("loss\nst"), "loss\nst");
  EXPECT_EQ(output.take("\n---\n\n"), "\n---\n\n");
  EXPECT_EQ(output.take("[alpha:12] of a rank\n"), "[alpha:12] of a rank\n");
  EXPECT_EQ(output.takeMessages(), "");
  EXPECT_FALSE(output.saysError());
}

TEST(LauncherOutput, KeepsMessagesHoweverTheyAreCut) {
  const std::string all = "before\n" + message + "after\n" + message +
                          "[alpha:12] 2 more processes have sent help message help-x.txt / y\n" +
                          "[alpha:12] Set MCA parameter \"orte_base_help_aggregate\" to 0 to see all\n" +
                          "[alpha:12] [[17814,0],0] ORTE_ERROR_LOG: Data unpack in file show_help.c at line 501\nlast";
  for (std::size_t piece : {std::size_t{1}, std::size_t{7}, all.size()}) {
    LauncherOutput output;
    std::string passed;
    for (std::size_t i = 0; i < all.size(); i += piece) passed += output.take(all.substr(i, piece));
    EXPECT_EQ(passed + output.rest(), "before\nafter\nlast");
    EXPECT_EQ(output.takeMessages(),
              message + message + all.substr(all.find("[alpha"), all.rfind("last") - all.find("[alpha")));
    EXPECT_EQ(output.takeMessages(), "");
  }
}

TEST(LauncherOutput, GivesBackWhatIsNoWholeMessage) {
  LauncherOutput output;
  EXPECT_EQ(output.take(frame + "cut"), "");
  EXPECT_EQ(output.rest(), frame + "cut");
  // A rank may draw a line that nobody ends.
  std::string passed = output.take(frame);
  for (int i = 0; i < 2000; ++i) passed += output.take("step of a long run\n");
  EXPECT_GT(passed.size(), 16000u);
}

TEST(LauncherOutput, SeesThatARankHasSaidWhy) {
  LauncherOutput output;
  static_cast<void>(output.take("an error: of no line's beginning\n"));
  EXPECT_FALSE(output.saysError());
  EXPECT_EQ(output.take("err"), "");
  EXPECT_EQ(output.take("or: data is missing\n"), "error: data is missing\n");
  EXPECT_TRUE(output.saysError());
}

} // namespace
