#include "Split/ReorderExperts.h"

#include "Loss/Loads.h"
#include "Split/SplitExperts.h"
#include "pdc/IR/Builder.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>
#include <set>

using namespace pdc;

namespace {

class ExpertPlacer {
public:
  ExpertPlacer(PassContext& context, Graph& graph, std::int64_t members)
      : context_(context), graph_(graph), loops_(graph), experts_(expertClasses(graph, loops_, members)) {}

  const std::vector<ExpertClass>& classes() const { return experts_.classes; }
  /// How many experts the class has; 0: its parameters differ in that.
  static std::int64_t expertsOf(const ExpertClass& experts);
  /// The layers that bring rows to these experts.
  std::vector<std::string> layersOf(const ExpertClass& experts, const std::vector<LayerWithLoads>& all) const;
  /// Why the experts cannot lie in another order; empty: they can.
  std::string problemOf(const ExpertClass& experts) const;
  Status place(const ExpertClass& experts, const std::vector<std::int32_t>& order);

private:
  bool isBorder(const ExpertClass& experts, const Operation& operation) const;
  std::string problemOf(const ExpertClass& experts, const Operation& operation) const;
  bool isKnown(const ExpertClass& experts, const Operation* operation) const {
    return operation && (experts.divided.contains(operation) || isBorder(experts, *operation));
  }
  Status lookUp(Operation& operation, const std::vector<std::int32_t>& order);

  PassContext& context_;
  Graph& graph_;
  const LoopTable loops_;
  const ExpertClasses experts_;
};

std::int64_t ExpertPlacer::expertsOf(const ExpertClass& experts) {
  std::int64_t count = 0;
  for (const auto& [parameter, form] : experts.parameters) {
    const std::int64_t size = parameter->type().shape[static_cast<std::size_t>(form.axis)];
    if (form.blocks != 1 || form.padded != 0 || (count != 0 && size != count)) return 0;
    count = size;
  }
  return count;
}

/// Whether the operation moves rows to these experts, or from them, by integers that choose them.
bool ExpertPlacer::isBorder(const ExpertClass& experts, const Operation& operation) const {
  const std::optional<std::size_t>& places = operation.def().split.places;
  const auto division = experts.along.divisions.find(&operation);
  if (!places || division == experts.along.divisions.end()) return false;
  const Loops& loops = loops_.of(operation);
  const int index = division->second.index;
  const auto& ofPlaces = loops.operands[*places];
  return loops.inOneBlock[static_cast<std::size_t>(index)] && division->second.blocks == 1 &&
         std::none_of(ofPlaces.begin(), ofPlaces.end(), [&](const LoopRun& run) { return run.index == index; });
}

std::vector<std::string> ExpertPlacer::layersOf(const ExpertClass& experts,
                                                const std::vector<LayerWithLoads>& all) const {
  std::vector<std::string> names;
  for (const LayerWithLoads& layer : all)
    if (isBorder(experts, *layer.operation)) names.push_back(layer.name);
  return names;
}

/// Everything that has an axis of the experts must have it in the same order.
std::string ExpertPlacer::problemOf(const ExpertClass& experts, const Operation& operation) const {
  const Division& division = experts.along.divisions.at(&operation);
  const Loops& loops = loops_.of(operation);
  if (operation.def().facts.random) return "'" + describe(operation) + "' draws numbers by the place of an element";
  for (std::size_t i = 0; i < operation.operands().size(); ++i) {
    const Value* operand = operation.operand(i);
    if (!operand || !formOfOperand(loops, i, division).isSplit() || experts.parameters.contains(operand)) continue;
    if (!isKnown(experts, operand->definer()))
      return "'" + describe(operation) + "' reads '" + operand->name() + "' in the order of the file";
  }
  for (std::size_t i = 0; i < operation.results().size(); ++i) {
    const Value* result = operation.result(i);
    if (!result || !formOfResult(loops, i, division).isSplit()) continue;
    for (const Operation* user : result->users())
      if (!isKnown(experts, user))
        return "'" + describe(*user) + "' reads '" + result->name() + "' in the order of the file";
    for (const GraphOutput& output : graph_.outputs) {
      const bool isOwn = output.kind == OutputKind::gradient || output.kind == OutputKind::state;
      const auto isOf = [&](const auto& each) { return each.first->parameter() == output.parameter; };
      if (output.value == result &&
          (!isOwn || std::none_of(experts.parameters.begin(), experts.parameters.end(), isOf)))
        return "'" + result->name() + "' leaves the graph in the order of the file";
    }
  }
  return "";
}

std::string ExpertPlacer::problemOf(const ExpertClass& experts) const {
  if (expertsOf(experts) == 0) return "its parameters have axes of different sizes";
  for (const auto& operation : graph_.operations())
    if (isKnown(experts, operation.get()))
      if (const std::string problem = problemOf(experts, *operation); !problem.empty()) return problem;
  return "";
}

/// Before the operation, in its group and phase: integers that name an expert become those that name its place.
Status ExpertPlacer::lookUp(Operation& operation, const std::vector<std::int32_t>& order) {
  Builder builder(context_.module, graph_, context_.registry, context_.diags);
  builder.setInsertionPoint(&operation);
  builder.setLocation(operation.location);
  builder.setGroup(operation.group);
  builder.setPhase(operation.phase, operation.origin());
  const std::size_t at = *operation.def().split.places;
  const std::string count = std::to_string(order.size());
  // Behind the places of the experts lies none: that of all other integers.
  std::vector<std::int64_t> places(order.size() + 1, -1);
  for (std::size_t i = 0; i < order.size(); ++i)
    places[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  Value* chosen =
      builder.value("elementwise", {operation.operand(at)},
                    {{"expressions", std::vector{"select(a0 < 0 || a0 >= " + count + ", " + count + ", a0)"}}});
  Value* table = builder.constant(Tensor::ofInts({static_cast<std::int64_t>(places.size())}, places));
  Value* placed = chosen && table ? builder.value("gather", {table, chosen}) : nullptr;
  if (!placed) return failure;
  // An evaluation has the same values as its training by the same names.
  const Value* named = operation.result(0);
  graph_.rename(chosen, named->name() + ".chosen");
  graph_.rename(table, named->name() + ".places");
  graph_.rename(placed, named->name() + ".placed");
  for (const Value* made : {chosen, table, placed}) made->definer()->again = operation.again;
  operation.setOperand(at, placed);
  return success;
}

Status ExpertPlacer::place(const ExpertClass& experts, const std::vector<std::int32_t>& order) {
  std::vector<Operation*> border;
  for (const auto& operation : graph_.operations())
    if (isBorder(experts, *operation)) border.push_back(operation.get());
  for (Operation* operation : border)
    if (!lookUp(*operation, order)) return failure;
  return success;
}

} // namespace

std::unique_ptr<Graph> pdc::reorderExperts(PassContext& context, const Graph& graph, const SplitOptions& options,
                                           ExpertOrders& orders, std::vector<PlacedLayer>& placed) {
  std::unique_ptr<Graph> made = clone(graph, graph.name());
  ExpertPlacer placer(context, *made, options.members);
  const std::vector<LayerWithLoads> layers = layersWithLoads(context.module, *made);
  std::set<std::string> known;
  for (const LayerWithLoads& layer : layers) known.insert(layer.name);
  for (const auto& [name, order] : options.orders)
    if (!known.contains(name)) {
      context.diags.error({.node = name}).exit(ExitCode::usage).help("take the loads of a run of this model")
          << "no layer of experts has this name, and there are loads of it";
      return nullptr;
    }
  for (const ExpertClass& experts : placer.classes()) {
    const std::vector<std::string> names = placer.layersOf(experts, layers);
    if (names.size() > 1)
      for (const std::string& name : names)
        placed.push_back({.name = name, .why = "other layers have its experts, too"});
    if (names.size() != 1) continue;
    PlacedLayer& told = placed.emplace_back(PlacedLayer{.name = names.front(), .why = ""});
    const auto order = options.orders.find(names.front());
    if (order == options.orders.end())
      told.why = "it has no loads";
    else
      told.why = placer.problemOf(experts);
    if (!told.why.empty()) continue;
    if (const std::int64_t count = ExpertPlacer::expertsOf(experts);
        count != static_cast<std::int64_t>(order->second.size())) {
      context.diags.error({.node = told.name}).exit(ExitCode::usage).help("take the loads of a run of this model")
          << "the layer has " << count << " experts, and there are loads of " << order->second.size();
      return nullptr;
    }
    if (!placer.place(experts, order->second)) return nullptr;
    for (const auto& [parameter, form] : experts.parameters) orders.emplace(parameter->parameter(), order->second);
  }
  for (const auto& [name, order] : options.orders)
    if (std::none_of(placed.begin(), placed.end(), [&](const PlacedLayer& told) { return told.name == name; }))
      placed.push_back({.name = name, .why = "members do not divide its experts"});
  return made;
}

std::unique_ptr<Graph> pdc::reorderExpertsAs(PassContext& context, const Graph& graph, std::int64_t members,
                                             const ExpertOrders& orders) {
  std::unique_ptr<Graph> made = clone(graph, graph.name());
  ExpertPlacer placer(context, *made, members);
  std::set<const Parameter*> left;
  for (const Value* value : made->parameterValues())
    if (orders.contains(value->parameter())) left.insert(value->parameter());
  for (const ExpertClass& experts : placer.classes()) {
    const Parameter* const first = experts.parameters.begin()->first->parameter();
    const auto order = orders.find(first);
    if (order == orders.end()) continue;
    const std::string problem = placer.problemOf(experts);
    if (!problem.empty()) {
      context.diags.error({.node = "@" + graph.name()}).exit(ExitCode::internal)
          << "experts that a training places cannot be placed here: " << problem;
      return nullptr;
    }
    if (!placer.place(experts, order->second)) return nullptr;
    for (const auto& [parameter, form] : experts.parameters) left.erase(parameter->parameter());
  }
  if (left.empty()) return made;
  context.diags.error({.node = "@" + graph.name()}).exit(ExitCode::internal)
      << "parameter '" << (*left.begin())->name << "', which a training places, is no expert's here";
  return nullptr;
}
