// Times the algorithms of a convolution, as Conv2d runs them: with whatever is copied.
#include "Trial.h"
#include "cuda/support/Convolution.h"
#include "pdcrt/CudaWorkspace.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace pdcrt::cuda {
namespace {

/// What is tried: one algorithm of one method.
struct Candidate {
  Method method;
  Conv2d::Algorithm algorithm;
  std::size_t workspaceBytes;
  std::unique_ptr<Conv2d> kernel;
};

/// Operands and results in one element type.
template <class T>
class Trial {
public:
  explicit Trial(const Conv2d::Options& o)
      : x_(bytes(o.input)), w_(bytes(o.filter)), y_(bytes(Conv2d::outputShape(o))),
        result_(bytes(std::max({o.input, o.filter, Conv2d::outputShape(o)},
                               [](const Shape& a, const Shape& b) { return a.elements() < b.elements(); }))),
        workspace_(workspaceOf(o)), q_(device::openStream(workspace_.data(), workspaceOf(o))) {
    if (!possible()) return;
    fill(x_, o.input), fill(w_, o.filter), fill(y_, Conv2d::outputShape(o));
  }
  ~Trial() { device::close(q_); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  bool possible() const { return x_.data() && w_.data() && y_.data() && result_.data() && workspace_.data(); }

  /// Forgets those that the library has, but does not compute.
  void dropFailing(std::vector<Candidate>& candidates) {
    std::erase_if(candidates, [&](const Candidate& candidate) {
      try {
        call(candidate);
        return false;
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
  static std::size_t bytes(const Shape& s) { return static_cast<std::size_t>(s.elements()) * sizeof(T); }
  static T* values(const Block& block) { return reinterpret_cast<T*>(block.data()); }

  void fill(const Block& block, const Shape& s) { makeNoise(q_, s.elements(), values(block)); }
  void call(const Candidate& candidate) {
    // Results are no operands of what comes next: from product to product they would grow beyond all numbers.
    const View<T> x(values(x_)), w(values(w_)), y(values(y_)), result(values(result_));
    switch (candidate.method) {
    case Method::forward: return candidate.kernel->template forward<T>(q_, x, w, {}, result);
    case Method::inputGradient: return candidate.kernel->template inputGradient<T>(q_, y, w, result);
    case Method::weightGradient: return candidate.kernel->template weightGradient<T>(q_, x, y, result, {});
    }
  }

  Block x_, w_, y_, result_, workspace_;
  Stream q_;
};

template <class T>
std::vector<double> timeAll(const Conv2d::Options& o, std::vector<Candidate>& candidates) {
  Trial<T> trial(o);
  if (!trial.possible()) return {};
  trial.dropFailing(candidates);
  return trial.time(candidates);
}

void timeConvolution(const Conv2d::Options& o, const std::string& name, std::vector<KernelTime>& times) {
  std::vector<Candidate> candidates;
  for (Method method : methods)
    for (const auto& [algorithm, bytes] : algorithmsFor(o, method)) {
      Conv2d::Options one = o;
      algorithmOf(one.algorithms, method) = algorithm;
      Setup setup;
      candidates.push_back({method, algorithm, bytes, std::make_unique<Conv2d>(setup, one)});
    }
  const std::vector<double> seconds = o.element == Element::bf16  ? timeAll<bfloat16>(o, candidates)
                                      : o.element == Element::f16 ? timeAll<float16>(o, candidates)
                                                                  : timeAll<float>(o, candidates);
  for (std::size_t i = 0; i < seconds.size(); ++i)
    times.push_back({.kernel = name,
                     .method = nameOf(candidates[i].method),
                     .algorithm = Conv2d::algorithmNames[static_cast<int>(candidates[i].algorithm)],
                     .ms = 1e3 * seconds[i],
                     .workspaceBytes = candidates[i].workspaceBytes});
}

} // namespace

Conv2d::Algorithms fastest(const Conv2d::Options& options, std::vector<KernelTime>& times) {
  Conv2d::Options o = options;
  o.bias = false;
  o.algorithms = {};
  const std::string name = Conv2d::profileName(o);
  const auto ofKernel = [&](const KernelTime& time) { return time.kernel == name; };
  if (std::none_of(times.begin(), times.end(), ofKernel)) timeConvolution(o, name, times);
  for (Method method : methods) {
    const KernelTime* const best = fastestOf(times, name, nameOf(method));
    if (!best) continue;
    const auto found = std::find(std::begin(Conv2d::algorithmNames), std::end(Conv2d::algorithmNames), best->algorithm);
    algorithmOf(o.algorithms, method) = static_cast<Conv2d::Algorithm>(found - std::begin(Conv2d::algorithmNames));
  }
  return o.algorithms;
}

} // namespace pdcrt::cuda
