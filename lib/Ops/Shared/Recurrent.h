// Recurrent layers: what LSTM, GRU and RNN share in ONNX and as ops.
//
// A layer is split into the input's part for all steps at once, a linear layer, and the recurrent part per direction:
// an op where one fits, else unrolled. ONNX's other habits (directions, layouts, lengths) are said with other ops.
#pragma once

#include "Convert/Onnx.h"
#include "Shared/Define.h"

#include <array>

namespace pdc::ops {

/// An activation function with its parameters, by ONNX's name in lower case.
struct RecurrentActivation {
  std::string name;
  double alpha = 0, beta = 0;
};

/// One direction of a recurrent node. H: hidden units, I: inputs, G: gates.
struct RecurrentDirection {
  bool reverse = false;
  std::string order;                  ///< of the gates in the rows of w, r, wb and rb, one letter each
  Value *w = nullptr, *r = nullptr;   ///< [G · H, I] and [G · H, H]
  Value *wb = nullptr, *rb = nullptr; ///< [G · H]; null: zeros
  Value *h0 = nullptr, *c0 = nullptr; ///< [B, H]; null: zeros
  Value* peepholes = nullptr;         ///< [3 · H] or null
  std::vector<RecurrentActivation> activations;

  /// Whether the activations are those named.
  bool activatedBy(std::initializer_list<const char*> names) const;
};

/// States after all steps [T, B, H], at their positions; a row that is over keeps its state. The last cells [B, H].
struct RecurrentStates {
  Value* y = nullptr;
  Value* lastCells = nullptr; ///< of LSTM, where they are used
};

/// A node of ONNX's LSTM, GRU or RNN.
class RecurrentNode {
public:
  /// `gates`: one letter each, in ONNX's order. `activations`: ONNX's defaults.
  RecurrentNode(OnnxReader& reader, std::string gates, std::vector<std::string> activations)
      : n(reader), gates_(std::move(gates)), standard_(std::move(activations)) {}

  /// Reads inputs and attributes that the three have in common; fails, with an error reported, when they do not fit.
  Status read();

  OnnxReader& n;
  Value* x = nullptr;       ///< [T, B, I]
  Value* lengths = nullptr; ///< i32[B]; null: all rows have T steps
  std::int64_t steps = 0, batch = 0, hidden = 0;
  double clip = 0; ///< limit of what activations see; 0: none
  std::vector<RecurrentDirection> directions;

  /// Outputs Y, Y_h and, if there are cells, Y_c from the states of each direction; nothing when one of them is
  /// missing.
  Expected<std::vector<Value*>> outputs(const std::vector<RecurrentStates>& states);

  /// x · transposed w + bias, [T, B, G · H].
  Value* projection(const RecurrentDirection& direction, Value* bias);
  /// wb + rb; null where both are.
  Value* sumOfBiases(const RecurrentDirection& direction);

private:
  Status readShapes();
  Status readDirections();
  Status readActivations();
  Status requireInput(std::size_t i, const char* name, const Shape& shape);
  Value* initialState(std::size_t input, std::int64_t direction);
  Value* masked(Value* y);

  std::string gates_;
  std::vector<std::string> standard_;
  bool batchFirst_ = false;
};

/// An operation without the absent operands at the end.
Operation* create(OnnxReader& n, const std::string& op, std::vector<Value*> operands, Attributes attributes);

/// Elements begin … begin + count - 1 of axis `axis`.
Value* sliced(OnnxReader& n, Value* x, std::size_t axis, std::int64_t begin, std::int64_t count);

/// A layer unrolled over its steps: for what no op computes.
class Unrolled {
public:
  /// Steps beyond which a program would be too long.
  static constexpr std::int64_t mostSteps = 512;

  /// Fails, with an error reported, when there are too many steps. `input`: [T, B, G · H].
  Unrolled(RecurrentNode& node, const RecurrentDirection& direction, Value* input);
  bool possible() const { return possible_; }

  /// State and cells before a step (null: zeros) to those after it, for gate inputs [B, G · H] of that step.
  using Step = std::function<std::array<Value*, 2>(Value* input, Value* h, Value* c)>;
  RecurrentStates run(const Step& step);

  // For steps. All take and return values [B, …]; null for null.
  Value* recurrent(Value* h, Value* r); ///< h · transposed r
  /// The block of gate `gate` of a matrix whose columns (or rows: axis 0) are all gates.
  Value* gate(Value* all, char gate, std::size_t axis = 1);
  Value* add(Value* a, Value* b);
  Value* multiply(Value* a, Value* b);
  Value* activate(std::size_t activation, Value* x);

private:
  Value* elementwise(const char* op, Value* a, Value* b);
  Value* number(double value);
  Value* whileRunning(std::int64_t step, Value* after, Value* before);

  RecurrentNode& node_;
  const RecurrentDirection& direction_;
  OnnxReader& n_;
  Value* input_;
  bool possible_;
};

} // namespace pdc::ops
