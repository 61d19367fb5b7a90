// The phases of a stage program: straight-line calls, and the kernel objects and functions that they call.
#pragma once

#include "FinalBuckets.h"
#include "StageNames.h"

#include <map>
#include <span>
#include <sstream>

namespace pdc {

/// A member of Kernels.
struct KernelMember {
  std::string name, className, options;
  std::string node = {};                              ///< the ONNX node that it is for
  bool byMethod = false;                              ///< has other workspace for each method
  std::map<std::string, std::int64_t> workspace = {}; ///< bytes, by the methods that are called
};

/// `text` with line breaks after commas so that it stays within 120 columns: it begins at column `column`, later lines
/// are indented by `indent`.
std::string wrapped(const std::string& text, std::size_t column, std::size_t indent);

/// `text` with line breaks at spaces, to stay within 120 columns: it begins at `column`, later lines with `prefix`.
std::string filled(const std::string& text, std::size_t column, const std::string& prefix);

class PhaseWriter {
public:
  PhaseWriter(const StageProgram& program, const StageNames& names, Diagnostics& diags);

  Status run();

  const std::string& text() const { return text_; }
  const std::vector<KernelMember>& kernels() const { return kernels_; }
  /// Definitions of the fused kernels, in the order of their first use.
  const std::vector<std::string>& functions() const { return functions_; }
  /// Whether several conversions are one call.
  bool convertsAll() const { return convertsAll_; }
  /// Ids of the fusion groups of the training graph, ascending.
  const std::vector<int>& groups() const { return groups_; }

private:
  Status writePhase(ProgramPhase phase);
  Expected<std::string> call(const Operation& operation, const GraphMemory& memory);
  std::string follower(const Operation& operation, const GraphMemory& memory);
  std::string convertAll(std::span<const Operation* const> conversions, const GraphMemory& memory);
  std::string kernelMember(const Operation& operation, const KernelUse& use, std::int64_t workspaceBytes);
  static std::string streamWith(const Buffer& workspace);
  std::string functionName(const std::string& text, const std::string& hint);
  std::string updates(const Operation& operation) const;
  std::string finals(const Operation& operation) const;
  std::string looks(const Operation& operation, const GraphMemory& memory) const;
  std::string copies(ProgramPhase phase, const Operation* after, const GraphMemory& memory);

  const StageProgram& program_;
  const StageNames& names_;
  Diagnostics& diags_;
  std::string text_;
  std::vector<KernelMember> kernels_;
  std::map<std::string, std::size_t> kernelNames_; ///< index into kernels_, by what identifies an object
  std::vector<std::string> functions_;
  std::map<std::string, std::string> functionNames_; ///< by text
  std::vector<int> groups_;
  const std::map<const Operation*, std::vector<FinalBucket>> finals_;
  bool convertsAll_ = false;
  bool draws_ = false; ///< a call of the phase being written takes the draw
};

} // namespace pdc
