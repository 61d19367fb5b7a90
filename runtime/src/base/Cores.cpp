#include "pdcrt/Cores.h"

#include "pdcrt/Hash.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sched.h>
#include <string>
#include <string_view>
#include <unistd.h>

namespace pdcrt {

Cores ownCores() {
  Cores own;
  cpu_set_t bound;
  CPU_ZERO(&bound);
  if (::sched_getaffinity(0, sizeof bound, &bound) == 0) {
    own.count = CPU_COUNT(&bound);
    const std::uint64_t hash = hashOf({reinterpret_cast<const char*>(&bound), sizeof bound});
    own.set = static_cast<std::uint32_t>(hash ^ hash >> 32);
  } else { // more cores than the type has bits
    own.count = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  }
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string text;
  if (std::getline(file, text))
    if (const int quota = coresOfQuota(text)) own.count = std::min(own.count, quota);
  own.count = std::max(own.count, 1);
  return own;
}

int coresOfQuota(std::string_view text) {
  double used = 0, period = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, used);
  if (error != std::errc() || next == end || *next != ' ') return 0;
  if (std::from_chars(next + 1, end, period).ec != std::errc() || used <= 0 || period <= 0) return 0;
  const double cores = used / period;
  if (cores >= 1 << 20) return 0;
  return static_cast<int>(cores) + (cores > static_cast<int>(cores) ? 1 : 0);
}

} // namespace pdcrt
