// Chooses which values have their channels in blocks (Type.h).
//
// Convolutions compute on blocks and copy whatever has another layout, in every call. Values that an operation needs in
// one layout (operands and results of an addition, a pooling, a normalisation) are decided together: they are put in
// blocks where that saves convolutions more bytes of copies than it costs between them and operations that know plain
// layouts only. The whole training graph is decided, so that no cut changes a bit.
#include "pdc/Transforms/Transforms.h"

#include "GraphUtilities.h"

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
  LayoutChoice(PassContext& context, Graph& graph)
      : diags_(context.diags), remarks_(context.options.contains("remarks")), graph_(graph),
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
  Value* rootOf(Value* value);
  void decide(const Operation& operation);
  void apply(Value* value);
  Value* relayout(Value* value, const Operation& before);

  Diagnostics& diags_;
  const bool remarks_;
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

Value* LayoutChoice::rootOf(Value* value) {
  Value*& parent = choices_.at(value).parent;
  return parent == value ? value : parent = rootOf(parent);
}

void LayoutChoice::decide(const Operation& operation) {
  const ChannelBlocks blocks = channelBlocksOf(operation);
  std::unordered_set<const Value*>& known = known_[&operation];
  const bool possible =
      blocks.apart || std::all_of(blocks.values.begin(), blocks.values.end(), [&](const Value* value) {
        return mayChange(value) || isInEitherLayout(value->type());
      });
  if (possible) known.insert(blocks.values.begin(), blocks.values.end());
  Value* first = nullptr;
  const auto visit = [&](Value* value, bool isResult) {
    if (!mayChange(value)) return;
    Choice& choice = choices_.at(value);
    const bool takesBlocks = known.contains(value);
    if (isResult)
      choice.plainAtFirst = !takesBlocks;
    else
      (takesBlocks ? choice.blocks : choice.plain).insert({operation.group, operation.phase});
    if (!takesBlocks) return;
    if (blocks.apart)
      choice.savedBytes += value->type().bytes();
    else if (first)
      choices_.at(rootOf(value)).parent = rootOf(first);
    else
      first = value;
  };
  for (Value* operand : operation.operands()) visit(operand, false);
  for (Value* result : operation.results()) visit(result, true);
}

/// A copy of `value` in the other layout.
Value* LayoutChoice::relayout(Value* value, const Operation& before) {
  const bool toPlain = value->type().layout != plain;
  Type type = value->type();
  type.layout = toPlain ? plain : channelsInBlocks;
  Operation* copy = graph_.addOperation(relayout_, {value}, {&type}, {}, before.location, &before,
                                        {value->name() + (toPlain ? ".plain" : ".blocks")});
  copy->phase = before.phase;
  copy->origin = before.origin;
  copy->group = before.group;
  if (remarks_)
    diags_.remark(before.location) << "'" << before.def().name << "' reads '%" << value->name() << "' "
                                   << (toPlain ? "row-major" : "in blocks of channels") << ", it is made "
                                   << (toPlain ? "in blocks of channels" : "row-major") << ": a copy of "
                                   << sizeText(type.bytes());
  return copy->result();
}

/// Puts `value` in blocks. Where one layout is made and the other one read, a group's first reader copies for all.
void LayoutChoice::apply(Value* value) {
  const bool plainAtFirst = choices_.at(value).plainAtFirst;
  if (!plainAtFirst) {
    Type type = value->type();
    type.layout = channelsInBlocks;
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

Status pdc::chooseLayouts(PassContext& context) {
  for (const auto& graph : context.module.graphs) LayoutChoice(context, *graph).run();
  return success;
}
