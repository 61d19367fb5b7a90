// The members of a team as threads of the test.
#pragma once

#include "collectives/TeamWork.h"

#include <functional>
#include <memory>
#include <thread>
#include <vector>

class TeamThreads {
public:
  using Transports = std::vector<std::unique_ptr<pdcrt::Transport>>;

  TeamThreads(int members, std::vector<pdcrt::Collective> collectives, Transports ofMembers = {},
              pdcrt::TeamObserver* observer = nullptr)
      : transports(ofMembers.empty() ? pdcrt::makeThreadTransports(members) : std::move(ofMembers)) {
    std::vector<int> processes;
    for (int member = 0; member < members; ++member) processes.push_back(member);
    for (int member = 0; member < members; ++member) {
      communicators.push_back(std::make_unique<pdcrt::Communicator>(*transports[static_cast<std::size_t>(member)]));
      teams.emplace_back();
      made.push_back(transports[static_cast<std::size_t>(member)]->makeTeam(collectives, teams.back()));
      if (teams.back() || !made.back()) continue;
      teams.back() =
          std::make_unique<pdcrt::TeamWork>(pdcrt::TeamGroup{.processes = processes, .self = member, .channel = 5},
                                            collectives, *communicators.back(), member == 0 ? observer : nullptr);
    }
  }
  ~TeamThreads() { stop(); }
  TeamThreads(const TeamThreads&) = delete;
  TeamThreads& operator=(const TeamThreads&) = delete;

  /// Runs `body` for each member in a thread of its own, with the stream of its kernels.
  void run(const std::function<void(pdcrt::Stream& q, int member)>& body) {
    std::vector<std::thread> threads;
    for (int member = 0; member < static_cast<int>(teams.size()); ++member)
      threads.emplace_back([&, member] {
        pdcrt::Stream q;
        q.join(teams[static_cast<std::size_t>(member)].get());
        body(q, member);
      });
    for (std::thread& thread : threads) thread.join();
  }
  /// Before bytes are counted.
  void stop() {
    for (const auto& communicator : communicators) communicator->stop();
  }
  std::uint64_t bytesSent(int member) const {
    return transports[static_cast<std::size_t>(member)]->bytesSent[static_cast<std::size_t>(pdcrt::Traffic::team)];
  }

  Transports transports;
  std::vector<std::unique_ptr<pdcrt::Communicator>> communicators;
  std::vector<std::unique_ptr<pdcrt::Team>> teams; ///< the transport's own, or one over transfers
  std::vector<pdcrt::Status> made;                 ///< what the transports say of their own
};
