// The norm of all gradients, for clipping by global norm and for skipping updates whose gradients are not finite.
//
// Each stage adds up the squares of its gradients, in f64 and in the order of memory, by blocks of neighbouring
// elements of a parameter (squaresBlock in Shards.h). The sums of the blocks are added exactly, as integers of many
// words: so the result does not depend on the order in which they are added, which stage or replica has which, or how
// many stages a rank hosts. Neither a cut nor a shard changes a bit of the norm.
#pragma once

#include "transport/Transport.h"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace pdcrt {

/// An exact sum of up to 2^31 non-negative doubles that are 0 or from 2^-298, the square of the smallest float, to
/// 2^400.
class ExactSum {
public:
  void add(double value);
  void add(const ExactSum& other);
  /// Whether everything that was added was finite.
  bool finite() const { return words_.back() == 0; }
  /// The sum, rounded: the same for the same numbers in any order.
  double value() const;
  void clear() { words_ = {}; }

  std::byte* bytes() { return reinterpret_cast<std::byte*>(words_.data()); }
  static constexpr std::size_t byteCount() { return sizeof(words_); }

private:
  /// Word i counts 2^(32 i - 352); its upper half is room for carries. The last one counts what was not finite.
  std::array<std::uint64_t, 25> words_{};
};

/// Everyone who takes part in the sum over all stages: the members of the replicas of all stages, by stage, replica and
/// member. The first of them adds up what the first replica of every stage has, or all replicas that have shards, and
/// sends the sum to all. The sum over one stage alone is that of the members of a replica, or of its replicas.
struct NormGroup {
  std::vector<int> ranks;       ///< processes, by participant
  std::vector<bool> counts;     ///< whether it has something to add: of the first replica, or of a shard
  std::size_t self = 0;         ///< this participant
  int channel = 0;              ///< first of two for each participant: to the first one, and back
  std::vector<int> stages = {}; ///< by participant; empty: the sum of a stage alone is not asked for
};

/// One participant's end of it. Posted when `sum` is the stage's part; complete when it is that of all stages.
class GradientNorm : public Work {
public:
  explicit GradientNorm(NormGroup group);
  ExactSum sum;
  /// Of NormGroup::stages: the sum of the participant's stage.
  const ExactSum& ofStage() const { return total_[1]; }

  /// Before posting.
  void prepare() { phase_ = Phase::gathering, started_ = false; }
  bool advance(Transport& transport) override;
  void cancel(Transport& transport) override { transfers_.cancel(transport); }

private:
  enum class Phase : std::uint8_t { gathering, spreading };
  void add(std::size_t peer, bool outgoing, bool back, std::byte* data);
  void gather();
  void spread();
  std::size_t answerBytes() const { return (group_.stages.empty() ? 1 : 2) * ExactSum::byteCount(); }

  NormGroup group_;
  std::vector<ExactSum> parts_;           ///< of the others, at the first participant
  using Answer = std::array<ExactSum, 2>; ///< the sum of all, and of the stage
  std::vector<Answer> answers_;           ///< to the others, at the first participant
  Answer total_;                          ///< arrives here, so that `sum` may still be on its way
  Phase phase_ = Phase::gathering;
  bool started_ = false;
  TransferGroup transfers_; ///< of the current phase
};

} // namespace pdcrt
