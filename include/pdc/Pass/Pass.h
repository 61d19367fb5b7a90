// Passes and pipelines: a pass is a function over a module, described once; after each, the verifier runs.
#pragma once

#include "pdc/IR/OpDef.h"

#include <functional>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

namespace pdc {

struct PassContext {
  Module& module;
  const OpRegistry& registry;
  Diagnostics& diags;
  std::map<std::string, std::string> options; ///< of this pass: `--fuse=max=4,…` in pdc-opt
};

/// One entry of the registry; help, docs/Passes.md and pdc-opt's flags come from it.
struct PassInfo {
  std::string argument; ///< "differentiate"
  std::string summary;
  std::string description;                    ///< what it does to an example, what holds afterwards
  std::map<std::string, std::string> options; ///< name -> summary
  std::function<Status(PassContext&)> run;
};

/// The list of all passes; a second pass with the same argument aborts.
class PassRegistry {
public:
  void add(PassInfo pass);
  const PassInfo* find(const std::string& argument) const;
  const std::vector<PassInfo>& all() const { return passes_; }

private:
  std::vector<PassInfo> passes_;
};

struct PipelineOptions {
  bool verifyEach = true;
  bool timePasses = false;             ///< a table on `out` at the end
  std::vector<std::string> printAfter; ///< pass arguments, or "all"
  std::ostream* out = nullptr;
};

struct PipelineStep {
  std::string argument;
  std::map<std::string, std::string> options;
};

/// Runs `steps` in order, verifying after each; stops at the first failure.
Status runPipeline(const std::vector<PipelineStep>& steps, const PassRegistry& passes, Module& module,
                   const OpRegistry& ops, Diagnostics& diags, const PipelineOptions& options);

} // namespace pdc
