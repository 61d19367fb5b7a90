// A kind of schedule is a value: what planners, cost model, simulator and readers of files ask of it.
//
// Each kind is one file in lib/Schedule/Kinds, which registers it. Nobody else asks for its name
// (utils/check-schedule-names). The formulas that follow from a kind alone stand here once: sync delay, versions kept,
// slots, and depths of rings (docs/Semantics.md).
#pragma once

#include "pdcrt/Schedule.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pdc {

struct PipelineShape; // pdc/Schedule/PipelineShape.h

/// How a replicated stage that updates by itself reduces its gradients: it goes on computing meanwhile, or it waits.
enum class SyncPolicy : std::uint8_t { overlap, barrier };

/// A stage, as a schedule knows it.
struct StageShape {
  int replicas = 1;
  int warmup = 0;          ///< w_s: forwards before the first backward; w_s + 1 minibatches in flight
  int syncDelay = 0;       ///< d_s: backwards between an all-reduce's start and its update; 0 when updates are common
  pdcrt::Route route = {}; ///< of flushing schedules; the others know round robin only
  pdcrt::Sharding sharding = pdcrt::Sharding::none; ///< of replicated stages
  int shardDegree = 0;                              ///< as pdcrt::ScheduleStage's
  bool teamSums = false;                            ///< the members of its teams have terms of the gradients, too
};

/// Minibatches that a stage replica has room for, and the depths of its rings that follow from them.
struct StageDepths {
  int slots = 1;     ///< in flight
  int handovers = 1; ///< of them between input gradients and weight gradients

  /// Buffers of an edge to an earlier stage: those in flight, and one that arrives; gradients on their way back.
  int valuesReceived() const { return slots + 1; }
  static constexpr int gradientsSent = 2;
  /// Buffers of an edge to a later stage. Gradients are needed until the weight gradients are computed. One that
  /// overtakes the chain of stages between waits in its buffer for as long as the minibatch is in flight.
  int gradientsReceived(bool fromNextStage) const {
    return fromNextStage ? handovers + 1 : std::max(handovers + 1, slots);
  }
};

class ScheduleDef {
public:
  explicit ScheduleDef(std::string kindName) : name(std::move(kindName)) {}
  ScheduleDef(const ScheduleDef&) = default;
  virtual ~ScheduleDef() = default;

  std::string name;               ///< as plans, flags and schedule.txt state it
  bool hasBatches = true;         ///< all stages update at once, after each batch of microbatches; else each by itself
  bool flushes = true;            ///< and the pipeline drains before; only with hasBatches
  bool splitsBackward = false;    ///< weight gradients are computed apart from input gradients
  bool forwardsFirst = false;     ///< no stage has a backward before its last forward of a batch
  bool inFlightFitsBatch = false; ///< a stage may have no more minibatches in flight than a batch has
  bool fillsRanks = false;        ///< microbatches must be a multiple of the number of ranks
  bool hasSafeOrder = false;      ///< the proof of isSafeByOrder (pdc/Schedule/PlanSchedule.h) holds for its lists
  bool isGiven = false;           ///< its lists are given for one pipeline: they fit only some
  int stagesPerRank = 1;

  /// Whether the plan's warm-up decides the order; elsewhere it follows from the kind and the microbatches.
  bool takesWarmup() const { return stagesPerRank == 1 && !warmup(1, 1); }

  /// The warm-up that the kind prescribes for a stage with so many replicas.
  virtual std::optional<int> warmup(std::int64_t microbatches, int replicas) const;

  /// d_s: 1 where a replicated stage beside others updates by itself and overlaps that with its all-reduce, else 0.
  int syncDelay(SyncPolicy sync, int stages, int replicas) const;

  /// Versions of the weights that a replica keeps. `asked` is what plan or flags say; `input` is stage 0.
  virtual int versions(pdcrt::WeightPolicy asked, const StageShape& input, const StageShape& own, int stage) const;

  /// The policy of the schedule's lists.
  virtual pdcrt::WeightPolicy weights(pdcrt::WeightPolicy asked) const { return asked; }

  /// How often a batch needs all weights of a stage, one stretch of computations after the other. 0: too often, or all
  /// the time; else its replicas may keep them in shards meanwhile (Sharding::weights).
  virtual int sweeps(int /*stage*/, int /*stages*/) const { return 0; }

  /// The depths of a stage, for kinds with one stage per rank. Other kinds find them from the order of a batch
  /// (frame()).
  virtual StageDepths depths(std::int64_t microbatches, const StageShape& input, const StageShape& own,
                             int stage) const;

  /// Which rank of one copy of the pipeline hosts a stage, of `stages`, where ranks host several: s mod p.
  virtual int rankOfStage(int stage, int stages) const { return stage % (stages / stagesPerRank); }

  /// The schedule without its lists: stages with slots, versions and handovers, edges with rings, ranks with what they
  /// host. Memory follows from this alone.
  virtual pdcrt::Schedule frame(const PipelineShape& shape) const = 0;

  /// The schedule. Where the lists are given: one without ranks, if they do not fit the shape.
  virtual pdcrt::Schedule build(const PipelineShape& shape) const = 0;
};

/// A kind, as plans and options hold it. It is created by name; that is no question.
class ScheduleKind {
public:
  ScheduleKind() = default; ///< not chosen: 1f1b
  /// The kind of this name, which must be one; for what people type there is named().
  ScheduleKind(const char* name);
  ScheduleKind(const std::string& name) : ScheduleKind(name.c_str()) {}
  ScheduleKind(std::shared_ptr<const ScheduleDef> def) : def_(std::move(def)) {}

  static std::optional<ScheduleKind> named(std::string_view name);

  bool isChosen() const { return def_ != nullptr; }
  const ScheduleDef& operator*() const { return def_ ? *def_ : usual(); }
  const ScheduleDef* operator->() const { return &**this; }
  const std::string& name() const { return (**this).name; }
  friend bool operator==(const ScheduleKind& a, const ScheduleKind& b) { return a.name() == b.name(); }

private:
  static const ScheduleDef& usual();

  std::shared_ptr<const ScheduleDef> def_;
};

/// The names that the file of a kind registers: one name, or all names of a pattern ("interleaved:V").
struct ScheduleFamily {
  std::string pattern; ///< as messages show it; empty: nobody types it
  /// Null: the name is not one of the family.
  std::function<std::shared_ptr<const ScheduleDef>(std::string_view name)> named;
};

/// A static object of this type, in the file of a kind, registers it.
class RegisterSchedule {
public:
  explicit RegisterSchedule(ScheduleFamily family);
  explicit RegisterSchedule(std::shared_ptr<const ScheduleDef> def);
};

/// The patterns of all families, sorted.
std::vector<std::string> scheduleNames();

/// scheduleNames() with commas, for messages.
std::string scheduleNamesText();

} // namespace pdc
