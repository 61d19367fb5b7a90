// A folder as pdc writes it, for the hand-written stages of LinearStages.h: plan.json, schedule.txt, training.json,
// weights and data. It is removed with the object.
#pragma once

#include "LinearStages.h"

#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/MappedFile.h"
#include "pdcrt/Npy.h"
#include "pdcrt/Run.h"
#include "pdcrt/Safetensors.h"
#include "pdcrt/Training.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

class RunFolder {
public:
  RunFolder(const std::vector<int>& replicas, const std::vector<int>& warmup, std::int64_t microbatches = 0) {
    std::string pattern = testing::TempDir() + "pdcrt-run-XXXXXX";
    path = ::mkdtemp(pattern.data());
    std::vector<pdc::StageShape> shapes;
    for (std::size_t s = 0; s < replicas.size(); ++s)
      shapes.push_back({.replicas = replicas[s],
                        .warmup = warmup[s],
                        .syncDelay = microbatches == 0 && replicas[s] > 1 && replicas.size() > 1 ? 1 : 0});
    pdc::PipelineShape shape = pdc::straightShape(shapes);
    shape.microbatches = microbatches;
    schedule = pdc::buildSchedule(shape);
    training.batch = linear::batch;
    training.learningRate = 0.1;
    training.loss = training.metric = "mse";
    use(schedule);
    write("training.json", toJson(training));
    writeWeights(static_cast<int>(replicas.size()));
  }
  ~RunFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  /// Another schedule for the same stages.
  void use(const pdcrt::Schedule& other) {
    schedule = other;
    write("schedule.txt", toString(schedule));
    write("plan.json", planJson());
  }

  void write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(pdcrt::writeAtomically(path + "/" + name, text));
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path + "/" + name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  /// data/x.npy and data/target.npy with `samples` rows of noise.
  void writeData(std::int64_t samples) const {
    std::filesystem::create_directories(path + "/data");
    for (const char* name : {"x", "target"}) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < samples * linear::width; ++i) values.push_back(linear::noise(name, i));
      const std::int64_t shape[] = {samples, linear::width};
      ASSERT_TRUE(pdcrt::writeNpy(path + "/data/" + name + ".npy", pdcrt::Element::f32, shape,
                                  std::as_bytes(std::span(values))));
    }
  }

  std::string path;
  pdcrt::Schedule schedule;
  pdcrt::Training training;

private:
  std::string planJson() const {
    std::string stages, ranks;
    for (std::size_t s = 0; s < schedule.stages.size(); ++s)
      stages += std::string(s ? ", " : "") +
                R"({"forward_ms": 1, "input_gradient_ms": 1, "weight_gradient_ms": 1, "memory_bytes": 4096})";
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
      std::string hosts;
      for (const pdcrt::Host& host : schedule.ranks[r].hosts)
        hosts += (hosts.empty() ? "" : ", ") + ("{\"stage\": " + std::to_string(host.stage)) +
                 ", \"replica\": " + std::to_string(host.replica) + "}";
      ranks += std::string(r ? ", " : "") + "{\"rank\": " + std::to_string(r) + ", \"devices\": [0], \"hosts\": [" +
               hosts + "]}";
    }
    return "{\"model_hash\": \"0000\", \"time_ms\": 3, \"stages\": [" + stages + "], \"ranks\": [" + ranks + "]}\n";
  }
  void writeWeights(int count) const {
    std::vector<pdcrt::TensorRecord> records;
    std::vector<std::vector<float>> values;
    for (const pdcrt::Stage* stage : linear::linearStages(count)) {
      auto add = [&](const auto& row) {
        values.emplace_back(static_cast<std::size_t>(row.shape.elements()));
        ASSERT_TRUE(
            linear::readInitial(row.name, row.element, row.shape, std::as_writable_bytes(std::span(values.back()))));
        records.push_back({row.name, row.element, {row.shape.dims, row.shape.dims + row.shape.rank}, {}});
      };
      for (const pdcrt::ParameterRow& row : stage->parameters) add(row);
      for (const pdcrt::StateRow& row : stage->states) add(row);
    }
    for (std::size_t i = 0; i < records.size(); ++i) records[i].values = std::as_bytes(std::span(values[i]));
    std::filesystem::create_directories(path + "/weights");
    ASSERT_TRUE(pdcrt::writeSafetensors(path + "/weights/initial.safetensors", records));
  }
};

/// pdcrt::run with these flags, in the folder.
inline int runIn(const RunFolder& folder, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"pipeline", "--dir", folder.path});
  std::vector<char*> arguments;
  for (std::string& flag : flags) arguments.push_back(flag.data());
  const std::vector<const pdcrt::Stage*> stages = linear::linearStages(static_cast<int>(folder.schedule.stages.size()));
  return pdcrt::run(static_cast<int>(arguments.size()), arguments.data(), stages);
}

/// How a run ended, and what it said.
struct Outcome {
  int code;
  std::string out, errors;
};

inline Outcome outcomeOf(const RunFolder& folder, const std::vector<std::string>& flags) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = runIn(folder, flags);
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

/// On synthetic data, the same in every run.
inline Outcome trainedOutcomeOf(const RunFolder& folder, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"--data=synthetic", "--samples=1000", "--seed=7"});
  return outcomeOf(folder, flags);
}

/// The files of a folder, by name.
inline std::map<std::string, std::string> filesOf(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    std::ostringstream text;
    text << file.rdbuf();
    files[entry.path().filename()] = text.str();
  }
  return files;
}
