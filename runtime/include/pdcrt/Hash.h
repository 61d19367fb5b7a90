// A number for a text: FNV-1a of 64 bits (Fowler, Noll, Vo). Names of inputs and parameters choose random numbers by
// it, ranks compare by it what they were started with. Not against people who mean to deceive.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace pdcrt {

constexpr std::uint64_t hashOf(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

/// Sixteen digits.
inline std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

} // namespace pdcrt
