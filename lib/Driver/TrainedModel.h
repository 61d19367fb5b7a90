// The model that a folder was generated from, and the way of trained weights back into it: checked before a training,
// so that nothing is trained that cannot be written.
#pragma once

#include "pdc/Import/Adapters.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"
#include "pdcrt/StoredTensor.h"

#include <functional>
#include <iosfwd>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pdc {

/// What `modelPathFile` of `folder` says of the model at `path`: where it is from there, its size and the CRC-32C of
/// its bytes. Error: it cannot be read.
Expected<std::string> modelRecord(const std::string& path, const std::string& folder, Diagnostics& diags);

struct ExportOptions {
  std::string folder;     ///< what pdc has written
  std::string model;      ///< the model, if it is not where the folder says
  std::string exportFile; ///< trained.onnx; empty: none is to be written
  std::string stateDict;  ///< F.safetensors with the module's state_dict; empty: none is to be written
  std::string adapter;    ///< DIR[,strip=PREFIX] for PEFT's files; empty: none are to be written
  std::string weights;    ///< folder where trained weights are to stay; empty: none
};

/// What a training leaves behind, and what becomes of it.
class TrainedModel {
public:
  /// Before a training: the model is there and the one that was compiled, its trained version can be written, and
  /// weights have a place. Without --export and --export-state-dict a model that has changed is a warning.
  static Expected<TrainedModel> prepare(ExportOptions options, const Plan& plan, Diagnostics& diags);

  /// The folder for the ranks' weights; empty: none are wanted.
  const std::string& weights() const { return weights_; }

  /// After a training that ended with `code`: writes what was asked for if all weights are there, and says so. Where
  /// that fails, the weights stay, and the error says where and what to type.
  Expected<int> finish(int code, std::ostream& out, Diagnostics& diags);

private:
  TrainedModel(ExportOptions options, std::size_t stages) : options_(std::move(options)), stages_(stages) {}
  Status checkModel(Diagnostics& diags);
  Status chooseWeights(Diagnostics& diags);
  /// A file that is made of the model and the trained weights.
  struct Output {
    std::string flag;    ///< that asks for it
    std::string file;    ///< its path
    std::string command; ///< of pdc-ckpt that makes it from the weights
    std::string what;    ///< how messages call it
    std::function<Status(const std::string& model, const TrainedTensors& trained, const std::string& out,
                         Diagnostics& diags)>
        write;
    bool isFolder = false; ///< `file` is one
  };
  std::vector<Output> outputs() const;
  /// The files of a stage's trained weights that are there: member by member of its team; at least that of member 0,
  /// even if it is not there.
  std::vector<std::string> filesOf(std::size_t stage) const;
  /// Inode and time of change of a file; 0 where there is none.
  static std::pair<std::uint64_t, std::int64_t> identity(const std::string& file);

  ExportOptions options_;
  AdapterRecord adapters_; ///< of the folder
  std::size_t stages_;
  std::string weights_;
  bool isOwn_ = false;                                                   ///< the folder was made for this training
  std::map<std::string, std::pair<std::uint64_t, std::int64_t>> before_; ///< of files of earlier trainings
};

} // namespace pdc
