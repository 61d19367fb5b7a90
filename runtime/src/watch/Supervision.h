// This process's end of the supervisor's control channel: a TCP connection to pdc-run, which needs no MPI.
//
// The supervisor names its address and a token in PDC_CONTROL=HOST:PORT and PDC_CONTROL_TOKEN. Lines of text, words
// apart by one space:
//
//   to the supervisor    hello TOKEN PID HOST HASH.BUILD.VARIABLE RANK:STAGE.REPLICA,…  …   one word per rank of this
//                                                                            process
//                        beat RANK COUNT PHASE ACTION MILLISECONDS           each second; ACTION is - before the first
//                        bye CODE                                            the run has ended, in order
//   from it              go                                                  all are there, of one build and plan
//                        signal NUMBER                                       as if the signal had come
//                        stop                                                a rank is gone: record, and exit with 75
//
// The end of the connection means to the supervisor that this process is gone, and to this process what a signal means.
// So does a supervisor that acknowledges nothing for PDC_CONTROL_PATIENCE seconds (60); a process that does not get on
// for as long without one ends with 75.
#pragma once

#include "pdcrt/FlightRecorder.h"
#include "pdcrt/Status.h"

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace pdcrt {

class Supervision {
public:
  /// `recordings`: the folder of the flight recorders' files. `onSignal` is called by another thread.
  Supervision(std::string recordings, std::function<void(int)> onSignal)
      : recordings_(std::move(recordings)), onSignal_(std::move(onSignal)) {}
  ~Supervision();
  Supervision(const Supervision&) = delete;
  Supervision& operator=(const Supervision&) = delete;

  /// Ranks of this process, before connect().
  void add(FlightRecorder& recorder) { recorders_.push_back(&recorder); }

  /// Where there is a supervisor: connects, and waits until all ranks of the run are there. `hash`: of plan, schedule,
  /// training and flags; `build`: of the programs and the runtime; `variable`: of the environment that told this
  /// process its rank. Fails with Exit::again: nobody is there, or says go.
  Status connect(std::uint64_t hash, std::uint64_t build, const std::string& variable = {});

  /// Says goodbye: how the run has ended. Where it has `failed` (and not obeyed a signal), writes the flight recorders.
  void finish(const Status& status, bool failed);

private:
  void run();
  void outlive() const;
  void record(const std::string& why) const;
  bool send(const std::string& line) const;
  void beat() const;
  void obey(const std::string& line);

  std::string recordings_;
  std::function<void(int)> onSignal_;
  std::vector<FlightRecorder*> recorders_;
  int socket_ = -1, wake_[2] = {-1, -1};
  std::thread thread_;
};

} // namespace pdcrt
