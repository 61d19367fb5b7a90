// Chooses which values have their channels in blocks, for the CPU, or last, for CUDA (Type.h).
//
// Convolutions compute on such values and copy whatever has another layout, in every call. Values that an operation
// needs in one layout (operands and results of an addition, a pooling, a normalisation) are decided together: they are
// put in blocks where that saves convolutions more bytes of copies than it costs between them and operations that know
// plain layouts only. The whole training graph is decided, so that no cut changes a bit.
//
// Parameters that are the filter of one convolution lie in blocks as well, with their gradient, where all who read and
// make them take blocks. Files have them row-major; the runtime converts.
#include "pdc/Transforms/Transforms.h"

#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Layouts.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

using namespace pdc;

namespace {

class LayoutChoice {
public:
  LayoutChoice(PassContext& context, Graph& graph, Layout layout)
      : diags_(context.diags), remarks_(context.options.contains("remarks")), layout_(layout), graph_(graph),
        relayout_(*context.registry.find("relayout")), positions_(positionsOf(graph)) {}
  void run();

private:
  /// Operations that can share a copy: a value crosses between groups in the layout that it is made in.
  using Bucket = std::pair<int, Phase>;

  struct Choice {
    Value* parent = nullptr;        ///< towards the root of the values that have one layout
    std::int64_t savedBytes = 0;    ///< by blocks, in operations that copy what is plain
    bool plainAtFirst = false;      ///< its definer knows plain layouts only
    std::set<Bucket> plain, blocks; ///< where it is read by operations that know plain layouts only, and by others
  };

  bool mayChange(const Value* value) const;
  bool takes(const ChannelBlocks& blocks) const;
  const char* layoutName() const { return layout_ == channelsLast ? "channels last" : "in blocks of channels"; }
  Value* rootOf(Value* value);
  void decide(const Operation& operation);
  void apply(Value* value);
  Value* relayout(Value* value, const Operation& before);

  Diagnostics& diags_;
  const bool remarks_;
  const Layout layout_; ///< of what is not plain
  Graph& graph_;
  const OpDef& relayout_;
  const Positions positions_;
  std::unordered_map<const Value*, Choice> choices_;
  std::vector<Value*> order_; ///< of `choices_`, in program order
  std::unordered_set<const Value*> outputs_;
  std::unordered_map<const Operation*, std::unordered_set<const Value*>> known_; ///< values that may be in blocks
};

} // namespace

/// Inputs and outputs of the graph, and parameters, are plain.
bool LayoutChoice::mayChange(const Value* value) const {
  return value && value->definer() && fitsChannelBlocks(value->type()) && value->type().layout == plain &&
         !outputs_.contains(value);
}

/// Whether an operation takes the layout. Channels last are other places for values with other numbers of channels.
bool LayoutChoice::takes(const ChannelBlocks& blocks) const {
  if (layout_ != channelsLast || (blocks.apart && blocks.last)) return true;
  return blocks.last && std::all_of(blocks.values.begin(), blocks.values.end(), [&](const Value* value) {
           return value->type().rank() == 4 && value->type().shape[1] == blocks.values.front()->type().shape[1];
         });
}

Value* LayoutChoice::rootOf(Value* value) {
  Value*& parent = choices_.at(value).parent;
  return parent == value ? value : parent = rootOf(parent);
}

void LayoutChoice::decide(const Operation& operation) {
  const ChannelBlocks blocks = channelBlocksOf(operation);
  std::unordered_set<const Value*>& known = known_[&operation];
  const auto mayAllChange = [&](const std::vector<const Value*>& values) {
    return std::all_of(values.begin(), values.end(),
                       [&](const Value* value) { return mayChange(value) || isInEitherLayout(value->type()); });
  };
  if (takes(blocks) && (blocks.apart || mayAllChange(blocks.values)))
    known.insert(blocks.values.begin(), blocks.values.end());
  if (!mayAllChange(blocks.alike))
    for (const Value* value : blocks.alike) known.erase(value);
  Value* first = nullptr;
  const auto goesWith = [&](Value* value) {
    if (first) choices_.at(rootOf(value)).parent = rootOf(first);
    first = value;
  };
  const auto visit = [&](Value* value, bool isResult) {
    if (!mayChange(value)) return;
    Choice& choice = choices_.at(value);
    const bool takesBlocks = known.contains(value);
    if (isResult)
      choice.plainAtFirst = !takesBlocks;
    else
      (takesBlocks ? choice.blocks : choice.plain).insert({operation.group, operation.phase});
    if (!takesBlocks) return;
    if (blocks.apart) choice.savedBytes += value->type().bytes();
    if (!blocks.apart || std::find(blocks.alike.begin(), blocks.alike.end(), value) != blocks.alike.end())
      goesWith(value);
  };
  for (Value* operand : operation.operands()) visit(operand, false);
  for (Value* result : operation.results()) visit(result, true);
}

/// A copy of `value` in the other layout.
Value* LayoutChoice::relayout(Value* value, const Operation& before) {
  const bool toPlain = value->type().layout != plain;
  Type type = value->type();
  type.layout = toPlain ? plain : layout_;
  Operation* copy = graph_.addOperation(relayout_, {value}, {&type}, {}, before.location, &before,
                                        {value->name() + (toPlain                   ? ".plain"
                                                          : layout_ == channelsLast ? ".last"
                                                                                    : ".blocks")});
  copy->phase = before.phase;
  copy->setOrigin(before.origin());
  copy->group = before.group;
  if (remarks_)
    diags_.remark(before.location) << "'" << before.def().name << "' reads '%" << value->name() << "' "
                                   << (toPlain ? "row-major" : layoutName()) << ", it is made "
                                   << (toPlain ? layoutName() : "row-major") << ": a copy of "
                                   << sizeText(type.bytes());
  return copy->result();
}

/// Puts `value` in blocks. Where one layout is made and the other one read, a group's first reader copies for all.
void LayoutChoice::apply(Value* value) {
  const bool plainAtFirst = choices_.at(value).plainAtFirst;
  if (!plainAtFirst) {
    Type type = value->type();
    type.layout = layout_;
    value->setType(type);
  }
  std::map<std::size_t, Operation*> readers; // by position, each once
  for (Operation* user : value->users())
    if (known_.at(user).contains(value) == plainAtFirst) readers[positions_.at(user)] = user;
  std::map<Bucket, Value*> copies;
  for (const auto& [position, reader] : readers) {
    Value*& copy = copies[{reader->group, reader->phase}];
    if (!copy) copy = relayout(value, *reader);
    for (std::size_t i = 0; i < reader->operands().size(); ++i)
      if (reader->operand(i) == value) reader->setOperand(i, copy);
  }
}

void LayoutChoice::run() {
  for (const GraphOutput& output : graph_.outputs) outputs_.insert(output.value);
  for (const auto& operation : graph_.operations())
    for (Value* result : operation->results())
      if (mayChange(result)) {
        choices_[result].parent = result;
        order_.push_back(result);
      }
  for (const auto& operation : graph_.operations()) decide(*operation);

  std::unordered_map<const Value*, std::int64_t> gains;
  for (Value* value : order_) {
    const Choice& choice = choices_.at(value);
    const std::size_t copies = (choice.plainAtFirst ? choice.blocks : choice.plain).size();
    gains[rootOf(value)] += choice.savedBytes - static_cast<std::int64_t>(copies) * value->type().bytes();
  }
  for (Value* value : order_)
    if (gains.at(rootOf(value)) > 0) apply(value);
}

namespace {

/// Parameters, and what else gets their layout.
class FilterChoice {
public:
  explicit FilterChoice(PassContext& context)
      : diags_(context.diags), remarks_(context.options.contains("remarks")), module_(context.module) {}
  void run();

private:
  struct Filter {
    std::vector<Value*> values;       ///< the parameter in each graph, and its gradients
    const Operation* taker = nullptr; ///< one that takes blocks
    std::string why;                  ///< the parameter stays row-major all the same
  };

  static void lookAt(Filter& filter, const Operation& operation, const Value* value);
  void read(const Graph& graph);

  Diagnostics& diags_;
  const bool remarks_;
  Module& module_;
  std::unordered_map<const Parameter*, Filter> filters_; ///< those whose shape has blocks
};

} // namespace

void FilterChoice::lookAt(Filter& filter, const Operation& operation, const Value* value) {
  const std::vector<const Value*> taken = filterBlocksOf(operation);
  const auto& operands = operation.operands();
  const bool takesBlocks = std::find(taken.begin(), taken.end(), value) != taken.end() &&
                           std::count(operands.begin(), operands.end(), value) <= 1; // not as values to convolve, too
  if (takesBlocks)
    filter.taker = &operation;
  else
    filter.why = "'" + operation.def().name + "' takes it row-major only";
}

void FilterChoice::read(const Graph& graph) {
  for (Value* value : graph.parameterValues()) {
    if (!fitsFilterBlocks(value->type()) || value->type().layout != plain) continue;
    Filter& filter = filters_[value->parameter()];
    filter.values.push_back(value);
    std::set<const Operation*> layers;
    for (const Operation* user : value->users()) {
      lookAt(filter, *user, value);
      layers.insert(&user->forwardOperation());
    }
    // Stages send each other parameters that they share, and their gradients, as files have them.
    if (layers.size() > 1 && filter.why.empty()) filter.why = std::to_string(layers.size()) + " layers share it";
  }
  for (const GraphOutput& output : graph.outputs) {
    if (const auto returned = filters_.find(output.value->parameter()); returned != filters_.end())
      returned->second.why = "it is an output";
    const auto found = filters_.find(output.parameter);
    if (found == filters_.end()) continue;
    found->second.values.push_back(output.value);
    if (output.value->definer()) lookAt(found->second, *output.value->definer(), output.value);
    for (const Operation* user : output.value->users()) lookAt(found->second, *user, output.value);
  }
}

void FilterChoice::run() {
  for (const auto& graph : module_.graphs) read(*graph);
  for (const auto& parameter : module_.parameters) {
    const auto found = filters_.find(parameter.get());
    if (found == filters_.end() || !found->second.taker) continue;
    const Filter& filter = found->second;
    if (filter.why.empty()) {
      parameter->type.layout = filterInBlocks;
      for (Value* value : filter.values) value->setType(parameter->type);
    } else if (remarks_) {
      diags_.remark(filter.taker->location) << "'" << filter.taker->def().name << "' copies its filter '%"
                                            << parameter->name << "' into blocks in every call: " << filter.why;
    }
  }
}

Status pdc::chooseLayouts(PassContext& context) {
  const Layout layout = context.options.contains("last") ? channelsLast : channelsInBlocks;
  if (layout == channelsInBlocks) FilterChoice(context).run();
  for (const auto& graph : context.module.graphs) LayoutChoice(context, *graph, layout).run();
  return success;
}
