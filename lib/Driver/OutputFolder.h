// Writing the output: all of it, or nothing.
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/Support/Expected.h"
#include "pdcrt/Status.h"

#include <string>
#include <utility>
#include <vector>

namespace pdc {

/// A file of the output folder: its path there, and its text.
using OutputFile = std::pair<std::string, std::string>;

/// A file of weights in the output folder, and the parameters whose stored values it holds.
struct WeightsFile {
  std::string name; ///< "weights/stage0.safetensors"
  std::vector<const Parameter*> parameters;
};

/// Writes `files` and `weights` into `folder`, which is made if need be. Everything is first written into a folder
/// inside it and then renamed, file by file; a file that has the same bytes already is left alone, so that building
/// again builds only what has changed. Programs and weights of stages of an earlier plan are removed. Errors: the
/// folder cannot be written; weights cannot be read.
Status writeOutput(const std::string& folder, const std::vector<OutputFile>& files,
                   const std::vector<WeightsFile>& weights, Diagnostics& diags);

/// Whether `folder` is there and can be written, or can be made. Error, as of writeOutput: neither.
Status checkOutputFolder(const std::string& folder, Diagnostics& diags);

/// Writes the stored values of `parameters` to the safetensors file `path`.
Status writeWeights(const std::string& path, const std::vector<const Parameter*>& parameters, Diagnostics& diags);

/// Reports what the runtime's file readers and writers say as "FILE: error: …", with their remedy.
Failure reportFile(const pdcrt::Status& status, const std::string& path, Diagnostics& diags);
/// The same of one of several files, at least one: of that which the message names.
Failure reportFile(const pdcrt::Status& status, const std::vector<std::string>& paths, Diagnostics& diags);

/// The text of the file at `path`; an error says why it cannot be read.
Expected<std::string> readFile(const std::string& path, Diagnostics& diags);

} // namespace pdc
