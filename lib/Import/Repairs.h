// What exporters lose of Dropout and BatchNormalization, and the flags that repair it.
#pragma once

#include "OnnxFile.h"
#include "pdc/IR/Builder.h"
#include "pdc/IR/OpDef.h"
#include "pdc/Import/OnnxImport.h"

namespace pdc {

/// Whether a Dropout says that it keeps everything: since opset 12, where `training_mode` is absent or false.
bool keepsAll(const OnnxNode& dropout);
/// --dropout=P. The ratio is an attribute before opset 12, then an input beside `training_mode`.
void prepareDropout(OnnxNode& dropout, double ratio, Builder& builder);
/// Warns of what exporters lose, and of flags that find nothing to repair.
void warnOfRepairs(const OnnxFile& file, const ImportOptions& options, Diagnostics& diags);

} // namespace pdc
