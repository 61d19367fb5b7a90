// Errors and warnings: objects with a location, notes and a remedy, collected by an engine that prints them as text
// or JSON and knows the exit code that follows.
//
//   resnet.onnx:layer3.0/conv2: error: 'conv2d' op needs 61.2 GiB on one device, the limit is 40.0 GiB
//   note: activations of 8 minibatches in flight take 48.0 GiB of that
//   help: allow --recompute=auto or give more devices
//
// Messages are lower case, have no full stop, quote with '…', and state both numbers.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace pdc {

/// Where something went wrong: a file, and in it an ONNX node, or a line and column, or a JSON pointer. Any may be
/// empty (0).
struct Location {
  std::string file;
  std::string node; ///< ONNX node name, value name, or JSON pointer
  int line = 0;
  int column = 0;

  /// "file:line:column" where a line is known, else "file:node", else "file".
  std::string str() const;
  friend bool operator==(const Location&, const Location&) = default;
};

/// Exit codes of the compiler tools (docs/decisions and README list them for users).
enum class ExitCode { done = 0, invalidInput = 1, usage = 2, unsupported = 3, noPlan = 4, internal = 70 };

enum class Severity { error, warning, remark };

struct Diagnostic {
  Severity severity = Severity::error;
  Location location;
  std::string message;
  std::vector<std::string> notes;
  std::vector<std::string> helps;
  ExitCode exitCode = ExitCode::invalidInput; ///< of errors
};

/// Collects diagnostics and prints each as it is complete.
class Diagnostics {
public:
  enum class Format { text, json };

  /// Diagnostics go to `stream` as they come; nullptr collects silently (tests).
  explicit Diagnostics(std::ostream* stream, Format format = Format::text) : stream_(stream), format_(format) {}
  Diagnostics(const Diagnostics&) = delete;
  Diagnostics& operator=(const Diagnostics&) = delete;

  /// A diagnostic under construction; reported when it goes out of scope (at the end of the statement).
  ///   diags.error(location) << "…" ;  diags.error(location).exit(ExitCode::unsupported).help("…") << "…";
  class Builder;
  Builder error(Location location);
  Builder warning(Location location);
  Builder remark(Location location);

  void report(Diagnostic diagnostic);

  bool hasErrors() const;
  /// Of the first error; `done` without errors.
  ExitCode exitCode() const;
  const std::vector<Diagnostic>& all() const { return diagnostics_; }

private:
  std::ostream* stream_;
  Format format_;
  std::vector<Diagnostic> diagnostics_;
};

/// The text form shown above, with a final newline.
std::string toString(const Diagnostic& diagnostic);

} // namespace pdc

#include "pdc/Support/DiagnosticsBuilder.h"
