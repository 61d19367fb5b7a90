#include "CapacityChoice.h"

#include "ForwardOnData.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdc/Transforms/Capacity.h"

#include <numeric>

using namespace pdc;

std::int64_t pdc::leastCapacity(const std::vector<std::int64_t>& counts, double drop) {
  const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  std::int64_t dropped = 0;
  for (auto capacity = static_cast<std::int64_t>(counts.size()); capacity > 1; --capacity) {
    dropped += counts[static_cast<std::size_t>(capacity - 1)];
    if (static_cast<double>(dropped) > drop * all) return capacity;
  }
  return 1;
}

Expected<std::vector<std::int64_t>> pdc::chooseCapacities(const Module& module, const OpRegistry& registry,
                                                          const BatchAxes& batch, const CompileOptions& options,
                                                          Diagnostics& diags) {
  const CapacityOptions& asked = options.capacity;
  ForwardOnData forward(module, registry, batch, "--capacity=auto,data=DATA", asked.data, asked.batches, diags);
  Module* const copy = forward.copy();
  if (!copy) return failure;
  Graph& graph = *copy->findGraph("main");
  std::vector<std::int64_t> all;
  for (const SlotsOfExperts& slots : slotsOfExperts(graph)) all.push_back(slots.choices);
  if (all.empty())
    return diags.error({.file = options.model})
               .exit(ExitCode::usage)
               .help("leave out --capacity, or see --emit=ir for what the layers have become")
           << "no layer deals out rows to experts by index";
  PassContext context{*copy, registry, diags, {}};
  if (!setCapacity(context, all)) return failure;
  const std::vector<SlotsOfExperts> layers = slotsOfExperts(graph);
  const auto name = [](const char* what, std::size_t layer) { return what + std::to_string(layer); };
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (const auto& [what, value] : {std::pair("experts", layers[i].experts), {"slots", layers[i].slots}})
      graph.outputs.push_back({.kind = OutputKind::result,
                               .value = graph.find(value->name()),
                               .name = name(what, i),
                               .parameter = nullptr});
  std::vector<std::vector<std::int64_t>> counts;
  for (const std::int64_t choices : all) counts.emplace_back(static_cast<std::size_t>(choices));
  const auto look = [&](const InterpreterResult& result) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const Tensor &experts = result.outputs.at(name("experts", i)), &slots = result.outputs.at(name("slots", i));
      for (std::int64_t k = 0; k < experts.elements(); ++k) {
        const std::int64_t expert = experts.asInt(k), slot = slots.asInt(k);
        if (expert >= 0 && expert < layers[i].count && slot >= 0 && slot < all[i])
          ++counts[i][static_cast<std::size_t>(slot)];
      }
    }
  };
  if (!forward.run(look)) return failure;
  std::vector<std::int64_t> capacities;
  for (const auto& places : counts) capacities.push_back(leastCapacity(places, asked.drop));
  return capacities;
}
