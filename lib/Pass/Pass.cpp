// The registry of passes, and the loop that runs a pipeline.
#include "pdc/Pass/Pass.h"

#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iomanip>
#include <ostream>

using namespace pdc;

void PassRegistry::add(PassInfo pass) {
  const char* problem = pass.argument.empty()  ? "a pass has no argument"
                        : pass.summary.empty() ? "a pass has no summary"
                        : !pass.run            ? "a pass does nothing"
                        : find(pass.argument)  ? "there are two passes of this name"
                                               : nullptr;
  if (problem) {
    std::fprintf(stderr, "pass '%s': %s\n", pass.argument.c_str(), problem);
    std::abort();
  }
  passes_.push_back(std::move(pass));
}

const PassInfo* PassRegistry::find(const std::string& argument) const {
  for (const PassInfo& pass : passes_)
    if (pass.argument == argument) return &pass;
  return nullptr;
}

namespace {
struct Timing {
  std::string argument;
  double seconds;
};

/// The passes of `steps` with their options checked; reports every step that is wrong.
Expected<std::vector<const PassInfo*>> resolve(const std::vector<PipelineStep>& steps, const PassRegistry& passes,
                                               Diagnostics& diags) {
  std::vector<const PassInfo*> resolved;
  bool ok = true;
  for (const PipelineStep& step : steps) {
    const PassInfo* pass = passes.find(step.argument);
    resolved.push_back(pass);
    if (!pass) {
      ok = false;
      diags.error({}).exit(ExitCode::usage) << "there is no pass '" << step.argument << "'";
      continue;
    }
    for (const auto& [name, value] : step.options) {
      if (pass->options.contains(name)) continue;
      ok = false;
      diags.error({}).exit(ExitCode::usage) << "pass '" << step.argument << "' has no option '" << name << "'";
    }
  }
  if (!ok) return failure;
  return resolved;
}

void printTimings(std::ostream& out, const std::vector<Timing>& timings) {
  double total = 0;
  for (const Timing& timing : timings) total += timing.seconds;
  out << "      ms      %  pass\n" << std::fixed;
  auto row = [&](double seconds, const std::string& what) {
    out << std::setw(8) << std::setprecision(2) << seconds * 1e3 << std::setw(7) << std::setprecision(1)
        << (total > 0 ? 100 * seconds / total : 0) << "  " << what << "\n";
  };
  for (const Timing& timing : timings) row(timing.seconds, timing.argument);
  row(total, "total");
  out << std::defaultfloat;
}
} // namespace

Status pdc::runPipeline(const std::vector<PipelineStep>& steps, const PassRegistry& passes, Module& module,
                        const OpRegistry& ops, Diagnostics& diags, const PipelineOptions& options) {
  const Expected<std::vector<const PassInfo*>> resolved = resolve(steps, passes, diags);
  if (!resolved) return failure;
  std::vector<Timing> timings;
  auto prints = [&](const std::string& argument) {
    const auto& list = options.printAfter;
    return std::find(list.begin(), list.end(), argument) != list.end() ||
           std::find(list.begin(), list.end(), "all") != list.end();
  };
  bool ok = true;
  for (std::size_t i = 0; i < steps.size() && ok; ++i) {
    const std::string& argument = steps[i].argument;
    const auto start = std::chrono::steady_clock::now();
    PassContext context{.module = module, .registry = ops, .diags = diags, .options = steps[i].options};
    ok = static_cast<bool>((*resolved)[i]->run(context));
    timings.push_back({argument, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()});
    if (options.out && prints(argument)) *options.out << "// after " << argument << "\n" << print(module);
    if (ok && options.verifyEach && !verify(module, diags)) {
      ok = false;
      diags.error({.file = module.file}).exit(ExitCode::internal)
          << "pass '" << argument << "' left a module that breaks the rules of the IR";
    }
  }
  if (options.out && options.timePasses) printTimings(*options.out, timings);
  if (!ok) return failure;
  return success;
}
