// Parses the text form: recursive descent over the grammar of docs/IR.md.
//
// The first syntax error ends the parse. Operations that the verifier of operations refuses are reported, all of them,
// and the parse goes on with the types that the text states.
#include "pdc/IR/Text.h"

#include "Lexer.h"
#include "pdc/IR/Verifier.h"

#include <bit>
#include <charconv>
#include <limits>
#include <map>
#include <unordered_map>

using namespace pdc;

namespace {
class Parser {
public:
  Parser(const std::string& text, const std::string& file, const OpRegistry& registry, Diagnostics& diags)
      : lexer_(text), file_(file), registry_(registry), diags_(diags), token_(lexer_.next()) {}

  Expected<std::unique_ptr<Module>> parse();

private:
  // Tokens.
  Location here() const { return {.file = file_, .line = token_.line, .column = token_.column}; }
  Failure expected(const std::string& what) {
    return diags_.error(here()) << "expected " << what << ", found " << describe(token_);
  }
  Token take() {
    Token taken = std::move(token_);
    token_ = lexer_.next();
    return taken;
  }
  bool at(char c) const { return token_.kind == Token::Kind::punctuation && token_.text[0] == c; }
  bool atWord(const char* word) const { return token_.kind == Token::Kind::word && token_.text == word; }
  bool accept(char c) { return at(c) && (take(), true); }
  bool acceptWord(const char* word) { return atWord(word) && (take(), true); }
  Status expect(char c) { return accept(c) ? Status(success) : expected(std::string("'") + c + "'"); }
  Status expectWord(const char* word) {
    return acceptWord(word) ? Status(success) : expected(std::string("'") + word + "'");
  }

  // Small things.
  Expected<std::string> parseName(Token::Kind kind, const char* what);
  Expected<std::string> parseText();
  Expected<std::int64_t> parseInteger();
  Expected<int> parseSmallInteger();
  Expected<std::vector<std::int64_t>> parseIntegers();
  Expected<Type> parseType();
  Status parseLocation(Location& location);

  // Attributes.
  Status parseAttributes(const OpDef& def, Attributes& attributes);
  Expected<Attribute> parseAttribute(const Attribute* example);
  Expected<Attribute> parseNumberAttribute(bool wantsFloat);
  Expected<Attribute> parseList(const Attribute* example);
  Expected<double> parseNumber(std::size_t bytes = sizeof(double), std::uint64_t* nanBits = nullptr);
  Expected<Attribute> parseDense();
  Status parseElement(Tensor& tensor);

  // The module and what is in it.
  Status parseParameter();
  Status parseReference(Parameter& parameter);
  Status parseGraph();
  Status parseInput();
  Status parseOperation();
  Status parseResultNames(std::vector<std::string>& names, std::vector<bool>& present);
  Status parseOperands(std::vector<Value*>& operands);
  Status parseResultTypes(const std::vector<bool>& present, std::vector<Type>& types);
  Status parseAnnotation(Operation& operation);
  Status parseOutput();
  Status checkNewName(const std::string& name);
  Expected<Value*> parseValue();
  Expected<Parameter*> parseParameterName();

  Lexer lexer_;
  const std::string& file_;
  const OpRegistry& registry_;
  Diagnostics& diags_;
  Token token_;
  std::unique_ptr<Module> module_;
  Graph* graph_ = nullptr;
  std::unordered_map<std::string, Parameter*> parameters_;
  bool ok_ = true; ///< no operation has been refused
};
} // namespace

// --- small things ---

Expected<std::string> Parser::parseName(Token::Kind kind, const char* what) {
  if (token_.kind != kind) return expected(what);
  return take().text;
}

Expected<std::string> Parser::parseText() {
  return parseName(Token::Kind::text, "a text in quotes");
}

Expected<std::int64_t> Parser::parseInteger() {
  if (token_.kind != Token::Kind::number) return expected("an integer");
  std::int64_t value = 0;
  const char *begin = token_.text.data(), *end = begin + token_.text.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error == std::errc::result_out_of_range)
    return diags_.error(here()) << "'" << token_.text << "' does not fit into 64 bits";
  if (error != std::errc() || stop != end) return expected("an integer");
  take();
  return value;
}

Expected<int> Parser::parseSmallInteger() {
  const Location location = here();
  const Expected<std::int64_t> value = parseInteger();
  if (!value) return failure;
  if (*value < -1 || *value > std::numeric_limits<int>::max())
    return diags_.error(location) << *value << " is not from -1 to " << std::numeric_limits<int>::max();
  return static_cast<int>(*value);
}

Expected<std::vector<std::int64_t>> Parser::parseIntegers() {
  std::vector<std::int64_t> list;
  if (!expect('[')) return failure;
  while (!at(']')) {
    if (!list.empty() && !expect(',')) return failure;
    const Expected<std::int64_t> value = parseInteger();
    if (!value) return failure;
    list.push_back(*value);
  }
  take();
  return list;
}

/// f32[2, 3], or f32[2, 3]@1 in layout 1.
Expected<Type> Parser::parseType() {
  Type type;
  const Location location = here();
  if (token_.kind != Token::Kind::word || !elementTypeFromName(token_.text, type.element))
    return expected("an element type");
  take();
  Expected<std::vector<std::int64_t>> dims = parseIntegers();
  if (!dims) return failure;
  type.shape = std::move(*dims);
  if (token_.kind == Token::Kind::symbol) {
    const char *begin = token_.text.data(), *end = begin + token_.text.size();
    const auto [stop, error] = std::from_chars(begin, end, type.layout.id);
    if (error != std::errc() || stop != end) return expected("the number of a layout");
    take();
  }
  for (std::int64_t dim : type.shape)
    if (dim < 0) return diags_.error(location) << "dimension " << dim << " is negative";
  if (type.bytes() < 0)
    return diags_.error(location) << "the size of " << toString(type) << " does not fit into 63 bits";
  return type;
}

/// loc("…"), if it is there.
Status Parser::parseLocation(Location& location) {
  if (!acceptWord("loc")) return success;
  if (!expect('(')) return failure;
  Expected<std::string> node = parseText();
  if (!node || !expect(')')) return failure;
  location.node = std::move(*node);
  return success;
}

// --- attributes ---

Status Parser::parseAttributes(const OpDef& def, Attributes& attributes) {
  for (const AttributeDef& attribute : def.attributes)
    if (attribute.defaultValue) attributes.set(attribute.name, *attribute.defaultValue);
  if (!accept('{')) return success;
  Attributes stated;
  do {
    if (token_.kind != Token::Kind::word && token_.kind != Token::Kind::text)
      return expected("the name of an attribute");
    const Location location = here();
    std::string name = take().text;
    const AttributeDef* known = nullptr;
    for (const AttributeDef& attribute : def.attributes)
      if (attribute.name == name) known = &attribute;
    if (!expect('=')) return failure;
    Expected<Attribute> value = parseAttribute(known ? &known->example : nullptr);
    if (!value) return failure;
    if (stated.has(name)) return diags_.error(location) << "attribute '" << name << "' is there twice";
    stated.set(name, *value);
    attributes.set(std::move(name), std::move(*value));
  } while (accept(','));
  return expect('}');
}

/// `example` is of the kind that the op wants: it decides what [] and 1 mean.
Expected<Attribute> Parser::parseAttribute(const Attribute* example) {
  if (token_.kind == Token::Kind::text) return Attribute(take().text);
  if (acceptWord("true")) return Attribute(true);
  if (acceptWord("false")) return Attribute(false);
  if (atWord("dense")) return parseDense();
  if (at('[')) return parseList(example);
  if (token_.kind == Token::Kind::number || atWord("inf") || atWord("nan"))
    return parseNumberAttribute(example && std::holds_alternative<double>(*example));
  return expected("the value of an attribute");
}

static bool looksLikeInteger(const Token& token) {
  return token.kind == Token::Kind::number && token.text.find_first_not_of("-0123456789") == std::string::npos;
}

Expected<Attribute> Parser::parseNumberAttribute(bool wantsFloat) {
  if (looksLikeInteger(token_) && !wantsFloat) {
    const Expected<std::int64_t> value = parseInteger();
    if (!value) return failure;
    return Attribute(*value);
  }
  const Expected<double> value = parseNumber();
  if (!value) return failure;
  return Attribute(*value);
}

Expected<Attribute> Parser::parseList(const Attribute* example) {
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
  std::vector<std::string> texts;
  const bool wantsFloats = example && std::holds_alternative<std::vector<double>>(*example);
  const bool wantsTexts = example && std::holds_alternative<std::vector<std::string>>(*example);
  take();
  for (bool first = true; !at(']'); first = false) {
    if (!first && !expect(',')) return failure;
    if (token_.kind == Token::Kind::text && integers.empty() && numbers.empty()) {
      texts.push_back(take().text);
    } else if (looksLikeInteger(token_) && texts.empty() && numbers.empty() && !wantsFloats) {
      const Expected<std::int64_t> value = parseInteger();
      if (!value) return failure;
      integers.push_back(*value);
    } else if (texts.empty() && integers.empty()) {
      const Expected<double> value = parseNumber();
      if (!value) return failure;
      numbers.push_back(*value);
    } else {
      return expected("another value of the same kind");
    }
  }
  take();
  if (!texts.empty() || wantsTexts) return Attribute(std::move(texts));
  if (!numbers.empty() || wantsFloats) return Attribute(std::move(numbers));
  return Attribute(std::move(integers));
}

/// A number as a double: 0.5, 3, inf, -inf, nan(0x…). With `bytes` < 8 it is rounded to float once, directly from the
/// text. A NaN's bits, which a conversion might change, go to `nanBits` if it is there.
Expected<double> Parser::parseNumber(std::size_t bytes, std::uint64_t* nanBits) {
  if (acceptWord("inf")) return std::numeric_limits<double>::infinity();
  if (token_.kind == Token::Kind::number && token_.text == "-inf") {
    take();
    return -std::numeric_limits<double>::infinity();
  }
  if (acceptWord("nan")) {
    if (!expect('(')) return failure;
    std::uint64_t bits = 0;
    const char *begin = token_.text.data(), *end = begin + token_.text.size();
    const bool hexadecimal = token_.kind == Token::Kind::number && token_.text.starts_with("0x");
    const auto [stop, error] = std::from_chars(hexadecimal ? begin + 2 : end, end, bits, 16);
    if (!hexadecimal || error != std::errc() || stop != end)
      return expected("the bits of a NaN, such as 0x7ff8000000000000");
    take();
    if (!expect(')')) return failure;
    if (nanBits) *nanBits = bits;
    return std::bit_cast<double>(bits);
  }
  if (token_.kind != Token::Kind::number) return expected("a number");
  double value = 0;
  float single = 0;
  const char *begin = token_.text.data(), *end = begin + token_.text.size();
  const auto [stop, error] =
      bytes < sizeof(double) ? std::from_chars(begin, end, single) : std::from_chars(begin, end, value);
  if (error == std::errc::result_out_of_range) return diags_.error(here()) << "'" << token_.text << "' is out of range";
  if (error != std::errc() || stop != end) return expected("a number");
  take();
  return bytes < sizeof(double) ? static_cast<double>(single) : value;
}

/// One element into `tensor`, which has room for one.
Status Parser::parseElement(Tensor& tensor) {
  const ElementType element = tensor.type().element;
  if (isFloat(element)) {
    std::uint64_t bits = 0;
    const Expected<double> value = parseNumber(pdcrt::bytesOf(element), &bits);
    if (!value) return failure;
    if (bits && element == ElementType::f32)
      tensor.mutableData<float>()[0] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    else if (bits && element != ElementType::f64)
      tensor.mutableData<std::uint16_t>()[0] = static_cast<std::uint16_t>(bits);
    else
      tensor.set(0, *value);
    return success;
  }
  if (element == ElementType::boolean) {
    if (!atWord("true") && !atWord("false")) return expected("'true' or 'false'");
    tensor.set(0, take().text == "true" ? 1 : 0);
    return success;
  }
  const Location location = here();
  const Expected<std::int64_t> value = parseInteger();
  if (!value) return failure;
  const Tensor one = Tensor::ofInts({}, {&*value, 1}).convertedTo(element);
  if (one.asInt(0) != *value) return diags_.error(location) << *value << " does not fit into " << nameOf(element);
  if (element == ElementType::i64)
    tensor.mutableData<std::int64_t>()[0] = *value;
  else
    tensor.set(0, static_cast<double>(*value));
  return success;
}

/// dense<f32[2], [1.0, 2.0]>. Memory is only taken as elements are read: the type may promise any number of them.
Expected<Attribute> Parser::parseDense() {
  take();
  if (!expect('<')) return failure;
  const Location location = here();
  const Expected<Type> type = parseType();
  if (!type || !expect(',') || !expect('[')) return failure;
  const std::int64_t elements = type->elements();
  std::vector<std::byte> bytes;
  Tensor element(Type{type->element, {1}});
  std::int64_t count = 0;
  for (; !at(']'); ++count) {
    if (count > 0 && !expect(',')) return failure;
    if (count == elements)
      return diags_.error(here()) << "there are more than the " << elements << " elements of " << toString(*type);
    if (!parseElement(element)) return failure;
    bytes.insert(bytes.end(), element.bytes().begin(), element.bytes().end());
  }
  take();
  if (count != elements)
    return diags_.error(location) << toString(*type) << " has " << elements << " elements, here are " << count;
  if (!expect('>')) return failure;
  return Attribute(Tensor(*type, bytes));
}

// --- operations ---

Status Parser::checkNewName(const std::string& name) {
  // A parameter that this graph does not use may have the same name.
  if (graph_->find(name)) return diags_.error(here()) << "'%" << name << "' is defined twice";
  return success;
}

Expected<Value*> Parser::parseValue() {
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

Expected<Parameter*> Parser::parseParameterName() {
  if (token_.kind != Token::Kind::value) return expected("a parameter");
  auto parameter = parameters_.find(token_.text);
  if (parameter == parameters_.end()) return diags_.error(here()) << "'%" << token_.text << "' is no parameter";
  take();
  return parameter->second;
}

Status Parser::parseResultNames(std::vector<std::string>& names, std::vector<bool>& present) {
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

Status Parser::parseOperands(std::vector<Value*>& operands) {
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

Status Parser::parseResultTypes(const std::vector<bool>& present, std::vector<Type>& types) {
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

/// <I of %0, group 3, stage 1>, if it is there.
Status Parser::parseAnnotation(Operation& operation) {
  if (!accept('<')) return success;
  do {
    const bool isPhase = atWord("F") || atWord("I") || atWord("W");
    if (isPhase) {
      const std::string phase = take().text;
      operation.phase = phase == "F" ? Phase::forward : phase == "I" ? Phase::inputGradient : Phase::weightGradient;
      if (!acceptWord("of")) continue;
      const Location location = here();
      const Expected<Value*> value = parseValue();
      if (!value) return failure;
      operation.origin = (*value)->definer();
      if (!operation.origin || operation.origin == &operation)
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

Status Parser::parseOperation() {
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

Status Parser::parseInput() {
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

Status Parser::parseOutput() {
  static const std::map<std::string, OutputKind> kinds = {
      {"result", OutputKind::result},     {"loss", OutputKind::loss},   {"prediction", OutputKind::prediction},
      {"gradient", OutputKind::gradient}, {"state", OutputKind::state}, {"send", OutputKind::sent}};
  auto kind = kinds.find(token_.text);
  if (token_.kind != Token::Kind::word || kind == kinds.end()) return expected("an operation, an output or '}'");
  take();
  GraphOutput output{.kind = kind->second};
  if (output.kind == OutputKind::result) {
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
  graph_->outputs.push_back(std::move(output));
  return success;
}

Status Parser::parseGraph() {
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
  if (!expect('{')) return failure;
  while (token_.kind == Token::Kind::value || atWord("_"))
    if (!parseOperation()) return failure;
  while (!accept('}'))
    if (!parseOutput()) return failure;
  return success;
}

// --- the module ---

/// from "lenet.onnx" at 128 length 192000 stored [400, 120] permutation [1, 0], if it is there.
Status Parser::parseReference(Parameter& parameter) {
  if (!acceptWord("from")) return success;
  Reference& reference = parameter.reference;
  Expected<std::string> file = parseText();
  if (!file || !expectWord("at")) return failure;
  const Expected<std::int64_t> offset = parseInteger();
  if (!offset || !expectWord("length")) return failure;
  const Expected<std::int64_t> length = parseInteger();
  if (!length) return failure;
  reference = {.file = std::move(*file), .offset = *offset, .length = *length, .stored = parameter.type.shape};
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

Status Parser::parseParameter() {
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
  if (!parseReference(parameter) || !parseLocation(parameter.location)) return failure;
  Parameter* added = module_->addParameter(std::move(parameter));
  if (!parameters_.emplace(*name, added).second)
    return diags_.error(location) << "two parameters are named '" << *name << "'";
  return success;
}

Expected<std::unique_ptr<Module>> Parser::parse() {
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
  return Parser(text, file, registry, diags).parse();
}
