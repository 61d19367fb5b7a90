// What a launcher and the ranks write to the launcher's stderr, taken apart: ranks' lines are passed on at once, what
// mpirun says of itself is kept until it is clear whether anybody needs it.
#pragma once

#include <string>
#include <string_view>

namespace pdc {

class LauncherOutput {
public:
  /// Takes what has been read from the launcher. Returns what is to be passed on: all but Open MPI's own messages,
  /// which stand between two lines of dashes.
  std::string take(std::string_view bytes);
  /// At the end: what is left of an unfinished line or message.
  std::string rest();

  /// The messages that have been kept since the last call, with their lines of dashes.
  std::string takeMessages();

  /// Whether a line that begins with "error: " has been passed on: a rank has said why it ends.
  bool saysError() const { return saysError_; }

private:
  std::string endLine();

  std::string line_;     ///< that may still become one of Open MPI's own
  bool passing_ = false; ///< the beginning of the line has been passed on
  std::string message_;  ///< that has begun: not empty between two lines of dashes
  std::string messages_; ///< whole ones
  bool saysError_ = false;
};

} // namespace pdc
