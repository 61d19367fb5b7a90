// LINK: pdcPass
// The registry of passes and pipelines.
#include "pdc/Pass/Pass.h"

#include <gtest/gtest.h>

#include <sstream>

using namespace pdc;

class PassTest : public testing::Test {
protected:
  PassTest() {
    add("first", [](PassContext&) -> Status { return success; });
    add("fails", [](PassContext& context) -> Status { return context.diags.error({}) << "no luck"; });
    add("breaks", [](PassContext& context) -> Status {
      context.module.graphs.push_back(std::make_unique<Graph>("a"));
      context.module.graphs.push_back(std::make_unique<Graph>("a"));
      return success;
    });
    passes.add({.argument = "names",
                .summary = "Names the module",
                .options = {{"name", "the name"}},
                .run = [](PassContext& context) -> Status {
                  context.module.name = context.options["name"];
                  return success;
                }});
  }
  void add(const std::string& argument, std::function<Status(PassContext&)> run) {
    passes.add({.argument = argument, .summary = "Test", .run = [this, argument, run](PassContext& context) {
                  ran.push_back(argument);
                  return run(context);
                }});
  }
  bool run(const std::vector<PipelineStep>& steps) {
    return static_cast<bool>(runPipeline(steps, passes, module, ops, diags, options));
  }
  std::string message(std::size_t i) { return diags.all().at(i).message; }

  PassRegistry passes;
  OpRegistry ops;
  Module module;
  Diagnostics diags{nullptr};
  PipelineOptions options;
  std::vector<std::string> ran;
};

TEST_F(PassTest, RunsInOrderWithOptions) {
  EXPECT_TRUE(run({{"first", {}}, {"names", {{"name", "m"}}}, {"first", {}}}));
  EXPECT_EQ(ran, (std::vector<std::string>{"first", "first"}));
  EXPECT_EQ(module.name, "m");
}

TEST_F(PassTest, StopsAtTheFirstFailure) {
  EXPECT_FALSE(run({{"first", {}}, {"fails", {}}, {"first", {}}}));
  EXPECT_EQ(ran, (std::vector<std::string>{"first", "fails"}));
  EXPECT_EQ(message(0), "no luck");
}

TEST_F(PassTest, VerifiesAfterEachPass) {
  EXPECT_FALSE(run({{"breaks", {}}, {"first", {}}}));
  EXPECT_EQ(ran, std::vector<std::string>{"breaks"});
  EXPECT_EQ(message(1), "pass 'breaks' left a module that breaks the rules of the IR");
  EXPECT_EQ(diags.all().at(1).exitCode, ExitCode::internal);
  module.graphs.clear();
  options.verifyEach = false;
  EXPECT_TRUE(run({{"breaks", {}}}));
}

TEST_F(PassTest, NothingRunsWhenAStepIsUnknown) {
  EXPECT_FALSE(run({{"first", {}}, {"none", {}}, {"first", {{"x", "1"}}}}));
  EXPECT_TRUE(ran.empty());
  EXPECT_EQ(message(0), "there is no pass 'none'");
  EXPECT_EQ(message(1), "pass 'first' has no option 'x'");
  EXPECT_EQ(diags.exitCode(), ExitCode::usage);
}

TEST_F(PassTest, PrintsAfterPasses) {
  std::ostringstream out;
  options.out = &out;
  options.printAfter = {"names"};
  EXPECT_TRUE(run({{"first", {}}, {"names", {{"name", "m"}}}}));
  EXPECT_EQ(out.str(), "// after names\nmodule @m {\n}\n");
}

TEST_F(PassTest, TimesPasses) {
  std::ostringstream out;
  options.out = &out;
  options.timePasses = true;
  EXPECT_TRUE(run({{"first", {}}, {"first", {}}}));
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_NE(text.find("100.0  total"), std::string::npos) << text;
}

TEST_F(PassTest, TwoPassesOfOneNameAbort) {
  EXPECT_DEATH(add("first", [](PassContext&) -> Status { return success; }), "pass 'first': there are two passes");
}
