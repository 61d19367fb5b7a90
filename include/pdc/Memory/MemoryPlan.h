// Where every value of a stage lives: the blocks of pdcrt/Stage.h, an offset in its block for each buffer.
//
//   weights, state   parameters that are trained, and running statistics, in the order of their first use
//   frozen           parameters that never change
//   shared           parameters that belong to an earlier stage, in the order of that stage's table
//   gradients        one accumulator per use of a trained parameter
//   slot             data inputs, values sent forward, losses; what backward reads of forward; predictions of evaluate
//   edge             what arrives from another stage, and gradients that leave
//   handover         what backward_weight reads of what backward_input has made
//   scratch          what lives inside one phase, workspaces of kernel calls
//   data staging     on a GPU: a minibatch's data until its slot is free
//
// What a slot keeps is all alive at the end of a forward, so it shares no bytes. But before and after that the slot has
// bytes that hold nothing: what lives inside a phase, a workspace, or what is handed over lies there where it fits
// (`Buffer::temporary`), else in scratch or in the handover, shared by lifetime. docs/decisions/0003 has the reasons.
#pragma once

#include "pdc/IR/OpDef.h"
#include "pdc/IR/SharedParameters.h"
#include "pdc/IR/Target.h"
#include "pdcrt/Stage.h"

#include <optional>
#include <unordered_map>
#include <vector>

namespace pdc {

enum class Block : std::uint8_t { weights, frozen, shared, state, gradients, slot, edge, handover, scratch, constant };

/// Where a value begins.
struct Place {
  Block block = Block::scratch;
  int edge = -1;           ///< of Block::edge: index into MemoryPlan::edges; of Block::shared: into MemoryPlan::shared
  std::int64_t offset = 0; ///< bytes, a multiple of 64; of Block::constant: always 0
  friend bool operator==(const Place&, const Place&) = default;
};

/// The phases of a stage program.
enum class ProgramPhase : std::uint8_t { forward, backwardInput, backwardWeight, evaluate };
inline constexpr int programPhaseCount = 4;

/// Memory of a value and of all its views, or the workspace of a kernel call. `first` and `last` are positions on the
/// graph's timeline: the calls between which the bytes must stay. Known for what lies in slot, handover and scratch.
struct Buffer {
  const Value* value = nullptr; ///< never the result of a view; null for a workspace
  Place place;
  std::int64_t bytes = 0;
  int first = 0, last = 0;
  bool temporary = false; ///< placed by lifetime, in the slot, the handover or scratch
  /// An operand that the operation which makes this value is the last to read: this may lie at the very same place, and
  /// overlaps it in no other way.
  const Value* replaces = nullptr;
};

/// When the operations of a graph run: forward, backward_input, backward_weight; or evaluate. Position 0 is before the
/// first operation, `end` after the last.
struct Timeline {
  std::vector<const Operation*> operations; ///< operations[i] runs at position i + 1; without views and constants
  std::unordered_map<const Operation*, int> positions;
  int backward = 0; ///< position of the first operation of backward_input; `end` if there is no backward
  int weights = 0;  ///< of the first of backward_weight; `end` if there is none
  int end = 0;
};

/// One graph's buffers.
struct GraphMemory {
  Timeline timeline;
  std::vector<Buffer> buffers; ///< in program order: inputs, parameters, results
  /// The buffer that holds `value`, or the value that it is a view of; null for a value of another graph.
  const Buffer* find(const Value* value) const;

  std::unordered_map<const Value*, std::size_t> index;     ///< into buffers, views included
  std::unordered_map<const Operation*, Buffer> workspaces; ///< of kernel calls that need one
  /// Starts of collectives, by what makes the terms: parts of these are sent while others are made.
  std::unordered_map<const Operation*, const Operation*> followed;
  std::vector<Buffer> copied; ///< places in the slot that copies fill
};

/// Bytes that must be copied, because a value is needed at two places (an addition of two received values, for example,
/// sends one gradient to two stages).
struct Copy {
  ProgramPhase phase = ProgramPhase::forward;
  const Value* value = nullptr;
  const Operation* after = nullptr; ///< the operation that defines the value; null: at the beginning of the phase
  Place to;
};

struct PlacedParameter {
  const Parameter* parameter = nullptr;
  Type type = {};          ///< what the stage has of it: of a team, a member's part
  std::int64_t offset = 0; ///< in the block of the parameter's role
};
/// The block of a parameter that belongs to the stage: weights, frozen, or state.
Block blockOf(const Parameter& parameter);

struct PlacedGradient {
  int parameter = 0;            ///< index into MemoryPlan::parameters
  const Value* value = nullptr; ///< what is to be there at the end of the phase that writes it
  std::int64_t offset = 0;
  bool withInput = false; ///< backward_input writes it, else backward_weight
};

/// As pdcrt::SharedValueRow and pdcrt::SharedUseRow.
struct PlacedSharedValue {
  int shared = 0; ///< index into MemoryPlan::shared
  const Parameter* parameter = nullptr;
  Type type = {};          ///< as PlacedParameter's
  std::int64_t offset = 0; ///< of the owner: in the weights block; of a user: in the block of a version
  int index = -1;          ///< of the owner: index into MemoryPlan::parameters
};
struct PlacedSharedUse {
  int value = 0; ///< index into MemoryPlan::sharedValues
  int position = 0;
  std::int64_t part = 0;
  std::int64_t gradient = 0; ///< of a user
  bool withInput = false;
};

/// A parameter that is updated in the middle of backward_input.
struct EarlyUpdate {
  int parameter = 0;                ///< index into MemoryPlan::parameters
  const Value* gradient = nullptr;  ///< a temporary
  const Operation* after = nullptr; ///< the last that reads the parameter, or makes the gradient
  /// `after` makes the gradient in parts (KernelUse::partsMethod), of which its buffer holds one.
  bool inParts = false;
};

struct PlacedPort {
  int edge = 0; ///< index into MemoryPlan::edges
  const Value* value = nullptr;
  std::int64_t offset = 0; ///< in the slot for a forward edge that leaves, else in the edge's buffer
};

struct PlacedData {
  const Value* value = nullptr;
  bool label = false;
  std::int64_t choices = 0; ///< as in pdcrt::DataRow
  std::int64_t offset = 0;
};

struct PlacedOutput {
  OutputKind kind = OutputKind::loss;
  std::string name;
  const Value* value = nullptr;
  std::int64_t offset = 0;
  Form part = {}; ///< GraphOutput::part
};

/// What is alive of slot, handover, scratch and workspace: no layout of them takes less.
struct LiveBytes {
  std::int64_t peak = 0;       ///< of one minibatch, at its worst moment
  std::int64_t stashed = 0;    ///< of it, between its forward and its backward
  std::int64_t handed = 0;     ///< of it, between backward_input and backward_weight; 0 if they are one
  std::int64_t evaluation = 0; ///< at the worst moment of an evaluation
};

struct MemoryPlan {
  int stage = 0;
  int threads = 1; ///< MemoryOptions::threads
  pdcrt::BlockBytes bytes{};
  bool splitBackward = false; ///< weight gradients are computed by backward_weight, not by backward_input
  LiveBytes live;
  std::int64_t trainedBytes = 0;           ///< of the trained parameters, without padding
  std::vector<PlacedParameter> parameters; ///< weights and frozen block
  std::vector<PlacedParameter> states;     ///< state block
  std::vector<pdcrt::SharedRow> shared;    ///< sorted by (owner, user)
  std::vector<PlacedSharedValue> sharedValues;
  std::vector<PlacedSharedUse> sharedUses;
  std::vector<PlacedGradient> gradients; ///< in program order of the uses
  std::vector<EarlyUpdate> earlyUpdates; ///< of parameters that are not among them
  std::vector<pdcrt::EdgeRow> edges;     ///< sorted by (direction, from, to)
  std::vector<PlacedPort> ports;         ///< sorted by edge, then in the order of the graph's inputs or outputs
  std::vector<PlacedData> data;
  std::vector<PlacedOutput> outputs;
  GraphMemory training, evaluation;
  std::vector<Copy> copies;

  /// The phase of the stage program that runs `operation` of the training graph.
  ProgramPhase phaseOf(const Operation& operation) const;
  /// The update that takes what `operation` makes in parts; null: it makes everything at once.
  const EarlyUpdate* takerOfParts(const Operation& operation) const;
};

struct MemoryOptions {
  int stage = 0;
  /// Parameters of the whole model that several stages use.
  std::vector<SharedParameter> shared = {};
  /// Weight gradients are computed by backward_weight: for schedules that let other minibatches come between the halves
  /// of a backward, and to measure the halves. Else backward_input computes them as soon as it can, which takes less
  /// memory: what they read need not be handed over.
  bool splitBackward = false;
  /// Update parameters as soon as their gradients are there, which then need no place of their own: for stages that
  /// update after every minibatch, and not with halves of a backward apart.
  bool earlyUpdates = false;
  /// Some of those take gradients in parts, so that they never are in memory as a whole.
  bool gradientsInParts = false;
  /// A replica has one slot, and its rank no other stage: what lives inside a phase lies in the slot, which is as large
  /// as that takes, and not in scratch. A buffer may then begin where the slot is free and end behind it.
  bool oneSlot = false;
  /// Keep results and predictions of the training graph too, as predictions: for engines that look at them.
  bool keepResults = false;
  Target target = Target::cpu; ///< whose kernels' workspace is planned
  int threads = 1;             ///< OpenMP threads of a kernel, on which its workspace depends
};

/// Plans the memory of a stage from its two graphs (`evaluation` may be null: a stage that only trains). Constructs
/// every kernel once to learn the workspace. Errors: a kernel that refuses its shapes, or that the target lacks,
/// element types that have no C++ type, a value of rank above 8.
Expected<MemoryPlan> planMemory(const Graph& training, const Graph* evaluation, const MemoryOptions& options,
                                Diagnostics& diags);

/// The value whose bytes `value` is: itself, or the operand at the end of a chain of views.
const Value* storageOf(const Value* value);

/// Which results may lie where which operands do, as far as the operation itself is concerned. Of several results of
/// an elementwise operation only the last may: the loop reads its operands anew for each.
std::vector<Replaceable> replaceableIn(const Operation& operation);

/// The operations of a graph in the order in which its phases run them.
Timeline timelineOf(const Graph& graph, bool splitBackward);

/// Most bytes of workspace that a kernel of so many threads asks for, among those of `operations`. Errors: a kernel
/// refuses its shapes.
Expected<std::int64_t> workspaceOf(const std::vector<const Operation*>& operations, Target target, int threads,
                                   Diagnostics& diags);

} // namespace pdc
