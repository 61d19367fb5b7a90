// Writes source text from templates that look like their output.
//
//   CodeWriter out;
//   out.write(R"(
//     void $phase$(const Kernels& k) {
//       $body$
//     }
//   )", {{"phase", "forward"}, {"body", "k.conv0.forward(q);\nk.relu1.forward(q);"}});
//
// A template's own indentation does not matter: it starts at the margin of its first line. A value with several lines
// keeps the column of its variable; a line that holds nothing but a variable whose value is "" disappears. `$$` is a
// dollar sign. A variable that is not known is a programmer's error and aborts, with its name.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace pdc {

class CodeWriter {
public:
  using Variables = std::map<std::string, std::string>;

  /// Appends `text` with its variables replaced, indented to the current level. The line break after the opening `R"(`
  /// and the spaces before the closing `)"` are not part of it.
  void write(std::string_view text, const Variables& variables = {});
  /// Appends one line as it is (nothing is replaced), indented; an empty one is just a line break.
  void line(std::string_view text = "");

  /// Everything from here on is indented by two spaces more, or less.
  void indent() { ++level_; }
  void dedent() { --level_; }

  const std::string& text() const { return text_; }

private:
  std::string text_;
  int level_ = 0;
};

/// `text` with its variables replaced, as by CodeWriter::write at the margin.
std::string expandTemplate(std::string_view text, const CodeWriter::Variables& variables);

} // namespace pdc
