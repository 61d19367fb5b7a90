#include "ExpectedDiagnostics.h"

#include <ostream>
#include <regex>
#include <sstream>
#include <vector>

using namespace pdc;

namespace {
struct Expectation {
  std::string severity, text;
  int line = 0; ///< of the diagnostic
  bool met = false;
};
} // namespace

static const char* nameOf(Severity severity) {
  return severity == Severity::error ? "error" : severity == Severity::warning ? "warning" : "remark";
}

static std::vector<Expectation> expectationsIn(const std::string& text, int firstLine) {
  static const std::regex pattern("expected-(error|warning|remark)(@([+-][0-9]{1,6}))?\\s*\\{\\{(.*?)\\}\\}");
  std::vector<Expectation> expectations;
  std::istringstream lines(text);
  std::string line;
  for (int number = firstLine; std::getline(lines, line); ++number)
    for (std::sregex_iterator match(line.begin(), line.end(), pattern), end; match != end; ++match)
      expectations.push_back({.severity = (*match)[1],
                              .text = (*match)[4],
                              .line = number + ((*match)[3].matched ? std::stoi((*match)[3]) : 0)});
  return expectations;
}

static bool meets(const Diagnostic& diagnostic, const Expectation& expectation) {
  if (expectation.met || expectation.severity != nameOf(diagnostic.severity)) return false;
  if (diagnostic.location.line > 0 && diagnostic.location.line != expectation.line) return false;
  if (diagnostic.message.find(expectation.text) != std::string::npos) return true;
  for (const std::string& note : diagnostic.notes)
    if (note.find(expectation.text) != std::string::npos) return true;
  for (const std::string& help : diagnostic.helps)
    if (help.find(expectation.text) != std::string::npos) return true;
  return false;
}

bool pdc::checkExpectedDiagnostics(const std::string& text, int firstLine, const Diagnostics& diags,
                                   std::ostream& out) {
  std::vector<Expectation> expectations = expectationsIn(text, firstLine);
  bool ok = true;
  for (const Diagnostic& diagnostic : diags.all()) {
    bool expected = false;
    for (Expectation& expectation : expectations)
      if (!expected && meets(diagnostic, expectation)) expected = expectation.met = true;
    if (expected) continue;
    ok = false;
    out << "not expected: " << toString(diagnostic);
  }
  for (const Expectation& expectation : expectations) {
    if (expectation.met) continue;
    ok = false;
    out << "line " << expectation.line << ": expected " << expectation.severity
        << " was not reported: " << expectation.text << "\n";
  }
  return ok;
}
