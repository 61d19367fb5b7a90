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

/// An operation that puts rows into slots: X, the experts that are chosen, their slots.
struct Dispatch {
  Operation* operation = nullptr;
  const Value *experts = nullptr, *slots = nullptr; ///< [tokens, choices], or with groups before them
  SlotCount capacity;
};

std::vector<Dispatch> dispatchesOf(const Graph& graph, double factor) {
  std::vector<Dispatch> found;
  for (const auto& operation : graph.operations()) {
    const std::optional<std::size_t>& places = operation->def().split.places;
    if (!places || !operation->attributes.has(capacityAttribute)) continue;
    Dispatch dispatch{operation.get(), operation->operand(*places), operation->operand(*places + 1), {}};
    const Shape& choices = dispatch.experts->type().shape;
    const std::int64_t k = choices.back(), tokens = choices[choices.size() - 2],
                       experts = operation->attributes.getInt("experts");
    const double slots = factor * static_cast<double>(k * tokens) / static_cast<double>(experts);
    // An expert never has more than all choices; rounding of the factor makes no further slot.
    const double least = std::ceil(slots - 1e-9 * slots), most = static_cast<double>(k * tokens);
    dispatch.capacity = {.now = operation->attributes.getInt(capacityAttribute),
                         .then = static_cast<std::int64_t>(std::clamp(least, 1.0, most)),
                         .queue = k * tokens};
    found.push_back(dispatch);
  }
  return found;
}

/// Gives what lies between the slots and what fetches them their new size.
class Resizer {
public:
  Resizer(PassContext& context, Graph& graph) : context_(context), graph_(graph) {}

  Status resize(const Dispatch& dispatch) {
    const Value& slots = *dispatch.operation->result();
    const int axis = slots.type().rank() - 2;
    const LoopTable loops(graph_);
    // Divided into parts of one slot, the axis is found in all that follows, whatever it is merged with.
    const AxisClass along = classOf(loops, {{&slots, Form::split(axis, 1)}}, dispatch.capacity.now);
    for (const Value* value : along.values)
      if (value->parameter() || graph_.isOutput(value)) return refuse(dispatch, *value, "is a parameter or a result");
    for (const Value* value : along.values)
      for (const Operation* user : value->users())
        if (!follows(along, loops, *user, *value))
          return refuse(dispatch, *value, "is read by operation '" + user->def().name + "', which may need as many");
    for (const Value* value : along.values) {
      Type type = value->type();
      std::int64_t& size = type.shape[static_cast<std::size_t>(along.forms.at(value).axis)];
      size = size / dispatch.capacity.now * dispatch.capacity.then;
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

  Status refuse(const Dispatch& dispatch, const Value& value, const std::string& what) {
    return context_.diags.error({.file = {}, .node = "%" + value.name()})
               .exit(ExitCode::unsupported)
               .help("export the model with the capacity that it shall have")
           << toString(value.type()) << ", with the " << dispatch.capacity.now << " slots of each expert, " << what;
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

Status pdc::setCapacity(PassContext& context, double factor, std::vector<LayerCapacity>* layers) {
  const Expected<Graph*> main = mainGraph(context);
  if (!main) return failure;
  const std::vector<Dispatch> dispatches = dispatchesOf(**main, factor);
  if (dispatches.empty())
    return context.diags.error({.file = context.module.file})
               .exit(ExitCode::usage)
               .help("leave out the capacity, or see --emit=ir for what the layers have become")
           << "no layer deals out rows to experts by index";
  std::unordered_map<const Value*, SlotCount> places;
  for (const Dispatch& dispatch : dispatches)
    for (const Value* place : placesBehind(dispatch.slots))
      if (const auto [at, isNew] = places.emplace(place, dispatch.capacity); !isNew && at->second != dispatch.capacity)
        return context.diags.error(dispatch.operation->location)
                   .exit(ExitCode::unsupported)
                   .help("export the model with the capacity that it shall have")
               << "tokens have one place in layers with " << at->second.now << " and " << dispatch.capacity.now
               << " slots for each expert";
  if (layers)
    for (const LayerWithLoads& layer : layersWithLoads(context.module, **main))
      for (const Dispatch& dispatch : dispatches)
        if (dispatch.operation == layer.operation)
          layers->push_back({layer.name, dispatch.capacity.now, dispatch.capacity.then});
  if (!takeOtherCapacity(context, **main, places)) return failure;
  for (const Dispatch& dispatch : dispatches) {
    if (!Resizer(context, **main).resize(dispatch)) return failure;
    dispatch.operation->attributes.set(capacityAttribute, dispatch.capacity.then);
  }
  return success;
}
