// Runs graphs with the programs that the code generator makes of them: the counterpart of the interpreter.
#pragma once

#include "pdc/IR/Interpreter.h"

#include <memory>
#include <vector>

namespace pdc {

/// How fast the generated code shall be built, against how fast it shall run.
struct CpuEngineOptions {
  std::string optimization = "-O3 -march=native";
  int filesPerUnit = 16; ///< programs that the compiler sees at once
  int threads = 1;       ///< OpenMP threads of the kernels
};

/// The graphs @main of some modules, compiled into one shared object: forward, and backward where there is one.
class CpuEngine {
public:
  /// Generates a one-stage program per module, builds them together and loads the result. Errors: no CMake or compiler,
  /// an operation that has no form on the CPU.
  static Expected<std::unique_ptr<CpuEngine>> build(const std::vector<const Module*>& modules, Diagnostics& diags,
                                                    const CpuEngineOptions& options = {});
  ~CpuEngine();

  /// Runs @main of modules[which] once, like interpret(): the same arguments, results and errors, in f32.
  Expected<InterpreterResult> run(std::size_t which, const std::map<std::string, Tensor>& inputs,
                                  const std::map<std::string, Tensor>& parameters, Diagnostics& diags,
                                  std::uint64_t seed = 0, std::uint64_t minibatch = 0) const;

private:
  struct Impl;
  explicit CpuEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

} // namespace pdc
