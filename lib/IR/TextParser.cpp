// Parses the text form: recursive descent over the grammar of docs/IR.md.
//
// The first syntax error ends the parse. Operations that the verifier of operations refuses are reported, all of them,
// and the parse goes on with the types that the text states.
#include "pdc/IR/Text.h"

#include "TokenParser.h"
#include "pdc/IR/Verifier.h"

#include <charconv>
#include <map>
#include <unordered_map>

using namespace pdc;

namespace {
class ModuleParser : private TokenParser {
public:
  ModuleParser(const std::string& text, const std::string& file, const OpRegistry& registry, Diagnostics& diags)
      : TokenParser(text, file, diags), registry_(registry) {}

  Expected<std::unique_ptr<Module>> parse();

private:
  Status parseParameter();
  Status parseDerived(Parameter& parameter);
  Status parseReference(Parameter& parameter);
  Status parseGraph();
  Status parseTeam();
  Status parseOrder(const Parameter& parameter);
  Status parsePart();
  Expected<Form> parseSplit(const std::string& what, Type type, bool isPart);
  Status parseInput();
  Status parseOperation();
  Status parseResultNames(std::vector<std::string>& names, std::vector<bool>& present);
  Status parseOperands(std::vector<Value*>& operands);
  Status parseResultTypes(const std::vector<bool>& present, std::vector<Type>& types);
  Status parseAnnotation(Operation& operation);
  Status parseShare(LossShare& share);
  Status parseOutput();
  Status checkNewName(const std::string& name);
  Expected<Value*> parseValue();
  Expected<Parameter*> parseParameterName();

  const OpRegistry& registry_;
  std::unique_ptr<Module> module_;
  Graph* graph_ = nullptr;
  std::unordered_map<std::string, Parameter*> parameters_;
  bool ok_ = true; ///< no operation has been refused
};
} // namespace

// --- operations ---

Status ModuleParser::checkNewName(const std::string& name) {
  // A parameter that this graph does not use may have the same name.
  if (graph_->find(name)) return diags_.error(here()) << "'%" << name << "' is defined twice";
  return success;
}

Expected<Value*> ModuleParser::parseValue() {
  if (token_.kind != Token::Kind::value) return expected("a value");
  if (Value* value = graph_->find(token_.text)) {
    take();
    return value;
  }
  auto parameter = parameters_.find(token_.text);
  if (parameter == parameters_.end()) return diags_.error(here()) << "'%" << token_.text << "' is not defined";
  take();
  return graph_->parameterValue(*parameter->second);
}

Expected<Parameter*> ModuleParser::parseParameterName() {
  if (token_.kind != Token::Kind::value) return expected("a parameter");
  auto parameter = parameters_.find(token_.text);
  if (parameter == parameters_.end()) return diags_.error(here()) << "'%" << token_.text << "' is no parameter";
  take();
  return parameter->second;
}

Status ModuleParser::parseResultNames(std::vector<std::string>& names, std::vector<bool>& present) {
  do {
    present.push_back(token_.kind == Token::Kind::value);
    if (!present.back() && !atWord("_")) return expected("the name of a result");
    if (present.back()) {
      if (!checkNewName(token_.text)) return failure;
      for (std::size_t i = 0; i < names.size(); ++i)
        if (present[i] && names[i] == token_.text)
          return diags_.error(here()) << "'%" << token_.text << "' is defined twice";
    }
    names.push_back(take().text);
  } while (accept(','));
  return success;
}

Status ModuleParser::parseOperands(std::vector<Value*>& operands) {
  if (token_.kind != Token::Kind::value && !atWord("_")) return success;
  do {
    if (acceptWord("_")) {
      operands.push_back(nullptr);
      continue;
    }
    const Expected<Value*> value = parseValue();
    if (!value) return failure;
    operands.push_back(*value);
  } while (accept(','));
  return success;
}

Status ModuleParser::parseResultTypes(const std::vector<bool>& present, std::vector<Type>& types) {
  do {
    const std::size_t i = types.size();
    if (i >= present.size())
      return expected(present.size() == 1 ? "1 result type" : std::to_string(present.size()) + " result types");
    types.emplace_back();
    if (!present[i]) {
      if (!expectWord("_")) return failure;
      continue;
    }
    Expected<Type> type = parseType();
    if (!type) return failure;
    types.back() = std::move(*type);
  } while (accept(','));
  if (types.size() < present.size()) return expected("',' and the type of another result");
  return success;
}

/// <I of %0, group 3, stage 1> or <I again of %0, …>, if it is there.
Status ModuleParser::parseAnnotation(Operation& operation) {
  if (!accept('<')) return success;
  do {
    const bool isPhase = atWord("F") || atWord("I") || atWord("W");
    if (isPhase) {
      const std::string phase = take().text;
      operation.phase = phase == "F" ? Phase::forward : phase == "I" ? Phase::inputGradient : Phase::weightGradient;
      operation.again = acceptWord("again");
      if (!acceptWord("of")) {
        if (operation.again) return expected("'of' and what is computed again");
        continue;
      }
      const Location location = here();
      const Expected<Value*> value = parseValue();
      if (!value) return failure;
      operation.setOrigin((*value)->definer());
      if (!operation.origin() || operation.origin() == &operation)
        return diags_.error(location) << "'%" << (*value)->name() << "' is not the result of an earlier operation";
    } else if (atWord("group") || atWord("stage")) {
      int& number = take().text == "group" ? operation.group : operation.stage;
      const Expected<int> value = parseSmallInteger();
      if (!value) return failure;
      number = *value;
    } else {
      return expected("'F', 'I', 'W', 'group' or 'stage'");
    }
  } while (accept(','));
  return expect('>');
}

Status ModuleParser::parseOperation() {
  Location location = here();
  std::vector<std::string> names;
  std::vector<bool> present;
  if (!parseResultNames(names, present) || !expect('=')) return failure;
  if (token_.kind != Token::Kind::word) return expected("the name of an op");
  const OpDef* def = registry_.find(token_.text);
  if (!def) return diags_.error(here()) << "there is no op '" << token_.text << "'";
  take();
  std::vector<Value*> operands;
  Attributes attributes;
  std::vector<Type> types;
  if (!parseOperands(operands) || !parseAttributes(*def, attributes) || !expect(':') ||
      !parseResultTypes(present, types))
    return failure;
  std::vector<const Type*> typePointers;
  for (std::size_t i = 0; i < types.size(); ++i) typePointers.push_back(present[i] ? &types[i] : nullptr);
  Operation* operation =
      graph_->addOperation(*def, std::move(operands), typePointers, std::move(attributes), location, nullptr, names);
  if (!parseAnnotation(*operation) || !parseLocation(operation->location)) return failure;
  if (!verifyOperation(*operation, diags_)) ok_ = false;
  return success;
}

// --- graphs ---

Status ModuleParser::parseInput() {
  if (token_.kind != Token::Kind::value) return expected("an input");
  if (!checkNewName(token_.text)) return failure;
  const std::string name = take().text;
  if (!expect(':')) return failure;
  Expected<Type> type = parseType();
  if (!type) return failure;
  graph_->addInput(std::move(*type), name);
  GraphInput& input = graph_->inputs.back();
  if (acceptWord("label")) {
    input.kind = InputKind::label;
    if (acceptWord("of")) {
      const Expected<std::int64_t> classes = parseInteger();
      if (!classes) return failure;
      input.classes = *classes;
    }
  } else if (acceptWord("share")) {
    input.kind = InputKind::lossShare;
    return parseShare(input.share.emplace());
  } else if (acceptWord("loss_scale")) {
    input.kind = InputKind::lossScale;
  } else if (atWord("gradient") || atWord("from")) {
    input.kind = InputKind::received;
    input.gradient = acceptWord("gradient");
    if (!expectWord("from")) return failure;
    const Expected<int> peer = parseSmallInteger();
    if (!peer) return failure;
    input.peer = *peer;
  }
  return success;
}

/// of "label" ignoring -100 weights "1/0.5"
Status ModuleParser::parseShare(LossShare& share) {
  if (!expectWord("of")) return failure;
  Expected<std::string> labels = parseText();
  if (!labels) return failure;
  share.labels = std::move(*labels);
  if (acceptWord("ignoring")) {
    const Expected<std::int64_t> ignored = parseInteger();
    if (!ignored) return failure;
    share.ignoreIndex = *ignored;
  }
  if (!atWord("weights")) return success;
  take();
  const Location where = here();
  const Expected<std::string> weights = parseText();
  if (!weights) return failure;
  const char *at = weights->data(), *end = at + weights->size();
  while (true) {
    double weight = 0;
    const auto [next, problem] = std::from_chars(at, end, weight);
    if (problem != std::errc() || (next != end && *next != '/'))
      return diags_.error(where) << "expected numbers as in \"1/0.5\", got \"" << *weights << "\"";
    share.classWeights.push_back(weight);
    if (next == end) return success;
    at = next + 1;
  }
}

Status ModuleParser::parseOutput() {
  static const std::map<std::string, OutputKind> kinds = {
      {"result", OutputKind::result},     {"loss", OutputKind::loss},
      {"term", OutputKind::term},         {"prediction", OutputKind::prediction},
      {"gradient", OutputKind::gradient}, {"state", OutputKind::state},
      {"load", OutputKind::load},         {"send", OutputKind::sent}};
  auto kind = kinds.find(token_.text);
  if (token_.kind != Token::Kind::word || kind == kinds.end()) return expected("an operation, an output or '}'");
  take();
  GraphOutput output{.kind = kind->second};
  if (output.kind == OutputKind::result || output.kind == OutputKind::term || output.kind == OutputKind::load) {
    Expected<std::string> name = parseText();
    if (!name || !expect('=')) return failure;
    output.name = std::move(*name);
  } else if (output.kind == OutputKind::gradient || output.kind == OutputKind::state) {
    const Expected<Parameter*> parameter = parseParameterName();
    if (!parameter || !expect('=')) return failure;
    output.parameter = *parameter;
  } else if (output.kind == OutputKind::sent) {
    output.isGradient = acceptWord("gradient");
  }
  const Expected<Value*> value = parseValue();
  if (!value) return failure;
  output.value = *value;
  if (output.kind == OutputKind::sent) {
    if (!expectWord("to")) return failure;
    const Expected<int> peer = parseSmallInteger();
    if (!peer) return failure;
    output.peer = *peer;
  }
  if (output.kind == OutputKind::prediction && atWord("axis")) {
    const Expected<Form> part =
        parseSplit("prediction '" + output.value->name() + "'", output.value->type(), /*isPart=*/true);
    if (!part) return failure;
    output.part = *part;
  }
  graph_->outputs.push_back(std::move(output));
  return success;
}

/// team 2, or team 2 sums, if it is there.
Status ModuleParser::parseTeam() {
  if (!acceptWord("team")) return success;
  const Location location = here();
  const Expected<std::int64_t> members = parseInteger();
  if (!members) return failure;
  if (*members < 2 || *members > mostMembers)
    return diags_.error(location) << "a team has 2 to " << mostMembers << " members, and not " << *members;
  graph_->team.members = *members;
  graph_->team.sums = acceptWord("sums");
  return success;
}

/// axis 1 blocks 3: of `what`, whose type is that of the whole or of a member's part.
Expected<Form> ModuleParser::parseSplit(const std::string& what, Type type, bool isPart) {
  const Location location = here();
  if (!expectWord("axis")) return failure;
  const Expected<std::int64_t> axis = parseInteger();
  if (!axis || !expectWord("blocks")) return failure;
  const Expected<std::int64_t> blocks = parseInteger();
  if (!blocks) return failure;
  const bool hasAxis = *axis >= 0 && *axis < type.rank();
  if (hasAxis && isPart) type.shape[static_cast<std::size_t>(*axis)] *= graph_->team.members;
  const bool isThere = hasAxis && *blocks >= 1 && *blocks <= type.shape[static_cast<std::size_t>(*axis)];
  const Form form = isThere ? splitOf(type, static_cast<int>(*axis), *blocks, graph_->team.members) : Form();
  if (!isThere || !canSplit(type, form, graph_->team.members))
    return diags_.error(location) << what << ", " << toString(type) << ", cannot be split along axis " << *axis
                                  << " in " << *blocks << " blocks of " << graph_->team.members << " parts";
  return form;
}

/// %w = axis 1 blocks 3, after "part".
Status ModuleParser::parsePart() {
  const Location location = here();
  const Expected<std::string> name = parseName(Token::Kind::value, "'%' and the name of the parameter");
  if (!name || !expect('=')) return failure;
  const auto parameter = parameters_.find(*name);
  if (parameter == parameters_.end()) return diags_.error(location) << "'%" << *name << "' is no parameter";
  const Expected<Form> form = parseSplit("parameter '" + *name + "'", parameter->second->type, /*isPart=*/false);
  if (!form) return failure;
  graph_->team.parts[parameter->second] = *form;
  return acceptWord("order") ? parseOrder(*parameter->second) : success;
}

/// [1, 0], after "order".
Status ModuleParser::parseOrder(const Parameter& parameter) {
  const Location location = here();
  const Expected<std::vector<std::int64_t>> places = parseIntegers();
  if (!places) return failure;
  std::vector<std::int32_t>& order = graph_->team.orders[&parameter];
  for (const std::int64_t place : *places)
    order.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(place, -1, INT32_MAX)));
  const Shape& shape = parameter.type.shape;
  pdcrt::Shape whole;
  for (const std::int64_t size : shape)
    if (whole.rank < pdcrt::maxRank) whole.dims[whole.rank++] = size;
  const std::string problem = pdcrt::problemOf(graph_->team.storedPart(parameter), whole);
  if (!problem.empty()) return diags_.error(location) << "parameter '" << parameter.name << "' " << problem;
  return success;
}

Status ModuleParser::parseGraph() {
  const Location location = here();
  const Expected<std::string> name = parseName(Token::Kind::symbol, "'@' and the name of the graph");
  if (!name || !expect('(')) return failure;
  if (module_->findGraph(*name)) return diags_.error(location) << "two graphs are named '@" << *name << "'";
  graph_ = module_->graphs.emplace_back(std::make_unique<Graph>(*name)).get();
  while (!at(')')) {
    if (!graph_->inputs.empty() && !expect(',')) return failure;
    if (!parseInput()) return failure;
  }
  take();
  if (!parseTeam() || !expect('{')) return failure;
  while (acceptWord("part"))
    if (!parsePart()) return failure;
  while (token_.kind == Token::Kind::value || atWord("_"))
    if (!parseOperation()) return failure;
  while (!accept('}'))
    if (!parseOutput()) return failure;
  return success;
}

// --- the module ---

/// from "lenet.onnx" at 128 length 192000 stored [400, 120] permutation [1, 0], if it is there; of external data
/// from "lenet.bin" of "lenet.onnx" at 128 …
Status ModuleParser::parseReference(Parameter& parameter) {
  if (!acceptWord("from")) return success;
  Reference& reference = parameter.reference;
  Expected<std::string> file = parseText();
  if (!file) return failure;
  const bool isExternal = acceptWord("of");
  Expected<std::string> model = isExternal ? parseText() : std::string();
  if (!model || !expectWord("at")) return failure;
  const Expected<std::int64_t> offset = parseInteger();
  if (!offset || !expectWord("length")) return failure;
  const Expected<std::int64_t> length = parseInteger();
  if (!length) return failure;
  reference = {.file = std::move(*file),
               .offset = *offset,
               .length = *length,
               .stored = (parameter.derived ? parameter.derived->source : parameter.type).shape};
  reference.origin = isExternal ? ReferenceOrigin::externalData : ReferenceOrigin::namedByUser;
  reference.model = std::move(*model);
  auto parseOptional = [&](const char* word, std::vector<std::int64_t>& list) -> Status {
    if (!acceptWord(word)) return success;
    Expected<std::vector<std::int64_t>> parsed = parseIntegers();
    if (!parsed) return failure;
    list = std::move(*parsed);
    return success;
  };
  if (!parseOptional("stored", reference.stored)) return failure;
  return parseOptional("permutation", reference.permutation);
}

/// derived int8 of "fc.weight" f32[10, 4] axis 0, if it is there.
Status ModuleParser::parseDerived(Parameter& parameter) {
  if (!acceptWord("derived")) return success;
  using Kind = DerivedValues::Kind;
  DerivedValues derived;
  const Location location = here();
  bool isKnown = false;
  for (Kind kind : {Kind::int8, Kind::scales, Kind::inputs, Kind::places})
    if (!isKnown && acceptWord(nameOf(kind))) derived.kind = kind, isKnown = true;
  if (!isKnown) return expected("'int8', 'scales', 'inputs' or 'places'");
  if (derived.kind == Kind::inputs || derived.kind == Kind::places) {
    Expected<std::vector<std::int64_t>> inputs = parseIntegers();
    if (!inputs) return failure;
    derived.inputs = std::move(*inputs);
  }
  if (!expectWord("of")) return failure;
  Expected<std::string> of = parseText();
  if (!of) return failure;
  derived.of = std::move(*of);
  Expected<Type> source = parseType();
  if (!source || !expectWord("axis")) return failure;
  derived.source = std::move(*source);
  const Expected<std::int64_t> axis = parseInteger();
  if (!axis) return failure;
  derived.axis = *axis == 1 ? 1 : 0;
  if (*axis < 0 || *axis > 1 || derived.source.element != ElementType::f32 || derived.source.rank() != 2 ||
      typeOf(derived) != parameter.type)
    return diags_.error(location) << "parameter '" << parameter.name << "' is " << toString(parameter.type)
                                  << ", which is not derived so from " << toString(derived.source) << " along axis "
                                  << *axis;
  for (std::size_t e = 0; e < derived.inputs.size(); ++e)
    if (derived.inputs[e] < (e == 0 ? 0 : derived.inputs[e - 1] + 1) ||
        derived.inputs[e] >= derived.source.shape[static_cast<std::size_t>(1 - derived.axis)])
      return diags_.error(location) << "input " << derived.inputs[e] << " of '" << derived.of
                                    << "' does not ascend, or is none of its "
                                    << derived.source.shape[static_cast<std::size_t>(1 - derived.axis)];
  parameter.derived = std::move(derived);
  return success;
}

Status ModuleParser::parseParameter() {
  Parameter parameter;
  parameter.location = here();
  const Expected<std::string> name = parseName(Token::Kind::value, "'%' and the name of the parameter");
  if (!name || !expect(':')) return failure;
  parameter.name = *name;
  Expected<Type> type = parseType();
  if (!type) return failure;
  parameter.type = std::move(*type);
  if (acceptWord("frozen"))
    parameter.role = ParameterRole::frozen;
  else if (acceptWord("state"))
    parameter.role = ParameterRole::state;
  const Location location = parameter.location;
  if (!parseDerived(parameter) || !parseReference(parameter) || !parseLocation(parameter.location)) return failure;
  Parameter* added = module_->addParameter(std::move(parameter));
  if (!parameters_.emplace(*name, added).second)
    return diags_.error(location) << "two parameters are named '" << *name << "'";
  return success;
}

Expected<std::unique_ptr<Module>> ModuleParser::parse() {
  module_ = std::make_unique<Module>();
  if (!expectWord("module")) return failure;
  Expected<std::string> name = parseName(Token::Kind::symbol, "'@' and the name of the module");
  if (!name) return failure;
  module_->name = std::move(*name);
  if (acceptWord("from")) {
    Expected<std::string> file = parseText();
    if (!file) return failure;
    module_->file = std::move(*file);
  }
  if (!expect('{')) return failure;
  while (!accept('}')) {
    if (acceptWord("param")) {
      if (!parseParameter()) return failure;
    } else if (acceptWord("graph")) {
      if (!parseGraph()) return failure;
    } else {
      return expected("'param', 'graph' or '}'");
    }
  }
  if (token_.kind != Token::Kind::end) return expected("the end of the file");
  if (!ok_) return failure;
  return std::move(module_);
}

Expected<std::unique_ptr<Module>> pdc::parseModule(const std::string& text, const std::string& file,
                                                   const OpRegistry& registry, Diagnostics& diags) {
  return ModuleParser(text, file, registry, diags).parse();
}
