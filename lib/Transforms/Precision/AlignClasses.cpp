// Rows of logits that begin at multiples of 16 bytes: tensor cores read others at a fraction of their speed, and a
// vocabulary of 50,257 words is usual. The layer that makes the logits gets some outputs more, zeros, which the loss
// ignores.
#include "pdc/Transforms/Precision.h"

#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"

using namespace pdc;

namespace {

/// What lies between a layer and a loss, which reads [positions, classes]: from the loss to the layer.
struct Logits {
  std::vector<Operation*> between; ///< views and conversions that leave the last axis alone
  Operation* layer = nullptr;      ///< null: they are made by something that cannot make a gap
};

bool leavesLastAxis(const Operation& operation) {
  if (!isForward(operation) || (operation.def().kind != OpKind::view && !onlyConverts(operation))) return false;
  const Shape &from = operation.operand(0)->type().shape, &to = operation.result()->type().shape;
  return !from.empty() && !to.empty() && from.back() == to.back();
}

Logits logitsReadBy(const Operation& loss) {
  Logits found;
  Operation* made = loss.operand(0)->definer();
  for (; made && leavesLastAxis(*made); made = made->operand(0)->definer()) found.between.push_back(made);
  if (made && made->def().rewrites.makeGap) found.layer = made;
  return found;
}

class Alignment {
public:
  Alignment(PassContext& context, Graph& graph)
      : graph_(graph), builder_(context.module, graph, context.registry, context.diags) {}

  Status align(Operation& loss, const Logits& logits, std::int64_t gap);

private:
  void at(const Operation& place);
  Value* again(const Operation& operation, Value* wider);
  void replace(Value* value, Value* by);

  Graph& graph_;
  Builder builder_;
};

} // namespace

void Alignment::at(const Operation& place) {
  builder_.setInsertionPoint(&place);
  builder_.setLocation(place.location);
}

void Alignment::replace(Value* value, Value* by) {
  const std::string name = value->name();
  graph_.replaceAllUses(value, by);
  graph_.rename(value, name + ".narrow");
  graph_.rename(by, name);
}

/// A view or a conversion of what has more elements on the last axis.
Value* Alignment::again(const Operation& operation, Value* wider) {
  at(operation);
  if (operation.def().kind != OpKind::view) return builder_.value(operation.def().name, {wider}, operation.attributes);
  Shape shape = operation.result()->type().shape;
  shape.back() = wider->type().shape.back();
  return builder_.value("reshape", {wider}, {{"shape", shape}});
}

/// Who else reads the logits reads what is in front of the gap.
Status Alignment::align(Operation& loss, const Logits& logits, std::int64_t gap) {
  at(*logits.layer);
  Value* wider = logits.layer->def().rewrites.makeGap(*logits.layer, gap, builder_);
  const Shape& shape = logits.layer->result()->type().shape;
  Value* narrow = wider ? builder_.value("slice", {wider},
                                         {{"starts", std::vector<std::int64_t>(shape.size(), 0)},
                                          {"sizes", shape},
                                          {"steps", std::vector<std::int64_t>(shape.size(), 1)}})
                        : nullptr;
  if (!narrow) return failure;
  graph_.replaceAllUses(logits.layer->result(), narrow);
  for (auto it = logits.between.rbegin(); it != logits.between.rend(); ++it)
    if (!(wider = again(**it, wider))) return failure;
  at(loss);
  const Operation* made = loss.def().rewrites.ignoreGap(loss, wider, builder_);
  if (!made) return failure;
  for (std::size_t i = 0; i < loss.results().size(); ++i)
    if (loss.result(i)) replace(loss.result(i), made->result(i));
  return success;
}

Status pdc::alignClasses(PassContext& context, double leastFlops) {
  constexpr std::int64_t packBytes = 16;
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  std::vector<Operation*> losses; // aligning changes the list
  for (const auto& operation : (*graph)->operations())
    if (isForward(*operation) && operation->def().rewrites.ignoreGap) losses.push_back(operation.get());
  for (Operation* loss : losses) {
    const Type& type = loss->operand(0)->type();
    const std::int64_t pack = packBytes / (type.bytes() / type.elements());
    const std::int64_t gap = (pack - type.shape.back() % pack) % pack;
    if (type.rank() != 2 || gap == 0) continue;
    const Logits logits = logitsReadBy(*loss);
    if (!logits.layer || costOf(*logits.layer).flops < leastFlops) continue;
    if (!Alignment(context, **graph).align(*loss, logits, gap)) return failure;
  }
  eraseDeadOperations(**graph);
  return success;
}
