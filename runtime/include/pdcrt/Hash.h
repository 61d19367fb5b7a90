// A number for a text: FNV-1a of 64 bits (Fowler, Noll, Vo). Names of inputs and parameters choose random numbers by
// it, ranks compare by it what they were started with. Not against people who mean to deceive.
#pragma once

#include <cstdint>
#include <string_view>

namespace pdcrt {

constexpr std::uint64_t hashOf(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

} // namespace pdcrt
