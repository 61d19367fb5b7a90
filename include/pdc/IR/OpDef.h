// Everything the compiler knows about an op is one OpDef, filled by designated initialisers in lib/Ops/<Family>.cpp.
// Passes, interpreter, verifier, importer and code generator ask the OpDef; they never ask an op's name.
#pragma once

#include "pdc/IR/Expression.h"
#include "pdc/IR/Graph.h"
#include "pdc/IR/OpHooks.h"
#include "pdc/IR/Tensor.h"
#include "pdc/Support/Expected.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace pdc {

enum class OpKind {
  composed,    ///< exists in ONNX only: `onnx.convert` expands it into other ops at import
  elementwise, ///< `expressions` say it all; broadcasts like NumPy
  kernel,      ///< `kernel` names a class in pdcrt/kernels
  view,        ///< the result is operand 0's bytes under another shape: costs nothing
  collective,  ///< the members of a team carry it out together (OpSplit::forms)
  constant     ///< the result is the attribute `value`
};

/// The opset versions that models may have. A conversion that ends before the newest says so.
inline constexpr std::int64_t oldestOpset = 7, newestOpset = 28;

/// The element type that TensorProto.DataType of ONNX numbers so; nothing where pdc does not have it (strings, complex
/// numbers, floats and integers of less than 16 and 8 bits).
std::optional<ElementType> elementTypeFromOnnx(std::int64_t number);

/// An operator of an ONNX model, as the importer hands it to a conversion: names resolved, operands converted.
struct OnnxNode {
  std::string opType;
  std::int64_t version = 0;     ///< of the default domain's opset in the model
  std::vector<Value*> inputs;   ///< null where absent
  std::size_t outputs = 1;      ///< how many outputs the node lists
  std::vector<bool> outputUsed; ///< per output: whether it has a name
  Attributes attributes;        ///< the node's, without defaults
  Location location;            ///< of the node
};

/// How ONNX's operator becomes IR: values for the node's outputs (null where unused). Errors are reported with the
/// node's location.
using OnnxConversion =
    std::function<Expected<std::vector<Value*>>(const OnnxNode& node, Builder& b, Diagnostics& diags)>;

struct OnnxMapping {
  std::string opType;
  std::int64_t since = 1;           ///< first opset version that this conversion reads
  std::int64_t until = newestOpset; ///< last
  OnnxConversion convert;
};

struct OperandDef {
  std::string name;
  bool optional = false;
  bool variadic = false;  ///< only the last
  bool keepsHigh = false; ///< stays in f32 where the op computes with 16 bits
};

struct ResultDef {
  std::string name;
  bool optional = false;
  bool variadic = false;
  bool asked = false;    ///< Builder::create makes it only where it is asked for
  bool detached = false; ///< gradients do not pass it: a running statistic
};

struct AttributeDef {
  std::string name;
  Attribute example;                     ///< fixes the kind; printed in docs/Ops.md
  std::optional<Attribute> defaultValue; ///< none: required
  std::string summary;
  int shapeOfResult = -1; ///< it is the shape of this result, and becomes that of a part where the op is divided
};

/// What shape inference sees: operand types (null where absent), attributes, and the values of constant operands.
struct InferContext {
  std::vector<const Type*> operands;
  const Attributes& attributes;
  Location location;
  Diagnostics& diags;

  const Type& operand(std::size_t i) const { return *operands[i]; }
  /// `return c.error() << "…"` : an error at the operation.
  Diagnostics::Builder error() const { return diags.error(location); }
};

/// Types of all results, one per ResultDef (or per variadic result).
using InferFn = std::function<Expected<std::vector<Type>>(const InferContext&)>;

/// Whether results in low precision are safe; used by mixed precision.
enum class PrecisionClass {
  any,
  preferLow,
  readLow, ///< operands, where they are in low precision already; what is computed of them is in f32
  keepHigh
};

/// Work of one execution, for the analytic cost model.
struct Cost {
  double flops = 0;
  double bytes = 0; ///< read and written
};

/// What a gradient rule sees. It returns one value per operand (null: no gradient) for the results' gradients (null:
/// the result does not influence the loss).
class GradientContext {
public:
  virtual ~GradientContext() = default;
  virtual const Operation& op() const = 0;
  /// Gradient of result i, or null.
  virtual Value* resultGradient(std::size_t i) const = 0;
  /// Whether the gradient of operand i is wanted.
  virtual bool wants(std::size_t i) const = 0;
  /// Creates operation `name`; its phase is that of operand `forOperand`: weight-gradient when the operand depends on
  /// parameters only, else input-gradient. An op that yields several gradients at once passes any activation operand.
  virtual Operation* create(std::size_t forOperand, const std::string& name, std::vector<Value*> operands,
                            Attributes attributes = {}, const std::vector<bool>& wantedResults = {}) = 0;
  /// `create` for ops with one result.
  Value* value(std::size_t forOperand, const std::string& name, std::vector<Value*> operands,
               Attributes attributes = {});
};
using GradientFn = std::function<std::vector<Value*>(GradientContext&)>;

/// Operands and results of one call of an op's reference. In f64, every float tensor of the interpreter is f64.
struct ReferenceContext {
  const Operation& op;
  std::vector<const Tensor*> operands; ///< null where absent
  std::vector<Tensor*> results;        ///< allocated with the right shape, zero; null where absent
  std::uint64_t seed = 0;              ///< of random ops
  std::uint64_t minibatch = 0;
  std::int64_t member = 0; ///< of the team that runs the graph
  std::string error;       ///< set when the values are wrong: "label 12 is not below 10, the number of classes"

  template <class T>
  std::span<const T> in(std::size_t i) const {
    return operands[i]->data<T>();
  }
  template <class T>
  std::span<T> out(std::size_t i) {
    return results[i]->mutableData<T>();
  }
};

/// The slow, obvious definition of what an op computes, in f32 and in f64.
struct ReferenceFns {
  std::function<void(ReferenceContext&)> f32, f64;
  explicit operator bool() const { return static_cast<bool>(f32); }
};

/// `.reference = reference([]<class T>(ReferenceContext& c) { … })`.
template <class F>
ReferenceFns reference(F f) {
  return {[f](ReferenceContext& c) { f.template operator()<float>(c); },
          [f](ReferenceContext& c) { f.template operator()<double>(c); }};
}

struct OpDef {
  std::string name;
  std::string summary; ///< one sentence, no full stop
  OpKind kind = OpKind::kernel;
  std::vector<OnnxMapping> onnx;
  std::vector<OperandDef> operands;
  std::vector<ResultDef> results;
  std::vector<AttributeDef> attributes;
  InferFn infer;
  std::function<Status(const Operation&, Diagnostics&)> verify; ///< beyond types; null: nothing more
  PrecisionClass precision = PrecisionClass::any;
  std::function<Cost(const Operation&)> cost; ///< null for elementwise and views: derived
  GradientFn gradient;                        ///< null: no gradient (for elementwise: derived)
  /// Of elementwise ops: one per result, in terms of operand and attribute names.
  std::vector<std::string> expressions;
  /// Of elementwise ops, optional: ∂result0/∂operand i in terms of operand, attribute and result names, where that
  /// saves memory or is better conditioned than the derived one ("": derived).
  std::vector<std::string> derivatives;
  OpKernel kernel;
  OpRewrites rewrites;
  OpSplit split;
  OpUsage usage;
  ReferenceFns reference; ///< of elementwise ops: derived
  /// Graph texts (bodies of @main) that the registry test runs, at least five for ops with a gradient.
  std::vector<std::string> examples;
  OpFacts facts;
};

/// The integer attribute of ops that can make result 0 in parts, each with equally many rows of its axes before the
/// last: in how many.
inline constexpr const char* partsAttribute = "parts";
/// 1 where the op has no such attribute.
std::int64_t partsOf(const Operation& operation);
/// The start of a collective that sends `value` to the members of a team; null: there is none.
const Operation* startThatSends(const Value& value);

/// Work of one execution of `operation`: nothing where its op moves and computes nothing, or does not know.
Cost costOf(const Operation& operation);

/// The set of known ops.
class OpRegistry {
public:
  /// Aborts with a message when an op of this name is there already, or `def` contradicts itself: programmer's errors.
  void add(OpDef def);
  /// Null when there is none.
  const OpDef* find(const std::string& name) const;
  /// The mapping for an ONNX operator in `version`, or null.
  const OnnxMapping* findOnnx(const std::string& opType, std::int64_t version) const;
  /// In order of registration.
  const std::vector<const OpDef*>& all() const { return order_; }

  OpRegistry();
  ~OpRegistry();
  OpRegistry(const OpRegistry&) = delete;
  OpRegistry& operator=(const OpRegistry&) = delete;

private:
  std::vector<std::unique_ptr<OpDef>> defs_;
  std::vector<const OpDef*> order_;
};

} // namespace pdc
