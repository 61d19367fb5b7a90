// pdc-ckpt ls|verify|show|to-onnx|to-state-dict|to-adapter DIR: what the checkpoints of a run are, whether they are
// whole, and the way to ONNX, to PyTorch and to PEFT.
#include "../StandardFlags.h"
#include "pdc/Driver/CommandLine.h"
#include "pdc/Import/Adapters.h"
#include "pdc/Import/FrozenWeights.h"
#include "pdc/Import/StateDict.h"
#include "pdc/Import/TrainedOnnx.h"
#include "pdcrt/Checkpoint.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <iostream>
#include <numeric>

using namespace pdc;
using pdcrt::CheckpointEntry;
using pdcrt::Manifest;

namespace {

struct Flags {
  std::string directory, model, output, base, strip;
  std::int64_t at = -1;
};

int told(const pdcrt::Status& status) {
  std::cerr << "error: " << status.message() << "\n";
  if (!status.help().empty()) std::cerr << "help: " << status.help() << "\n";
  return static_cast<int>(status.code());
}

std::uint64_t bytesOf(const Manifest& manifest) {
  return std::accumulate(manifest.shards.begin(), manifest.shards.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const pdcrt::Shard& shard) { return sum + shard.sum.bytes; });
}

std::int64_t stepOf(const Manifest& manifest) {
  return manifest.minibatches / std::max<std::int64_t>(1, manifest.minibatchesPerUpdate);
}

/// One line per checkpoint. `verify`: reads all of each; 65 if one is damaged.
int list(const Flags& flags, bool verify) {
  const std::vector<CheckpointEntry> all = pdcrt::listCheckpoints(flags.directory);
  if (all.empty())
    return told({pdcrt::Exit::badData, flags.directory + ": holds no checkpoint",
                 "name the folder that was given as --checkpoint-dir"});
  int code = 0;
  std::cout << "minibatches   step  stages  replicas  bytes       state\n";
  for (const CheckpointEntry& entry : all) {
    Manifest manifest;
    pdcrt::Status status =
        entry.complete ? pdcrt::readManifest(flags.directory, entry.minibatches, manifest) : pdcrt::Status();
    if (status && entry.complete && verify) status = pdcrt::verifyCheckpoint(flags.directory, entry.minibatches);
    std::cout << std::left << std::setw(12) << entry.minibatches << "  ";
    if (!manifest.shards.empty())
      std::cout << std::setw(6) << stepOf(manifest) << std::setw(8) << manifest.replicas.size() << std::setw(10)
                << std::accumulate(manifest.replicas.begin(), manifest.replicas.end(), 0) << std::setw(12)
                << bytesOf(manifest);
    else
      std::cout << std::string(36, ' ');
    std::cout << (!entry.complete ? "unfinished" : !status ? "damaged" : verify ? "whole" : "complete") << "\n";
    if (status) continue;
    std::cout.flush();
    code = told(status);
  }
  return code;
}

/// The newest checkpoint that is complete, or the one that was named.
pdcrt::Status choose(const Flags& flags, std::int64_t& minibatches) {
  minibatches = -1;
  for (const CheckpointEntry& entry : pdcrt::listCheckpoints(flags.directory))
    if (entry.complete && (flags.at < 0 || entry.minibatches == flags.at)) minibatches = entry.minibatches;
  if (minibatches >= 0) return {};
  return {pdcrt::Exit::badData,
          flags.directory + ": holds no checkpoint" +
              (flags.at < 0 ? "" : " after " + std::to_string(flags.at) + " minibatches"),
          "list them with pdc-ckpt ls " + flags.directory};
}

int show(const Flags& flags) {
  std::int64_t minibatches = 0;
  Manifest manifest;
  if (pdcrt::Status status = choose(flags, minibatches); !status) return told(status);
  if (pdcrt::Status status = pdcrt::readManifest(flags.directory, minibatches, manifest); !status) return told(status);
  std::cout << toJson(manifest);
  return 0;
}

/// The files of weights that a run has exported to `directory`, stage by stage and member by member; none: they are no
/// such weights.
std::vector<std::vector<std::string>> exportedFiles(const std::string& directory) {
  std::vector<std::vector<std::string>> stages;
  while (true) {
    std::vector<std::string> files =
        pdcrt::memberFiles(directory + "/stage" + std::to_string(stages.size()) + ".safetensors");
    if (files.empty()) return stages;
    stages.push_back(std::move(files));
  }
}

/// Writes what a command makes of trained weights.
using Writer = std::function<Status(const Flags&, const TrainedTensors&, const AdapterRecord&, Diagnostics&)>;

template <auto write>
Status merged(const Flags& flags, const TrainedTensors& trained, const AdapterRecord& record, Diagnostics& diags) {
  return writeMerged(write, flags.model, trained, record, flags.output, diags);
}

Status adapter(const Flags& flags, const TrainedTensors& trained, const AdapterRecord& record, Diagnostics& diags) {
  return writeAdapter(flags.model, trained, record, flags.output, flags.strip, diags);
}

/// `text`: the metadata of `file`; empty: there are no adapters.
Expected<AdapterRecord> recordOf(const std::string& text, const std::string& file, Diagnostics& diags) {
  return text.empty() ? Expected<AdapterRecord>(AdapterRecord{}) : adaptersFromJson(text, file, diags);
}

int writeExported(const Flags& flags, const Writer& write, const std::vector<std::vector<std::string>>& stages) {
  std::vector<std::string> names;
  for (const std::vector<std::string>& members : stages) names.insert(names.end(), members.begin(), members.end());
  pdcrt::StoredTensors tensors;
  pdcrt::SafetensorsFile first;
  if (pdcrt::Status status = tensors.open(names); !status) return told(status);
  if (pdcrt::Status status = first.open(names.front()); !status) return told(status);
  Diagnostics diags(&std::cerr);
  const auto text = first.metadata().find(pdcrt::adaptersKey);
  const Expected<AdapterRecord> record =
      recordOf(text == first.metadata().end() ? "" : text->second, names.front(), diags);
  if (!record || !write(flags, tensors.whole(), *record, diags)) return exitCodeOf(diags);
  std::cout << "wrote " << flags.output << " from the weights of " << stages.size()
            << (stages.size() == 1 ? " stage" : " stages") << "\n";
  return 0;
}

/// The weights in the folder that --base names, or that pdc has written there; none without the flag.
pdcrt::Status openBase(const Flags& flags, pdcrt::StoredTensors& base) {
  if (flags.base.empty()) return {};
  std::error_code ignored;
  std::vector<std::string> names;
  const std::string inside = flags.base + "/weights";
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::is_directory(inside, ignored) ? inside : flags.base, ignored))
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().string());
  std::sort(names.begin(), names.end());
  if (names.empty())
    return {pdcrt::Exit::badData, flags.base + ": holds no .safetensors file", "name a folder that pdc has written"};
  return base.open(names);
}

int writeFrom(const Flags& flags, const Writer& write) {
  if (const auto stages = exportedFiles(flags.directory); !stages.empty()) return writeExported(flags, write, stages);
  std::int64_t minibatches = 0;
  pdcrt::CheckpointReader reader;
  if (pdcrt::Status status = choose(flags, minibatches); !status) return told(status);
  if (pdcrt::Status status = pdcrt::verifyCheckpoint(flags.directory, minibatches); !status) return told(status);
  if (pdcrt::Status status = reader.open(flags.directory, minibatches); !status) return told(status);
  std::map<std::string, pdcrt::TensorRecord> tensors;
  if (pdcrt::Status status = reader.weights(tensors); !status) return told(status);
  std::vector<std::vector<float>> means; // running statistics of stages with replicas
  for (const std::string& name : reader.averagedNames()) {
    if (pdcrt::Status status = reader.meanState(name, means.emplace_back()); !status) return told(status);
    tensors[name].values = std::as_bytes(std::span(means.back()));
  }
  std::map<std::string, pdcrt::FileSum> frozen;
  if (pdcrt::Status status = reader.frozen(frozen); !status) return told(status);
  pdcrt::StoredTensors base;
  if (pdcrt::Status status = openBase(flags, base); !status) return told(status);
  Diagnostics diags(&std::cerr);
  std::deque<std::vector<std::byte>> made;
  const Expected<AdapterRecord> record = recordOf(reader.adapters(), flags.directory, diags);
  if (!record || !takeFrozen(flags.model, frozen, base.whole(), tensors, made, diags) ||
      !write(flags, tensors, *record, diags))
    return exitCodeOf(diags);
  std::cout << "wrote " << flags.output << " from the checkpoint after " << minibatches << " minibatches\n";
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app("Lists, verifies and exports the checkpoints of a run", "pdc-ckpt");
  addStandardFlags(app);
  app.require_subcommand(1);
  Flags flags;
  auto command = [&](const char* name, const char* help) {
    CLI::App* result = app.add_subcommand(name, help);
    result->add_option("DIR", flags.directory, "the run's --checkpoint-dir")->required();
    return result;
  };
  CLI::App* const ls = command("ls", "one line per checkpoint");
  CLI::App* const verify = command("verify", "reads every byte and compares the checksums");
  CLI::App* const showing = command("show", "prints the manifest");
  CLI::App* const onnx =
      command("to-onnx", "writes the model with the weights of a checkpoint, or of --export-weights");
  CLI::App* const dict = command("to-state-dict", "the same as the state_dict of the PyTorch module");
  CLI::App* const peft = command("to-adapter", "the adapters of pdc --lora as a folder that PEFT reads");
  for (CLI::App* one : {showing, onnx, dict, peft})
    one->add_option("--at", flags.at, "the checkpoint after so many minibatches (the newest)")
        ->type_name("MINIBATCHES");
  for (CLI::App* one : {onnx, dict, peft}) {
    one->add_option("--model", flags.model, "the model that was trained")->required()->type_name("MODEL.onnx");
    one->add_option("-o", flags.output, one == peft ? "the folder to write" : "the file to write")
        ->required()
        ->type_name(one == onnx   ? "trained.onnx"
                    : one == dict ? "F.safetensors"
                                  : "DIR");
    one->add_option("--base", flags.base,
                    "what pdc has written for the run\nWhere the run began with other weights than the model's: frozen "
                    "parameters are taken from there.")
        ->type_name("DIR");
  }
  peft->add_option("--strip", flags.strip, "a prefix that is taken off the paths of the layers")->type_name("PREFIX");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  if (*ls || *verify) return list(flags, static_cast<bool>(*verify));
  if (*showing) return show(flags);
  return writeFrom(flags, *onnx   ? Writer(merged<writeTrainedOnnx>)
                          : *dict ? Writer(merged<writeStateDict>)
                                  : Writer(adapter));
}
