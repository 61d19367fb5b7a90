// Runs ONNX's backend tests through the interpreter and through generated CPU code: what utils/onnx-conformance calls.
//
//   onnx-conformance DIR [--quick] [--page FILE] [--json FILE] [--against FILE] [--title TEXT]
//                   [--tests TEXT] [--goal N] [--only PART] [--show]
//
// Gradients of what passes in the interpreter are compared with differences. Ends with 0 when nothing is wrong and,
// with --against, no fewer pass than the page FILE says.
#include "Gradient.h"
#include "Table.h"

#include "pdc/CodeGen/StageEmitter.h"
#include "pdc/Driver/CpuEngine.h"
#include "pdc/Memory/MemoryPlan.h"
#include "pdc/Ops/AllOps.h"
#include "pdc/Transforms/Transforms.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <regex>
#include <set>
#include <sstream>

using namespace pdc;
using namespace pdc::conformance;
namespace fs = std::filesystem;

namespace {

struct Options {
  std::string folder, page, json, against, only, title = "Conformance", tests = "ONNX's tests of operators";
  int goal = 0;
  bool quick = false, show = false;
};

/// A test on its way through both engines.
struct Job {
  NodeTest test;
  TestResult result;
  std::unique_ptr<Module> module;
};

class ConformanceRun {
public:
  explicit ConformanceRun(const Options& options) : options_(options) {
    registerAllOps(ops_);
    registerTransforms(passes_);
  }

  std::vector<TestResult> operator()() {
    collect();
    for (Job& job : jobs_) interpretJob(job);
    std::vector<Job*> compiled;
    for (Job& job : jobs_)
      if (job.module && emits(job)) compiled.push_back(&job);
    if (options_.quick) thinOut(compiled);
    constexpr std::size_t batch = 192;
    for (std::size_t begin = 0; begin < compiled.size(); begin += batch)
      runGenerated({compiled.begin() + static_cast<std::ptrdiff_t>(begin),
                    compiled.begin() + static_cast<std::ptrdiff_t>(std::min(begin + batch, compiled.size()))});
    std::vector<TestResult> results;
    for (Job& job : jobs_) results.push_back(std::move(job.result));
    return results;
  }

private:
  void collect() {
    std::set<fs::path> folders;
    for (const fs::directory_entry& entry : fs::directory_iterator(options_.folder))
      if (fs::exists(entry.path() / "model.onnx") &&
          entry.path().filename().string().find(options_.only) != std::string::npos)
        folders.insert(entry.path());
    std::map<std::string, std::string> operators;
    for (const fs::path& folder : folders) {
      jobs_.push_back({NodeTest(folder), {}, nullptr});
      operators[jobs_.back().test.name()] = jobs_.back().test.opType();
    }
    // "test_softmax_axis_0_expanded" is the body of the function of "test_softmax_axis_0".
    for (Job& job : jobs_) {
      const std::string name = job.test.name(), base = name.substr(0, name.find("_expanded"));
      const auto found = operators.find(base);
      if (found != operators.end() && base != name) job.test.setOpType(found->second);
      job.result.test = name;
      job.result.opType = job.test.opType().empty() ? "(several)" : job.test.opType();
    }
  }

  void interpretJob(Job& job) {
    Verdict& verdict = job.result.interpreter;
    job.module = job.test.import(ops_, verdict);
    job.result.cpu = verdict;
    if (!job.module) return;
    Diagnostics diags(nullptr);
    const auto result =
        interpret(*job.module->graphs.front(), job.test.inputs(), job.test.parameters(), Precision::f32, diags);
    verdict = result ? job.test.compare(*job.module, *result) : conformance::verdictOf(diags);
    job.result.cpu = {Outcome::unsupported, "was not compiled"};
    if (verdict.outcome == Outcome::passed) differentiateJob(job.test, job.result.gradient);
  }

  /// With a module of its own, which differentiation changes.
  void differentiateJob(NodeTest test, Verdict& verdict) {
    Verdict ignored;
    if (const auto module = test.import(ops_, ignored))
      verdict = compareGradient(*module, test.inputs(), test.parameters(), ops_);
  }

  /// Whether a program can be generated; if not, the reason is the verdict.
  bool emits(Job& job) {
    Diagnostics diags(nullptr);
    const Graph* graph = job.module->findGraph("main");
    const auto memory = planMemory(*graph, nullptr, {.stage = 0, .keepResults = true}, diags);
    if (memory && emitStage({.index = 0, .count = 1, .training = graph, .memory = &*memory}, {}, diags)) return true;
    job.result.cpu = conformance::verdictOf(diags);
    return false;
  }

  /// One test per operator.
  static void thinOut(std::vector<Job*>& jobs) {
    std::set<std::string> seen;
    std::erase_if(jobs, [&](const Job* job) { return !seen.insert(job->result.opType).second; });
  }

  /// A batch that cannot be compiled is halved until the test that is to blame is alone.
  void runGenerated(const std::vector<Job*>& jobs) {
    std::vector<const Module*> modules;
    for (const Job* job : jobs) modules.push_back(job->module.get());
    Diagnostics diags(nullptr);
    const auto engine = CpuEngine::build(modules, diags, {.optimization = "-O1", .filesPerUnit = 24});
    if (!engine && jobs.size() > 1) {
      const auto middle = jobs.begin() + static_cast<std::ptrdiff_t>(jobs.size() / 2);
      runGenerated({jobs.begin(), middle});
      runGenerated({middle, jobs.end()});
      return;
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      Job& job = *jobs[i];
      if (!engine) {
        job.result.cpu = {Outcome::failed, "the generated program cannot be built"};
        if (options_.show) std::cout << job.result.test << ": " << toString(diags.all().back());
        continue;
      }
      const auto result = (*engine)->run(i, job.test.inputs(), job.test.parameters(), diags);
      job.result.cpu = result ? job.test.compare(*job.module, *result) : conformance::verdictOf(diags);
    }
  }

  const Options& options_;
  OpRegistry ops_;
  PassRegistry passes_;
  std::vector<Job> jobs_;
};

const char* nameOf(Outcome outcome) {
  return outcome == Outcome::passed ? "passed" : outcome == Outcome::failed ? "FAILED" : "unsupported";
}

/// How many tests the page says pass, per engine; nothing when it does not say.
std::optional<std::pair<int, int>> countsOn(const std::string& path) {
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::smatch interpreter, cpu;
  if (!std::regex_search(text, interpreter, std::regex("\\| interpreter \\| (\\d+) \\|")) ||
      !std::regex_search(text, cpu, std::regex("\\| generated CPU code \\| (\\d+) \\|")))
    return std::nullopt;
  return std::pair{std::stoi(interpreter[1]), std::stoi(cpu[1])};
}

/// Whether the page is no better than what was found. Which of the two counts --quick knows is the interpreter's.
bool keepsWhatThePageSays(const Options& options, const std::vector<TestResult>& results) {
  if (options.against.empty()) return true;
  const auto stated = countsOn(options.against);
  if (!stated) {
    std::cerr << options.against << ": states no counts\n";
    return false;
  }
  const int found = countsOf(results, Engine::interpreter).passed;
  if (found > stated->first)
    std::cout << options.against << " says " << stated->first << " pass in the interpreter: utils/onnx-conformance "
              << "writes it again\n";
  if (found < stated->first)
    std::cerr << options.against << ": says " << stated->first << " pass in the interpreter, " << found << " do\n";
  return found >= stated->first;
}

void write(const std::string& path, const std::string& text) {
  if (!path.empty()) std::ofstream(path, std::ios::binary) << text;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs ONNX's backend tests through pdc", "onnx-conformance");
  Options options;
  app.add_option("DIR", options.folder, "folder of tests, each a folder with model.onnx")->required();
  app.add_flag("--quick", options.quick, "generated code for one test per operator only");
  app.add_option("--page", options.page, "file to write: docs/Conformance.md");
  app.add_option("--json", options.json, "file to write: counts");
  app.add_option("--against", options.against, "page whose count for the interpreter must hold");
  app.add_option("--title", options.title, "of the page");
  app.add_option("--tests", options.tests, "what the page calls the tests");
  app.add_option("--goal", options.goal, "how many should pass, for --json");
  app.add_option("--only", options.only, "tests whose name contains this");
  app.add_flag("--show", options.show, "print every test that does not pass");
  CLI11_PARSE(app, argc, argv);

  const std::vector<TestResult> results = ConformanceRun(options)();
  bool right = true;
  for (const TestResult& result : results)
    for (const auto& [engine, verdict] :
         {std::pair{"interpreter", &result.interpreter}, {"cpu", &result.cpu}, {"gradient", &result.gradient}}) {
      right &= verdict->outcome != Outcome::failed;
      if (verdict->outcome == Outcome::failed || (options.show && verdict->outcome != Outcome::passed))
        std::cout << result.test << " (" << result.opType << "): " << engine << ": " << nameOf(verdict->outcome) << ": "
                  << verdict->reason << "\n";
    }
  for (const auto& [engine, name] : {std::pair{Engine::interpreter, "interpreter"},
                                     {Engine::cpu, "generated CPU code"},
                                     {Engine::gradient, "gradients"}}) {
    const Counts c = countsOf(results, engine);
    std::cout << name << ": " << c.passed << " passed, " << c.failed << " failed, " << c.unsupported
              << " unsupported\n";
  }
  write(options.page, page(results, options.title, options.tests));
  write(options.json, rows(results, options.goal));
  return right && keepsWhatThePageSays(options, results) ? 0 : 1;
}
