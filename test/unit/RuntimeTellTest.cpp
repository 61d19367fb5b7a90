// LINK: pdcrt
// Ranks that fail together write to one standard error, so an error and its help are one write.
#include "run/Tell.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <string>
#include <unistd.h>

using namespace pdcrt;

namespace {

/// What the first write of tell() is: a pipe in packet mode gives one write per read.
std::string firstWrite(const Status& status) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_DIRECT), 0);
  const int usual = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  tell(status);
  dup2(usual, STDERR_FILENO);
  for (const int end : {usual, ends[1]}) close(end);
  std::string text(4096, '\0');
  const ssize_t count = read(ends[0], text.data(), text.size());
  close(ends[0]);
  return text.substr(0, count > 0 ? static_cast<std::size_t>(count) : 0);
}

} // namespace

TEST(RuntimeTell, AnErrorAndItsHelpAreOneWrite) {
  EXPECT_EQ(firstWrite({Exit::badData, "rank 0: no data", "give --data"}),
            "error: rank 0: no data\nhelp: give --data\n");
}

TEST(RuntimeTell, AnErrorWithoutHelpIsOneLine) {
  EXPECT_EQ(firstWrite({Exit::badData, "rank 0: no data"}), "error: rank 0: no data\n");
}
