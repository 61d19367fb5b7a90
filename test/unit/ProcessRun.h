// Tests whose ranks are processes: a test starts itself as often as there are ranks, by mpirun or one by one, and these
// run one of its disabled tests.
#pragma once

#include "pdcrt/MappedFile.h"
#include "transport/tcp/Sockets.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace processes {

struct Finished {
  int code;
  std::string log;
};

inline std::string commandOf(const std::string& test) {
  return std::filesystem::read_symlink("/proc/self/exe").string() +
         " --gtest_also_run_disabled_tests --gtest_filter=" + test;
}

inline Finished shell(const std::string& command, const std::string& folder) {
  const int status = std::system((command + " > " + folder + "/log 2>&1").c_str());
  Finished result = {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ""};
  if (pdcrt::Status read = pdcrt::readText(folder + "/log", result.log); !read) result.log = read.message();
  return result;
}

/// Runs a disabled test of this program in as many processes, with these variables. mpirun does not always end when a
/// rank has failed: after `limitS` seconds it is ended, with the code 124.
inline Finished mpirunWithin(int limitS, std::size_t ranks, const std::string& test, const std::string& variables,
                             const std::string& folder) {
  return shell("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TEST_FOLDER=" + folder + " " + variables +
                   " timeout --kill-after=10 " + std::to_string(limitS) +
                   " mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n " + std::to_string(ranks) +
                   " " + commandOf(test),
               folder);
}

inline Finished mpirun(std::size_t ranks, const std::string& test, const std::string& variables,
                       const std::string& folder) {
  return mpirunWithin(600, ranks, test, variables, folder);
}

/// A port of this machine that is free now.
inline int freePort() {
  const int socket = pdcrt::listenOn(0), port = pdcrt::portOf(socket);
  ::close(socket);
  return port;
}

/// The same without MPI: each process is told its rank, and where rank 0 listens. The code is that of the rank that
/// failed by itself, where one did (the others end with 75).
inline Finished startOneByOne(std::size_t ranks, const std::string& test, const std::string& variables,
                              const std::string& folder) {
  std::string command = "( ";
  for (std::size_t rank = ranks; rank-- > 0;)
    command += "env TEST_FOLDER=" + folder + " PDC_RANK=" + std::to_string(rank) +
               " PDC_WORLD_SIZE=" + std::to_string(ranks) + " PDC_MASTER=127.0.0.1:$PORT " + variables + " " +
               commandOf(test) + " & pids=\"$pids $!\"; ";
  command += "code=0; for pid in $pids; do wait $pid; c=$?; "
             "if [ $c != 0 ] && { [ $code = 0 ] || [ $code = 75 ]; }; then code=$c; fi; done; exit $code )";
  return shell("PORT=" + std::to_string(freePort()) + "; " + command, folder);
}

} // namespace processes
