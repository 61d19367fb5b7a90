// The streaming half of Diagnostics.h, which includes it.
#pragma once

#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"

#include <sstream>

namespace pdc {

class [[nodiscard]] Diagnostics::Builder {
public:
  Builder(Diagnostics& engine, Severity severity, Location location) : engine_(&engine) {
    diagnostic_.severity = severity;
    diagnostic_.location = std::move(location);
  }
  Builder(Builder&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), diagnostic_(std::move(other.diagnostic_)),
        text_(std::move(other.text_)) {}
  Builder& operator=(Builder&&) = delete;
  ~Builder() {
    if (!engine_) return;
    diagnostic_.message = text_.str();
    engine_->report(std::move(diagnostic_));
  }

  template <class T>
  Builder&& operator<<(const T& part) && {
    text_ << part;
    return std::move(*this);
  }
  Builder&& note(std::string text) && {
    diagnostic_.notes.push_back(std::move(text));
    return std::move(*this);
  }
  Builder&& help(std::string text) && {
    diagnostic_.helps.push_back(std::move(text));
    return std::move(*this);
  }
  Builder&& exit(ExitCode code) && {
    diagnostic_.exitCode = code;
    return std::move(*this);
  }
  /// `return diags.error(loc) << "…";` in a function that returns Expected<T>.
  operator Failure() && { return failure; }
  template <class T>
  operator Expected<T>() && {
    return failure;
  }

private:
  Diagnostics* engine_;
  Diagnostic diagnostic_;
  std::ostringstream text_;
};

inline Diagnostics::Builder Diagnostics::error(Location location) {
  return {*this, Severity::error, std::move(location)};
}
inline Diagnostics::Builder Diagnostics::warning(Location location) {
  return {*this, Severity::warning, std::move(location)};
}
inline Diagnostics::Builder Diagnostics::remark(Location location) {
  return {*this, Severity::remark, std::move(location)};
}

} // namespace pdc
