// Regular expressions of flags that choose by name: --freeze, --train, --lora, --quantize.
#pragma once

#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"

#include <regex.h>
#include <string>

namespace pdc {

/// A POSIX extended regular expression from the command line. (std::regex recurses once per character of a name.)
class NamePattern {
public:
  NamePattern(const char* flag, const std::string& text) : flag_(flag), text_(text) {
    compiled_ = ::regcomp(&expression_, text_.c_str(), REG_EXTENDED | REG_NOSUB) == 0;
  }
  ~NamePattern() {
    if (compiled_) ::regfree(&expression_);
  }
  NamePattern(const NamePattern&) = delete;
  NamePattern& operator=(const NamePattern&) = delete;

  Status check(Diagnostics& diags) const {
    if (compiled_) return success;
    return diags.error({}).exit(ExitCode::usage) << flag_ << "='" << text_ << "' is not a regular expression";
  }
  bool matches(const std::string& name) {
    const bool found = compiled_ && !text_.empty() && ::regexec(&expression_, name.c_str(), 0, nullptr, 0) == 0;
    used_ |= found;
    return found;
  }
  void warnIfUnused(const std::string& path, Diagnostics& diags) const {
    if (!text_.empty() && !used_)
      diags.warning({.file = path}).help("'pdc " + path + " --emit=ir' lists their names")
          << flag_ << "='" << text_ << "' matches no floating-point initializer";
  }

private:
  const char* flag_;
  std::string text_;
  regex_t expression_{};
  bool compiled_ = false, used_ = false;
};

} // namespace pdc
