// Flags whose values have a structure of their own: "HEAD,key=value,…".
#include "pdc/Driver/Compile.h"

#include "OutputFolder.h"

#include "pdc/IR/Tensor.h"
#include "pdcrt/LossScale.h"
#include "pdcrt/Npy.h"

#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

using namespace pdc;

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

/// "lr=0.1" as a key and its value.
std::pair<std::string, std::string> keyAndValue(const std::string& text) {
  const std::size_t equals = text.find('=');
  return {text.substr(0, equals), equals == std::string::npos ? "" : text.substr(equals + 1)};
}

Status parseNumber(const std::string& flag, const std::string& text, double& number, Diagnostics& diags) {
  const char* end = text.data() + text.size();
  if (auto [at, error] = std::from_chars(text.data(), end, number);
      error != std::errc() || at != end || !(number >= 0) || !std::isfinite(number))
    return diags.error({}).exit(ExitCode::usage) << flag << ": '" << text << "' is not a number >= 0";
  return success;
}

Status parseCount(const std::string& flag, const std::string& text, std::int64_t& count, std::int64_t least,
                  Diagnostics& diags) {
  const char* end = text.data() + text.size();
  if (auto [at, error] = std::from_chars(text.data(), end, count); error != std::errc() || at != end || count < least)
    return diags.error({}).exit(ExitCode::usage)
           << flag << ": '" << text << "' is not a number of minibatches >= " << least;
  return success;
}

Failure unknownOption(const std::string& flag, const std::string& option, const std::string& known,
                      Diagnostics& diags) {
  return diags.error({}).exit(ExitCode::usage).help(known) << flag << ": '" << option << "' is not an option";
}

/// The numbers of a .npy file, as "1/2/0.5".
Expected<std::string> listFromNpy(const std::string& path, Diagnostics& diags) {
  pdcrt::NpyFile file;
  if (pdcrt::Status status = file.open(path); !status) return reportFile(status, path, diags);
  const Tensor tensor({file.element(), file.shape()}, file.values());
  std::string text;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    char number[32];
    const auto [end, error] = std::to_chars(number, number + sizeof number, tensor.asDouble(i));
    text += (i ? "/" : "") + std::string(number, end);
  }
  return text;
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
    const auto [key, value] = keyAndValue(parts[i]);
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
      return unknownOption("--optimizer", parts[i],
                           "lr, momentum, nesterov=true|false, weight_decay, betas and eps are known", diags);
    }
  }
  if (training.optimizer == pdcrt::OptimizerKind::sgd && training.momentum != 0)
    training.optimizer = pdcrt::OptimizerKind::momentum;
  return success;
}

Status pdc::parseLoss(const std::string& text, std::vector<std::map<std::string, std::string>>& losses,
                      Diagnostics& diags) {
  const std::vector<std::string> parts = split(text, ',');
  const std::string head = parts.empty() ? "" : parts[0];
  const std::size_t colon = head.find(':');
  std::map<std::string, std::string> loss = {{"kind", head.substr(0, colon)},
                                             {"output", colon == std::string::npos ? "" : head.substr(colon + 1)}};
  const std::string& kind = loss["kind"];
  static const std::set<std::string> kinds = {"softmax-cross-entropy", "nll", "mse",
                                              "bce-with-logits",       "bce", "output"};
  static const std::set<std::string> keys = {"label",        "weight",          "average",
                                             "ignore_index", "label_smoothing", "class_weights"};
  if (!kinds.contains(kind))
    return diags.error({})
               .exit(ExitCode::usage)
               .help("softmax-cross-entropy, nll, mse, bce-with-logits, bce and output:NAME are known, ':NAME' may "
                     "follow")
           << "--loss: '" << kind << "' is not a loss";
  if (kind == "output" && loss["output"].empty())
    return diags.error({}).exit(ExitCode::usage).help("write --loss=output:NAME") << "--loss=output names no output";
  for (std::size_t i = 1; i < parts.size(); ++i) {
    auto [key, value] = keyAndValue(parts[i]);
    if (value.empty() || !keys.contains(key))
      return unknownOption("--loss", parts[i],
                           "label=NAME, weight, ignore_index, average=update|minibatch, label_smoothing and "
                           "class_weights=W/W/…|FILE.npy are known",
                           diags);
    if (key == "class_weights" && value.ends_with(".npy")) {
      Expected<std::string> list = listFromNpy(value, diags);
      if (!list) return failure;
      value = *std::move(list);
    }
    loss[key] = value;
  }
  if (!lossOptions(loss, diags)) return failure;
  losses.push_back(std::move(loss));
  return success;
}

Status pdc::parseLora(const std::string& text, std::vector<std::map<std::string, std::string>>& lora,
                      Diagnostics& diags) {
  static const std::set<std::string> keys = {"rank", "alpha", "targets", "dropout", "slices"};
  std::map<std::string, std::string> options;
  std::string last;
  for (const std::string& part : split(text, ',')) {
    const auto [key, value] = keyAndValue(part);
    if (part.find('=') != std::string::npos && keys.contains(key)) {
      if (!options.emplace(key, value).second)
        return diags.error({}).exit(ExitCode::usage) << "--lora: " << key << " is there twice";
      last = key;
    } else if (last == "targets" && part.find('=') == std::string::npos) { // a comma of the regular expression
      options[last] += "," + part;
    } else {
      return unknownOption("--lora", part,
                           "rank=N, alpha=N, targets=REGEX|all-linear, dropout=RATIO and slices=0/2 of 3 are known",
                           diags);
    }
  }
  if (!loraOptions(options, diags)) return failure;
  lora.push_back(std::move(options));
  return success;
}

std::vector<PipelineStep> pdc::lossSteps(const std::vector<std::map<std::string, std::string>>& losses, bool updates) {
  std::vector<PipelineStep> steps;
  for (const auto& loss : losses) steps.push_back({"add-loss", loss});
  if (steps.empty()) steps.push_back({"add-loss", {}});
  for (PipelineStep& step : steps)
    if (updates)
      step.options.try_emplace("average", "automatic");
    else
      step.options["average"] = "minibatch";
  return steps;
}

Status pdc::parseBatchAxes(const std::vector<std::string>& texts, std::map<std::string, int>& axes,
                           Diagnostics& diags) {
  for (const std::string& text : texts) {
    const std::size_t colon = text.rfind(':');
    const std::string name = text.substr(0, colon), value = colon == std::string::npos ? "" : text.substr(colon + 1);
    int axis = pdcrt::noBatchAxis;
    const char* end = value.data() + value.size();
    const auto [at, error] = std::from_chars(value.data(), end, axis);
    const bool number = error == std::errc() && at == end && axis >= 0;
    if (name.empty() || (!number && value != "none"))
      return diags.error({}).exit(ExitCode::usage).help("write --batch-axis=state:1, or --batch-axis=mask:none")
             << "--batch-axis: '" << text << "' is not an input, ':' and an axis from 0 on or 'none'";
    if (!number) axis = pdcrt::noBatchAxis;
    if (const auto [known, isNew] = axes.emplace(name, axis); !isNew && known->second != axis)
      return diags.error({}).exit(ExitCode::usage) << "--batch-axis gives two axes for '" << name << "'";
  }
  return success;
}

Status pdc::parseQuantize(const std::string& text, CompileOptions& options, Diagnostics& diags) {
  const std::vector<std::string> parts = split(text, ',');
  if (parts.empty() || parts[0] != "int8")
    return diags.error({}).exit(ExitCode::usage).help("write --quantize=int8")
           << "--quantize: '" << (parts.empty() ? "" : parts[0]) << "' is not a type that frozen weights may have";
  std::string last;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto [key, value] = keyAndValue(parts[i]);
    if (key == "alpha" || key == "match" || key == "keep") {
      if (!options.quantize.emplace(last = key, value).second)
        return diags.error({}).exit(ExitCode::usage) << "--quantize: " << key << " is there twice";
    } else if (last == "match" || last == "keep") { // a comma of the expression
      options.quantize[last] += "," + parts[i];
    } else {
      return unknownOption("--quantize", parts[i], "alpha, match and keep are known", diags);
    }
  }
  options.quantizes = true;
  return success;
}

Status pdc::parseCalibrate(const std::string& text, CompileOptions& options, Diagnostics& diags) {
  const std::vector<std::string> parts = split(text, ',');
  if (parts.empty() || parts[0].empty())
    return diags.error({}).exit(ExitCode::usage).help("write --calibrate=data,batches=8")
           << "--calibrate names no data";
  options.calibrate = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto [key, value] = keyAndValue(parts[i]);
    if (key != "batches") return unknownOption("--calibrate", parts[i], "batches is known", diags);
    if (!parseCount("--calibrate, batches", value, options.calibrateBatches, 1, diags)) return failure;
  }
  if (options.quantizes) return success;
  return diags.error({}).exit(ExitCode::usage).help("add --quantize=int8")
         << "--calibrate looks for inputs that weights of 8 bits keep in f32, and there are none";
}

Status pdc::parseCapacity(const std::string& text, CapacityOptions& capacity, Diagnostics& diags) {
  const std::vector<std::string> parts = split(text, ',');
  const auto number = [&](const std::string& what, const std::string& value, double& to, double least, double most) {
    char* end = nullptr;
    to = std::strtod(value.c_str(), &end);
    if (!value.empty() && *end == '\0' && to >= least && to <= most) return Status(success);
    return Status(
        diags.error({}).exit(ExitCode::usage).help("write --capacity=1.25, or --capacity=auto,drop=0.01,data=DATA")
        << "--capacity: " << what << " '" << value << "' is no number from " << least << " to " << most);
  };
  if (parts.empty() || parts[0] != "auto") return number("the factor", text, capacity.factor, 1e-6, 1e6);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto [key, value] = keyAndValue(parts[i]);
    if (key == "drop") {
      if (!number("drop", value, capacity.drop, 0, 1)) return failure;
    } else if (key == "data") {
      capacity.data = value;
    } else if (key == "batches") {
      if (!parseCount("--capacity, batches", value, capacity.batches, 1, diags)) return failure;
    } else {
      return unknownOption("--capacity", parts[i], "drop, data and batches are known", diags);
    }
  }
  if (!capacity.data.empty()) return success;
  return diags.error({}).exit(ExitCode::usage).help("write --capacity=auto,drop=0.01,data=DATA")
         << "--capacity=auto looks at what the router does with data, and none is named";
}

Status pdc::parseBound(const std::vector<std::string>& texts, std::map<std::string, std::string>& bound,
                       Diagnostics& diags) {
  for (const std::string& text : texts) {
    const auto [name, value] = keyAndValue(text);
    if (name.empty() || value.empty())
      return diags.error({})
                 .exit(ExitCode::usage)
                 .help("write --bind temperature=2, --bind mask=mask.npy or --bind h0=zeros")
             << "--bind: '" << text << "' is not NAME=VALUE, NAME=FILE.npy or NAME=zeros";
    if (const auto [known, isNew] = bound.emplace(name, value); !isNew && known->second != value)
      return diags.error({}).exit(ExitCode::usage) << "--bind gives two values for '" << name << "'";
  }
  return success;
}

std::vector<std::string> pdc::valuesOfLosses(const std::vector<std::map<std::string, std::string>>& losses) {
  std::vector<std::string> names;
  for (const auto& loss : losses)
    if (const std::string& name = loss.at("output"); !name.empty()) names.push_back(name);
  return names;
}

Status pdc::parseLearningRateSchedule(const std::string& text, pdcrt::LearningRateSchedule& schedule,
                                      Diagnostics& diags) {
  using Kind = pdcrt::LearningRateSchedule::Kind;
  const std::vector<std::string> parts = split(text, ',');
  const std::string kind = parts.empty() ? "" : parts[0];
  if (kind != "constant" && kind != "step" && kind != "cosine")
    return diags.error({}).exit(ExitCode::usage).help("constant, step and cosine are known")
           << "--lr-schedule: '" << kind << "' is not a schedule of the learning rate";
  schedule.kind = kind == "step" ? Kind::step : kind == "cosine" ? Kind::cosine : Kind::constant;
  bool hasPeriod = false;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto [key, value] = keyAndValue(parts[i]);
    if (key == "period" && schedule.kind != Kind::constant) {
      if (!parseCount("--lr-schedule", value, schedule.period, 1, diags)) return failure;
      hasPeriod = true;
    } else if (key == "warmup") {
      if (!parseCount("--lr-schedule", value, schedule.warmup, 0, diags)) return failure;
    } else if (key == "factor" && schedule.kind == Kind::step) {
      if (!parseNumber("--lr-schedule", value, schedule.factor, diags)) return failure;
    } else {
      return unknownOption("--lr-schedule", parts[i],
                           "step,period=N,factor=F, cosine,period=N and warmup=N are known, in minibatches", diags);
    }
  }
  if (schedule.kind != Kind::constant && !hasPeriod)
    return diags.error({}).exit(ExitCode::usage).help("write --lr-schedule=" + kind + ",period=N")
           << "--lr-schedule: '" << kind << "' needs a period, in minibatches";
  return success;
}

Status pdc::parseParameterGroup(const std::string& text, std::vector<pdcrt::ParameterGroup>& groups,
                                Diagnostics& diags) {
  const char* help = "write --param-group='REGEX:lr=0.1,weight_decay=0'";
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos)
    return diags.error({}).exit(ExitCode::usage).help(help) << "--param-group: '" << text << "' says nothing of them";
  pdcrt::ParameterGroup group{.match = text.substr(0, colon), .learningRate = {}, .weightDecay = {}};
  if (!pdcrt::isParameterMatch(group.match))
    return diags.error({}).exit(ExitCode::usage)
           << "--param-group: '" << group.match << "' is not a regular expression";
  for (const std::string& part : split(text.substr(colon + 1), ',')) {
    const auto [key, value] = keyAndValue(part);
    if (key != "lr" && key != "weight_decay")
      return unknownOption("--param-group", part, "lr and weight_decay are known", diags);
    double number = 0;
    if (!parseNumber("--param-group", value, number, diags)) return failure;
    (key == "lr" ? group.learningRate : group.weightDecay) = number;
  }
  if (!group.learningRate && !group.weightDecay)
    return diags.error({}).exit(ExitCode::usage).help(help) << "--param-group: '" << text << "' says nothing of them";
  groups.push_back(std::move(group));
  return success;
}

Status pdc::parseClipNorm(const std::string& text, pdcrt::Training& training, Diagnostics& diags) {
  const std::vector<std::string> parts = split(text, ',');
  double norm = HUGE_VAL;
  if (parts.empty() || (parts[0] != "inf" && !parseNumber("--clip-norm", parts[0], norm, diags))) return failure;
  if (norm == 0)
    return diags.error({}).exit(ExitCode::usage) << "--clip-norm: a norm of 0 leaves nothing to learn from";
  training.clipNorm = norm;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto [key, value] = keyAndValue(parts[i]);
    if (key != "scope" || (value != "global" && value != "stage"))
      return unknownOption("--clip-norm", parts[i], "scope=global and scope=stage are known", diags);
    training.clipScope = value == "stage" ? pdcrt::ClipScope::stage : pdcrt::ClipScope::global;
  }
  return success;
}

Status pdc::parseLossScale(const std::string& text, pdcrt::Training& training, Diagnostics& diags) {
  const std::vector<std::string> parts = split(text, ',');
  const bool dynamic = !parts.empty() && parts[0] == "dynamic";
  const pdcrt::DynamicLossScale standard;
  training.lossScale = standard.scale;
  training.lossScaleInterval = dynamic ? standard.interval : 0;
  if (!dynamic && !parseNumber("--loss-scale", parts.empty() ? "" : parts[0], training.lossScale, diags))
    return failure;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto [key, value] = keyAndValue(parts[i]);
    if (!dynamic || (key != "start" && key != "interval"))
      return unknownOption("--loss-scale", parts[i], "dynamic,start=S,interval=N is known", diags);
    if (key == "start" ? !parseNumber("--loss-scale", value, training.lossScale, diags)
                       : !parseCount("--loss-scale", value, training.lossScaleInterval, 1, diags))
      return failure;
  }
  if (training.lossScale > 0) return success;
  return diags.error({}).exit(ExitCode::usage) << "--loss-scale: a scale of 0 leaves nothing to learn from";
}
