// What an evaluation tells of layers that deal out rows to places: OpRewrites::load.
#include "Loads.h"

#include "pdc/IR/Builder.h"
#include "pdc/IR/OpDef.h"

#include <algorithm>
#include <set>
#include <vector>

using namespace pdc;

/// The module that has called the operation, as far as the file tells: "blocks.0.experts" of the ONNX node
/// "/blocks.0/experts/Einsum_1", whose name is made of the modules' names.
static std::string nameOfLayer(const Module& module, const Operation& operation) {
  const std::string& node = operation.location.node;
  if (const auto caller = module.callers.find(node); caller != module.callers.end() && !caller->second.empty())
    return caller->second;
  if (node.empty()) return operation.def().name;
  const std::size_t last = node.rfind('/');
  if (node.front() != '/' || last == 0) return node;
  std::string path = node.substr(1, last - 1);
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

std::vector<LayerWithLoads> pdc::layersWithLoads(const Module& module, const Graph& graph) {
  std::set<std::vector<Value*>> known; // that choose the places
  std::set<std::string> names;
  std::vector<LayerWithLoads> layers;
  for (const auto& operation : graph.operations()) {
    if (operation->phase != Phase::forward || !operation->def().rewrites.load) continue;
    if (!known.insert({operation->operands().begin() + 1, operation->operands().end()}).second) continue;
    const std::string layer = nameOfLayer(module, *operation);
    std::string name = layer;
    for (int i = 2; !names.insert(name).second; ++i) name = layer + " " + std::to_string(i);
    layers.push_back({operation.get(), name});
  }
  return layers;
}

Status pdc::addLoads(PassContext& context, Graph& graph) {
  for (const auto& [operation, name] : layersWithLoads(context.module, graph)) {
    const auto& all = graph.operations();
    const auto here = std::find_if(all.begin(), all.end(), [of = operation](const auto& o) { return o.get() == of; });
    Builder builder(context.module, graph, context.registry, context.diags);
    builder.setInsertionPoint(here + 1 == all.end() ? nullptr : (here + 1)->get());
    builder.setLocation(operation->location);
    builder.setGroup(operation->group);
    Value* load = operation->def().rewrites.load(*operation, builder);
    if (!load) return failure;
    graph.outputs.push_back({.kind = OutputKind::load, .value = load, .name = name, .parameter = nullptr});
  }
  return success;
}
