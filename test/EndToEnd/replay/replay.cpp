// Compares what a training run exported with a replay of the run from the formulas (test/unit/Replay.h), bit for bit.
// The stage functions are those of the run; everything else is the replay's own: this file stands in for the runtime's
// `run`, so a generated pipeline.cpp that is linked with it first replays instead of training (replay.cmake).
//
//   replay RUN_DIR DATA_DIR EXPORTED_DIR MINIBATCHES SEED [latest|version|all-reduce|learning-rate]
//
// The last argument makes the replay wrong in that respect, so that a test can see that it would notice. Exit 0: the
// same bits; 1: not; 2: could not be compared.
#include "Replay.h"

#include "data/Data.h"
#include "pdcrt/Device.h"
#include "pdcrt/Run.h"
#include "pdcrt/Safetensors.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

namespace fs = std::filesystem;
using namespace pdcrt;

static void require(const Status& status) {
  if (status) return;
  std::cerr << "replay: " << status.message() << "\n";
  std::exit(2);
}

static std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

int pdcrt::run(int argc, char** argv, std::span<const Stage* const> program, const char*) {
  const std::vector<const Stage*> stages(program.begin(), program.end());
  if (argc < 6) return std::cerr << "replay: expects RUN_DIR DATA_DIR EXPORTED_DIR MINIBATCHES SEED [mistake]\n", 2;
  device::use(0);
  const fs::path runDir = argv[1], exported = argv[3];
  const std::string wrong = argc > 6 ? argv[6] : "";

  ReplaySetup setup;
  setup.stages = stages;
  const auto plan = nlohmann::json::parse(read(runDir / "plan.json"));
  for (const auto& stage : plan["stages"]) {
    setup.replicas.push_back(stage["replicas"]);
    setup.warmup.push_back(stage["warmup"]);
    setup.syncDelay.push_back(stage["sync_delay"]);
  }
  if (plan["schedule"] != "1f1b") setup.microbatches = plan["microbatches"];
  if (plan["weights"] == "vertical-sync") setup.weights = WeightPolicy::verticalSync;
  if (plan["schedule"] == "2bw") setup.weights = WeightPolicy::twoVersions;
  require(parseTraining(read(runDir / "training.json"), "training.json", setup.training));
  setup.training.seed = std::stoull(argv[5]);

  DataSet data;
  require(data.open({.path = argv[2], .batch = setup.training.batch, .seed = setup.training.seed}, stages));
  setup.data = &data;

  std::vector<SafetensorsFile> shards(stages.size());
  for (std::size_t s = 0; s < stages.size(); ++s)
    require(shards[s].open((runDir / "weights" / ("stage" + std::to_string(s) + ".safetensors")).string()));
  setup.readWeights = [&](const char* name, Element, const Shape&, std::span<std::byte> destination,
                          const MemberPart&) {
    for (const SafetensorsFile& shard : shards)
      if (const TensorRecord* record = shard.find(name); record && record->values.size() == destination.size()) {
        std::copy(record->values.begin(), record->values.end(), destination.begin());
        return Status();
      }
    return Status(Exit::badData, std::string("no initial value of ") + name);
  };

  Replay replay(setup, {.latest = wrong == "latest",
                        .versionOff = wrong == "version",
                        .reverseAllReduce = wrong == "all-reduce",
                        .learningRateAsIs = wrong == "learning-rate"});
  replay.run(std::stoll(argv[4]));

  std::size_t compared = 0, different = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    SafetensorsFile run;
    require(run.open((exported / ("stage" + std::to_string(s) + ".safetensors")).string()));
    Replay::Block weights = replay.weights(s);
    require(WeightFile::store(stages[s]->parameters, weights.data(), nullptr));
    for (const ParameterRow& row : stages[s]->parameters) {
      if (!row.trained) continue;
      const TensorRecord* record = run.find(row.name);
      if (!record) return std::cerr << "replay: the run did not export " << row.name << "\n", 2;
      ++compared;
      different += std::memcmp(record->values.data(), weights.data() + row.offset, record->values.size()) != 0;
    }
  }
  std::cout << compared << " parameters compared, " << different << " differ\n";
  return compared == 0 ? 2 : different != 0;
}
