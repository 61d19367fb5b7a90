// ",strip=PREFIX" and ",add=PREFIX" of --init-from: how names in a file become names of parameters.
#pragma once

#include <compare>
#include <string>
#include <utility>

namespace pdc {

/// A change of the tensors' names that makes them the parameters'.
struct Renaming {
  std::string strip, add; ///< off the front and to the front
  friend auto operator<=>(const Renaming&, const Renaming&) = default;

  /// The name of a tensor as a parameter's; empty: it does not begin with what is taken off.
  std::string operator()(const std::string& tensor) const {
    return tensor.starts_with(strip) ? add + tensor.substr(strip.size()) : "";
  }
  std::string flag() const { return (strip.empty() ? "" : ",strip=" + strip) + (add.empty() ? "" : ",add=" + add); }
  std::string str() const {
    return (strip.empty() ? "" : "without '" + strip + "'") + (add.empty() ? "" : "with '" + add + "' before them");
  }
};

/// Takes what is said of names off the end of a word.
inline Renaming takeRenaming(std::string& word) {
  Renaming renaming;
  for (const auto& [key, value] : {std::pair{",add=", &renaming.add}, {",strip=", &renaming.strip}})
    if (const std::size_t at = word.rfind(key); at != std::string::npos) {
      *value = word.substr(at + std::string(key).size());
      word.erase(at);
    }
  return renaming;
}

} // namespace pdc
