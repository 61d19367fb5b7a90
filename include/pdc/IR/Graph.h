// Modules, graphs, operations, values, parameters: plain SSA data.
//
//   module @lenet {
//     param %fc1.weight : f32[120, 400]
//     graph @main(%image: f32[32, 1, 8, 8], %label: i64[32] label) {
//       %0 = conv2d %image, %conv1.weight, %conv1.bias {pads = [1, 1, 1, 1]} : f32[32, 6, 8, 8]   loc("Conv_0")
//       …
//       loss %loss
//     }
//   }
//
// A graph owns its operations, in topological order, and its values. docs/IR.md is the reference of the text form.
#pragma once

#include "pdc/IR/Adapter.h"
#include "pdc/IR/Attributes.h"
#include "pdc/IR/DerivedValues.h"
#include "pdc/IR/InitialValues.h"
#include "pdc/IR/Loops.h"
#include "pdc/IR/Type.h"
#include "pdc/Support/Diagnostics.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pdc {

struct OpDef;
class Graph;
class Operation;
class Value;

/// Who has named the file of a reference, which decides how the file is opened.
enum class ReferenceOrigin : std::uint8_t {
  externalData, ///< a model, which may come from anyone: the file must lie beneath the model's folder (mapExternalData)
  namedByUser   ///< the user: the model itself, a file of --init-from, a file that an input is bound to
};

/// How a parameter's elements are found in a file: bytes [offset, offset + length) hold a row-major tensor of shape
/// `stored`, of which the parameter is the view. For now the view is the whole tensor, or its transpose.
struct Reference {
  std::string file; ///< empty: the parameter has no stored value yet
  std::int64_t offset = 0;
  std::int64_t length = 0;
  Shape stored;
  std::vector<std::int64_t> permutation; ///< empty: none; else parameter dim i is stored dim permutation[i]
  ReferenceOrigin origin = ReferenceOrigin::externalData;
  std::string model; ///< of ReferenceOrigin::externalData: the path of the model that names the file
  friend bool operator==(const Reference&, const Reference&) = default;
};

enum class ParameterRole {
  trained, ///< gets a gradient and is updated
  frozen,  ///< read only
  state    ///< replaced by each forward (running statistics); no gradient
};

/// A tensor that lives longer than a minibatch. Its name is the ONNX initializer's and the key in every weights file.
struct Parameter {
  std::string name;
  Type type;
  ParameterRole role = ParameterRole::trained;
  Reference reference;
  Location location;
  std::optional<DrawnValues> drawn; ///< instead of what the reference says
  std::optional<Tensor> given = {}; ///< instead of both: values that no file has as they are
  /// What the module that was exported calls it, where that is not the one name `name`: renamed, or tied.
  std::vector<std::string> moduleNames = {};
  bool isTransposeOfModule = false; ///< a matrix; the module has its transpose
  /// Reference, or draw, are of another parameter, from which the values are computed.
  std::optional<DerivedValues> derived = {};
};

class Value {
public:
  const Type& type() const { return type_; }
  void setType(Type type) { type_ = std::move(type); }
  /// Unique in the graph; printed after '%'.
  const std::string& name() const { return name_; }
  /// Null for graph inputs and parameters.
  Operation* definer() const { return definer_; }
  int resultIndex() const { return resultIndex_; }
  /// Non-null when the value is a parameter of the module.
  Parameter* parameter() const { return parameter_; }
  /// Operations that use this value, one entry per use, in no particular order; graph outputs are not among them.
  const std::vector<Operation*>& users() const { return users_; }

private:
  friend class Graph;
  friend class Operation;
  Value() = default;
  Type type_;
  std::string name_;
  Operation* definer_ = nullptr;
  int resultIndex_ = 0;
  Parameter* parameter_ = nullptr;
  std::vector<Operation*> users_;
  std::size_t place_ = 0; ///< among the graph's values
};

enum class Phase { forward, inputGradient, weightGradient };
const char* nameOf(Phase phase); // "F", "I", "W"

class Operation {
public:
  const OpDef& def() const { return *def_; }
  /// Null stands for an optional operand that is absent.
  const std::vector<Value*>& operands() const { return operands_; }
  Value* operand(std::size_t i) const { return i < operands_.size() ? operands_[i] : nullptr; }
  void setOperand(std::size_t i, Value* value);
  /// Null stands for an optional result that nobody asked for.
  const std::vector<Value*>& results() const { return results_; }
  Value* result(std::size_t i = 0) const { return i < results_.size() ? results_[i] : nullptr; }

  Attributes attributes;
  Location location; ///< ONNX node name
  Phase phase = Phase::forward;
  bool again = false; ///< of a backward operation: it computes what its origin computes (recomputation)
  int group = -1;     ///< fusion group, the atom of the partition; -1 before `fuse`
  int stage = -1;     ///< -1 before `split-stages`

  /// Of a backward operation: the forward operation that it comes from.
  Operation* origin() const { return origin_; }
  void setOrigin(Operation* origin);
  /// The operations whose origin this is, in no particular order.
  const std::vector<Operation*>& derived() const { return derived_; }
  /// Makes `other` the origin of all that come from this operation.
  void giveDerivedTo(Operation& other);
  /// The operation's own forward operation: itself, or its origin.
  const Operation& forwardOperation() const { return origin_ ? *origin_ : *this; }

private:
  friend class Graph;
  Operation() = default;
  const OpDef* def_ = nullptr;
  std::vector<Value*> operands_;
  std::vector<Value*> results_;
  Operation* origin_ = nullptr;
  std::vector<Operation*> derived_;
};

enum class InputKind {
  data,      ///< from the data set, one per minibatch
  label,     ///< likewise; read where the loss is computed
  lossScale, ///< the gradient with which losses are seeded, a scalar that changes between updates
  received,  ///< of a stage's graph: from stage `peer`; a gradient when `gradient`
  lossShare  ///< factor of a loss, a scalar per minibatch: LossShare
};

/// How much of the loss of its update a minibatch makes up. The loss is the mean over those positions of its labels
/// that count; with the share as its factor, the mean of these losses over the minibatches of an update is the mean
/// over all positions that count in the update:
///   share = minibatches of the update · n / (sum of n over these minibatches),  n = sum of the weights of the labels
///   that count
struct LossShare {
  std::string labels;                      ///< name of the input that has them
  std::optional<std::int64_t> ignoreIndex; ///< the label of positions that do not count
  std::vector<double> classWeights;        ///< of positions by their label; empty: all 1
};

struct GraphInput {
  Value* value = nullptr;
  InputKind kind = InputKind::data;
  int peer = -1;
  bool gradient = false;
  std::optional<LossShare> share = {}; ///< of a lossShare
  std::int64_t classes = 0;            ///< labels are 0 … classes-1, where no op says so (OpUsage::choices)
};

enum class OutputKind {
  result,     ///< an output of the model
  loss,       ///< a scalar to minimise; several add up
  term,       ///< a scalar from which a loss is computed: told by its name, beside the total
  prediction, ///< what a metric looks at
  load,       ///< of @evaluate: numbers that are added up over its minibatches and told by a name (OpRewrites::load)
  gradient,   ///< of one use of `parameter`; in program order of the uses
  state,      ///< the new value of `parameter`
  sent        ///< of a stage's graph: to stage `peer`; a gradient when `isGradient`
};

struct GraphOutput {
  OutputKind kind = OutputKind::result;
  Value* value = nullptr;
  std::string name;               ///< of results: the model's output name; of terms and loads: as people know them
  Parameter* parameter = nullptr; ///< of gradients and states
  int peer = -1;
  bool isGradient = false;
  bool declared = false;  ///< of results: the file gives it a shape
  bool perSample = false; ///< of results: the file gives it a dimension that has a name, or no size
  bool inner = false;     ///< of results: no output of the model, but a value that a flag names
  std::string loss = {};  ///< of predictions: what an evaluation makes of it and the labels, as Training::loss
  Form part = {};         ///< of predictions: what a member of a team has of it
};

/// A value that is a member's part of another one has the name of that one, and this behind it.
inline constexpr std::string_view partSuffix = ".own";

/// A team of devices that run one graph together, on the same minibatch. Types are those of a member's values.
struct Team {
  std::int64_t members = 1;
  std::map<const Parameter*, Form> parts; ///< of parameters of which a member has a part; the others are whole
  /// Orders of elements along the divided axis, of parameters that do not keep the file's (pdcrt::Part::order).
  std::map<const Parameter*, std::vector<std::int32_t>> orders = {};
  /// By their names, values of which no member has the whole; not what an operation makes for itself. Not in the text.
  std::map<std::string, Form> forms = {};
  bool sums = false; ///< members have terms of the gradients of whole parameters: an update adds them over the team

  Form formOf(const Parameter& parameter) const {
    const auto found = parts.find(&parameter);
    return found == parts.end() ? Form{} : found->second;
  }
  /// How an output lies over the members.
  Form formOf(const GraphOutput& output) const {
    if (output.kind == OutputKind::prediction) return output.part;
    if (sums && output.kind == OutputKind::gradient && formOf(*output.parameter).isWhole())
      return Form::partial(Combine::sum);
    return output.parameter ? formOf(*output.parameter) : Form{};
  }
  /// What a member has of the parameter.
  Type typeOf(const Parameter& parameter) const { return partOf(parameter.type, formOf(parameter), members); }
  /// The part refers to the order here.
  pdcrt::Part storedPart(const Parameter& parameter) const {
    pdcrt::Part part = pdc::storedPart(parameter.type, formOf(parameter), members);
    if (const auto order = orders.find(&parameter); order != orders.end()) part.order = order->second;
    return part;
  }
};

class Graph {
public:
  explicit Graph(std::string name);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const std::string& name() const { return name_; }
  std::vector<GraphInput> inputs;
  std::vector<GraphOutput> outputs;
  Team team; ///< decided before parameters have values here

  /// In topological order, which is program order.
  const std::vector<std::unique_ptr<Operation>>& operations() const { return operations_; }

  /// Adds an input. `name` is made unique by a suffix when it is taken.
  Value* addInput(Type type, const std::string& name, InputKind kind = InputKind::data);
  /// The value that stands for `parameter` in this graph; made on first use. Its name is the parameter's.
  Value* parameterValue(Parameter& parameter);
  /// Removes the value of a parameter, which nobody uses any more.
  void eraseParameterValue(Value* value);
  /// Parameters that have a value here, in order of their first use.
  const std::vector<Value*>& parameterValues() const { return parameterValues_; }

  /// Appends an operation, or inserts it before `before`. A result type that is null makes an absent result. Names are
  /// made unique; empty ones become %0, %1, ….
  Operation* addOperation(const OpDef& def, std::vector<Value*> operands, const std::vector<const Type*>& resultTypes,
                          Attributes attributes, Location location, const Operation* before = nullptr,
                          const std::vector<std::string>& resultNames = {});

  /// Makes every use of `from`, graph outputs included, a use of `to`.
  void replaceAllUses(Value* from, Value* to);
  /// Removes an operation whose results nobody uses. What it is the origin of has none afterwards.
  void erase(Operation* operation);
  /// Removes the operations for which `dead` is true, which nobody else uses; linear.
  void eraseIf(const std::vector<bool>& deadByPosition);
  /// Puts the operations into another topological order: `order[i]` is the operation at position i.
  void reorder(const std::vector<Operation*>& order);

  /// The value named `name`, or null.
  Value* find(const std::string& name) const;
  /// Whether `value` is one of the graph's outputs.
  bool isOutput(const Value* value) const;
  /// Gives `value` another name, unique in the graph.
  void rename(Value* value, const std::string& name);

  ~Graph();

private:
  Value* newValue(Type type, const std::string& name);
  void destroy(Value* value);
  std::string uniqueName(const std::string& wanted);

  struct Names;
  std::string name_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<std::unique_ptr<Value>> values_;
  std::vector<Value*> parameterValues_;
  std::unique_ptr<Names> names_;
};

/// Copies operations, values (with their names) and annotations; parameters are shared.
std::unique_ptr<Graph> clone(const Graph& graph, const std::string& name);

struct Module {
  std::string name;
  std::string file; ///< the ONNX file, for messages
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<std::unique_ptr<Graph>> graphs;
  /// By the names of ONNX nodes, as in locations: what a node's first input is called there.
  std::map<std::string, std::string> firstInputs;
  /// By the names of ONNX nodes: the path of the module that has called it, "layers.0.fc", where the file says so.
  std::map<std::string, std::string> callers;
  std::vector<Adapter> adapters; ///< in program order

  Graph* findGraph(const std::string& graphName) const;
  Parameter* findParameter(const std::string& parameterName) const;
  Parameter* addParameter(Parameter parameter);
  /// Removes a parameter that has a value in no graph.
  void eraseParameter(const Parameter* parameter);
};

} // namespace pdc
