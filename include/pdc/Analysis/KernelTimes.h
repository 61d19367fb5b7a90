// What the ways in which a kernel can compute take on this machine, and the choice among them.
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/IR/Target.h"
#include "pdc/Support/Expected.h"

#include <string>
#include <vector>

namespace pdc {

/// Of a call of a kernel's method (KernelAlternatives in OpDef.h).
struct KernelTime {
  std::string kernel, method, algorithm;
  double ms = 0;                   ///< median of several calls
  std::int64_t workspaceBytes = 0; ///< that a program on a GPU has to plan for it; 0 on CPUs, which ask the kernel
  friend bool operator==(const KernelTime&, const KernelTime&) = default;
};

/// Times every algorithm of the kernels that the module's operations call, in program order, where there is a choice.
/// On CPUs, with so many OpenMP threads for a call; on a GPU the program that measures does (pdcrt/Setup.h).
std::vector<KernelTime> timeKernels(const Module& module, int threads = 1);

/// Whether `times` say something of every choice in `module`, on CPUs.
bool coversChoices(const std::vector<KernelTime>& times, const Module& module);

/// Makes every operation of the module ask for the fastest algorithm of its kernel's methods, of equal ones the first
/// in `times`; for the kernel's own choice where they do not say. With the workspace that these need. Whole graphs are
/// decided, so that no cut changes a bit. Error, in `file`: they speak of a kernel, a method or an algorithm that the
/// module does not have.
Status chooseAlgorithms(Module& module, const std::vector<KernelTime>& times, const std::string& file,
                        Diagnostics& diags, Target target = Target::cpu);

/// Those of `times` that are of methods which operations of the module call. A kernel that is timed as a whole tells of
/// others, too.
std::vector<KernelTime> calledOnly(const std::vector<KernelTime>& times, const Module& module, Target target);

} // namespace pdc
