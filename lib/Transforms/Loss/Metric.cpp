// A scalar output of the model as what an evaluation reports.
#include "pdc/Transforms/Transforms.h"

#include "LossFormulas.h"
#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/Support/Names.h"

#include <algorithm>

using namespace pdc;

Expected<Value*> pdc::scalarOutput(PassContext& context, const std::string& name) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  const Location where{.file = context.module.file};
  std::vector<std::string_view> scalars;
  for (const GraphOutput& output : (*graph)->outputs) {
    const Type& type = output.value->type();
    const bool scalar = isScalarOutput(**graph, output);
    if (output.name == name && scalar) return output.value;
    if (output.name == name)
      return context.diags.error(where).exit(ExitCode::usage).help("accuracy, top5, perplexity and mse look at such")
             << "--metric=output:" << name << ": the output is " << toString(type) << ", a metric is a float scalar";
    if (scalar) scalars.push_back(output.name);
  }
  return context.diags.error(where)
             .exit(ExitCode::usage)
             .help(scalars.empty() ? "give it a scalar output" : helpForUnknown(name, scalars))
         << "--metric=output:" << name << ": the model has no such output";
}
