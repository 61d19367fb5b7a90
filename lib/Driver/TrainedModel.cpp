// The weights lie in the generated folder until the model is written, or as long as it is not.
#include "TrainedModel.h"

#include "OutputFolder.h"
#include "pdc/Driver/CommandLine.h"
#include "pdc/Driver/Launch.h"
#include "pdc/Driver/Toolchain.h"
#include "pdc/Import/StateDict.h"
#include "pdc/Import/TrainedOnnx.h"
#include "pdcrt/MappedFile.h"
#include "pdcrt/WriteFile.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace pdc;
namespace fs = std::filesystem;

namespace {

/// "4242 bytes, CRC-32C 0ac35f1e".
std::string textOf(const pdcrt::FileSum& sum) {
  char text[64];
  std::snprintf(text, sizeof text, "%llu bytes, CRC-32C %08x", static_cast<unsigned long long>(sum.bytes), sum.crc);
  return text;
}

Expected<pdcrt::FileSum> sumOf(const std::string& path, Diagnostics& diags) {
  pdcrt::MappedFile file;
  if (pdcrt::Status status = file.open(path); !status) return reportFile(status, path, diags);
  return pdcrt::extended({}, file.bytes());
}

/// Two lines: the model's path, from the folder, and its sum. Folders of older versions lack the second.
struct Record {
  std::string path, sum;
};

Expected<Record> readRecord(const std::string& folder, Diagnostics& diags) {
  const Expected<std::string> text = readFile(folder + "/" + modelPathFile, diags);
  if (!text) return failure;
  std::istringstream lines(*text);
  Record record;
  std::getline(lines, record.path);
  std::getline(lines, record.sum);
  const fs::path asNamed = (fs::path(folder) / record.path).lexically_normal();
  std::error_code error;
  const fs::path asItIs = (fs::canonical(folder, error) / record.path).lexically_normal(); // through links
  record.path = (!fs::exists(asNamed, error) && fs::exists(asItIs, error) ? asItIs : asNamed).string();
  return record;
}

} // namespace

Expected<std::string> pdc::modelRecord(const std::string& path, const std::string& folder, Diagnostics& diags) {
  const Expected<pdcrt::FileSum> sum = sumOf(path, diags);
  if (!sum) return failure;
  std::error_code ignored;
  // A link to the model stays one: its external data lies, or seems to lie, beside the link.
  const fs::path model = fs::absolute(path), from = fs::relative(model.parent_path(), fs::absolute(folder), ignored);
  return (from / model.filename()).lexically_normal().string() + "\n" + textOf(*sum) + "\n";
}

std::vector<TrainedModel::Output> TrainedModel::outputs() const {
  std::vector<Output> wanted;
  const auto merged = [&](auto* write) {
    return [this, write](const std::string& model, const TrainedTensors& trained, const std::string& out,
                         Diagnostics& diags) { return writeMerged(write, model, trained, adapters_, out, diags); };
  };
  if (!options_.exportFile.empty())
    wanted.push_back({"--export", options_.exportFile, "to-onnx", "model", merged(writeTrainedOnnx)});
  if (!options_.stateDict.empty())
    wanted.push_back(
        {"--export-state-dict", options_.stateDict, "to-state-dict", "state_dict", merged(writeStateDict)});
  if (!options_.adapter.empty()) {
    const auto [folder, strip] = folderAndStrip(options_.adapter);
    wanted.push_back({"--export-adapter", folder, "to-adapter", "adapter",
                      [this, strip = strip](const std::string& model, const TrainedTensors& trained,
                                            const std::string& out, Diagnostics& diags) {
                        return writeAdapter(model, trained, adapters_, out, strip, diags);
                      },
                      /*isFolder=*/true});
  }
  return wanted;
}

std::vector<std::string> TrainedModel::filesOf(std::size_t stage) const {
  const std::string file = weights_ + "/stage" + std::to_string(stage) + ".safetensors";
  std::vector<std::string> files = pdcrt::memberFiles(file);
  return files.empty() ? std::vector{file} : files;
}

std::pair<std::uint64_t, std::int64_t> TrainedModel::identity(const std::string& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {0, 0};
  return {info.st_ino, std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

Expected<TrainedModel> TrainedModel::prepare(ExportOptions options, const Plan& plan, Diagnostics& diags) {
  TrainedModel result(std::move(options), plan.stages.size());
  const std::string file = result.options_.folder + "/" + adaptersFile;
  std::error_code ignored;
  if (fs::exists(file, ignored)) {
    const Expected<std::string> text = readFile(file, diags);
    if (!text) return failure;
    Expected<AdapterRecord> record = adaptersFromJson(*text, file, diags);
    if (!record) return failure;
    result.adapters_ = *std::move(record);
  }
  if (!result.checkModel(diags) || !result.chooseWeights(diags)) return failure;
  return result;
}

Status TrainedModel::checkModel(Diagnostics& diags) {
  const std::vector<Output> wanted = outputs();
  const bool exports = !wanted.empty();
  std::error_code ignored;
  if (!exports && !fs::exists(options_.folder + "/" + modelPathFile, ignored)) return success;
  const Expected<Record> record = readRecord(options_.folder, diags);
  if (!record) return failure;
  const std::string named = options_.model;
  if (options_.model.empty()) options_.model = record->path;
  if (!fs::exists(options_.model, ignored)) {
    if (!exports) return success; // the folder holds all that a training needs
    return diags.error({.file = options_.model}).help("say where the model is: --model=FILE")
           << "is not there, and " << wanted[0].flag << " needs the model that " << options_.folder
           << " was generated from";
  }
  const Expected<pdcrt::FileSum> sum = sumOf(options_.model, diags);
  if (!sum) return failure;
  if (!record->sum.empty() && textOf(*sum) != record->sum) {
    const Location where{.file = options_.model};
    const std::string fact = "is another model than " + options_.folder + " was generated from: it has " +
                             textOf(*sum) + ", that one had " + record->sum;
    if (exports || !named.empty())
      return diags.error(where).help("run pdc again, or name the model of the folder: --model=FILE") << fact;
    diags.warning(where).help("to train this one run pdc again") << fact;
  }
  if (!exports) return success;
  // With the weights that the training begins with, which have the names and the types of those that it ends with.
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.folder + "/weights", ignored))
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().string());
  pdcrt::StoredTensors tensors;
  if (pdcrt::Status status = tensors.open(names); !status) return reportFile(status, names, diags);
  for (const Output& output : wanted) {
    if (!output.write(options_.model, tensors.whole(), /*out=*/"", diags)) return failure;
    if (output.isFolder) fs::create_directories(output.file, ignored);
    const std::string file = output.file + (output.isFolder ? "/adapter_model.safetensors" : "");
    if (pdcrt::Status status = pdcrt::checkWritable(file); !status) return reportFile(status, file, diags);
  }
  return success;
}

Status TrainedModel::chooseWeights(Diagnostics& diags) {
  weights_ = options_.weights;
  if (weights_.empty() && outputs().empty()) return success;
  if (weights_.empty()) {
    isOwn_ = true;
    std::error_code error;
    weights_ = options_.folder + "/trained";
    for (int number = 2; !fs::create_directory(weights_, error) && !error; ++number) // another training's are there
      weights_ = options_.folder + "/trained-" + std::to_string(number);
    if (error) {
      Expected<TemporaryFolder> folder = TemporaryFolder::create(diags);
      if (!folder) return failure;
      weights_ = folder->release();
    }
  }
  for (std::size_t stage = 0; stage < stages_; ++stage)
    for (const std::string& file : filesOf(stage)) before_[file] = identity(file);
  return success;
}

Expected<int> TrainedModel::finish(int code, std::ostream& out, Diagnostics& diags) {
  if (weights_.empty()) return code;
  std::vector<std::string> names;
  std::string lacking;
  for (std::size_t stage = 0; stage < stages_; ++stage)
    for (const std::string& file : filesOf(stage)) {
      if (const auto now = identity(file); now.first != 0 && now != before_[file])
        names.push_back(file);
      else if (lacking.empty())
        lacking = file.substr(weights_.size() + 1);
    }
  std::error_code ignored;
  const std::vector<Output> wanted = outputs();
  if (wanted.empty()) return code;
  if (names.empty() && code != 0) { // it never came to its weights
    if (isOwn_) fs::remove(weights_, ignored);
    return code;
  }
  pdcrt::StoredTensors trained;
  bool isRead = false;
  if (lacking.empty()) {
    const pdcrt::Status status = trained.open(names);
    isRead = static_cast<bool>(status);
    if (!isRead) reportFile(status, names, diags);
  }
  for (const Output& output : wanted) {
    const std::string command = "pdc-ckpt " + output.command + " " + shellWord(weights_) + " --model " +
                                shellWord(options_.model) + " -o " +
                                shellWord(output.file.substr(output.file.rfind('/') + 1));
    if (!lacking.empty())
      return diags.error({.file = output.file})
                 .note("the others are in " + weights_ + ", which all machines of a run must share")
                 .help("put it there, and type " + command)
             << "is not written: " << lacking << " of the trained weights is not in " << weights_;
    // What was told before the training is not told again.
    Diagnostics told(nullptr);
    const bool isWritten = isRead && output.write(options_.model, trained.whole(), output.file, told);
    for (const Diagnostic& diagnostic : told.all())
      if (diagnostic.severity == Severity::error) diags.report(diagnostic);
    if (!isWritten)
      return diags.error({.file = output.file}).help("to write the " + output.what + " from them, type " + command)
             << "is not written; the trained weights are kept in " << weights_;
    out << "wrote " << output.file << "\n";
  }
  if (isOwn_) fs::remove_all(weights_, ignored);
  return code;
}
