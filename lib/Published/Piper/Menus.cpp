// Piper's problems as cost graphs with a split for each way to run nodes.
#include "pdc/Published/PiperMenus.h"

#include "Formats/Edges.h"
#include "Piper/Definition.h"
#include "Piper/Instance.h"
#include "Piper/Menu.h"
#include "pdc/Support/Diagnostics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

using namespace pdc;

namespace {

constexpr double msPerUnit = 1e3;

/// The two choices of a node for a degree that are kept: places in its list.
struct Kept {
  std::size_t fastest = 0, smallest = 0;
};

/// One way to run all nodes.
struct Way {
  std::int64_t degree = 1;
  int number = 0, of = 0; ///< of the nodes whose two choices differ, so many of so many take the smallest
};

class Import {
public:
  Import(const PiperProblem& problem, int between) : problem_(problem), between_(between) {
    Edges edges;
    for (const PiperEdge& edge : problem.edges) edges.push_back({edge.from, edge.to});
    menus_.nodes = topologicalOrder(std::ssize(problem.nodes), edges);
    placeOf_.resize(problem.nodes.size());
    for (std::size_t i = 0; i < menus_.nodes.size(); ++i)
      placeOf_[static_cast<std::size_t>(menus_.nodes[i])] = static_cast<std::int64_t>(i);
  }

  Expected<PiperMenus> run(Diagnostics& diags) {
    const std::vector<std::int64_t> degrees = commonDegrees();
    if (degrees.empty())
      return diags.error({problem_.name}).help("give every node choices for one degree")
             << "no tensor-parallel degree of at most " << std::min(problem_.devices, mostMembers)
             << " is offered by all " << problem_.nodes.size() << " nodes";
    std::vector<Way> ways;
    for (const std::int64_t degree : degrees) {
      ways.push_back({degree, 0, 1});
      if (!differs(degree)) continue;
      for (int i = 1; i <= between_ + 1; ++i) ways.push_back({degree, i, between_ + 1});
    }
    for (const Way& way : ways) menus_.taken.push_back(takenIn(way));
    return graphsOf(ways);
  }

  /// The ways of a plan, whose choices are known.
  PiperMenus of(const Plan& plan) {
    std::vector<Way> ways;
    for (const std::int64_t degree : degreesOf(plan)) {
      ways.push_back({degree, 0, 1});
      std::vector<std::size_t>& taken = menus_.taken.emplace_back();
      for (std::size_t v = 0; v < menus_.nodes.size(); ++v) taken.push_back(keptOf(choices(v, degree)).fastest);
    }
    for (const PlanStage& stage : plan.stages)
      for (std::size_t i = 0; i < stage.nodes.size(); ++i) {
        const auto v = static_cast<std::size_t>(placeOf_[static_cast<std::size_t>(stage.nodes[i])]);
        const std::vector<PiperChoice>& list = choices(v, stage.tensorParallel);
        const auto found =
            std::find_if(list.begin(), list.end(), [&](const PiperChoice& c) { return c.id == stage.choices[i]; });
        for (std::size_t k = 0; k < ways.size(); ++k)
          if (ways[k].degree == stage.tensorParallel)
            menus_.taken[k][v] = static_cast<std::size_t>(found - list.begin());
      }
    return graphsOf(ways);
  }

private:
  PiperMenus graphsOf(const std::vector<Way>& ways) {
    const double unit = unitOf(ways);
    for (std::size_t k = 0; k < ways.size(); ++k) {
      CostGraph graph = graphOf(ways[k], menus_.taken[k], unit);
      if (k == 0)
        menus_.graph = std::move(graph);
      else
        menus_.graph.divided.push_back(std::move(graph));
    }
    menus_.cluster.levels = {{"cluster", problem_.devices, freeBytesPerS, 0}};
    menus_.cluster.device.name = "accelerator";
    menus_.cluster.device.memoryBytes = static_cast<std::int64_t>(std::min(problem_.memoryBytes, 0x1p60));
    constexpr double most = 1e290; // of what has no bytes
    menus_.cluster.device.coreSPerByte = std::min(unit / problem_.bandwidth, most);
    return std::move(menus_);
  }

  /// With the least that all nodes offer: what crosses between unlike teams has its size.
  std::set<std::int64_t> degreesOf(const Plan& plan) const {
    std::set<std::int64_t> degrees;
    if (const std::vector<std::int64_t> common = commonDegrees(); !common.empty()) degrees.insert(common.front());
    for (const PlanStage& stage : plan.stages) degrees.insert(stage.tensorParallel);
    return degrees;
  }

  static constexpr std::int64_t mostMembers = 1024; ///< of a team
  static constexpr double freeBytesPerS = 1e24;     ///< of links, which take no time

  const std::vector<PiperChoice>& choices(std::size_t node, std::int64_t degree) const {
    const auto& lists = problem_.nodes[static_cast<std::size_t>(menus_.nodes[node])].choices;
    const auto found = lists.find(degree);
    return found == lists.end() ? lists.begin()->second : found->second; // of a degree that its stage does not have
  }

  std::vector<std::int64_t> commonDegrees() const {
    std::vector<std::int64_t> degrees;
    for (const auto& [degree, list] : problem_.nodes[0].choices)
      if (degree <= std::min(problem_.devices, mostMembers) &&
          std::all_of(problem_.nodes.begin(), problem_.nodes.end(), [&, degree = degree](const PiperNode& node) {
            const auto found = node.choices.find(degree);
            return found != node.choices.end() && !found->second.empty();
          }))
        degrees.push_back(degree);
    return degrees;
  }

  static Kept keptOf(const std::vector<PiperChoice>& list) {
    const auto least = [&](auto key) {
      return static_cast<std::size_t>(
          std::min_element(list.begin(), list.end(),
                           [&](const PiperChoice& a, const PiperChoice& b) { return key(a) < key(b); }) -
          list.begin());
    };
    const Kept kept{least([](const PiperChoice& c) { return std::tuple(c.time, c.memoryA, c.memoryB); }),
                    least([](const PiperChoice& c) { return std::tuple(c.memoryA, c.memoryB, c.time); })};
    return list[kept.smallest].memoryA < list[kept.fastest].memoryA ? kept : Kept{kept.fastest, kept.fastest};
  }

  bool differs(std::int64_t degree) const {
    for (std::size_t v = 0; v < menus_.nodes.size(); ++v)
      if (const Kept kept = keptOf(choices(v, degree)); kept.fastest != kept.smallest) return true;
    return false;
  }

  std::vector<std::size_t> takenIn(const Way& way) const {
    std::vector<std::size_t> taken;
    int before = 0; // nodes with two choices
    for (std::size_t v = 0; v < menus_.nodes.size(); ++v) {
      const Kept kept = keptOf(choices(v, way.degree));
      const bool isSmall =
          kept.fastest != kept.smallest && (before + 1) * way.number / way.of > before * way.number / way.of;
      before += kept.fastest != kept.smallest ? 1 : 0;
      taken.push_back(isSmall ? kept.smallest : kept.fastest);
    }
    return taken;
  }

  /// Twice what an edge carries within a split.
  double carriedTwice(const PiperEdge& edge, std::int64_t degree, const std::vector<std::size_t>& taken) const {
    const auto choiceOf = [&](std::int64_t node) -> const PiperChoice& {
      const auto place = static_cast<std::size_t>(placeOf_[static_cast<std::size_t>(node)]);
      return choices(place, degree)[taken[place]];
    };
    const auto sync = [&](const std::map<std::int64_t, double>& bytes, std::int64_t node) {
      const auto found = bytes.find(problem_.nodes[static_cast<std::size_t>(node)].id);
      return found == bytes.end() ? 0 : found->second;
    };
    return 2 * edge.bytes + sync(choiceOf(edge.from).syncBackward, edge.to) +
           sync(choiceOf(edge.to).syncForward, edge.from);
  }

  double unitOf(const std::vector<Way>& ways) const {
    std::int64_t common = 0; // of twice the bytes
    for (std::size_t k = 0; k < ways.size(); ++k)
      for (const PiperEdge& edge : problem_.edges) {
        const double twice = carriedTwice(edge, ways[k].degree, menus_.taken[k]);
        if (twice != std::floor(twice) || twice > 0x1p53) return 1;
        common = std::gcd(common, static_cast<std::int64_t>(twice));
        common = std::gcd(common, static_cast<std::int64_t>(2 * edge.bytes));
      }
    double parameters = 0; // of the largest node, which keep four digits
    for (const PiperNode& node : problem_.nodes)
      for (const auto& [degree, list] : node.choices)
        for (const PiperChoice& choice : list) parameters = std::max(parameters, choice.parameterBytes);
    const double most = parameters > 0 ? parameters / 16'384 : 0x1p20;
    std::int64_t unit = 1;
    while (2.0 * static_cast<double>(unit) <= std::min(most, 0x1p20) && common % (4 * unit) == 0) unit *= 2;
    return static_cast<double>(unit);
  }

  CostGraph graphOf(const Way& way, const std::vector<std::size_t>& taken, double unit) const {
    CostGraph graph;
    graph.model = graph.costSource = problem_.name;
    graph.split.members = static_cast<int>(way.degree);
    graph.split.menu = way.number;
    const auto whole = [](double value) { return static_cast<std::int64_t>(std::llround(value)); };
    for (std::size_t v = 0; v < menus_.nodes.size(); ++v) {
      const PiperNode& from = problem_.nodes[static_cast<std::size_t>(menus_.nodes[v])];
      const PiperChoice& choice = choices(v, way.degree)[taken[v]];
      CostNode node;
      node.name = from.name;
      // Piper tells the two passes not apart. A third is what the forward takes of three products.
      node.forwardMs = msPerUnit * choice.time / 3;
      node.inputGradientMs = node.weightGradientMs = (msPerUnit * choice.time - node.forwardMs) / 2;
      node.parameterBytes = whole(choice.parameterBytes / unit);
      node.gradientBytes = 0; // in b
      node.frozenBytes =
          std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil(choice.memoryB)) - 2 * node.parameterBytes);
      node.savedBytes = static_cast<std::int64_t>(std::ceil(choice.memoryA));
      graph.nodes.push_back(std::move(node));
    }
    for (std::size_t e = 0; e < problem_.edges.size(); ++e) {
      const PiperEdge& edge = problem_.edges[e];
      const std::int64_t from = placeOf_[static_cast<std::size_t>(edge.from)],
                         to = placeOf_[static_cast<std::size_t>(edge.to)];
      CostTensor tensor{
          .name = graph.nodes[static_cast<std::size_t>(from)].name + "." + std::to_string(e), .from = from, .to = {to}};
      tensor.bytes = whole(carriedTwice(edge, way.degree, taken) / (2 * unit));
      graph.tensors.push_back(std::move(tensor));
    }
    return graph;
  }

  const PiperProblem& problem_;
  int between_ = 0;
  PiperMenus menus_;
  std::vector<std::int64_t> placeOf_; ///< in the graph, of each of the problem's nodes
};

} // namespace

Expected<PiperMenus> pdc::menusOf(const PiperProblem& problem, int between, Diagnostics& diags) {
  if (!checkPiperProblem(problem, diags)) return failure;
  return Import(problem, between).run(diags);
}

PiperMenus pdc::menusOfPlan(const PiperProblem& problem, const Plan& plan) {
  return Import(problem, 0).of(plan);
}

Partition pdc::partitionOf(const PiperMenus& menus, const Plan& plan) {
  Partition partition;
  for (const PlanStage& from : plan.stages) {
    PartitionStage stage;
    stage.replicas = from.replicas;
    stage.team = from.tensorParallel;
    while (menus.graph.in(stage.split).split.members != stage.team) ++stage.split;
    for (std::size_t v = 0; v < menus.nodes.size(); ++v)
      if (std::find(from.nodes.begin(), from.nodes.end(), menus.nodes[v]) != from.nodes.end())
        stage.nodes.push_back(static_cast<std::int64_t>(v));
    partition.stages.push_back(std::move(stage));
  }
  return partition;
}

/// The best choices of a stage, by their places, if there are such.
static std::vector<int> bestChoices(const PiperProblem& problem, const PiperInstance& instance, const NodeSet& nodes,
                                    const PlanStage& stage, std::int64_t inFlight) {
  const auto found = std::find(instance.tensorDegrees.begin(), instance.tensorDegrees.end(), stage.tensorParallel);
  if (found == instance.tensorDegrees.end()) return {};
  const auto degree = static_cast<std::size_t>(found - instance.tensorDegrees.begin());
  PiperMenu menu(instance, nodes, degree);
  if (!menu.isOffered()) return {};
  menu.setLimit(problem.memoryBytes, inFlight);
  if (menu.mostInFlight() < inFlight) return {};
  return PiperMenu::choose(instance, nodes, degree, problem.memoryBytes, stage.replicas, inFlight);
}

Plan pdc::piperPlanOf(const PiperProblem& problem, const PiperMenus& menus, const Plan& plan, bool chooses) {
  Plan result;
  result.model = result.costSource = problem.name;
  result.costModel = "piper";
  const std::optional<PiperInstance> instance = PiperInstance::make(problem, true);
  std::int64_t left = 0;
  for (const PlanStage& stage : plan.stages) left += stage.replicas;
  for (const PlanStage& from : plan.stages) {
    PlanStage stage;
    stage.replicas = from.replicas;
    stage.tensorParallel = from.split.members;
    int split = 0;
    while (menus.graph.in(split).split != from.split) ++split;
    const std::vector<std::size_t>& taken = menus.taken[static_cast<std::size_t>(split)];
    std::vector<std::pair<std::int64_t, std::size_t>> nodes;
    for (std::int64_t v : from.nodes)
      nodes.emplace_back(menus.nodes[static_cast<std::size_t>(v)], taken[static_cast<std::size_t>(v)]);
    std::sort(nodes.begin(), nodes.end());
    NodeSet set(problem.nodes.size());
    for (const auto& [node, place] : nodes) set.insert(static_cast<std::size_t>(node));
    const std::int64_t inFlight = (left + stage.replicas - 1) / stage.replicas;
    left -= stage.replicas;
    std::vector<int> best;
    if (chooses && instance) best = bestChoices(problem, *instance, set, stage, inFlight);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const PiperNode& node = problem.nodes[static_cast<std::size_t>(nodes[i].first)];
      stage.nodes.push_back(nodes[i].first);
      stage.nodeNames.push_back(node.name);
      stage.choices.push_back(
          node.choices.at(stage.tensorParallel)[best.empty() ? nodes[i].second : static_cast<std::size_t>(best[i])].id);
    }
    result.stages.push_back(std::move(stage));
  }
  result.timeMs = piperTimeOf(problem, result);
  return result;
}
