// LINK: pdcReport
// The page against names that hold anything.
#include "pdc/Report/Report.h"
#include "Rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace pdc;

namespace {

Plan planWith(const std::vector<std::string>& names) {
  Plan plan;
  plan.model = names[0];
  plan.modelHash = names[1];
  plan.costSource = names[2];
  plan.cluster.levels = {{"server", 2, 1e9, 1e-4}};
  plan.cluster.device.name = names[3];
  for (int s = 0; s < 2; ++s) {
    PlanStage stage;
    stage.nodes = {s};
    stage.nodeNames = {names[4 + s]};
    stage.warmup = 1 - s;
    stage.forwardMs = stage.inputGradientMs = stage.weightGradientMs = 1;
    stage.parameterBytes = stage.gradientBytes = 1000;
    plan.stages.push_back(stage);
    plan.ranks.push_back({.rank = s, .devices = {s}, .hosts = {{s, 0}}});
  }
  plan.tensors = {{names[6], 0, 1, 1000, true}};
  plan.alternatives = {{names[7], 5, names[8]}};
  return plan;
}

std::string pageWith(const std::vector<std::string>& names) {
  Plan plan = planWith(names);
  return reportHtml(plan, buildSchedule(shapeOf(plan)));
}

/// Bytes that are the beginning of no UTF-8 sequence, or of one that is cut.
std::size_t invalidBytes(const std::string& text) {
  std::size_t invalid = 0;
  for (std::size_t i = 0; i < text.size();) {
    auto byte = static_cast<unsigned char>(text[i]);
    std::size_t length = byte < 0x80 ? 1 : byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 0;
    bool whole = length > 0 && i + length <= text.size();
    for (std::size_t j = 1; whole && j < length; ++j) whole = (static_cast<unsigned char>(text[i + j]) & 0xC0) == 0x80;
    invalid += whole ? 0 : 1;
    i += whole ? length : 1;
  }
  return invalid;
}

} // namespace

TEST(Report, NamesNeverBecomeMarkup) {
  std::vector<std::string> plain(9, "name");
  std::string expected = pageWith(plain);
  std::mt19937 random(1);
  const std::string pieces[] = {"<",    ">",     "\"",      "'",           "&",    "<script>", "</style>",
                                "<!--", "]]>",   "\xff",    "\xe2\x82",    "\x01", "\n",       "ö",
                                "&lt;", "&#60;", "onload=", "javascript:", "a"};
  for (int round = 0; round < rounds(200); ++round) {
    std::vector<std::string> names(9);
    for (std::string& name : names)
      for (int i = 0; i < 30; ++i)
        name += random() % 3 == 0 ? std::string(1, static_cast<char>(random() % 256))
                                  : pieces[random() % std::size(pieces)];
    std::string page = pageWith(names);
    for (char c : {'<', '>', '"', '\''})
      ASSERT_EQ(std::count(page.begin(), page.end(), c), std::count(expected.begin(), expected.end(), c))
          << c << " in round " << round;
    ASSERT_EQ(invalidBytes(page), 0u);
  }
}

TEST(Report, SaysNothingThatIsNotANumber) {
  Plan plan = planWith(std::vector<std::string>(9, "name"));
  for (PlanStage& stage : plan.stages) // nothing takes any time, nothing has a size
    stage.forwardMs = stage.inputGradientMs = stage.weightGradientMs = 0,
    stage.parameterBytes = stage.gradientBytes = 0;
  plan.tensors[0].bytes = 0;
  MeasuredRun run;
  for (int step = 0; step < 3; ++step) run.metrics.losses.push_back({0, 0}); // neither steps nor losses differ
  std::string page = reportHtml(plan, buildSchedule(shapeOf(plan)), run);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("inf"), std::string::npos);
  EXPECT_NE(page.find("</html>"), std::string::npos);
}

TEST(Report, ShowsTermsOfTheLossAndLoadsOfExperts) {
  Plan plan = planWith(std::vector<std::string>(9, "name"));
  Diagnostics diags(nullptr);
  const std::string lines = R"({"step": 0, "loss": 5.5, "terms": {"z<loss>": 4, "balance": 2, "bad": null}}
{"step": 1, "loss": 3.5, "terms": {"z<loss>": 3, "balance": 1}}
{"step": 1, "none": 0, "loads": {"old": {"dropped": 0.5, "shares": [1], "fullest": 1}}}
{"step": 2, "none": 0, "loads": {"a&b": {"dropped": 0.125, "shares": [0.25, 0.75], "fullest": 1.5}, "empty": {"shares": []}, "odd": 1}}
)";
  MeasuredRun run;
  Expected<RunMetrics> metrics = readMetrics(lines, "metrics.jsonl", diags);
  ASSERT_TRUE(metrics);
  run.metrics = *metrics;
  const std::string page = reportHtml(plan, buildSchedule(shapeOf(plan)), run);
  for (const char* row : {"<td class=\"l\"><code>z&lt;loss&gt;</code></td><td>4</td><td>3</td>",
                          "<td class=\"l\"><code>balance</code></td><td>2</td><td>1</td>",
                          "<td class=\"l\"><code>a&amp;b</code></td><td>2</td><td>12.5 %</td><td>1.5</td>",
                          "<title>expert 1: 75.0 %</title>", "<code>empty</code></td><td>0</td>"})
    EXPECT_NE(page.find(row), std::string::npos) << row;
  for (const char* row : {"<code>old</code>", "<code>odd</code>", "<code>bad</code>"})
    EXPECT_EQ(page.find(row), std::string::npos) << row;
  EXPECT_EQ(reportHtml(plan, buildSchedule(shapeOf(plan))).find("id=\"experts\""), std::string::npos);
}
