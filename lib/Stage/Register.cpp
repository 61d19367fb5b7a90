// The passes of this library by name, for the pipeline of pdc, for pdc-opt and for docs/Passes.md.
#include "pdc/Stage/StagePasses.h"

#include <algorithm>
#include <charconv>
#include <sstream>

using namespace pdc;

/// The option stages=0:0:1 as numbers; `help` says what to write when it is something else.
static Expected<std::vector<int>> stagesOption(PassContext& context, const char* help) {
  std::vector<int> stages;
  std::istringstream list(context.options["stages"]);
  for (std::string entry; std::getline(list, entry, ':');) {
    int stage = 0;
    const auto [end, failed] = std::from_chars(entry.data(), entry.data() + entry.size(), stage);
    if (failed != std::errc() || end != entry.data() + entry.size())
      return context.diags.error({.file = context.module.file}).exit(ExitCode::usage).help(help)
             << "'" << entry << "' is not the number of a stage";
    stages.push_back(stage);
  }
  return stages;
}

/// --split-stages=stages=0:0:1,splits=none/tp:2 : the stage of each group, the split of each stage.
static Status runSplitStages(PassContext& context) {
  Expected<std::vector<int>> stageOfGroup = stagesOption(context, "write stages=0:0:1, one number per group");
  if (!stageOfGroup) return failure;
  std::vector<TeamSplit> splits;
  std::istringstream list(context.options["splits"]);
  for (std::string entry; std::getline(list, entry, '/');) {
    const std::optional<TeamSplit> split = teamSplitFromText(entry);
    if (!split)
      return context.diags.error({.file = context.module.file})
                 .exit(ExitCode::usage)
                 .help("write splits=none/tp:2, one split per stage")
             << "'" << entry << "' is no split";
    splits.push_back(*split);
  }
  return splitStages(context, *stageOfGroup, splits) ? Status(success) : Status(failure);
}

/// A pass that calls run(context, graph) for the stages of its option stages=0:2, or for all stages.
template <class F>
static std::function<Status(PassContext&)> onStages(F run) {
  return [run](PassContext& context) -> Status {
    constexpr const char* help = "write stages=0:2, the numbers of stages that split-stages has made";
    Expected<std::vector<int>> stages = stagesOption(context, help);
    if (!stages) return failure;
    if (stages->empty())
      while (context.module.findGraph("stage" + std::to_string(stages->size())))
        stages->push_back(static_cast<int>(stages->size()));
    for (int stage : *stages) {
      Graph* graph = context.module.findGraph("stage" + std::to_string(stage));
      if (!graph)
        return context.diags.error({.file = context.module.file}).exit(ExitCode::usage).help(help)
               << "there is no graph '@stage" << stage << "'";
      if (!run(context, *graph)) return failure;
    }
    return success;
  };
}

/// --encode-edges=codec=int8/alpha=6/columns=4
static Status runEncodeEdges(PassContext& context) {
  EdgeCodecs codecs;
  if (const auto given = context.options.find("codec"); given != context.options.end()) {
    std::string text = given->second;
    std::replace(text.begin(), text.end(), '/', ',');
    const std::optional<EdgeCodec> codec = edgeCodecFromText(text);
    if (!codec)
      return context.diags.error({.file = context.module.file})
                 .exit(ExitCode::usage)
                 .help("write int8/alpha=6/columns=4")
             << "'" << given->second << "' is no codec of edges";
    codecs.codec = *codec;
  }
  std::set<std::string> tensors;
  if (const auto given = context.options.find("tensors"); given != context.options.end()) {
    std::istringstream lines(given->second);
    for (std::string line; std::getline(lines, line);) tensors.insert(line);
    codecs.tensors = &tensors;
  }
  return encodeEdges(context, codecs);
}

static Status runRecompute(PassContext&, Graph& stage) {
  recomputeForward(stage);
  return success;
}

static Status runWeightGradientsEarly(PassContext& context, Graph& stage) {
  computeWeightGradientsEarly(stage, context.options.contains("after-readers"));
  return success;
}

static Status runKeepConversions(PassContext&, Graph& stage) {
  keepConversions(stage);
  return success;
}

/// --compute-again=stages=0:2,halves,percent=1,least=65536
static Status runComputeAgain(PassContext& context, Graph& stage) {
  constexpr const char* help = "write percent=1,least=65536, both at least 0";
  ComputeAgainOptions options;
  options.splitBackward = context.options.contains("halves");
  for (const char* name : {"percent", "least"}) {
    const auto given = context.options.find(name);
    if (given == context.options.end()) continue;
    std::int64_t number = 0;
    const std::string& text = given->second;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failed != std::errc() || end != text.data() + text.size() || number < 0)
      return context.diags.error({.file = context.module.file}).exit(ExitCode::usage).help(help)
             << name << "='" << text << "' is not a whole number of at least 0";
    if (given->first == "percent")
      options.share = static_cast<double>(number) / 100;
    else
      options.leastBytes = number;
  }
  return computeAgain(context, stage, options);
}

void pdc::registerStagePasses(PassRegistry& registry) {
  const std::pair<std::string, std::string> stages = {"stages",
                                                      "numbers of the stages: 0:2; all of them when not given"};
  registry.add({.argument = "split-stages",
                .summary = "Cuts @main and @evaluate into @stageK and @stageK.evaluate",
                .description =
                    "Values that cross become inputs `received` and outputs `sent`, in the same order at both "
                    "ends. Gradients cross where the fold of `differentiate` puts them. The graph of a stage with a "
                    "split is cut out of what `split` has made: `@main.tp2` for `tp:2`. Between stages of different "
                    "splits whole values cross: members gather what they have parts of, and take their parts.",
                .options = {{"stages", "the stage of each fusion group: 0:0:1"},
                            {"splits", "the split of each stage, where not all are undivided: none/tp:2"}},
                .run = runSplitStages});
  registry.add({.argument = "encode-edges",
                .summary = "Encodes what crosses between stages",
                .description =
                    "A sent value, and a gradient that goes back, becomes bytes of `encode_rows`: rows of int8 and "
                    "the few columns with outliers. The receiver decodes them before the first reader. Only plain "
                    "values of f32 are encoded. Runs after `split-stages`.",
                .options = {{"codec", "`int8,alpha=6,columns=4`, with `/` for the commas"},
                            {"tensors", "names of the values, one per line; all of them when not given"}},
                .run = runEncodeEdges});
  registry.add({.argument = "recompute",
                .summary = "Recomputes the forward of stages in their backward",
                .description =
                    "Only inputs and values that leave the stage are kept from forward to backward. The repeated "
                    "operations are marked `again`; they draw the same random numbers and leave running statistics "
                    "alone, so no bit of a gradient changes. Runs after `split-stages`.",
                .options = {stages},
                .run = onStages(runRecompute)});
  registry.add({.argument = "weight-gradients-early",
                .summary = "Computes weight gradients as soon as their operands exist",
                .description =
                    "Only the order of operations changes: each operation of phase W moves up to the place where its "
                    "last operand is made, so that its operands need not stay longer. With `after-readers`, a large "
                    "gradient that its kernel can make in parts comes after the operation that reads the parameter "
                    "for an input gradient: a stage that updates parameters inside its backward can then use the "
                    "gradient up at once. In the graph of a team, what `hide-collectives` has put beside a collective "
                    "stays there, where no more is alive at once than if it moved.",
                .options = {stages, {"after-readers", "large gradients come after the last reader of the parameter"}},
                .run = onStages(runWeightGradientsEarly)});
  registry.add(
      {.argument = "gradients-together",
       .summary = "Joins the weight gradient and the input gradient of a large parameter in one operation",
       .description =
           "The two read the parameter part by part together, and each part is updated right after. Applies "
           "to stages that update parameters inside their backward, where the gradient can be made in parts "
           "and one operation of the backward reads the parameter (OpRewrites::together). No bit of a gradient "
           "changes. Runs after `weight-gradients-early`.",
       .options = {stages},
       .run = onStages(computeGradientsTogether)});
  registry.add({.argument = "compute-again",
                .summary = "Recomputes values in the backward of stages that one pass over memory gives",
                .description =
                    "Applies to BatchNorm with its ReLU, from its input and the saved statistics, and to elementwise "
                    "operations that compute little (at most one floating-point operation per byte), if all operands "
                    "are kept for others, at least up to the value's first reader. The operation, marked `again`, "
                    "stands right before that reader, and the value is not kept from the forward. Values with the "
                    "most bytes for their estimated time come first. No bit changes, and the peak of live memory "
                    "does not grow. Runs when the order of operations is final.",
                .options = {{"halves", "the halves of a backward run apart: what both read is kept"},
                            {"least", "bytes below which a value is kept (65536)"},
                            {"percent", "most time, of all operations of the stage, that is spent on it (1)"},
                            stages},
                .run = onStages(runComputeAgain)});
  registry.add({.argument = "keep-conversions",
                .summary = "Undoes `convert-again`",
                .description =
                    "Applies to the graph of a stage with one minibatch in flight, where the device has room: its "
                    "backward reads what the forward has converted, before all else. Runs after `split-stages`.",
                .options = {stages},
                .run = onStages(runKeepConversions)});
}
