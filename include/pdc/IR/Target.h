// What a program is generated for.
#pragma once

namespace pdc {

enum class Target { cpu, cuda };

/// As it is typed: "cpu", "cuda".
inline const char* nameOf(Target target) {
  return target == Target::cuda ? "cuda" : "cpu";
}

} // namespace pdc
