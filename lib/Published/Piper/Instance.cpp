#include "Piper/Instance.h"

#include "pdc/Support/Diagnostics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

using namespace pdc;

Status pdc::checkPiperProblem(const PiperProblem& problem, Diagnostics& diags) {
  if (problem.nodes.empty())
    return diags.error({problem.name}) << "expected a problem with at least one node, got none";
  if (!(problem.bandwidth > 0))
    return diags.error({problem.name}) << "expected a bandwidth above 0, got " << problem.bandwidth;
  if (problem.devices < 1 || problem.microbatches < 1)
    return diags.error({problem.name}) << "expected at least one device and one microbatch, got " << problem.devices
                                       << " and " << problem.microbatches;
  for (const PiperNode& node : problem.nodes)
    for (const auto& [t, choices] : node.choices)
      for (std::size_t i = 0; i < choices.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
          if (choices[i].id == choices[j].id)
            return diags.error({problem.name, node.name})
                   << "two choices for tensor-parallel degree " << t << " have the id '" << choices[i].id << "'";
  return success;
}

static double bytesOf(const std::map<std::int64_t, double>& sync, std::int64_t id) {
  auto entry = sync.find(id);
  return entry == sync.end() ? 0 : entry->second;
}

static bool isAtMost(const PiperOption& a, const PiperOption& b) {
  if (a.time > b.time || a.weight > b.weight || a.memoryA > b.memoryA || a.memoryB > b.memoryB) return false;
  for (std::size_t i = 0; i < a.cuts.size(); ++i)
    if (a.cuts[i] > b.cuts[i]) return false;
  return true;
}

static std::vector<PiperOption> withoutBeaten(const std::vector<PiperOption>& options) {
  std::vector<PiperOption> kept;
  for (std::size_t i = 0; i < options.size(); ++i) {
    bool isBeaten = false;
    for (std::size_t j = 0; j < options.size() && !isBeaten; ++j)
      isBeaten = j != i && isAtMost(options[j], options[i]) && (j < i || !isAtMost(options[i], options[j]));
    if (!isBeaten) kept.push_back(options[i]);
  }
  return kept;
}

/// One end of an edge: what its node pays when the edge is cut.
struct EdgeEnd {
  std::size_t neighbour;
  double bytes;
  bool isTail;
};

static std::vector<PiperOption> optionsOf(const PiperProblem& problem, const std::vector<PiperChoice>& choices,
                                          const std::vector<EdgeEnd>& ends) {
  std::vector<PiperOption> options;
  for (std::size_t c = 0; c < choices.size(); ++c) {
    const PiperChoice& choice = choices[c];
    PiperOption option;
    option.choice = static_cast<int>(c);
    option.time = choice.time;
    option.weight = 4 * choice.parameterBytes / static_cast<double>(problem.microbatches) / problem.bandwidth;
    option.memoryA = choice.memoryA;
    option.memoryB = choice.memoryB;
    for (const EdgeEnd& end : ends) {
      const auto& sync = end.isTail ? choice.syncBackward : choice.syncForward;
      option.cuts.push_back(2 * (end.bytes + bytesOf(sync, problem.nodes[end.neighbour].id)) / problem.bandwidth);
    }
    options.push_back(std::move(option));
  }
  return withoutBeaten(options);
}

std::optional<PiperInstance> PiperInstance::make(const PiperProblem& problem, bool replicate) {
  std::vector<std::pair<int, int>> edges;
  std::vector<std::vector<EdgeEnd>> ends(problem.nodes.size());
  for (const PiperEdge& edge : problem.edges) {
    auto tail = static_cast<std::size_t>(edge.from), head = static_cast<std::size_t>(edge.to);
    edges.emplace_back(static_cast<int>(tail), static_cast<int>(head));
    ends[tail].push_back({head, edge.bytes, true});
    ends[head].push_back({tail, edge.bytes, false});
  }
  std::optional<Dag> dag = Dag::make(problem.nodes.size(), std::move(edges));
  if (!dag) return std::nullopt;

  PiperInstance instance;
  instance.dag = std::move(*dag);
  instance.devices = problem.devices;
  instance.replicas = std::min(problem.microbatches, problem.devices);
  instance.memory = problem.memoryBytes;
  for (std::int64_t d = 1; d <= (replicate ? instance.replicas : 1); ++d)
    if (!problem.degreesDivideMicrobatches || problem.microbatches % d == 0) instance.dataDegrees.push_back(d);
  std::set<std::int64_t> degrees;
  for (const PiperNode& node : problem.nodes)
    for (const auto& [t, choices] : node.choices)
      if (t <= problem.devices && !choices.empty()) degrees.insert(t);
  instance.tensorDegrees.assign(degrees.begin(), degrees.end());
  for (std::size_t v = 0; v < problem.nodes.size(); ++v) {
    PiperInstanceNode node;
    double work = std::numeric_limits<double>::infinity();
    for (const EdgeEnd& end : ends[v]) node.neighbours.push_back(end.neighbour);
    for (std::int64_t t : instance.tensorDegrees) {
      auto choices = problem.nodes[v].choices.find(t);
      node.options.emplace_back();
      if (choices == problem.nodes[v].choices.end()) continue;
      node.options.back() = optionsOf(problem, choices->second, ends[v]);
      for (const PiperOption& option : node.options.back()) work = std::min(work, static_cast<double>(t) * option.time);
    }
    instance.nodes.push_back(std::move(node));
    instance.work.push_back(std::isfinite(work) ? work : 0); // a node that no degree is offered for: there is no plan
  }
  return instance;
}
