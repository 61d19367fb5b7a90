// Flags whose values have a structure of their own.
#include "pdc/Driver/Compile.h"

#include <charconv>
#include <sstream>

using namespace pdc;

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

Status parseNumber(const std::string& flag, const std::string& text, double& number, Diagnostics& diags) {
  const char* end = text.data() + text.size();
  if (auto [at, error] = std::from_chars(text.data(), end, number); error != std::errc() || at != end || number < 0)
    return diags.error({}).exit(ExitCode::usage) << flag << ": '" << text << "' is not a number >= 0";
  return success;
}

} // namespace

Status pdc::parseOptimizer(const std::string& text, pdcrt::Training& training, Diagnostics& diags) {
  const std::vector<std::string> parts = split(text, ',');
  const std::string kind = parts.empty() ? "" : parts[0];
  if (kind == "sgd")
    training.optimizer = pdcrt::OptimizerKind::sgd;
  else if (kind == "momentum")
    training.optimizer = pdcrt::OptimizerKind::momentum, training.momentum = 0.9;
  else if (kind == "adam")
    training.optimizer = pdcrt::OptimizerKind::adam, training.learningRate = 1e-3;
  else if (kind == "adamw")
    training.optimizer = pdcrt::OptimizerKind::adamw, training.learningRate = 1e-3, training.weightDecay = 0.01;
  else
    return diags.error({}).exit(ExitCode::usage).help("sgd, momentum, adam and adamw are known")
           << "--optimizer: '" << kind << "' is not an optimizer";
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    const std::string key = parts[i].substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : parts[i].substr(equals + 1);
    double* number = nullptr;
    if (key == "lr")
      number = &training.learningRate;
    else if (key == "momentum")
      number = &training.momentum;
    else if (key == "weight_decay")
      number = &training.weightDecay;
    else if (key == "eps")
      number = &training.epsilon;
    if (key == "nesterov" && (value == "true" || value == "false")) {
      training.nesterov = value == "true";
    } else if (key == "betas") {
      const std::vector<std::string> betas = split(value, '/');
      if (betas.size() != 2)
        return diags.error({}).exit(ExitCode::usage).help("write betas=0.9/0.999")
               << "--optimizer: betas are two numbers, '" << value << "' is not";
      if (!parseNumber("--optimizer", betas[0], training.beta1, diags) ||
          !parseNumber("--optimizer", betas[1], training.beta2, diags))
        return failure;
    } else if (number) {
      if (!parseNumber("--optimizer", value, *number, diags)) return failure;
    } else {
      return diags.error({})
                 .exit(ExitCode::usage)
                 .help("lr, momentum, nesterov=true|false, weight_decay, betas and eps are known")
             << "--optimizer: '" << parts[i] << "' is not an option";
    }
  }
  if (training.optimizer == pdcrt::OptimizerKind::sgd && training.momentum != 0)
    training.optimizer = pdcrt::OptimizerKind::momentum;
  return success;
}

Status pdc::parseLoss(const std::string& text, LossOptions& loss, Diagnostics& diags) {
  const std::size_t colon = text.find(':');
  loss.kind = text.substr(0, colon);
  loss.output = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (loss.kind != "softmax-cross-entropy" && loss.kind != "mse" && loss.kind != "bce-with-logits" &&
      loss.kind != "output")
    return diags.error({})
               .exit(ExitCode::usage)
               .help("softmax-cross-entropy, mse, bce-with-logits and output:NAME are known, ':OUTPUT' may follow")
           << "--loss: '" << loss.kind << "' is not a loss";
  if (loss.kind == "output" && loss.output.empty())
    return diags.error({}).exit(ExitCode::usage).help("write --loss=output:NAME") << "--loss=output names no output";
  return success;
}
