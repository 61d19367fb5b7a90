// Times the library's first algorithms for each product of a linear layer, as Linear runs them: the weights' gradient
// with that of the bias, which the product may add up on the way, or a kernel after it.
#include "LinearTimes.h"

#include "Trial.h"
#include "pdcrt/CudaWorkspace.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>

namespace pdcrt::cuda {
namespace {

using Algorithm = Linear::Algorithm;

/// As profiles call the methods of Linear, and where the options have the algorithm of each.
struct Method {
  const char* name;
  Algorithm Linear::Algorithms::*algorithm;
};
constexpr Method methods[] = {{"forward", &Linear::Algorithms::forward},
                              {"inputGradient", &Linear::Algorithms::inputGradient},
                              {"weightGradient", &Linear::Algorithms::weightGradient}};
constexpr const Method& ofWeights = methods[2];

/// What is tried: one algorithm of one method.
struct Candidate {
  const Method* method;
  Algorithm algorithm;
  std::unique_ptr<Linear> kernel;
};

/// What the library has for these sizes on this device.
std::vector<Candidate> candidatesFor(const Linear::Options& o) {
  std::vector<Candidate> found;
  for (const Method& method : methods)
    for (std::size_t i = 1; i < std::size(Linear::algorithmNames); ++i) {
      Candidate candidate = {&method, static_cast<Algorithm>(i), nullptr};
      if (Linear::addsUp(candidate.algorithm) && (&method != &ofWeights || !o.bias)) break;
      Linear::Options one = o;
      one.algorithms.*method.algorithm = candidate.algorithm;
      Setup setup;
      try {
        candidate.kernel = std::make_unique<Linear>(setup, one);
      } catch (const std::runtime_error&) {
        continue; // there are not so many
      }
      found.push_back(std::move(candidate));
    }
  return found;
}

/// Operands of the element type T; the gradients of weights and bias are of G.
template <class T, class G>
class Trial {
public:
  explicit Trial(const Linear::Options& o)
      : o_(o), x_(bytes(o.rows * o.inputs)), w_(bytes(o.inputs * o.outputs)), y_(bytes(o.rows * o.outputs)),
        b_(bytes(o.outputs)), result_(std::max({x_.bytes(), w_.bytes() / sizeof(T) * sizeof(G), y_.bytes()})),
        sums_(static_cast<std::size_t>(o.outputs) * sizeof(G)), workspace_(workspaceOf(o)),
        q_(device::openStream(workspace_.data(), workspaceOf(o))) {
    if (!possible()) return;
    for (const Block* block : {&x_, &w_, &y_, &b_})
      makeNoise(q_, static_cast<std::int64_t>(block->bytes() / sizeof(T)), values<T>(*block));
  }
  ~Trial() { device::close(q_); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  bool possible() const {
    for (const Block* block : {&x_, &w_, &y_, &b_, &result_, &sums_, &workspace_})
      if (!block->data()) return false;
    return true;
  }

  /// Forgets those that the library has, but does not compute, or that add up something else than the bias' gradient.
  void dropFailing(std::vector<Candidate>& candidates) {
    std::vector<double> expected;
    std::erase_if(candidates, [&](const Candidate& candidate) {
      try {
        call(candidate);
        if (candidate.method != &ofWeights || !o_.bias) return false;
        const std::vector<double> sums = readSums();
        if (expected.empty()) expected = sums; // the first makes them by a kernel
        return !areClose(sums, expected);
      } catch (const std::runtime_error&) {
        return true;
      }
    });
  }
  /// Medians, in seconds; nothing: the device has failed.
  std::vector<double> time(const std::vector<Candidate>& candidates) {
    return mediansOf(q_, candidates.size(), [&](std::size_t i) { call(candidates[i]); });
  }

private:
  static std::size_t bytes(std::int64_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }
  template <class V>
  static V* values(const Block& block) {
    return reinterpret_cast<V*>(block.data());
  }

  void call(const Candidate& candidate) {
    // Results are no operands of what comes next: from product to product they would grow beyond all numbers.
    const View<T> x(values<T>(x_)), w(values<T>(w_)), y(values<T>(y_)), b(o_.bias ? values<T>(b_) : nullptr),
        result(values<T>(result_));
    const Linear& kernel = *candidate.kernel;
    if (candidate.method == &methods[0]) return kernel.template forward<T>(q_, x, w, b, result);
    if (candidate.method == &methods[1]) return kernel.template inputGradient<T>(q_, y, w, result);
    const View<G> dw(values<G>(result_)), db(o_.bias ? values<G>(sums_) : nullptr);
    if constexpr (std::is_same_v<T, G>)
      kernel.template weightGradient<T>(q_, x, y, dw, db);
    else
      kernel.weightGradient(q_, View<const T>(x), View<const T>(y), dw, db);
  }

  std::vector<double> readSums() {
    std::vector<G> sums(static_cast<std::size_t>(o_.outputs));
    device::copy(q_, sums.data(), sums_.data(), sums_.bytes());
    if (Status status = device::wait(q_); !status) throw std::runtime_error(status.message());
    device::zero(q_, sums_.data(), sums_.bytes()); // for the next candidate
    return {sums.begin(), sums.end()};
  }
  static bool areClose(const std::vector<double>& sums, const std::vector<double>& expected) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      difference += (sums[i] - expected[i]) * (sums[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    constexpr double rounding = 1e-2; // of 16 bits
    return std::sqrt(difference) <= rounding * std::sqrt(norm);
  }

  const Linear::Options& o_;
  Block x_, w_, y_, b_, result_, sums_, workspace_;
  Stream q_;
};

template <class T, class G>
std::vector<double> timeAll(const Linear::Options& o, std::vector<Candidate>& candidates) {
  Trial<T, G> trial(o);
  if (!trial.possible()) return {};
  trial.dropFailing(candidates);
  return trial.time(candidates);
}
template <class T>
std::vector<double> timeAll(const Linear::Options& o, std::vector<Candidate>& candidates) {
  return o.wideGradient ? timeAll<T, float>(o, candidates) : timeAll<T, T>(o, candidates);
}

void timeLinear(const Linear::Options& o, const std::string& name, std::vector<KernelTime>& times) {
  std::vector<Candidate> candidates = candidatesFor(o);
  if (candidates.size() <= std::size(methods)) return; // only the first ones
  const std::vector<double> seconds =
      o.element == Element::bf16 ? timeAll<bfloat16>(o, candidates) : timeAll<float16>(o, candidates);
  for (std::size_t i = 0; i < seconds.size(); ++i)
    times.push_back({.kernel = name,
                     .method = candidates[i].method->name,
                     .algorithm = Linear::algorithmNames[static_cast<int>(candidates[i].algorithm)],
                     .ms = 1e3 * seconds[i]});
}

} // namespace

Linear::Algorithms fastest(const Linear::Options& options, std::vector<KernelTime>& times) {
  Linear::Options o = options;
  o.algorithms = {};
  if (!Linear::hasChoice(o)) return o.algorithms;
  const std::string name = Linear::profileName(o);
  const auto ofKernel = [&](const KernelTime& time) { return time.kernel == name; };
  if (std::none_of(times.begin(), times.end(), ofKernel)) timeLinear(o, name, times);
  for (const Method& method : methods) {
    const KernelTime* const best = fastestOf(times, name, method.name);
    if (!best) continue;
    const auto found = std::find(std::begin(Linear::algorithmNames), std::end(Linear::algorithmNames), best->algorithm);
    o.algorithms.*method.algorithm = static_cast<Algorithm>(found - std::begin(Linear::algorithmNames));
  }
  return o.algorithms;
}

} // namespace pdcrt::cuda
