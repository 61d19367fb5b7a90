// LINK: pdcrt
// Who has started a process, of whose variables several may be there: the test starts itself in shells that set them.
#include "pdcrt/Launcher.h"
#include "ProcessRun.h"

#include <cstdio>
#include <gtest/gtest.h>

using namespace pdcrt;

namespace {

const std::string torchrun = "RANK=1 WORLD_SIZE=4 MASTER_ADDR=here MASTER_PORT=29400 ",
                  mpi = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 ", hydra = "PMI_RANK=5 PMI_SIZE=6 ",
                  srun = "SLURM_PROCID=7 SLURM_STEP_NUM_TASKS=8 ";

/// What a process is told whose parent's shell has `outer`, and which gets `inner` in addition: "2 of 3 by …, meets at
/// …".
std::string told(const std::string& outer, const std::string& inner) {
  std::string pattern = testing::TempDir() + "pdcrt-launcher-XXXXXX";
  const std::string folder = ::mkdtemp(pattern.data());
  // A shell does not stay where a command is its last one.
  const std::string log = processes::shell("env -i PATH=\"$PATH\" " + outer + " sh -c '" + inner + " " +
                                               processes::commandOf("Launched.DISABLED_Tells") + "; exit $?'",
                                           folder)
                              .log;
  std::filesystem::remove_all(folder);
  const std::size_t begin = log.find("told: ");
  return begin == std::string::npos ? log : log.substr(begin + 6, log.find('\n', begin) - begin - 6);
}

TEST(Launched, AsTheOnlyLauncherSays) {
  EXPECT_EQ(told("", ""), "nothing");
  EXPECT_EQ(told("", torchrun), "1 of 4 by RANK, meets at here:29401");
  EXPECT_EQ(told("", mpi), "2 of 3 by OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(told("", hydra), "5 of 6 by PMI_RANK");
  EXPECT_EQ(told("", srun), "7 of 8 by SLURM_PROCID");
  EXPECT_EQ(told("", "PDC_RANK=0 PDC_WORLD_SIZE=2 PDC_MASTER=there:5"), "0 of 2 by PDC_RANK, meets at there:5");
}

TEST(Launched, ByNobodyWhereNumbersAreNoRanks) {
  EXPECT_EQ(told("", "RANK=1 WORLD_SIZE=4"), "nothing, ignores RANK=1, WORLD_SIZE=4"); // of a pod
  EXPECT_EQ(told("", "RANK=4 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1"), "nothing, ignores RANK=4, WORLD_SIZE=4");
  EXPECT_EQ(told("", "OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=2"),
            "nothing, ignores OMPI_COMM_WORLD_RANK=x, OMPI_COMM_WORLD_SIZE=2");
  EXPECT_EQ(told("", "SLURM_PROCID=0 SLURM_NTASKS=4"), "nothing"); // a batch script
  EXPECT_EQ(told("", "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=0"), "0 of 4 by SLURM_PROCID");
}

TEST(Launched, AsTheNearestOfSeveralLaunchersSays) {
  const std::string ofTorchrun = "1 of 4 by RANK, meets at here:29401", ofMpi = "2 of 3 by OMPI_COMM_WORLD_RANK";
  EXPECT_EQ(told(torchrun, mpi).substr(0, ofMpi.size()), ofMpi);
  EXPECT_EQ(told(mpi, torchrun).substr(0, ofTorchrun.size()), ofTorchrun);
  EXPECT_EQ(told(srun, torchrun), ofTorchrun); // one torchrun per node
  EXPECT_EQ(told(torchrun, srun).substr(0, 22), "7 of 8 by SLURM_PROCID");
  EXPECT_EQ(told("PDC_RANK=0 PDC_WORLD_SIZE=2", mpi).substr(0, ofMpi.size()), ofMpi);
}

TEST(Launched, AsTheNearestSaysThoughItSaysTheSame) {
  // The others' ranks are not the same, and who takes the others' word would look for them by other means.
  EXPECT_EQ(told("PDC_RANK=2 PDC_WORLD_SIZE=3 PDC_MASTER=there:5", mpi).substr(0, 30),
            "2 of 3 by OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(told(mpi, "PDC_RANK=2 PDC_WORLD_SIZE=3 PDC_MASTER=there:5").substr(0, 40),
            "2 of 3 by PDC_RANK, meets at there:5, ig");
}

TEST(Launched, ByMpiBeforeOthersWhereOneAncestorHasSetAll) {
  EXPECT_EQ(told("", torchrun + srun + mpi).substr(0, 30), "2 of 3 by OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(told(torchrun + srun + hydra, "").substr(0, 18), "5 of 6 by PMI_RANK");
  EXPECT_EQ(told(torchrun + srun, "").substr(0, 22), "7 of 8 by SLURM_PROCID");
}

TEST(Launched, ByMpirunWherePdcRunHasStartedIt) {
  const std::string started = "PDC_LAUNCHED_BY=mpirun ";
  EXPECT_EQ(told("", started + mpi + torchrun).substr(0, 30), "2 of 3 by OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(told(started, mpi + torchrun + "PDC_RANK=0 PDC_WORLD_SIZE=3").substr(0, 30),
            "2 of 3 by OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(told(started, torchrun), "nothing, ignores RANK=1, WORLD_SIZE=4");
}

/// A process of those above.
TEST(Launched, DISABLED_Tells) {
  std::string text = "nothing";
  if (const std::optional<LaunchedAs> launched = launchedAs())
    text = std::to_string(launched->rank) + " of " + std::to_string(launched->ranks) + " by " + launched->by;
  if (const std::string meeting = meetingPoint(); !meeting.empty()) text += ", meets at " + meeting;
  if (const std::string ignored = ignoredRanks(); !ignored.empty()) text += ", ignores " + ignored;
  std::printf("told: %s\n", text.c_str());
}

} // namespace
