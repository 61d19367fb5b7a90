#include "pdc/Support/Names.h"

#include <algorithm>
#include <cctype>

using namespace pdc;

/// Without what people confuse: case, '_' and '-'.
static std::string plain(std::string_view name) {
  std::string text;
  for (unsigned char c : name)
    if (c != '_' && c != '-') text += static_cast<char>(std::tolower(c));
  return text;
}

/// Optimal string alignment distance: Levenshtein's, with swaps of neighbours as one step.
static std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = previous;
    previous = row;
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

std::string pdc::nearestName(std::string_view name, const std::vector<std::string_view>& known) {
  constexpr std::size_t longest = 64; // longer ones are no misspellings
  if (name.size() > longest) return {};
  const std::string wanted = plain(name);
  std::string_view nearest;
  std::size_t least = longest;
  for (std::string_view candidate : known) {
    const std::string other = plain(candidate);
    const std::size_t steps = distance(wanted, other);
    if (steps > std::max(wanted.size(), other.size()) / 3 || steps >= least) continue;
    nearest = candidate;
    least = steps;
  }
  return std::string(nearest);
}

std::string pdc::helpForUnknown(std::string_view name, const std::vector<std::string_view>& known) {
  if (std::string nearest = nearestName(name, known); !nearest.empty()) return "did you mean '" + nearest + "'?";
  std::string names;
  for (std::string_view candidate : known) names += (names.empty() ? "" : ", ") + std::string(candidate);
  return "known here: " + names;
}

std::string pdc::counted(std::int64_t count, std::string_view noun) {
  const std::string text = std::to_string(count) + " " + std::string(noun);
  return count == 1 ? text : text + (noun.ends_with("ch") ? "es" : "s");
}
