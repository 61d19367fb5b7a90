// pdc-ckpt ls|verify|show|to-onnx|to-state-dict DIR: what the checkpoints of a run are, whether they are whole, and the
// way to ONNX and to PyTorch.
#include "../StandardFlags.h"
#include "pdc/Driver/CommandLine.h"
#include "pdc/Import/StateDict.h"
#include "pdc/Import/TrainedOnnx.h"
#include "pdcrt/Checkpoint.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <numeric>

using namespace pdc;
using pdcrt::CheckpointEntry;
using pdcrt::Manifest;

namespace {

struct Flags {
  std::string directory, model, output;
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

/// Writes a file of trained weights; writeTrainedOnnx or writeStateDict.
using Writer = Status (*)(const std::string&, const std::map<std::string, pdcrt::TensorRecord>&, const std::string&,
                          Diagnostics&);

int writeExported(const Flags& flags, Writer write, const std::vector<std::vector<std::string>>& stages) {
  std::vector<std::string> names;
  for (const std::vector<std::string>& members : stages) names.insert(names.end(), members.begin(), members.end());
  pdcrt::StoredTensors tensors;
  if (pdcrt::Status status = tensors.open(names); !status) return told(status);
  Diagnostics diags(&std::cerr);
  if (!write(flags.model, tensors.whole(), flags.output, diags)) return exitCodeOf(diags);
  std::cout << "wrote " << flags.output << " from the weights of " << stages.size()
            << (stages.size() == 1 ? " stage" : " stages") << "\n";
  return 0;
}

int writeFrom(const Flags& flags, Writer write) {
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
  Diagnostics diags(&std::cerr);
  if (!write(flags.model, tensors, flags.output, diags)) return exitCodeOf(diags);
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
  for (CLI::App* one : {showing, onnx, dict})
    one->add_option("--at", flags.at, "the checkpoint after so many minibatches (the newest)")
        ->type_name("MINIBATCHES");
  for (CLI::App* one : {onnx, dict}) {
    one->add_option("--model", flags.model, "the model that was trained")->required()->type_name("MODEL.onnx");
    one->add_option("-o", flags.output, "the file to write")
        ->required()
        ->type_name(one == onnx ? "trained.onnx" : "F.safetensors");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  if (*ls || *verify) return list(flags, static_cast<bool>(*verify));
  return *showing ? show(flags) : writeFrom(flags, *onnx ? writeTrainedOnnx : writeStateDict);
}
