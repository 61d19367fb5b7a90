// The optimizers' formulas (Optimizer.h). A thread makes four neighbours, which move in one access, where all arrays
// begin at a multiple of 16 bytes. One launch updates as many parameters as its arguments have room for.
#include "pdcrt/Optimizer.h"

#include "Table.h"

#include <algorithm>

namespace pdcrt {
namespace {

/// The mean gradient of an element, clipped.
__device__ float mean(const UpdateSlice& s, float gradient) {
  return gradient / s.minibatches * s.scale;
}

/// Without decay the gradient keeps its bits, the sign of a zero too.
__device__ float decayed(float gradient, float decay, float weight) {
  return decay == 0 ? gradient : gradient + decay * weight;
}

// Each makes the next weight of an element from the last one, the sum of its gradients and its state, which it changes.

struct Sgd {
  static constexpr int states = 0;
  __device__ float operator()(const UpdateSlice& s, float weight, float gradient, float&, float&) const {
    return weight - s.learningRate * decayed(mean(s, gradient), s.weightDecay, weight);
  }
};

struct Momentum {
  static constexpr int states = 1;
  float factor;
  bool nesterov;
  __device__ float operator()(const UpdateSlice& s, float weight, float gradient, float& velocity, float&) const {
    const float g = decayed(mean(s, gradient), s.weightDecay, weight);
    velocity = factor * velocity + g;
    return weight - s.learningRate * (nesterov ? g + factor * velocity : velocity);
  }
};

struct Adam {
  static constexpr int states = 2;
  float beta1, beta2, rest1, rest2, rate, root, epsilon, keep, coupledDecay;
  __device__ float operator()(const UpdateSlice& s, float weight, float gradient, float& first, float& second) const {
    const float g = decayed(mean(s, gradient), coupledDecay, weight);
    first = beta1 * first + rest1 * g;
    second = beta2 * second + rest2 * g * g;
    return keep * weight - rate * first / (std::sqrt(second) / root + epsilon);
  }
};

constexpr int packElements = 4;

template <int n, class Step>
__device__ void updatePack(const UpdateSlice& s, const Step& step, std::int64_t i) {
  auto weights = loadPack<n>(View<const float>{s.old}, i);
  const auto gradients = loadPack<n>(View<const float>{s.gradient}, i);
  Pack<float, n> first = {}, second = {};
  if (Step::states > 0) first = loadPack<n>(View<float>{s.first}, i);
  if (Step::states > 1) second = loadPack<n>(View<float>{s.second}, i);
  for (int j = 0; j < n; ++j) weights[j] = step(s, weights[j], gradients[j], first[j], second[j]);
  if (Step::states > 0) storePack(View<float>{s.first}, i, first);
  if (Step::states > 1) storePack(View<float>{s.second}, i, second);
  storePack(View<float>{s.fresh}, i, weights);
}

/// A slice, of which the first `packs` packs move whole and the other elements one by one.
template <class Step>
struct Row {
  UpdateSlice slice;
  std::int64_t packs;
  Step step;
};

template <class Step>
__global__ void updateAll(cuda::Table<Row<Step>> table) {
  const unsigned at = table.row();
  const Row<Step>& row = table.rows[at];
  const cuda::RowShare own = table.shareOf(at);
  for (std::int64_t i = own.first; i < row.packs; i += own.step)
    updatePack<packElements>(row.slice, row.step, i * packElements);
  for (std::int64_t i = row.packs * packElements + own.first; i < row.slice.count; i += own.step)
    updatePack<1>(row.slice, row.step, i);
}

std::int64_t packsOf(const UpdateSlice& s) {
  std::uintptr_t addresses = 0; // those that are absent are null
  for (const float* data : {s.old, s.gradient, static_cast<const float*>(s.fresh), static_cast<const float*>(s.first),
                            static_cast<const float*>(s.second)})
    addresses |= reinterpret_cast<std::uintptr_t>(data);
  return addresses % (packElements * sizeof(float)) == 0 ? s.count / packElements : 0;
}

template <class StepOf>
void launch(Stream& q, const char* name, std::span<const UpdateSlice> slices, const StepOf& stepOf) {
  using SliceRow = Row<decltype(stepOf(slices[0]))>;
  const auto rowOf = [&](const UpdateSlice& slice) { return SliceRow{slice, packsOf(slice), stepOf(slice)}; };
  // As many blocks that a thread makes two packs: a block does something before the first.
  const auto blocksOf = [](const SliceRow& row) {
    return blocksFor((std::max(row.packs, row.slice.count - row.packs * packElements) + 1) / 2);
  };
  cuda::launchTables<SliceRow>(q, name, updateAll, slices, rowOf, blocksOf);
}

Adam adam(const UpdateSlice& s, const Training& training) {
  const bool decoupled = training.optimizer == OptimizerKind::adamw;
  const auto count = static_cast<double>(s.update);
  return {.beta1 = static_cast<float>(training.beta1),
          .beta2 = static_cast<float>(training.beta2),
          .rest1 = static_cast<float>(1 - training.beta1),
          .rest2 = static_cast<float>(1 - training.beta2),
          .rate = static_cast<float>(static_cast<double>(s.learningRate) / (1 - std::pow(training.beta1, count))),
          .root = static_cast<float>(std::sqrt(1 - std::pow(training.beta2, count))),
          .epsilon = static_cast<float>(training.epsilon),
          .keep = decoupled ? 1 - s.learningRate * s.weightDecay : 1,
          .coupledDecay = decoupled ? 0 : s.weightDecay};
}

} // namespace

void device::update(Stream& q, std::span<const UpdateSlice> slices, const Training& training) {
  switch (training.optimizer) {
  case OptimizerKind::sgd: return launch(q, "sgd", slices, [](const UpdateSlice&) { return Sgd(); });
  case OptimizerKind::momentum:
    return launch(q, "momentum", slices, [&](const UpdateSlice&) {
      return Momentum{static_cast<float>(training.momentum), training.nesterov};
    });
  case OptimizerKind::adam:
  case OptimizerKind::adamw: return launch(q, "adam", slices, [&](const UpdateSlice& s) { return adam(s, training); });
  }
}

} // namespace pdcrt
