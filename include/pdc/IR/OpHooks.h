// What code generation, kernel choice, layout and passes ask an op, in groups by who asks. An OpDef (OpDef.h) holds one
// of each; a hook that is null is answered by "nothing".
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/IR/InitialValues.h"
#include "pdc/IR/Loops.h"
#include "pdc/IR/Target.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pdcrt {
class Setup;
}

namespace pdc {

class Builder;

/// How a kernel op becomes a call of a member function of a class of pdcrt/kernels:
///   k.conv3.forward(q, operands…, results…)
struct KernelUse {
  std::string className;          ///< "Conv2d": header pdcrt/kernels/Conv2d.h, class pdcrt::Conv2d
  std::string method;             ///< "forward"
  std::string options;            ///< designated initialisers: ".input = {32, 64, 56, 56}, .strides = {2, 2}"
  bool draws = false;             ///< the method takes the Draw after the stream
  bool workspaceByMethod = false; ///< the class asks for workspace for each method apart
  /// Operations with one owner share an object of the class; null: those of one forward operation do.
  const Operation* owner = nullptr;
  /// On CPUs: the method that makes the first result in parts of so many bytes, for one that is used up at once. It
  /// takes one part in the result's place, and after all results what takes the parts. 0: there is none.
  std::string partsMethod = {};
  std::int64_t partBytes = 0;
  /// On CPUs: the start of a collective that sends the first result while the method makes it; null: there is none.
  const Operation* sender = nullptr;
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
  /// Values that have one layout, and one number of channels, even where `apart` allows others.
  std::vector<const Value*> alike = {};
};

/// What an operation becomes with a neighbour.
struct Absorbed {
  Operation* made = nullptr;                       ///< null: nothing was found
  std::vector<Operation*> gone;                    ///< what it stands for, in program order
  std::vector<std::pair<Value*, Value*>> replaced; ///< results of those, by its own
};

/// What an op makes of logits: probabilities, or their logarithms. A softmax is over the last axis.
enum class OfLogits : std::uint8_t { none, softmax, logSoftmax, sigmoid };

/// A result that may lie in the memory of an operand: element i of the operand is read before element i of the result
/// is written, and for the elements i of results only; also where other results lie in the memory of other operands.
struct Replaceable {
  std::size_t operand, result = 0;
};

/// Asked by code generation, kernel measurement, layout, and the memory plan.
struct OpKernel {
  std::function<KernelUse(const Operation&)> use; ///< of kernel ops
  /// The algorithms of a kernel that computes in several ways; null: it has one. By default, "automatic", the kernel
  /// decides.
  std::function<KernelAlternatives(const Operation&, Target)> alternatives;
  /// Which layouts the kernel takes; null: only plain ones. Of elementwise ops and views: known.
  std::function<ChannelBlocks(const Operation&)> channelBlocks;
  /// Operands and results that the kernel also takes as filters in blocks (Type.h), each of them or not, where it would
  /// copy them otherwise; null: none.
  std::function<std::vector<const Value*>(const Operation&)> filterBlocks;
  /// Operands of a kernel in whose memory results may lie, where nothing reads them afterwards. Of elementwise ops:
  /// known.
  std::vector<Replaceable> replaceable;
};

/// A matrix by which an operation multiplies the last axis of an operand, which makes the last axis of result 0.
struct AdaptableMatrix {
  std::size_t input = 0;    ///< the operand with the inputs on its last axis
  std::size_t weight = 1;   ///< the operand that is the matrix
  bool outputsFirst = true; ///< it is [outputs, inputs], and not [inputs, outputs]
};

/// A frozen matrix as integers of 8 bits [rows, size], one scale per row, and the values in f32 [count, rows] at the
/// places `keptInputs` of each row; the last two may be null.
struct Int8Matrix {
  std::size_t operand = 0; ///< of the operation that reads the matrix
  Value *integers = nullptr, *scales = nullptr, *kept = nullptr, *keptInputs = nullptr;
  double alpha = 6; ///< what is multiplied by it is an outlier from here on (linear_int8)
};

/// How an operation would read an Int8Matrix.
struct Int8Use {
  int axis = 0;                            ///< of the matrix of f32, along which the rows lie
  std::optional<std::size_t> rounded = {}; ///< the operand that is rounded, whose last axis runs along each row
};

/// Asked by passes: how an operation is rewritten.
struct OpRewrites {
  /// Makes an operation that recomputes result 0 of a forward operation, with the same bits, in one pass over its
  /// operands and its other results; null: there is none. Elementwise ops are that themselves.
  std::function<Operation*(const Operation&, Builder&)> again;
  /// The form of the op when the model is evaluated; null: itself. Returns the values that replace the results.
  std::function<std::vector<Value*>(const Operation&, Builder&)> evaluation;
  /// Where the operation deals out rows to several places, which may have no room for all: f32[places + 1], how many
  /// each place takes, and, last, how many there are. Asked when the model is evaluated; null: it does not.
  std::function<Value*(const Operation&, Builder&)> load;
  /// Simplifications of the canonicaliser: a value that replaces result 0, or null.
  std::function<Value*(Operation&, Builder&)> canonicalize;
  /// Recognises the operations that exporters write for this op: a value, made by this op, that replaces result 0 of
  /// `root`, the last operation of the pattern; or null. Asked for every operation, in program order.
  std::function<Value*(Operation& root, Builder&)> raise;
  /// Fuses a neighbour that reads or makes one of the values, mostly elementwise, into the kernel, which saves a pass.
  /// Asked when fusion groups are known. The builder has the annotations of the operation, not its place.
  std::function<Absorbed(Operation&, Builder&)> absorb;
  /// Result 0 of the operation with its last axis padded by `gap` zeros; null: of no use.
  std::function<Value*(const Operation&, std::int64_t gap, Builder&)> makeGap;
  /// The operation on `wider`, which is operand 0 with such a gap at the end of axis 1: it does not read the gap, and
  /// the gradient there is 0. Null: it knows no gaps.
  std::function<Operation*(const Operation&, Value* wider, Builder&)> ignoreGap;
  /// For attention whose operands are heads split from rows: a value that reads these rows and replaces result 0; null:
  /// the operands are no such heads.
  std::function<Value*(Operation&, Builder&)> mergeHeads;
  /// Fuses the operation, which makes the gradient of a parameter in parts, with `reader`, which reads the parameter.
  /// The new operation has the results of both, the reader's last, with the same bits. Null, or it returns null: the
  /// fusion does not apply.
  std::function<Operation*(const Operation&, const Operation& reader, Builder&)> together;
  /// Where an adapter of low rank fits (Hu et al. 2021): the sum of result 0 and of operand `input` times another
  /// matrix is the operation with another weight. Null, or nothing: nowhere.
  std::function<std::optional<AdaptableMatrix>(const Operation&)> adaptable;
  /// What replaces result 0 where its rows, all axes but the last, have no readers where `live` is 0: zeros there.
  /// Null, or it returns null: the op computes all rows.
  std::function<Value*(const Operation&, Value* live, Builder&)> ofRows;
  /// How the op would read operand i, a matrix, as integers; nothing: it cannot. Null: of no operand.
  std::function<std::optional<Int8Use>(const Operation&, std::size_t i)> int8Use;
  /// What the operation computes with the integers instead of that operand, instead of result 0.
  std::function<Value*(const Operation&, const Int8Matrix&, Builder&)> withInt8;
};

/// What members carry out together: operand 0, which has the form `from`, in the form `to`. The operand `added`, where
/// there is one, is whole, and added to the value: element by element, or along one axis.
struct Reformed {
  std::int64_t members = 1;
  Form from, to;
  std::optional<int> addedAlong = {}; ///< nothing: `added` has the shape of the value
};

/// A collective that communicates has two halves, between which a member computes something else: what the start sends
/// arrives before the finish ends. Operand 1 of a finish is the result of its start.
enum class CollectiveHalf : std::uint8_t { both, start, finish };

/// Asked where operations are divided over a team (Loops.h).
struct OpSplit {
  /// The indices that may be divided; null: none, and every member computes all of the operation. Of elementwise ops
  /// and views: derived.
  std::function<Loops(const Operation&)> loops;
  /// What a member computes, of operands and to results in the forms of the division; null: the same op, with the
  /// attributes that are the shape of a result (AttributeDef::shapeOfResult) as they become.
  std::function<std::vector<Value*>(const Operation&, const Loops&, const Division&,
                                    const std::vector<Value*>& operands, Builder&)>
      divide;
  /// The operand whose integers say which place along an index the rows have: experts. The index runs in one block, and
  /// along no axis of this operand; an integer that names no place is allowed. Nothing: no operand does.
  std::optional<std::size_t> places = {};
  /// The definition of a collective. A half says what both do.
  std::function<Reformed(const Operation&)> forms;
  CollectiveHalf half = CollectiveHalf::both;
  std::string start = {}, finish = {}; ///< the ops of the halves, where a collective communicates
};

/// Attention: operand `scores` is added to the scores before their softmax over the last axis, whose elements are
/// neighbours along axis `axis` of the operands `keys`. A key whose score is so low that its weight is 0 is not read.
/// Axis 0 is the batch in all of them.
struct AddedScores {
  std::size_t scores = 0;
  std::vector<std::size_t> keys;
  int axis = -2; ///< counted from the end
};

/// Asked by importer, initialisation, data checks and `skip-padding`: the usual values of operands, and their meaning.
struct OpUsage {
  /// How the parameter that operand i stands for usually starts (of an activation: the parameters that compute it), as
  /// PyTorch's modules do; nothing where there is no usage. Null: for no operand.
  std::function<std::optional<InitialValues>(const Operation&, std::size_t i)> initialValues;
  /// The number n of things among which the integers of operand i choose: 0 … n-1, rows also from -n on, counted from
  /// the end. 0, or null: they name nothing.
  std::function<std::int64_t(const Operation&, std::size_t i)> choices;
  /// Null, or nothing: no scores are added, or the op hides keys by itself, too.
  std::function<std::optional<AddedScores>(const Operation&)> addedScores;
  /// Whether finite operands make finite results, zeros as well, as long as none overflows. Null: it is not known.
  std::function<bool(const Operation&)> staysFinite;
};

/// Asked by all passes: properties of every operation of the op.
struct OpFacts {
  bool lossLike = false;    ///< result 0 is a scalar loss, as --loss's default looks for
  bool random = false;      ///< draws random numbers
  bool moves = false;       ///< results have the operands' elements elsewhere, some perhaps several times or not at all
  bool picks = false;       ///< result 0 has elements of operand 0, at places that the other operands name
  bool takesDouble = false; ///< kernel and reference compute with f64, beside f32; ops that move elements do anyway
  /// The kernel for CUDA computes with f16 and bf16 too; ops that move elements do anyway. One that rounds only result
  /// 0 to them, when asked, has the attribute `result` (lib/Ops/Shared/Define.h).
  bool takesLow = false;
  OfLogits ofLogits = OfLogits::none; ///< what result 0 is of operand 0
  bool permutes = false;              ///< axis i of result 0 is axis permutation[i], an attribute, of operand 0
};

} // namespace pdc
