// Runs executors for all ranks of a schedule, and all members of their teams, as threads of the test. What is by rank
// here is by process.
#pragma once

#include "exec/Executor.h"
#include "pdcrt/Places.h"

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

/// The newest weights that a stage replica has: all, or those of its shard.
inline std::span<const std::byte> newestOf(const pdcrt::HostedStage& hosted) {
  const std::size_t bytes = hosted.sweeps.isUsed()
                                ? static_cast<std::size_t>(hosted.optimizer->shards()->most()) * sizeof(float)
                                : hosted.stage->bytes.weights;
  return {hosted.versions.at(hosted.versions.newest()), bytes};
}

/// These, and the state, bit for bit.
inline std::string bitsOf(const pdcrt::HostedStage& hosted) {
  const std::span<const std::byte> weights = newestOf(hosted);
  return std::string(reinterpret_cast<const char*>(weights.data()), weights.size()) +
         std::string(reinterpret_cast<const char*>(hosted.state), hosted.stage->bytes.state);
}

struct ThreadRun {
  const pdcrt::Schedule* schedule = nullptr;
  std::vector<const pdcrt::Stage*> stages;
  pdcrt::Training training;
  pdcrt::BatchSource* data = nullptr;
  pdcrt::Executor::ReadTensor readWeights;
  pdcrt::EmulatedLink link;
  std::size_t floatsOfReduction = pdcrt::ExecutorSetup().floatsOfReduction;
  std::function<pdcrt::RunObserver*(int rank)> observer = [](int) { return nullptr; };
  std::function<std::vector<std::unique_ptr<pdcrt::Transport>>(int ranks)> makeTransports; ///< instead of `threads`

  std::vector<std::unique_ptr<pdcrt::Transport>> transports;
  std::vector<std::unique_ptr<pdcrt::Communicator>> communicators;
  std::vector<std::unique_ptr<pdcrt::Executor>> executors;
  std::vector<pdcrt::Status> statuses;

  /// Prepares every rank and then runs `body` in one thread per rank. Returns whether all went well.
  bool run(const std::function<pdcrt::Status(pdcrt::Executor&, int rank)>& body) {
    const pdcrt::Places places(*schedule);
    const int ranks = places.processes();
    transports = makeTransports ? makeTransports(ranks) : pdcrt::makeThreadTransports(ranks, link);
    statuses.resize(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      communicators.push_back(std::make_unique<pdcrt::Communicator>(*transports[static_cast<std::size_t>(rank)]));
      executors.push_back(
          std::make_unique<pdcrt::Executor>(pdcrt::ExecutorSetup{.schedule = schedule,
                                                                 .rank = places.at(rank).rank,
                                                                 .member = places.at(rank).member,
                                                                 .stages = stages,
                                                                 .training = &training,
                                                                 .communicator = communicators.back().get(),
                                                                 .data = data,
                                                                 .observer = observer(rank),
                                                                 .floatsOfReduction = floatsOfReduction}));
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        const auto i = static_cast<std::size_t>(rank);
        pdcrt::Executor& executor = *executors[i];
        pdcrt::Status& status = statuses[i];
        if (status = executor.prepare(); status)
          if (status = executor.setWeights(readWeights); status) status = body(executor, rank);
        if (!status) transports[i]->abort(static_cast<int>(status.code()));
      });
    for (std::thread& thread : threads) thread.join();
    for (const auto& communicator : communicators) communicator->stop();
    for (const pdcrt::Status& status : statuses)
      if (!status) return false;
    return true;
  }

  /// The hosted replica, after run().
  const pdcrt::HostedStage& hosted(int stage, int replica, int member = 0) const {
    const int process = pdcrt::Places(*schedule).process({stage, replica}, member);
    for (const pdcrt::HostedStage& h : executors[static_cast<std::size_t>(process)]->hosted())
      if (h.host.stage == stage && h.host.replica == replica) return h;
    std::abort();
  }
  /// All of its newest weights.
  const std::byte* weights(int stage, int replica, int member = 0) const {
    const pdcrt::HostedStage& own = hosted(stage, replica, member);
    if (!own.sweeps.isUsed()) return own.versions.at(own.versions.newest());
    std::vector<std::byte>& whole = composed_[stage];
    whole.assign(own.stage->bytes.weights, std::byte{0});
    for (int r = 0; r < own.replicas; ++r)
      for (const pdcrt::Optimizer::Own& part : hosted(stage, r).optimizer->own())
        std::memcpy(whole.data() + part.parameter->row->offset + part.range.begin * 4,
                    newestOf(hosted(stage, r)).data() + part.range.at * 4,
                    static_cast<std::size_t>(part.range.count) * 4);
    return whole.data();
  }
  std::uint64_t bytesSent(pdcrt::Traffic traffic) const {
    std::uint64_t sum = 0;
    for (const auto& transport : transports) sum += transport->bytesSent[static_cast<std::size_t>(traffic)];
    return sum;
  }

private:
  mutable std::map<int, std::vector<std::byte>> composed_; ///< of shards, by stage
};
