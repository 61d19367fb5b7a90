// Lines of the control channel (Supervision.h) as the supervisor reads them. They come from the network: what does not
// follow the protocol is no line of it, and no number is used before it is checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pdcrt {

struct HelloLine {
  struct Rank {
    int number = 0;
    std::string stages; ///< "stage 1, replica 0; stage 3, replica 0"
  };
  std::string token;
  int process = 0;
  std::string host;
  std::string hash;     ///< of plan, schedule, training and flags
  std::string build;    ///< of programs and runtime; empty: not told
  std::string variable; ///< of the environment that told the process its rank; empty: none
  std::vector<Rank> ranks;
};

struct BeatLine {
  int rank = 0;
  std::int64_t count = 0; ///< actions begun
  int phase = 0;
  std::string action;
  double milliseconds = 0; ///< since the action began, finite and at least 0
};

/// Most ranks that one process may say it is.
inline constexpr int mostRanks = 1 << 20;

/// Each returns false, and leaves its result unspecified, where `line` (without its '\n') is none of the kind.
bool parseHello(std::string_view line, HelloLine& hello);
bool parseBeat(std::string_view line, BeatLine& beat);
bool parseBye(std::string_view line, int& code);

} // namespace pdcrt
