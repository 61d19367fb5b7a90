// What a generated stage program exports: tables of plain data and the phases.
//
// A stage program is a translation unit that defines `namespace stageK` with one `extern const pdcrt::Stage stage`.
// Everything the runtime knows about the model it knows from here. All offsets are in bytes and multiples of 64.
//
// Memory of a stage, by block (the executor decides how many copies of each there are, Arena.h adds them up):
//
//   weights    one version of the trained parameters                       copies: versions alive
//   frozen     the parameters that never change                            1
//   state      BatchNorm's running statistics                              1
//   gradients  one accumulator per use of a parameter                      d_s + 1 (+ 1 when microbatches accumulate)
//   slot       what a minibatch keeps between its phases (the stash), data inputs, outputs, values to send forward
//                                                                          w_s + 1
//   shared     one version of the parameters of another stage; gradients of their uses     as the schedule says
//   edge       what arrives over one edge in one direction, or leaves backwards      as the schedule says
//   handover   what backward_input leaves to the minibatch's backward_weight          as the schedule says, 1 if the
//              two are never apart
//   data staging   a minibatch's data on its way from the host to the slot; 0 bytes where the host sees the blocks 1
//   scratch    what lives inside one phase                                 1 for all stages of a rank
//   workspace  what lives inside one kernel call                           1 for all stages of a rank
#pragma once

#include "pdcrt/Part.h"
#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

namespace pdcrt {

/// A parameter; its records in files have the name `name`. A trained one lies in the weights block, a frozen one in the
/// frozen block.
struct ParameterRow {
  const char* name; ///< the ONNX initializer's
  Element element;
  Shape shape;        ///< that a member has, where `part` divides it; wholeShape(shape, part) is that of files
  std::size_t offset; ///< in its block
  int bucket;         ///< parameters of one bucket are reduced together, lower buckets first (Stream::bucket)
  bool trained;       ///< false: frozen, has no gradient
  double learningRateScale = 1;
  double weightDecayScale = 1;
  /// It is updated in the middle of backward_input, which has its gradient in scratch for that long
  /// (Stream::update); it has no row among Stage::gradients.
  bool early = false;
  /// A filter that lies in blocks (FilterBlocks.h) in the weights, in its gradients and in the optimizer's state.
  bool inBlocks = false;
  Part part = {}; ///< how it lies over the members of the team; its gradients and the optimizer's state lie like it
};

/// One use of a trained parameter: where its gradient is written. Rows are in program order of the uses; the gradients
/// of several uses of a parameter are added in this order, once per update.
struct GradientRow {
  int parameter;          ///< index into Stage::parameters
  std::size_t offset;     ///< in the gradients block
  bool withInput = false; ///< backward_input writes it, else backward_weight
};

/// A later stage that uses parameters of this one, or an earlier one whose parameters this stage uses (SharedEdge in
/// Schedule.h). Rows are sorted by (owner, user).
struct SharedRow {
  int owner, user;
  std::size_t valueBytes; ///< of a block for one version of them, which a user has
  std::size_t partBytes;  ///< of a block for the gradients of the user's uses, which both have
};

/// One parameter of a row of Stage::shared. Both ends list them in the same order; a user lists them here only, the
/// owner among its parameters too.
struct SharedValueRow {
  int shared; ///< index into Stage::shared
  const char* name;
  Element element;
  Shape shape;        ///< that a member has, as in ParameterRow
  std::size_t offset; ///< of the owner: in the weights block; of a user: in the block of a version
  int parameter;      ///< of the owner: index into Stage::parameters; else -1
  Part part = {};     ///< as in ParameterRow, the same at both ends
};

/// One use of such a parameter by the user. Both ends list them in the same order.
struct SharedUseRow {
  int shared;           ///< index into Stage::shared
  int value;            ///< index into Stage::sharedValues
  int position;         ///< among all uses of the parameter, in program order
  std::size_t part;     ///< offset in the block of the gradients that travel
  std::size_t gradient; ///< of a user: offset in the gradients block
  bool withInput;       ///< of a user: backward_input writes it, else backward_weight
};

/// A value that each forward replaces (running statistics). Averaged over replicas before evaluation and checkpoints.
struct StateRow {
  const char* name;
  Element element;
  Shape shape;        ///< that a member has, as in ParameterRow
  std::size_t offset; ///< in the state block
  Part part = {};     ///< as in ParameterRow
};

enum class Direction : std::uint8_t { forward, backward };

/// A connection between two stages in one direction, one of whose ends is this stage. Edges of a stage are sorted by
/// (direction, from, to). `bytes` is the size of its buffer for one minibatch; 0 for a forward edge that leaves, whose
/// values are sent from the slot.
struct EdgeRow {
  Direction direction;
  int from, to;
  std::size_t bytes;
};

/// One tensor that travels over an edge; both ends list the tensors of an edge in the same order.
struct PortRow {
  int edge; ///< index into Stage::edges
  const char* value;
  Element element;
  Shape shape;
  std::size_t bytes;
  std::size_t offset; ///< in the slot for a forward edge that leaves, else in the edge's buffer
};

/// How much of the loss of its update a minibatch makes up (LossShare.h).
struct LossShare {
  const char* labels; ///< name of the row of Stage::data that has them
  bool ignores;       ///< positions with the label `ignored` do not count
  std::int64_t ignored;
  std::span<const double> weights; ///< of positions by their label; empty: all 1
};

/// A graph input that the data set provides for each minibatch, first axis = samples; or a scalar that the runtime
/// provides: the loss scale, or a minibatch's share of the loss.
struct DataRow {
  const char* name;
  Element element;
  Shape shape;
  std::size_t offset; ///< in the slot
  bool label;
  /// Of integers that choose: labels are 0 … choices-1 (and what the loss ignores), others also -choices … -1, counted
  /// from the end. 0: unchecked.
  std::int64_t choices;
  bool lossScale = false;
  const LossShare* share = nullptr;
  /// Whether the data set has it.
  bool ofDataSet() const { return !lossScale && !share; }
};

enum class OutputKind : std::uint8_t { loss, prediction, term, load };

/// The axis of a prediction of this rank, 1 or more, that has the classes.
constexpr int classAxis(int rank) {
  return rank >= 4 ? 1 : rank - 1;
}

/// The runtime reads losses and terms after a forward, predictions and loads after an evaluate. A load is how many rows
/// each place of a layer takes, and, last, how many rows there are.
struct OutputRow {
  OutputKind kind;
  const char* name;
  Element element;
  Shape shape;
  std::size_t offset; ///< in the slot
  Part part = {};     ///< of predictions: what a member of a team has of it
};

/// A fusion group, the atom of profile and partition. Ids are those of the whole model.
struct GroupRow {
  int id;
  const char* name; ///< ONNX names of its nodes
};

/// Sizes of the blocks above.
struct BlockBytes {
  std::size_t weights, state, gradients, slot, handover, scratch, workspace;
  /// The rows of Stage::data that the data set has, one after the other, each from a multiple of 64 on; or 0.
  std::size_t dataStaging = 0;
  std::size_t frozen = 0;
};

/// Where the values of one minibatch are: its slot, and one buffer per entry of Stage::edges (null for forward edges
/// that leave).
struct Frame {
  std::byte* slot;
  std::byte* const* edges;
  const std::byte* const* shared = nullptr; ///< by row of Stage::shared: the version to use, where this is a user
};

/// Key of the random numbers of one forward: the same for every rank, plan and schedule.
struct Draw {
  std::uint64_t seed;
  std::uint64_t minibatch;
};

/// Arguments of a phase. The phases are pure functions of these.
struct Call {
  const void* kernels;
  const std::byte* weights; ///< the version to use
  std::byte* state;
  std::byte* gradients;
  std::byte* handover; ///< of the minibatch; for the two halves of a backward
  std::byte* scratch;
  Frame frame;
  Draw draw;
  Stream* stream;
  const std::byte* frozen = nullptr; ///< parameters that never change; null where there are none
};

struct Stage {
  int index, count;
  const char* model;     ///< name of the ONNX file
  const char* modelHash; ///< ranks that disagree refuse to run
  int members = 1;       ///< of the team that computes each replica
  int threads = 1;       ///< OpenMP threads of its kernels, with which it was planned
  BlockBytes bytes;
  std::span<const ParameterRow> parameters;
  std::span<const GradientRow> gradients;
  std::span<const SharedRow> shared;
  std::span<const SharedValueRow> sharedValues;
  std::span<const SharedUseRow> sharedUses;
  std::span<const StateRow> states;
  std::span<const EdgeRow> edges;
  std::span<const PortRow> ports;
  std::span<const DataRow> data;
  std::span<const OutputRow> outputs;
  std::span<const GroupRow> groups;

  std::shared_ptr<const void> (*buildKernels)(Setup&);
  void (*forward)(const Call&);
  void (*backwardInput)(const Call&);
  void (*backwardWeight)(const Call&);
  void (*evaluate)(const Call&);
};

/// Views of a stage program at `place`. Not inlined: a stage has hundreds of them, which the compiler would place again
/// in every phase.
template <class Views, class... Place>
[[gnu::noinline]] Views viewsAt(Place... place) {
  return Views(place...);
}

/// The views of the parameters: `Weights` has a member `frozen` where some of them never change.
template <class Weights>
Weights weightsOf(const Call& call) {
  if constexpr (requires { &Weights::frozen; })
    return viewsAt<Weights>(call.weights, call.frozen);
  else
    return viewsAt<Weights>(call.weights);
}

/// Fills in the functions of a Stage from a stage program's types and phases:
///
///   const pdcrt::Stage stage = pdcrt::withPhases<Kernels, Weights, State, Slot, Handover, Gradients, Scratch,
///                                                forward, backward_input, backward_weight, evaluate>({.index = 0, …});
///
/// The views are made anew for each call: they are offsets and cost nothing beside a kernel.
template <class Kernels, class Weights, class State, class Slot, class Handover, class Gradients, class Scratch,
          auto Forward, auto BackwardInput, auto BackwardWeight, auto Evaluate>
Stage withPhases(Stage stage) {
  stage.buildKernels = [](Setup& setup) -> std::shared_ptr<const void> {
    return std::make_shared<const Kernels>(setup);
  };
  stage.forward = [](const Call& c) {
    const Slot slot = viewsAt<Slot>(c.frame);
    Forward(*static_cast<const Kernels*>(c.kernels), weightsOf<Weights>(c), viewsAt<State>(c.state), slot,
            viewsAt<Scratch>(c.scratch), c.draw, *c.stream);
  };
  stage.backwardInput = [](const Call& c) {
    const Slot slot = viewsAt<Slot>(c.frame);
    // The backward of a stage that recomputes its forward may take what a forward takes.
    if constexpr (std::is_invocable_v<decltype(BackwardInput), const Kernels&, const Weights&, const State&,
                                      const Slot&, const Handover&, const Gradients&, const Scratch&, Draw, Stream&>)
      BackwardInput(*static_cast<const Kernels*>(c.kernels), weightsOf<Weights>(c), viewsAt<State>(c.state), slot,
                    viewsAt<Handover>(c.handover), viewsAt<Gradients>(c.gradients), viewsAt<Scratch>(c.scratch), c.draw,
                    *c.stream);
    else
      BackwardInput(*static_cast<const Kernels*>(c.kernels), weightsOf<Weights>(c), slot, viewsAt<Handover>(c.handover),
                    viewsAt<Gradients>(c.gradients), viewsAt<Scratch>(c.scratch), *c.stream);
  };
  stage.backwardWeight = [](const Call& c) {
    const Slot slot = viewsAt<Slot>(c.frame);
    BackwardWeight(*static_cast<const Kernels*>(c.kernels), weightsOf<Weights>(c), slot, viewsAt<Handover>(c.handover),
                   viewsAt<Gradients>(c.gradients), viewsAt<Scratch>(c.scratch), *c.stream);
  };
  stage.evaluate = [](const Call& c) {
    const Slot slot = viewsAt<Slot>(c.frame);
    Evaluate(*static_cast<const Kernels*>(c.kernels), weightsOf<Weights>(c), viewsAt<State>(c.state), slot,
             viewsAt<Scratch>(c.scratch), *c.stream);
  };
  return stage;
}

} // namespace pdcrt
