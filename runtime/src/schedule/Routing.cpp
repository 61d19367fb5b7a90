#include "pdcrt/Routing.h"

#include <algorithm>
#include <utility>

using namespace pdcrt;

Route::Route(std::vector<int> word) : word_(std::move(word)), before_(word_.size()), gap_(word_.size()) {
  if (word_.empty()) return;
  letters_.resize(static_cast<std::size_t>(*std::max_element(word_.begin(), word_.end())) + 1);
  for (std::size_t i = 0; i < word_.size(); ++i) {
    std::vector<std::int64_t>& letters = letters_[static_cast<std::size_t>(word_[i])];
    before_[i] = static_cast<std::int64_t>(letters.size());
    letters.push_back(static_cast<std::int64_t>(i));
  }
  const auto length = static_cast<std::int64_t>(word_.size());
  for (const std::vector<std::int64_t>& letters : letters_)
    for (std::size_t i = 0; i < letters.size(); ++i) {
      const bool isLast = i + 1 == letters.size();
      gap_[static_cast<std::size_t>(letters[i])] = (isLast ? letters[0] + length : letters[i + 1]) - letters[i];
    }
}

std::int64_t Routing::localOf(std::int64_t b) const {
  const std::size_t at = letter(b);
  const auto each = static_cast<std::int64_t>(route_->letters_[static_cast<std::size_t>(route_->word_[at])].size());
  return b / length() * each + route_->before_[at];
}

std::int64_t Routing::minibatchOf(std::int64_t k, int r) const {
  const std::vector<std::int64_t>& letters = route_->letters_[static_cast<std::size_t>(r)];
  const auto each = static_cast<std::int64_t>(letters.size());
  return k / each * length() + letters[static_cast<std::size_t>(k % each)];
}

std::int64_t Routing::localCountOf(std::int64_t n, int r) const {
  if (n <= 0) return 0;
  const std::vector<std::int64_t>& letters = route_->letters_[static_cast<std::size_t>(r)];
  const auto begun = std::lower_bound(letters.begin(), letters.end(), n % length()) - letters.begin();
  return n / length() * static_cast<std::int64_t>(letters.size()) + begun;
}
