// Random models (RandomModel.h) as pipelines against the interpreter, and cut against uncut:
//
//   fuzz-models [models] [first seed]      default: 25 models from seed 1, times PDC_TEST_ROUNDS
//   fuzz-models --cuts [models] [first seed]
//
// The second cuts each model in many ways, up to six stages, and compiles and runs nothing: what the planner is told to
// cross between stages is what their programs send, byte for byte and in both directions. The first looks at that, too.
//
// Of each model: losses, gradients and running statistics of a pipeline of one to four stages agree with the
// interpreter's of the uncut, not transformed graph in f64, as closely as rounding allows: 2e-6, 20 times what the
// interpreter's own f32 and inputs that are changed by 1e-7, in f32 and f64, make of them, and what 1 is rounded to;
// and its gradients with how the loss changes along a random direction, in f64. Weights after two batches are, bit for
// bit, those of the one-stage program. A failure prints the seed and the smallest model that still fails, and exits
// with 1.
#include "ModelRun.h"

#include "pdc/IR/Interpreter.h"
#include "pdc/IR/Text.h"
#include "pdc/Transforms/Transforms.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <random>
#include <set>
#include <string_view>

using namespace pdc;
using namespace pdc::testing;

namespace {

constexpr std::size_t batchSize = 50; ///< models that are compiled together

/// What a batch comes to.
struct Outcome {
  double loss = 0;
  Tensors gradients, states;
};

double normOf(const Tensor& tensor) {
  double sum = 0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) sum += tensor.asDouble(i) * tensor.asDouble(i);
  return std::sqrt(sum);
}
double distance(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) sum += std::pow(a.asDouble(i) - b.asDouble(i), 2);
  return std::sqrt(sum);
}

/// `tensors` with every float changed by a relative 1e-7.
Tensors shaken(Tensors tensors, std::mt19937_64& random) {
  for (auto& [name, tensor] : tensors) {
    if (!isFloat(tensor.type().element)) continue;
    tensor = tensor.convertedTo(ElementType::f64);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, tensor.asDouble(i) * (1 + 1e-7 * std::uniform_real_distribution<double>(-1, 1)(random)));
  }
  return tensors;
}

/// The first batch in the interpreter.
std::optional<Outcome> interpreted(const Graph& graph, const RandomModel& model, Precision precision,
                                   std::mt19937_64* random = nullptr) {
  Diagnostics silent(nullptr);
  Outcome outcome;
  Tensors parameters = random ? shaken(model.parameters, *random) : model.parameters;
  for (int m = 0; m < dataMinibatches; ++m) {
    const Tensors& data = model.inputs[static_cast<std::size_t>(m)];
    auto result = interpret(graph, random ? shaken(data, *random) : data, parameters, precision, silent, drawSeed,
                            static_cast<std::uint64_t>(m));
    if (!result) return std::nullopt;
    outcome.loss += result->loss;
    for (auto& [name, gradient] : result->gradients) {
      Tensor& sum = outcome.gradients.try_emplace(name, Tensor({ElementType::f64, gradient.shape()})).first->second;
      for (std::int64_t i = 0; i < gradient.elements(); ++i)
        sum.set(i, sum.asDouble(i) + gradient.asDouble(i) / dataMinibatches);
    }
    for (auto& [name, state] : result->states) parameters[name] = outcome.states[name] = state;
  }
  return outcome;
}

/// How the loss of the first batch changes along a random direction of the parameters, against the gradients: an empty
/// text is good. Where the slopes on both sides differ, there is a kink, and nothing is said.
std::string slopeProblem(const Graph& graph, const RandomModel& model, const Outcome& exact) {
  std::mt19937_64 random(model.seed);
  Tensors direction;
  double slope = 0;
  for (const auto& [name, gradient] : exact.gradients) {
    Tensor& along = direction[name] = Tensor({ElementType::f64, gradient.shape()});
    for (std::int64_t i = 0; i < along.elements(); ++i) {
      along.set(i, std::uniform_real_distribution<double>(-1, 1)(random));
      slope += along.asDouble(i) * gradient.asDouble(i) * dataMinibatches;
    }
  }
  constexpr double step = 1e-6;
  double losses[2];
  for (int side : {0, 1}) {
    RandomModel moved = model;
    for (const auto& [name, along] : direction) {
      Tensor& value = moved.parameters[name] = moved.parameters[name].convertedTo(ElementType::f64);
      for (std::int64_t i = 0; i < value.elements(); ++i)
        value.set(i, value.asDouble(i) + (side ? step : -step) * along.asDouble(i));
    }
    const auto outcome = interpreted(graph, moved, Precision::f64);
    if (!outcome) return {};
    losses[side] = outcome->loss;
  }
  const double left = (exact.loss - losses[0]) / step, right = (losses[1] - exact.loss) / step;
  const double size = std::abs(left) + std::abs(right) + std::abs(slope) + 1e-2;
  const bool smooth = std::abs(left - right) < 1e-2 * size;
  if (!smooth || std::abs((left + right) / 2 - slope) < 1e-2 * size) return {};
  return "the gradients say that the loss changes by " + std::to_string(slope) + " along a direction, it changes by " +
         std::to_string((left + right) / 2) + "\n";
}

struct Statistics {
  int models = 0, stages = 0, operations = 0, illConditioned = 0;
  double largestError = 0; ///< of what is not ill-conditioned
  std::set<const OpDef*> ops;
};

/// Compares; an empty text is good.
class Comparison {
public:
  explicit Comparison(const RandomModel& model) {
    Diagnostics silent(nullptr);
    auto module = parseModule(model.text, "random", allOps(), silent);
    PassContext context{**module, allOps(), silent, {}};
    if (!differentiate(context)) return;
    const Graph& graph = *(*module)->findGraph("main");
    exact_ = interpreted(graph, model, Precision::f64);
    others_.push_back(interpreted(graph, model, Precision::f32));
    std::mt19937_64 random(model.seed);
    // Of sums that cancel, as over the classes of a cross-entropy's gradient, one run in f32 may be right by chance.
    for (Precision precision : {Precision::f64, Precision::f32})
      for (int i = 0; i < 3; ++i) others_.push_back(interpreted(graph, model, precision, &random));
    if (exact_) slopeProblem_ = slopeProblem(graph, model, *exact_);
  }

  std::string problem(const Trained& trained, Statistics& statistics) {
    if (!exact_) return "the interpreter refuses the model";
    for (const auto& other : others_)
      if (!other) return "";
    std::string text = slopeProblem_;
    if (!trained.error.empty()) return "the pipeline stops: " + trained.error + "\n";
    auto compare = [&](const std::string& what, const Tensor& exact, const Tensor& actual, auto&& of) {
      double noise = 0;
      for (const auto& other : others_) noise = std::max(noise, distance(of(*other), exact));
      // Sums that cancel leave what their terms were rounded to: a gradient that is 0 in exact arithmetic is 1e-8 here.
      // A cross-entropy's are probabilities, and kernel and interpreter may come to them in other ways: the
      // interpreter's noise can be 0 where the kernel rounds once.
      constexpr double aRoundingOfOne = 0x1p-23;
      const double norm = std::max(normOf(exact), 1e-2);
      const double error = distance(actual, exact) / norm, allowed = 2e-6 + (20 * noise + aRoundingOfOne) / norm;
      if (allowed > 1e-2) {
        ++statistics.illConditioned;
        return;
      }
      if (error <= allowed)
        statistics.largestError = std::max(statistics.largestError, error);
      else
        text += what + " is off by " + std::to_string(error * 1e6) + "e-6 of its norm, " +
                std::to_string(allowed * 1e6) + "e-6 are rounding\n";
    };
    auto scalar = [](double value) { return Tensor::scalar(value, ElementType::f64); };
    compare("the loss", scalar(exact_->loss), scalar(trained.loss), [&](const Outcome& o) { return scalar(o.loss); });
    if (trained.gradients.size() < exact_->gradients.size()) text += "gradients are missing\n";
    for (const auto& [name, gradient] : trained.gradients)
      if (exact_->gradients.contains(name))
        compare("the gradient of " + name, exact_->gradients.at(name), gradient,
                [&](const Outcome& o) { return o.gradients.at(name); });
    for (const auto& [name, state] : exact_->states)
      compare("the state " + name, state, trained.states.at(name), [&](const Outcome& o) { return o.states.at(name); });
    return text;
  }

private:
  std::optional<Outcome> exact_;
  std::vector<std::optional<Outcome>> others_;
  std::string slopeProblem_;
};

std::string differentBits(const Trained& uncut, const Trained& cut) {
  std::string text;
  for (const auto& [name, weights] : uncut.weights)
    if (!cut.weights.contains(name) || !weights.equals(cut.weights.at(name)))
      text += "the cut changes bits of " + name + "\n";
  return text;
}

std::string messages(const Diagnostics& diags) {
  std::string text;
  for (const Diagnostic& diagnostic : diags.all()) text += toString(diagnostic);
  return text;
}

/// What is wrong with each model; empty texts are good.
std::vector<std::string> check(const std::vector<RandomModel>& models, Statistics& statistics) {
  std::vector<std::string> problems(models.size());
  std::vector<Cut> cuts;
  std::vector<std::size_t> modelOf;
  for (std::size_t i = 0; i < models.size(); ++i)
    for (int stages : {1, 1 + static_cast<int>(models[i].seed % 4)}) {
      if (!cuts.empty() && modelOf.back() == i && stages == 1) continue; // once is enough
      Diagnostics diags(nullptr);
      auto cut = cutModel(models[i], stages, diags);
      if (!cut) {
        problems[i] += messages(diags);
        break;
      }
      if (!cut->misplanned.empty()) problems[i] += std::to_string(stages) + " stages:\n" + cut->misplanned;
      cuts.push_back(*std::move(cut));
      modelOf.push_back(i);
    }
  std::vector<const Cut*> pointers;
  for (const Cut& cut : cuts) pointers.push_back(&cut);
  Diagnostics diags(nullptr);
  auto programs = Programs::build(pointers, diags);
  if (!programs) {
    std::cerr << messages(diags);
    std::exit(1);
  }
  Trained uncut;
  for (std::size_t c = 0; c < cuts.size(); ++c) {
    const std::size_t i = modelOf[c];
    const bool first = c == 0 || modelOf[c - 1] != i;
    const Trained trained = (*programs)->train(c, models[i]);
    if (first) uncut = trained;
    const std::string problem = Comparison(models[i]).problem(trained, statistics);
    if (!problem.empty()) problems[i] += std::to_string(cuts[c].sources.size()) + " stages: " + problem;
    if (!first) problems[i] += differentBits(uncut, trained);
    statistics.stages += static_cast<int>(cuts[c].sources.size());
  }
  return problems;
}

/// What is wrong with cuts of a model that are not compiled.
std::string cutProblems(const RandomModel& model, Statistics& statistics) {
  constexpr std::uint64_t variants = 4;
  std::string text;
  for (int stages = 2; stages <= 6; ++stages)
    for (std::uint64_t variant = 0; variant < variants; ++variant) {
      Diagnostics diags(nullptr);
      const auto cut = cutModel(model, stages, diags, variant);
      const std::string problem = cut ? cut->misplanned : messages(diags);
      if (cut) statistics.stages += static_cast<int>(cut->sources.size());
      if (!problem.empty() && text.empty())
        text = std::to_string(stages) + " stages, variant " + std::to_string(variant) + ":\n" + problem;
    }
  return text;
}

/// Cuts `models` models from seed `begin` on. Prints those that fail, the first of them as small as it gets.
int checkCuts(int models, std::uint64_t begin) {
  Statistics statistics;
  int failed = 0;
  for (int i = 0; i < models; ++i) {
    RandomModel model = randomModel(begin + static_cast<std::uint64_t>(i));
    ++statistics.models;
    std::string problem = cutProblems(model, statistics);
    if (problem.empty()) continue;
    std::cerr << "seed " << model.seed << ": " << problem;
    if (++failed > 1) continue;
    Statistics ignored;
    for (bool again = true; again;) {
      again = false;
      for (const RandomModel& candidate : reductionsOf(model)) {
        const std::string found = cutProblems(candidate, ignored);
        if (found.empty() || candidate.operations >= model.operations) continue;
        const RandomModel smaller = candidate;
        model = smaller, problem = found, again = true;
        break;
      }
    }
    std::cerr << "the smallest model that fails:\n" << model.text << problem;
  }
  std::printf("%d models, %d stages: %d fail\n", statistics.models, statistics.stages, failed);
  return failed > 0;
}

/// The smallest model found that fails like `model`, operation after operation left out.
RandomModel smallest(RandomModel model, std::string& problem) {
  Statistics ignored;
  for (int round = 0; round < 12; ++round) {
    const std::vector<RandomModel> candidates = reductionsOf(model);
    if (candidates.empty()) break;
    const std::vector<std::string> problems = check(candidates, ignored);
    const RandomModel* best = nullptr;
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (!problems[i].empty() && (!best || candidates[i].operations < best->operations))
        best = &candidates[i], problem = problems[i];
    if (!best) break;
    model = RandomModel(*best);
  }
  return model;
}

void count(const RandomModel& model, Statistics& statistics) {
  Diagnostics silent(nullptr);
  auto module = parseModule(model.text, "random", allOps(), silent);
  for (const auto& operation : (*module)->findGraph("main")->operations()) statistics.ops.insert(&operation->def());
  ++statistics.models;
  statistics.operations += model.operations;
}

} // namespace

int main(int argc, char** argv) {
  const char* factor = std::getenv("PDC_TEST_ROUNDS");
  const bool onlyCuts = argc > 1 && std::string_view(argv[1]) == "--cuts";
  if (onlyCuts) --argc, ++argv;
  const int models = (argc > 1 ? std::atoi(argv[1]) : 25) * (factor ? std::atoi(factor) : 1);
  const std::uint64_t begin = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  if (onlyCuts) return checkCuts(models, begin);
  Statistics statistics;
  int failed = 0;
  for (int done = 0; done < models; done += static_cast<int>(batchSize)) {
    std::vector<RandomModel> batch;
    for (int i = done; i < std::min(models, done + static_cast<int>(batchSize)); ++i) {
      batch.push_back(randomModel(begin + static_cast<std::uint64_t>(i)));
      count(batch.back(), statistics);
    }
    std::vector<std::string> problems = check(batch, statistics);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (problems[i].empty()) continue;
      ++failed;
      std::cerr << "seed " << batch[i].seed << ":\n" << problems[i];
      if (failed > 1) continue;
      const RandomModel small = smallest(batch[i], problems[i]);
      std::cerr << "the smallest model that fails (" << small.operations << " of " << batch[i].operations
                << " operations):\n"
                << small.text << problems[i];
    }
    if (models > static_cast<int>(batchSize)) // whoever waits for thousands sees them pass
      std::cerr << "seeds " << batch.front().seed << " to " << batch.back().seed << ": "
                << std::ranges::count_if(problems, [](const std::string& text) { return !text.empty(); }) << " fail\n";
  }
  int missing = 0;
  std::string names;
  for (const OpDef* def : differentiableOps())
    if (!statistics.ops.contains(def)) ++missing, names += " " + def->name;
  std::printf("%d models of %.1f operations on average, %d stages: %d fail; largest error %.1e, %d comparisons "
              "ill-conditioned; %zu ops, %d with a gradient do not occur%s\n",
              statistics.models, static_cast<double>(statistics.operations) / std::max(statistics.models, 1),
              statistics.stages, failed, statistics.largestError, statistics.illConditioned, statistics.ops.size(),
              missing, missing && missing < 20 ? (":" + names).c_str() : "");
  return failed > 0;
}
