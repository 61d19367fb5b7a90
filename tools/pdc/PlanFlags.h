// Flags of pdc that shape the plan and its schedule.
#pragma once

#include "pdc/Driver/Compile.h"

#include <CLI/CLI.hpp>
#include <string>

namespace pdc {

class PlanFlags {
public:
  /// The flags, in the group "Plan". `options` must outlive the parsing.
  void addTo(CLI::App& app, CompileOptions& options);

  /// Reads the flags that have a structure, and settles the number of devices. Errors: a text that is none of a flag's,
  /// or a flag that a schedule file decides.
  Status apply(const CLI::App& app, CompileOptions& options, Diagnostics& diags) const;

private:
  void addMachinesTo(CLI::App& app, CompileOptions& options);
  void addScheduleTo(CLI::App& app, CompileOptions& options);
  void addReplicasTo(CLI::App& app, CompileOptions& options);
  void applySplit(const CLI::App& app, CompileOptions& options) const;
  Status applySchedule(const CLI::App& app, CompileOptions& options, Diagnostics& diags) const;

  std::string threads_ = "1", updates_ = "late", schedule_, bucket_, warmup_ = "hide";
  std::string split_ = "auto";
  std::string edgeCodec_ = "none";
  std::string weights_, recompute_, sync_, shard_; ///< names of policies
};

} // namespace pdc
