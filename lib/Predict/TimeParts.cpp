#include "pdc/Predict/TimeParts.h"

#include <algorithm>
#include <numeric>

using namespace pdc;

std::array<std::int64_t, timeParts.size()> pdc::hundredthsOf(const pdcrt::RankUse& use) {
  constexpr std::int64_t whole = 10'000;
  std::array<std::int64_t, timeParts.size()> result{};
  std::array<double, timeParts.size()> exact{};
  double sum = 0;
  for (const TimePart& part : timeParts) sum += use.*part.ms;
  if (!(sum > 0)) return result;
  std::int64_t left = whole;
  for (std::size_t i = 0; i < timeParts.size(); ++i) {
    exact[i] = static_cast<double>(whole) * (use.*timeParts[i].ms / sum);
    result[i] = std::min(left, static_cast<std::int64_t>(exact[i]));
    left -= result[i];
  }
  std::array<std::size_t, timeParts.size()> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return exact[a] - static_cast<double>(result[a]) > exact[b] - static_cast<double>(result[b]);
  });
  for (std::size_t i = 0; left > 0; ++i, --left) ++result[order[i % order.size()]];
  return result;
}
