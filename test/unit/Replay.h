// What a training run must compute, replayed in one process from the formulas of docs/Semantics.md: minibatch after
// minibatch, with every version of every stage's weights kept for ever.
//
// The replay calls the same stage functions as a run. It has its own weights, formulas of versions, sums of gradients
// and optimizer, and shares nothing with executor, version ring, schedule, all-reduce or transport. Bits must agree.
#pragma once

#include "exec/Executor.h"
#include "files/WeightFile.h"
#include "pdcrt/Device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <new>
#include <numeric>
#include <stdexcept>
#include <vector>

/// What to replay.
struct ReplaySetup {
  std::vector<const pdcrt::Stage*> stages;
  std::vector<int> replicas, warmup, syncDelay; ///< R_s, w_s, d_s
  pdcrt::WeightPolicy weights = pdcrt::WeightPolicy::stash;
  std::int64_t microbatches = 0; ///< m of flushing schedules and of 2bw; 0: 1f1b
  pdcrt::Training training;      ///< sgd or momentum, constant learning rate
  pdcrt::BatchSource* data = nullptr;
  pdcrt::Executor::ReadTensor readWeights;
  std::vector<std::vector<int>> routes = {}; ///< by stage: its cyclic word of replicas; none: they take turns
};

/// What to get wrong: a test that compares a run with a replay must fail with any of these.
struct ReplayMistake {
  bool latest = false;           ///< backward with the newest weights
  int versionOff = 0;            ///< uses this many versions too old
  bool reverseAllReduce = false; ///< adds the replicas from last to first
  bool learningRateAsIs = false; ///< lr instead of lr · R_s / R_0
  bool usersVersion = false;     ///< of shared parameters the version with the number that the user's own weights have
  bool reverseUses = false;      ///< adds the uses of a parameter from last to first
  bool skipEachStage = false;    ///< skips the updates of those stages only whose own gradients are not finite
  bool clipEachStage = false;    ///< clips every stage by its own norm where the norm of all was meant
};

class Replay {
public:
  /// Kernels are promised addresses that are multiples of 64.
  template <class T>
  struct Aligned {
    using value_type = T;
    static constexpr std::align_val_t alignment{64};
#ifdef PDC_TEST_ON_GPU // what both the host and the device see
    T* allocate(std::size_t n) {
      if (std::byte* memory = pdcrt::device::allocateHost(n * sizeof(T))) return reinterpret_cast<T*>(memory);
      throw std::bad_alloc();
    }
    void deallocate(T* p, std::size_t n) {
      pdcrt::device::releaseHost(reinterpret_cast<std::byte*>(p), n * sizeof(T));
    }
#else
    T* allocate(std::size_t n) {
      return static_cast<T*>(::operator new(n * sizeof(T), alignment));
    }
    void deallocate(T* p, std::size_t) {
      ::operator delete(p, alignment);
    }
#endif
    friend bool operator==(Aligned, Aligned) {
      return true;
    }
  };
  using Block = std::vector<std::byte, Aligned<std::byte>>;

  explicit Replay(ReplaySetup setup, ReplayMistake mistake = {}) : setup_(std::move(setup)), mistake_(mistake) {
    for (std::size_t s = 0; s < setup_.stages.size(); ++s) {
      const pdcrt::Stage& stage = *setup_.stages[s];
      StageState state;
      pdcrt::Setup kernelSetup;
      for (int r = 0; r < setup_.replicas[s]; ++r) {
        state.kernels.push_back(stage.buildKernels(kernelSetup));
        state.replicaStates.emplace_back(stage.bytes.state);
        for (const pdcrt::StateRow& row : stage.states)
          require(setup_.readWeights(row.name, row.element, row.shape, bytesAt(state.replicaStates.back(), row), {}));
      }
      state.workspace.resize(kernelSetup.workspaceBytes());
      state.handover.resize(stage.bytes.handover);
      state.scratch.resize(stage.bytes.scratch);
      state.versions.emplace_back(stage.bytes.weights);
      state.frozen.resize(stage.bytes.frozen);
      for (const pdcrt::ParameterRow& row : stage.parameters)
        require(setup_.readWeights(row.name, row.element, row.shape,
                                   bytesAt(row.trained ? state.versions.back() : state.frozen, row), {}));
      require(pdcrt::WeightFile::load(stage.parameters, state.versions.back().data(), state.frozen.data()));
      state.momentum.resize(stage.bytes.weights);
      states_.push_back(std::move(state));
    }
  }

  /// Trains on minibatches 0 … count - 1.
  void run(std::int64_t count) {
    count_ = count;
    for (std::int64_t b = 0; b < count; ++b) {
      std::vector<Minibatch> parts;
      for (std::size_t s = 0; s < states_.size(); ++s) parts.push_back(begin(s));
      for (std::size_t s = 0; s < states_.size(); ++s) forward(s, b, parts);
      for (std::size_t s = states_.size(); s-- > 0;) backward(s, b, parts);
      for (std::size_t s = 0; s < states_.size(); ++s) states_[s].gradients[b] = std::move(parts[s].gradients);
      for (std::size_t s = 0; s < states_.size(); ++s) {
        const std::int64_t each = perUpdate(s), first = b / each * each;
        if ((b + 1) % each == 0 || b + 1 == count) update(s, first, b + 1, scaleOf(s, first, b + 1));
      }
      if (((b + 1) % perUpdate(0) == 0 || b + 1 == count) && setup_.training.lossScaleInterval > 0) adjustLossScale();
      // No update asks for minibatches before those of the batch that it belongs to.
      const std::int64_t most = setup_.microbatches + *std::max_element(setup_.replicas.begin(), setup_.replicas.end());
      for (StageState& state : states_) state.gradients.erase(b - most);
    }
  }

  /// The newest weights of a stage.
  const Block& weights(std::size_t stage) const {
    return states_[stage].versions.back();
  }
  double lossScale() const {
    return lossScale_;
  }
  std::size_t updates(std::size_t stage) const {
    return states_[stage].versions.size() - 1;
  }
  const Block& state(std::size_t stage, int replica) const {
    return states_[stage].replicaStates[static_cast<std::size_t>(replica)];
  }
  const std::vector<double>& losses() const {
    return losses_;
  }

private:
  struct StageState {
    std::vector<std::shared_ptr<const void>> kernels;
    std::vector<Block> versions; ///< W^0, W^1, …
    std::vector<Block> replicaStates;
    Block frozen, momentum, handover, scratch, workspace;
    std::map<std::int64_t, Block> gradients; ///< by minibatch
  };
  struct Minibatch {
    Block slot, gradients;
    std::vector<Block> edges;
    std::vector<Block> shared; ///< by row of Stage::shared: the parameters of another stage
    std::int64_t version = 0;
  };

  /// Keeps the gradients with which a stage program updates parameters early.
  class EarlyGradients : public pdcrt::GradientTaker {
  public:
    EarlyGradients(const pdcrt::Stage& stage, Block& block) : stage_(stage), block_(block) {}
    void take(int parameter, const float* gradient, pdcrt::Elements elements) override {
      const pdcrt::ParameterRow& row = stage_.parameters[static_cast<std::size_t>(parameter)];
      const std::int64_t count = std::min(elements.count, row.shape.elements() - elements.begin);
      std::memcpy(block_.data() + stage_.bytes.gradients + row.offset +
                      static_cast<std::size_t>(elements.begin) * sizeof(float),
                  gradient, static_cast<std::size_t>(count) * sizeof(float));
    }

  private:
    const pdcrt::Stage& stage_;
    Block& block_;
  };

  static void require(const pdcrt::Status& status) {
    if (!status) throw std::runtime_error(status.message());
  }
  template <class Row>
  static std::span<std::byte> bytesAt(Block& block, const Row& row) {
    return std::span(block).subspan(row.offset, static_cast<std::size_t>(row.shape.elements()) * bytesOf(row.element));
  }
  static const float* floats(const Block& block, std::size_t offset) {
    return reinterpret_cast<const float*>(block.data() + offset);
  }

  std::int64_t perUpdate(std::size_t s) const {
    return setup_.microbatches > 0 ? setup_.microbatches : setup_.replicas[s];
  }

  Minibatch begin(std::size_t s) const {
    const pdcrt::Stage& stage = *setup_.stages[s];
    Minibatch part;
    part.slot.resize(stage.bytes.slot);
    part.gradients.resize(stage.bytes.gradients + stage.bytes.weights); // behind: those of early updates
    for (const pdcrt::EdgeRow& edge : stage.edges) part.edges.emplace_back(edge.bytes);
    return part;
  }

  /// V_s(b).
  std::int64_t versionFor(std::size_t s, std::int64_t b) const {
    // PipeDream-2BW: W(t+1) = W(t) - ν·∇f(W(t-1)).
    if (setup_.weights == pdcrt::WeightPolicy::twoVersions)
      return std::max<std::int64_t>(0, b / setup_.microbatches - 1);
    if (setup_.microbatches > 0) return b / setup_.microbatches;
    auto stash = [&](std::size_t t) {
      return std::max<std::int64_t>(0, b / setup_.replicas[t] - setup_.warmup[t] - setup_.syncDelay[t]);
    };
    if (setup_.weights == pdcrt::WeightPolicy::verticalSync) return setup_.replicas[0] * stash(0) / setup_.replicas[s];
    return stash(s);
  }

  /// Copies the tensors that arrive at stage `s` in `direction` from the stages that sent them.
  void receive(std::size_t s, pdcrt::Direction direction, std::vector<Minibatch>& parts) const {
    const pdcrt::Stage& stage = *setup_.stages[s];
    const int self = static_cast<int>(s);
    for (std::size_t e = 0; e < stage.edges.size(); ++e) {
      const pdcrt::EdgeRow& edge = stage.edges[e];
      const int peer = edge.from == self ? edge.to : edge.from;
      const bool arrives = direction == pdcrt::Direction::forward ? peer < self : peer > self;
      if (edge.direction != direction || !arrives) continue;
      const pdcrt::Stage& sender = *setup_.stages[static_cast<std::size_t>(peer)];
      for (std::size_t f = 0; f < sender.edges.size(); ++f) {
        const pdcrt::EdgeRow& other = sender.edges[f];
        if (other.direction != direction || (other.from == peer ? other.to : other.from) != self) continue;
        const Block& source = direction == pdcrt::Direction::forward ? parts[static_cast<std::size_t>(peer)].slot
                                                                     : parts[static_cast<std::size_t>(peer)].edges[f];
        auto out = portsOf(sender, f), in = portsOf(stage, e);
        for (std::size_t i = 0; i < in.size(); ++i)
          std::memcpy(parts[s].edges[e].data() + in[i]->offset, source.data() + out[i]->offset, in[i]->bytes);
      }
    }
  }
  static std::vector<const pdcrt::PortRow*> portsOf(const pdcrt::Stage& stage, std::size_t edge) {
    std::vector<const pdcrt::PortRow*> ports;
    for (const pdcrt::PortRow& port : stage.ports)
      if (port.edge == static_cast<int>(edge)) ports.push_back(&port);
    return ports;
  }

  std::int64_t replicaOf(std::size_t s, std::int64_t b) const {
    if (setup_.routes.empty() || setup_.routes[s].empty()) return b % setup_.replicas[s];
    return setup_.routes[s][static_cast<std::size_t>(b) % setup_.routes[s].size()];
  }

  template <class Phase>
  void call(std::size_t s, std::int64_t b, Minibatch& part, std::int64_t version, Phase phase) {
    StageState& state = states_[s];
    const std::size_t replica = static_cast<std::size_t>(replicaOf(s, b));
    pdcrt::Stream stream(state.workspace.data(), state.workspace.size());
    EarlyGradients early(*setup_.stages[s], part.gradients);
    stream.giveGradientsTo(&early);
    std::vector<std::byte*> edges;
    for (Block& edge : part.edges) edges.push_back(edge.empty() ? nullptr : edge.data());
    std::vector<const std::byte*> shared;
    for (const Block& block : part.shared) shared.push_back(block.empty() ? nullptr : block.data());
    phase(pdcrt::Call{.kernels = state.kernels[replica].get(),
                      .weights = state.versions[static_cast<std::size_t>(version)].data(),
                      .state = state.replicaStates[replica].data(),
                      .gradients = part.gradients.data(),
                      .handover = state.handover.data(),
                      .scratch = state.scratch.data(),
                      .frame = {part.slot.data(), edges.data(), shared.data()},
                      .draw = {setup_.training.seed, static_cast<std::uint64_t>(b)},
                      .stream = &stream,
                      .frozen = state.frozen.data()});
    require(pdcrt::device::wait(stream));
  }

  /// The parameters that stage `s` uses and an earlier one owns, at version V_o(b).
  void takeShared(std::size_t s, std::int64_t b, Minibatch& part) const {
    const pdcrt::Stage& stage = *setup_.stages[s];
    for (const pdcrt::SharedRow& row : stage.shared)
      part.shared.emplace_back(row.user == stage.index ? row.valueBytes : 0);
    for (const pdcrt::SharedValueRow& value : stage.sharedValues) {
      if (value.parameter >= 0) continue;
      const auto o = static_cast<std::size_t>(stage.shared[static_cast<std::size_t>(value.shared)].owner);
      const std::int64_t newest = static_cast<std::int64_t>(states_[o].versions.size()) - 1;
      const std::int64_t version = mistake_.usersVersion
                                       ? std::min(part.version, newest)
                                       : std::max<std::int64_t>(0, versionFor(o, b) - mistake_.versionOff);
      for (const pdcrt::ParameterRow& owned : setup_.stages[o]->parameters)
        if (std::string(owned.name) == value.name)
          std::memcpy(part.shared[static_cast<std::size_t>(value.shared)].data() + value.offset,
                      states_[o].versions[static_cast<std::size_t>(version)].data() + owned.offset,
                      static_cast<std::size_t>(value.shape.elements()) * sizeof(float));
    }
  }

  /// P · n(b) / Σ n over the P minibatches of the update of b, n the weights of the labels that count; 1 where not all
  /// stages update with the same minibatches.
  float shareOf(const pdcrt::Stage& stage, const pdcrt::DataRow& row, std::int64_t b) const {
    for (std::size_t s = 1; s < states_.size(); ++s)
      if (perUpdate(s) != perUpdate(0)) return 1;
    const std::int64_t first = b / perUpdate(0) * perUpdate(0), last = std::min(first + perUpdate(0), count_);
    double own = 0, all = 0;
    for (const pdcrt::DataRow& labels : stage.data) {
      if (std::string(labels.name) != row.share->labels) continue;
      std::vector<std::int64_t> values(static_cast<std::size_t>(labels.shape.elements()));
      for (std::int64_t k = first; k < last; ++k) {
        require(setup_.data->read(labels, k, reinterpret_cast<std::byte*>(values.data())));
        for (std::int64_t label : values) {
          if (row.share->ignores && label == row.share->ignored) continue;
          const double weight = row.share->weights.empty() ? 1 : row.share->weights[static_cast<std::size_t>(label)];
          all += weight;
          if (k == b) own += weight;
        }
      }
    }
    return all == 0 ? 0 : static_cast<float>(static_cast<double>(last - first) * own / all);
  }

  void forward(std::size_t s, std::int64_t b, std::vector<Minibatch>& parts) {
    const pdcrt::Stage& stage = *setup_.stages[s];
    Minibatch& part = parts[s];
    receive(s, pdcrt::Direction::forward, parts);
    for (const pdcrt::DataRow& row : stage.data)
      if (row.lossScale)
        *reinterpret_cast<float*>(part.slot.data() + row.offset) = static_cast<float>(lossScale_);
      else if (row.share)
        *reinterpret_cast<float*>(part.slot.data() + row.offset) = shareOf(stage, row, b);
      else
        require(setup_.data->read(row, b, part.slot.data() + row.offset));
    part.version = std::max<std::int64_t>(0, versionFor(s, b) - mistake_.versionOff);
    takeShared(s, b, part);
    call(s, b, part, part.version, stage.forward);
    for (const pdcrt::OutputRow& row : stage.outputs)
      if (row.kind == pdcrt::OutputKind::loss) losses_.push_back(floats(part.slot, row.offset)[0]);
  }

  void backward(std::size_t s, std::int64_t b, std::vector<Minibatch>& parts) {
    const pdcrt::Stage& stage = *setup_.stages[s];
    receive(s, pdcrt::Direction::backward, parts);
    // With `latest` the backward runs when all updates before it have been made: those that the forward saw, and those
    // of the w_s minibatches in between.
    const bool latest = setup_.weights == pdcrt::WeightPolicy::latest || mistake_.latest;
    const std::int64_t newest = std::max<std::int64_t>(0, b / setup_.replicas[s] - setup_.syncDelay[s]);
    const std::int64_t version = latest ? newest : parts[s].version;
    call(s, b, parts[s], version, stage.backwardInput);
    call(s, b, parts[s], version, stage.backwardWeight);
  }

  /// The sum over minibatches [first, last) of the gradient of element i.
  float sumOf(std::size_t s, int p, std::int64_t i, std::int64_t first, std::int64_t last) const {
    const std::int64_t R = setup_.replicas[s];
    float sum = 0;
    bool any = false;
    for (std::int64_t k = 0; k < R; ++k) {
      const std::int64_t replica = mistake_.reverseAllReduce ? R - 1 - k : k;
      float part = 0;
      if (!partOf(s, p, i, replica, first, last, part)) continue;
      sum = any ? sum + part : part;
      any = true;
    }
    return sum;
  }

  double squaresOf(std::size_t s, std::int64_t first, std::int64_t last) const {
    double squares = 0;
    for (std::size_t p = 0; p < setup_.stages[s]->parameters.size(); ++p)
      for (std::int64_t i = 0; i < setup_.stages[s]->parameters[p].shape.elements(); ++i)
        squares += std::pow(sumOf(s, static_cast<int>(p), i, first, last), 2.0);
    return squares;
  }

  /// Clipping and loss scale: the factor of stage s's mean gradients; negative where they are not finite.
  double scaleOf(std::size_t s, std::int64_t first, std::int64_t last) const {
    const pdcrt::Training& training = setup_.training;
    if (!training.checksGradients()) return 1 / lossScale_;
    const double own = squaresOf(s, first, last);
    double all = 0;
    for (std::size_t t = 0; t < states_.size(); ++t) all += squaresOf(t, first, last);
    const bool alone = training.clipScope == pdcrt::ClipScope::stage || mistake_.clipEachStage;
    const bool together = training.lossScaleInterval > 0 || (training.clipNorm && !alone) ||
                          (setup_.microbatches > 0 && training.nonFinite == pdcrt::NonFinite::skip);
    if (!std::isfinite(together && !mistake_.skipEachStage ? all : own)) return -1;
    if (!training.clipNorm) return 1 / lossScale_;
    const double norm = std::sqrt(alone ? own : all) / static_cast<double>(last - first) / lossScale_;
    return std::min(1.0, *training.clipNorm / (norm + 1e-6)) / lossScale_;
  }

  /// After an update of all stages.
  void adjustLossScale() {
    if (skipped_) {
      lossScale_ /= 2;
      finite_ = 0;
    } else if (++finite_ == setup_.training.lossScaleInterval) {
      lossScale_ *= 2;
      finite_ = 0;
    }
    skipped_ = false;
  }

  /// W^{u+1} from the gradients of minibatches [first, last), times `scale`; W^u where that is negative.
  void update(std::size_t s, std::int64_t first, std::int64_t last, double scale) {
    const pdcrt::Stage& stage = *setup_.stages[s];
    StageState& state = states_[s];
    skipped_ = skipped_ || scale < 0;
    const double count = static_cast<double>(last - first);
    double rate = setup_.training.learningRate;
    if (setup_.microbatches == 0 && !mistake_.learningRateAsIs) rate = rate * count / setup_.replicas[0];

    const Block& old = state.versions.back();
    Block fresh = old;
    for (std::size_t p = 0; p < stage.parameters.size(); ++p) {
      const pdcrt::ParameterRow& row = stage.parameters[p];
      if (!row.trained || scale < 0) continue;
      const float lr = static_cast<float>(rate * row.learningRateScale);
      const float decay = static_cast<float>(setup_.training.weightDecay * row.weightDecayScale);
      const float mu = setup_.training.optimizer == pdcrt::OptimizerKind::momentum
                           ? static_cast<float>(setup_.training.momentum)
                           : 0;
      for (std::int64_t i = 0; i < row.shape.elements(); ++i) {
        float g = sumOf(s, static_cast<int>(p), i, first, last) / static_cast<float>(count);
        g *= static_cast<float>(scale);
        const float w = floats(old, row.offset)[i];
        if (decay != 0) g = g + decay * w;
        float direction = g;
        if (setup_.training.optimizer == pdcrt::OptimizerKind::momentum) {
          float& velocity = reinterpret_cast<float*>(state.momentum.data() + row.offset)[i];
          velocity = mu * velocity + g;
          direction = velocity;
        }
        reinterpret_cast<float*>(fresh.data() + row.offset)[i] = w - lr * direction;
      }
    }
    state.versions.push_back(std::move(fresh));
  }

  /// One use of a parameter: the stage that computes with it, and where its gradient is in that stage's block.
  struct Use {
    std::size_t stage, offset;
  };
  /// All uses of parameter `p` of stage `s`, in program order.
  std::vector<Use> usesOf(std::size_t s, int p) const {
    std::vector<Use> uses;
    for (const pdcrt::GradientRow& row : setup_.stages[s]->gradients)
      if (row.parameter == p) uses.push_back({s, row.offset});
    if (const pdcrt::ParameterRow& row = setup_.stages[s]->parameters[static_cast<std::size_t>(p)]; row.early)
      uses.push_back({s, setup_.stages[s]->bytes.gradients + row.offset});
    std::map<int, Use> elsewhere; // by position
    for (std::size_t t = 0; t < states_.size(); ++t)
      for (const pdcrt::SharedUseRow& use : setup_.stages[t]->sharedUses) {
        const pdcrt::SharedValueRow& value = setup_.stages[t]->sharedValues[static_cast<std::size_t>(use.value)];
        const std::string name = setup_.stages[s]->parameters[static_cast<std::size_t>(p)].name;
        if (value.parameter < 0 && value.name == name) elsewhere[use.position] = {t, use.gradient};
      }
    for (const auto& [position, use] : elsewhere) uses.insert(uses.begin() + position, use);
    if (mistake_.reverseUses) std::reverse(uses.begin(), uses.end());
    return uses;
  }

  /// What one replica contributes to element `i` of parameter `p`: per use, the minibatches from first to last; of a
  /// use in another stage, those of each of its replicas that this one serves (q mod R = replica), then these replicas
  /// in order; then the uses. False if the replica had no minibatch; one that owns shared parameters counts all the
  /// same.
  bool partOf(std::size_t s, int p, std::int64_t i, std::int64_t replica, std::int64_t first, std::int64_t last,
              float& part) const {
    bool anyUse = false;
    for (const Use& use : usesOf(s, p)) {
      float total = 0;
      bool anyTotal = false;
      for (std::int64_t q = replica; q < setup_.replicas[use.stage]; q += setup_.replicas[s]) {
        float sum = 0;
        bool any = false;
        for (std::int64_t b = first; b < last; ++b) {
          if (replicaOf(use.stage, b) != q) continue;
          const float g = floats(states_[use.stage].gradients.at(b), use.offset)[i];
          sum = any ? sum + g : g;
          any = true;
        }
        if (!any) continue;
        total = anyTotal ? total + sum : sum;
        anyTotal = true;
      }
      if (!anyTotal) continue;
      part = anyUse ? part + total : total;
      anyUse = true;
    }
    return anyUse || !setup_.stages[s]->shared.empty();
  }

  ReplaySetup setup_;
  ReplayMistake mistake_;
  std::vector<StageState> states_;
  std::vector<double> losses_;
  std::int64_t count_ = 0; ///< minibatches of the run
  double lossScale_ = setup_.training.lossScale;
  std::int64_t finite_ = 0; ///< updates since the scale changed
  bool skipped_ = false;    ///< of the current update
};
