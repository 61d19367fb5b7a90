#include "StageMessages.h"

#include "pdc/Stage/StagePolicy.h"

#include "pdc/Schedule/PlanSchedule.h"
#include "pdcrt/ExchangeProblem.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace pdc;

/// Whether two plans have the same edges with the same bytes.
static bool sendTheSame(const Plan& a, const Plan& b) {
  const std::vector<EdgeTraffic> first = trafficOf(a), second = trafficOf(b);
  return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [](const EdgeTraffic& x, const EdgeTraffic& y) {
                      return x.edge == y.edge && x.forwardBytes == y.forwardBytes && x.backwardBytes == y.backwardBytes;
                    });
}

void pdc::describeMessages(const std::vector<StageGraphs>& stages, Plan& plan) {
  std::map<std::pair<std::string, int>, bool> planned; // by name and user: whether that has a part of the gradient
  for (const PlanTensor& tensor : plan.tensors) planned[{tensor.name, tensor.to}] |= tensor.hasGradient;
  plan.tensors.clear();
  std::vector<PlanGradient> gradients;
  for (const StageGraphs& stage : stages)
    for (const GraphOutput& output : stage.training->outputs) {
      if (output.kind != OutputKind::sent) continue;
      const std::string& name = output.value->name();
      const std::int64_t bytes = output.value->type().bytes();
      if (output.isGradient)
        gradients.push_back({.name = name, .from = stage.stage, .to = output.peer, .bytes = bytes});
      else
        plan.tensors.push_back({.name = name, .from = stage.stage, .to = output.peer, .bytes = bytes});
    }
  const auto byEnds = [](const auto& a, const auto& b) { return std::pair(a.from, a.to) < std::pair(b.from, b.to); };
  std::stable_sort(plan.tensors.begin(), plan.tensors.end(), byEnds);
  std::stable_sort(gradients.begin(), gradients.end(), byEnds);
  for (PlanTensor& tensor : plan.tensors) {
    const auto isPart = [&](const PlanGradient& gradient) { // by the name that `differentiate` gives it
      return gradient.from == tensor.to && isGradientOf(gradient.name, tensor.name);
    };
    tensor.hasGradient = planned[{tensor.name, tensor.to}] || std::any_of(gradients.begin(), gradients.end(), isPart);
  }
  plan.gradients.reset();
  Plan sent = plan;
  sent.gradients = std::move(gradients);
  if (!sendTheSame(plan, sent)) plan.gradients = std::move(sent.gradients);
}

Status pdc::encodeMessages(PassContext& context, const Plan& planned, Plan& plan, const PipelineOptions& pipeline) {
  std::map<std::string, std::string> namesOf; // by codec, a line each
  std::map<std::string, EdgeCodec> codecs;    // by name
  for (const PlanTensor& tensor : planned.tensors)
    if (tensor.codec && codecs.emplace(tensor.name, *tensor.codec).second)
      namesOf[toText(*tensor.codec)] += tensor.name + "\n";
  PassRegistry passes;
  registerStagePasses(passes);
  for (const auto& [text, names] : namesOf) {
    std::string codec = text;
    std::replace(codec.begin(), codec.end(), ',', '/');
    if (!runPipeline({encodeStep(codec, names)}, passes, context.module, context.registry, context.diags, pipeline))
      return failure;
  }
  std::map<std::string, std::int64_t> bytes; // of what is encoded, by name
  constexpr std::string_view encoded = ".encoded";
  for (const StageGraphs& stage : stageGraphs(context.module))
    for (const GraphOutput& output : stage.training->outputs)
      if (const std::string& name = output.value->name(); output.kind == OutputKind::sent && name.ends_with(encoded))
        bytes[name.substr(0, name.size() - encoded.size())] = output.value->type().bytes();
  for (PlanTensor& tensor : plan.tensors) {
    const auto codec = codecs.find(tensor.name);
    if (codec == codecs.end()) continue;
    if (!bytes.contains(tensor.name))
      return context.diags.error(planned.at()).help("delete its \"codec\"")
             << "tensor '" << tensor.name << "' of the plan cannot be encoded: only rows of f32 in plain layout can";
    tensor.codec = codec->second;
    tensor.bytes = bytes.at(tensor.name);
  }
  if (plan.gradients)
    for (PlanGradient& gradient : *plan.gradients)
      if (const auto found = bytes.find(gradient.name); found != bytes.end()) gradient.bytes = found->second;
  return success;
}

/// "values 0>2".
static std::string edgeText(const pdcrt::EdgeRow& row) {
  return (row.direction == pdcrt::Direction::forward ? "values " : "gradients ") + std::to_string(row.from) + ">" +
         std::to_string(row.to);
}

/// What one end of an edge sends or expects, in its order.
static std::vector<std::string> tensorsOf(const MemoryPlan& stage, std::size_t edge) {
  std::vector<std::string> tensors;
  for (const PlacedPort& port : stage.ports)
    if (static_cast<std::size_t>(port.edge) == edge)
      tensors.push_back("'" + port.value->name() + "' " + toString(port.value->type()));
  return tensors;
}

Status pdc::verifyMessages(const std::vector<MemoryPlan>& stages, const pdcrt::Schedule& schedule, Diagnostics& diags) {
  const auto error = [&] { return diags.error({}).exit(ExitCode::internal).help("report this, with the model"); };
  for (const MemoryPlan& stage : stages) {
    const std::string problem = pdcrt::exchangeProblem(schedule, stage.stage, stage.edges, stage.shared);
    if (!problem.empty()) return error() << "the programs do not fit their schedule: " << problem;
    for (std::size_t e = 0; e < stage.edges.size(); ++e) {
      const pdcrt::EdgeRow& row = stage.edges[e];
      const MemoryPlan& peer = stages[static_cast<std::size_t>(row.from == stage.stage ? row.to : row.from)];
      const auto same = std::find_if(peer.edges.begin(), peer.edges.end(), [&](const pdcrt::EdgeRow& other) {
        return std::tie(row.direction, row.from, row.to) == std::tie(other.direction, other.from, other.to);
      });
      if (same == peer.edges.end())
        return error() << edgeText(row) << ": stage " << stage.stage << " has this edge, stage " << peer.stage
                       << " does not";
      const auto here = tensorsOf(stage, e),
                 there = tensorsOf(peer, static_cast<std::size_t>(same - peer.edges.begin()));
      const auto [a, b] = std::mismatch(here.begin(), here.end(), there.begin(), there.end());
      if (a == here.end() && b == there.end()) continue;
      return error() << edgeText(row) << ": stage " << stage.stage << " has " << (a == here.end() ? "nothing" : *a)
                     << " where stage " << peer.stage << " has " << (b == there.end() ? "nothing" : *b);
    }
  }
  return success;
}
