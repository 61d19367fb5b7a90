#include "Gradient.h"

#include "pdc/IR/Builder.h"
#include "pdc/Transforms/Transforms.h"

#include <cmath>
#include <random>

using namespace pdc;
using namespace pdc::conformance;

namespace {

using Tensors = std::map<std::string, Tensor>;

constexpr double tolerance = 1e-6;
constexpr int directions = 4; ///< that are tried where the loss is not smooth

class GradientTest {
public:
  GradientTest(Module& module, const Tensors& inputs, const Tensors& parameters, const OpRegistry& registry)
      : module_(module), graph_(*module.graphs.front()), inputs_(inputs), registry_(registry) {
    for (const auto& [name, value] : parameters) parameters_[name] = value.convertedTo(ElementType::f64);
  }

  Verdict run() {
    for (std::size_t i = graph_.inputs.size(); i-- > 0;)
      if (isFloat(graph_.inputs[i].value->type().element)) makeParameter(i);
    if (parameters_.empty() || !addLoss()) return {Outcome::unsupported, "computes no float from floats"};
    const std::optional<double> loss = lossAt(0, {});
    if (!loss || !std::isfinite(*loss)) return {Outcome::unsupported, "computes what is not finite"};
    Diagnostics diags(nullptr);
    PassContext context{module_, registry_, diags, {}};
    if (!differentiate(context)) return whyNot(diags);
    const auto result = interpret(graph_, inputs_, parameters_, Precision::f64, diags);
    if (!result) return verdictOf(diags);
    gradients_ = result->gradients;
    for (int i = 0; i < directions; ++i)
      if (const std::optional<Verdict> verdict = along(*loss)) return *verdict;
    return {Outcome::unsupported, "jumps or bends here"};
  }

private:
  void makeParameter(std::size_t i) {
    Value* input = graph_.inputs[i].value;
    const std::string name = input->name();
    Parameter* parameter = module_.addParameter({.name = name, .type = input->type(), .reference = {}, .location = {}});
    graph_.replaceAllUses(input, graph_.parameterValue(*parameter));
    parameters_[name] = inputs_.at(name).convertedTo(ElementType::f64);
    inputs_.erase(name);
    graph_.inputs.erase(graph_.inputs.begin() + static_cast<std::ptrdiff_t>(i));
  }

  /// A running statistic.
  static bool isDetached(const Value& value) {
    if (!value.definer()) return false;
    const std::vector<ResultDef>& results = value.definer()->def().results;
    return results[std::min(static_cast<std::size_t>(value.resultIndex()), results.size() - 1)].detached;
  }

  bool addLoss() {
    Diagnostics diags(nullptr);
    Builder b(module_, graph_, registry_, diags);
    Value* total = nullptr;
    for (const GraphOutput& output : std::vector(graph_.outputs)) {
      Value* value = output.value;
      if (!value || !isFloat(value->type().element) || isDetached(*value)) continue;
      std::vector<std::int64_t> axes;
      for (int axis = 0; axis < value->type().rank(); ++axis) axes.push_back(axis);
      Tensor weights(value->type());
      for (std::int64_t e = 0; e < weights.elements(); ++e) weights.set(e, uniform_(random_));
      Value* sum = b.value("mul", {value, b.constant(weights)});
      if (!axes.empty()) sum = b.value("reduce_sum", {sum}, {{"axes", axes}});
      if (sum && sum->type().element != ElementType::f32) sum = b.value("cast", {sum}, {{"to", std::string("f32")}});
      total = total ? b.value("add", {total, sum}) : sum;
    }
    graph_.outputs.clear();
    if (total) graph_.outputs.push_back({.kind = OutputKind::loss, .value = total, .name = "loss"});
    return total != nullptr;
  }

  static Verdict whyNot(const Diagnostics& diags) {
    for (const Diagnostic& diagnostic : diags.all()) {
      const std::string& message = diagnostic.message;
      const std::size_t end = message.find(", and parameter '");
      if (end != std::string::npos) return {Outcome::unsupported, message.substr(0, end)};
      if (message.find("no parameter") != std::string::npos || message.find("no trained") != std::string::npos)
        return {Outcome::unsupported, "computes no float from floats"};
    }
    return verdictOf(diags);
  }

  /// With every parameter moved by `step` times its direction.
  std::optional<double> lossAt(double step, const Tensors& direction) {
    Tensors moved = parameters_;
    for (const auto& [name, along] : direction)
      for (std::int64_t e = 0; e < along.elements(); ++e)
        moved[name].set(e, moved[name].asDouble(e) + step * along.asDouble(e));
    Diagnostics diags(nullptr);
    const auto result = interpret(graph_, inputs_, moved, Precision::f64, diags);
    return result ? std::optional(result->loss) : std::nullopt;
  }

  /// Nothing where the loss is not smooth along this direction.
  std::optional<Verdict> along(double loss) {
    Tensors direction;
    double stated = 0, size = 1e-3;
    for (const auto& [name, value] : parameters_) {
      Tensor& along = direction[name] = Tensor({ElementType::f64, value.shape()});
      const auto gradient = gradients_.find(name);
      for (std::int64_t e = 0; e < along.elements(); ++e) {
        along.set(e, uniform_(random_));
        const double product = gradient == gradients_.end() ? 0 : along.asDouble(e) * gradient->second.asDouble(e);
        stated += product;
        size += std::fabs(product);
      }
    }
    if (!std::isfinite(stated)) return Verdict{Outcome::unsupported, "has no finite gradient here"};
    const auto coarse = slopeOf(direction, 1e-5, loss);
    if (!coarse) return std::nullopt;
    // Rounding of a loss that is large beside its slope.
    const auto agrees = [&](const Slope& slope) {
      return std::fabs(slope.middle - stated) <= tolerance * size + 1e-13 * std::fabs(loss) / slope.step;
    };
    if (agrees(*coarse)) return Verdict{Outcome::passed, {}};
    const auto fine = slopeOf(direction, 1e-7, loss); // for what bends much
    if (!fine) return std::nullopt;
    if (agrees(*fine)) return Verdict{Outcome::passed, {}};
    const bool jumps = std::fabs(fine->middle - coarse->middle) > 1e-3 * size;
    // Either much at once, or with the gradient of one side, of which there may be many at a place.
    const double slack = 1e-3 * std::fabs(fine->right - fine->left);
    const bool bends =
        std::fabs(fine->right - fine->left) > 1e-4 * size ||
        (std::min(fine->left, fine->right) - slack <= stated && stated <= std::max(fine->left, fine->right) + slack);
    if (jumps || bends) return std::nullopt;
    return Verdict{Outcome::failed, "the gradients say that a sum of the outputs changes by " + std::to_string(stated) +
                                        " along a direction, it changes by " + std::to_string(fine->middle)};
  }

  /// How the loss changes along a direction: to the right, to the left, and by differences of fourth order.
  struct Slope {
    double step, left, right, middle;
  };
  std::optional<Slope> slopeOf(const Tensors& direction, double step, double loss) {
    double losses[4];
    const double places[] = {-2, -1, 1, 2};
    for (std::size_t i = 0; i < 4; ++i) {
      const auto at = lossAt(places[i] * step, direction);
      if (!at || !std::isfinite(*at)) return std::nullopt;
      losses[i] = *at;
    }
    const double middle = (8 * (losses[2] - losses[1]) - (losses[3] - losses[0])) / (12 * step);
    return Slope{step, (loss - losses[1]) / step, (losses[2] - loss) / step, middle};
  }

  Module& module_;
  Graph& graph_;
  Tensors inputs_, parameters_, gradients_;
  const OpRegistry& registry_;
  std::mt19937_64 random_{1};
  std::uniform_real_distribution<double> uniform_{-1, 1};
};

} // namespace

Verdict pdc::conformance::compareGradient(Module& module, const std::map<std::string, Tensor>& inputs,
                                          const std::map<std::string, Tensor>& parameters, const OpRegistry& registry) {
  return GradientTest(module, inputs, parameters, registry).run();
}
