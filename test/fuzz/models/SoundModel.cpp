// Whether a model at random shows anything: all of it is finite and of moderate size.
#include "RandomModel.h"

#include "pdc/IR/Interpreter.h"
#include "pdc/IR/Text.h"
#include "pdc/Transforms/Transforms.h"

#include <cmath>

using namespace pdc;
using namespace pdc::testing;

bool pdc::testing::isSound(const RandomModel& model) {
  Diagnostics silent(nullptr);
  auto module = parseModule(model.text, "random", allOps(), silent);
  if (!module) return false;
  PassContext context{**module, allOps(), silent, {}};
  if (!differentiate(context)) return false;
  constexpr double moderate = 1e4;
  Tensors updated = model.parameters;
  const auto run = [&](const Tensors& parameters, int m) {
    return interpret(*(*module)->graphs.front(), model.inputs[static_cast<std::size_t>(m)], parameters, Precision::f64,
                     silent, drawSeed, static_cast<std::uint64_t>(m));
  };
  for (int m = 0; m < dataMinibatches; ++m) {
    const auto result = run(model.parameters, m);
    if (!result || !(std::abs(result->loss) < moderate) || result->gradients.empty()) return false;
    for (const auto& [name, gradient] : result->gradients) {
      Tensor& value = updated[name] = updated[name].convertedTo(ElementType::f64);
      for (std::int64_t i = 0; i < gradient.elements(); ++i) {
        if (!(std::abs(gradient.asDouble(i)) < moderate)) return false;
        value.set(i, value.asDouble(i) - learningRate * gradient.asDouble(i) / dataMinibatches);
      }
    }
  }
  for (int m = 0; m < dataMinibatches; ++m)
    if (const auto result = run(updated, m); !result || !(std::abs(result->loss) < moderate)) return false;
  return true;
}
