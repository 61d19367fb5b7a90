// Open MPI frames a message by lines of 74 dashes (orte/util/show_help.c), and counts repeated ones in lines of their
// own.
#include "LauncherOutput.h"

#include <utility>

using namespace pdc;

namespace {

constexpr std::string_view errorBegins = "error: ";
constexpr std::size_t dashes = 74, longestMessage = 1 << 14;

/// Whether a line that begins so may be one of Open MPI's.
bool mayBeOwn(std::string_view line) {
  return line.empty() || line[0] == '[' ? line.size() < 256
                                        : line.size() <= dashes && line.find_first_not_of('-') == std::string::npos;
}

/// Whether more of a line must be seen to know whether it is an error.
bool beginsError(std::string_view line) {
  return line.size() < errorBegins.size() && errorBegins.starts_with(line);
}

bool isFrame(std::string_view line) {
  return line.size() == dashes && line.find_first_not_of('-') == std::string::npos;
}

/// "[host:123] 2 more processes have sent help message help-mpi-btl.txt / no device", and how to see all of them; what
/// goes wrong in Open MPI while it ends a job.
bool isOwnLine(std::string_view line) {
  if (!line.starts_with("[")) return false;
  for (const char* words :
       {"sent help message help-", "\"orte_base_help_aggregate\"", " ORTE_ERROR_LOG: ", " PMIX ERROR: "})
    if (line.find(words) != std::string::npos) return true;
  return false;
}

} // namespace

std::string LauncherOutput::endLine() {
  std::string line = std::exchange(line_, {});
  if (std::exchange(passing_, false)) return line + "\n";
  if (!message_.empty()) {
    message_ += line + "\n";
    if (isFrame(line)) messages_ += std::exchange(message_, {});
    return message_.size() > longestMessage ? std::exchange(message_, {}) : "";
  }
  if (isFrame(line)) {
    message_ = line + "\n";
    return "";
  }
  if (!isOwnLine(line)) return line + "\n";
  messages_ += line + "\n";
  return "";
}

std::string LauncherOutput::take(std::string_view bytes) {
  std::string passed;
  for (const char c : bytes) {
    if (c == '\n') {
      passed += endLine();
      continue;
    }
    line_ += c;
    saysError_ = saysError_ || (!passing_ && line_ == errorBegins);
    if (passing_ || (message_.empty() && !mayBeOwn(line_) && !beginsError(line_))) {
      passing_ = true;
      passed += std::exchange(line_, {});
    }
  }
  return passed;
}

std::string LauncherOutput::rest() {
  return std::exchange(message_, {}) + std::exchange(line_, {});
}

std::string LauncherOutput::takeMessages() {
  return std::exchange(messages_, {});
}
