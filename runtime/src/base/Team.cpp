#include "pdcrt/Team.h"

namespace pdcrt {

const char* nameOf(Collective::Kind kind) {
  constexpr const char* names[] = {"all-reduce", "reduce-scatter", "all-gather", "all-to-all"};
  return names[static_cast<std::size_t>(kind)];
}

} // namespace pdcrt
