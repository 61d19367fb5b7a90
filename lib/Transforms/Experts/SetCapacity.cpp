#include "pdc/Transforms/Capacity.h"

#include "Experts/SlotFormulas.h"
#include "Loss/Loads.h"
#include "Split/AxisClasses.h"
#include "pdc/IR/OpDef.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>
#include <cmath>

using namespace pdc;

namespace {

constexpr const char* capacityAttribute = "capacity";

SlotCount countOf(const SlotsOfExperts& slots, std::int64_t then) {
  return {.now = slots.capacity, .then = then, .queue = slots.choices};
}

std::int64_t capacityOf(const SlotsOfExperts& slots, double factor) {
  const double wanted = factor * static_cast<double>(slots.choices) / static_cast<double>(slots.count);
  const double least = std::ceil(wanted - 1e-9 * wanted); // the factor's rounding makes no further slot
  return static_cast<std::int64_t>(std::clamp(least, 1.0, static_cast<double>(slots.choices)));
}

/// Gives what lies between the slots and what fetches them their new size.
class Resizer {
public:
  Resizer(PassContext& context, Graph& graph) : context_(context), graph_(graph) {}

  Status resize(const SlotsOfExperts& dispatch, std::int64_t capacity) {
    const Value& slots = *dispatch.operation->result();
    const int axis = slots.type().rank() - 2;
    const LoopTable loops(graph_);
    // Divided into parts of one slot, the axis is found in all that follows, whatever it is merged with.
    const AxisClass along = classOf(loops, {{&slots, Form::split(axis, 1)}}, dispatch.capacity);
    for (const Value* value : along.values)
      if (value->parameter() || graph_.isOutput(value)) return refuse(dispatch, *value, "is a parameter or a result");
    for (const Value* value : along.values)
      for (const Operation* user : value->users())
        if (!follows(along, loops, *user, *value))
          return refuse(dispatch, *value, "is read by operation '" + user->def().name + "', which may need as many");
    for (const Value* value : along.values) {
      Type type = value->type();
      std::int64_t& size = type.shape[static_cast<std::size_t>(along.forms.at(value).axis)];
      size = size / dispatch.capacity * capacity;
      const_cast<Value*>(value)->setType(type); // of this graph
    }
    for (const auto& operation : graph_.operations())
      if (operation->result(0) && along.forms.contains(operation->result(0))) restate(*operation);
    return success;
  }

private:
  /// Whether an operation computes each slot by itself, or fetches rows from slots.
  static bool follows(const AxisClass& along, const LoopTable& loops, const Operation& user, const Value& value) {
    if (user.def().split.places) return true;
    const auto division = along.divisions.find(&user);
    if (division == along.divisions.end()) return false;
    for (std::size_t i = 0; i < user.operands().size(); ++i)
      if (user.operand(i) == &value && formOfOperand(loops.of(user), i, division->second) != along.forms.at(&value))
        return false;
    return true;
  }

  Status refuse(const SlotsOfExperts& dispatch, const Value& value, const std::string& what) {
    return context_.diags.error({.file = {}, .node = "%" + value.name()})
               .exit(ExitCode::unsupported)
               .help("export the model with the capacity that it shall have")
           << toString(value.type()) << ", with the " << dispatch.capacity << " slots of each expert, " << what;
  }

  /// The attributes that state shapes.
  static void restate(Operation& operation) {
    for (const AttributeDef& attribute : operation.def().attributes)
      if (attribute.shapeOfResult >= 0)
        operation.attributes.set(attribute.name,
                                 operation.result(static_cast<std::size_t>(attribute.shapeOfResult))->type().shape);
  }

  PassContext& context_;
  Graph& graph_;
};

} // namespace

std::vector<SlotsOfExperts> pdc::slotsOfExperts(const Graph& graph) {
  std::vector<SlotsOfExperts> found;
  for (const auto& operation : graph.operations()) {
    const std::optional<std::size_t>& places = operation->def().split.places;
    if (!places || !operation->attributes.has(capacityAttribute)) continue;
    const Value* const experts = operation->operand(*places);
    const Shape& choices = experts->type().shape;
    found.push_back({.operation = operation.get(),
                     .experts = experts,
                     .slots = operation->operand(*places + 1),
                     .count = operation->attributes.getInt("experts"),
                     .capacity = operation->attributes.getInt(capacityAttribute),
                     .choices = choices.back() * choices[choices.size() - 2]});
  }
  return found;
}

Status pdc::setCapacity(PassContext& context, const std::vector<std::int64_t>& capacities,
                        std::vector<LayerCapacity>* layers) {
  const Expected<Graph*> main = mainGraph(context);
  if (!main) return failure;
  const std::vector<SlotsOfExperts> dispatches = slotsOfExperts(**main);
  std::unordered_map<const Value*, SlotCount> places;
  for (std::size_t i = 0; i < dispatches.size(); ++i)
    for (const Value* place : placesBehind(dispatches[i].slots)) {
      const SlotCount count = countOf(dispatches[i], capacities[i]);
      if (const auto [at, isNew] = places.emplace(place, count); !isNew && at->second != count)
        return context.diags.error(dispatches[i].operation->location)
                   .exit(ExitCode::unsupported)
                   .help("export the model with the capacity that it shall have")
               << "tokens have one place in layers with " << at->second.now << " and " << count.now
               << " slots for each expert";
    }
  if (layers)
    for (const LayerWithLoads& layer : layersWithLoads(context.module, **main))
      for (std::size_t i = 0; i < dispatches.size(); ++i)
        if (dispatches[i].operation == layer.operation)
          layers->push_back({layer.name, dispatches[i].capacity, capacities[i]});
  if (!takeOtherCapacity(context, **main, places)) return failure;
  for (std::size_t i = 0; i < dispatches.size(); ++i) {
    if (!Resizer(context, **main).resize(dispatches[i], capacities[i])) return failure;
    dispatches[i].operation->attributes.set(capacityAttribute, capacities[i]);
  }
  return success;
}

Status pdc::setCapacity(PassContext& context, double factor, std::vector<LayerCapacity>* layers) {
  const Expected<Graph*> main = mainGraph(context);
  if (!main) return failure;
  std::vector<std::int64_t> capacities;
  for (const SlotsOfExperts& slots : slotsOfExperts(**main)) capacities.push_back(capacityOf(slots, factor));
  if (capacities.empty())
    return context.diags.error({.file = context.module.file})
               .exit(ExitCode::usage)
               .help("leave out the capacity, or see --emit=ir for what the layers have become")
           << "no layer deals out rows to experts by index";
  return setCapacity(context, capacities, layers);
}

std::string pdc::toText(const LayerCapacity& layer) {
  return "experts of '" + layer.name + "' have " + std::to_string(layer.after) + " slots each, " +
         std::to_string(layer.before) + " in the file";
}
