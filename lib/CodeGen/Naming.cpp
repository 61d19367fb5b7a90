// One escaper per sink.
#include "pdc/CodeGen/Naming.h"

#include <algorithm>
#include <iterator>

using namespace pdc;

namespace {

bool isDigit(char c) {
  return c >= '0' && c <= '9';
}
bool isLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool isPrintable(char c) {
  return c >= 0x20 && c <= 0x7e;
}

/// Words that a member or a function cannot have as its name, and those that every generated program uses.
bool isReserved(const std::string& word) {
  static const std::set<std::string> keywords = {
      "alignas",     "alignof",  "and",        "and_eq",    "asm",       "auto",         "bitand",
      "bitor",       "bool",     "break",      "case",      "catch",     "char",         "char16_t",
      "char32_t",    "char8_t",  "class",      "co_await",  "co_return", "co_yield",     "compl",
      "concept",     "const",    "const_cast", "consteval", "constexpr", "constinit",    "continue",
      "decltype",    "default",  "delete",     "do",        "double",    "dynamic_cast", "else",
      "enum",        "explicit", "export",     "extern",    "false",     "float",        "for",
      "friend",      "goto",     "if",         "inline",    "int",       "long",         "mutable",
      "namespace",   "new",      "noexcept",   "not",       "not_eq",    "nullptr",      "operator",
      "or",          "or_eq",    "private",    "protected", "public",    "register",     "reinterpret_cast",
      "requires",    "return",   "short",      "signed",    "sizeof",    "static",       "static_assert",
      "static_cast", "struct",   "switch",     "template",  "this",      "thread_local", "throw",
      "true",        "try",      "typedef",    "typeid",    "typename",  "union",        "unsigned",
      "using",       "virtual",  "void",       "volatile",  "wchar_t",   "while",        "xor",
      "xor_eq",      "linux",    "unix",       "NULL",      "errno",     "assert",       "stdin",
      "stdout",      "stderr",   "EOF",        "NAN",       "INFINITY"};
  static const std::set<std::string> ours = {"View",  "Element", "base",     "frozen",         "frame",
                                             "stage", "forward", "evaluate", "backward_input", "backward_weight"};
  return keywords.contains(word) || ours.contains(word);
}

} // namespace

std::string Identifiers::unique(const std::string& hint) {
  std::string name;
  for (char c : hint.substr(0, 48)) {
    const bool kept = isDigit(c) || isLetter(c);
    if (kept)
      name += c;
    else if (!name.empty() && name.back() != '_') // no "__", which is reserved, and no leading '_'
      name += '_';
  }
  while (!name.empty() && name.back() == '_') name.pop_back();
  if (name.empty()) name = "value";
  if (isDigit(name[0])) name = "n" + name;
  std::string candidate = name;
  for (int suffix = 2; isReserved(candidate) || taken_.contains(candidate); ++suffix)
    candidate = name + "_" + std::to_string(suffix);
  taken_.insert(candidate);
  return candidate;
}

std::string pdc::commentText(const std::string& text) {
  static const char* const digits = "0123456789abcdef";
  std::string result;
  for (char c : text) {
    if (isPrintable(c) && c != '\\') {
      result += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    result += "%";
    result += digits[byte >> 4];
    result += digits[byte & 15];
  }
  return result;
}

std::string pdc::stringLiteral(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\' || c == '?') // "??" begins a trigraph for some compilers
      result += c == '?' ? "\\?" : std::string("\\") + c;
    else if (isPrintable(c))
      result += c;
    else { // three octal digits, so that what follows cannot be read as part of it
      const auto byte = static_cast<unsigned char>(c);
      result += '\\';
      for (int shift = 6; shift >= 0; shift -= 3) result += static_cast<char>('0' + ((byte >> shift) & 7));
    }
  }
  return result + "\"";
}

std::string pdc::partText(const pdcrt::Part& part, const std::string& order) {
  return "{.axis = " + std::to_string(part.axis) + ", .blocks = " + std::to_string(part.blocks) +
         ", .of = " + std::to_string(part.of) + ", .wholeSize = " + std::to_string(part.wholeSize) +
         (order.empty() ? "" : ", .order = " + order) + "}";
}
