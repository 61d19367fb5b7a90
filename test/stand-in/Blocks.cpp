// Kernels as C++: the blocks of a launch run one after the other, the threads of a block as fibers where they meet at
// a barrier.
#include "Streams.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <new>
#include <sys/mman.h>
#include <ucontext.h>

namespace stand_in {

thread_local Coordinates here;

namespace {

constexpr std::size_t stackBytes = 64 * 1024, mostThreads = 1024;

/// The threads of the block that runs, as fibers. They live on and take up the next block's threads: to make one costs
/// calls of the system, to switch (_setjmp) does not.
struct Block {
  jmp_buf scheduler;
  std::array<jmp_buf, mostThreads> fibers;
  std::array<char, mostThreads> made = {}, done, waits; ///< waits for: 1 the block, 2 the warp
  std::byte* stacks = nullptr;
  void (*body)(void*) = nullptr;
  void* arguments = nullptr;
  unsigned current = 0;
  bool asFibers = false;
  alignas(16) std::byte slots[mostThreads][16];

  Block() { stacks = static_cast<std::byte*>(pages(stackBytes * mostThreads)); }

  /// Not from malloc: tests watch it.
  static void* pages(std::size_t bytes) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) misuse("no memory for stacks");
    return memory;
  }
};

Block& blockOfThread() {
  // Never freed: to register a destructor would allocate.
  thread_local Block* block = new (Block::pages(sizeof(Block))) Block;
  return *block;
}

/// Leaves the running fiber; returns when it is resumed.
void leave(Block& block) {
  if (_setjmp(block.fibers[block.current]) == 0) _longjmp(block.scheduler, 1);
}

[[noreturn]] void fiberMain() {
  while (true) {
    Block& block = blockOfThread();
    block.body(block.arguments);
    block.done[block.current] = 1;
    leave(block);
  }
}

void startFiber(Block& block, unsigned thread) {
  block.done[thread] = block.waits[thread] = 0;
}

void resume(Block& block, unsigned thread) {
  block.current = thread;
  block.waits[thread] = 0;
  here.thread.x = thread;
  if (_setjmp(block.scheduler) != 0) return;
  if (block.made[thread]) _longjmp(block.fibers[thread], 1);
  block.made[thread] = 1;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = block.stacks + thread * stackBytes;
  context.uc_stack.ss_size = stackBytes;
  context.uc_link = nullptr;
  makecontext(&context, fiberMain, 0);
  setcontext(&context);
}

/// Runs fibers begin … end - 1 until each is done or waits.
void runAll(Block& block, unsigned threads) {
  while (true) {
    bool moved = false, all = true;
    for (unsigned t = 0; t < threads; ++t) {
      if (!block.done[t] && !block.waits[t]) {
        resume(block, t);
        moved = true;
      }
      all = all && block.done[t];
    }
    if (all) return;
    // A warp whose threads all wait for each other goes on; so does a block.
    for (unsigned begin = 0; begin < threads; begin += 32) {
      const unsigned end = std::min(begin + 32, threads);
      if (std::all_of(block.waits.begin() + begin, block.waits.begin() + end, [](char w) { return w == 2; })) {
        std::fill(block.waits.begin() + begin, block.waits.begin() + end, 0);
        moved = true;
      }
    }
    if (std::all_of(block.waits.begin(), block.waits.begin() + threads, [](char w) { return w == 1; })) {
      std::fill(block.waits.begin(), block.waits.begin() + threads, 0);
      moved = true;
    }
    if (!moved) misuse("threads of a block wait for others that have ended, or wait elsewhere");
  }
}

void wait(char kind) {
  Block& block = blockOfThread();
  if (!block.asFibers) misuse("a barrier that the first thread of the block does not reach");
  block.waits[block.current] = kind;
  leave(block);
}

} // namespace

void barrier() {
  wait(1);
}
void warpBarrier() {
  wait(2);
}
void* exchange(unsigned lane) {
  Block& block = blockOfThread();
  return block.slots[block.current / 32 * 32 + lane];
}

void runKernel(unsigned grid, unsigned threads, void (*body)(void*), void* arguments) {
  if (grid == 0 || threads == 0 || threads > mostThreads) misuse("a launch of no threads, or of too many");
  Block& block = blockOfThread();
  block.body = body;
  block.arguments = arguments;
  here = {{0, 0, 0}, {0, 0, 0}, {threads, 1, 1}, {grid, 1, 1}};
  for (unsigned b = 0; b < grid; ++b) {
    here.block.x = b;
    // Where the first thread meets no barrier, none does: the others need no fibers.
    block.asFibers = true;
    startFiber(block, 0);
    resume(block, 0);
    if (block.done[0]) {
      block.asFibers = false;
      for (unsigned t = 1; t < threads; ++t) {
        here.thread.x = t;
        body(arguments);
      }
      continue;
    }
    for (unsigned t = 1; t < threads; ++t) startFiber(block, t);
    runAll(block, threads);
  }
}

} // namespace stand_in
