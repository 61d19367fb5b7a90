#include "RunningStatistics.h"

#include "Operators.h"

#include <algorithm>

using namespace pdc;

bool RunningStatistics::prepare(OnnxNode& node, const onnx::NodeProto& proto) const {
  bool exported = isInTrainingMode(proto, node.version);
  bool training = mode_ == BatchNormMode::exported ? exported : mode_ != BatchNormMode::frozen;
  std::size_t formerOutputs = node.version < 14 ? 5 : 3;
  node.outputs = training ? std::max(node.outputs, formerOutputs) : 1;
  node.outputUsed.resize(node.outputs, false);
  if (node.version >= 14) node.attributes.set("training_mode", std::int64_t{training});
  if (mode_ == BatchNormMode::pytorch) node.attributes.set("unbiased", std::int64_t{1}); // no attribute of ONNX
  if (training)
    for (RunningStatistic statistic : runningStatistics)
      node.outputUsed[static_cast<std::size_t>(statistic.output)] = true;
  return training;
}

void RunningStatistics::takeNewest(OnnxNode& node, Graph& graph) const {
  for (RunningStatistic statistic : runningStatistics) {
    const auto input = static_cast<std::size_t>(statistic.input);
    if (input >= node.inputs.size() || !node.inputs[input]) continue;
    for (const GraphOutput& state : outputs_)
      if (node.inputs[input] == graph.parameterValue(*state.parameter)) node.inputs[input] = state.value;
  }
}

void RunningStatistics::keep(const OnnxNode& node, std::vector<Value*>& results) {
  for (RunningStatistic statistic : runningStatistics) {
    const auto input = static_cast<std::size_t>(statistic.input), output = static_cast<std::size_t>(statistic.output);
    results.resize(std::max(results.size(), output + 1), nullptr);
    if (input < node.inputs.size() && !results[output]) results[output] = node.inputs[input];
  }
}

void RunningStatistics::add(const OnnxNode& node, const std::vector<Value*>& results) {
  for (RunningStatistic statistic : runningStatistics) {
    auto input = static_cast<std::size_t>(statistic.input), output = static_cast<std::size_t>(statistic.output);
    if (input >= node.inputs.size() || output >= results.size() || !node.inputs[input] || !results[output]) continue;
    const auto former = std::find_if(outputs_.begin(), outputs_.end(),
                                     [&](const GraphOutput& state) { return state.value == node.inputs[input]; });
    if (former != outputs_.end())
      former->value = results[output];
    else if (Parameter* parameter = node.inputs[input]->parameter())
      outputs_.push_back({.kind = OutputKind::state, .value = results[output], .parameter = parameter});
  }
}
