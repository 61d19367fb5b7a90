#include "Search/BalancedCut.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <map>

using namespace pdc;

std::vector<std::int64_t> pdc::placesToCut(const CostGraph& graph) {
  auto count = static_cast<std::int64_t>(graph.nodes.size());
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> spans; // first and last node of each colour
  for (std::int64_t v = 0; v < count; ++v)
    if (std::int64_t colour = graph.nodes[v].colour; colour >= 0)
      spans.try_emplace(colour, v, v).first->second.second = v;
  std::vector<bool> allowed(graph.nodes.size() + 1, true);
  for (const auto& [colour, span] : spans)
    for (std::int64_t v = span.first + 1; v <= span.second; ++v) allowed[v] = false;
  std::vector<std::int64_t> places;
  for (std::int64_t v = 1; v < count; ++v)
    if (allowed[v]) places.push_back(v);
  return places;
}

namespace {

/// Intervals between ends 0 … last, which are nodes.
class Cutter {
public:
  Cutter(const CostGraph& graph, const std::vector<std::int64_t>& places) : ends_(places) {
    ends_.insert(ends_.begin(), 0);
    ends_.push_back(static_cast<std::int64_t>(graph.nodes.size()));
    std::vector<double> before = {0}; // ms of the nodes before each
    for (const CostNode& node : graph.nodes)
      before.push_back(before.back() + node.forwardMs + node.inputGradientMs + node.weightGradientMs);
    std::vector<double> starting(before.size(), 0); // bytes that begin to cross, and, negative, that no longer do
    for (const CostTensor& tensor : graph.tensors) {
      std::int64_t last = tensor.from;
      for (std::int64_t user : tensor.to) last = std::max(last, user);
      starting[tensor.from + 1] += static_cast<double>(tensor.bytes);
      starting[last + 1] -= static_cast<double>(tensor.bytes);
    }
    double crossing = 0;
    std::size_t end = 0;
    for (std::size_t v = 0; v < before.size(); ++v) {
      crossing += starting[v];
      if (end == ends_.size() || ends_[end] != static_cast<std::int64_t>(v)) continue;
      workMs_.push_back(before[v]);
      bytes_.push_back(crossing);
      ++end;
    }
  }

  std::vector<std::int64_t> cut(int count) {
    double longest = shortestLongest(count);
    std::size_t n = ends_.size();
    std::vector<std::vector<double>> fewest(count + 1, std::vector<double>(n, infinity));
    std::vector<std::vector<std::size_t>> from(count + 1, std::vector<std::size_t>(n, 0));
    fewest[0][0] = 0;
    for (int k = 1; k <= count; ++k)
      for (std::size_t j = 1; j < n; ++j)
        for (std::size_t i = j; i-- > 0 && workMs_[j] - workMs_[i] <= longest;)
          if (double bytes = fewest[k - 1][i] + bytes_[j]; bytes < fewest[k][j]) {
            fewest[k][j] = bytes;
            from[k][j] = i;
          }
    std::vector<std::int64_t> ends;
    for (std::size_t k = static_cast<std::size_t>(count), j = n - 1; k > 0; j = from[k--][j]) ends.push_back(ends_[j]);
    std::reverse(ends.begin(), ends.end());
    return ends;
  }

private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  /// longest[j]: of the best cut of what is before end j into k intervals. Both it and the work since an end are
  /// monotone, so the best last interval is found by bisection.
  double shortestLongest(int count) const {
    std::size_t n = ends_.size();
    std::vector<double> longest(n, infinity);
    longest[0] = 0;
    for (int k = 1; k <= count; ++k) {
      std::vector<double> next(n, infinity);
      for (auto j = static_cast<std::size_t>(k); j < n; ++j) {
        auto last = [&](std::size_t i) { return workMs_[j] - workMs_[i]; };
        std::size_t low = static_cast<std::size_t>(k) - 1, high = j - 1; // the first whose part before is the longer
        while (low < high) {
          std::size_t middle = low + (high - low) / 2;
          if (longest[middle] >= last(middle))
            high = middle;
          else
            low = middle + 1;
        }
        next[j] = std::max(longest[low], last(low));
        if (low + 1 > static_cast<std::size_t>(k))
          next[j] = std::min(next[j], std::max(longest[low - 1], last(low - 1)));
      }
      longest = std::move(next);
    }
    return longest[n - 1];
  }

  std::vector<std::int64_t> ends_;
  std::vector<double> workMs_, bytes_; ///< before each end; across it
};

} // namespace

std::vector<std::int64_t> pdc::balancedCut(const CostGraph& graph, const std::vector<std::int64_t>& places, int count) {
  assert(count >= 1 && static_cast<std::size_t>(count) <= places.size() + 1);
  return Cutter(graph, places).cut(count);
}
