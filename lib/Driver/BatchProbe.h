// Along which axes of a model's values its samples lie, by what becomes of their shapes with one sample more.
#pragma once

#include "pdc/Driver/Compile.h"
#include "pdc/Pass/Pass.h"

namespace pdc {

/// Imports the model again with one sample more, and compares.
class BatchProbe {
public:
  /// `main`: as it was imported with `import`, which found `batch`.
  BatchProbe(const CompileOptions& options, const ImportOptions& import, const OpRegistry& ops,
             const PassRegistry& passes, const Graph& main, const BatchAxes& batch);

  /// Fails where an axis that was guessed cannot be the batch, because samples would not be apart: values compare them
  /// with each other, a recurrent operator goes along it, an input chooses among them; or where a batch that was
  /// exported still stands in a node.
  Status check(Diagnostics& diags) const;
  /// Adds the axes of the labels of @main, the graph with its losses. Errors: a label that has no axis of the batch.
  Status addLabels(const Module& module, BatchAxes& batch, Diagnostics& diags) const;

private:
  Status compare(const Operation& operation, const Operation& wider, Diagnostics& diags) const;
  Diagnostics::Builder refuse(const std::string& node, Diagnostics& diags) const;

  const CompileOptions& options_;
  BatchAxes before_;
  std::int64_t samples_; ///< of main_, which are compared with one more: at least two, so that terms count them
  std::unique_ptr<Graph> main_, wider_; ///< null: not needed, or not possible
  std::map<std::string, Shape> labels_; ///< with one sample more
  std::vector<std::int64_t> sequences_;
};

} // namespace pdc
