// Markdown of the reference pages.
#include "Documentation.h"

#include "pdc/IR/Text.h"
#include "pdc/Stage/StagePolicy.h"
#include "pdc/Transforms/Pipeline.h"

#include <algorithm>
#include <ostream>
#include <set>
#include <sstream>
#include <vector>

using namespace pdc;

static const char* describe(OpKind kind) {
  switch (kind) {
  case OpKind::composed: return "composed: the importer expands it into other ops";
  case OpKind::elementwise: return "elementwise, broadcasts";
  case OpKind::kernel: return "kernel";
  case OpKind::view: return "view: no computation, the result is the operand's memory";
  case OpKind::collective: return "collective: the members of a team carry it out together";
  case OpKind::constant: return "constant";
  }
  return "";
}

namespace {
/// An attribute's value as the text form of the IR has it; of tensors, the type.
struct AttributeText {
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return toString(*numberExpression(value)); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(const std::string& value) const { return "\"" + value + "\""; }
  std::string operator()(const Tensor& tensor) const { return "dense<" + toString(tensor.type()) + ", …>"; }
  template <class T>
  std::string operator()(const std::vector<T>& list) const {
    std::string text;
    for (const T& value : list) text += (text.empty() ? "" : ", ") + (*this)(value);
    return "[" + text + "]";
  }
};
} // namespace

static std::string textOf(const Attribute& attribute) {
  return std::visit(AttributeText(), attribute);
}

static const char* kindOf(const Attribute& attribute) {
  static constexpr const char* names[] = {"integer",  "number",  "boolean", "text",
                                          "integers", "numbers", "texts",   "tensor"};
  return names[attribute.index()];
}

template <class Def>
static std::string namesOf(const std::vector<Def>& list) {
  std::string text;
  for (const Def& def : list) {
    text += (text.empty() ? "`" : ", `") + def.name + "`";
    if (def.optional) text += " (optional)";
    if (def.variadic) text += " (any number)";
  }
  return text;
}

static std::string onnxOf(const OpDef& def) {
  std::string text;
  for (const OnnxMapping& mapping : def.onnx)
    text += (text.empty() ? "" : ", ") + mapping.opType + " (" + std::to_string(mapping.since) + "–" +
            std::to_string(mapping.until) + ")";
  return text;
}

/// Whether an elementwise op has results other than comparisons, which have no derivative.
static bool hasDerivative(const OpDef& def) {
  if (def.kind != OpKind::elementwise) return false;
  return def.expressions.empty() || std::any_of(def.expressions.begin(), def.expressions.end(),
                                                [](const std::string& text) { return !isBoolean(*expression(text)); });
}

/// `text` in lines of at most 119 columns; lines of `text` that begin with a dash are items of a list.
static void printWrapped(const std::string& text, std::ostream& out) {
  std::size_t column = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); out << "\n", column = 0) {
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      // Columns are characters, not the bytes of UTF-8.
      const auto width = static_cast<std::size_t>(std::count_if(
          word.begin(), word.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
      if (column > 0 && column + 1 + width > 119)
        out << (line[0] == '-' ? "\n " : "\n"), column = line[0] == '-' ? 1 : 0;
      out << (column > 0 ? " " : "") << word;
      column += width + (column > 0 ? 1 : 0);
    }
  }
}

static void printOp(const OpDef& def, std::ostream& out) {
  out << "\n## `" << def.name << "`\n\n";
  printWrapped(def.summary + ".", out);
  out << "\n";
  out << "- kind: " << describe(def.kind) << "\n";
  if (!def.onnx.empty()) printWrapped("- ONNX operators (opset versions): " + onnxOf(def), out);
  if (def.kind == OpKind::composed) return;
  if (!def.operands.empty()) out << "- operands: " << namesOf(def.operands) << "\n";
  out << "- results: " << namesOf(def.results) << "\n";
  for (const std::string& text : def.expressions) printWrapped("- computes: `" + text + "`", out);
  if (def.facts.lossLike) out << "- its first result is a loss\n";
  if (def.facts.random) out << "- draws random numbers\n";
  const bool differentiable = def.gradient || hasDerivative(def);
  out << "- phases: forward" << (differentiable ? ", input-gradient, weight-gradient" : " only: it has no gradient")
      << "\n";
  if (def.rewrites.evaluation) out << "- has another form when the model is evaluated\n";
  if (!def.attributes.empty()) {
    out << "\n| attribute | kind | default | meaning |\n|---|---|---|---|\n";
    for (const AttributeDef& attribute : def.attributes)
      out << "| `" << attribute.name << "` | " << kindOf(attribute.example) << " | "
          << (attribute.defaultValue ? "`" + textOf(*attribute.defaultValue) + "`"
                                     : "required, such as `" + textOf(attribute.example) + "`")
          << " | " << attribute.summary << " |\n";
  }
  if (def.examples.empty()) return;
  out << "\n";
  // As code, indented by four spaces.
  std::string line;
  for (char c : "graph @main" + def.examples.front() + "\n") {
    if (c != '\n') {
      line += c;
    } else if (!line.empty()) {
      out << "    " << line << "\n";
      line.clear();
    }
  }
}

void pdc::printOpDocumentation(const OpRegistry& registry, std::ostream& out) {
  std::vector<const OpDef*> defs = registry.all();
  std::sort(defs.begin(), defs.end(), [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
  out << "# Ops\n\n";
  printWrapped("Made by `pdc-opt --print-op-docs` from `lib/Ops/`; do not edit. [IR.md](IR.md) explains the text form, "
               "[AddingAnOp.md](AddingAnOp.md) how to add an op.\n\n"
               "Some operators of ONNX have no op here:\n\n"
               "- The importer expands If, Loop and Scan, where condition and number of iterations do not depend on "
               "data.\n"
               "- A sequence is a list of slices, where lengths and positions are known: SequenceEmpty, "
               "SequenceConstruct, SequenceInsert, SequenceErase, SequenceAt, SequenceLength, SplitToSequence, "
               "ConcatFromSequence, SequenceMap.",
               out);
  for (const OpDef* def : defs) printOp(*def, out);
}

namespace {
/// Passes that pdc runs one after another, and when it does.
struct RunPipeline {
  std::string when;
  std::vector<PipelineStep> steps;
};
} // namespace

/// Every pass that pdc can run, in its order: the pipelines themselves, with every choice that adds a pass.
static std::vector<RunPipeline> pipelinesOfPdc() {
  const TransformChoices low = {.target = Target::cuda, .precision = ElementType::bf16};
  const StagePolicy policy = {
      .recompute = true, .earlyUpdates = true, .gradientsInParts = true, .computeAgain = true, .keepConversions = true};
  return {{"After the import", afterImportSteps()},
          {"Once for each `--loss`", {{"add-loss", {}}}},
          {"After the losses", afterLossesSteps()},
          {"Once for each `--lora`", {{"add-lora", {}}}},
          {"With `--quantize`", {{"quantize-frozen", {}}}},
          {"To make a training step", trainingSteps(low)},
          {"For the target", layoutSteps({})},
          {"Where no team divides the graph", paddingSteps({.skipsPadding = true})},
          {"Once the plan is known", {splitStep({})}},
          {"On the graphs of the stages", stageSteps({policy})}};
}

/// "`canonicalize`, `raise`".
static std::string namesOf(const std::vector<PipelineStep>& steps) {
  std::string text;
  for (const PipelineStep& step : steps) text += (text.empty() ? "`" : ", `") + step.argument + "`";
  return text;
}

/// The passes that run in low precision only.
static std::vector<PipelineStep> stepsOfLowPrecision() {
  std::vector<PipelineStep> usual = trainingSteps({});
  for (const PipelineStep& step : afterLossesSteps()) usual.push_back(step);
  std::vector<PipelineStep> added = trainingSteps({.precision = ElementType::bf16});
  std::erase_if(added, [&](const PipelineStep& step) {
    return std::any_of(usual.begin(), usual.end(),
                       [&](const PipelineStep& other) { return other.argument == step.argument; });
  });
  return added;
}

static void printPass(const PassInfo& pass, std::ostream& out) {
  out << "\n## `--" << pass.argument << "`\n\n" << pass.summary << ".\n";
  if (!pass.description.empty()) out << "\n", printWrapped(pass.description, out);
  if (pass.options.empty()) return;
  out << "\n| option | meaning |\n|---|---|\n";
  for (const auto& [name, summary] : pass.options) out << "| `" << name << "` | " << summary << " |\n";
}

void pdc::printPassDocumentation(const PassRegistry& registry, std::ostream& out) {
  const std::vector<RunPipeline> pipelines = pipelinesOfPdc();
  out << "# Passes\n\n";
  printWrapped("`pdc` changes a model by the passes below, in this order. The verifier runs after each of them, "
               "`--print-ir-after` prints the model after the passes that it names, and `--time-passes` prints a table "
               "of times for each line.",
               out);
  out << "\n";
  for (const RunPipeline& pipeline : pipelines)
    printWrapped("- " + pipeline.when + ": " + namesOf(pipeline.steps), out);
  out << "\n";
  printWrapped("With `--precision=bf16` or `f16` only, these run: " + namesOf(stepsOfLowPrecision()) +
                   ". A pass on the graphs of the stages runs on the stages that need it; `--explain` prints which "
                   "([decision 16](decisions/0016-stages-and-passes.md)).\n\n"
                   "`pdc-opt` runs any passes in the order in which you name them, and the verifier after each. "
                   "`pdc-opt --print-pass-docs` makes this page from the pipelines and the registered passes; do not "
                   "edit it.",
               out);
  std::set<std::string> printed;
  for (const RunPipeline& pipeline : pipelines)
    for (const PipelineStep& step : pipeline.steps)
      if (printed.insert(step.argument).second) printPass(*registry.find(step.argument), out);
  for (const PassInfo& pass : registry.all())
    if (!printed.contains(pass.argument)) printPass(pass, out);
}
