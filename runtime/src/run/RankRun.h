// One process of a run: a rank, or a member of one. It prepares its stages, says hello to rank 0, gets a verdict (or
// what is wrong), trains, evaluates, exports, and tells rank 0 what it has measured. Rank 0 also tells people. What all
// members of a team know the first one tells.
#pragma once

#include "Agreement.h"
#include "Options.h"
#include "RunFiles.h"
#include "Summary.h"
#include "checkpoint/Checkpointer.h"
#include "data/Data.h"
#include "data/Evaluation.h"
#include "data/Loads.h"
#include "exec/Executor.h"
#include "measure/Progress.h"
#include "measure/Trace.h"
#include "pdcrt/FlightRecorder.h"
#include "transport/Control.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace pdcrt {

/// The signal that asks this process to end; 0: none.
extern std::atomic<int> signalled;

class RankRun : public RunObserver {
public:
  /// `oneProcess`: all ranks are threads of this one.
  /// A program that is profiled plays one member of its team alone.
  RankRun(const RunOptions& options, const RunFiles& files, std::span<const Stage* const> stages, Transport& transport,
          FlightRecorder& recorder, bool oneProcess);
  /// Nothing of this rank may move once its memory goes.
  ~RankRun() override { communicator_.stop(); }

  Status run();
  /// After run(): what a signal makes of a run that ended well.
  Status interruption() const;

  // What the executor tells while it runs.
  void loss(int stage, std::int64_t minibatch, double value) override;
  void term(int stage, const char* name, std::int64_t minibatch, double value) override;
  void skipped(const HostedStage& hosted, std::int64_t update) override;
  void begins(const Action& action) override { recorder_.begin(action, now()); }
  void acted(const Action& action, double begin, double end) override;
  Status computed(const Action& action) override { return checkpointer_.computed(action); }
  void transferred(const Action& action, double posted, double completed) override;
  void awaits(const Collective& collective, int number) override { recorder_.await(nameOf(collective.kind), number); }
  void met(const Collective& collective, int number, double begin, double end) override;
  std::int64_t minibatches(std::int64_t planned) override;

private:
  Status prepare();
  Status agree();
  Status load();
  Status train();
  Status evaluateMeanwhile();
  Status saveLast();
  Status finish();
  Status evaluate(bool last);
  Status measure();
  /// Tells at once what could not be written; the run goes on, and ends with its code.
  void complain(const Status& status);

  void toRank0(Message& message);
  void handle(const Message& message);
  void take(const Message& verdict);
  void stop();
  void reportShards();
  Manifest manifest() const;
  std::int64_t minibatchesPerStep() const { return std::max<std::int64_t>(1, files_.schedule.minibatchesPerUpdate); }
  std::int64_t syntheticSamples() const;
  bool tells() const { return place_.member == 0; }

  template <class Done>
  bool waitFor(Done done) {
    Message message;
    while (!done()) {
      if (!control_.wait(message)) return false;
      handle(message);
    }
    return true;
  }

  /// Sent so far. What evaluations and the training have sent is known where nothing is under way.
  std::uint64_t bytesToTeam() const { return transport_.bytesSent[static_cast<std::size_t>(Traffic::team)]; }

  const RunOptions& options_;
  const RunFiles& files_;
  std::span<const Stage* const> stages_;
  Transport& transport_;
  Communicator communicator_;
  Control control_;
  int rank_;    ///< of this process
  Place place_; ///< in the schedule
  FlightRecorder& recorder_;
  bool oneProcess_;
  DataSet data_, evaluationData_;
  std::vector<KernelTime> kernelTimes_; ///< of a program that is profiled, or wants the fastest
  Executor executor_;
  Trace trace_;
  Checkpointer checkpointer_;
  std::vector<const Stage*> hosted_;
  std::vector<MeasuredStage> measured_;
  double waitSeconds_ = 0, processorMark_ = 0, origin_ = 0;
  std::uint64_t evaluationTeamBytes_ = 0; ///< sent to the team by evaluations

  std::int64_t first_ = 0;       ///< minibatch with which training begins
  std::int64_t minibatches_ = 0; ///< from there on
  std::int64_t done_ = 0;        ///< of these, before the last drain
  std::int64_t evaluationSamples_ = 0;
  std::int64_t newest_ = 0; ///< minibatch that this rank has computed
  bool verdictTaken_ = false, stopAsked_ = false, stopped_ = false, trained_ = false;
  bool checkpointed_ = false; ///< rank 0 is done with the last checkpoint
  Exit verdictCode_ = Exit::done;
  Status unwritten_; ///< what complain() has told last

  // Rank 0's.
  std::unique_ptr<Progress> progress_;
  std::map<int, Message> hellos_;
  Agreement agreement_;
  std::map<int, EvaluationSums> evaluations_;
  Loads loads_; ///< of the evaluation
  std::vector<MeasuredStage> statistics_;
  double secondsPerMinibatch_ = 0;
  Status lastCheckpoint_;
};

} // namespace pdcrt
