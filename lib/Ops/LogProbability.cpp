// Losses of probabilities, which may be 0 or 1: logarithms end at -100, and gradients where a probability of 1e-12 has
// them, as in PyTorch's binary_cross_entropy.
#include "Shared/Define.h"
#include "Shared/Elementwise.h"

namespace pdc::ops::LogProbability {

std::vector<OpDef> define() {
  OpDef crossEntropy =
      binary({.name = "binary_cross_entropy",
              .summary = "-(B · log A + (1 - B) · log(1 - A)), the logarithms at least -100",
              .onnx = "",
              .expression = "-(B * max(log(A), -100) + (1 - B) * max(log1p(-A), -100))",
              .derivatives = {"(A - B) / max((1 - A) * A, 1e-12)", "max(log1p(-A), -100) - max(log(A), -100)"}});
  constexpr const char* shapes[][3] = {{"[2, 3]", "[2, 3]", "[2, 3]"},
                                       {"[4]", "[4]", "[4]"},
                                       {"[2, 1]", "[1, 3]", "[2, 3]"},
                                       {"[2, 3, 4]", "[4]", "[2, 3, 4]"},
                                       {"[]", "[4]", "[4]"}};
  crossEntropy.examples.clear();
  for (const auto& [a, b, y] : shapes) // probabilities are what a sigmoid gives
    crossEntropy.examples.push_back(
        example("%a: f32" + std::string(a) + ", %b: f32" + b,
                "%p = sigmoid %a : f32" + std::string(a) + "\n%y = binary_cross_entropy %p, %b : f32" + y));
  return {unary({.name = "log_probability",
                 .summary = "Logarithm of a probability X, at least -100",
                 .onnx = "",
                 .expression = "max(log(X), -100)",
                 .derivatives = {"1 / max(X, 1e-12)"},
                 .positive = true}),
          std::move(crossEntropy)};
}

} // namespace pdc::ops::LogProbability
