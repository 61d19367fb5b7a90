// Success, or what went wrong: the message, what to type next, and the exit code of the program that cannot go on.
#pragma once

#include <string>
#include <utility>

namespace pdcrt {

/// Exit codes of stage programs (docs/Running.md).
enum class Exit : int {
  done = 0,
  invalid = 1,        ///< plan, schedule or training file that cannot be run
  usage = 2,          ///< a flag is unknown or wrong
  badData = 65,       ///< data set, weights or checkpoint missing or corrupt
  noDevice = 69,      ///< no usable device
  cannotWrite = 74,   ///< a result cannot be written
  again = 75,         ///< a peer is gone, or a signal came
  lossNotFinite = 76, ///< the loss is nan or infinite
};

class [[nodiscard]] Status {
public:
  Status() = default;
  Status(Exit code, std::string message, std::string help = {})
      : code_(code), message_(std::move(message)), help_(std::move(help)) {}

  /// Whether all went well.
  explicit operator bool() const { return code_ == Exit::done; }
  Exit code() const { return code_; }
  /// "digits.npy: has shape [1797, 8, 8], …": lower case, no full stop.
  const std::string& message() const { return message_; }
  /// What to type next; may be empty.
  const std::string& help() const { return help_; }

private:
  Exit code_ = Exit::done;
  std::string message_, help_;
};

} // namespace pdcrt
