// From sharding specs in a file to the split that divides a graph so.
#pragma once

#include "NodePlaces.h"
#include "pdc/Pass/Pass.h"
#include "pdc/Plan/TeamSplit.h"

#include <optional>

namespace pdc {

/// How a file divides a tensor: an axis, which is `blocks` blocks, in `members` parts each.
struct AskedPart {
  std::string node, tensor;
  std::int64_t axis = 0;
  std::optional<std::int64_t> blocks = 1; ///< nothing: symbolic
  std::optional<std::int64_t> size;       ///< of the axis, where the file says it
  std::int64_t members = 1;
  bool isEven = true; ///< the parts are, as far as the file says
};

/// What the specs of a configuration divide. Errors: more than one axis of a tensor, or teams of several sizes.
Expected<std::vector<AskedPart>> askedParts(const std::string& path, const DeviceAnnotations& file,
                                            const std::string& configuration, Diagnostics& diags);

/// The split that divides @main like that, of those over so many members, or `given` if that is one. `metadata` may
/// have the one that pdc has written. What a file says of weights holds, or it is an error; of values it is a warning;
/// of weights that it does not mention a remark.
Expected<TeamSplit> splitFor(PassContext& context, const std::string& path, const DeviceAnnotations& file,
                             const NodePlaces& places, const std::vector<AskedPart>& asked, const TeamSplit& given);

} // namespace pdc
