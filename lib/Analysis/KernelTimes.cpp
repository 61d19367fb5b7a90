// See KernelTimes.h.
#include "pdc/Analysis/KernelTimes.h"

#include "pdc/IR/OpDef.h"
#include "pdc/Memory/KernelThreads.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

using namespace pdc;

namespace {

/// Calls visit(operation, its alternatives) for every operation whose kernel has several.
template <class Visit>
void forEachChoice(const Module& module, Target target, Visit visit) {
  for (const auto& graph : module.graphs)
    for (const auto& operation : graph->operations())
      if (operation->def().kernel.alternatives)
        visit(*operation, operation->def().kernel.alternatives(*operation, target));
}

using Method = std::pair<std::string, std::string>; ///< kernel and method

double millisecondsOf(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// Medians of calls in turns: what else the machine does meets all of them.
std::vector<double> mediansOf(const std::vector<std::function<void()>>& calls) {
  constexpr std::size_t leastRounds = 5, mostRounds = 51;
  constexpr double enoughMs = 50;
  for (const std::function<void()>& call : calls) call(); // touches the memory
  std::vector<std::vector<double>> times(calls.size());
  double sum = 0;
  for (std::size_t round = 0; round < leastRounds || (round < mostRounds && sum < enoughMs); ++round)
    for (std::size_t i = 0; i < calls.size(); ++i) {
      times[i].push_back(millisecondsOf(calls[i]));
      sum += times[i].back();
    }
  std::vector<double> medians;
  for (std::vector<double>& list : times) {
    const auto middle = list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2);
    std::nth_element(list.begin(), middle, list.end());
    medians.push_back(*middle);
  }
  return medians;
}

std::string listOf(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

} // namespace

std::vector<KernelTime> pdc::timeKernels(const Module& module, int threads) {
  const KernelThreads scope(threads);
  std::vector<KernelTime> times;
  std::set<Method> seen;
  forEachChoice(module, Target::cpu, [&](const Operation&, const KernelAlternatives& choice) {
    if (choice.algorithms.size() < 2 || !seen.insert({choice.kernel, choice.method}).second) return;
    const std::vector<double> medians = mediansOf(choice.calls());
    for (std::size_t i = 0; i < medians.size(); ++i)
      times.push_back({choice.kernel, choice.method, choice.algorithms[i], medians[i]});
  });
  return times;
}

bool pdc::coversChoices(const std::vector<KernelTime>& times, const Module& module) {
  std::set<Method> timed;
  for (const KernelTime& time : times) timed.insert({time.kernel, time.method});
  bool covered = true;
  forEachChoice(module, Target::cpu, [&](const Operation&, const KernelAlternatives& choice) {
    covered = covered && (choice.algorithms.size() < 2 || timed.contains({choice.kernel, choice.method}));
  });
  return covered;
}

Status pdc::chooseAlgorithms(Module& module, const std::vector<KernelTime>& times, const std::string& file,
                             Diagnostics& diags, Target target) {
  std::map<Method, std::vector<std::string>> possible;
  forEachChoice(module, target, [&](const Operation&, const KernelAlternatives& choice) {
    possible[{choice.kernel, choice.method}] = choice.algorithms;
  });
  std::map<Method, const KernelTime*> fastest;
  for (const KernelTime& time : times) {
    const auto known = possible.find({time.kernel, time.method});
    const Location place = {file, "", 0, 0};
    if (known == possible.end())
      return diags.error(place).help("measure again: --profile=measure")
             << "the model does not call '" << time.method << "' of the kernel " << time.kernel;
    if (std::find(known->second.begin(), known->second.end(), time.algorithm) == known->second.end())
      return diags.error(place).help("measure again: --profile=measure")
             << "'" << time.algorithm << "' cannot compute '" << time.method << "' of the kernel " << time.kernel
             << (target == Target::cuda ? " for CUDA" : "") << "; known: " << listOf(known->second);
    const KernelTime*& best = fastest[known->first];
    if (!best || time.ms < best->ms) best = &time;
  }
  for (const auto& graph : module.graphs)
    for (const auto& operation : graph->operations()) {
      if (!operation->def().kernel.alternatives) continue;
      const KernelAlternatives choice = operation->def().kernel.alternatives(*operation, target);
      std::vector<std::string> names;
      std::int64_t workspace = 0;
      for (const std::string& method : choice.methods) {
        const auto found = fastest.find({choice.kernel, method});
        names.push_back(found == fastest.end() ? "automatic" : found->second->algorithm);
        if (found != fastest.end()) workspace = std::max(workspace, found->second->workspaceBytes);
      }
      if (operation->attributes.has("workspace")) operation->attributes.set("workspace", workspace);
      operation->attributes.set("algorithms", std::move(names));
    }
  return success;
}

std::vector<KernelTime> pdc::calledOnly(const std::vector<KernelTime>& times, const Module& module, Target target) {
  std::set<Method> called;
  forEachChoice(module, target, [&](const Operation&, const KernelAlternatives& choice) {
    called.insert({choice.kernel, choice.method});
  });
  std::vector<KernelTime> kept;
  for (const KernelTime& time : times)
    if (called.contains({time.kernel, time.method})) kept.push_back(time);
  return kept;
}
