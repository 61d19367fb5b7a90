// Times attention as products against the fused one, as Attention runs both.
#include "AttentionTimes.h"

#include "Trial.h"
#include "cuda/FusedAttention.h"
#include "pdcrt/CudaWorkspace.h"

#include <algorithm>
#include <memory>
#include <string>

namespace pdcrt::cuda {
namespace {

using Algorithm = Attention::Algorithm;

/// As profiles call the methods of Attention, and where the options have the algorithm of each.
struct Method {
  const char* name;
  Algorithm Attention::Algorithms::*algorithm;
};
constexpr Method methods[] = {{"forward", &Attention::Algorithms::forward},
                              {"inputGradient", &Attention::Algorithms::inputGradient}};

/// What is tried: one algorithm of one method.
struct Candidate {
  const Method* method;
  Algorithm algorithm;
  std::size_t workspaceBytes;                            ///< of the fused one
  std::shared_ptr<const FusedAttention> fused = nullptr; ///< kept: the kernel shares what took long to build
  std::unique_ptr<Attention> kernel = nullptr;
};

/// What can compute these sizes on this device, in the workspace that is planned where nothing was measured.
std::vector<Candidate> candidatesFor(const Attention::Options& o) {
  std::vector<Candidate> found;
  const std::size_t most = workspaceOf(o) - workspaceAlignment;
  std::string why;
  for (const Method& method : methods) {
    const bool gradient = &method == &methods[1];
    found.push_back({&method, Algorithm::plain, 0});
    const std::shared_ptr<const FusedAttention> fused = FusedAttention::make(o, nullptr, gradient, why);
    if (!fused) continue;
    const std::size_t bytes = roundedUp(gradient ? fused->gradientBytes() : fused->forwardBytes());
    if (bytes <= most) found.push_back({&method, Algorithm::fused, bytes, fused});
  }
  for (Candidate& candidate : found) {
    Attention::Options one = o;
    one.algorithms.*candidate.method->algorithm = candidate.algorithm;
    one.algorithms.workspace = static_cast<std::int64_t>(candidate.workspaceBytes);
    Setup setup;
    candidate.kernel = std::make_unique<Attention>(setup, one);
  }
  return found;
}

/// Operands and results in one element type. Results may lie over operands: nobody looks at them.
template <class T>
class Trial {
public:
  explicit Trial(const Attention::Options& o)
      : rows_(o.batch * o.heads * o.queries), hasBias_(o.bias.rank > 0), query_(bytes(queryElements(o))),
        key_(bytes(keyElements(o))), value_(bytes(valueElements(o))), y_(bytes(rows_ * o.valueSize)),
        dy_(bytes(rows_ * o.valueSize)), largest_(bytesOfFloats(rows_)), inverse_(bytesOfFloats(rows_)),
        bias_(bytesOfFloats(biasElements(o))), workspace_(workspaceOf(o)),
        q_(device::openStream(workspace_.data(), workspaceOf(o))) {
    if (!possible()) return;
    makeNoise(q_, queryElements(o), values(query_));
    makeNoise(q_, keyElements(o), values(key_));
    makeNoise(q_, valueElements(o), values(value_));
    makeNoise(q_, rows_ * o.valueSize, values(dy_));
    makeNoise(q_, biasElements(o), floats(bias_));
  }
  ~Trial() { device::close(q_); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  bool possible() const {
    for (const Block* block : {&query_, &key_, &value_, &y_, &dy_, &largest_, &inverse_, &bias_, &workspace_})
      if (!block->data()) return false;
    return true;
  }

  std::vector<double> time(const std::vector<Candidate>& candidates) {
    return mediansOf(q_, candidates.size(), [&](std::size_t i) { call(candidates[i]); });
  }

private:
  static std::int64_t queryElements(const Attention::Options& o) { return o.batch * o.heads * o.queries * o.size; }
  static std::int64_t keyElements(const Attention::Options& o) { return o.batch * o.groups * o.keys * o.size; }
  static std::int64_t valueElements(const Attention::Options& o) { return o.batch * o.groups * o.keys * o.valueSize; }
  static std::size_t bytes(std::int64_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }
  static std::int64_t biasElements(const Attention::Options& o) { return o.bias.elements(); } // 1 of none
  static float* floats(const Block& block) { return reinterpret_cast<float*>(block.data()); }
  static T* values(const Block& block) { return reinterpret_cast<T*>(block.data()); }

  void call(const Candidate& candidate) {
    const View<T> query(values(query_)), key(values(key_)), value(values(value_)), y(values(y_)), dy(values(dy_));
    const View<float> largest(floats(largest_)), inverse(floats(inverse_));
    const View<const float> bias(hasBias_ ? floats(bias_) : nullptr);
    if (candidate.method == &methods[0])
      candidate.kernel->template forward<T>(q_, query, key, value, bias, y, largest, inverse);
    else
      candidate.kernel->template inputGradient<T>(q_, dy, query, key, value, bias, largest, inverse, {}, query, key,
                                                  value);
  }

  std::int64_t rows_;
  bool hasBias_;
  Block query_, key_, value_, y_, dy_, largest_, inverse_, bias_, workspace_;
  Stream q_;
};

template <class T>
std::vector<double> timeAll(const Attention::Options& o, const std::vector<Candidate>& candidates) {
  Trial<T> trial(o);
  return trial.possible() ? trial.time(candidates) : std::vector<double>();
}

void timeAttention(const Attention::Options& o, const std::string& name, std::vector<KernelTime>& times) {
  const std::vector<Candidate> candidates = candidatesFor(o);
  if (candidates.size() <= std::size(methods)) return; // only plain ones
  const std::vector<double> seconds =
      o.element == Element::bf16 ? timeAll<bfloat16>(o, candidates) : timeAll<float16>(o, candidates);
  for (std::size_t i = 0; i < seconds.size(); ++i)
    times.push_back({.kernel = name,
                     .method = candidates[i].method->name,
                     .algorithm = Attention::algorithmNames[static_cast<int>(candidates[i].algorithm)],
                     .ms = 1e3 * seconds[i],
                     .workspaceBytes = candidates[i].workspaceBytes});
}

} // namespace

Attention::Algorithms fastest(const Attention::Options& options, std::vector<KernelTime>& times) {
  Attention::Options o = options;
  o.algorithms = {};
  if (!Attention::takesFused(o)) return o.algorithms;
  const std::string name = Attention::profileName(o);
  const auto ofKernel = [&](const KernelTime& time) { return time.kernel == name; };
  if (std::none_of(times.begin(), times.end(), ofKernel)) timeAttention(o, name, times);
  for (const Method& method : methods) {
    const KernelTime* const best = fastestOf(times, name, method.name);
    if (!best) continue;
    const bool fused = best->algorithm == Attention::algorithmNames[static_cast<int>(Algorithm::fused)];
    o.algorithms.*method.algorithm = fused ? Algorithm::fused : Algorithm::plain;
    o.algorithms.workspace = std::max(o.algorithms.workspace, static_cast<std::int64_t>(best->workspaceBytes));
  }
  return o.algorithms;
}

} // namespace pdcrt::cuda
