// Replays a 1F1B run with weight stashing from the formulas of docs/Semantics.md alone, in f64 through the interpreter,
// and compares the weights that the run exported. It shares with the run: the data files, the order of samples, and the
// text of the training graph. It knows nothing of kernels, executor, version ring, schedule lists or transport.
//
//   InterpreterReplay RUN_DIR TRAINING_IR DATA_DIR EXPORTED_DIR MINIBATCHES SEED
//
// Prints the largest norm-wise relative difference over all parameters; exit 1 if it is above 1e-4.
#include "pdc/IR/Interpreter.h"
#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"
#include "pdc/Ops/AllOps.h"
#include "pdcrt/Npy.h"
#include "pdcrt/Random.h"
#include "pdcrt/Safetensors.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

namespace fs = std::filesystem;
using namespace pdc;
using Tensors = std::map<std::string, Tensor>;

static std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

[[noreturn]] static void fail(const std::string& message) {
  std::cerr << "InterpreterReplay: " << message << "\n";
  std::exit(2);
}

static Tensor asDoubles(ElementType element, const Shape& shape, std::span<const std::byte> bytes) {
  return Tensor({element, shape, plain}, bytes).convertedTo(ElementType::f64);
}

/// All tensors of the safetensors files of a folder, in f64.
static Tensors readWeights(const fs::path& folder) {
  Tensors tensors;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    pdcrt::SafetensorsFile file;
    if (pdcrt::Status status = file.open(entry.path()); !status) fail(status.message());
    for (const auto& [name, record] : file.tensors())
      tensors[name] = asDoubles(record.element, record.shape, record.values);
  }
  return tensors;
}

/// One stage as the formulas see it: replicas, w_s, d_s, and the parameters that it owns.
struct Stage {
  std::int64_t replicas, warmup, delay;
  std::vector<std::string> parameters;
  std::vector<Tensors> versions; ///< every version ever made
  Tensors momentum;
  std::map<std::int64_t, Tensors> gradients; ///< by minibatch, until its update
};

/// The data set's rows for a minibatch.
static Tensor batchOf(const pdcrt::NpyFile& file, std::span<const std::int64_t> samples, const Type& type) {
  const std::size_t rowBytes = file.values().size() / static_cast<std::size_t>(file.shape()[0]);
  std::vector<std::byte> bytes;
  for (std::int64_t sample : samples) {
    auto row = file.values().subspan(static_cast<std::size_t>(sample) * rowBytes, rowBytes);
    bytes.insert(bytes.end(), row.begin(), row.end());
  }
  Shape shape = file.shape();
  shape[0] = static_cast<std::int64_t>(samples.size());
  return Tensor({file.element(), shape, plain}, bytes).convertedTo(type.element).reshaped(type.shape);
}

/// The largest difference of exported weights from the replay's, relative to the parameter's norm.
static double largestDifference(const std::vector<Stage>& stages, const Tensors& exported) {
  double worst = 0;
  for (const Stage& stage : stages)
    for (const std::string& name : stage.parameters) {
      auto expected = stage.versions.back().at(name).data<double>();
      auto actual = exported.at(name).data<double>();
      auto start = stage.versions.front().at(name).data<double>();
      double difference = 0, norm = 0, moved = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
        norm += expected[i] * expected[i];
        moved += (expected[i] - start[i]) * (expected[i] - start[i]);
      }
      if (moved == 0) fail("parameter " + name + " did not move: the replay shows nothing");
      worst = std::max(worst, std::sqrt(difference / norm));
    }
  return worst;
}

int main(int argc, char** argv) {
  if (argc != 7) fail("expects RUN_DIR TRAINING_IR DATA_DIR EXPORTED_DIR MINIBATCHES SEED");
  const fs::path runDir = argv[1], dataDir = argv[3];
  const std::int64_t minibatches = std::stoll(argv[5]);
  const std::uint64_t seed = std::stoull(argv[6]);

  OpRegistry registry;
  registerAllOps(registry);
  Diagnostics diags(&std::cerr);
  auto module = parseModule(read(argv[2]), argv[2], registry, diags);
  if (!module) return 2;
  const Graph& graph = *(*module)->findGraph("main");

  // The plan's numbers, and who owns which parameter.
  const auto plan = nlohmann::json::parse(read(runDir / "plan.json"));
  const auto training = nlohmann::json::parse(read(runDir / "training.json"));
  const Tensors initial = readWeights(runDir / "weights");
  std::vector<Stage> stages;
  for (std::size_t s = 0; s < plan["stages"].size(); ++s) {
    const auto& json = plan["stages"][s];
    Stage stage{json["replicas"], json["warmup"], json["sync_delay"], {}, {}, {}, {}};
    pdcrt::SafetensorsFile shard;
    const std::string path = (runDir / "weights" / ("stage" + std::to_string(s) + ".safetensors")).string();
    if (pdcrt::Status status = shard.open(path); !status) fail(status.message());
    Tensors zero;
    for (const auto& [name, record] : shard.tensors()) {
      const Parameter* parameter = (*module)->findParameter(name);
      if (!parameter) fail("the training graph has no parameter " + name);
      if (parameter->role != ParameterRole::trained) continue;
      stage.parameters.push_back(name);
      zero[name] = initial.at(name);
      stage.momentum[name] = Tensor(initial.at(name).type());
    }
    stage.versions = {zero};
    stages.push_back(std::move(stage));
  }
  const double lr = training["lr"], decay = training["weight_decay"];
  const double momentum = training["optimizer"] == "momentum" ? training["momentum"].get<double>() : 0.0;
  if (training["optimizer"] != "sgd" && training["optimizer"] != "momentum") fail("only sgd and momentum are replayed");

  std::map<std::string, pdcrt::NpyFile> files;
  for (const GraphInput& input : graph.inputs)
    if (pdcrt::Status status = files[input.value->name()].open((dataDir / (input.value->name() + ".npy")).string());
        !status)
      fail(status.message());
  const std::int64_t batch = graph.inputs.at(0).value->type().shape.at(0);
  const std::int64_t samples = files.begin()->second.shape()[0];
  const std::int64_t perEpoch = samples / batch;

  for (std::int64_t b = 0; b < minibatches; ++b) {
    // Routing, samples, epochs.
    const auto order = pdcrt::permutation(seed, static_cast<std::uint64_t>(b / perEpoch), samples);
    const std::span<const std::int64_t> chosen(order.data() + b % perEpoch * batch, static_cast<std::size_t>(batch));
    Tensors inputs;
    for (const GraphInput& input : graph.inputs)
      inputs[input.value->name()] = batchOf(files[input.value->name()], chosen, input.value->type());

    // V_s(b) = max(0, floor(b / R_s) - w_s - d_s); running statistics do not enter training.
    Tensors weights = initial;
    for (const Stage& stage : stages) {
      const std::int64_t version = std::max<std::int64_t>(0, b / stage.replicas - stage.warmup - stage.delay);
      for (const std::string& name : stage.parameters)
        weights[name] = stage.versions.at(static_cast<std::size_t>(version)).at(name);
    }
    auto result = interpret(graph, inputs, weights, Precision::f64, diags, seed, static_cast<std::uint64_t>(b));
    if (!result) return 2;

    // W^{u+1} = optimizer(W^u, mean over [u R, (u+1) R)), with lr R / R_0; the last update has P minibatches and lr P /
    // R_0.
    for (Stage& stage : stages) {
      for (const std::string& name : stage.parameters) stage.gradients[b][name] = result->gradients.at(name);
      const std::int64_t first = b / stage.replicas * stage.replicas;
      if (b + 1 != std::min(first + stage.replicas, minibatches)) continue;
      const std::int64_t count = b + 1 - first;
      const double rate = lr * static_cast<double>(count) / static_cast<double>(stages[0].replicas);
      Tensors next;
      for (const std::string& name : stage.parameters) {
        Tensor w = stage.versions.back().at(name);
        auto values = w.mutableData<double>();
        auto velocity = stage.momentum[name].mutableData<double>();
        for (std::size_t i = 0; i < values.size(); ++i) {
          double gradient = 0;
          for (std::int64_t k = first; k <= b; ++k) gradient += stage.gradients[k][name].data<double>()[i];
          gradient = gradient / static_cast<double>(count) + decay * values[i];
          velocity[i] = momentum * velocity[i] + gradient;
          values[i] -= rate * velocity[i];
        }
        next[name] = w;
      }
      stage.versions.push_back(std::move(next));
      for (std::int64_t k = first; k <= b; ++k) stage.gradients.erase(k);
    }
  }

  const double worst = largestDifference(stages, readWeights(argv[4]));
  std::cout << "largest relative difference " << worst << "\n";
  return worst <= 1e-4 ? 0 : 1;
}
