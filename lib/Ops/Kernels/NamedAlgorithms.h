// The attribute `algorithms` (KernelAlternatives): a name of pdcrt's enumeration for each method of a kernel.
#pragma once

#include "Shared/Define.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace pdc::ops {

/// Where Kernel::Algorithms has the algorithm of a method.
template <class Kernel>
using AlgorithmMember = typename Kernel::Algorithm Kernel::Algorithms::*;

/// Automatic for all `methods`.
template <class Kernel>
AttributeDef namedAlgorithms(std::size_t methods, std::vector<std::string> example, std::string summary) {
  return {.name = "algorithms",
          .example = std::move(example),
          .defaultValue = std::vector<std::string>(methods, Kernel::algorithmNames[0]),
          .summary = std::move(summary)};
}

/// What the attribute says, in the order of `members`. Nothing where it is not one name for each.
template <class Kernel, std::size_t methods>
std::optional<typename Kernel::Algorithms> algorithmsNamed(const Attributes& attributes,
                                                           const AlgorithmMember<Kernel> (&members)[methods]) {
  const auto& words = attributes.get<std::vector<std::string>>("algorithms");
  if (words.size() != methods) return std::nullopt;
  typename Kernel::Algorithms algorithms;
  const auto begin = std::begin(Kernel::algorithmNames), end = std::end(Kernel::algorithmNames);
  for (std::size_t i = 0; i < methods; ++i) {
    const auto found = std::find(begin, end, words[i]);
    if (found == end) return std::nullopt;
    algorithms.*members[i] = static_cast<typename Kernel::Algorithm>(found - begin);
  }
  return algorithms;
}

} // namespace pdc::ops
