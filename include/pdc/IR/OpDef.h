// Everything the compiler knows about an op is one OpDef, filled by designated initialisers in lib/Ops/<Family>.cpp.
// Passes, interpreter, verifier, importer and code generator ask the OpDef; they never ask an op's name.
#pragma once

#include "pdc/IR/Expression.h"
#include "pdc/IR/Graph.h"
#include "pdc/IR/InitialValues.h"
#include "pdc/IR/Target.h"
#include "pdc/IR/Tensor.h"
#include "pdc/Support/Expected.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace pdcrt {
class Setup;
}

namespace pdc {

class Builder;

enum class OpKind {
  composed,    ///< exists in ONNX only: `onnx.convert` expands it into other ops at import
  elementwise, ///< `expressions` say it all; broadcasts like NumPy
  kernel,      ///< `kernel` names a class in pdcrt/kernels
  view,        ///< the result is operand 0's bytes under another shape: costs nothing
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

/// How a kernel op becomes a call of a member function of a class of pdcrt/kernels:
///   k.conv3.forward(q, operands…, results…)
struct KernelUse {
  std::string className;          ///< "Conv2d": header pdcrt/kernels/Conv2d.h, class pdcrt::Conv2d
  std::string method;             ///< "forward"
  std::string options;            ///< designated initialisers: ".input = {32, 64, 56, 56}, .strides = {2, 2}"
  bool draws = false;             ///< the method takes the Draw after the stream
  bool workspaceByMethod = false; ///< the class asks for workspace for each method apart
  /// On CPUs: the method that makes the first result in parts of so many bytes, for one that is used up at once. It
  /// takes one part in the result's place, and after all results what takes the parts. 0: there is none.
  std::string partsMethod = {};
  std::int64_t partBytes = 0;
  /// Constructs the class with the same options, so that `setup` learns the workspace.
  std::function<void(pdcrt::Setup& setup)> construct;
};

/// The ways in which a kernel can compute: the names in the attribute `algorithms`, one per method of the kernel. The
/// attribute `workspace`, where there is one, has the bytes that those of them need which were measured on a GPU.
struct KernelAlternatives {
  std::string kernel;                  ///< with its sizes, as profiles call it: "Conv2d{.input = {8, 64, 56, 56}, …}"
  std::string method;                  ///< that the operation calls
  std::vector<std::string> methods;    ///< those that the attribute has names for, in its order
  std::vector<std::string> algorithms; ///< that may be able to compute these sizes; at least one
  /// On CPUs: a call of the method for each algorithm, to be timed. They share operands and results, which they keep
  /// alive.
  std::function<std::vector<std::function<void()>>()> calls;
};

/// Operands and results [N, C, H, W] that a kernel also takes with channels in blocks, or last (Type.h).
struct ChannelBlocks {
  std::vector<const Value*> values;
  /// Each of them may be in blocks or not, and those that are not are copied in every call; else all are, or none is.
  bool apart = false;
  bool last = true; ///< and not in blocks only
  /// Of those that may be apart: have one layout all the same, and one number of channels.
  std::vector<const Value*> alike = {};
};

/// What an operation becomes with a neighbour.
struct Absorbed {
  Operation* made = nullptr;                       ///< null: nothing was found
  std::vector<Operation*> gone;                    ///< what it stands for, in program order
  std::vector<std::pair<Value*, Value*>> replaced; ///< results of those, by its own
};

/// Operands and results of one call of an op's reference. In f64, every float tensor of the interpreter is f64.
struct ReferenceContext {
  const Operation& op;
  std::vector<const Tensor*> operands; ///< null where absent
  std::vector<Tensor*> results;        ///< allocated with the right shape, zero; null where absent
  std::uint64_t seed = 0;              ///< of random ops
  std::uint64_t minibatch = 0;
  std::string error; ///< set when the values are wrong: "label 12 is not below 10, the number of classes"

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

/// What an op makes of logits: probabilities, or their logarithms. A softmax is over the last axis.
enum class OfLogits : std::uint8_t { none, softmax, logSoftmax, sigmoid };

/// A result that may lie in the memory of an operand: element i of the operand is read before element i of the result
/// is written, and for the elements i of results only; also where other results lie in the memory of other operands.
struct Replaceable {
  std::size_t operand, result = 0;
};

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
  std::function<KernelUse(const Operation&)> kernel; ///< of kernel ops
  /// Makes an operation that gives result 0 of a forward operation again, with the same bits, in one pass over its
  /// operands and its other results; null: there is none. Elementwise ops are that themselves.
  std::function<Operation*(const Operation&, Builder&)> again;
  /// Of kernels that compute in several ways; null: in one. By default, "automatic", the kernel decides.
  std::function<KernelAlternatives(const Operation&, Target)> alternatives;
  /// Which layouts the kernel takes; null: only plain ones. Of elementwise ops and views: known.
  std::function<ChannelBlocks(const Operation&)> channelBlocks;
  /// Operands and results that the kernel also takes as filters in blocks (Type.h), each of them or not, where it would
  /// copy them otherwise; null: none.
  std::function<std::vector<const Value*>(const Operation&)> filterBlocks;
  /// What the op becomes when the model is evaluated; null: itself. Returns the values that replace the results.
  std::function<std::vector<Value*>(const Operation&, Builder&)> evaluation;
  /// Simplifications of the canonicaliser: a value that replaces result 0, or null.
  std::function<Value*(Operation&, Builder&)> canonicalize;
  /// Recognises what exporters make of this op: a value, made by this op, that replaces result 0 of `root`, the last
  /// operation of the pattern; or null. Asked for every operation, in program order.
  std::function<Value*(Operation& root, Builder&)> raise;
  /// Takes a neighbour that reads or makes one of the values, mostly elementwise, into the kernel, which saves a pass.
  /// Asked when fusion groups are known. The builder has the annotations of the operation, not its place.
  std::function<Absorbed(Operation&, Builder&)> absorb;
  /// How the parameter that operand i stands for usually starts (of an activation: the parameters that compute it), as
  /// PyTorch's modules do; nothing where there is no usage. Null: for no operand.
  std::function<std::optional<InitialValues>(const Operation&, std::size_t i)> initialValues;
  /// Result 0 of the operation with so many more elements, zeros, at the end of its last axis; null: of no use.
  std::function<Value*(const Operation&, std::int64_t gap, Builder&)> makeGap;
  /// The operation on `wider`, which is operand 0 with such a gap at the end of axis 1: it reads nothing of it, and the
  /// gradient there is 0. Null: it knows no gaps.
  std::function<Operation*(const Operation&, Value* wider, Builder&)> ignoreGap;
  /// Of attention whose operands' heads are split from rows: a value, made from these rows, that replaces result 0;
  /// null: they are not.
  std::function<Value*(Operation&, Builder&)> mergeHeads;
  /// Of what makes the gradient of a parameter in parts: an operation with its results, and as the last that of
  /// `reader`, which reads the parameter; with the same bits, and one pass over the parameter. Null, or it gives null:
  /// there is none.
  std::function<Operation*(const Operation&, const Operation& reader, Builder&)> together;
  /// Among how many things the integers of operand i choose: 0 … n-1, rows also from -n on, counted from the end. 0, or
  /// null: they name nothing.
  std::function<std::int64_t(const Operation&, std::size_t i)> choices;
  /// Operands of a kernel in whose memory results may lie, where nothing reads them afterwards. Of elementwise ops:
  /// known.
  std::vector<Replaceable> replaceable;
  ReferenceFns reference; ///< of elementwise ops: derived
  /// Graph texts (bodies of @main) that the registry test runs, at least five for ops with a gradient.
  std::vector<std::string> examples;

  // Facts that passes ask for.
  bool lossLike = false; ///< result 0 is a scalar loss, as --loss's default looks for
  bool random = false;   ///< draws random numbers
  bool moves = false;    ///< results have the operands' elements elsewhere, some perhaps several times or not at all
  bool commutative = false;
  bool takesDouble = false; ///< kernel and reference compute with f64, beside f32; ops that move elements do anyway
  /// The kernel for CUDA computes with f16 and bf16 too; ops that move elements do anyway. One that rounds only result
  /// 0 to them, when asked, has the attribute `result` (lib/Ops/Helpers/Define.h).
  bool takesLow = false;
  OfLogits ofLogits = OfLogits::none; ///< what result 0 is of operand 0
  bool permutes = false;              ///< axis i of result 0 is axis permutation[i], an attribute, of operand 0
};

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
