// Names of a model in a generated program: as identifiers, and as text inside comments, strings and file names. Names
// of a model are arbitrary bytes; they reach generated text through these functions only.
#pragma once

#include "pdcrt/Part.h"

#include <set>
#include <string>

namespace pdc {

/// Identifiers of one scope. Each is made from a hint and is different from all before.
class Identifiers {
public:
  /// The hint with everything that C++ does not allow replaced by '_', at most 48 characters; a number is appended when
  /// that is taken, a reserved word or nothing. "fc1.weight" → fc1_weight, "class" → class_2.
  std::string unique(const std::string& hint);

private:
  std::set<std::string> taken_;
};

/// `text` within a // comment of one line: printable ASCII, no backslash.
std::string commentText(const std::string& text);

/// `text` as a string literal, with its quotes.
std::string stringLiteral(const std::string& text);

/// The last member of a row of a table whose tensor is divided, "{.axis = 1, .blocks = 3, .of = 2, .wholeSize = 2304}".
/// `order` is the name of the table that has its order; empty: it has none.
std::string partText(const pdcrt::Part& part, const std::string& order = "");

} // namespace pdc
