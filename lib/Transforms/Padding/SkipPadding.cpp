// Leaves out rows of linear layers that belong to padded positions.
//
// Texts of a minibatch are padded to one length, and a mask, an input of the model, says where. Exporters hide padded
// keys from attention by scores that are added, and take padded positions out of a mean by products with the mask.
// Where it follows that the rows of a layer's result at padded positions have no readers, the layer computes the others
// only (OpRewrites::ofRows). A sample is computed as a whole where the mask is 1 at none of its positions: all of its
// keys may be hidden, and then they have equal weights.
#include "pdc/Transforms/Transforms.h"

#include "Padding/UnreadRows.h"

#include "pdc/IR/Builder.h"
#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>
#include <charconv>
#include <map>

using namespace pdc;

namespace {

/// The layers of a graph for which an input is the mask.
struct MaskedLayers {
  Value* mask = nullptr;
  std::vector<Operation*> layers;
  std::set<std::int64_t> read;
};

/// Fewer inputs or outputs, or rows in all: copies take too much of the time of the product.
Expected<std::int64_t> leastOf(const PassContext& context) {
  const auto option = context.options.find("least");
  if (option == context.options.end()) return 64;
  const std::string& text = option->second;
  std::int64_t least = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), least);
  if (problem != std::errc() || end != text.data() + text.size() || least < 1)
    return context.diags.error({}).exit(ExitCode::usage)
           << "skip-padding: expected 'least' from 1 on, got '" << text << "'";
  return least;
}

MaskedLayers layersOf(const Graph& graph, Value& mask, std::int64_t least, PassContext& context) {
  MaskedLayers found{.mask = &mask};
  UnreadRows rows(graph, mask, context);
  for (const auto& operation : graph.operations()) {
    if (!isForward(*operation) || !operation->def().rewrites.ofRows) continue;
    const Shape& x = operation->operand(0)->type().shape;
    if (x.size() != 3 || x[0] != mask.type().shape[0] || x[1] != mask.type().shape[1]) continue;
    if (x[0] * x[1] < least || x[2] < least || operation->result()->type().shape.back() < least) continue;
    if (rows.of(*operation->result(), {})) found.layers.push_back(operation.get());
  }
  found.read = rows.read();
  return found;
}

/// f32 [samples, positions], not 0 where a row counts.
Value* liveRows(const MaskedLayers& masked, Builder& b) {
  const Type& type = masked.mask->type();
  const std::int64_t positions = type.shape[1];
  std::vector<double> read(static_cast<std::size_t>(positions), 0);
  for (std::int64_t position : masked.read) read[static_cast<std::size_t>(position)] = 1;
  Value* counts = type.element == ElementType::boolean
                      ? masked.mask
                      : b.value("not_equal", {masked.mask, b.constant(0, type.element)});
  Value* seen =
      type.element == ElementType::boolean ? masked.mask : b.value("equal", {masked.mask, b.constant(1, type.element)});
  Value *const one = b.constant(1), *const zero = b.constant(0);
  if (counts) counts = b.value("where", {counts, one, zero});
  if (seen) seen = b.value("where", {seen, one, zero});
  if (!counts || !seen) return nullptr;
  Value* most = b.value("reduce_max", {seen}, {{"axes", std::vector<std::int64_t>{1}}, {"keep_dims", true}});
  Value* always = b.constant(Tensor::ofFloats({1, positions}, read));
  return most ? b.value("elementwise", {counts, always, most},
                        {{"expressions", std::vector<std::string>{"select(a2 == 0, 1, max(a0, a1))"}}})
              : nullptr;
}

Status rewrite(Graph& graph, const MaskedLayers& masked, PassContext& context) {
  Builder b(context.module, graph, context.registry, context.diags);
  const auto standAt = [&](const Operation& layer) {
    b.setInsertionPoint(&layer);
    b.setLocation(layer.location);
    b.setGroup(layer.group);
  };
  // Each fusion group makes its own from the input, so that nothing more crosses between stages.
  std::map<int, Value*> liveOf;
  for (Operation* layer : masked.layers) {
    standAt(*layer);
    Value*& live = liveOf[layer->group];
    if (!live) live = liveRows(masked, b);
    if (!live) return failure;
    Value* made = layer->def().rewrites.ofRows(*layer, live, b);
    if (!made) continue;
    Value* result = layer->result();
    const std::string name = result->name();
    graph.replaceAllUses(result, made);
    layer->giveDerivedTo(*made->definer());
    graph.erase(layer);
    graph.rename(made, name);
  }
  return success;
}

} // namespace

Status pdc::skipPadding(PassContext& context) {
  const Expected<std::int64_t> least = leastOf(context);
  if (!least) return failure;
  for (const auto& graph : context.module.graphs)
    for (const GraphInput& input : graph->inputs) {
      const Type& type = input.value->type();
      if (input.kind != InputKind::data || type.rank() != 2) continue;
      const MaskedLayers masked = layersOf(*graph, *input.value, *least, context);
      if (masked.layers.empty()) continue;
      if (context.options.contains("remarks"))
        context.diags.remark({.file = context.module.file, .node = input.value->name()})
            << masked.layers.size() << " layers compute the rows alone where '" << input.value->name() << "' is not 0";
      if (!rewrite(*graph, masked, context)) return failure;
    }
  return success;
}
