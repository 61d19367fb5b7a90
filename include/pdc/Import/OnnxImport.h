// ONNX models to IR.
//
// What the importer decides, beyond what each operator's conversion (OnnxMapping) does:
//
// - Versions: IR 3 to 14 and opset 7 to 28 of the default domain. All operators without a conversion are reported at
//   once (ExitCode::unsupported).
// - Shapes: static. The batch axis of each data input takes `batch`, also where it has another size in the file; other
//   symbolic dimensions take `dims`. A dimension without a name, with the name "?" or a size below 1 is called
//   INPUT.AXIS; so can every dimension be, in `dims`, and that wins over what the file says.
// - Batch axes: those that `batchAxes` states; else the axes with the symbol that is called like a batch ("batch",
//   "batch_size", "N"); else those with the symbol that most inputs and outputs have as their first axis; else, where
//   no name tells anything, the first axes if they agree. Whatever was guessed is told (lib/Import/BatchAxes.cpp).
// - Inputs: those of the ONNX graph that have no initializer, all as InputKind::data. Those that `bind` gives a value
//   are constants, or frozen parameters where a file has more than 64 KiB of them.
// - Initializers that a node uses become, by type and use:
//     integers and booleans                       constants; frozen parameters when larger than 64 KiB
//     running statistics of BatchNormalization    state when the node is in training mode, else frozen parameters
//     scales and regions of Resize                constants
//     other floats                                what the file says, else what rules say
//   PyTorch's default exporter says what its values are (metadata from version 2.5 on). Parameters of the module and
//   what was computed from them are trained, whatever their rank; buffers are frozen; other floats are constants.
//   Where a file says nothing, floats are trained, but for these, which are told:
//     rank 0                                      constants, unless a name or a use says that they are parameters
//     masks of attention (-inf in their first row)                                    frozen
//     zero first states of recurrent layers, ones and zeros inside a GroupNorm,
//     what a scatter fills, single numbers with an exporter's name, frequencies,
//     tables of sines and cosines                                                     constants
//   A float other than a statistic whose name `freeze` matches is frozen; one that `train` matches is trained. `train`
//   is the stronger of the two, and both are stronger than all of the above but the first three lines.
// - Every parameter is an initializer of its own. Floats in Constant nodes, and weights in bodies of control flow,
//   become initializers of the model. Parameters that an exporter stored once because they were equal are several
//   again: those that PyTorch's older exporter calls Identity of others; scale, shift, mean and variance of a
//   BatchNormalization, of each layer; and whatever the modules of the nodes tell apart. A matrix that is the
//   transpose of an embedding's table is one with it (`tie`).
// - BatchNormalization nodes in training mode that have the same statistics are one layer, applied several times: each
//   moves the statistics that the one before left, as in PyTorch.
// - Parameters refer to bytes of the ONNX file or of its external data; nothing is copied. Element bytes must therefore
//   lie in one piece: raw_data, packed float_data or double_data, external data.
// - Functions of the model are expanded where they are called; an operator that pdc knows is never taken from them.
//   What function F computes for node C is called "C/…". Recursion is refused.
// - Program order is the file's order of nodes where that is topological, else the topological order that is nearest to
//   it (always the first node that is ready).
// - External data lies in the model's folder or below, in regular files with one link that no symbolic link leads to.
//
// One warning tells of each thing that exporters lose, with its remedy: BatchNormalization in inference mode or folded
// into convolutions, Dropout left out or in inference mode, weights that constant folding renamed or computed from
// others, parameters that the file lacks, weights that were merged because they were equal, embeddings that were stored
// twice, buffers that look like weights.
#pragma once

#include "pdc/IR/OpDef.h"
#include "pdcrt/MappedFile.h"

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pdc {

/// --bn=: how BatchNormalization is trained.
enum class BatchNormMode {
  exported, ///< as its training_mode says
  batch,    ///< with the statistics of the minibatch, and running statistics updated
  pytorch,  ///< like batch, and the variance of a minibatch moves the running one as PyTorch's does: divided by n - 1
  frozen    ///< with the stored statistics
};

/// Along which axes of the data inputs the samples of a minibatch lie.
struct BatchAxes {
  std::int64_t size = 1;              ///< of a minibatch
  std::map<std::string, int> axes;    ///< of each data input that is not bound; pdcrt::noBatchAxis: it has none
  std::vector<std::string> guessed;   ///< inputs whose axis nothing but its place tells
  std::optional<std::int64_t> before; ///< in the file, where that fixes another size

  /// Lengths of the axes along which recurrent operators go, in the order of the nodes. None of them is a batch.
  std::vector<std::int64_t> sequences;
};

struct ImportOptions {
  std::optional<std::int64_t> batch;              ///< --batch=B
  std::map<std::string, std::int64_t> dims;       ///< --dim NAME=V, or INPUT.AXIS=V
  std::map<std::string, int> batchAxes = {};      ///< --batch-axis=NAME:N, or NAME:none
  std::map<std::string, std::string> bind = {};   ///< --bind NAME=VALUE|FILE.npy|zeros
  std::optional<std::int64_t> insteadOfSize = {}; ///< the batch axes get this size after all else is decided
  std::string freeze; ///< --freeze=REGEX, POSIX extended, found anywhere in an initializer's name; empty: none
  std::string train;  ///< --train=REGEX, likewise
  BatchNormMode batchNorm = BatchNormMode::exported;
  bool tie = true;               ///< --tie=auto: a table of an embedding and its copy in a classifier are one parameter
  std::optional<double> dropout; ///< --dropout=P: this ratio for every Dropout, switched on
  /// Weights that the model lacks become parameters without a reference: initializers without elements or with external
  /// data that is not there, inputs that are called like parameters or that `train` matches. Else they are an error.
  bool weightsMayLack = false;
  std::vector<std::string> values; ///< values of the model that become results, too, where they are no outputs
};

/// The module of the ONNX model at `path`: one graph, @main, without loss or labels. Errors carry `path` and the name
/// of the ONNX node (of its first output, when it has none).
/// `batch`: where it goes what was found about batch axes. An input whose axis is not known, and that the model reads,
/// is an error then, which says what to type.
Expected<std::unique_ptr<Module>> importOnnx(const std::string& path, const ImportOptions& options,
                                             const OpRegistry& registry, Diagnostics& diags,
                                             BatchAxes* batch = nullptr);

/// Maps `file`, external data of the model at `model` under the path that importOnnx gives it as Reference::file. What
/// was checked then is checked again, of the very file that is mapped: it may have been replaced in the meantime. Fails
/// where it is not beneath the model's folder without links on the way, or no regular file with one link.
pdcrt::Status mapExternalData(const std::string& model, const std::string& file, pdcrt::MappedFile& mapped);

/// Prints what the model at `path` is and what keeps it from being trained as it is: inputs, outputs, parameters,
/// operators with counts, versions, producer, missing pieces. Fails only when the file cannot be read as a model.
Status inspectOnnx(const std::string& path, const OpRegistry& registry, std::ostream& out, Diagnostics& diags);

} // namespace pdc
