// Times the algorithms of a convolution, as Conv2d runs them: with whatever is copied.
#include "Convolution.h"
#include "pdcrt/CudaWorkspace.h"
#include "pdcrt/Device.h"
#include "pdcrt/StreamClock.h"

#include <algorithm>
#include <memory>

namespace pdcrt::cuda {
namespace {

/// Numbers of both signs: how much current a device draws, so how fast it is, depends on what is multiplied.
template <class T>
__global__ void fillWithNoise(std::int64_t count, T* to) {
  for (std::int64_t i = thread(); i < count; i += threads()) {
    const auto bits = static_cast<std::uint32_t>(i) * 2654435761u;
    to[i] = static_cast<T>(static_cast<float>(bits >> 16) / 32768 - 1);
  }
}

/// A block of the device's memory for as long as algorithms are tried.
class Block {
public:
  explicit Block(std::size_t bytes) : bytes_(bytes), memory_(device::allocate(bytes)) {}
  ~Block() { device::release(memory_, bytes_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* data() const { return memory_; }

private:
  std::size_t bytes_;
  std::byte* memory_;
};

/// What is tried: one algorithm of one method.
struct Candidate {
  Method method;
  Conv2d::Algorithm algorithm;
  std::size_t workspaceBytes;
  std::unique_ptr<Conv2d> kernel;
  std::vector<double> seconds = {};
};

/// Operands and results in one element type.
template <class T>
class Trial {
public:
  explicit Trial(const Conv2d::Options& o)
      : x_(bytes(o.input)), w_(bytes(o.filter)), y_(bytes(Conv2d::outputShape(o))), workspace_(workspaceOf(o)),
        q_(device::openStream(workspace_.data(), workspaceOf(o))) {
    if (!possible()) return;
    fill(x_, o.input), fill(w_, o.filter), fill(y_, Conv2d::outputShape(o));
  }
  ~Trial() { device::close(q_); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  bool possible() const { return x_.data() && w_.data() && y_.data() && workspace_.data(); }

  /// In turns, so that what else the machine does meets all of them. False: the device has failed.
  bool time(std::vector<Candidate>& candidates) {
    constexpr int warmUp = 2;
    constexpr std::size_t leastRounds = 5, mostRounds = 21;
    constexpr double enoughSeconds = 0.1;
    for (int i = 0; i < warmUp; ++i)
      for (const Candidate& candidate : candidates) call(candidate);
    double sum = 0;
    for (std::size_t round = 0; round < leastRounds || (round < mostRounds && sum < enoughSeconds); ++round) {
      StreamClock clock;
      clock.mark(q_);
      for (const Candidate& candidate : candidates) {
        call(candidate);
        clock.mark(q_);
      }
      if (!device::wait(q_)) return false;
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        candidates[i].seconds.push_back(clock.seconds(i, i + 1));
        sum += candidates[i].seconds.back();
      }
    }
    return true;
  }

private:
  static std::size_t bytes(const Shape& s) { return static_cast<std::size_t>(s.elements()) * sizeof(T); }
  static T* values(const Block& block) { return reinterpret_cast<T*>(block.data()); }

  void fill(const Block& block, const Shape& s) {
    launchLoop(q_, "noise", fillWithNoise<T>, s.elements(), s.elements(), values(block));
  }
  void call(const Candidate& candidate) {
    const View<T> x(values(x_)), w(values(w_)), y(values(y_));
    switch (candidate.method) {
    case Method::forward: return candidate.kernel->template forward<T>(q_, x, w, {}, y);
    case Method::inputGradient: return candidate.kernel->template inputGradient<T>(q_, y, w, x);
    case Method::weightGradient: return candidate.kernel->template weightGradient<T>(q_, x, y, w, {});
    }
  }

  Block x_, w_, y_, workspace_;
  Stream q_;
};

template <class T>
bool timeAll(const Conv2d::Options& o, std::vector<Candidate>& candidates) {
  Trial<T> trial(o);
  return trial.possible() && trial.time(candidates);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
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
  const bool timed = o.element == Element::bf16  ? timeAll<bfloat16>(o, candidates)
                     : o.element == Element::f16 ? timeAll<float16>(o, candidates)
                                                 : timeAll<float>(o, candidates);
  if (!timed) return;
  for (const Candidate& candidate : candidates)
    times.push_back({.kernel = name,
                     .method = nameOf(candidate.method),
                     .algorithm = Conv2d::algorithmNames[static_cast<int>(candidate.algorithm)],
                     .ms = 1e3 * median(candidate.seconds),
                     .workspaceBytes = candidate.workspaceBytes});
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
    double least = 0;
    for (const KernelTime& time : times) {
      if (!ofKernel(time) || time.method != nameOf(method) || (least > 0 && time.ms >= least)) continue;
      least = time.ms;
      const auto found =
          std::find(std::begin(Conv2d::algorithmNames), std::end(Conv2d::algorithmNames), time.algorithm);
      algorithmOf(o.algorithms, method) = static_cast<Conv2d::Algorithm>(found - std::begin(Conv2d::algorithmNames));
    }
  }
  return o.algorithms;
}

} // namespace pdcrt::cuda
