// Expands templates line by line.
#include "pdc/Support/CodeWriter.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace pdc;

static std::vector<std::string_view> linesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return lines;
}

static std::size_t marginOf(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}
static bool isBlank(std::string_view line) {
  return marginOf(line) == line.size();
}

[[noreturn]] static void abortAt(const char* problem, std::string_view what) {
  std::fprintf(stderr, "template: %s '%.*s'\n", problem, static_cast<int>(what.size()), what.data());
  std::abort();
}

/// `line` with its variables replaced; the lines of a value after its first start at the column of the variable. True
/// in `vanishes` when there was a variable, and nothing is left.
static std::string expandLine(std::string_view line, const CodeWriter::Variables& variables, bool& vanishes) {
  std::string result;
  bool hadVariable = false;
  for (std::size_t i = 0; i < line.size();) {
    if (line[i] != '$') {
      result += line[i++];
      continue;
    }
    const std::size_t end = line.find('$', i + 1);
    if (end == std::string_view::npos) abortAt("a '$' without a second one in", line);
    const std::string name(line.substr(i + 1, end - i - 1));
    i = end + 1;
    if (name.empty()) {
      result += '$';
      continue;
    }
    auto variable = variables.find(name);
    if (variable == variables.end()) abortAt("unknown variable", name);
    hadVariable = true;
    // A value that continues on new lines keeps the indentation of the line in which it stands.
    const std::string column(marginOf(line), ' ');
    std::string_view value = variable->second;
    if (value.ends_with('\n')) value.remove_suffix(1);
    bool first = true;
    for (std::string_view part : linesOf(value)) {
      if (!first) result += "\n" + (part.empty() ? "" : column);
      result += part;
      first = false;
    }
  }
  vanishes = hadVariable && isBlank(result);
  return result;
}

std::string pdc::expandTemplate(std::string_view text, const CodeWriter::Variables& variables) {
  std::vector<std::string_view> lines = linesOf(text);
  if (lines.size() > 1 && isBlank(lines.front())) lines.erase(lines.begin());
  if (!lines.empty() && isBlank(lines.back())) lines.pop_back();
  const std::size_t margin = lines.empty() ? 0 : marginOf(lines.front());
  std::string result;
  for (std::string_view line : lines) {
    bool vanishes = false;
    const std::string expanded = expandLine(line.substr(std::min(margin, marginOf(line))), variables, vanishes);
    if (!vanishes) result += (isBlank(expanded) ? "" : expanded) + "\n";
  }
  return result;
}

void CodeWriter::write(std::string_view text, const Variables& variables) {
  const std::string expanded = expandTemplate(text, variables);
  if (expanded.empty()) return;
  for (std::string_view part : linesOf(std::string_view(expanded).substr(0, expanded.size() - 1))) line(part);
}

void CodeWriter::line(std::string_view text) {
  if (!text.empty()) text_.append(static_cast<std::size_t>(2 * level_), ' ').append(text);
  text_ += '\n';
}
