#include "pdcrt/Team.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pdcrt {

const char* nameOf(Collective::Kind kind) {
  constexpr const char* names[] = {"all-reduce", "reduce-scatter", "all-gather", "all-to-all"};
  return names[static_cast<std::size_t>(kind)];
}

std::int64_t Collective::sentElements(int member, int members) const {
  const std::int64_t part = partElements(members);
  if (kind != Kind::allReduce) return (members - 1) * part;
  // The others' parts of its data, then its part of the sum to each of them.
  const std::int64_t own = std::clamp<std::int64_t>(elements - part * member, 0, part);
  return elements - own + (members - 1) * own;
}

void refuseStart(const Collective& what, int number) {
  throw std::runtime_error(std::string(nameOf(what.kind)) + " " + std::to_string(number) +
                           " of the team is started again before it has finished");
}

} // namespace pdcrt
