#include "pdc/Support/Diagnostics.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <ostream>

using namespace pdc;

std::string Location::str() const {
  std::string text = file;
  if (line > 0) {
    text += ":" + std::to_string(line);
    if (column > 0) text += ":" + std::to_string(column);
  } else if (!node.empty()) {
    text += (text.empty() ? "" : ":") + node;
  }
  return text;
}

static const char* nameOf(Severity severity) {
  switch (severity) {
  case Severity::error: return "error";
  case Severity::warning: return "warning";
  case Severity::remark: return "remark";
  }
  return "";
}

std::string pdc::toString(const Diagnostic& diagnostic) {
  std::string where = diagnostic.location.str();
  std::string text =
      (where.empty() ? "" : where + ": ") + nameOf(diagnostic.severity) + ": " + diagnostic.message + "\n";
  for (const std::string& note : diagnostic.notes) text += "note: " + note + "\n";
  for (const std::string& help : diagnostic.helps) text += "help: " + help + "\n";
  return text;
}

/// One JSON object per line, with the fields of Diagnostic. Text that is not UTF-8 (names come from files) is escaped.
static std::string toJsonLine(const Diagnostic& diagnostic) {
  nlohmann::ordered_json object = {{"severity", nameOf(diagnostic.severity)},
                                   {"file", diagnostic.location.file},
                                   {"node", diagnostic.location.node},
                                   {"line", diagnostic.location.line},
                                   {"column", diagnostic.location.column},
                                   {"message", diagnostic.message},
                                   {"notes", diagnostic.notes},
                                   {"helps", diagnostic.helps}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void Diagnostics::report(Diagnostic diagnostic) {
  if (stream_) *stream_ << (format_ == Format::text ? toString(diagnostic) : toJsonLine(diagnostic)) << std::flush;
  diagnostics_.push_back(std::move(diagnostic));
}

static bool isError(const Diagnostic& diagnostic) {
  return diagnostic.severity == Severity::error;
}

bool Diagnostics::hasErrors() const {
  return std::any_of(diagnostics_.begin(), diagnostics_.end(), isError);
}

ExitCode Diagnostics::exitCode() const {
  auto first = std::find_if(diagnostics_.begin(), diagnostics_.end(), isError);
  return first == diagnostics_.end() ? ExitCode::done : first->exitCode;
}
