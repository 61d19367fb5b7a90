// Stage programs that are witnesses: every value is a digest of all that it was computed from, and each stage keeps a
// digest, per phase, of what it has read, in order. A run in which any phase reads another value than it should, or in
// another order, ends with other digests; weights, which are real numbers, follow from them too.
#pragma once

#include "pdcrt/Executor.h"
#include "pdcrt/Schedule.h"

#include <array>
#include <cstring>
#include <vector>

namespace witness {

using namespace pdcrt;

using Digest = std::uint64_t;

inline Digest mix(Digest digest, Digest value) {
  digest ^= value + 0x9E3779B97F4A7C15ull + (digest << 6) + (digest >> 2);
  digest *= 0xBF58476D1CE4E5B9ull;
  return digest ^ (digest >> 29);
}

inline Digest digestAt(const std::byte* at) {
  Digest value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Digests of a stage replica: what its forwards, backward_inputs and backward_weights have read.
enum Phase { forwards, inputs, weights, phases };
inline constexpr std::size_t stateBytes = phases * sizeof(Digest);

/// The stage at one place of the pipeline, for the edges of one schedule after the other.
template <int Index>
struct Witness {
  static inline std::vector<EdgeRow> edges;
  static inline std::vector<PortRow> ports;
  static inline const std::array<ParameterRow, 1> parameters = {{{"w", Element::f32, {1}, 0, 0, true, 1, 1}}};
  static inline const std::array<GradientRow, 1> gradients = {{{0, 0}}};
  static inline const std::array<GroupRow, 1> groups = {{{Index, "witness"}}};
  static inline Stage stage;

  /// All that arrives over the edges of `direction`, and the weights.
  static Digest arrived(const Call& call, Direction direction, Digest digest) {
    for (std::size_t i = 0; i < edges.size(); ++i) {
      const int peer = edges[i].from == Index ? edges[i].to : edges[i].from;
      const bool arrives = direction == Direction::forward ? peer < Index : peer > Index;
      if (edges[i].direction == direction && arrives) digest = mix(digest, digestAt(call.frame.edges[i]));
    }
    std::uint32_t weight = 0;
    std::memcpy(&weight, call.weights, sizeof weight);
    return mix(digest, weight);
  }
  /// What the slot keeps of the forward; and the minibatch, because random numbers of a forward that is run again
  /// depend on it.
  static Digest kept(const Call& call) { return mix(digestAt(call.frame.slot), call.draw.minibatch); }
  static void note(const Call& call, Phase phase, Digest digest) {
    std::byte* at = call.state + phase * sizeof(Digest);
    const Digest all = mix(digestAt(at), digest);
    std::memcpy(at, &all, sizeof all);
  }

  static void forward(const Call& call) {
    const Digest value = arrived(call, Direction::forward, mix(Index, call.draw.minibatch));
    std::memcpy(call.frame.slot, &value, sizeof value);
    note(call, forwards, value);
  }
  static void backwardInput(const Call& call) {
    const Digest value = arrived(call, Direction::backward, kept(call));
    for (std::size_t i = 0; i < edges.size(); ++i) {
      const int peer = edges[i].from == Index ? edges[i].to : edges[i].from;
      if (edges[i].direction == Direction::backward && peer < Index)
        std::memcpy(call.frame.edges[i], &value, sizeof value);
    }
    std::memcpy(call.handover, &value, sizeof value);
    note(call, inputs, value);
  }
  static void backwardWeight(const Call& call) {
    const Digest value =
        mix(digestAt(call.handover), arrived(call, Direction::forward, arrived(call, Direction::backward, kept(call))));
    const float gradient = static_cast<float>(value >> 40) / 16777216.0f;
    std::memcpy(call.gradients, &gradient, sizeof gradient);
    note(call, weights, value);
  }

  static const Stage* of(const Schedule& schedule) {
    edges.clear();
    ports.clear();
    for (const Direction direction : {Direction::forward, Direction::backward})
      for (const ScheduleEdge& edge : schedule.edges) {
        const bool forward = direction == Direction::forward;
        if (!(forward ? edge.forward : edge.backward) || (edge.from != Index && edge.to != Index)) continue;
        const bool leavesFromSlot = forward && edge.from == Index;
        edges.push_back({direction, forward ? edge.from : edge.to, forward ? edge.to : edge.from,
                         leavesFromSlot ? 0 : sizeof(Digest)});
        ports.push_back({static_cast<int>(edges.size()) - 1, "y", Element::f32, {2}, sizeof(Digest), 0});
      }
    stage = {.index = Index,
             .count = static_cast<int>(schedule.stages.size()),
             .model = "witness.onnx",
             .modelHash = "0000",
             .bytes = {.weights = 64,
                       .state = stateBytes,
                       .gradients = 64,
                       .slot = 64,
                       .handover = 64,
                       .scratch = 0,
                       .workspace = 0},
             .parameters = parameters,
             .gradients = gradients,
             .states = {},
             .edges = edges,
             .ports = ports,
             .data = {},
             .outputs = {},
             .groups = groups,
             .buildKernels = [](Setup&) -> std::shared_ptr<const void> { return std::make_shared<const int>(Index); },
             .forward = forward,
             .backwardInput = backwardInput,
             .backwardWeight = backwardWeight,
             .evaluate = forward};
    return &stage;
  }
};

inline constexpr int mostStages = 4;

/// The stages of `schedule`, at most four. They are valid until the next call.
inline std::vector<const Stage*> stagesOf(const Schedule& schedule) {
  std::vector<const Stage*> stages = {Witness<0>::of(schedule), Witness<1>::of(schedule), Witness<2>::of(schedule),
                                      Witness<3>::of(schedule)};
  stages.resize(schedule.stages.size());
  return stages;
}

inline Status readInitial(const char*, Element, const Shape&, std::span<std::byte> destination) {
  const float one = 1;
  std::memcpy(destination.data(), &one, sizeof one);
  return {};
}

} // namespace witness
