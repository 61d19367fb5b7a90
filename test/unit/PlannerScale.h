// Chains with skips of any length, with the shapes of costs that are hard to plan for, the same on every machine.
// utils/bench-planner makes the same graphs.
#pragma once

#include "pdc/Plan/Cluster.h"
#include "pdc/Plan/CostGraph.h"

#include <cmath>
#include <string>
#include <vector>

namespace pdc::test {

/// splitmix64, as numbers in [0, 1).
class ScaleRandom {
public:
  explicit ScaleRandom(std::uint64_t seed) : state_(seed) {}

  double next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return static_cast<double>((z ^ z >> 31) >> 11) / 9007199254740992.0;
  }
  /// 10^x, x uniform.
  double power(double least, double most) { return std::pow(10.0, least + (most - least) * next()); }

private:
  std::uint64_t state_;
};

inline const std::vector<std::string> scaleKinds = {"even", "uneven", "huge", "heavy", "bandwidth", "vgg", "blocks"};

/// Node v feeds v+1 and, with probability 1/4, one of the nine after that. Per node, computation (a third forward, a
/// third for each gradient), parameters and tensor:
///
/// - even: around 1 ms, 4 MB, 1 MB
/// - uneven: 0.01 … 10 ms, 10 kB … 100 MB, 10 kB … 10 MB
/// - huge: 0.01 ms and 10 kB, but each hundredth 20 ms and 100 MB; 1 MB
/// - heavy: 1 ms, 100 MB … 1 GB, 1 MB
/// - bandwidth: 1 ms, 20 MB, 1 MB … 1 GB
/// - vgg: 1 ms; parameters grow from 10 kB to 1 GB as tensors shrink from 10 MB to 10 kB
/// - blocks: ten times a run of 2 ms, 100 kB, 10 MB and one of 0.2 ms, 200 MB, 100 kB
inline CostGraph scaleGraph(const std::string& kind, std::int64_t nodes, std::uint64_t seed = 1) {
  ScaleRandom random(seed);
  CostGraph graph;
  graph.model = "scale-" + kind;
  for (std::int64_t v = 0; v < nodes; ++v) {
    double a = random.next(), b = random.next(), c = random.next(),
           place = static_cast<double>(v) / static_cast<double>(nodes);
    auto power = [](double x, double least, double most) { return std::pow(10.0, least + (most - least) * x); };
    double ms = 0.5 + a, parameters = 4e6 * (0.5 + b), tensor = 1e6 * (0.5 + c);
    if (kind == "uneven") ms = power(a, -2, 1), parameters = power(b, 4, 8), tensor = power(c, 4, 7);
    if (kind == "huge") {
      bool isHuge = v % 100 == 37;
      ms = (isHuge ? 20 : 0.01) * (0.5 + a), parameters = (isHuge ? 1e8 : 1e4) * (0.5 + b);
    }
    if (kind == "heavy") parameters = power(b, 8, 9);
    if (kind == "bandwidth") parameters = 2e7 * (0.5 + b), tensor = power(c, 6, 9);
    if (kind == "vgg") parameters = power(place, 4, 9) * (0.5 + b), tensor = power(place, 7, 4) * (0.5 + c);
    if (kind == "blocks") {
      bool computes = static_cast<int>(place * 20) % 2 == 0;
      ms = (computes ? 2 : 0.2) * (0.5 + a), parameters = (computes ? 1e5 : 2e8) * (0.5 + b);
      tensor = (computes ? 1e7 : 1e5) * (0.5 + c);
    }
    CostNode node;
    node.name = "node" + std::to_string(v);
    node.forwardMs = node.inputGradientMs = node.weightGradientMs = ms / 3;
    node.parameterBytes = node.gradientBytes = static_cast<std::int64_t>(parameters);
    node.savedBytes = static_cast<std::int64_t>(tensor);
    graph.nodes.push_back(node);
    double skip = random.next();
    if (v + 1 == nodes) break;
    CostTensor out{"tensor" + std::to_string(v), v, {v + 1}, static_cast<std::int64_t>(tensor), true};
    std::int64_t further = v + 2 + static_cast<std::int64_t>(skip * 36); // 36 values, the first nine of which count
    if (skip < 0.25 && further < nodes) out.to.push_back(further);
    graph.tensors.push_back(out);
  }
  return graph;
}

/// Levels from the inside out: 8 devices over 300 GB/s, 16 over 25 GB/s, 128 over 5 GB/s, or as many as given.
inline Cluster scaleCluster(std::vector<std::int64_t> counts = {8, 16, 128},
                            std::vector<double> bandwidths = {300e9, 25e9, 5e9}) {
  Cluster cluster;
  for (std::size_t k = 0; k < counts.size(); ++k)
    cluster.levels.push_back({"level" + std::to_string(k + 1), counts[k], bandwidths[k], 5e-6});
  cluster.device.name = "device";
  cluster.device.memoryBytes = std::int64_t{80} << 30;
  return cluster;
}

} // namespace pdc::test
