// The threads of the kernels that the compiler constructs and calls.
#pragma once

#include "pdcrt/Threads.h"

#include <utility>

namespace pdc {

/// While it lives, kernels that this thread constructs or calls have so many OpenMP threads. A kernel's constructor
/// takes the number from its thread, as in a running program; the compiler hands it on as an option and sets it only
/// around such calls.
class KernelThreads {
public:
  explicit KernelThreads(int threads) : before_(std::exchange(pdcrt::kernelThreads, threads)) {}
  ~KernelThreads() { pdcrt::kernelThreads = before_; }
  KernelThreads(const KernelThreads&) = delete;
  KernelThreads& operator=(const KernelThreads&) = delete;

private:
  int before_;
};

} // namespace pdc
