// Stage programs that are witnesses: every value is a digest of all that it was computed from, and each stage keeps a
// digest, per phase, of what it has read, in order. A run in which any phase reads another value than it should, or in
// another order, ends with other digests; weights, which are real numbers, follow from them too.
//
// Each stage has two parameters. The second is what it shares with later stages, if the schedule says so: every stage
// uses it, and what is shared with it, in the backward_input and in the backward_weight. The gradient of the first is
// reduced while the backward goes on; of the other that is left to the schedule.
#pragma once

#include "exec/Executor.h"
#include "pdcrt/Schedule.h"

#include <array>
#include <cstring>
#include <string>
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

inline Digest bitsAt(const std::byte* at) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

/// Name of the parameter that a stage may share.
inline const char* nameOfShared(int stage) {
  static constexpr std::array names = {"tied0", "tied1", "tied2", "tied3"};
  return names[static_cast<std::size_t>(stage)];
}

/// Digests of a stage replica: what its forwards, backward_inputs and backward_weights have read.
enum Phase { forwards, inputs, weights, phases };
inline constexpr std::size_t stateBytes = phases * sizeof(Digest);

/// The stage at one place of the pipeline, for the edges of one schedule after the other.
template <int Index>
struct Witness {
  static inline std::vector<EdgeRow> edges;
  static inline std::vector<PortRow> ports;
  static inline std::vector<SharedRow> shared;
  static inline std::vector<SharedValueRow> sharedValues;
  static inline std::vector<SharedUseRow> sharedUses;
  static inline const std::string name = "w" + std::to_string(Index);
  // Offsets in the weights and gradients.
  static constexpr std::size_t ownAt = 0, sharedAt = 4, foreignAt = 16;
  static inline const std::array<ParameterRow, 2> parameters = {
      {{name.c_str(), Element::f32, {1}, ownAt, 0, true, 1, 1},
       {nameOfShared(Index), Element::f32, {1}, sharedAt, 1, true, 1, 1}}};
  static inline const std::array<GradientRow, 3> gradients = {{{1, sharedAt, true}, {0, ownAt}, {1, sharedAt + 4}}};
  static inline const std::array<GroupRow, 1> groups = {{{Index, "witness"}}};
  static inline Stage stage;

  /// All that arrives over the edges of `direction`, and the weights, others' too.
  static Digest arrived(const Call& call, Direction direction, Digest digest) {
    for (std::size_t i = 0; i < edges.size(); ++i) {
      const int peer = edges[i].from == Index ? edges[i].to : edges[i].from;
      const bool arrives = direction == Direction::forward ? peer < Index : peer > Index;
      if (edges[i].direction == direction && arrives) digest = mix(digest, digestAt(call.frame.edges[i]));
    }
    digest = mix(digest, digestAt(call.weights)); // both
    for (std::size_t i = 0; i < shared.size(); ++i)
      if (shared[i].user == Index) digest = mix(digest, bitsAt(call.frame.shared[i]));
    return digest;
  }
  /// Writes the gradients of one half of the backward: of the own uses, and of others' parameters.
  static void differentiate(const Call& call, bool withInput, Digest digest) {
    auto write = [&](std::size_t offset) {
      digest = mix(digest, offset);
      const float gradient = static_cast<float>(digest >> 40) / 16777216.0f;
      std::memcpy(call.gradients + offset, &gradient, sizeof gradient);
    };
    for (const GradientRow& row : gradients) {
      if (row.withInput == withInput) write(row.offset);
      if (!withInput && row.offset == ownAt) call.stream->bucket(0);
    }
    for (const SharedUseRow& use : sharedUses)
      if (shared[static_cast<std::size_t>(use.shared)].user == Index && use.withInput == withInput) write(use.gradient);
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
    differentiate(call, true, value);
    note(call, inputs, value);
  }
  static void backwardWeight(const Call& call) {
    const Digest value =
        mix(digestAt(call.handover), arrived(call, Direction::forward, arrived(call, Direction::backward, kept(call))));
    differentiate(call, false, value);
    note(call, weights, value);
  }

  /// The rows of what the schedule shares with, or of, this stage.
  static void share(const Schedule& schedule) {
    shared.clear();
    sharedValues.clear();
    sharedUses.clear();
    for (const SharedEdge& edge : schedule.shared) {
      if (edge.owner != Index && edge.user != Index) continue;
      const auto row = static_cast<int>(shared.size());
      const bool owner = edge.owner == Index;
      shared.push_back({edge.owner, edge.user, 64, 64});
      sharedValues.push_back({row, nameOfShared(edge.owner), Element::f32, {1}, owner ? sharedAt : 0, owner ? 1 : -1});
      // Behind the two uses of the owner come those of its users, in order.
      int user = 0;
      for (const SharedEdge& before : schedule.shared) user += before.owner == edge.owner && before.user < edge.user;
      for (int use = 0; use < 2; ++use) {
        const auto part = static_cast<std::size_t>(4 * use);
        sharedUses.push_back(
            {row, row, 2 + 2 * user + use, part, foreignAt + 8 * static_cast<std::size_t>(row) + part, use == 0});
      }
    }
  }

  static const Stage* of(const Schedule& schedule) {
    share(schedule);
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
             .shared = shared,
             .sharedValues = sharedValues,
             .sharedUses = sharedUses,
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

inline Status readInitial(const char*, Element, const Shape&, std::span<std::byte> destination,
                          const MemberPart& = {}) {
  const float one = 1;
  std::memcpy(destination.data(), &one, sizeof one);
  return {};
}

} // namespace witness
