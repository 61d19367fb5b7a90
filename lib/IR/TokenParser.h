// What the parser of the text form has in common for all its parts: tokens, numbers, types, attributes. Private to
// lib/IR.
#pragma once

#include "Lexer.h"
#include "pdc/IR/OpDef.h"

namespace pdc {

/// One token ahead. Functions that fail have reported why, at the token that they did not expect.
class TokenParser {
public:
  TokenParser(const std::string& text, const std::string& file, Diagnostics& diags)
      : file_(file), diags_(diags), lexer_(text), token_(lexer_.next()) {}

protected:
  // Tokens.
  Location here() const { return {.file = file_, .line = token_.line, .column = token_.column}; }
  Failure expected(const std::string& what);
  Token take();
  bool at(char c) const { return token_.kind == Token::Kind::punctuation && token_.text[0] == c; }
  bool atWord(const char* word) const { return token_.kind == Token::Kind::word && token_.text == word; }
  bool accept(char c) { return at(c) && (take(), true); }
  bool acceptWord(const char* word) { return atWord(word) && (take(), true); }
  Status expect(char c);
  Status expectWord(const char* word);

  // Small things.
  Expected<std::string> parseName(Token::Kind kind, const char* what);
  Expected<std::string> parseText();
  Expected<std::int64_t> parseInteger();
  /// From -1, which stands for none, to the largest int.
  Expected<int> parseSmallInteger();
  Expected<std::vector<std::int64_t>> parseIntegers();
  Expected<Type> parseType();
  Status parseLocation(Location& location);

  // Attributes, with the defaults of `def` for those that the text leaves out.
  Status parseAttributes(const OpDef& def, Attributes& attributes);

  const std::string& file_;
  Diagnostics& diags_;
  Lexer lexer_;
  Token token_;

private:
  Expected<Attribute> parseAttribute(const Attribute* example);
  Expected<Attribute> parseNumberAttribute(bool wantsFloat);
  Expected<Attribute> parseList(const Attribute* example);
  Expected<double> parseNumber(std::size_t bytes = sizeof(double), std::uint64_t* nanBits = nullptr);
  Expected<Attribute> parseDense();
  Status parseElement(Tensor& tensor);
};

} // namespace pdc
