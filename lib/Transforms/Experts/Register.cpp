// The passes of this room by name.
#include "Rooms.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdc/Transforms/Capacity.h"

#include <charconv>

using namespace pdc;

static Status runSetCapacity(PassContext& context) {
  double factor = 0;
  const std::string& text = context.options["factor"];
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), factor);
  if (failed != std::errc() || end != text.data() + text.size() || !(factor > 0) || factor > 1e6)
    return context.diags.error({.file = context.module.file}).exit(ExitCode::usage).help("write factor=1.25")
           << "factor='" << text << "' is no number above 0";
  std::vector<LayerCapacity> layers;
  if (!setCapacity(context, factor, &layers)) return failure;
  for (const LayerCapacity& layer : layers) context.diags.remark({.file = context.module.file}) << toText(layer);
  return success;
}

void pdc::registerExpertPasses(PassRegistry& registry) {
  registry.add(
      {.argument = "set-capacity",
       .summary = "Gives experts another capacity",
       .description =
           "An expert of a layer whose rows are dealt out by index gets ⌈factor · choices · tokens / experts⌉ slots. "
           "What is computed of the places of tokens becomes the same formula with the other capacity, so that the "
           "same rule drops tokens; a formula is known by its values at all places. An operation that computes "
           "something else of "
           "them is refused. Runs behind `raise`.",
       .options = {{"factor", "the capacity factor: 1 is room for an equal share of the choices"}},
       .run = runSetCapacity});
}
