// Splits the text form of the IR into tokens. Private to lib/IR.
#pragma once

#include <cstddef>
#include <string>

namespace pdc {

struct Token {
  enum class Kind {
    end,
    word,        ///< keyword, op name, element type, attribute name
    value,       ///< %name
    symbol,      ///< @name
    number,      ///< 3, -0.5, 1e-3
    text,        ///< "…"
    punctuation, ///< one of { } ( ) [ ] < > , : =
    bad          ///< not a token; `text` says why
  };
  Kind kind = Kind::end;
  std::string text; ///< without sigil, quotes and escapes
  int line = 1, column = 1;
};

/// How the token is called in messages: "'conv2d'", "end of file".
std::string describe(const Token& token);

class Lexer {
public:
  explicit Lexer(const std::string& text) : text_(text) {}
  Token next();

private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void step();
  void skipSpaceAndComments();
  void readQuoted(Token& token);
  void readName(Token& token);

  const std::string& text_;
  std::size_t at_ = 0;
  int line_ = 1, column_ = 1;
};

/// Whether `name` can stand after % and @ without quotes.
bool isBareName(const std::string& name);
/// `text` with quotes and escapes.
std::string quoted(const std::string& text);

} // namespace pdc
