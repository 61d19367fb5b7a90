// How often random tests try.
#pragma once

#include <cstdlib>

namespace pdc {

/// `few`, which takes seconds; more by hand: PDC_TEST_ROUNDS=20 ./NameOfTheTest
inline int rounds(int few) {
  const char* factor = std::getenv("PDC_TEST_ROUNDS");
  return factor ? few * std::atoi(factor) : few;
}

} // namespace pdc
