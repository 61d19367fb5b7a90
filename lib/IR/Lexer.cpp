// Tokens of the text form. Any bytes are accepted: what is no token becomes a `bad` one.
#include "Lexer.h"

#include <algorithm>
#include <cctype>
#include <string_view>

using namespace pdc;

static bool isWordPart(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

/// Names of ONNX have dots, slashes and dashes; a colon does not belong, since it follows the name of an input.
static bool isNamePart(char c) {
  return isWordPart(c) || c == '.' || c == '/' || c == '-' || c == '$';
}

bool pdc::isBareName(const std::string& name) {
  // Two slashes open a comment.
  return !name.empty() && name.find("//") == std::string::npos && std::all_of(name.begin(), name.end(), isNamePart);
}

std::string pdc::quoted(const std::string& text) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string result = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      result += std::string("\\") + c;
    else if (c == '\n')
      result += "\\n";
    else if (c == '\t')
      result += "\\t";
    else if (byte < 0x20 || byte == 0x7F)
      result += std::string("\\x") + digits[byte >> 4] + digits[byte & 15];
    else
      result += c;
  }
  return result + "\"";
}

std::string pdc::describe(const Token& token) {
  switch (token.kind) {
  case Token::Kind::end: return "the end of the file";
  case Token::Kind::value: return "'%" + token.text + "'";
  case Token::Kind::symbol: return "'@" + token.text + "'";
  case Token::Kind::text: return quoted(token.text);
  case Token::Kind::bad: return token.text;
  case Token::Kind::word:
  case Token::Kind::number:
  case Token::Kind::punctuation: break;
  }
  return "'" + token.text + "'";
}

void Lexer::step() {
  if (text_[at_++] == '\n') {
    ++line_;
    column_ = 1;
  } else {
    ++column_;
  }
}

void Lexer::skipSpaceAndComments() {
  while (at_ < text_.size()) {
    if (std::isspace(static_cast<unsigned char>(peek())))
      step();
    else if (peek() == '/' && peek(1) == '/')
      while (at_ < text_.size() && peek() != '\n') step();
    else
      return;
  }
}

static int hexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/// A text in quotes; the opening one is next.
void Lexer::readQuoted(Token& token) {
  auto bad = [&](const char* reason) {
    token.kind = Token::Kind::bad;
    token.text = reason;
  };
  step();
  while (true) {
    if (at_ >= text_.size() || peek() == '\n') return bad("a text without closing quote");
    const char c = peek();
    step();
    if (c == '"') return;
    if (c != '\\') {
      token.text += c;
      continue;
    }
    if (at_ >= text_.size()) return bad("a text without closing quote");
    const char escape = peek();
    step();
    if (escape == '"' || escape == '\\') {
      token.text += escape;
    } else if (escape == 'n') {
      token.text += '\n';
    } else if (escape == 't') {
      token.text += '\t';
    } else if (escape == 'x' && hexDigit(peek()) >= 0 && hexDigit(peek(1)) >= 0) {
      token.text += static_cast<char>(hexDigit(peek()) * 16 + hexDigit(peek(1)));
      step();
      step();
    } else {
      return bad("an escape other than \\\" \\\\ \\n \\t \\x00");
    }
  }
}

/// The name after % or @, which is next.
void Lexer::readName(Token& token) {
  step();
  if (peek() == '"') return readQuoted(token);
  while (isNamePart(peek()) && !(peek() == '/' && peek(1) == '/')) {
    token.text += peek();
    step();
  }
  if (token.text.empty()) {
    token.text = std::string("a '") + (token.kind == Token::Kind::value ? '%' : '@') + "' without name";
    token.kind = Token::Kind::bad;
  }
}

Token Lexer::next() {
  skipSpaceAndComments();
  Token token{.line = line_, .column = column_};
  if (at_ >= text_.size()) return token;
  const char c = peek();
  auto take = [&](auto belongs) {
    while (at_ < text_.size() && belongs(peek())) {
      token.text += peek();
      step();
    }
  };
  if (c == '%' || c == '@') {
    token.kind = c == '%' ? Token::Kind::value : Token::Kind::symbol;
    readName(token);
  } else if (c == '"') {
    token.kind = Token::Kind::text;
    readQuoted(token);
  } else if (std::isdigit(static_cast<unsigned char>(c)) || c == '-') {
    token.kind = Token::Kind::number;
    char last = '\0';
    take([&](char next) {
      const bool sign = (next == '-' || next == '+') && (last == '\0' || last == 'e');
      const bool belongs = isWordPart(next) || next == '.' || sign;
      last = next;
      return belongs;
    });
  } else if (isWordPart(c)) {
    token.kind = Token::Kind::word;
    take(isWordPart);
  } else if (std::string_view("{}()[]<>,:=").find(c) != std::string_view::npos) {
    token.kind = Token::Kind::punctuation;
    token.text = c;
    step();
  } else {
    token.kind = Token::Kind::bad;
    token.text = std::isprint(static_cast<unsigned char>(c)) ? std::string("'") + c + "'" : "an unprintable character";
    step();
  }
  return token;
}
