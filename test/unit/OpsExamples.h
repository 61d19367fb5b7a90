// The examples of the registered ops as modules, and inputs for them.
#pragma once

#include "pdc/IR/Builder.h"
#include "pdc/IR/Interpreter.h"
#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"
#include "pdc/Ops/AllOps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace pdc::testing {

inline const OpRegistry& allOps() {
  static const OpRegistry* registry = [] {
    auto* ops = new OpRegistry;
    registerAllOps(*ops);
    return ops;
  }();
  return *registry;
}

inline std::string messages(const Diagnostics& diags) {
  std::string text;
  for (const Diagnostic& diagnostic : diags.all()) text += toString(diagnostic);
  return text;
}

/// "(inputs) { … }" as the text of a module.
inline std::string moduleText(const std::string& example) {
  std::string text = "module @example {\n  graph @main";
  for (char c : example) text += c == '\n' ? "\n  " : std::string(1, c);
  return text + "\n}\n";
}

inline std::unique_ptr<Module> parse(const std::string& text) {
  Diagnostics diags(nullptr);
  auto module = parseModule(text, "example.pdir", allOps(), diags);
  EXPECT_TRUE(module) << messages(diags) << text;
  return module ? *std::move(module) : nullptr;
}

/// Seeded inputs. Floats keep a distance of 0.1 from all multiples of a half, where piecewise functions have their
/// kinks, and are positive where the name of the input says so. Integers are 0 and 1: valid labels,
/// indices and masks; lengths, as an input's name says, are 0 to 3.
class Inputs {
public:
  explicit Inputs(unsigned seed) : random_(seed) {}

  Tensor make(const Type& type, const std::string& name) {
    Tensor tensor(type);
    const bool positive = name.find("positive") != std::string::npos;
    const unsigned integers = name.find("lengths") != std::string::npos ? 4 : 2;
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, isFloat(type.element) ? number(positive) : static_cast<double>(random_() % integers));
    return tensor;
  }
  std::map<std::string, Tensor> of(const Graph& graph) {
    std::map<std::string, Tensor> tensors;
    for (const GraphInput& input : graph.inputs)
      tensors[input.value->name()] = make(input.value->type(), input.value->name());
    return tensors;
  }

private:
  double number(bool positive) {
    const double offset = 0.1 + 0.3 * static_cast<double>(random_()) / 4294967296.0;
    const double magnitude = offset + 0.5 * static_cast<double>(random_() % 4);
    return positive || random_() % 2 ? magnitude : -magnitude;
  }
  std::mt19937 random_;
};

/// Makes every result of the last operation an output named after it.
inline void addOutputs(Graph& graph) {
  for (Value* result : graph.operations().back()->results())
    if (result)
      graph.outputs.push_back(
          {.kind = OutputKind::result, .value = result, .name = result->name(), .parameter = nullptr});
}

/// ‖actual - expected‖ / ‖expected‖, with `floor` for tiny norms. NaN equals NaN, and infinity infinity.
inline double errorOf(const Tensor& actual, const Tensor& expected, double floor = 1e-3) {
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < expected.elements(); ++i) {
    if (std::isnan(actual.asDouble(i)) && std::isnan(expected.asDouble(i))) continue;
    if (std::isinf(expected.asDouble(i)) && actual.asDouble(i) == expected.asDouble(i)) continue;
    difference += std::pow(actual.asDouble(i) - expected.asDouble(i), 2);
    norm += std::pow(expected.asDouble(i), 2);
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), floor);
}

} // namespace pdc::testing
