#include "Processor.h"

#include "pdcrt/Hash.h"
#include "pdcrt/StreamClock.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

namespace pdcrt {

std::string processorKind(std::string_view cpuinfo) {
  // x86-64 has the first six lines, AArch64 the others. Lines such as "cpu MHz" change while the machine runs.
  constexpr std::array<std::string_view, 12> telling = {
      "vendor_id",       "cpu family",       "model",       "model name", "stepping",     "flags",
      "CPU implementer", "CPU architecture", "CPU variant", "CPU part",   "CPU revision", "Features"};
  std::string kind;
  while (!cpuinfo.empty()) {
    const std::string_view line = cpuinfo.substr(0, cpuinfo.find('\n'));
    cpuinfo.remove_prefix(std::min(cpuinfo.size(), line.size() + 1));
    if (line.empty() && !kind.empty()) break; // the next processor
    const std::string_view name = line.substr(0, line.find_first_of("\t:"));
    if (std::find(telling.begin(), telling.end(), name) != telling.end()) kind.append(line).append("\n");
  }
  return kind;
}

std::uint32_t kindOfDevice() {
  if (const std::string name = device::name(); !name.empty()) return static_cast<std::uint32_t>(hashOf(name));
  std::ifstream file("/proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return static_cast<std::uint32_t>(hashOf(processorKind(text)));
}

} // namespace pdcrt
