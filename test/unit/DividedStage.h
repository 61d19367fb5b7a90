// A stage that computes nothing, with tensors of every kind that a team divides, and processes that hold it: for what
// reads and writes weights.
#pragma once

#include "LinearStages.h"

#include "exec/Executor.h"
#include "files/WeightFile.h"
#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Arena.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace team {

using namespace pdcrt;

/// For teams of 1, 2 or 4 members.
class DividedStage {
public:
  explicit DividedStage(int members) : members_(members) {
    add("qkv", {6, 12}, along(1, 12, 3), true);
    add("table", {7, 4}, along(0, 7), true);
    add("bias", {5}, {}, true);
    add("filter", {64, 16, 3, 3}, along(0, 64), true, /*inBlocks=*/true);
    add("fixed", {8, 3}, along(0, 8), false);
    add("fixedFilter", {64, 16, 1, 1}, along(0, 64), false, /*inBlocks=*/true);
    for (const StateRow& row :
         {StateRow{"mean", Element::f32, {4}, 0, along(0, 4)}, StateRow{"count", Element::f32, {3}, 0}}) {
      states.push_back(row);
      states.back().shape = localShape(row.shape, row.part);
      states.back().offset = place(stage.bytes.state, states.back().shape);
    }
    stage.members = members_;
    stage.index = 0;
    stage.count = 1;
    stage.parameters = parameters;
    stage.gradients = gradients;
    stage.states = states;
    stage.buildKernels = [](Setup&) { return std::shared_ptr<const void>(); };
  }
  DividedStage(const DividedStage&) = delete;
  DividedStage& operator=(const DividedStage&) = delete;

  Stage stage = {};
  std::vector<ParameterRow> parameters;
  std::vector<GradientRow> gradients;
  std::vector<StateRow> states;

private:
  Part along(int axis, std::int64_t size, std::int64_t blocks = 1) const {
    return members_ == 1 ? Part{} : Part{axis, blocks, members_, size};
  }
  static std::size_t place(std::size_t& block, const Shape& shape) {
    const std::size_t offset = block;
    block += arenaBytes(static_cast<std::size_t>(shape.elements()) * sizeof(float));
    return offset;
  }
  void add(const char* name, const Shape& whole, const Part& part, bool trained, bool inBlocks = false) {
    const Shape local = localShape(whole, part);
    BlockBytes& bytes = stage.bytes;
    if (trained) gradients.push_back({static_cast<int>(parameters.size()), place(bytes.gradients, local)});
    parameters.push_back({.name = name,
                          .element = Element::f32,
                          .shape = local,
                          .offset = place(trained ? bytes.weights : bytes.frozen, local),
                          .bucket = 0,
                          .trained = trained,
                          .inBlocks = inBlocks,
                          .part = part});
  }
  int members_;
};

/// A whole tensor whose values follow from its name.
inline std::vector<float> wholeOf(const std::string& name, const Shape& whole) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < whole.elements(); ++i) values.push_back(linear::noise(name, i));
  return values;
}

/// What a member has of it, row-major.
template <class Row>
std::vector<float> ownOf(const std::vector<float>& whole, const Row& row, int member) {
  std::vector<float> own(static_cast<std::size_t>(row.shape.elements()));
  copyPart(wholeShape(row.shape, row.part), sizeof(float), {}, std::as_bytes(std::span(whole)), {row.part, member},
           std::as_writable_bytes(std::span(own)));
  return own;
}
template <class Row>
std::vector<float> ownOf(const std::string& name, const Row& row, int member) {
  return ownOf(wholeOf(name, wholeShape(row.shape, row.part)), row, member);
}

/// One process: a member of the team that computes for a replica of the stage. Its memory is all -1.
struct Process {
  Process(const Schedule& schedule, const DividedStage& own, const Training& training, int replica, int member)
      : transports(makeThreadTransports(static_cast<int>(schedule.ranks.size()), {})),
        communicator(*transports[0]), stages{&own.stage}, executor({.schedule = &schedule,
                                                                    .rank = schedule.rankOf(0, replica),
                                                                    .member = member,
                                                                    .stages = stages,
                                                                    .training = &training,
                                                                    .communicator = &communicator}) {
    status = executor.prepare();
    if (!status) return;
    for (std::byte* block : {hosted().versions.raw(0), hosted().frozen, hosted().state, hosted().optimizerState}) {
      const BlockBytes& bytes = own.stage.bytes;
      const std::size_t size = block == hosted().state            ? bytes.state
                               : block == hosted().frozen         ? bytes.frozen
                               : block == hosted().optimizerState ? hosted().optimizer->layout().bytes()
                                                                  : bytes.weights;
      std::fill_n(reinterpret_cast<float*>(block), size / sizeof(float), -1.0f);
    }
  }
  ~Process() { communicator.stop(); }
  HostedStage& hosted() { return executor.hosted()[0]; }

  std::vector<std::unique_ptr<Transport>> transports;
  Communicator communicator;
  std::vector<const Stage*> stages;
  Executor executor;
  Status status;
};

/// What a process must have: every tensor by its name.
inline std::map<std::string, std::vector<float>> expectedOf(Process& process,
                                                            const std::map<std::string, std::vector<float>>& states) {
  HostedStage& hosted = process.hosted();
  std::map<std::string, std::vector<float>> all;
  for (const ParameterRow& row : hosted.stage->parameters) {
    all[row.name] = ownOf(row.name, row, hosted.member);
    if (row.trained)
      for (const std::string& piece : hosted.optimizer->layout().pieces(row))
        all[piece + "/" + row.name] = ownOf(piece + "/" + row.name, row, hosted.member);
  }
  for (const StateRow& row : hosted.stage->states) all[row.name] = ownOf(states.at(row.name), row, hosted.member);
  return all;
}

/// Calls see(name, row of a parameter or null, values in memory) for every tensor of a process.
template <class See>
void eachTensor(HostedStage& hosted, See see) {
  const auto seeAt = [&](const std::string& name, const auto& row, const ParameterRow* parameter, std::byte* at) {
    see(name, parameter, std::span<std::byte>(at, static_cast<std::size_t>(row.shape.elements()) * sizeof(float)));
  };
  for (const ParameterRow& row : hosted.stage->parameters) {
    seeAt(row.name, row, &row, (row.trained ? hosted.versions.raw(0) : hosted.frozen) + row.offset);
    const OptimizerLayout& layout = hosted.optimizer->layout();
    for (std::size_t piece = 0; row.trained && piece < layout.pieces(row).size(); ++piece)
      seeAt(layout.pieces(row)[piece] + "/" + row.name, row, &row, hosted.optimizerState + layout.offsetOf(piece, row));
  }
  for (const StateRow& row : hosted.stage->states) seeAt(row.name, row, nullptr, hosted.state + row.offset);
}

/// Writes what it must have into the memory of a process.
inline void fill(Process& process, const std::map<std::string, std::vector<float>>& states) {
  const auto expected = expectedOf(process, states);
  eachTensor(process.hosted(),
             [&](const std::string& name, const ParameterRow* parameter, std::span<std::byte> memory) {
               std::memcpy(memory.data(), expected.at(name).data(), memory.size());
               EXPECT_TRUE(!parameter || WeightFile::load(*parameter, memory));
             });
  process.hosted().updates = 17;
}

/// Expects it there, bit for bit.
inline void expectFilled(Process& process, const std::map<std::string, std::vector<float>>& states,
                         bool withOptimizer = true) {
  const auto expected = expectedOf(process, states);
  eachTensor(process.hosted(),
             [&](const std::string& name, const ParameterRow* parameter, std::span<std::byte> memory) {
               if (!withOptimizer && name.find('/') != std::string::npos) return;
               std::vector<float> values(memory.size() / sizeof(float));
               std::memcpy(values.data(), memory.data(), memory.size());
               EXPECT_TRUE(!parameter || WeightFile::store(*parameter, std::as_writable_bytes(std::span(values))));
               EXPECT_EQ(std::memcmp(values.data(), expected.at(name).data(), memory.size()), 0)
                   << name << " of member " << process.hosted().member;
             });
}

inline Schedule scheduleOf(int replicas, int members) {
  Schedule schedule = pdc::buildSchedule(pdc::straightShape({{.replicas = replicas, .warmup = 0}}));
  schedule.stages[0].team = members;
  return schedule;
}

} // namespace team
