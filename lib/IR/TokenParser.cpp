// Tokens, numbers, types and attributes of the text form.
#include "TokenParser.h"

#include <bit>
#include <charconv>
#include <limits>

using namespace pdc;

Failure TokenParser::expected(const std::string& what) {
  return diags_.error(here()) << "expected " << what << ", found " << describe(token_);
}

Token TokenParser::take() {
  Token taken = std::move(token_);
  token_ = lexer_.next();
  return taken;
}

Status TokenParser::expect(char c) {
  return accept(c) ? Status(success) : expected(std::string("'") + c + "'");
}

Status TokenParser::expectWord(const char* word) {
  return acceptWord(word) ? Status(success) : expected(std::string("'") + word + "'");
}

// --- small things ---

Expected<std::string> TokenParser::parseName(Token::Kind kind, const char* what) {
  if (token_.kind != kind) return expected(what);
  return take().text;
}

Expected<std::string> TokenParser::parseText() {
  return parseName(Token::Kind::text, "a text in quotes");
}

Expected<std::int64_t> TokenParser::parseInteger() {
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

Expected<int> TokenParser::parseSmallInteger() {
  const Location location = here();
  const Expected<std::int64_t> value = parseInteger();
  if (!value) return failure;
  if (*value < -1 || *value > std::numeric_limits<int>::max())
    return diags_.error(location) << *value << " is not from -1 to " << std::numeric_limits<int>::max();
  return static_cast<int>(*value);
}

Expected<std::vector<std::int64_t>> TokenParser::parseIntegers() {
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
Expected<Type> TokenParser::parseType() {
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
Status TokenParser::parseLocation(Location& location) {
  if (!acceptWord("loc")) return success;
  if (!expect('(')) return failure;
  Expected<std::string> node = parseText();
  if (!node || !expect(')')) return failure;
  location.node = std::move(*node);
  return success;
}

// --- attributes ---

Status TokenParser::parseAttributes(const OpDef& def, Attributes& attributes) {
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
Expected<Attribute> TokenParser::parseAttribute(const Attribute* example) {
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

Expected<Attribute> TokenParser::parseNumberAttribute(bool wantsFloat) {
  if (looksLikeInteger(token_) && !wantsFloat) {
    const Expected<std::int64_t> value = parseInteger();
    if (!value) return failure;
    return Attribute(*value);
  }
  const Expected<double> value = parseNumber();
  if (!value) return failure;
  return Attribute(*value);
}

Expected<Attribute> TokenParser::parseList(const Attribute* example) {
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
Expected<double> TokenParser::parseNumber(std::size_t bytes, std::uint64_t* nanBits) {
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
Status TokenParser::parseElement(Tensor& tensor) {
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
  const std::string text = token_.text;
  std::uint64_t large = 0; // the half of u64 that an i64 does not have
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), large);
  if (element == ElementType::u64 && problem == std::errc() && end == text.data() + text.size() && large > INT64_MAX) {
    take();
    tensor.setInt(0, static_cast<std::int64_t>(large));
    return success;
  }
  const Expected<std::int64_t> value = parseInteger();
  if (!value) return failure;
  tensor.setInt(0, *value);
  if (tensor.asInt(0) != *value || (element == ElementType::u64 && *value < 0))
    return diags_.error(location) << *value << " does not fit into " << nameOf(element);
  return success;
}

/// dense<f32[2], [1.0, 2.0]>. Memory is only taken as elements are read: the type may promise any number of them.
Expected<Attribute> TokenParser::parseDense() {
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
