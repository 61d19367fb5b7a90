// Compares a training graph that a team runs with the graph itself: loss, gradients, new states and results, in f64
// through the interpreter, on random inputs and weights.
//
//   SplitCheck TRAINING_IR MEMBERS [all] [sp | tps | ep] [seed=N] [quiet] [print]
//
// Prints what was divided, what the members tell each other, and the largest norm-wise relative difference; exit 1 if
// it is above 1e-12, or if nothing was divided.
#include "pdc/IR/Interpreter.h"
#include "pdc/IR/TeamInterpreter.h"
#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"
#include "pdc/Ops/AllOps.h"
#include "pdc/Transforms/Split.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

using namespace pdc;
using Tensors = std::map<std::string, Tensor>;

[[noreturn]] static void fail(const std::string& message) {
  std::cerr << "SplitCheck: " << message << "\n";
  std::exit(2);
}

/// How many things an input of integers chooses among.
static std::int64_t choicesOf(const Value& input) {
  for (const Operation* user : input.users()) {
    if (!user->def().usage.choices) continue;
    for (std::size_t i = 0; i < user->operands().size(); ++i)
      if (user->operand(i) == &input)
        if (const std::int64_t n = user->def().usage.choices(*user, i); n > 0) return n;
  }
  return 2;
}

static Tensor randomTensor(const Type& type, std::int64_t choices, double scale, std::mt19937_64& random) {
  Tensor tensor(isFloat(type.element) ? Type{ElementType::f64, type.shape} : type);
  std::normal_distribution<double> normal(0, scale);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    if (isFloat(type.element))
      tensor.set(i, normal(random));
    else
      tensor.setInt(i, static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(choices)));
  }
  return tensor;
}

/// ‖actual - expected‖ / ‖expected‖, with `floor` for norms that would be 0 without rounding.
static double difference(const Tensor& actual, const Tensor& expected, double floor) {
  double distance = 0, norm = 0;
  for (std::int64_t i = 0; i < expected.elements(); ++i) {
    const double a = actual.asDouble(i), e = expected.asDouble(i);
    if (std::isnan(a) && std::isnan(e)) continue;
    if (a == e) {
      norm += std::isinf(e) ? 0 : e * e;
      continue;
    }
    distance += (a - e) * (a - e);
    norm += e * e;
  }
  return std::sqrt(distance) / std::max(std::sqrt(norm), floor);
}

static double worst(const char* what, const Tensors& actual, const Tensors& expected) {
  double most = 0, largest = 0;
  for (const auto& [name, tensor] : expected)
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (std::isfinite(tensor.asDouble(i))) largest = std::max(largest, std::abs(tensor.asDouble(i)));
  for (const auto& [name, tensor] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end()) fail(std::string(what) + " '" + name + "' is missing");
    const double d = difference(found->second, tensor, std::max(1e-3 * largest, 1e-30));
    if (!(d <= 1e-12)) std::cout << what << " '" << name << "' differs by " << d << "\n";
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return most;
}

static void tellCollectives(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const auto& operation : graph.operations())
    if (operation->def().kind == OpKind::collective)
      ++counts[std::string(operation->phase == Phase::forward ? "forward " : "backward ") + operation->def().name];
  for (const auto& [name, count] : counts) std::cout << name << ": " << count << "\n";
}

int main(int argc, char** argv) {
  if (argc < 3) fail("expects TRAINING_IR MEMBERS [all] [sp | tps | ep] [seed=N] [quiet] [print]");
  SplitOptions options{.members = std::atoll(argv[2])};
  std::uint64_t seed = 1;
  bool quiet = false, prints = false;
  for (int i = 3; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "all") options.all = true;
    options.tokens |= argument == "sp" || argument == "tps" || argument == "ep";
    options.weights |= argument == "tps";
    options.experts |= argument == "ep";
    if (argument == "quiet") quiet = true;
    if (argument == "print") prints = true;
    if (argument.rfind("seed=", 0) == 0) seed = std::strtoull(argument.c_str() + 5, nullptr, 10);
  }
  std::ifstream in(argv[1], std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  OpRegistry registry;
  registerAllOps(registry);
  Diagnostics diags(&std::cerr);
  auto module = parseModule(text.str(), argv[1], registry, diags);
  if (!module) return 2;
  PassContext context{**module, registry, diags, {}};
  std::vector<SplitClass> classes;
  if (!splitOverTeam(context, options, &classes) || !verify(**module, diags)) return 2;

  int chosen = 0;
  for (const SplitClass& of : classes) {
    chosen += of.chosen;
    if (quiet || of.parameters.empty()) continue;
    std::cout << (of.chosen ? "divided:" : "whole:");
    for (const std::string& parameter : of.parameters) std::cout << " " << parameter << ";";
    std::cout << " " << of.flops << " flops, " << of.parameterBytes << " parameter bytes for " << of.communicatedBytes
              << " bytes" << (of.why.empty() ? "" : ": " + of.why) << "\n";
  }
  double most = 0;
  for (const std::string name : {"main", "evaluate"}) {
    const Graph* whole = (*module)->findGraph(name);
    if (!whole) continue;
    const Graph* split = (*module)->findGraph(name + suffixOf(options));
    std::mt19937_64 random(seed);
    Tensors inputs, parameters;
    for (const GraphInput& input : whole->inputs)
      inputs[input.value->name()] = input.kind == InputKind::lossScale || input.kind == InputKind::lossShare
                                        ? Tensor::scalar(1, ElementType::f64)
                                        : randomTensor(input.value->type(), choicesOf(*input.value), 1, random);
    for (const auto& parameter : (*module)->parameters) {
      Tensor values = randomTensor(parameter->type, 2, 0.2, random);
      // Variances, and scales of norms, are near 1.
      if (parameter->type.rank() == 1 && isFloat(parameter->type.element))
        for (std::int64_t i = 0; i < values.elements(); ++i) values.set(i, 1 + values.asDouble(i) / 2);
      parameters[parameter->name] = values;
    }
    const auto expected = interpret(*whole, inputs, parameters, Precision::f64, diags, 5, 2);
    const auto actual = interpretTeam(*split, inputs, parameters, Precision::f64, diags, 5, 2);
    if (!expected || !actual) return 2;
    if (name == "main") tellCollectives(*split);
    if (prints) std::cout << print(*split);
    most =
        std::max({most, worst("gradient", actual->gradients, expected->gradients),
                  worst("state", actual->states, expected->states), worst("result", actual->outputs, expected->outputs),
                  std::abs(actual->loss - expected->loss) / std::max(std::abs(expected->loss), 1e-30)});
    std::cout << "@" << name << ": loss " << expected->loss << ", " << expected->gradients.size() << " gradients\n";
  }
  if (!options.tokens) std::cout << "classes divided: " << chosen << "\n";
  std::cout << "largest relative difference: " << most << "\n";
  return most <= 1e-12 && (chosen > 0 || options.tokens) ? 0 : 1;
}
