// Frozen weights as integers of 8 bits with a scale per row. Their values stay where they are stored; the new
// parameters say how they follow from them.
#include "pdc/Transforms/Precision.h"

#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"
#include "pdc/Support/NamePattern.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <optional>

using namespace pdc;

namespace {

/// Why a matrix stays as it is, or along which axis its rows lie.
struct Readiness {
  std::optional<int> axis;
  std::string reason = {};
  std::vector<Value*> rounded = {}; ///< what is multiplied by it
  bool keepsInputs = true;          ///< all its readers round something
};

/// A matrix with elements.
bool isCandidate(const Parameter& parameter) {
  return parameter.type.element == ElementType::f32 && parameter.type.rank() == 2 && parameter.type.elements() > 0;
}

/// Whether everything that reads the matrix knows integers, along one axis.
Readiness readinessOf(const Graph& graph, const Value& matrix) {
  Readiness found;
  if (graph.isOutput(&matrix)) return {.axis = {}, .reason = "is an output"};
  for (const Operation* user : matrix.users())
    for (std::size_t i = 0; i < user->operands().size(); ++i) {
      if (user->operand(i) != &matrix) continue;
      const auto& ask = user->def().rewrites.int8Use;
      const std::optional<Int8Use> use = ask ? ask(*user, i) : std::nullopt;
      if (!use) return {.axis = {}, .reason = "is read by '" + describe(*user) + "', which knows no integers"};
      if (found.axis && *found.axis != use->axis)
        return {.axis = {},
                .reason =
                    "is read along both axes, by '" + describe(*user) + "' along axis " + std::to_string(use->axis)};
      found.axis = use->axis;
      if (use->rounded)
        found.rounded.push_back(user->operand(*use->rounded));
      else
        found.keepsInputs = false;
    }
  if (!found.axis) found.reason = "is read by nothing";
  return found;
}

/// A matrix that becomes integers.
struct ChosenMatrix {
  Value* value = nullptr;
  int axis = 0;
  bool keepsInputs = false;
};

class Quantisation {
public:
  Quantisation(PassContext& context, Graph& graph, const QuantizeOptions& options)
      : context_(context), graph_(graph), options_(options), pattern_("--quantize=int8,match", options.match),
        keep_("--quantize=int8,keep", options.keep), builder_(context.module, graph, context.registry, context.diags) {}

  Status run() {
    if (!pattern_.check(context_.diags) || !keep_.check(context_.diags)) return failure;
    std::vector<ChosenMatrix> chosen;
    for (Value* value : graph_.parameterValues())
      if (!choose(*value, chosen)) return failure;
    if (!options_.keep.empty() && left_ == 0 && !chosen.empty()) return nothingLeftOut(chosen);
    if (chosen.empty()) return nothingToDo();
    if (!checkKept(chosen)) return failure;
    for (const ChosenMatrix& matrix : chosen)
      if (!replace(*matrix.value, matrix.axis)) return failure;
    context_.diags.remark({.file = context_.module.file})
        << chosen.size() << (chosen.size() == 1 ? " frozen weight takes " : " frozen weights take ") << sizeText(after_)
        << " as integers of 8 bits instead of " << sizeText(before_);
    return success;
  }

private:
  /// Adds the matrix to `chosen` if it can be and is wanted; an error where a name says that it is, and it cannot be.
  /// Counts what `keep` takes from either.
  Status choose(Value& value, std::vector<ChosenMatrix>& chosen) {
    const Parameter& parameter = *value.parameter();
    if (!isCandidate(parameter)) return success;
    const bool isNamed = pattern_.matches(parameter.name);
    if (!options_.match.empty() && !isNamed) return success;
    const Readiness ready = readinessOf(graph_, value);
    const bool isTaken = parameter.role == ParameterRole::frozen && ready.axis;
    if ((isTaken || isNamed) && keep_.matches(parameter.name)) {
      ++left_;
      return success;
    }
    if (isTaken) {
      chosen.push_back({&value, *ready.axis, ready.keepsInputs});
      return success;
    }
    if (!isNamed) return success;
    if (parameter.role != ParameterRole::frozen)
      return context_.diags.error(parameter.location)
                 .exit(ExitCode::usage)
                 .help("freeze it with --freeze=REGEX, or leave it out of match")
             << "'" << parameter.name << "' is trained, --quantize=int8 takes frozen weights";
    return context_.diags.error(parameter.location).exit(ExitCode::usage).help("leave it out of match")
           << "'" << parameter.name << "' " << ready.reason << ", so that --quantize=int8 cannot take it";
  }

  /// What was found out about another model, or with other flags, does not fit.
  Status checkKept(const std::vector<ChosenMatrix>& chosen) {
    for (const auto& [name, inputs] : options_.kept) {
      const auto found = std::find_if(chosen.begin(), chosen.end(),
                                      [&, &of = name](const auto& each) { return each.value->name() == of; });
      const auto wrong = [&] {
        return context_.diags.error({.file = context_.module.file, .node = name}).help("look again: --calibrate=DATA");
      };
      if (found == chosen.end() || !found->keepsInputs)
        return wrong() << "is to keep " << inputs.size()
                       << " inputs in f32, and is no frozen matrix in 8 bits that only layers multiply by";
      const std::int64_t size = found->value->type().shape[static_cast<std::size_t>(1 - found->axis)];
      if (!inputs.empty() && inputs.back() >= size)
        return wrong() << "is to keep input " << inputs.back() << ", and has " << size;
    }
    return success;
  }

  Status nothingToDo() {
    if (left_ > 0)
      return context_.diags.error({.file = context_.module.file})
                 .exit(ExitCode::usage)
                 .help("leave --quantize out, or keep fewer")
             << "--quantize=int8,keep='" << options_.keep << "' keeps all " << left_ << " matrices in f32";
    return context_.diags.error({.file = context_.module.file})
               .exit(ExitCode::usage)
               .help("freeze weights with --freeze=REGEX; 'pdc inspect' lists what is trained")
           << "--quantize=int8 finds no frozen matrix " << (options_.match.empty() ? "" : "that match names ")
           << "whose readers know integers";
  }

  Status nothingLeftOut(const std::vector<ChosenMatrix>& chosen) {
    constexpr std::size_t most = 8;
    std::string names;
    for (std::size_t i = 0; i < std::min(chosen.size(), most); ++i)
      names += (i ? ", " : "") + ("'" + chosen[i].value->name() + "'");
    if (chosen.size() > most) names += " and " + std::to_string(chosen.size() - most) + " more";
    return context_.diags.error({.file = context_.module.file})
               .exit(ExitCode::usage)
               .note("these become integers: " + names)
               .help("name some of them, or leave keep out")
           << "--quantize=int8,keep='" << options_.keep << "' matches no frozen matrix that would become integers";
  }

  /// A parameter that is computed from `source`; null, with an error reported, where its name is taken.
  Value* derivedFrom(const Parameter& source, const char* suffix, DerivedValues derived) {
    Parameter made = source;
    made.name += (derived.axis == 1 ? ".T" : "") + std::string(suffix);
    made.type = typeOf(derived);
    made.derived = std::move(derived);
    if (context_.module.findParameter(made.name)) {
      context_.diags.error(source.location).help("rename it in the model, or leave it out of match")
          << "'" << source.name << "' cannot become integers: there is a parameter '" << made.name << "'";
      return nullptr;
    }
    return graph_.parameterValue(*context_.module.addParameter(std::move(made)));
  }

  Status replace(Value& matrix, int axis) {
    using Kind = DerivedValues::Kind;
    const Parameter& source = *matrix.parameter();
    DerivedValues derived{.of = source.name, .source = source.type, .axis = axis};
    Int8Matrix made{.alpha = options_.alpha};
    made.integers = derivedFrom(source, ".int8", derived);
    derived.kind = Kind::scales;
    made.scales = made.integers ? derivedFrom(source, ".scale", derived) : nullptr;
    if (!made.scales) return failure;
    std::vector<const Value*> parts = {made.integers, made.scales};
    if (const auto kept = options_.kept.find(source.name); kept != options_.kept.end() && !kept->second.empty()) {
      derived.kind = Kind::inputs;
      derived.inputs = kept->second;
      made.kept = derivedFrom(source, ".kept", derived);
      if (!made.kept) return failure;
      derived.kind = Kind::places;
      made.keptInputs = derivedFrom(source, ".kept_inputs", derived);
      if (!made.keptInputs) return failure;
      parts.insert(parts.end(), {made.kept, made.keptInputs});
    }
    const std::vector<Operation*> users = matrix.users();
    for (Operation* user : users)
      if (std::find(user->operands().begin(), user->operands().end(), &matrix) != user->operands().end() &&
          !rewrite(*user, matrix, made))
        return failure;
    before_ += source.type.bytes();
    for (const Value* part : parts) after_ += part->type().bytes();
    graph_.eraseParameterValue(&matrix);
    context_.module.eraseParameter(&source);
    return success;
  }

  Status rewrite(Operation& user, const Value& matrix, Int8Matrix made) {
    const auto at = std::find(user.operands().begin(), user.operands().end(), &matrix);
    made.operand = static_cast<std::size_t>(at - user.operands().begin());
    builder_.setInsertionPoint(&user);
    builder_.setLocation(user.location);
    Value* const result = user.def().rewrites.withInt8(user, made, builder_);
    if (!result) return failure;
    const std::string name = user.result()->name();
    graph_.replaceAllUses(user.result(), result);
    graph_.erase(&user);
    graph_.rename(result, name);
    return success;
  }

  PassContext& context_;
  Graph& graph_;
  const QuantizeOptions& options_;
  NamePattern pattern_, keep_;
  Builder builder_;
  std::int64_t before_ = 0, after_ = 0;
  std::int64_t left_ = 0; ///< matrices that `keep` names
};

} // namespace

std::vector<RoundedInput> pdc::roundedInputs(const Graph& graph, const QuantizeOptions& options) {
  NamePattern pattern("--quantize=int8,match", options.match), keep("--quantize=int8,keep", options.keep);
  std::vector<RoundedInput> found;
  for (const Value* value : graph.parameterValues()) {
    const Parameter& parameter = *value->parameter();
    if (!isCandidate(parameter) || parameter.role != ParameterRole::frozen) continue;
    if ((!options.match.empty() && !pattern.matches(parameter.name)) || keep.matches(parameter.name)) continue;
    const Readiness ready = readinessOf(graph, *value);
    if (!ready.axis || !ready.keepsInputs) continue;
    for (Value* rounded : ready.rounded) found.push_back({parameter.name, rounded});
  }
  return found;
}

Status pdc::quantizeFrozen(PassContext& context, const QuantizeOptions& options) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  return Quantisation(context, **graph, options).run();
}
