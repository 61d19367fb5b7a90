// The last actions of a rank, so that after a failure one can see who waited for whom.
#pragma once

#include "pdcrt/Schedule.h"
#include "pdcrt/Status.h"

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace pdcrt {

/// `joining`: looking for the other ranks, before `starting`.
enum class RunPhase : std::uint8_t { starting, training, finishing, joining };

class FlightRecorder {
public:
  static constexpr std::size_t size = 1024; ///< actions that are kept

  /// `rank`: of the process. `member`: of its team, -1 where it is one of its own.
  FlightRecorder(int rank, std::vector<Host> hosts, int member = -1)
      : rank_(rank), member_(member), hosts_(std::move(hosts)), entries_(size) {}

  /// By the thread that runs the executor; nothing allocates. An action that nobody ends is over when the next begins.
  void begin(const Action& action, double time);
  void end(double time);
  void enter(RunPhase phase);
  /// Within an action: a kernel waits for collective `number` of its team, an "all-reduce" for instance (a literal),
  /// and has it.
  void await(const char* collective, int number);
  void met();

  /// What the rank does at the moment; by any thread.
  struct Now {
    std::int64_t count = 0; ///< actions begun
    RunPhase phase = RunPhase::starting;
    bool running = false; ///< within `action`, which began at `since`; else after it
    Action action;
    double since = 0;
    const char* collective = nullptr; ///< that `action` waits for; null: none
    int number = 0;
  };
  Now now() const;

  int rank() const { return rank_; }
  int member() const { return member_; }
  const std::vector<Host>& hosts() const { return hosts_; }

  /// Rank, its stages, why, the collective that it waits for, and the actions with begin and duration in milliseconds
  /// before `time`, as JSON.
  std::string toJson(double time, const std::string& why) const;

private:
  struct Entry {
    Action action;
    double begin = 0, end = 0; ///< end 0: not yet
  };
  int rank_, member_;
  std::vector<Host> hosts_;
  mutable std::mutex mutex_; ///< guards what follows
  std::vector<Entry> entries_;
  std::int64_t count_ = 0;
  RunPhase phase_ = RunPhase::starting;
  const char* collective_ = nullptr;
  int number_ = 0;
};

/// What a rank does in one word: "1F3"; "?1F3.all-reduce-7" where a kernel waits for a collective of the team.
std::string toString(const FlightRecorder::Now& now);

/// flight-rank3.json in `folder`.
std::string recordingOf(const std::string& folder, int rank);

} // namespace pdcrt
