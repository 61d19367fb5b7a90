// Runs the action lists of a rank: the kernels of the stage replicas that it hosts, their transfers, all-reduces and
// updates. It knows actions, not schedules: what a schedule means is in its lists.
//
// Memory is one arena, laid out by Arena.h and allocated once; while training runs nothing is allocated. Executor.cpp
// has the actions, Updates.cpp the update; Setup.cpp sets everything up.
#pragma once

#include "DataIn.h"
#include "HeldTurn.h"
#include "HostedStage.h"
#include "LossRing.h"
#include "Posting.h"
#include "RunObserver.h"
#include "data/BatchSource.h"
#include "machine/StartOrder.h"
#include "pdcrt/Arena.h"
#include "pdcrt/NotFinite.h"
#include "pdcrt/Places.h"
#include "pdcrt/Replay.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/Stage.h"
#include "pdcrt/Status.h"
#include "pdcrt/Training.h"
#include "transport/Transport.h"

#include <functional>
#include <span>
#include <vector>

namespace pdcrt {

/// Everything that an executor works with; it outlives the executor.
struct ExecutorSetup {
  const Schedule* schedule = nullptr;
  int rank = 0;
  int member = 0;                       ///< of the rank's team
  bool isLone = false;                  ///< there are no other members: a program is profiled
  std::span<const Stage* const> stages; ///< those linked in; must hold the hosted ones
  const Training* training = nullptr;
  Communicator* communicator = nullptr;
  BatchSource* data = nullptr;
  RunObserver* observer = nullptr;
  bool recordsPhases = true; ///< where the device gains by it (Replay.h)
  /// Gradients that are reduced at a time, at most: while those are added, the next ones are on their way. 4 MiB take
  /// 3 ms at 10 Gb/s, beside which their two messages are little.
  std::size_t floatsOfReduction = 1 << 20;
  std::vector<KernelTime>* kernelTimes = nullptr; ///< kernels time their algorithms and say it here (Setup.h)
};

class Executor {
public:
  explicit Executor(const ExecutorSetup& setup);
  ~Executor();

  /// Allocates the arena, builds the kernels, zeroes all state. Fails where schedule and stages do not agree.
  Status prepare();

  /// Trains on `minibatches`, from `first` on, and drains. Before it: initial weights in every version (`setWeights`).
  Status train(std::int64_t first, std::int64_t minibatches);

  /// Runs `minibatches` forwards of the drained pipeline with the newest weights and the running statistics.
  /// `predicted` is called by every stage: with the minibatch and the slot, of which nothing but predictions and
  /// labels may be read.
  using Predicted = std::function<Status(const HostedStage&, std::int64_t minibatch, const std::byte* slot)>;
  Status evaluate(std::int64_t minibatches, BatchSource& data, const Predicted& predicted);

  /// Replaces the state of every stage by its mean over the replicas (drained pipeline; all ranks call it).
  Status averageState();

  /// Between two actions, by all members of the team of a replica that this rank hosts (HostedStage::gather): `all`
  /// becomes what each of them has, at least one number, member by member.
  Status gatherFromTeam(const HostedStage& hosted, std::span<const std::uint32_t> own, std::span<std::uint32_t> all);

  /// Gives every weight version, and the state, their initial values: `read` fills in one parameter or state row, which
  /// has the local shape of a part.
  using ReadTensor = std::function<Status(const char* name, Element element, const Shape& shape,
                                          std::span<std::byte> destination, const MemberPart& part)>;
  Status setWeights(const ReadTensor& read);

  /// Calls see(weights) with all of the newest weights of a hosted stage (drained pipeline). Where they lie in shards
  /// they are gathered for that, so all ranks call it, stage by stage in one order.
  Status withWeights(HostedStage& hosted, const std::function<void(std::byte* weights)>& see);

  std::span<const HostedStage> hosted() const { return hosted_; }
  std::span<HostedStage> hosted() { return hosted_; }
  const Arena& arena() const { return arena_; }
  const Places& places() const { return places_; }
  Stream stream() const { return stream_; }

  /// Writes what the data set has for a minibatch, the loss scale and shares of the loss, into `slot`.
  Status readData(HostedStage& hosted, std::int64_t minibatch, std::byte* slot, BatchSource* data);
  /// `bytes` of a block as the host can read them, until training or evaluation goes on: the block itself on the CPU.
  const std::byte* onHost(const std::byte* block, std::size_t bytes);

private:
  // Setup.cpp
  Status checkTraining() const;
  Status host(const Host& host);
  Status allocate();
  Status prepareStage(HostedStage& hosted, const ArenaHost& place);
  Status joinTeam(HostedStage& hosted, const std::vector<Collective>& collectives);

  // Runs.
  Status follow(StartOrder& order, bool evaluation);
  Status refreshTied();
  Status execute(const Action& action);
  Status compute(HostedStage& hosted, const Action& action);
  Status reduce(HostedStage& hosted, const Action& action);
  Status drain();
  Status notFinite(const Action& action, const NotFinite& bad) const;
  HostedStage& hostedStage(int stage);

  // Actions.
  Status transfer(HostedStage& hosted, const Action& action);
  Status exchangeTied(HostedStage& hosted, const Action& action);
  Status forward(HostedStage& hosted, const Action& action);
  Status backward(HostedStage& hosted, const Action& action);
  Status runHalf(HostedStage& hosted, const Action& action, std::int64_t update, Call& call, bool withInput);
  Status evaluateOne(HostedStage& hosted, const Action& action);
  Status tellPredictions(const HostedStage& hosted, const Action& action, const std::byte* slot);
  Call callFor(HostedStage& hosted, std::int64_t minibatch);
  void run(const char* name, void (*phase)(const Call&), const HostedStage& hosted, const Call& call);

  // Updates.cpp
  Status update(HostedStage& hosted, const Action& action);
  UpdateBlocks blocksOf(const HostedStage& hosted, const std::byte* gradients) const;
  UpdateStep stepOf(const HostedStage& hosted, std::int64_t update, double gradientScale) const;
  void backwardWithUpdates(HostedStage& hosted, const Call& call, std::int64_t update);
  Status skipUpdate(HostedStage& hosted, const UpdateBlocks& blocks, std::int64_t update);

  /// Lets the communication thread begin a run in its order.
  struct Opening : Work {
    const StartOrder* order = nullptr;
    std::int64_t minibatches = 0;
    bool advance(Transport& transport) override {
      transport.gate().open(*order, minibatches);
      return true;
    }
  };

  ExecutorSetup setup_;
  Places places_;
  Posting posting_;
  Arena arena_;
  std::byte* memory_ = nullptr;
  std::vector<HostedStage> hosted_;
  Stream stream_;
  Replays replays_;
  DataIn data_;
  LossRing losses_;
  WeightPool pool_;                 ///< of stages whose weights lie in shards
  std::vector<SumPlace> sumPlaces_; ///< of such stages
  std::vector<HostMemory> mirrors_; ///< of blocks, for a host that does not see them

  RunSpan run_; ///< the current run
  bool evaluating_ = false;
  bool trained_ = false; ///< tied parameters have been updated since their users got them
  BatchSource* evaluationData_ = nullptr;
  const Predicted* predicted_ = nullptr;
  StartOrder order_, evaluationOrder_;   ///< made when first needed, where the transport is ordered()
  const StartOrder* followed_ = nullptr; ///< of the current run
  Opening opening_;
  HeldTurn turn_{posting_}; ///< of the computation that goes on
};

} // namespace pdcrt
