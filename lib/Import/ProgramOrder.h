// Which names a graph defines, and the order in which its nodes are converted.
#pragma once

#include "OnnxFile.h"

#include <vector>

namespace pdc {

/// The ONNX name of `node`, or of its first output when it has none.
std::string nameOfNode(const onnx::NodeProto& node);

/// Indices of the nodes of `file`'s graph in program order: the file's own where it is topological, else always the
/// first node that is ready. Errors, all of one kind at once: names that are defined twice, names that nothing defines,
/// nodes that wait for each other (one cycle is shown).
Expected<std::vector<int>> programOrder(const OnnxFile& file, Diagnostics& diags);

} // namespace pdc
