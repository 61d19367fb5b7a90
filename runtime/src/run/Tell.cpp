#include "Tell.h"

#include <cerrno>
#include <string>
#include <unistd.h>

void pdcrt::tell(const Status& status) {
  std::string text = "error: " + status.message() + "\n";
  if (!status.help().empty()) text += "help: " + status.help() + "\n";
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(STDERR_FILENO, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    written += static_cast<std::size_t>(count);
  }
}
