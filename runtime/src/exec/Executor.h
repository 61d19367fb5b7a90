// Runs the action lists of a rank: the kernels of the stage replicas that it hosts, their transfers, all-reduces and
// updates. It knows actions, not schedules: what a schedule means is in its lists.
//
// Memory is one arena, laid out by Arena.h and allocated once; while training runs nothing is allocated.
#pragma once

#include "TiedParameters.h"
#include "Weights.h"
#include "collectives/AllReduce.h"
#include "collectives/GradientNorm.h"
#include "data/LossShare.h"
#include "pdcrt/Arena.h"
#include "pdcrt/LossScale.h"
#include "pdcrt/NotFinite.h"
#include "pdcrt/Optimizer.h"
#include "pdcrt/Places.h"
#include "pdcrt/Replay.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/Stage.h"
#include "pdcrt/Status.h"
#include "pdcrt/Training.h"
#include "transport/Transport.h"

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace pdcrt {

struct HostedStage;

/// Provides what the data set has for a minibatch.
class BatchSource {
public:
  virtual ~BatchSource() = default;
  /// Writes the values of `row` for `minibatch` to `destination`.
  virtual Status read(const DataRow& row, std::int64_t minibatch, std::byte* destination) = 0;
};

/// Is told what happens, by the thread that runs the executor. Minibatches count from the beginning of the training.
class RunObserver {
public:
  virtual ~RunObserver() = default;
  virtual void loss(int /*stage*/, std::int64_t /*minibatch*/, double /*value*/) {}
  /// An update of a stage was skipped, because its gradients were not finite.
  virtual void skipped(const HostedStage&, std::int64_t /*update*/) {}
  /// Called before each action.
  virtual void begins(const Action&) {}
  /// A computation, or the time spent in a wait.
  virtual void acted(const Action&, double /*begin*/, double /*end*/) {}
  /// A transfer or all-reduce, seen complete when it was awaited.
  virtual void transferred(const Action&, double /*posted*/, double /*completed*/) {}
  /// Called after each action of a training. Returns how many minibatches the run has, which may only shrink.
  virtual std::int64_t minibatches(std::int64_t planned) { return planned; }
};

/// Everything that an executor works with; it outlives the executor.
struct ExecutorSetup {
  const Schedule* schedule = nullptr;
  int rank = 0;
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

/// A stage replica that this rank hosts.
struct HostedStage {
  const Stage* stage = nullptr;
  Host host;
  int replicas = 1;
  Routing routing; ///< of the stage's minibatches
  std::shared_ptr<const void> kernels;
  std::unique_ptr<Optimizer> optimizer;
  Versions versions;
  std::int64_t updates = 0;   ///< since the beginning of the training
  std::int64_t skipped = 0;   ///< of them, because gradients were not finite; the optimizer does not count these
  DynamicLossScale lossScale; ///< the same in all stages, because they skip together
  std::byte *state = nullptr, *optimizerState = nullptr, *scratch = nullptr;
  std::byte* handovers = nullptr; ///< a ring over local minibatches
  int handoverCount = 1;

  struct Slot {
    std::byte* memory = nullptr;
    std::int64_t version = 0; ///< that the forward used
  };
  std::vector<Slot> slots;

  /// Where data of a minibatch arrives before its slot is free: memory of the device, of BlockBytes::dataStaging.
  struct DataStaging {
    std::byte* memory = nullptr; ///< null: there is none, data goes into the slot at once
    Event taken;                 ///< what was there before is in its slot
  };
  DataStaging dataStaging;

  /// Trained parameters whose gradients are reduced together.
  struct Bucket {
    int id = 0; ///< ParameterRow::bucket
    std::vector<const TrainedParameter*> parameters;
    std::vector<const GradientRow*> gradients; ///< of their uses here
    bool early = false; ///< its all-reduce begins during the backward, when that says that it is final
    std::size_t firstReduction = 0, reductions = 0; ///< of its pieces, among those of a set
  };
  std::vector<Bucket> buckets; ///< in the order in which they are reduced; the early ones come first

  struct GradientSet {
    std::byte* memory = nullptr;
    std::int64_t update = 0;      ///< that they are for, or its all-reduce
    bool reduced = false;         ///< the all-reduce has been awaited
    std::int64_t inputs = 0;      ///< minibatches of this replica whose backward_input is summed so far
    std::int64_t minibatches = 0; ///< the same of their backward_weight
    bool usesAdded = false;
    std::vector<std::unique_ptr<AllReduce>>
        allReduces;         ///< of all buckets, one after the other; none without other replicas
    std::size_t posted = 0; ///< buckets whose all-reduce has begun for this update
  };
  std::vector<GradientSet> gradients; ///< a ring over updates
  std::byte* spareGradients = nullptr;
  std::int64_t reduced = 0; ///< the newest update for which the schedule has begun the all-reduce, in this run
  std::unique_ptr<GradientNorm> norm; ///< where the schedule has one
  std::vector<bool> contributes;      ///< by replica: to the all-reduce that is being posted
  std::int64_t normOf = 0;            ///< the update for which it has been awaited
  bool updating = false;              ///< a backward has made early updates of the next version

  struct Edge {
    EdgeBuffers buffers;
    Direction direction = Direction::forward;
    Routing peerRouting;
    std::byte* memory = nullptr; ///< null for a forward edge that leaves
    std::size_t stride = 0;
    std::vector<int> channels; ///< by replica of the peer
    std::vector<int> ranks;    ///< by replica of the peer
    std::vector<const PortRow*> ports;
    std::vector<TransferGroup> transfers; ///< a ring over local minibatches
  };
  std::vector<Edge> edges;
  std::vector<std::byte*> frameEdges; ///< of the running phase
  TiedParameters tied;
};

class Executor {
public:
  explicit Executor(const ExecutorSetup& setup) : setup_(setup), places_(*setup.schedule) {}
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

  /// Gives every weight version, and the state, their initial values: `read` fills in one parameter or state row.
  using ReadTensor =
      std::function<Status(const char* name, Element element, const Shape& shape, std::span<std::byte> destination)>;
  Status setWeights(const ReadTensor& read);

  std::span<const HostedStage> hosted() const { return hosted_; }
  std::span<HostedStage> hosted() { return hosted_; }
  const Arena& arena() const { return arena_; }
  Stream stream() const { return stream_; }

  /// Writes what the data set has for a minibatch, the loss scale and shares of the loss, into `slot`.
  Status readData(HostedStage& hosted, std::int64_t minibatch, std::byte* slot, BatchSource* data);
  /// `bytes` of a block as the host can read them, until training or evaluation goes on: the block itself on the CPU.
  const std::byte* onHost(const std::byte* block, std::size_t bytes);

private:
  Status prepareStage(HostedStage& hosted, const ArenaHost& place);
  Status execute(const Action& action);
  Status notFinite(const Action& action, const NotFinite& bad) const;
  Status transfer(HostedStage& hosted, const Action& action);
  Status share(HostedStage& hosted, const Action& action);
  Status refreshShared();
  Status follow(const StartOrder& order);
  struct EarlyBuckets;
  void prepareBuckets(HostedStage& hosted, const ArenaHost& place);
  std::int64_t minibatchesOf(const HostedStage& hosted, std::int64_t update) const;
  void postBucket(HostedStage& hosted, HostedStage::GradientSet& set, std::int64_t turn);
  bool isOrdered() const { return setup_.communicator->transport().ordered(); }
  Status addUses(HostedStage& hosted, const HostedStage::GradientSet& set, const Action& action);
  Status forward(HostedStage& hosted, const Action& action);
  Status backward(HostedStage& hosted, const Action& action);
  Status allReduce(HostedStage& hosted, const Action& action);
  Status gradientNorm(HostedStage& hosted, const Action& action);
  Status squaresOf(const HostedStage& hosted, const HostedStage::GradientSet& set, ExactSum& sum);
  Status gradientScale(const HostedStage& hosted, const HostedStage::GradientSet& set, std::int64_t minibatches,
                       std::optional<double>& scale);
  Status checkTraining() const;
  Status update(HostedStage& hosted, const Action& action);
  UpdateBlocks blocksOf(const HostedStage& hosted, const std::byte* gradients) const;
  UpdateStep stepOf(const HostedStage& hosted, std::int64_t update, double gradientScale) const;
  void backwardWithUpdates(HostedStage& hosted, const Call& call, std::int64_t update);
  Status skipUpdate(HostedStage& hosted, const UpdateBlocks& blocks, std::int64_t update);
  Status evaluateOne(HostedStage& hosted, const Action& action);
  Status tellPredictions(const HostedStage& hosted, const Action& action, const std::byte* slot);
  Status waitFor(const Action& action, const Work& work);
  bool await(const Work& work);
  void tellWait(const Action& action, double begin, double posted, double completed);
  Status drain();
  void run(const char* name, void (*phase)(const Call&), const HostedStage& hosted, const Call& call);
  void runHalf(HostedStage& hosted, HostedStage::GradientSet& set, const Call& call, bool withInput);
  Call callFor(HostedStage& hosted, std::int64_t minibatch);
  void addSpare(const HostedStage& hosted, const HostedStage::GradientSet& set, const HostedStage::Bucket& bucket,
                bool withInput);
  void post(Work& work);
  Status stageData(HostedStage& hosted, std::int64_t minibatch, std::byte* slot, BatchSource& data);
  Status tellLosses(bool all);
  HostedStage::GradientSet& gradientsOf(HostedStage& hosted, std::int64_t version);
  HostedStage& hostedStage(int stage);

  ExecutorSetup setup_;
  Places places_;
  Arena arena_;
  std::byte* memory_ = nullptr;
  std::vector<HostedStage> hosted_;
  Stream stream_;
  Replays replays_;
  LossShares lossShares_;
  std::int64_t first_ = 0;       ///< of the current run
  std::int64_t minibatches_ = 0; ///< of the current run
  bool trained_ = false;         ///< shared parameters have been updated since their users got them
  BatchSource* evaluationData_ = nullptr;

  /// Lets the communication thread begin a run in its order.
  struct Opening : Work {
    const StartOrder* order = nullptr;
    std::int64_t minibatches = 0;
    bool advance(Transport& transport) override {
      transport.gate().open(*order, minibatches);
      return true;
    }
  };
  StartOrder order_, evaluationOrder_;   ///< made when first needed, where the transport is ordered()
  const StartOrder* followed_ = nullptr; ///< of the current run
  Opening opening_;
  const Predicted* predicted_ = nullptr;

  // Between host and device; unused where the host sees blocks.
  /// Memory of the host for what is on its way to the device: two places, in turn.
  class Staging {
  public:
    /// Room for `bytes`, once what was there has been sent; null: there is not so much.
    std::byte* place(std::size_t bytes);
    /// Sends what was written there, in a stream. Returns the event behind it.
    const Event& send(Stream& q, std::byte* to, std::size_t bytes);

  private:
    struct Place {
      HostMemory memory;
      Event sent;
    };
    std::array<Place, 2> places_;
    std::size_t used_ = 0;
  };
  Staging staging_;     ///< in the compute stream
  Staging dataStaging_; ///< of minibatches, in the stream for data
  Stream dataStream_;   ///< copies data while the compute stream computes; open where a stage has a place for it
  std::vector<HostMemory> mirrors_;

  // Of the gradients' norm; kept for their capacity.
  std::vector<device::Floats> squared_;
  std::vector<double> squares_;

  /// The loss of a forward, which comes when the device has come there.
  struct PendingLoss {
    const HostedStage* hosted = nullptr;
    const OutputRow* row = nullptr;
    std::int64_t minibatch = 0;
    Event copied;
  };
  std::vector<PendingLoss> losses_; ///< a ring
  HostMemory lossMemory_;           ///< of 8 bytes each
  std::size_t lossesBegun_ = 0, lossesTold_ = 0;
};

} // namespace pdcrt
