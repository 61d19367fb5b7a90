// Makes the gradient of a large parameter and that of the input which it met in one operation, so that the parameter is
// read once for both. Linear in the size of the graph.
#include "pdc/Stage/StagePasses.h"

#include "pdc/IR/Builder.h"
#include "pdc/Transforms/GraphUtilities.h"

using namespace pdc;

namespace {

/// Whether the gradient can be made in parts (KernelUse::partsMethod).
bool isMadeInParts(const Operation& maker) {
  return maker.phase == Phase::weightGradient && maker.def().rewrites.together &&
         maker.def().kernel.use(maker).partBytes > 0;
}

/// The only operation of the backward that reads the parameter; null: there is none, or several.
Operation* readerOf(const Graph& graph, const Parameter* parameter) {
  Operation* reader = nullptr;
  for (const Value* value : graph.parameterValues())
    if (value->parameter() == parameter)
      for (Operation* user : value->users()) {
        if (isForward(*user)) continue;
        if (reader) return nullptr;
        reader = user;
      }
  return reader && reader->phase == Phase::inputGradient ? reader : nullptr;
}

class Joining {
public:
  Joining(PassContext& context, Graph& stage)
      : graph_(stage), builder_(context.module, stage, context.registry, context.diags),
        positions_(positionsOf(stage)) {}

  Status run() {
    std::vector<std::pair<Operation*, Operation*>> pairs; // joining changes the outputs
    for (const GraphOutput& output : graph_.outputs) {
      Operation* const maker = output.kind == OutputKind::gradient ? output.value->definer() : nullptr;
      if (!maker || !isMadeInParts(*maker)) continue;
      Operation* const reader = readerOf(graph_, output.parameter);
      if (reader && isReadyBefore(*maker, *reader)) pairs.push_back({maker, reader});
    }
    for (const auto& [maker, reader] : pairs)
      if (!join(*maker, *reader)) return failure;
    return success;
  }

private:
  /// Whether all that `operation` reads is there where `place` is.
  bool isReadyBefore(const Operation& operation, const Operation& place) const {
    for (const Value* operand : operation.operands())
      if (operand && operand->definer() && positions_.at(operand->definer()) >= positions_.at(&place)) return false;
    return true;
  }

  Status join(Operation& maker, Operation& reader) {
    builder_.setInsertionPoint(&reader);
    builder_.setLocation(reader.location);
    builder_.setPhase(reader.phase, reader.origin());
    builder_.setGroup(reader.group);
    const std::size_t errors = builder_.diags().all().size();
    Operation* const made = maker.def().rewrites.together(maker, reader, builder_);
    if (!made) return builder_.diags().all().size() == errors ? success : Status(failure);
    made->stage = reader.stage;
    positions_[made] = positions_.at(&reader);
    std::vector<std::pair<Value*, std::string>> names;
    const auto replace = [&](Value* old, Value* by) {
      if (!old) return;
      graph_.replaceAllUses(old, by);
      names.emplace_back(by, old->name());
    };
    for (std::size_t i = 0; i < maker.results().size(); ++i) replace(maker.result(i), made->result(i));
    replace(reader.result(0), made->results().back());
    graph_.erase(&maker);
    graph_.erase(&reader);
    for (const auto& [value, name] : names) graph_.rename(value, name);
    return success;
  }

  Graph& graph_;
  Builder builder_;
  Positions positions_;
};

} // namespace

Status pdc::computeGradientsTogether(PassContext& context, Graph& stage) {
  return Joining(context, stage).run();
}
