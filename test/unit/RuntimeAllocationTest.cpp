// LINK: pdcrt pdcSchedule
// While training runs, no thread allocates: malloc and its family, operator new (which calls malloc) and mmap are
// counted over 100 minibatches that include changes of epoch.
#include "RunFolder.h"
#include "TeamStages.h"

#include <atomic>
#include <cerrno>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <utility>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

std::atomic<bool> counting{false};
std::atomic<long> allocations{0};

void count() {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
}

} // namespace

// The C library's own functions, under their internal names.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t number, std::size_t size);
void* __libc_realloc(void* pointer, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(std::size_t number, std::size_t size) {
  count();
  return __libc_calloc(number, size);
}
void* realloc(void* pointer, std::size_t size) {
  count();
  return __libc_realloc(pointer, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** pointer, std::size_t alignment, std::size_t size) {
  count();
  *pointer = __libc_memalign(alignment, size);
  return *pointer ? 0 : ENOMEM;
}
void* mmap(void* address, std::size_t length, int protection, int flags, int file, off_t offset) noexcept {
  count();
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, length, protection, flags, file, offset));
}
}

namespace {

using namespace pdcrt;

constexpr std::uint64_t from = 60, to = 160;
bool allocateOnPurpose = false;
void (*forwardOfFirst)(const Call&) = nullptr;

/// Stage 0's forward, which switches the counting on and off.
void countedForward(const Call& call) {
  if (call.draw.minibatch == from) counting = true;
  if (call.draw.minibatch == to) counting = false;
  if (allocateOnPurpose && call.draw.minibatch == from + 50) ::operator delete(::operator new(64));
  forwardOfFirst(call);
}

/// `team`: members of the teams that compute both stages.
long allocationsOfRun(const std::vector<std::string>& more, int team = 1) {
  RunFolder folder({2, 1}, {3, 0});
  Schedule schedule = folder.schedule;
  for (ScheduleStage& stage : schedule.stages) stage.team = team;
  folder.use(schedule);
  folder.writeData(60); // 20 minibatches: seven epochs begin while allocations are counted
  const std::vector<const Stage*> made = linear::teamStages({team, team});
  Stage first = *made[0];
  forwardOfFirst = std::exchange(first.forward, countedForward);
  const Stage* stages[] = {&first, made[1]};
  std::vector<std::string> flags = {"pipeline", "--threads",           "--dir",      folder.path,
                                    "--data",   folder.path + "/data", "--epochs=10"};
  for (const std::string& flag : more) flags.push_back(flag + folder.path + "/" + flag.substr(2, 5));
  std::vector<char*> arguments;
  for (std::string& flag : flags) arguments.push_back(flag.data());
  allocations = 0;
  EXPECT_EQ(pdcrt::run(static_cast<int>(arguments.size()), arguments.data(), stages), 0);
  EXPECT_FALSE(counting);
  return allocations;
}

TEST(Allocation, NoneWhileTrainingRuns) {
  EXPECT_EQ(allocationsOfRun({}), 0);
}

TEST(Allocation, NoneWithMetricsAndTrace) {
  EXPECT_EQ(allocationsOfRun({"--metrics=", "--trace="}), 0);
}

TEST(Allocation, NoneWhereTeamsCompute) {
  EXPECT_EQ(allocationsOfRun({}, 2), 0);
  EXPECT_EQ(allocationsOfRun({}, 3), 0);
}

TEST(Allocation, AreCounted) {
  allocateOnPurpose = true;
  EXPECT_EQ(allocationsOfRun({}), 1);
  allocateOnPurpose = false;
}

} // namespace

#else
TEST(Allocation, IsNotCountedUnderSanitizers) {
  GTEST_SKIP();
}
#endif
